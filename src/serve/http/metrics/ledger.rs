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

/// What no file explains counts for the first node of its volume. Prometheus sees no growth in a
/// counter's first sample, so every cause begins at zero.
pub(super) fn write(writer: &mut Writer, books: &Books) {
    let [mut grown, mut freed]: [BTreeMap<[&str; 2], u64>; 2] = Default::default();
    // The pseudo-node has no disk.
    for node in books.nodes().filter(|node| *node != CLUSTER_NODE) {
        for cause in Cause::VARIANTS {
            if cause.can_add() {
                grown.insert([node, cause.label()], 0);
            }
            if cause.can_free() {
                freed.insert([node, cause.label()], 0);
            }
        }
    }
    for ((account, cause), totals) in books.totals() {
        let node = books.node_of(account);
        if node == CLUSTER_NODE {
            continue;
        }
        for (sums, bytes) in [(&mut grown, totals.grown), (&mut freed, totals.shrunk)] {
            if bytes > 0 {
                let sum = sums.entry([node, cause.label()]).or_default();
                *sum = sum.saturating_add(bytes);
            }
        }
    }
    for (family, sums) in [(&LEDGER_BYTES, grown), (&LEDGER_FREED_BYTES, freed)] {
        writer.write(family, sums.iter().map(|(labels, bytes)| (*labels, *bytes)));
    }
}
