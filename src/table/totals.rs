//! Totals, updated with every change rather than summed at scrape time.

use super::NodeIx;
use crate::{
    model::{
        rounding::to_bytes,
        target::{TargetKind, TargetState},
    },
    text::Label,
};

/// A sum with the number of known and unknown summands.
///
/// If no summand is known, the sum is unknown, not zero, unless there is nothing to sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialSum {
    total: u128,
    known_count: u64,
    unknown_count: u64,
    estimated_count: u64,
}

impl PartialSum {
    /// Adds a value, which may be unknown or an estimate.
    pub(crate) fn add(&mut self, value: Option<u64>, is_estimated: bool) {
        match value {
            Some(value) => {
                self.total = self.total.saturating_add(u128::from(value));
                self.known_count += 1;
                self.estimated_count += u64::from(is_estimated);
            }
            None => self.unknown_count += 1,
        }
    }

    pub(super) fn remove(&mut self, value: Option<u64>, is_estimated: bool) {
        match value {
            Some(value) => {
                self.total = self.total.saturating_sub(u128::from(value));
                self.known_count = self.known_count.saturating_sub(1);
                self.estimated_count = self.estimated_count.saturating_sub(is_estimated.into());
            }
            None => self.unknown_count = self.unknown_count.saturating_sub(1),
        }
    }

    /// The sum of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            total: self.total.saturating_add(other.total),
            known_count: self.known_count.saturating_add(other.known_count),
            unknown_count: self.unknown_count.saturating_add(other.unknown_count),
            estimated_count: self.estimated_count.saturating_add(other.estimated_count),
        }
    }

    /// The sum divided by `count`, rounded.
    pub(super) fn share_among(self, count: usize) -> Self {
        let count = count.max(1) as u128;
        Self { total: (self.total + count / 2) / count, ..self }
    }

    /// The sum of the known values; `None` if none is known.
    pub const fn get(self) -> Option<f64> {
        if self.known_count == 0 && self.unknown_count > 0 { None } else { Some(self.total as f64) }
    }

    /// The sum of the known values in bytes; `None` if none is known, or there is nothing to sum.
    pub fn measured(self) -> Option<u64> {
        (self.known_count > 0).then(|| to_bytes(self.total as f64))
    }

    /// Number of unknown summands.
    pub const fn unknown_count(self) -> u64 {
        self.unknown_count
    }

    /// Number of known summands of which some copies were not measured.
    pub const fn estimated_count(self) -> u64 {
        self.estimated_count
    }
}

/// Sums over the targets of one node and kind, in bytes on disk.
///
/// A cluster-wide view counts all its copies, whatever the source of their sizes. So the sums of
/// the pseudo-node are complete, and the parts of views on the other nodes are the same files
/// counted again, by node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetSums {
    /// Number of targets, by state in the order of `TargetState::ALL`.
    pub counts_by_state: [u64; TargetState::ALL.len()],
    /// File bytes.
    pub file_bytes: PartialSum,
    /// Active bytes.
    pub active_bytes: PartialSum,
    /// External bytes.
    pub external_bytes: PartialSum,
    /// Bytes that a compaction would free.
    pub reclaimable_bytes: PartialSum,
    /// File bytes of targets in state [`TargetState::Orphan`]; also included in the sums above.
    pub orphan_file: PartialSum,
    /// File bytes of unused parts of views, which are in none of the sums above.
    pub stale_file: PartialSum,
}

impl TargetSums {
    /// Number of targets of which the size, or what a compaction would free, is unknown.
    pub fn unmeasured(&self) -> u64 {
        self.file_bytes.unknown_count().max(self.reclaimable_bytes.unknown_count())
    }
}

/// One target's contribution to the sums, in bytes on disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contribution {
    pub(super) node: NodeIx,
    pub(super) kind: TargetKind,
    pub(super) state: TargetState,
    pub(super) file_count: u32,
    /// Whether some of its files were not measured.
    pub(super) is_estimated: bool,
    pub(super) file_bytes: Option<u64>,
    pub(super) active_bytes: Option<u64>,
    pub(super) external_bytes: Option<u64>,
    pub(super) reclaimable_bytes: Option<u64>,
}

impl Contribution {
    /// Whether it is the part of a view.
    pub(super) fn is_part(&self) -> bool {
        self.kind == TargetKind::View && self.node != NodeIx::CLUSTER
    }
}

/// Counts and bytes by node and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    nodes: Vec<[TargetSums; TargetKind::ALL.len()]>,
}

impl Totals {
    /// The sums of one node and kind.
    pub fn sums_of(&self, node: NodeIx, kind: TargetKind) -> TargetSums {
        self.nodes
            .get(node.as_usize())
            .map_or_else(TargetSums::default, |kinds| kinds[kind as usize])
    }

    pub(super) fn add(&mut self, target: &Contribution) {
        self.update(target, PartialSum::add, |count| *count += 1);
    }

    pub(super) fn remove(&mut self, target: &Contribution) {
        self.update(target, PartialSum::remove, |count| *count = count.saturating_sub(1));
    }

    fn update(
        &mut self,
        target: &Contribution,
        sum: impl Fn(&mut PartialSum, Option<u64>, bool),
        count: impl Fn(&mut u64),
    ) {
        let at = target.node.as_usize();
        if self.nodes.len() <= at {
            self.nodes.resize(at + 1, [TargetSums::default(); TargetKind::ALL.len()]);
        }
        let sums = &mut self.nodes[at][target.kind as usize];
        count(&mut sums.counts_by_state[target.state as usize]);
        // A missing file has no bytes, known or unknown, and a cleanup is not a file. Unused parts
        // of views count as stale index files. An unfinished shard has no size until CouchDB opens
        // it at the end of its split.
        let is_unfinished = target.state == TargetState::Resharding && target.file_bytes.is_none();
        if target.is_part() && target.state == TargetState::Orphan {
            sum(&mut sums.stale_file, target.file_bytes, target.is_estimated);
            return;
        }
        if target.state == TargetState::Missing
            || target.kind == TargetKind::Cleanup
            || is_unfinished
        {
            return;
        }
        sum(&mut sums.file_bytes, target.file_bytes, target.is_estimated);
        if target.state == TargetState::Orphan {
            sum(&mut sums.orphan_file, target.file_bytes, target.is_estimated);
        }
        sum(&mut sums.active_bytes, target.active_bytes, target.is_estimated);
        sum(&mut sums.external_bytes, target.external_bytes, target.is_estimated);
        // CouchDB does not report how much of a Lucene index could be freed.
        if target.kind == TargetKind::Search {
            return;
        }
        sum(&mut sums.reclaimable_bytes, target.reclaimable_bytes, target.is_estimated);
    }
}
