//! The summary of a queued target that decisions are made from.
//!
//! It copies values from the snapshot because a queue's order differs from the table's: looking up
//! each of a million targets in the table takes longer than all of the planning. A published queue
//! carries its summaries in its own order.

use crate::{
    model::{
        facts::{Facts, Known},
        target::{Kind, State},
    },
    table::{DbIx, Ix, NodeIx, TargetRef},
};
use wall_clock::Moment;

/// The files that one start of a target compacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// The file of one shard on one node.
    Shard,
    /// One copy after another of a view whose database has one range.
    Copy,
    /// Every copy of a view at once: with several ranges CouchDB offers no smaller request.
    Whole,
    /// No file: stale index files are deleted.
    Cleanup,
    /// Nothing: no request can start a compaction.
    Nothing,
}

/// A reason in the target's own facts not to start it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// None.
    Clear,
    /// It is being compacted.
    Running,
    /// The shard is being split or moved.
    Resharding,
    /// The view's indexer is running.
    Updating,
    /// The view has many changes still to index.
    Behind,
    /// A database that is as compact as its last compaction left it, without writes since.
    Lean,
}

/// The values of a queued target that decide, in forty bytes. Sizes are for one file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Brief {
    pub(super) ix: Ix,
    pub(super) db: DbIx,
    pub(super) file: Known,
    pub(super) active: Known,
    pub(super) predicted: Known,
    /// 1970 if it was never measured.
    pub(super) measured_at: Moment,
    pub(super) own: Own,
    pub(super) shape: Shape,
}

impl Brief {
    pub(super) fn of(target: TargetRef<'_>) -> Self {
        let facts = target.facts();
        let predicted = crate::model::estimate::predicted(target.kind(), &facts);
        Self {
            ix: target.ix(),
            db: target.db(),
            file: facts.file,
            active: facts.active,
            predicted: predicted.into(),
            measured_at: facts.measured_at.map_or_else(Moment::default, |measured| measured.at),
            own: own(target, &facts),
            shape: shape(target),
        }
    }

    /// Bytes that compacting one file frees, as predicted.
    pub(super) fn reclaimable(&self) -> Option<u64> {
        Some(self.file.get()?.saturating_sub(self.predicted.get()?))
    }

    /// Bytes that compacting one file needs in addition to that file, at its peak; `factor` is the
    /// peak size of a shard's new file as a multiple of its active bytes.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "never negative, and a conversion from float saturates"
    )]
    pub(super) fn peak(&self, factor: f64) -> Option<u64> {
        match (self.shape, self.active.get()) {
            (Shape::Cleanup, _) => Some(0),
            (Shape::Shard, Some(active)) => Some((active as f64 * factor).ceil() as u64),
            (_, Some(active)) => Some(active),
            (_, None) => self.file.get(),
        }
    }
}

fn own(target: TargetRef<'_>, facts: &Facts) -> Own {
    if facts.flags.compact_running {
        Own::Running
    } else if target.state() == State::Resharding {
        Own::Resharding
    } else if facts.flags.updater_running {
        // Compacting a view during its build maps it twice and leaves it bloated.
        Own::Updating
    } else if target.kind() == Kind::View && behind(facts).is_some() {
        Own::Behind
    } else if is_lean(target.kind(), facts) {
        Own::Lean
    } else {
        Own::Clear
    }
}

/// Largest share of the file that a fresh compaction leaves reclaimable beyond the prediction.
/// Measured over 501 compactions of CouchDB 3.5.0: at most 0.4 % for files above one megabyte.
const LEAN: f64 = 0.01;

/// Whether nothing was written to a database since its last compaction, and the reclaimable rest
/// is no more than every compaction leaves. For a large file that small share can still exceed the
/// threshold of a slack channel. Equal sequences alone are not enough: a compaction that had to
/// catch up with concurrent writes leaves much to free.
fn is_lean(kind: Kind, facts: &Facts) -> bool {
    let compacted = facts.compacted_seq.get().is_some_and(|seq| seq > 0);
    let unchanged = compacted && facts.changes() == Some(0) && !facts.flags.needs_upgrade;
    let frees = crate::model::estimate::reclaimable(kind, facts).zip(facts.file.get());
    let little = frees.is_some_and(|(frees, file)| frees as f64 <= file as f64 * LEAN);
    kind == Kind::Db && unchanged && little
}

fn shape(target: TargetRef<'_>) -> Shape {
    match target.kind() {
        Kind::Db => Shape::Shard,
        Kind::Cleanup => Shape::Cleanup,
        Kind::Search => Shape::Nothing,
        // No request that recliner sends can start a shard's own part of a view.
        Kind::View if target.node_ix() != NodeIx::CLUSTER => Shape::Nothing,
        Kind::View => match target.map().ranges {
            0 => Shape::Nothing,
            1 => Shape::Copy,
            _ => Shape::Whole,
        },
    }
}

/// A view indexes fewer changes than this within moments.
const FEW_CHANGES: u64 = 1_000;

/// A view with more than this fraction of its changes unindexed counts as being built: a
/// compaction would be outdated when it ends.
const LARGE_PART: u64 = 10;

/// The view's unindexed changes and the highest number allowed, if it exceeds that number.
pub(super) fn behind(facts: &Facts) -> Option<(u64, u64)> {
    let pending = facts.updates_pending.get()?;
    let allowed = facts.update_seq.get().map_or(0, |seen| seen / LARGE_PART).max(FEW_CHANGES);
    (pending > allowed).then_some((pending, allowed))
}
