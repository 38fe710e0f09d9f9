//! What a cluster has: reads CouchDB and turns its answers into observations.
//!
//! Owns the knowledge of which route tells what, and the rules that turn answers into
//! facts. Never keeps state: every function reads and yields observations; the scanner
//! applies them to its tables.

mod designs;
mod http;
mod map;
mod observation;
mod rights;
mod stage;
mod standing;

pub use designs::{Design, DesignGroup, groups, served};
pub use http::{HttpSettings, HttpSource};
pub use map::{CopyAt, MapEntry, doc_hash};
pub use observation::{
    Doing, IndexSeen, MapRead, Members, NodeSeen, Observation, TaskSeen, Unread, ViewSeen,
};
pub use stage::{Databases, Lane, Source, Stage};
pub use standing::{Copy, Reshard, standing_of_absent, standing_of_placed, standing_of_stray};
