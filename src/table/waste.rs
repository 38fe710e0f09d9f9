//! Classes of bytes in the files on the cluster's disks: live, reclaimable by compaction, or
//! unused.

use super::{NodeIx, PartialSum, Snapshot};
use crate::model::target::TargetKind;
use std::ops::Add;

/// Bytes of shards, views, and unused files; every file counts once, with all copies.
///
/// A sum is unknown while none of its parts is known, and a lower bound while some are not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waste {
    /// Shards and views, with orphans.
    files: PartialSum,
    reclaimable: PartialSum,
    orphans: PartialSum,
    /// The unused files in each node's directories.
    directories: PartialSum,
    unmeasured: u64,
    unread_directories: u64,
    sidecars: u64,
}

impl Waste {
    /// The bytes on all nodes.
    pub fn of(snapshot: &Snapshot) -> Self {
        let nodes = (1..snapshot.nodes().len()).filter_map(NodeIx::from_usize);
        let files = nodes.map(|node| Self::of_files_on(snapshot, node));
        files.fold(Self::of_kind(snapshot, NodeIx::CLUSTER, TargetKind::View), Add::add)
    }

    /// The bytes on one node. Sizes of views are known only for the whole cluster, and each member
    /// is assumed to have the same share of them.
    pub fn on(snapshot: &Snapshot, node: NodeIx) -> Self {
        let members = snapshot.members().count();
        let views = Self::of_kind(snapshot, NodeIx::CLUSTER, TargetKind::View);
        let share = Self {
            files: views.files.share_among(members),
            reclaimable: views.reclaimable.share_among(members),
            ..views
        };
        Self::of_files_on(snapshot, node) + share
    }

    /// Number of shards and views of which the size, or what a compaction would free, is unknown,
    /// and which add nothing: if there are any, the sums are lower bounds.
    pub const fn unmeasured(self) -> u64 {
        self.unmeasured
    }

    /// Number of views with copies that were not measured and are assumed to be as large as the one
    /// that was.
    pub const fn estimated(self) -> u64 {
        self.files.estimated_count()
    }

    /// Number of nodes whose directories were not read: if there are any, the bytes of unused files
    /// are a lower bound.
    pub const fn unread_directories(self) -> u64 {
        self.unread_directories
    }

    /// Number of these whose shard and index files a sidecar measures, but nothing else.
    pub const fn measured_by_sidecars(self) -> u64 {
        self.sidecars
    }

    /// Shards, unused files, and views if they are known only by their files.
    fn of_files_on(snapshot: &Snapshot, node: NodeIx) -> Self {
        let mut files = Self::of_kind(snapshot, node, TargetKind::Db);
        let state = snapshot.node(node).filter(|node| node.is_served && node.is_member);
        if let Some(state) = state {
            let unused = state.disk_usage.map(|disk| disk.unused_bytes());
            // Only the index files are known of a node that a sidecar reads.
            if unused.is_none() {
                files.directories = snapshot.totals().sums_of(node, TargetKind::View).stale_file;
            }
            files.directories.add(unused, false);
            files.unread_directories = u64::from(unused.is_none());
            files.sidecars = u64::from(unused.is_none() && state.has_sidecar);
        }
        if snapshot.has_views() {
            return files;
        }
        files + Self::of_kind(snapshot, node, TargetKind::View)
    }

    fn of_kind(snapshot: &Snapshot, node: NodeIx, kind: TargetKind) -> Self {
        let sums = snapshot.totals().sums_of(node, kind);
        Self {
            files: sums.file_bytes,
            reclaimable: sums.reclaimable_bytes,
            orphans: sums.orphan_file,
            directories: PartialSum::default(),
            unmeasured: sums.unmeasured(),
            unread_directories: 0,
            sidecars: 0,
        }
    }

    /// Shards, orphans among them, and views, without the other unused files.
    pub const fn shards_and_views(self) -> PartialSum {
        self.files
    }

    /// Bytes of shards and views that compactions would free.
    pub const fn reclaimable(self) -> PartialSum {
        self.reclaimable
    }

    /// Bytes of all these files.
    pub fn file_bytes(self) -> Option<u64> {
        self.files.measured()?;
        self.files.and(self.directories).measured()
    }

    /// Bytes that would remain of shards and views after compactions.
    pub fn live_bytes(self) -> Option<u64> {
        let unneeded = self.reclaimable.and(self.orphans).measured().unwrap_or_default();
        Some(self.files.measured()?.saturating_sub(unneeded))
    }

    /// Bytes that compactions would free.
    pub fn reclaimable_bytes(self) -> Option<u64> {
        self.reclaimable.measured()
    }

    /// Bytes of unused files: orphans, stale indexes, leftovers of compactions, and deleted files.
    pub fn unused_bytes(self) -> Option<u64> {
        self.orphans.and(self.directories).measured()
    }

    /// Bytes that compactions would free, and bytes of unused files.
    pub fn wasted_bytes(self) -> Option<u64> {
        self.reclaimable.measured()?;
        self.reclaimable.and(self.orphans).and(self.directories).measured()
    }
}

impl Add for Waste {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            files: self.files.and(other.files),
            reclaimable: self.reclaimable.and(other.reclaimable),
            orphans: self.orphans.and(other.orphans),
            directories: self.directories.and(other.directories),
            unmeasured: self.unmeasured.saturating_add(other.unmeasured),
            unread_directories: self.unread_directories.saturating_add(other.unread_directories),
            sidecars: self.sidecars.saturating_add(other.sidecars),
        }
    }
}
