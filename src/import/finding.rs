//! Findings: what there is to say about the settings of some nodes and their import.

use crate::text::Label;
use compaction_settings as read;
use std::{collections::BTreeMap, fmt};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// How much a finding matters.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Severity {
    /// Good to know; the import is equal in effect.
    Note,
    /// Probably not what was meant, or equal only in what is taken and not in when it runs.
    Warning,
    /// No `recliner.yml` has the same effect.
    Impossible,
}

/// One thing to say about the settings of some nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// How much it matters.
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
        write!(out, "{}: [{}]", self.severity.label(), self.section)?;
        if let Some(key) = &self.key {
            write!(out, " {key}")?;
        }
        write!(out, " ({}): {}", self.nodes.join(", "), self.message)
    }
}

impl From<read::Severity> for Severity {
    fn from(severity: read::Severity) -> Self {
        match severity {
            read::Severity::Note => Self::Note,
            read::Severity::Warning => Self::Warning,
            // CouchDB compacts nothing, and no channels have the same effect.
            read::Severity::Error => Self::Impossible,
        }
    }
}

/// A finding about one node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NodeFinding {
    severity: Severity,
    section: String,
    key: Option<String>,
    message: String,
}

/// The findings about one node.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeFindings(Vec<NodeFinding>);

impl NodeFindings {
    pub(super) fn add<'a>(
        &mut self,
        severity: Severity,
        section: &'a str,
        key: impl Into<Option<&'a str>>,
        message: impl Into<String>,
    ) {
        let (section, key) = (section.to_owned(), key.into().map(str::to_owned));
        self.0.push(NodeFinding { severity, section, key, message: message.into() });
    }

    /// Adds what was found in the settings themselves.
    pub(super) fn extend(&mut self, findings: Vec<read::Finding>) {
        self.0.extend(findings.into_iter().map(
            |read::Finding { severity, section, key, message, .. }| NodeFinding {
                severity: severity.into(),
                section,
                key,
                message,
            },
        ));
    }

    /// Whether there is a finding about this key.
    pub(super) fn is_about(&self, section: &str, key: &str) -> bool {
        self.0.iter().any(|found| found.section == section && found.key.as_deref() == Some(key))
    }
}

/// Each finding once, the gravest first, with the nodes it is true for.
pub(super) fn gather(nodes: impl IntoIterator<Item = (String, NodeFindings)>) -> Vec<Finding> {
    let mut nodes_of: BTreeMap<NodeFinding, Vec<String>> = BTreeMap::new();
    for (node, findings) in nodes {
        for finding in findings.0 {
            let named = nodes_of.entry(finding).or_default();
            if named.last().is_none_or(|last| *last != node) {
                named.push(node.clone());
            }
        }
    }
    let mut findings: Vec<_> = nodes_of
        .into_iter()
        .map(|(NodeFinding { severity, section, key, message }, nodes)| Finding {
            severity,
            nodes,
            section,
            key,
            message,
        })
        .collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}
