//! Findings about the settings of one node.

use crate::NodeConfig;
use std::fmt;

/// How much a finding matters.
#[derive(strum::Display)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// For information.
    Note,
    /// The settings probably do not do what was intended.
    Warning,
    /// CouchDB compacts nothing with these settings.
    Error,
}

/// A problem with a section as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// Its own bounds exclude everything, or everything but files without live bytes.
    NeverMatches,
    /// An earlier channel takes everything that it would take.
    Shadowed,
    /// It contains rules of the compaction daemon, which this version does not have.
    OldRules,
}

/// A finding about the settings of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// How much the finding matters.
    pub severity: Severity,
    /// The configuration section, such as `smoosh.ratio_dbs`.
    pub section: String,
    /// The key, if the finding is about one.
    pub key: Option<String>,
    /// The finding as a lowercase fragment.
    pub message: String,
    /// The problem with the section as a whole, if the finding reports one.
    pub fault: Option<Fault>,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: [{}]", self.severity, self.section)?;
        if let Some(key) = &self.key {
            write!(out, " {key}")?;
        }
        write!(out, ": {}", self.message)
    }
}

/// Findings while they are collected.
#[derive(Clone, Debug, Default)]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// Adds a note: something for information.
    pub fn note<'a>(
        &mut self,
        section: &'a str,
        key: impl Into<Option<&'a str>>,
        message: impl Into<String>,
    ) {
        self.add(Severity::Note, section, key.into(), message.into());
    }

    /// Adds a warning: something that is probably not intended.
    pub fn warn<'a>(
        &mut self,
        section: &'a str,
        key: impl Into<Option<&'a str>>,
        message: impl Into<String>,
    ) {
        self.add(Severity::Warning, section, key.into(), message.into());
    }

    /// Adds an error: something that prevents CouchDB from using the settings at all.
    pub fn error<'a>(
        &mut self,
        section: &'a str,
        key: impl Into<Option<&'a str>>,
        message: impl Into<String>,
    ) {
        self.add(Severity::Error, section, key.into(), message.into());
    }

    /// Adds a finding with this severity.
    pub fn add(&mut self, severity: Severity, section: &str, key: Option<&str>, message: String) {
        let (section, key) = (section.to_owned(), key.map(str::to_owned));
        self.0.push(Finding { severity, section, key, message, fault: None });
    }

    /// Adds a warning about a section as a whole.
    pub(crate) fn add_fault(&mut self, fault: Fault, section: String, message: String) {
        let (severity, fault) = (Severity::Warning, Some(fault));
        self.0.push(Finding { severity, section, key: None, message, fault });
    }

    /// Adds a note about each of these keys that is set and has no finding yet.
    pub fn note_set_keys(
        &mut self,
        node: &NodeConfig,
        section: &str,
        keys: &[(&str, &'static str)],
    ) {
        for (key, message) in keys {
            let is_about = |it: &Finding| it.section == section && it.key.as_deref() == Some(*key);
            if node.value(section, key).is_some() && !self.0.iter().any(is_about) {
                self.note(section, *key, *message);
            }
        }
    }

    /// Each finding once, the most severe first, then by section and key.
    pub fn sorted(self) -> Vec<Finding> {
        let mut findings = self.0;
        findings.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.cmp(b)));
        findings.dedup();
        findings
    }
}

impl From<Vec<Finding>> for Findings {
    fn from(findings: Vec<Finding>) -> Self {
        Self(findings)
    }
}
