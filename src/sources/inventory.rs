//! Reads CouchDB, or a node's own files, and converts the results to observations.
//!
//! Owns the choice of routes, and the rules that convert responses and headers to facts. Keeps nothing
//! except what is needed to skip unchanged files: every function reads and returns observations, which
//! the scanner applies to its tables.

mod combined;
mod copy_state;
mod designs;
mod facts_page;
mod files;
mod http;
mod map;
mod observation;
mod peers;
mod rights;
#[cfg(test)]
mod silent_source;
mod stage;

pub use combined::{Directories, Sources};
pub use copy_state::{Copy, Reshard, state_of_absent, state_of_placed, state_of_stray};
pub use designs::{Design, DesignGroup, groups, served};
pub use facts_page::{FactsLine, FactsPage, InsideLine};
pub use files::FilesSource;
pub use http::{HttpSettings, HttpSource};
pub use map::{CopyAt, MapEntry, doc_hash};
pub use observation::{
    ActiveTask, CompactionFile, DbFile, DiskWalk, FoundFile, IndexAnswer, MapRead, Members,
    NodeAnswer, Observation, PartFile, ReadError, SearchAnswer, TaskKind, ViewAnswer,
};
pub use peers::PeersSource;
#[cfg(test)]
pub(crate) use silent_source::SilentSource;
pub use stage::{Databases, NodeReads, Source, Stage};
