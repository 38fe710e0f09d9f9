//! The journal on disk.

use crate::store::journal::Journal;
use metrics_text::{Writer, families};

families! {
    JOURNAL_LAST_SEQ: Gauge None "recliner_journal_last_seq" []
        "Sequence number of the newest journal entry that is safely on disk; do not add it up.";
    JOURNAL_DROPPED: Counter None "recliner_journal_dropped_total" []
        "Events that were not written to the journal because it was full or could not be written.";
}

pub(super) fn write(writer: &mut Writer, journal: &Journal) {
    let last_seq = journal.health().borrow().last_seq;
    writer.family(&JOURNAL_LAST_SEQ).sample(&[], last_seq);
    writer.family(&JOURNAL_DROPPED).sample(&[], journal.dropped_events());
}
