//! The bounds that the admission applies to every shard of one queue alike.
//!
//! They repeat the admission's rules for speed: calling the admission for each of a million shards
//! takes twice the time that planning may take. Checks that do not depend on the shard are
//! evaluated once, for the reason only and without its numbers; shards with special state are left
//! to the admission.

use super::{
    candidate_summary::{Blocker, CandidateSummary, CompactionUnit},
    refusal::RefusalReason,
};
use wall_clock::Moment;

/// The bounds that all shards of one queue share, at one state of the plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueBounds {
    pub(super) now: Moment,
    /// Whole seconds for which facts count as fresh.
    pub(super) fresh_for: u64,
    pub(super) headroom_factor: f64,
    pub(super) gate_refusal: Option<RefusalReason>,
    /// Predicted bytes of the largest file that can be finished within the window.
    pub(super) largest_in_window: Option<f64>,
    pub(super) space: SpaceBounds,
    pub(super) limits: SlotBounds,
    /// The limits while slots are reserved for another target, if they are.
    pub(super) limits_with_reservation: Option<SlotBounds>,
    /// While the node rests; an operator's order does not wait for this.
    pub(super) rest_refusal: Option<RefusalReason>,
    /// Whether this plan's own starts postpone further starts.
    pub(super) ramp_refusal: Option<RefusalReason>,
}

/// The limits for one file of a channel on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotBounds {
    /// The limit that is reached no matter which file is to start, if any.
    pub(super) reached_limit: Option<RefusalReason>,
    /// Bytes of the largest file within the budget.
    pub(super) largest_in_budget: u64,
}

impl SlotBounds {
    fn refusal_reason(self, file: u64) -> Option<RefusalReason> {
        let budget = (file > self.largest_in_budget).then_some(RefusalReason::Budget);
        self.reached_limit.or(budget)
    }
}

/// Space for one file on a node, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpaceBounds {
    /// The largest file that may start while the space of some volume is unknown.
    pub(super) largest_blind: Option<u64>,
    /// Whether free space is falling on one of the node's volumes.
    pub(super) is_falling: bool,
    /// Space left after running jobs; `None` where no volume is known.
    pub(super) free_after_running: Option<u64>,
    /// Space left after running jobs and this plan's starts.
    pub(super) free_after_starts: Option<u64>,
}

impl QueueBounds {
    /// Whether no shard of the queue may start.
    pub(super) fn is_closed(&self) -> bool {
        self.gate_refusal.is_some()
            || self.limits.reached_limit.is_some()
            || self.ramp_refusal.is_some()
    }

    /// Whether only a candidate ahead of the queue may start: one that was ordered while the node
    /// rests, or one that precedes the reservation.
    pub(super) fn admits_leading_only(&self) -> bool {
        self.rest_refusal.is_some()
            || self.limits_with_reservation.is_some_and(|limits| limits.reached_limit.is_some())
    }

    /// Whether a shard has no special state, so that [`QueueBounds::refusal_reason`] applies.
    pub(super) fn applies_to(candidate: &CandidateSummary) -> bool {
        candidate.unit == CompactionUnit::ShardFile && candidate.blocker == Blocker::None
    }

    /// Why a shard without special state may not start. `confirmed` and `other_copy` are evaluated
    /// only if needed.
    pub(super) fn refusal_reason(
        &self,
        candidate: &CandidateSummary,
        confirmed: impl FnOnce() -> bool,
        other_copy: impl FnOnce() -> bool,
    ) -> Option<RefusalReason> {
        let age = self.now.unix().saturating_sub(candidate.measured_at.unix());
        let measured = candidate.measured_at != Moment::default();
        if !measured || (age > self.fresh_for && !confirmed()) {
            return Some(RefusalReason::Stale);
        }
        if self.gate_refusal.is_some() {
            return self.gate_refusal;
        }
        let file = candidate.file_bytes.get();
        if let Some(largest) = self.largest_in_window
            && candidate.predicted_bytes.get().or(file).is_some_and(|bytes| bytes as f64 > largest)
        {
            return Some(RefusalReason::WouldNotFitWindow);
        }
        if let Some(blind) = self.space.largest_blind
            && file.is_none_or(|file| file > blind)
        {
            return Some(RefusalReason::UnknownDisk);
        }
        let peak = candidate.peak_bytes(self.headroom_factor);
        let over = |room: Option<u64>| room.is_some_and(|room| peak.is_none_or(|it| it > room));
        if self.space.is_falling || over(self.space.free_after_running) {
            return Some(RefusalReason::Headroom);
        }
        if other_copy() {
            return Some(RefusalReason::OtherCopyRunning);
        }
        let bytes = file.unwrap_or(0);
        let by_reservation =
            || self.limits_with_reservation.and_then(|limits| limits.refusal_reason(bytes));
        let reached = self.limits.refusal_reason(bytes).or_else(by_reservation);
        if reached.is_some() {
            return reached;
        }
        if over(self.space.free_after_starts) {
            return Some(RefusalReason::Headroom);
        }
        self.ramp_refusal.or(self.rest_refusal)
    }
}
