//! How the journal is.

use crate::{serve::http::families as f, store::journal::Journal};
use metrics_text::Writer;

/// Writes what is known of the journal.
pub(super) fn write(writer: &mut Writer, journal: &Journal) {
    let last_seq = journal.health().borrow().last_seq;
    writer.family(&f::JOURNAL_LAST_SEQ).sample(&[], last_seq);
    writer.family(&f::JOURNAL_DROPPED).sample(&[], journal.dropped());
}
