//! Findings: what there is to say about settings, for people and programs.

use std::{collections::BTreeMap, fmt};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Good to know; the import is equal in effect.
    Note,
    /// Probably not what was meant, or equal only in what is taken and not in when it runs.
    Warning,
    /// No `recliner.yml` has the same effect.
    Impossible,
}

impl Severity {
    /// Every severity, the mildest first.
    pub const ALL: [Self; 3] = [Self::Note, Self::Warning, Self::Impossible];

    /// The word in tables and JSON.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Impossible => "impossible",
        }
    }
}

/// One thing to say about the settings of some nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
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

/// A finding before it is known for how many nodes it holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Remark {
    severity: Severity,
    section: String,
    key: Option<String>,
    message: String,
}

/// The remarks about one node.
#[derive(Clone, Debug, Default)]
pub(super) struct Remarks(pub(super) Vec<Remark>);

impl Remarks {
    pub(super) fn add(
        &mut self,
        severity: Severity,
        section: &str,
        key: impl Into<Option<&'static str>>,
        message: impl Into<String>,
    ) {
        let key = key.into().map(str::to_owned);
        self.add_key(severity, section, key, message);
    }

    pub(super) fn add_key(
        &mut self,
        severity: Severity,
        section: &str,
        key: Option<String>,
        message: impl Into<String>,
    ) {
        let section = section.to_owned();
        self.0.push(Remark { severity, section, key, message: message.into() });
    }
}

/// One finding for each remark, the gravest first, with the nodes it holds for.
pub(super) fn gather(remarks: impl IntoIterator<Item = (String, Remarks)>) -> Vec<Finding> {
    let mut nodes: BTreeMap<Remark, Vec<String>> = BTreeMap::new();
    for (node, remarks) in remarks {
        for remark in remarks.0 {
            let named = nodes.entry(remark).or_default();
            if named.last().is_none_or(|last| *last != node) {
                named.push(node.clone());
            }
        }
    }
    let mut findings: Vec<_> = nodes
        .into_iter()
        .map(|(Remark { severity, section, key, message }, nodes)| Finding {
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
