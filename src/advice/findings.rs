//! The findings of one rule, limited in number.
//!
//! Chooses the findings that are shown in full. A rule may find a hundred thousand shards; only the most
//! valuable are put into words, and the rest are counted.

use super::{Finding, Gain, Severity, Wording, finding::rank};
use crate::text::Label;
use std::cmp::Reverse;

/// Maximum number of findings of one rule that are shown.
const MAX_SHOWN: usize = 20;

/// Number of a rule's findings that are not shown, and the bytes they would free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surplus {
    /// The number of findings that are not shown, by severity in the order of `Severity::ALL`.
    pub counts: [u64; Severity::ALL.len()],
    /// Bytes that acting on those findings would free.
    pub freed_bytes: u64,
}

impl Surplus {
    /// Number of findings that are not shown.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    const fn add(&mut self, severity: Severity, gain: Gain) {
        self.counts[severity as usize] += 1;
        self.freed_bytes = self.freed_bytes.saturating_add(gain.freed_bytes());
    }
}

/// Collects what a rule finds.
#[derive(Debug)]
pub struct Findings {
    /// The severity of findings for which the rule gives no other.
    severity: Severity,
    /// At most [`MAX_SHOWN`].
    shown: Vec<Finding>,
    surplus: Surplus,
}

impl Findings {
    /// An empty collection for a rule with these severities, the usual one first.
    pub fn of(severities: &[Severity]) -> Self {
        let severity = severities.first().copied().unwrap_or(Severity::Info);
        Self { severity, shown: Vec::new(), surplus: Surplus::default() }
    }

    /// Adds a finding with the rule's own severity.
    pub fn offer(&mut self, gain: Gain, wording: impl FnOnce() -> Wording) {
        self.offer_as(self.severity, gain, wording);
    }

    /// Adds a finding. It is put into words only if it is among the most valuable so far.
    pub fn offer_as(&mut self, severity: Severity, gain: Gain, wording: impl FnOnce() -> Wording) {
        let finding = || {
            let Wording { subject, says, evidence, remedy } = wording();
            Finding { severity, subject, says, evidence, gain, remedy }
        };
        if self.shown.len() < MAX_SHOWN {
            self.shown.push(finding());
            return;
        }
        let ranks = self.shown.iter().map(|it| rank(it.severity, it.gain)).enumerate();
        match ranks.min_by_key(|(at, rank)| (*rank, Reverse(*at))) {
            Some((at, least)) if least < rank(severity, gain) => {
                let replaced = std::mem::replace(&mut self.shown[at], finding());
                self.surplus.add(replaced.severity, replaced.gain);
            }
            _ => self.surplus.add(severity, gain),
        }
    }

    /// The most valuable findings, best first, and the others as sums.
    #[must_use]
    pub fn into_parts(mut self) -> (Vec<Finding>, Surplus) {
        self.shown.sort_by(Finding::compare);
        (self.shown, self.surplus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Subject;

    fn offer(findings: &mut Findings, severity: Severity, bytes: u64) {
        findings.offer_as(severity, Gain::Bytes(bytes), || Wording {
            subject: Subject::Database(format!("db{bytes}")),
            says: String::new(),
            evidence: Vec::new(),
            remedy: Vec::new(),
        });
    }

    #[test]
    fn shows_worst_and_most_valuable_and_counts_the_rest() {
        let mut findings = Findings::of(&[Severity::Info]);
        for bytes in 1..=100 {
            offer(&mut findings, Severity::Info, bytes);
        }
        offer(&mut findings, Severity::Critical, 0);
        let (shown, surplus) = findings.into_parts();
        let bytes: Vec<u64> = shown.iter().map(|it| it.gain.freed_bytes()).collect();
        let expected: Vec<u64> = std::iter::once(0).chain((82..=100).rev()).collect();
        assert_eq!(bytes, expected);
        assert_eq!(surplus, Surplus { counts: [81, 0, 0], freed_bytes: 81 * 82 / 2 });
    }

    #[test]
    fn text_is_built_only_for_findings_that_are_shown() {
        let mut findings = Findings::of(&[Severity::Info]);
        (0..MAX_SHOWN).for_each(|_| offer(&mut findings, Severity::Info, 5));
        findings.offer(Gain::Bytes(4), || panic!("nobody reads it"));
        assert_eq!(findings.into_parts().1.count(), 1);
    }
}
