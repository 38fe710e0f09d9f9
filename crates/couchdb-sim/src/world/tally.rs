//! Totals of compactions since the start of a world, measured alike for every starter.

use super::{
    World,
    keys::{File, JobKey, JobKind},
};

/// A compaction that frees less than this share was futile.
const MIN_FREED_SHARE: f64 = 0.05;

/// Sums over the recorded compactions and over all files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Compactions that replaced their file.
    pub compactions: u64,
    /// Compactions that freed less than a twentieth of their file.
    pub futile: u64,
    /// Bytes of the new files.
    pub rewritten_bytes: u64,
    /// Bytes by which files shrank.
    pub freed_bytes: u64,
    /// Bytes that compacting all files would free now.
    pub waste_bytes: u64,
    /// The highest use of any disk, at the end of a compaction or now.
    pub peak_disk_bytes: u64,
}

impl World {
    /// The sums since the start.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let disks = (0..self.nodes.len()).map(|node| self.disk_of(node).used());
        let mut tally = Tally {
            waste_bytes: (0..self.nodes.len()).map(|node| self.waste_of(node)).sum(),
            peak_disk_bytes: disks.fold(self.peak_disk, u64::max),
            ..Tally::default()
        };
        for compaction in self.compactions() {
            let Some(end) = compaction.end.filter(|end| end.swapped) else { continue };
            let freed = compaction.before.saturating_sub(end.after);
            let is_futile = (freed as f64) < compaction.before as f64 * MIN_FREED_SHARE;
            tally.compactions += 1;
            tally.futile += u64::from(is_futile);
            tally.rewritten_bytes = tally.rewritten_bytes.saturating_add(end.after);
            tally.freed_bytes = tally.freed_bytes.saturating_add(freed);
        }
        tally
    }

    /// Bytes that compacting a node's databases and views would free.
    fn waste_of(&self, node: usize) -> u64 {
        let files = self.files_of(node).map(|file| {
            let shard = self.sizes_of(file).file;
            let shard = shard.saturating_sub(self.stock(file).clean(self.held(file)));
            let File::Copy { db, .. } = file else { return shard };
            let views = self.views_of(db).filter_map(|place| self.view_sizes(file, place));
            views.fold(shard, |sum, view| sum + view.file.saturating_sub(view.active))
        });
        files.fold(0, u64::saturating_add)
    }

    /// Records a disk's use just before a compaction there ends, when it is greatest.
    pub(super) fn note_peak(&mut self, key: JobKey) {
        let node = self.node_of(key.file);
        let is_build = matches!(key.kind, JobKind::Build(_));
        // Only with a described disk: summing is slow in a large world.
        if !is_build && self.nodes[node].node.disk.is_some() {
            self.peak_disk = self.peak_disk.max(self.disk_of(node).used());
        }
    }
}
