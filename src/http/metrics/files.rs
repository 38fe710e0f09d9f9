//! What lies in nodes' directories beside targets, where this process reads them.

use super::{Rows, places};
use crate::{
    exposition::{Writer, families as f},
    plan::Plan,
    snapshot::{Node, OnDisk},
};

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
    let mut samples = writer.family(&f::SOURCE_DISAGREEMENTS);
    for (_, node) in places(plan) {
        if let Some(count) = node.disagreements {
            samples.sample(&[&node.name], count);
        }
    }
}
