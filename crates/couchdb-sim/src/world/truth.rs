//! What a world can tell: plain values, each the truth of one moment.
//!
//! Owns no state and no rule. Made by the world, read by the HTTP routes and by tests.

use couchdb_names::Signature;
use std::time::Duration;

/// Bytes of a file, as CouchDB's `sizes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// The file's bytes.
    pub file: u64,
    /// Bytes that are live.
    pub active: u64,
    /// Bytes of the documents as JSON.
    pub external: u64,
}

/// The numbers of one shard copy, or of a node-local database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardInfo {
    /// The file's name.
    pub name: String,
    /// Documents.
    pub doc_count: u64,
    /// Tombstones.
    pub doc_del_count: u64,
    /// The last sequence.
    pub update_seq: u64,
    /// The sequence at the last compaction; 0: never.
    pub compacted_seq: u64,
    /// Whether a compaction runs.
    pub compact_running: bool,
    /// Its bytes.
    pub sizes: Sizes,
    /// When the file was opened, in microseconds since 1970.
    pub opened: u64,
    /// Its identity.
    pub uuid: u128,
}

/// The numbers of one copy of a view index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewInfo {
    /// The signature.
    pub signature: Signature,
    /// Its language.
    pub language: String,
    /// Its bytes.
    pub sizes: Sizes,
    /// The sequence of the shard that it is built to.
    pub update_seq: u64,
    /// The shard's sequences beyond that.
    pub pending: u64,
    /// Whether a build runs.
    pub updater_running: bool,
    /// Whether a compaction runs.
    pub compact_running: bool,
    /// Collator versions it was written with.
    pub collators: Vec<String>,
}

/// What a node's disk holds, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// The disk's size; `None`: without limit.
    pub capacity: Option<u64>,
    /// Database and index files, orphans and stale indexes included.
    pub files: u64,
    /// Temporary files of compactions that run or were interrupted.
    pub temporary: u64,
    /// What was deleted and is not gone yet.
    pub trash: u64,
}

impl DiskUse {
    /// What is free, never below zero; `None` on a disk without limit.
    #[must_use]
    pub fn available(&self) -> Option<u64> {
        Some(self.capacity?.saturating_sub(self.used()))
    }

    /// All that is there.
    pub(super) const fn used(&self) -> u64 {
        self.files.saturating_add(self.temporary).saturating_add(self.trash)
    }
}

/// What an active task does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// A database compaction, with its phase.
    Database {
        /// `document_copy`, `docid_sort` or `docid_copy`.
        phase: &'static str,
    },
    /// A view compaction.
    View {
        /// The design document's id, with `_design/`.
        ddoc: String,
        /// `ids` or `view`.
        phase: &'static str,
        /// The view's number in the `view` phase.
        view: Option<u64>,
    },
    /// An index build.
    Indexer {
        /// The design document's id, with `_design/`.
        ddoc: String,
    },
    /// A build of a search index.
    Search {
        /// The design document's id, with `_design/`.
        ddoc: String,
        /// Its name there.
        index: String,
    },
}

/// What `_nouveau_info` and `_search_info` sum up, of one copy or of one of each range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchInfo {
    /// The sequence it is built to.
    pub update_seq: u64,
    /// Sequences beyond that.
    pub pending: u64,
    /// Documents in it.
    pub docs: u64,
    /// Its bytes.
    pub disk_size: u64,
    /// Whether it was ever built.
    pub exists: bool,
}

/// One entry of `_active_tasks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The node it runs on.
    pub node: String,
    /// The shard file.
    pub shard: String,
    /// What it does.
    pub kind: TaskKind,
    /// A number that stands for its process; another one in each pass.
    pub process: u64,
    /// Changes done in this phase.
    pub changes_done: u64,
    /// Changes of this phase.
    pub total_changes: u64,
    /// When this pass began, since the world's start.
    pub started: Duration,
    /// When it last reported progress, since the world's start.
    pub updated: Duration,
}

/// Why a compaction cannot start.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum StartError {
    /// There is no such node.
    #[error("no such node")]
    NoNode,
    /// The node is down.
    #[error("the node is down")]
    NodeDown,
    /// The node has no such file.
    #[error("the node has no such shard file")]
    NoFile,
    /// The database has no such design document.
    #[error("no such design document")]
    NoDesign,
}
