//! What an admission says to every shard of one queue alike.
//!
//! Why beside the admission, which says the same: asked of a million shards one by one, it
//! takes twice the time that planning may. Here what does not depend on the shard is asked
//! once, and only for reasons, without their numbers; whatever is special about a shard is
//! left to the admission.

use super::{
    RefusalReason,
    brief::{Brief, Own, Shape},
};
use wall_clock::Moment;

/// The bounds that all shards of one queue share, at one state of the plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) now: Moment,
    /// Whole seconds that facts count as fresh.
    pub(super) fresh_for: u64,
    pub(super) factor: f64,
    pub(super) gate: Option<RefusalReason>,
    /// Predicted bytes of the largest file that ends within the window.
    pub(super) window: Option<f64>,
    pub(super) space: Space,
    pub(super) limits: Limits,
    /// The limits beside what is kept for another, where something is.
    pub(super) beside_kept: Option<Limits>,
    /// Whether the plan's own starts leave others for later.
    pub(super) spread: Option<RefusalReason>,
}

/// The limits for one file of a channel on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// The one that is reached, whatever the file.
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
    /// The largest file that starts, where space is not known everywhere.
    pub(super) blind: Option<u64>,
    /// Whether space falls on one of the node's volumes.
    pub(super) falling: bool,
    /// What is left beside what runs; absent where no volume is known.
    pub(super) room: Option<u64>,
    /// What is left beside what starts too.
    pub(super) left: Option<u64>,
}

impl Terms {
    /// Whether no shard of the queue may start, whatever it is.
    pub(super) const fn shut(&self) -> bool {
        self.gate.is_some() || self.limits.reached.is_some() || self.spread.is_some()
    }

    /// Whether no shard of the queue may start but one that goes before what is kept.
    pub(super) fn kept(&self) -> bool {
        self.beside_kept.is_some_and(|limits| limits.reached.is_some())
    }

    /// Whether a shard's facts and memory say nothing special: then [`Terms::reason`] holds.
    pub(super) fn cover(brief: &Brief) -> bool {
        brief.shape == Shape::Shard && brief.own == Own::Clear
    }

    /// Why a shard of which nothing special is known may not start. `confirmed` and
    /// `other_copy` are asked where they matter only.
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
