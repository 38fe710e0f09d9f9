//! Plain values that describe the world at one moment.
//!
//! Owns no state and no rule. The world creates them; the HTTP routes and tests read them.

use couchdb_names::Signature;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The sizes of a file in bytes, as CouchDB's `sizes`.
#[derive(Serialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// The file's bytes.
    pub file: u64,
    /// Bytes of the file that are live.
    pub active: u64,
    /// Bytes of the documents as JSON.
    pub external: u64,
}

/// The state of one shard copy, or of a node-local database.
#[derive(Serialize, Clone, Debug, PartialEq, Eq)]
pub struct ShardInfo {
    /// The file's name.
    #[serde(rename = "db_name")]
    pub name: String,
    /// The number of documents.
    pub doc_count: u64,
    /// The number of tombstones.
    pub doc_del_count: u64,
    /// The last sequence.
    pub update_seq: u64,
    /// The sequence at the last compaction; 0: never.
    pub compacted_seq: u64,
    /// Whether the file is being compacted.
    pub compact_running: bool,
    /// The file's sizes.
    pub sizes: Sizes,
    /// When the file was opened, in microseconds since 1970.
    pub instance_start_time: String,
    /// The UUID of the file.
    pub uuid: String,
}

/// The state of one copy of a view index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewInfo {
    /// The signature, which names the index's file.
    pub signature: Signature,
    /// The language of its design document.
    pub language: String,
    /// The index's sizes.
    pub sizes: Sizes,
    /// The shard's sequence to which it is built.
    pub update_seq: u64,
    /// The number of later sequences in the shard.
    pub pending: u64,
    /// Whether a build is running.
    pub updater_running: bool,
    /// Whether a compaction is running.
    pub compact_running: bool,
    /// The collator versions that built it.
    pub collators: Vec<String>,
}

impl ViewInfo {
    /// The fields of `_info` that the cluster and a node both show.
    pub(crate) fn shown(&self) -> Map<String, Value> {
        let fields = json!({
            "signature": self.signature.to_string(),
            "language": self.language,
            "sizes": self.sizes,
            "update_seq": self.update_seq,
            "purge_seq": 0,
            "collator_versions": self.collators,
            "updater_running": self.updater_running,
            "compact_running": self.compact_running,
            "waiting_commit": false,
            "waiting_clients": 0,
        });
        if let Value::Object(fields) = fields { fields } else { Map::new() }
    }
}

/// The usage of a node's disk, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// The disk's size; `None`: unlimited.
    pub capacity: Option<u64>,
    /// Database and index files, including orphans, stale indexes and files kept for recovery.
    pub files: u64,
    /// Temporary files of running and interrupted compactions.
    pub temporary: u64,
    /// Deleted bytes that are not freed yet.
    pub trash: u64,
}

impl DiskUse {
    /// Free bytes, never below zero; `None`: unlimited.
    pub fn available(&self) -> Option<u64> {
        Some(self.capacity?.saturating_sub(self.used()))
    }

    /// All used bytes.
    pub(super) const fn used(&self) -> u64 {
        self.files.saturating_add(self.temporary).saturating_add(self.trash)
    }
}

/// The kind of an active task.
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
        /// The index's name there.
        index: String,
    },
}

/// A search index, as in `_nouveau_info` and `_search_info`: one copy, or the sum over ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchInfo {
    /// The sequence to which it is built.
    pub update_seq: u64,
    /// Later sequences.
    pub pending: u64,
    /// The number of indexed documents.
    pub docs: u64,
    /// The index's size in bytes.
    pub disk_size: u64,
    /// Whether the index was ever built.
    pub exists: bool,
}

/// One entry of `_active_tasks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The node it runs on.
    pub node: String,
    /// The shard file's name.
    pub shard: String,
    /// The kind of work.
    pub kind: TaskKind,
    /// The number of the process; each pass is another process.
    pub process: u64,
    /// Changes processed in this phase.
    pub changes_done: u64,
    /// Changes that this phase has to process.
    pub total_changes: u64,
    /// When this pass began, since the start of the world.
    pub started: Duration,
    /// When it last reported progress, since the start of the world.
    pub updated: Duration,
}
