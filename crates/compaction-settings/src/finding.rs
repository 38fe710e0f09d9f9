//! Findings: what there is to say about the settings of one node.

use std::fmt;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Good to know.
    Note,
    /// Probably not what was meant.
    Warning,
    /// CouchDB compacts nothing with these settings.
    Error,
}

impl Severity {
    /// The word in texts.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// What is wrong with a section as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// Its own bounds leave nothing for it to take, or only files without live bytes.
    NeverMatches,
    /// A channel before it takes everything that it would take.
    Shadowed,
    /// They are rules of the compaction daemon, which this version does not have.
    OldRules,
}

/// One statement about the settings of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The configuration section, `smoosh.ratio_dbs`.
    pub section: String,
    /// The key, if it is about one.
    pub key: Option<String>,
    /// The statement, as one lowercase fragment.
    pub message: String,
    /// What is wrong with the section, where the statement is about that.
    pub fault: Option<Fault>,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: [{}]", self.severity.label(), self.section)?;
        if let Some(key) = &self.key {
            write!(out, " {key}")?;
        }
        write!(out, ": {}", self.message)
    }
}

/// Findings as they are collected.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    pub(crate) fn add<'a>(
        &mut self,
        severity: Severity,
        section: &'a str,
        key: impl Into<Option<&'a str>>,
        message: impl Into<String>,
    ) {
        let (section, key) = (section.to_owned(), key.into().map(str::to_owned));
        self.0.push(Finding { severity, section, key, message: message.into(), fault: None });
    }

    /// Adds a warning about a section as a whole.
    pub(crate) fn add_fault(&mut self, fault: Fault, section: String, message: String) {
        let (severity, fault) = (Severity::Warning, Some(fault));
        self.0.push(Finding { severity, section, key: None, message, fault });
    }

    /// Each finding once, the gravest first, then by section and key.
    pub(crate) fn sorted(self) -> Vec<Finding> {
        let mut findings = self.0;
        findings.sort_by(|a, b| {
            let by_place =
                || (&a.section, &a.key, &a.message).cmp(&(&b.section, &b.key, &b.message));
            b.severity.cmp(&a.severity).then_with(by_place)
        });
        findings.dedup();
        findings
    }
}
