//! The summary of a queued target on which decisions are based.
//!
//! It copies values from the snapshot because a queue's order differs from the table's: looking up
//! each of a million targets in the table takes longer than all of the planning. A published queue
//! carries its summaries in its own order.

use crate::{
    model::{
        facts::{Facts, OptionalU64},
        growth::Growth,
        rounding::to_bytes,
        target::{TargetKind, TargetState},
    },
    table::{DbIx, NodeIx, TargetIx, TargetRef},
};
use std::collections::BTreeMap;
use wall_clock::Moment;

/// The files that one start of a target compacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompactionUnit {
    /// The file of one shard on one node.
    ShardFile,
    /// One copy at a time, of a view whose database has one range.
    SingleCopy,
    /// Every copy of a view at once: with several ranges CouchDB offers no smaller request.
    AllCopies,
    /// No file: stale index files are deleted.
    Cleanup,
    /// Not compactable: no request can start a compaction.
    NotCompactable,
}

/// A reason in the target's own facts for not starting it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocker {
    None,
    CompactionRunning,
    /// The shard is being split or moved.
    Resharding,
    /// The view's indexer is running.
    IndexerRunning,
    /// The view has many changes still to index.
    IndexBehind,
    /// Compacting it would free almost nothing.
    FreesLittle,
}

/// The values of a queued target that matter for decisions, in forty bytes. Sizes are for one file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CandidateSummary {
    pub(super) ix: TargetIx,
    pub(super) db: DbIx,
    pub(super) file_bytes: OptionalU64,
    pub(super) active_bytes: OptionalU64,
    pub(super) predicted_bytes: OptionalU64,
    /// The Unix epoch if it was never measured.
    pub(super) measured_at: Moment,
    pub(super) blocker: Blocker,
    pub(super) unit: CompactionUnit,
}

impl CandidateSummary {
    pub(super) fn of(target: TargetRef<'_>) -> Self {
        Self::with_facts(target, &target.facts())
    }

    /// The summary of a target as if it had other facts.
    pub(super) fn with_facts(target: TargetRef<'_>, facts: &Facts) -> Self {
        let predicted = target.correction().predicted_bytes(target.kind(), facts);
        Self {
            ix: target.ix(),
            db: target.db(),
            file_bytes: facts.file_bytes,
            active_bytes: facts.active_bytes,
            predicted_bytes: predicted.into(),
            measured_at: facts.measured_at.map_or_else(Moment::default, |measured| measured.at),
            blocker: blocker_of(target, facts),
            unit: unit_of(target),
        }
    }

    /// The same summary with the prediction learned from the target's last compaction, if there is
    /// one.
    pub(super) fn with_learned_prediction(&self, remaining: &BTreeMap<TargetIx, u64>) -> Self {
        let learned = remaining.get(&self.ix).copied().map(OptionalU64::new);
        Self { predicted_bytes: learned.unwrap_or(self.predicted_bytes), ..*self }
    }

    /// The same summary if waste is left that is written while a compaction runs.
    pub(super) fn catching_up(
        &self,
        growth: Growth,
        bytes_per_second: Option<f64>,
        now: Moment,
    ) -> Self {
        let sizes = self.predicted_bytes.get().zip(self.file_bytes.get());
        let Some((predicted, file)) = sizes else { return *self };
        let caught_up = growth.waste_during(predicted, bytes_per_second, now);
        let left = predicted.saturating_add(caught_up).min(file.max(predicted));
        Self { predicted_bytes: OptionalU64::new(left), ..*self }
    }

    /// The same summary with the sizes of the file on a node, where the copies of a view differ.
    pub(super) fn of_copy(&self, target: TargetRef<'_>, node: NodeIx) -> Self {
        match (self.unit, target.facts_on(node)) {
            (CompactionUnit::SingleCopy, Some(facts)) => Self::with_facts(target, &facts),
            _ => *self,
        }
    }

    /// Predicted bytes that compacting one file frees.
    pub(super) fn reclaimable_bytes(&self) -> Option<u64> {
        Some(self.file_bytes.get()?.saturating_sub(self.predicted_bytes.get()?))
    }

    /// Bytes that compacting one file needs in addition to that file, at its peak; `factor` is the
    /// peak size of a shard's new file as a multiple of its active bytes.
    pub(super) fn peak_bytes(&self, factor: f64) -> Option<u64> {
        match (self.unit, self.active_bytes.get()) {
            (CompactionUnit::Cleanup, _) => Some(0),
            (CompactionUnit::ShardFile, Some(active)) => {
                Some(to_bytes((active as f64 * factor).ceil()))
            }
            (_, Some(active)) => Some(active),
            (_, None) => self.file_bytes.get(),
        }
    }
}

fn blocker_of(target: TargetRef<'_>, facts: &Facts) -> Blocker {
    if facts.flags.compact_running {
        Blocker::CompactionRunning
    } else if target.state() == TargetState::Resharding {
        Blocker::Resharding
    } else if facts.flags.updater_running {
        // Compacting a view while it is built runs its map functions twice and leaves it bloated.
        Blocker::IndexerRunning
    } else if target.kind() == TargetKind::View && index_lag(facts).is_some() {
        Blocker::IndexBehind
    } else if target.promises_little(facts) {
        Blocker::FreesLittle
    } else {
        Blocker::None
    }
}

fn unit_of(target: TargetRef<'_>) -> CompactionUnit {
    match target.kind() {
        TargetKind::Db => CompactionUnit::ShardFile,
        TargetKind::Cleanup => CompactionUnit::Cleanup,
        TargetKind::Search => CompactionUnit::NotCompactable,
        // recliner has no request that compacts a single shard's part of a view.
        TargetKind::View if target.node_ix() != NodeIx::CLUSTER => CompactionUnit::NotCompactable,
        TargetKind::View => match target.shard_map().ranges {
            0 => CompactionUnit::NotCompactable,
            1 => CompactionUnit::SingleCopy,
            _ => CompactionUnit::AllCopies,
        },
    }
}

/// Minimum of the allowed lag: a view indexes fewer changes than this within moments.
const MIN_ALLOWED_LAG: u64 = 1_000;

/// A view with more than this fraction of its changes unindexed counts as being built: a compaction
/// would be outdated by the time it ends.
const ALLOWED_LAG_DIVISOR: u64 = 10;

/// The view's unindexed changes and the highest number allowed, if it exceeds that number.
pub(super) fn index_lag(facts: &Facts) -> Option<(u64, u64)> {
    let pending = facts.updates_pending.get()?;
    let allowed =
        facts.update_seq.get().map_or(0, |seen| seen / ALLOWED_LAG_DIVISOR).max(MIN_ALLOWED_LAG);
    (pending > allowed).then_some((pending, allowed))
}
