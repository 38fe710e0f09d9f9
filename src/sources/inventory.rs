//! What a cluster has: reads CouchDB, or a node's own files, and turns what comes into
//! observations.
//!
//! Owns which route answers what, and the rules that turn answers and headers into facts. Keeps
//! nothing, save what lets it skip files that did not change: every function reads and yields
//! observations; the scanner applies them to its tables.

mod both;
mod copy_state;
mod designs;
mod facts_page;
mod files;
mod http;
mod map;
mod observation;
mod peers;
mod rights;
mod stage;

pub use both::{Directories, Sources};
pub use copy_state::{Copy, Reshard, state_of_absent, state_of_placed, state_of_stray};
pub use designs::{Design, DesignGroup, groups, served};
pub use facts_page::{FactsLine, FactsPage};
pub use files::FilesSource;
pub use http::{HttpSettings, HttpSource};
pub use map::{CopyAt, MapEntry, doc_hash};
pub use observation::{
    ActiveTask, CompactionFile, DbFile, DiskWalk, FoundFile, IndexAnswer, MapRead, Members,
    NodeAnswer, Observation, PartFile, ReadError, SearchAnswer, TaskKind, ViewAnswer,
};
pub use peers::PeersSource;
pub use stage::{Databases, NodeReads, Source, Stage};
