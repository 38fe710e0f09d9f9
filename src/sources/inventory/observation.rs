//! The results of a read of the cluster.

use super::{MapEntry, Reshard};
use crate::{
    datadir::{DirectoryVolume, OtherFileSums, ReadProblem},
    model::facts::Facts,
    table::{IndexQuery, NodeSmoosh, TargetIx},
};
use couchdb_client::OwnAddress;
use couchdb_files::ReportMatch;
use couchdb_names::{Build, Engine, NameList, Signature};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use wall_clock::Moment;

/// Why something could not be read: a label for metrics, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// The label, one of a closed set.
    pub reason: &'static str,
    /// What was tried, what happened, what to do next.
    pub message: String,
    /// The missing right, if any, in a sentence that is the same for everything it affects.
    pub right: Option<&'static str>,
}

impl ReadError {
    /// Whether the node is down, or nothing answered for it. Other errors may have other causes.
    pub fn is_silence(&self) -> bool {
        matches!(self.reason, "node_down" | "connect" | "timeout")
    }

    /// Whether a request was sent, or would have been if anything had answered before: it was neither
    /// forbidden nor held back because of the login.
    pub fn was_asked(&self) -> bool {
        self.right.is_none() && !["login", "stopped"].contains(&self.reason)
    }
}

impl Observation {
    /// Whether it contains many databases or files.
    pub const fn is_large(&self) -> bool {
        matches!(
            self,
            Self::MapPage(_) | Self::Files { .. } | Self::Disk { .. } | Self::PeerFiles { .. }
        )
    }
}

/// How much of the shard map was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapRead {
    /// All of it.
    Whole,
    /// The databases that the login may read, each requested by itself.
    Readable,
    /// Nothing: there is no CouchDB to ask. Every file on a disk counts as in its place.
    None,
}

/// One result of a read, or an error.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// The cluster's nodes: the expected ones, and the connected ones.
    Members(Result<Members, ReadError>),
    /// The answer of one node.
    Node(NodeAnswer),
    /// A silent node answers again.
    Back {
        /// The node.
        node: String,
    },
    /// The jobs that split shards.
    Reshard(Result<Reshard, ReadError>),
    /// A page of the shard map.
    MapPage(Vec<MapEntry>),
    /// The map ended: complete, or broken off.
    MapEnd(Result<MapRead, ReadError>),
    /// A part of the cluster, such as one database, could not be read.
    Unread(ReadError),
    /// The files on one node's disk, by CouchDB's names.
    Files {
        /// The node.
        node: String,
        /// Their names.
        names: Result<NameList, ReadError>,
    },
    /// The map's entry for one database, requested after the files were read.
    Stray {
        /// The database.
        db: String,
        /// The map's entry, if it has one now.
        entry: Result<Option<MapEntry>, ReadError>,
        /// Whether the other nodes' maps agree, if this one has no entry.
        is_agreed: bool,
    },
    /// The facts of one shard copy.
    Shard {
        /// The target of the copy.
        ix: TargetIx,
        /// Its facts; `None` if the file no longer exists.
        facts: Result<Option<Facts>, ReadError>,
        /// Number of design documents in it; `None` if they were not counted.
        designs: Option<u64>,
    },
    /// The shard map lists this shard copy, but its node has no file for it.
    Absent {
        /// The target of the copy.
        ix: TargetIx,
    },
    /// CouchDB does not open this shard copy until a split has ended.
    Splitting {
        /// The target of the copy.
        ix: TargetIx,
    },
    /// The view indexes of one database.
    Views {
        /// The name of the database.
        db: String,
        /// Its instance suffix.
        suffix: String,
        /// The indexes, each with its read error, if any.
        views: Result<Vec<ViewAnswer>, ReadError>,
        /// The search indexes of the same design documents.
        searches: Vec<SearchAnswer>,
        /// The possible signatures of index files of all its design documents, in any language; `None` if
        /// one of them could not be read.
        signatures: Option<Vec<Signature>>,
    },
    /// The running compactions and index builds of a node.
    Tasks {
        /// The node.
        node: String,
        /// The tasks.
        tasks: Result<Vec<ActiveTask>, ReadError>,
        /// How often the node flushed a file to disk since it started.
        flushes: Option<u64>,
        /// Whether the node answered neither this nor a smaller request.
        is_silent: bool,
    },
    /// Some of the files in a node's directories.
    Disk {
        /// The node.
        node: Arc<str>,
        /// The files.
        files: Vec<FoundFile>,
    },
    /// The walk of a node's directories has ended or failed.
    DiskEnd {
        /// The node.
        node: Arc<str>,
        /// The result of the walk.
        disk: Result<DiskWalk, ReadError>,
    },
    /// The directories that are read for a node are another node's; nothing of them is reported.
    ForeignDirectory {
        /// The node.
        node: Arc<str>,
        /// How this was detected and what to do, in a sentence.
        problem: String,
    },
    /// Files of a node that another process reads.
    PeerFiles {
        /// The node.
        node: Arc<str>,
        /// All of its databases.
        dbs: Vec<DbFile>,
        /// All parts of views there.
        parts: Vec<PartFile>,
    },
    /// Another process sent all its facts, or could not be asked.
    PeerEnd {
        /// Its address.
        peer: Arc<str>,
        /// The nodes whose files that process reads.
        nodes: Result<BTreeSet<Arc<str>>, ReadError>,
    },
    /// The stage was read completely.
    StageEnded,
}

/// One file in a node's directories.
#[derive(Clone, Debug, PartialEq)]
pub enum FoundFile {
    /// A database file.
    Db(DbFile),
    /// The view index of one shard.
    View(PartFile),
    /// A file of a compaction, running or left behind.
    Compaction(CompactionFile),
    /// A file that could not be read.
    Unread(ReadError),
}

/// A database file.
#[derive(Clone, Debug, PartialEq)]
pub struct DbFile {
    /// CouchDB's name for it.
    pub shard: Box<str>,
    /// The facts in its header.
    pub facts: Facts,
    /// Whether CouchDB would report the same values.
    pub reported: ReportMatch,
    /// Whether it is the same file as before, even if it grew.
    pub same: bool,
    /// Why its header could not be read, if it could not.
    pub problem: Option<ReadProblem>,
}

/// The index of a view for one shard.
#[derive(Clone, Debug, PartialEq)]
pub struct PartFile {
    /// The shard.
    pub shard: Box<str>,
    /// The signature of the index.
    pub signature: Signature,
    /// The facts in its header.
    pub facts: Facts,
    /// Its collator versions.
    pub collators: Arc<[Arc<str>]>,
    /// Why its header could not be read, if it could not.
    pub problem: Option<ReadProblem>,
}

/// A file that belongs to a compaction, running or left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionFile {
    /// The shard that is compacted, or whose index is.
    pub shard: Box<str>,
    /// Whether it is a file of an index.
    pub of_view: bool,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it last changed.
    pub changed: Moment,
}

/// The result of a walk: sums of the other files in a node's directories, and their file systems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskWalk {
    /// Their sizes in bytes.
    pub sums: OtherFileSums,
    /// Whether every directory was read, so that files that were not found no longer exist.
    pub whole: bool,
    /// The duration of the walk.
    pub took: Duration,
    /// The file systems of the directories.
    pub volumes: Vec<DirectoryVolume>,
}

/// The cluster's nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The expected nodes.
    pub expected: Vec<String>,
    /// The connected nodes.
    pub connected: Vec<String>,
}

/// One node, as far as it answered.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeAnswer {
    /// The name.
    pub node: String,
    /// Whether it answered, and if not, why.
    pub up: Result<(), ReadError>,
    /// The build that the node reports, if any.
    pub build: Option<Build>,
    /// Its own address.
    pub own_address: OwnAddress,
    /// The state of its built-in compactor.
    pub smoosh: NodeSmoosh,
}

/// One view index of a database.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewAnswer {
    /// The design documents that share it, by id, sorted.
    pub designs: Vec<String>,
    /// Their language.
    pub language: String,
    /// The query that makes CouchDB build it, if its documents allow that.
    pub built_by: Option<IndexQuery>,
    /// A hash of each view's functions and options, sorted.
    pub functions: Vec<u64>,
    /// The result of reading it.
    pub index: Result<IndexAnswer, ReadError>,
    /// Whether no request can carry the documents' names.
    pub unaddressable: bool,
}

/// One search index of a database.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchAnswer {
    /// The engine.
    pub engine: Engine,
    /// Its design document, by id.
    pub design: String,
    /// Its name in the design document.
    pub index: String,
    /// The language of its function.
    pub language: String,
    /// Whether its document allows automatic builds.
    pub autoupdate: bool,
    /// Whether the cluster has the engine; `None` if no node answered.
    pub offered: Option<bool>,
    /// The facts that were read; `None` without the engine.
    pub facts: Result<Option<Facts>, ReadError>,
    /// Whether no request can carry its names.
    pub unaddressable: bool,
}

/// The facts of one view index.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexAnswer {
    /// Its signature.
    pub signature: Signature,
    /// Its facts, per file.
    pub facts: Facts,
    /// The collator versions of one copy.
    pub collators: Vec<String>,
    /// The shard of the copy that was read; `None` for the cluster's sum.
    pub copy: Option<TargetIx>,
    /// The facts of each copy that was read by itself, with its shard; empty if the index has several ranges.
    pub copies: Vec<(TargetIx, Facts)>,
}

/// One running task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ActiveTask {
    /// The kind of the task.
    pub doing: TaskKind,
    /// The shard file's name.
    pub shard: String,
    /// The phase of a compaction; each has its own progress.
    pub phase: Option<String>,
    /// Percent of the phase that is done, from CouchDB; above 100 if there was more to do than expected.
    pub progress: Option<f64>,
    /// Changes processed in this phase.
    pub changes_done: Option<u64>,
    /// Total changes of this phase.
    pub total_changes: Option<u64>,
    /// When this process of the task began, in seconds since 1970 by the node's clock.
    pub started_on: Option<u64>,
    /// When it last reported progress, in seconds since 1970 by the node's clock.
    pub updated_on: Option<u64>,
    /// The Erlang process; each pass of a compaction has another one.
    pub pid: Option<String>,
    /// For an indexer, the process that it works for: a compaction that rebuilds the index.
    pub indexer_pid: Option<String>,
    /// `running`, `waiting`, `suspended`, … (3.2+).
    pub process_status: Option<String>,
}

impl ActiveTask {
    /// A task about which only the kind is known.
    pub fn bare(doing: TaskKind, shard: String) -> Self {
        Self { doing, shard, ..Self::default() }
    }
}

/// The kind of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TaskKind {
    /// Compacts the shard.
    #[default]
    Compacts,
    /// Compacts the index of this design document.
    CompactsView(String),
    /// Builds the index of this design document.
    Builds(String),
    /// Builds a search index.
    BuildsSearch {
        /// Its design document.
        design: String,
        /// Its name in the design document.
        index: String,
    },
}
