//! What a cluster has: reads CouchDB, or a node's own files, and turns what comes into
//! observations.
//!
//! Owns the knowledge of which route tells what, and the rules that turn answers and headers
//! into facts. Keeps nothing but what spares it to read a file again that did not change: every
//! function reads and yields observations; the scanner applies them to its tables.

mod both;
mod designs;
mod files;
mod http;
mod map;
mod observation;
mod peers;
mod rights;
mod stage;
mod standing;
mod told;

pub use both::{Directories, Sources};
pub use designs::{Design, DesignGroup, groups, served};
pub use files::FilesSource;
pub use http::{HttpSettings, HttpSource};
pub use map::{CopyAt, MapEntry, doc_hash};
pub use observation::{
    CompactionFile, DbSeen, DiskSeen, Doing, FileSeen, IndexSeen, MapRead, Members, NodeSeen,
    Observation, PartSeen, SearchSeen, TaskSeen, Unread, ViewSeen,
};
pub use peers::PeersSource;
pub use stage::{Databases, Lane, Source, Stage};
pub use standing::{Copy, Reshard, standing_of_absent, standing_of_placed, standing_of_stray};
pub use told::{FactsLine, FactsPage};
