//! The state of the journal on disk.

use crate::{plan::Plan, serve::http::probes::journal_failure, store::journal::Journal};
use metrics_text::{Writer, families};

families! {
    JOURNAL_USABLE: Gauge None "recliner_journal_usable" []
        "1 if the journal is used, 0 if it belongs to another cluster, cannot be written, or is not loaded yet.";
    JOURNAL_LAST_SEQ: Gauge None "recliner_journal_last_seq" []
        "Sequence number of the newest journal entry that is safely on disk; do not add it up.";
    JOURNAL_LAST_BACKUP_TIMESTAMP: Gauge Seconds
        "recliner_journal_last_backup_timestamp_seconds" []
        "Unix time at which the last complete backup of the journal was made, in seconds; absent until there is one.";
    JOURNAL_DROPPED: Counter None "recliner_journal_dropped_total" []
        "Events lost because the journal's queue was full or the journal could not be written.";
}

pub(super) fn write(writer: &mut Writer, plan: &Plan, journal: &Journal) {
    let (last_seq, last_backup) = {
        let health = journal.health();
        let health = health.borrow();
        (health.last_seq, health.last_backup)
    };
    let is_usable = journal_failure(plan, Some(journal)).is_none();
    writer.family(&JOURNAL_USABLE).sample(&[], is_usable);
    writer.family(&JOURNAL_LAST_SEQ).sample(&[], last_seq);
    writer.write(&JOURNAL_LAST_BACKUP_TIMESTAMP, last_backup.map(|at| ([], at)));
    writer.family(&JOURNAL_DROPPED).sample(&[], journal.dropped_events());
}
