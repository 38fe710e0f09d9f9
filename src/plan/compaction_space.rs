//! The space that a shard's compaction needs, and the space that its node's volumes have for it
//! when nothing else runs.
//!
//! Covers any shard, queued or not, with the numbers that admission uses. Advice and reports call it.

use super::{candidate_summary::CandidateSummary, disk::Volume, published::Plan, volume_space};
use crate::{
    model::rounding::to_bytes,
    table::{NodeIx, TargetRef, Waste},
};

/// The space that compactions may use on the fullest volume of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsableSpace<'a> {
    /// The volume.
    pub volume: &'a Volume,
    /// Free bytes apart from `headroom.keep_free`; running jobs still use some of them for a while.
    pub bytes: u64,
}

impl Plan {
    /// Peak bytes that compacting one file of a target needs in addition to that file.
    #[must_use]
    pub fn compaction_peak(&self, target: TargetRef<'_>) -> Option<u64> {
        CandidateSummary::of(target).peak_bytes(self.conditions.headroom_factor(&self.rules))
    }

    /// Live bytes of the largest shard whose compaction fits on a volume now, after subtracting the
    /// space that must stay free and what running jobs may still write; `None` while the free space
    /// is unknown.
    #[must_use]
    pub fn largest_shard_that_fits(&self, volume: &Volume) -> Option<u64> {
        let reserved = volume.reserved_bytes(&self.conditions.jobs, &self.snapshot);
        let keep_free = self.rules.headroom.keep_free_percent;
        let free = volume_space::free_bytes(volume, reserved, keep_free)?;
        let factor = self.conditions.headroom_factor(&self.rules);
        Some(to_bytes(free as f64 / factor))
    }

    /// Waste of the files on a volume; `None` if one of its nodes has another volume too: it is
    /// unknown which of the node's files are on which volume.
    #[must_use]
    pub fn waste_on(&self, volume: &Volume) -> Option<Waste> {
        let mut files = Waste::default();
        for name in &volume.nodes {
            let (ix, _) = self.snapshot.members().find(|(_, node)| node.name == *name)?;
            if self.conditions.disks.of_node(name).count() != 1 {
                return None;
            }
            files = files + Waste::on(&self.snapshot, ix);
        }
        Some(files)
    }

    /// The space that compactions may use on the fullest volume of a node; `None` while the free
    /// space of any of its volumes is unknown.
    #[must_use]
    pub fn usable_space(&self, node: NodeIx) -> Option<UsableSpace<'_>> {
        let name = &self.snapshot.node(node)?.name;
        let keep_free = self.rules.headroom.keep_free_percent;
        let mut least: Option<UsableSpace<'_>> = None;
        for volume in self.conditions.disks.of_node(name) {
            let bytes = volume_space::usable_bytes(volume.space?, keep_free);
            if least.is_none_or(|least| bytes < least.bytes) {
                least = Some(UsableSpace { volume, bytes });
            }
        }
        least
    }
}
