//! Classes of bytes in the files on the cluster's disks: live, reclaimable by compaction, or
//! unused.

use super::{NodeIx, Snapshot};
use crate::model::{rounding::to_bytes, target::TargetKind};
use std::ops::Add;

/// Bytes of shards, views, and unused files; every file counts once, with all copies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waste {
    live: f64,
    reclaimable: f64,
    unused: f64,
}

impl Waste {
    /// The bytes on all nodes; `None` while no size is known.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Option<Self> {
        let nodes = (1..snapshot.nodes().len()).filter_map(NodeIx::from_usize);
        let known = nodes.filter_map(|node| Self::of_files_on(snapshot, node)).reduce(Add::add)?;
        Some(known + Self::of_views(snapshot, 1.0))
    }

    /// The bytes on one node; `None` while no size is known. Sizes of views are known only for the
    /// whole cluster, and each member is assumed to have the same share of them.
    #[must_use]
    pub fn on(snapshot: &Snapshot, node: NodeIx) -> Option<Self> {
        let share = 1.0 / snapshot.members().count().max(1) as f64;
        Some(Self::of_files_on(snapshot, node)? + Self::of_views(snapshot, share))
    }

    /// Number of shards and views of unknown size, which add nothing: if there are any, the sums
    /// are lower bounds.
    #[must_use]
    pub fn unmeasured(snapshot: &Snapshot) -> u64 {
        let nodes = (1..snapshot.nodes().len()).filter_map(NodeIx::from_usize);
        let unknown = |node, kind| snapshot.totals().sums_of(node, kind).file_bytes.unknown_count();
        let has_views = snapshot.has_views();
        let of_files = nodes.map(|node| {
            let parts = if has_views { 0 } else { unknown(node, TargetKind::View) };
            unknown(node, TargetKind::Db) + parts
        });
        of_files.sum::<u64>() + unknown(NodeIx::CLUSTER, TargetKind::View)
    }

    /// Number of views with copies that were not measured and are assumed to be as large as the one
    /// that was.
    #[must_use]
    pub fn estimated(snapshot: &Snapshot) -> u64 {
        let views = snapshot.totals().sums_of(NodeIx::CLUSTER, TargetKind::View);
        views.file_bytes.estimated_count()
    }

    /// Shards, unused files, and views if they are known only by their files.
    fn of_files_on(snapshot: &Snapshot, node: NodeIx) -> Option<Self> {
        let shards = snapshot.totals().sums_of(node, TargetKind::Db);
        let disk = snapshot.node(node)?.disk_usage.unwrap_or_default();
        let orphans = shards.orphan_file.get().unwrap_or_default();
        let reclaimable = shards.reclaimable_bytes.get().unwrap_or_default();
        let shards = Self {
            live: shards.file_bytes.get()? - orphans - reclaimable,
            reclaimable,
            unused: orphans + disk.unused_bytes() as f64,
        };
        let parts =
            if snapshot.has_views() { Self::default() } else { Self::of_kind(snapshot, node) };
        Some(shards + parts)
    }

    fn of_views(snapshot: &Snapshot, share: f64) -> Self {
        let views = Self::of_kind(snapshot, NodeIx::CLUSTER);
        Self { live: views.live * share, reclaimable: views.reclaimable * share, unused: 0.0 }
    }

    fn of_kind(snapshot: &Snapshot, node: NodeIx) -> Self {
        let views = snapshot.totals().sums_of(node, TargetKind::View);
        let reclaimable = views.reclaimable_bytes.get().unwrap_or_default();
        let live = views.file_bytes.get().unwrap_or_default() - reclaimable;
        Self { live, reclaimable, unused: 0.0 }
    }

    /// Bytes of all these files.
    #[must_use]
    pub fn file_bytes(self) -> u64 {
        to_bytes(self.live + self.reclaimable + self.unused)
    }

    /// Bytes that compactions would leave of shards and views.
    #[must_use]
    pub fn live_bytes(self) -> u64 {
        to_bytes(self.live)
    }

    /// Bytes that compactions would free.
    #[must_use]
    pub fn reclaimable_bytes(self) -> u64 {
        to_bytes(self.reclaimable)
    }

    /// Bytes of unused files: orphans, stale indexes, leftovers of compactions, and deleted files.
    #[must_use]
    pub fn unused_bytes(self) -> u64 {
        to_bytes(self.unused)
    }

    /// Bytes that compactions would free, and bytes of unused files.
    #[must_use]
    pub fn wasted_bytes(self) -> u64 {
        to_bytes(self.reclaimable + self.unused)
    }
}

impl Add for Waste {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            live: self.live + other.live,
            reclaimable: self.reclaimable + other.reclaimable,
            unused: self.unused + other.unused,
        }
    }
}
