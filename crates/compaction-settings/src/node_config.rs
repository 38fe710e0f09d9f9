//! One node's settings, from its configuration interface or from its ini files.

use crate::{IniProblem, Rules, Sections, ini};

/// One node's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeConfig {
    /// CouchDB's name of the node, or a name in its place where only files are known.
    pub node: String,
    /// Its CouchDB version as `GET /` reports it; empty when not known.
    pub version: String,
    /// Its settings.
    pub sections: Sections,
    /// Lines of its ini files that CouchDB does not read as one might expect.
    pub problems: Vec<IniProblem>,
}

impl NodeConfig {
    /// A node whose settings come from ini files, in the order CouchDB reads them:
    /// name and content of each.
    ///
    /// The version decides how lines are read; without one the newest rules apply, which
    /// is wrong for 2.x, whose long `[compactions]` rules continue on further lines.
    #[must_use]
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
