//! Files in the nodes' directories that this process reads: view index files, and files that
//! nothing uses.
//!
//! The view index files are the copies that `recliner_file_bytes{node="_cluster"}` already counts;
//! they have families of their own, so that no sum counts them twice.

use super::served_nodes;
use crate::{
    model::target::{TargetKind, TargetState},
    plan::Plan,
    table::{DiskUsage, TargetSums},
    text::Label,
};
use metrics_text::{Writer, families};

families! {
    NODE_VIEW_FILES: Gauge None "recliner_node_view_files" ["node", "state"]
        "Number of view index files on the node, by state: ok, or orphan if nothing uses them; absent where no directory is read.";
    NODE_VIEW_FILE_BYTES: Gauge Bytes "recliner_node_view_file_bytes" ["node"]
        "Bytes of the view index files in use on the node; recliner_file_bytes includes them.";
    NODE_VIEW_ACTIVE_BYTES: Gauge Bytes "recliner_node_view_active_bytes" ["node"]
        "Bytes of live data in the view index files in use on the node; recliner_active_bytes includes them.";
    NODE_VIEW_RECLAIMABLE_BYTES: Gauge Bytes "recliner_node_view_reclaimable_bytes" ["node"]
        "Bytes predicted to be freed in the view index files in use on the node; recliner_reclaimable_bytes includes them.";
    STALE_INDEX_BYTES: Gauge Bytes "recliner_stale_index_bytes" ["node"]
        "Bytes of view index files on the node that no design document and no shard uses.";
    LEFTOVER_BYTES: Gauge Bytes "recliner_leftover_bytes" ["node"]
        "Bytes of files on the node left behind by unfinished compactions.";
    TRASH_BYTES: Gauge Bytes "recliner_trash_bytes" ["node"]
        "Bytes of files that CouchDB deleted or set aside and that are still on the node's disk.";
    SOURCE_DISAGREEMENTS: Gauge None "recliner_source_disagreements" ["node"]
        "Number of targets for which CouchDB and the header of the file report different facts.";
}

pub(super) fn write(writer: &mut Writer, plan: &Plan) {
    view_files(writer, plan);
    let disks = served_nodes(plan).filter_map(|(_, node)| Some(([&*node.name], node.disk_usage?)));
    let disks: Vec<([&str; 1], DiskUsage)> = disks.collect();
    writer.write_each(
        &disks,
        &[
            (&STALE_INDEX_BYTES, |disk| Some(disk.stale_index_bytes)),
            (&LEFTOVER_BYTES, |disk| Some(disk.leftover_bytes)),
            (&TRASH_BYTES, |disk| Some(disk.trash_bytes)),
        ],
    );
    let nodes = served_nodes(plan);
    let odd = nodes.filter_map(|(_, node)| Some(([&*node.name], node.disagreements?)));
    writer.write(&SOURCE_DISAGREEMENTS, odd);
}

fn view_files(writer: &mut Writer, plan: &Plan) {
    let totals = plan.snapshot.totals();
    let views: Vec<([&str; 1], TargetSums)> = served_nodes(plan)
        .filter(|(_, node)| node.disk_usage.is_some())
        .map(|(ix, node)| ([&*node.name], totals.sums_of(ix, TargetKind::View)))
        .collect();
    let by_state = views.iter().flat_map(|([node], sums)| {
        [TargetState::Ok, TargetState::Orphan]
            .map(|state| ([*node, state.label()], sums.counts_by_state[state as usize]))
    });
    writer.write(&NODE_VIEW_FILES, by_state);
    writer.write_each(
        &views,
        &[
            (&NODE_VIEW_FILE_BYTES, |sums| sums.file_bytes.get()),
            (&NODE_VIEW_ACTIVE_BYTES, |sums| sums.active_bytes.get()),
            (&NODE_VIEW_RECLAIMABLE_BYTES, |sums| sums.reclaimable_bytes.get()),
        ],
    );
}
