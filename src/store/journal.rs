//! The journal: an embedded database with everything that must survive a restart.
//!
//! Owns the file under `--storage.path`. It contains outcomes and events (numbered, oldest
//! removed first), measured facts, open starts, remembered state of targets, suspensions,
//! overridden smoosh settings, and learned values. One task on its own thread holds the database;
//! other tasks use a [`Journal`] handle. Makes no decisions about compaction: the job
//! state task submits changes ([`crate::model::records::StateStore`]), the service claims the file for its
//! cluster, and HTTP reads.
//!
//! Acknowledged data is on the disk. While the file cannot be written, [`JournalHealth`] shows since when
//! and why. Changes that must be stored are then refused, and optional events are counted and
//! dropped. Writing resumes automatically as soon as the disk allows it.

mod copy;
mod event;
mod feed_progress;
mod feed_tables;
mod file;
mod handle;
mod identity;
mod ledger_buckets;
mod marks;
mod measured;
mod named_values;
mod query;
mod request;
mod retained_table;
mod state;
mod storage;
mod store;
mod tables;
mod task;
mod write_tx;

pub use copy::{CopyError, CopySummary, JournalCopy, check_copy};
pub use event::{EventDetails, EventSummary, EventType, JournalEvent, OverriddenSetting};
pub use feed_progress::{EventProgress, FeedPosition};
pub use feed_tables::{FeedEntry, FeedPage, FeedQuery, FeedStart, ResetReason};
pub(crate) use handle::SharedRecord;
pub use handle::{Journal, JournalHealth, StoredEvents};
pub use identity::{ClaimError, ClusterIdentity};
pub use ledger_buckets::LedgerWrite;
pub use measured::MeasuredBlocks;
pub use named_values::NamedValues;
pub use query::{EventsQuery, HistoryQuery, Page};
pub use storage::{DirectoryStorage, FileId, InMemory, JournalOpenError, Storage, is_open_journal};
pub(crate) use storage::{create_private, has_name};
pub use task::{JournalSettings, JournalTask};

#[cfg(test)]
pub(crate) use event::tests::one_of_each_type;

#[cfg(test)]
mod tests;
