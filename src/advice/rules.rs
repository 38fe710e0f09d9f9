//! The list of all rules.
//!
//! Owns what a rule is and the order of the families. Each family is a folder with a file for each rule.

mod compaction;
mod documents;
mod housekeeping;
mod service;
mod settings;
mod sharding;
mod space;
mod views;

use super::{Findings, Severity, Situation};

/// What rules of a family are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Its title in the book.
    pub title: &'static str,
    /// Its rules.
    pub rules: &'static [Rule],
}

/// One rule. Its texts are the book's.
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
    /// Where the book explains it, as a path of recliner's own web server.
    #[must_use]
    pub fn learn(&self) -> String {
        format!("/docs/advice.html#{}", self.code)
    }
}

/// The rule about volumes that fill up, for which the future is simulated.
pub(super) const VOLUME_FILLS: &str = "volume_fills";

/// Every family, in the order of the book.
pub const FAMILIES: &[Family] = &[
    compaction::FAMILY,
    housekeeping::FAMILY,
    documents::FAMILY,
    views::FAMILY,
    sharding::FAMILY,
    space::FAMILY,
    settings::FAMILY,
    service::FAMILY,
];

/// Every rule.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    FAMILIES.iter().flat_map(|family| family.rules)
}

/// The rule with this code.
#[must_use]
pub fn rule_of_code(code: &str) -> Option<&'static Rule> {
    rules().find(|rule| rule.code == code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_are_unique_and_can_be_labels_and_anchors() {
        let codes: Vec<&str> = rules().map(|rule| rule.code).collect();
        let distinct: BTreeSet<&str> = codes.iter().copied().collect();
        assert_eq!(distinct.len(), codes.len());
        for code in codes {
            assert!(
                code.bytes().all(|letter| letter.is_ascii_lowercase() || letter == b'_'),
                "{code}"
            );
        }
    }

    #[test]
    fn remedies_are_tried_on_a_real_couchdb_or_the_rule_says_why_not() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/remedies");
        let script = std::fs::read_to_string(script).expect("it is in the repository");
        let tried = script
            .lines()
            .filter_map(|line| line.strip_prefix("@situation(\"")?.strip_suffix("\")"));
        let tried: BTreeSet<&str> = tried.collect();
        let claimed = rules().filter(|rule| rule.untried.is_none()).map(|rule| rule.code);
        assert_eq!(tried, claimed.collect());
    }

    #[test]
    fn the_book_can_explain_every_rule() {
        for rule in rules() {
            assert!(rule.finds.ends_with('.') && rule.because.ends_with('.'), "{}", rule.code);
            assert!(!rule.severities.is_empty(), "{}", rule.code);
        }
    }
}
