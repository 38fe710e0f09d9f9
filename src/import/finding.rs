//! Findings about the settings of several nodes and their import.

use compaction_settings::{self as read, Findings, Severity};
use std::{collections::BTreeMap, fmt};

/// A finding about the settings of some nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// How much the finding matters; after an error, no `recliner.yml` has the same effect.
    pub severity: Severity,
    /// The nodes that the finding applies to, in the order they were given.
    pub nodes: Vec<String>,
    /// The configuration section, such as `smoosh.ratio_dbs`.
    pub section: String,
    /// The key, if the finding is about one.
    pub key: Option<String>,
    /// The finding as a lowercase fragment.
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

/// Merges equal findings of several nodes, the most severe first.
pub(super) fn gather(nodes: impl IntoIterator<Item = (String, Findings)>) -> Vec<Finding> {
    let mut nodes_of: BTreeMap<read::Finding, Vec<String>> = BTreeMap::new();
    for (node, findings) in nodes {
        for finding in findings.sorted() {
            let nodes = nodes_of.entry(read::Finding { fault: None, ..finding }).or_default();
            if nodes.last() != Some(&node) {
                nodes.push(node.clone());
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
