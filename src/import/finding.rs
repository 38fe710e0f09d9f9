//! Findings: what there is to say about the settings of some nodes and their import.

use compaction_settings::{self as read, Findings, Severity};
use std::{collections::BTreeMap, fmt};

/// One thing to say about the settings of some nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// How much it matters; of an error, no `recliner.yml` has the same effect.
    pub severity: Severity,
    /// The nodes it holds for, in the order they were given.
    pub nodes: Vec<String>,
    /// The configuration section, `smoosh.ratio_dbs`.
    pub section: String,
    /// The key, where it is about one.
    pub key: Option<String>,
    /// What there is to say, as one lowercase fragment.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.severity {
            Severity::Error => out.write_str("impossible")?,
            severity @ (Severity::Note | Severity::Warning) => severity.fmt(out)?,
        }
        write!(out, ": [{}]", self.section)?;
        if let Some(key) = &self.key {
            write!(out, " {key}")?;
        }
        write!(out, " ({}): {}", self.nodes.join(", "), self.message)
    }
}

/// Each finding once, the gravest first, with the nodes it is true for.
pub(super) fn gather(nodes: impl IntoIterator<Item = (String, Findings)>) -> Vec<Finding> {
    let mut nodes_of: BTreeMap<read::Finding, Vec<String>> = BTreeMap::new();
    for (node, findings) in nodes {
        for finding in findings.sorted() {
            let named = nodes_of.entry(read::Finding { fault: None, ..finding }).or_default();
            if named.last() != Some(&node) {
                named.push(node.clone());
            }
        }
    }
    let mut findings: Vec<_> = nodes_of
        .into_iter()
        .map(|(found, nodes)| {
            let read::Finding { severity, section, key, message, fault: _ } = found;
            Finding { severity, nodes, section, key, message }
        })
        .collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}
