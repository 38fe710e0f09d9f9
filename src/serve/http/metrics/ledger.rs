//! The ledger: bytes that each cause added to and removed from the disks.

use crate::{
    ledger::Books,
    model::{cause::Cause, target::CLUSTER_NODE},
    text::Label,
};
use metrics_text::{Writer, families};
use std::collections::BTreeMap;
use strum::VariantArray as _;

families! {
    LEDGER_BYTES: Counter Bytes "recliner_ledger_bytes_total" ["node", "cause"]
        "Bytes that a cause added to the node's disks, since recliner started.";
    LEDGER_FREED_BYTES: Counter Bytes "recliner_ledger_freed_bytes_total" ["node", "cause"]
        "Bytes that a cause removed from the node's disks, since recliner started.";
}

/// What no file explains counts for the first node of its volume. Prometheus sees no growth in a counter's first sample,
/// so every cause that can add bytes begins at zero.
pub(super) fn write(writer: &mut Writer, books: &Books) {
    let mut sums: BTreeMap<[&str; 2], (u64, u64)> = BTreeMap::new();
    for ((account, cause), totals) in books.totals() {
        let node = books.node_of(account);
        let (grown, shrunk) = sums.entry([node, cause.label()]).or_default();
        *grown = grown.saturating_add(totals.grown);
        *shrunk = shrunk.saturating_add(totals.shrunk);
    }
    for node in books.nodes() {
        for cause in Cause::VARIANTS.iter().filter(|cause| cause.can_add()) {
            sums.entry([node, cause.label()]).or_default();
        }
    }
    // The pseudo-node has no disk.
    sums.retain(|[node, _], _| *node != CLUSTER_NODE);
    let freed = sums.iter().filter(|(_, (_, freed))| *freed > 0);
    writer.write(&LEDGER_FREED_BYTES, freed.map(|(labels, (_, freed))| (*labels, *freed)));
    writer.write(&LEDGER_BYTES, sums.iter().map(|(labels, (grown, _))| (*labels, *grown)));
}
