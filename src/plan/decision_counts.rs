//! Counts of the decisions about a queue's candidates.

use super::refusal::RefusalReason;
use crate::text::Label;

/// Why each queued target does not start, in the queue's order, one byte each; `None` if it starts.
pub(super) type RefusalReasons = Vec<Option<RefusalReason>>;

/// Number of starts and refusals among a queue's candidates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionCounts {
    /// Candidates that start.
    pub starts: u64,
    /// Refused candidates, by the reason's index in `RefusalReason::ALL`.
    refusals: [u64; RefusalReason::ALL.len()],
}

impl DecisionCounts {
    pub(super) fn count_refusal(&mut self, reason: RefusalReason) {
        if let Some(count) = self.refusals.get_mut(reason as usize) {
            *count += 1;
        }
    }

    /// Number of candidates refused for a reason.
    #[must_use]
    pub fn refusals(&self, reason: RefusalReason) -> u64 {
        self.refusals.get(reason as usize).copied().unwrap_or(0)
    }

    /// Every reason with at least one refusal.
    pub fn refusals_by_reason(&self) -> impl Iterator<Item = (RefusalReason, u64)> {
        let all = RefusalReason::each();
        all.map(|reason| (reason, self.refusals(reason))).filter(|(_, count)| *count > 0)
    }
}
