//! What the signals of pressure read. The gates that follow from them come with the plan.

use crate::{plan::pressure::Pressures, serve::http::families as f, table::Snapshot};
use metrics_text::Writer;

/// Writes the signals that could be read.
pub(super) fn write(writer: &mut Writer, pressures: &Pressures, snapshot: &Snapshot) {
    let mut samples = writer.family(&f::PRESSURE);
    for (ix, pressure) in &pressures.nodes {
        let Some(node) = snapshot.node(*ix) else { continue };
        for (signal, reads) in &pressure.signals {
            samples.sample(&[&node.name, signal.label()], *reads);
        }
    }
}
