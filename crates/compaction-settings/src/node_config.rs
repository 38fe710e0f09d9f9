//! One node's settings, read from its configuration API or from its ini files.

use crate::{IniProblem, Rules, Sections, ini};

/// The settings of one node, and what is known about the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeConfig {
    /// CouchDB's name of the node, or another name if only files are known.
    pub node: String,
    /// The node's CouchDB version as `GET /` reports it; empty if unknown.
    pub version: String,
    /// The settings by section and key.
    pub sections: Sections,
    /// Lines of the ini files that CouchDB reads in an unexpected way.
    pub problems: Vec<IniProblem>,
}

impl NodeConfig {
    /// A node whose settings come from ini files, given as name and content in the order in which
    /// CouchDB reads them.
    ///
    /// The version determines how lines are read. Without one the newest rules apply, which is
    /// wrong for 2.x, where long `[compactions]` rules continue on further lines.
    pub fn from_ini<'a>(
        node: &str,
        version: &str,
        files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Self {
        let rules = Rules::parse(version).unwrap_or(Rules::NEWEST);
        let mut read = ini::Ini::default();
        for (name, bytes) in files {
            read.add(name, bytes, rules);
        }
        Self {
            node: node.to_owned(),
            version: version.to_owned(),
            sections: read.sections,
            problems: read.problems,
        }
    }

    /// The version whose rules apply, and whether it is only assumed.
    pub(crate) fn rules(&self) -> (Rules, bool) {
        Rules::parse(&self.version).map_or((Rules::NEWEST, true), |rules| (rules, false))
    }

    pub(crate) fn value(&self, section: &str, key: &str) -> Option<&str> {
        self.sections.get(section)?.get(key).map(String::as_str)
    }
}
