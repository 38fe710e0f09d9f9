//! The journal: an embedded database with everything that must survive a restart.
//!
//! Owns the file under `--storage.path`. It contains outcomes and events (numbered, oldest
//! removed first), measured facts, open starts, remembered state of targets, suspensions,
//! overridden smoosh settings, and learned values. One task on its own thread holds the database;
//! other tasks use a [`Journal`] handle. Makes no decisions about compaction: the job
//! state task submits changes ([`crate::model::memory::Keeper`]), the service claims the file for its
//! cluster, and HTTP reads.
//!
//! Acknowledged data is on the disk. While the file cannot be written, [`Health`] shows since when
//! and why. Changes that must be stored are then refused, and optional events are counted and
//! dropped. Writing resumes automatically as soon as the disk allows it.

mod event;
mod feed;
mod handle;
mod identity;
mod marks;
mod measured;
mod pen;
mod place;
mod position;
mod query;
mod shelf;
mod store;
mod tables;
mod task;

pub use event::{Event, Summary, Taken, Type, What};
pub use feed::{Anew, FeedPage, FeedQuery, Since, Update};
pub use handle::{ClaimError, Health, Journal, Kept};
pub use identity::Identity;
pub use measured::Measured;
pub use place::{Directory, FileId, InMemory, OpenError, Place};
pub use position::{Position, Reached};
pub use query::{EventsQuery, HistoryQuery, Page};
pub use task::{Settings, Task};

#[cfg(test)]
mod tests;
