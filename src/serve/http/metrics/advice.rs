//! What recliner would have done while it only advises.

use crate::what_if::scorecard::{ScorecardState, ScorecardView};
use metrics_text::{Writer, families};

families! {
    ADVICE_COMPACTIONS: Counter None "recliner_advice_compactions_total" []
        "Compactions that would have ended if recliner enforced where it only advises, since the process started.";
    ADVICE_RECLAIMED_BYTES: Counter Bytes "recliner_advice_reclaimed_bytes_total" []
        "Bytes that these compactions would have freed, as predicted.";
    ADVICE_REWRITTEN_BYTES: Counter Bytes "recliner_advice_rewritten_bytes_total" []
        "Bytes of the new files that these compactions would have written, as predicted.";
    ADVICE_CONFLICTS: Counter None "recliner_advice_conflicts_total" []
        "Those of these compactions during which another program compacted the same file or range.";
    ADVICE_RECLAIMABLE_BYTES: Gauge Bytes "recliner_advice_reclaimable_bytes" []
        "Bytes that compactions would still free had recliner enforced; absent while it enforces.";
}

pub(super) fn write(writer: &mut Writer, view: &ScorecardView) {
    if view.state == ScorecardState::Waiting {
        return;
    }
    let counters = &view.counters;
    for (family, value) in [
        (&ADVICE_COMPACTIONS, counters.compactions),
        (&ADVICE_RECLAIMED_BYTES, counters.freed_bytes),
        (&ADVICE_REWRITTEN_BYTES, counters.rewritten_bytes),
        (&ADVICE_CONFLICTS, counters.conflicts),
    ] {
        writer.family(family).sample(&[], value);
    }
    if let Some(bytes) = view.advised_waste_bytes {
        writer.family(&ADVICE_RECLAIMABLE_BYTES).sample(&[], bytes);
    }
}
