//! The type of a rule, and families of rules.

use super::{Findings, Severity, Situation};

/// Rules about one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Its title in the book.
    pub title: &'static str,
    /// Its rules.
    pub rules: &'static [Rule],
}

/// One rule. Its texts appear in the book.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its name in the API, in metrics and in orders; it never changes.
    pub code: &'static str,
    /// What it finds, in one sentence.
    pub finds: &'static str,
    /// Why that matters, by how CouchDB behaves, with the source; and what its thresholds mean.
    pub because: &'static str,
    /// The severities that its findings may have.
    pub severities: &'static [Severity],
    /// Why `tests/remedies` cannot carry out its remedies on a real CouchDB; none if it does.
    pub untried: Option<&'static str>,
    /// Looks for findings.
    pub check: fn(&Situation<'_>, &mut Findings),
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.code == other.code
    }
}

impl Eq for Rule {}

impl Rule {
    /// Defaults of most rules: severity info, with remedies that `tests/remedies` carries out.
    pub(super) const fn info(check: fn(&Situation<'_>, &mut Findings)) -> Self {
        let severities = &[Severity::Info];
        Self { code: "", finds: "", because: "", severities, untried: None, check }
    }

    /// Defaults as in [`Self::info`], with severity warning.
    pub(super) const fn warning(check: fn(&Situation<'_>, &mut Findings)) -> Self {
        Self { severities: &[Severity::Warning], ..Self::info(check) }
    }

    /// The page of the book that explains it, as a path on recliner's own web server.
    pub fn learn(&self) -> String {
        format!("/docs/advice.html#{}", self.code)
    }
}

/// Code of the rule about volumes that fill up, for which the future is simulated.
pub(super) const VOLUME_FILLS: &str = "volume_fills";
