//! How many candidates of a queue are decided how.

use super::RefusalReason;

/// Why each waiting target of a queue does not start, in the queue's order; a byte each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reasons(Vec<u8>);

impl Reasons {
    pub(super) fn with_room(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    /// The next one's; none where it starts.
    pub(super) fn push(&mut self, reason: Option<RefusalReason>) {
        self.0.push(reason.and_then(|it| u8::try_from(it as usize + 1).ok()).unwrap_or(0));
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = Option<RefusalReason>> {
        let place = |code: u8| usize::from(code).checked_sub(1);
        self.0.iter().map(move |code| RefusalReason::ALL.get(place(*code)?).copied())
    }
}

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
