//! What recliner would have done in advise mode.

use crate::what_if::scorecard::ScorecardView;
use metrics_text::{Writer, families};

families! {
    ADVISED_COMPACTIONS: Counter None "recliner_advised_compactions_total" []
        "Compactions that would have ended since the process started if recliner enforced where it only advises.";
    ADVISED_RECLAIMED_BYTES: Counter Bytes "recliner_advised_reclaimed_bytes_total" []
        "Bytes that these compactions would have freed, as predicted.";
    ADVISED_REWRITTEN_BYTES: Counter Bytes "recliner_advised_rewritten_bytes_total" []
        "Bytes of the new files that these compactions would have written, as predicted.";
    ADVISED_CONFLICTS: Counter None "recliner_advised_conflicts_total" []
        "Such compactions during which another program compacted the same file or range.";
    ADVISED_RECLAIMABLE_BYTES: Gauge Bytes "recliner_advised_reclaimable_bytes" []
        "Bytes that compactions would still free if recliner had enforced; absent while it enforces.";
}

pub(super) fn write(writer: &mut Writer, view: &ScorecardView) {
    let counters = &view.counters;
    for (family, value) in [
        (&ADVISED_COMPACTIONS, counters.compactions),
        (&ADVISED_RECLAIMED_BYTES, counters.freed_bytes),
        (&ADVISED_REWRITTEN_BYTES, counters.rewritten_bytes),
        (&ADVISED_CONFLICTS, counters.conflicts),
    ] {
        writer.family(family).sample(&[], value);
    }
    if let Some(bytes) = view.advised_waste_bytes {
        writer.family(&ADVISED_RECLAIMABLE_BYTES).sample(&[], bytes);
    }
}
