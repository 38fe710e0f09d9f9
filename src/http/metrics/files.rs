//! What lies in nodes' directories beside targets, where this process reads them.

use super::present::{Rows, places};
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
    let sums: Rows<OnDisk, Option<u64>, 1, 4> = [
        (&f::STALE_INDEX_BYTES, |disk| Some(disk.stale_index)),
        (&f::LEFTOVER_BYTES, |disk| Some(disk.leftover)),
        (&f::TRASH_BYTES, |disk| Some(disk.trash)),
        (&f::SOURCE_DISAGREEMENTS, |disk| disk.disagreements),
    ];
    for (family, sum) in sums {
        let mut samples = writer.family(family);
        for (node, disk) in walked() {
            if let Some(value) = sum(disk) {
                samples.sample(&[&node], value);
            }
        }
    }
}
