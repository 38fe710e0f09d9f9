//! The pure state machine of a simulated cluster.

use super::{Config, ConfigError, Database};
use crate::target::{Range, Signature};
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
}

impl DiskUse {
    /// What is free, never below zero; `None` on a disk without limit.
    #[must_use]
    pub fn available(&self) -> Option<u64> {
        Some(self.capacity?.saturating_sub(self.files).saturating_sub(self.temporary))
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
    /// When it last told of progress, since the world's start.
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

/// A simulated cluster at one moment.
#[derive(Debug)]
pub struct World {
    config: Config,
    now: Duration,
}

#[expect(unused_variables, clippy::unused_self, reason = "the outline comes first")]
impl World {
    /// A world at its start.
    ///
    /// # Errors
    /// What [`Config::check`] finds.
    pub fn new(config: Config, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self { config, now: Duration::ZERO })
    }
    /// Moves the world to `now`, the time since its start; never back.
    pub fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
    }
    /// The time since the start.
    #[must_use]
    pub const fn now(&self) -> Duration {
        self.now
    }
    /// The nodes' names.
    #[must_use]
    pub fn nodes(&self) -> Vec<String> {
        self.config.nodes.iter().map(|node| node.name.clone()).collect()
    }
    /// A node's files, as its `_all_dbs` lists them; `None`: no such node.
    #[must_use]
    pub fn files(&self, node: &str) -> Option<Vec<String>> {
        None
    }
    /// The truth of one shard copy; `None`: no such file there.
    #[must_use]
    pub fn shard(&self, node: &str, file: &str) -> Option<ShardInfo> {
        None
    }
    /// The truth of one copy of a view index, on whatever range it lies.
    #[must_use]
    pub fn view(&self, node: &str, file: &str, ddoc: &str) -> Option<ViewInfo> {
        None
    }
    /// The range that holds this document of a database.
    #[must_use]
    pub fn range_of(&self, db: &str, doc: &str) -> Option<Range> {
        None
    }
    /// What runs now, on every node that is up.
    #[must_use]
    pub fn tasks(&self) -> Vec<Task> {
        Vec::new()
    }
    /// What a node's disk holds; `None`: no such node.
    #[must_use]
    pub fn disk(&self, node: &str) -> Option<DiskUse> {
        None
    }
    /// Starts to compact one shard copy; false: a compaction runs already.
    ///
    /// # Errors
    /// When there is no such copy, or its node is down.
    pub fn compact(&mut self, node: &str, file: &str) -> Result<bool, StartError> {
        Err(StartError::NoNode)
    }
    /// Starts to compact one copy of a view index; false: a compaction runs already.
    ///
    /// # Errors
    /// When there is no such copy or design document, or the node is down.
    pub fn compact_view(&mut self, node: &str, file: &str, ddoc: &str) -> Result<bool, StartError> {
        Err(StartError::NoNode)
    }
    /// Deletes the stale index files of a database, on every node that is up.
    pub fn clean_up(&mut self, db: &str) {}
    /// Starts to build every copy of a design document's index that is behind.
    pub fn build(&mut self, db: &str, ddoc: &str) {}
    /// Writes documents to a database now.
    pub fn write(&mut self, db: &str, documents: u64) {}
    /// Creates a database.
    ///
    /// # Errors
    /// What [`Config::check`] would find.
    pub fn create(&mut self, database: Database) -> Result<(), ConfigError> {
        Ok(())
    }
    /// Deletes a database; with `leave_files` its shard files stay behind as orphans.
    pub fn delete(&mut self, db: &str, leave_files: bool) {}
    /// Takes a node down.
    pub fn stop_node(&mut self, node: &str) {}
    /// Brings a node back.
    pub fn start_node(&mut self, node: &str) {}
    /// Turns maintenance mode on or off.
    pub fn set_maintenance(&mut self, node: &str, on: bool) {}
    /// Takes the last free byte of a node's disk, or gives them back.
    pub fn set_disk_full(&mut self, node: &str, on: bool) {}
}
