//! How much of the cluster's disks nothing needs.

use crate::{
    model::{rounding::to_bytes, target::TargetKind},
    table::{NodeIx, Snapshot},
};

/// Bytes of all files, and those of them that nothing needs; none if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waste {
    /// Bytes of all files.
    pub file_bytes: Option<u64>,
    /// What compactions would free.
    pub compactable_bytes: Option<u64>,
    /// What compactions would free, and files that nothing uses: orphans, stale indexes, leftovers of
    /// compactions, and deleted files.
    pub waste_bytes: Option<u64>,
    /// Shards and views of unknown size, which add nothing: with any, the others are lower bounds.
    pub unmeasured: u64,
}

impl Waste {
    /// The waste of a snapshot; views count once, with all their files.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        let (mut files, mut compactable, mut unused) = (0.0, 0.0, 0.0);
        let (mut is_known, mut unmeasured) = (false, 0);
        for (at, node) in snapshot.nodes().iter().enumerate() {
            let Some(ix) = NodeIx::from_usize(at) else { continue };
            let kind = if ix == NodeIx::CLUSTER { TargetKind::View } else { TargetKind::Db };
            let sums = snapshot.totals().sums_of(ix, kind);
            files += sums.file_bytes.get().unwrap_or_default();
            unmeasured += sums.file_bytes.unknown_count();
            // Compacting an orphan is no remedy: all of it is waste.
            compactable += sums.reclaimable_bytes.get().unwrap_or_default()
                - sums.orphan_reclaimable.get().unwrap_or_default();
            unused += sums.orphan_file.get().unwrap_or_default();
            let of_nobody = node.disk_usage.unwrap_or_default().unused_bytes() as f64;
            files += of_nobody;
            unused += of_nobody;
            is_known |= kind == TargetKind::Db && sums.file_bytes.get().is_some();
        }
        let known = |bytes: f64| is_known.then(|| to_bytes(bytes));
        Self {
            file_bytes: known(files),
            compactable_bytes: known(compactable),
            waste_bytes: known((compactable + unused).min(files)),
            unmeasured,
        }
    }
}
