//! How many candidates of a queue are decided how.

use super::RefusalReason;

/// How many candidates of a queue start or are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// They start.
    pub starts: u64,
    /// They do not, by the reason's place in [`RefusalReason::ALL`].
    refused: [u64; RefusalReason::ALL.len()],
}

impl Counts {
    /// One more is refused.
    pub(super) fn refuse(&mut self, reason: RefusalReason) {
        if let Some(count) = self.refused.get_mut(reason as usize) {
            *count += 1;
        }
    }

    /// How many are refused for a reason.
    #[must_use]
    pub fn refused(&self, reason: RefusalReason) -> u64 {
        self.refused.get(reason as usize).copied().unwrap_or(0)
    }

    /// Every reason for which some are refused.
    pub fn reasons(&self) -> impl Iterator<Item = (RefusalReason, u64)> {
        let all = RefusalReason::ALL.into_iter();
        all.map(|reason| (reason, self.refused(reason))).filter(|(_, count)| *count > 0)
    }
}
