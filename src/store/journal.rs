//! The journal: what must outlive the process, in one embedded database.
//!
//! Owns the file under `--storage.path`: how jobs ended and what happened (numbered, oldest
//! removed first), what was measured, open starts, what is remembered of targets, suspensions,
//! what was taken from smoosh, and what was learned. One task holds the database, on a thread of
//! its own; others hold a [`Journal`]. Decides nothing of compaction: the follower says what
//! changed ([`crate::model::memory::Keeper`]), the service claims the file for its cluster, HTTP reads.
//!
//! What is acknowledged is on the disk. While it cannot be written, the [`Health`] says since
//! when and why, everything that must be kept is refused, and what need not be is counted and
//! dropped; it goes on by itself when the disk does.

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
