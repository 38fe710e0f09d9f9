//! The bounds that the admission applies to every shard of one queue alike.
//!
//! They repeat the admission's rules for speed: asking the admission for each of a million shards
//! takes twice the time that planning may take. Checks that do not depend on the shard are
//! evaluated once, for the reason only and without its numbers; shards with special state are left
//! to the admission.

use super::{
    RefusalReason,
    brief::{Brief, Own, Shape},
};
use wall_clock::Moment;

/// The bounds that all shards of one queue share, at one state of the plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) now: Moment,
    /// Whole seconds for which facts count as fresh.
    pub(super) fresh_for: u64,
    pub(super) factor: f64,
    pub(super) gate: Option<RefusalReason>,
    /// Predicted bytes of the largest file that can be finished within the window.
    pub(super) window: Option<f64>,
    pub(super) space: Space,
    pub(super) limits: Limits,
    /// The limits that remain with slots reserved for another target, if any.
    pub(super) beside_kept: Option<Limits>,
    /// Whether this plan's own starts postpone further starts.
    pub(super) spread: Option<RefusalReason>,
}

/// The limits for one file of a channel on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// The limit that is reached, regardless of the file.
    pub(super) reached: Option<RefusalReason>,
    /// Bytes of the largest file within the budget.
    pub(super) budget: u64,
}

impl Limits {
    fn reason(self, file: u64) -> Option<RefusalReason> {
        let budget = (file > self.budget).then_some(RefusalReason::Budget);
        self.reached.or(budget)
    }
}

/// Space for one file on a node, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Space {
    /// The largest file that may start while space is not known everywhere.
    pub(super) blind: Option<u64>,
    /// Whether free space is falling on one of the node's volumes.
    pub(super) falling: bool,
    /// Space left by running jobs; absent where no volume is known.
    pub(super) room: Option<u64>,
    /// Space left by running jobs and this plan's starts.
    pub(super) left: Option<u64>,
}

impl Terms {
    /// Whether no shard of the queue may start, whichever it is.
    pub(super) const fn shut(&self) -> bool {
        self.gate.is_some() || self.limits.reached.is_some() || self.spread.is_some()
    }

    /// Whether only a candidate that precedes the reservation may start.
    pub(super) fn kept(&self) -> bool {
        self.beside_kept.is_some_and(|limits| limits.reached.is_some())
    }

    /// Whether a shard has no special state, so that [`Terms::reason`] applies.
    pub(super) fn cover(brief: &Brief) -> bool {
        brief.shape == Shape::Shard && brief.own == Own::Clear
    }

    /// Why a shard without special state may not start. `confirmed` and `other_copy` are only
    /// evaluated where they matter.
    pub(super) fn reason(
        &self,
        brief: &Brief,
        confirmed: impl FnOnce() -> bool,
        other_copy: impl FnOnce() -> bool,
    ) -> Option<RefusalReason> {
        let age = self.now.unix().saturating_sub(brief.measured_at.unix());
        let measured = brief.measured_at != Moment::default();
        if !measured || (age > self.fresh_for && !confirmed()) {
            return Some(RefusalReason::Stale);
        }
        if self.gate.is_some() {
            return self.gate;
        }
        let file = brief.file.get();
        if let Some(largest) = self.window
            && brief.predicted.get().or(file).is_some_and(|bytes| bytes as f64 > largest)
        {
            return Some(RefusalReason::WouldNotFitWindow);
        }
        if let Some(blind) = self.space.blind
            && file.is_none_or(|file| file > blind)
        {
            return Some(RefusalReason::UnknownDisk);
        }
        let peak = brief.peak(self.factor);
        let over = |room: Option<u64>| room.is_some_and(|room| peak.is_none_or(|it| it > room));
        if self.space.falling || over(self.space.room) {
            return Some(RefusalReason::Headroom);
        }
        if other_copy() {
            return Some(RefusalReason::OtherCopyRunning);
        }
        let bytes = file.unwrap_or(0);
        let beside_kept = || self.beside_kept.and_then(|limits| limits.reason(bytes));
        let reached = self.limits.reason(bytes).or_else(beside_kept);
        if reached.is_some() {
            return reached;
        }
        if over(self.space.left) {
            return Some(RefusalReason::Headroom);
        }
        self.spread
    }
}
