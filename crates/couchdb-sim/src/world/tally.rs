//! What compactions came to since the start of a world, by the same measures whoever started them.

use super::{
    World,
    keys::{File, JobKey, JobKind},
};

/// A file that shrinks by less than this share was rewritten for nothing.
const MIN_FREED_SHARE: f64 = 0.05;

/// Sums over the recorded compactions and over all files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Compactions that replaced their file.
    pub compactions: u64,
    /// Those that freed less than a twentieth of it.
    pub futile: u64,
    /// Bytes of the new files.
    pub rewritten_bytes: u64,
    /// Bytes by which files became smaller.
    pub freed_bytes: u64,
    /// Bytes that compactions of all files would free now.
    pub waste_bytes: u64,
    /// The most bytes that any disk had to hold, at the end of a compaction or now.
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

    /// Bytes that compactions of a node's databases and views would free.
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

    /// Takes note of a disk's use just before a compaction there ends, which is when it is greatest.
    pub(super) fn note_peak(&mut self, key: JobKey) {
        let node = self.node_of(key.file);
        let is_build = matches!(key.kind, JobKind::Build(_));
        // Adding up takes a moment in a large world, where no test asks.
        if !is_build && self.nodes[node].node.disk.is_some() {
            self.peak_disk = self.peak_disk.max(self.disk_of(node).used());
        }
    }
}
