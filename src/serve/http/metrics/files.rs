//! What is in nodes' directories, where this process reads them: view index files, which are
//! the copies of the cluster's views once more, and what nothing uses.

use super::{Rows, places};
use crate::{
    model::target::{Kind, State},
    plan::Plan,
    serve::http::families as f,
    table::{Node, OnDisk, Sums},
};
use metrics_text::Writer;

/// Writes the families of files.
pub(super) fn write(writer: &mut Writer, plan: &Plan) {
    let walked = || {
        let walked = |node: &'_ Node| Some((node.name.clone(), node.disk?));
        places(plan).filter_map(move |(_, node)| walked(node))
    };
    let sums: Rows<OnDisk, u64, 1, 3> = [
        (&f::STALE_INDEX_BYTES, |disk| disk.stale_index),
        (&f::LEFTOVER_BYTES, |disk| disk.leftover),
        (&f::TRASH_BYTES, |disk| disk.trash),
    ];
    for (family, sum) in sums {
        let mut samples = writer.family(family);
        for (node, disk) in walked() {
            samples.sample(&[&node], sum(disk));
        }
    }
    let totals = plan.snapshot.totals();
    let views: Vec<(&Node, Sums)> = places(plan)
        .map(|(at, node)| (node, totals.of(at, Kind::View)))
        .filter(|(node, _)| node.disk.is_some())
        .collect();
    let mut samples = writer.family(&f::NODE_VIEW_FILES);
    for (node, sums) in &views {
        for state in [State::Ok, State::Orphan] {
            samples.sample(&[&node.name, state.label()], sums.states[state as usize]);
        }
    }
    let sums: Rows<&Sums, Option<f64>, 1, 3> = [
        (&f::NODE_VIEW_FILE_BYTES, |sums| sums.file.get()),
        (&f::NODE_VIEW_ACTIVE_BYTES, |sums| sums.active.get()),
        (&f::NODE_VIEW_RECLAIMABLE_BYTES, |sums| sums.reclaimable.get()),
    ];
    for (family, sum) in sums {
        let mut samples = writer.family(family);
        for (node, sums) in &views {
            if let Some(bytes) = sum(sums) {
                samples.sample(&[&node.name], bytes);
            }
        }
    }
    let mut samples = writer.family(&f::SOURCE_DISAGREEMENTS);
    for (_, node) in places(plan) {
        if let Some(count) = node.disagreements {
            samples.sample(&[&node.name], count);
        }
    }
}
