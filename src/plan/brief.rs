//! What of a waiting target decides.
//!
//! Why a copy of what the snapshot has: the queue's order is not the tables', and a look
//! into those for each of a million targets takes longer than all of the planning. A queue
//! that is published carries its briefs in its own order.

use crate::{
    model::{
        facts::{Facts, Known},
        target::{Kind, State},
    },
    table::{DbIx, Ix, NodeIx, TargetRef},
};
use wall_clock::Moment;

/// What a start of a target compacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// The file of one shard on one node.
    Shard,
    /// One copy after the other of a view whose database has one range.
    Copy,
    /// Every copy of a view at once: CouchDB offers nothing less where there are several
    /// ranges.
    Whole,
    /// Nothing: stale index files are deleted.
    Cleanup,
    /// Nothing that a request could start.
    Nothing,
}

/// What facts say against starting a target, whatever else is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// Nothing.
    Clear,
    /// It is being compacted.
    Running,
    /// Its shard is being split or moved.
    Resharding,
    /// Its indexer runs.
    Updating,
    /// A view that has many changes to see yet.
    Behind,
    /// A db as lean as its last compaction left it, and nothing was written to it since.
    Lean,
}

/// What of a waiting target decides, in forty bytes. Sizes are per file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Brief {
    pub(super) ix: Ix,
    pub(super) db: DbIx,
    pub(super) file: Known,
    pub(super) active: Known,
    pub(super) predicted: Known,
    /// 1970 for what was never measured.
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

    /// Bytes that compacting one file takes beside it, at its worst moment; `factor` is the
    /// peak of a shard's new file, as a multiple of its active bytes.
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
        // A view compacted while it is built is mapped twice and stays bloated.
        Own::Updating
    } else if target.kind() == Kind::View && behind(facts).is_some() {
        Own::Behind
    } else if is_lean(target.kind(), facts) {
        Own::Lean
    } else {
        Own::Clear
    }
}

/// What a compaction leaves beyond the prediction is a smaller part of the file than this: at
/// most 0.4 % of files above a megabyte, of 501 compactions of CouchDB 3.5.0.
const LEAN: f64 = 0.01;

/// Whether nothing was written to a db since its last compaction, and it has no more to free than
/// what every compaction leaves. That is little of a large file and yet more than slack channels
/// ask for. The sequences alone do not tell: a compaction that had to catch up with writes leaves
/// much to free.
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
        // Shards' own parts of a view can be started by nothing that is sent here.
        Kind::View if target.node_ix() != NodeIx::CLUSTER => Shape::Nothing,
        Kind::View => match target.map().ranges {
            0 => Shape::Nothing,
            1 => Shape::Copy,
            _ => Shape::Whole,
        },
    }
}

/// Fewer changes than this a view catches up with in no time.
const FEW_CHANGES: u64 = 1_000;

/// A view that has to see more than this part of its changes is being built as much as it
/// is there: what is compacted now is outdated when it is done.
const LARGE_PART: u64 = 10;

/// Changes a view has not seen and how many it may miss at most, where it misses more.
pub(super) fn behind(facts: &Facts) -> Option<(u64, u64)> {
    let pending = facts.updates_pending.get()?;
    let allowed = facts.update_seq.get().map_or(0, |seen| seen / LARGE_PART).max(FEW_CHANGES);
    (pending > allowed).then_some((pending, allowed))
}
