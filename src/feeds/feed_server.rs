//! recliner's feed: `GET /_db_updates` in CouchDB's format, served from the journal.
//!
//! Owns the readers. One task reads new journal entries once, and readers that keep up share the
//! rendered rows; each reader holds only its position. A reader that falls behind reads the
//! journal's table itself, page by page and a few readers at a time. The table contains only the
//! latest event of each type of each database, so such a reader is late but cheap. Only events
//! that are on the disk are sent. Knows nothing about HTTP except the content of bodies, and never
//! writes to the journal.

mod hub;
mod reader;
mod request;
mod rows;
mod sequence;

pub use hub::{FeedHandle, FeedOpenError, FeedServerTask, MAX_READERS, TooManyReaders};
pub use reader::{Body, OpenedFeed};
pub use request::{BadRequest, FeedRequest, Kind};

#[cfg(test)]
mod tests;
