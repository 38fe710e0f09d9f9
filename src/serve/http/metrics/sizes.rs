//! Targets and their bytes, by node and kind; each file is counted once.

use super::served_nodes;
use crate::{
    model::target::{TargetKind, TargetState},
    plan::Plan,
    table::{NodeIx, TargetSums},
    text::Label,
};
use metrics_text::{Writer, families};
use std::collections::BTreeMap;

families! {
    TARGETS: Gauge None "recliner_targets" ["node", "kind", "state"]
        "Number of known targets, by kind and by whether they match the shard map.";
    FILE_BYTES: Gauge Bytes "recliner_file_bytes" ["node", "kind"]
        "Bytes of the targets' files, summed where known; a view counts all its copies.";
    ACTIVE_BYTES: Gauge Bytes "recliner_active_bytes" ["node", "kind"]
        "Bytes in the targets' files that CouchDB counts as live data, summed where known.";
    EXTERNAL_BYTES: Gauge Bytes "recliner_external_bytes" ["node", "kind"]
        "Uncompressed size of the targets' contents in bytes, summed where known.";
    RECLAIMABLE_BYTES: Gauge Bytes "recliner_reclaimable_bytes" ["node", "kind"]
        "Bytes that compacting the targets is predicted to free, summed where known.";
    TARGETS_UNMEASURED: Gauge None "recliner_targets_unmeasured" ["node"]
        "Number of targets whose sizes are not known.";
    ORPHAN_BYTES: Gauge Bytes "recliner_orphan_bytes" ["node"]
        "Bytes of shard files on the node that are not in the shard map; recliner_file_bytes includes them.";
}

/// The sums of one kind on one node.
struct Row<'a> {
    node: &'a str,
    kind: TargetKind,
    sums: TargetSums,
}

pub(super) fn write(writer: &mut Writer, plan: &Plan) {
    let rows = rows(plan);
    let mut samples = writer.family(&TARGETS);
    for Row { node, kind, sums } in &rows {
        for state in TargetState::each() {
            samples
                .sample(&[node, kind.label(), state.label()], sums.counts_by_state[state as usize]);
        }
    }
    for (node, count) in copies_on_nonmembers(plan) {
        samples.sample(&[node, TargetKind::Db.label(), TargetState::Unknown.label()], count);
    }
    bytes(writer, &rows);
    let mut unmeasured: BTreeMap<&str, u64> = BTreeMap::new();
    for Row { node, sums, .. } in &rows {
        *unmeasured.entry(node).or_default() += sums.unmeasured();
    }
    writer.write(&TARGETS_UNMEASURED, unmeasured.into_iter().map(|(node, count)| ([node], count)));
    let shards = rows.iter().filter(|row| row.kind == TargetKind::Db);
    let orphans = shards.filter_map(|row| Some(([row.node], row.sums.orphan_file.get()?)));
    writer.write(&ORPHAN_BYTES, orphans);
}

/// The rows to write. Databases belong to a node; views with all their copies, cleanups and search
/// indexes belong to the pseudo node. A node is omitted if nothing was found there and no scan has
/// ended, because its sums are unknown, not zero.
fn rows(plan: &Plan) -> Vec<Row<'_>> {
    let totals = plan.snapshot.totals();
    served_nodes(plan)
        .flat_map(|(ix, node)| {
            TargetKind::each()
                .filter(move |kind| (*kind == TargetKind::Db) != (ix == NodeIx::CLUSTER))
                .map(move |kind| (node, kind, totals.sums_of(ix, kind)))
        })
        .filter(|(node, _, sums)| {
            let walked = node.disk_usage.is_some_and(|disk| disk.last_success.is_some());
            node.last_success.is_some() || walked || *sums != TargetSums::default()
        })
        .map(|(node, kind, sums)| Row { node: &node.name, kind, sums })
        .collect()
}

/// Nodes outside the cluster on which the shard map places copies, with the number of those copies.
fn copies_on_nonmembers(plan: &Plan) -> impl Iterator<Item = (&str, u64)> {
    let nodes = plan.snapshot.nodes().iter().enumerate().skip(1);
    let nodes = nodes.filter(|(_, node)| node.is_served && !node.is_member);
    nodes.filter_map(|(ix, node)| {
        let sums = plan.snapshot.totals().sums_of(NodeIx::from_usize(ix)?, TargetKind::Db);
        let unknown = sums.counts_by_state[TargetState::Unknown as usize];
        (unknown > 0).then_some((&*node.name, unknown))
    })
}

fn bytes(writer: &mut Writer, rows: &[Row<'_>]) {
    let of = |kinds: &[TargetKind]| -> Vec<([&str; 2], &TargetSums)> {
        let rows = rows.iter().filter(|row| kinds.contains(&row.kind));
        rows.map(|row| ([row.node, row.kind.label()], &row.sums)).collect()
    };
    // CouchDB does not report how much of a Lucene index is live or could be freed.
    let all = of(&[TargetKind::Db, TargetKind::View, TargetKind::Search]);
    writer.write_each(&all, &[(&FILE_BYTES, |sums| sums.file_bytes.get())]);
    writer.write_each(
        &of(&[TargetKind::Db, TargetKind::View]),
        &[
            (&ACTIVE_BYTES, |sums| sums.active_bytes.get()),
            (&EXTERNAL_BYTES, |sums| sums.external_bytes.get()),
            (&RECLAIMABLE_BYTES, |sums| sums.reclaimable_bytes.get()),
        ],
    );
}
