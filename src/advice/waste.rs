//! How much of the cluster's disks nothing needs.

use crate::{
    model::target::TargetKind,
    table::{NodeIx, Snapshot},
};

/// Bytes of all files, and those of them that nothing needs; none if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waste {
    /// Bytes of all files.
    pub file_bytes: Option<u64>,
    /// What compactions would free, and files that nothing uses: orphans, stale indexes, leftovers of
    /// compactions, and deleted files.
    pub waste_bytes: Option<u64>,
}

impl Waste {
    /// The waste of a snapshot; views count once, with all their files.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        let (mut files, mut waste, mut is_known) = (0.0, 0.0, false);
        for (at, node) in snapshot.nodes().iter().enumerate() {
            let Some(ix) = NodeIx::from_usize(at) else { continue };
            let kind = if ix == NodeIx::CLUSTER { TargetKind::View } else { TargetKind::Db };
            let sums = snapshot.totals().sums_of(ix, kind);
            let usage = node.disk_usage.unwrap_or_default();
            let unused = usage.stale_index_bytes + usage.leftover_bytes + usage.trash_bytes;
            files += sums.file_bytes.get().unwrap_or_default() + unused as f64;
            waste += sums.reclaimable_bytes.get().unwrap_or_default() + unused as f64;
            // Compacting an orphan is no remedy: all of it is waste.
            waste += sums.orphan_file.get().unwrap_or_default();
            is_known |= kind == TargetKind::Db && sums.file_bytes.get().is_some();
        }
        let known = |bytes: f64| is_known.then(|| crate::model::rounding::to_bytes(bytes));
        Self { file_bytes: known(files), waste_bytes: known(waste.min(files)) }
    }
}
