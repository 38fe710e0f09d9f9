//! The feed: `GET /_db_updates` as CouchDB has it, told from the journal.
//!
//! Owns who listens. One task reads what is new in the journal, once for all, and readers who
//! keep up share what it rendered; each holds no more than its place. One that is behind reads
//! on in the journal's own table, a page at a time and few at once, where of each database the
//! latest event of each type is left: it is late, and no burden. Only what is on the disk is
//! told. Knows nothing of HTTP but what its bodies are made of, and never writes.

mod ask;
mod hub;
mod reader;
mod rows;
mod seq;

pub use ask::{Ask, Bad, Kind};
pub use hub::{Feed, Full, ROOM, Refused, Task};
pub use reader::{Begun, Body};

#[cfg(test)]
mod tests;
