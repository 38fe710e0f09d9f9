//! What a read of the cluster yields.

use super::{MapEntry, Reshard};
use crate::{
    datadir::{DirectoryVolume, OtherFileSums, ReadProblem},
    model::facts::Facts,
    table::{IndexQuery, NodeSmoosh, TargetIx},
};
use couchdb_client::OwnAddress;
use couchdb_files::ReportMatch;
use couchdb_names::{Engine, NameList, Signature, Version};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use wall_clock::Moment;

/// Why something could not be read: a label for metrics, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// The label, one of a closed set.
    pub reason: &'static str,
    /// What was tried, what came, what to do next.
    pub message: String,
    /// Where a right is missing: which, in a sentence that is the same for all that it
    /// hides.
    pub right: Option<&'static str>,
}

impl ReadError {
    /// Whether a question went out, or would have where somebody had answered before: it was
    /// neither forbidden nor held back because of the login.
    #[must_use]
    pub fn was_asked(&self) -> bool {
        self.right.is_none() && !["login", "stopped"].contains(&self.reason)
    }
}

impl Observation {
    /// Whether it holds many databases or files.
    #[must_use]
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
    /// The databases that the login may read, each asked by itself.
    Readable,
    /// None: there is no CouchDB to ask. A file on a disk is where it should be.
    None,
}

/// One thing that was seen, or could not be.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// The cluster's nodes: those it expects, and which of them are connected.
    Members(Result<Members, ReadError>),
    /// One node.
    Node(NodeAnswer),
    /// A node that did not answer does so again.
    Back {
        /// The node.
        node: String,
    },
    /// What is being split.
    Reshard(Result<Reshard, ReadError>),
    /// A page of the shard map.
    MapPage(Vec<MapEntry>),
    /// The map ended: whole, or broken off.
    MapEnd(Result<MapRead, ReadError>),
    /// Something of the cluster, such as one database, that could not be read.
    Unread(ReadError),
    /// The files on one node's disk, by the names CouchDB gives them.
    Files {
        /// The node.
        node: String,
        /// Their names.
        names: Result<NameList, ReadError>,
    },
    /// A database that a stray file names, asked for by itself, after the files were read.
    Stray {
        /// The database.
        db: String,
        /// The map's entry, if it has one by now.
        entry: Result<Option<MapEntry>, ReadError>,
    },
    /// The facts of one shard copy.
    Shard {
        /// Which.
        ix: TargetIx,
        /// Its facts; `None` when the file is gone.
        facts: Result<Option<Facts>, ReadError>,
    },
    /// The view indexes of one database.
    Views {
        /// The database, by the place of its map entry's targets.
        db: String,
        /// Its instance suffix.
        suffix: String,
        /// The indexes that were read, each with what could not be.
        views: Result<Vec<ViewAnswer>, ReadError>,
        /// The search indexes of the same design documents.
        searches: Vec<SearchAnswer>,
        /// What may name an index file of any of its design documents, in whatever language;
        /// `None` where one of them could not be read.
        signatures: Option<Vec<Signature>>,
    },
    /// The compactions and index builds a node runs.
    Tasks {
        /// The node.
        node: String,
        /// What runs.
        tasks: Result<Vec<ActiveTask>, ReadError>,
    },
    /// Some of the files in a node's directories.
    Disk {
        /// The node.
        node: Arc<str>,
        /// The files.
        files: Vec<FoundFile>,
    },
    /// All of a node's directories were walked, or they could not be.
    DiskEnd {
        /// The node.
        node: Arc<str>,
        /// The files there beside targets.
        disk: Result<DiskWalk, ReadError>,
    },
    /// The files of a node that another process reads.
    PeerFiles {
        /// The node.
        node: Arc<str>,
        /// All of its databases.
        dbs: Vec<DbFile>,
        /// All of the parts of views there.
        parts: Vec<PartFile>,
    },
    /// Such a process sent all that it knows, or could not be asked.
    PeerEnd {
        /// Where it is asked.
        peer: Arc<str>,
        /// The nodes whose files it reads.
        nodes: Result<BTreeSet<Arc<str>>, ReadError>,
    },
    /// Everything of this stage was read.
    StageEnded,
}

/// One file in a node's directories.
#[derive(Clone, Debug, PartialEq)]
pub enum FoundFile {
    /// A database file.
    Db(DbFile),
    /// The view index of one shard.
    View(PartFile),
    /// What a compaction writes, or left behind.
    Compaction(CompactionFile),
    /// Something that could not be read.
    Unread(ReadError),
}

/// A database file.
#[derive(Clone, Debug, PartialEq)]
pub struct DbFile {
    /// CouchDB's name for it.
    pub shard: Box<str>,
    /// What its header says.
    pub facts: Facts,
    /// Whether CouchDB says the same.
    pub reported: ReportMatch,
    /// Whether it is the file that was there when it was last seen, however it grew.
    pub same: bool,
    /// Why its header says nothing, where it does not.
    pub problem: Option<ReadProblem>,
}

/// The part of a view that is the index of one shard.
#[derive(Clone, Debug, PartialEq)]
pub struct PartFile {
    /// The shard.
    pub shard: Box<str>,
    /// What names the index.
    pub signature: Signature,
    /// What its header says.
    pub facts: Facts,
    /// The collator versions it names.
    pub collators: Arc<[Arc<str>]>,
    /// Why its header says nothing, where it does not.
    pub problem: Option<ReadProblem>,
}

/// What a compaction writes, or left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionFile {
    /// The shard that is compacted, or whose index is.
    pub shard: Box<str>,
    /// Whether it is an index's.
    pub of_view: bool,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it last changed.
    pub changed: Moment,
}

/// The files in a node's directories beside targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskWalk {
    /// In bytes.
    pub sums: OtherFileSums,
    /// Whether every directory was read, so that what was not met is gone.
    pub whole: bool,
    /// How long it took.
    pub took: Duration,
    /// The file systems of the directories.
    pub volumes: Vec<DirectoryVolume>,
}

/// The cluster's nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The nodes it expects.
    pub expected: Vec<String>,
    /// The nodes that are connected.
    pub connected: Vec<String>,
}

/// One node, as far as it answered.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeAnswer {
    /// Its name.
    pub node: String,
    /// Whether it answered, and if not, why.
    pub up: Result<(), ReadError>,
    /// Its version, where its own address is known.
    pub version: Option<Version>,
    /// Where it listens itself.
    pub own_address: OwnAddress,
    /// What its own daemon says.
    pub smoosh: NodeSmoosh,
}

/// One view index of a database.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewAnswer {
    /// The design documents that share it, by id, sorted.
    pub designs: Vec<String>,
    /// Their language.
    pub language: String,
    /// What to query so that CouchDB builds it, where its documents allow that.
    pub built_by: Option<IndexQuery>,
    /// What was read of it.
    pub index: Result<IndexAnswer, ReadError>,
    /// Whether no request can carry the documents' names.
    pub unaddressable: bool,
}

/// One search index of a database.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchAnswer {
    /// What builds it.
    pub engine: Engine,
    /// Its design document, by id.
    pub design: String,
    /// Its name there.
    pub index: String,
    /// The language of its function.
    pub language: String,
    /// Whether its document lets it be built without being asked for.
    pub autoupdate: bool,
    /// Whether the cluster has the engine; none where no node could say.
    pub offered: Option<bool>,
    /// What was read of it: nothing where the engine is not there to ask.
    pub facts: Result<Option<Facts>, ReadError>,
    /// Whether no request can carry its names.
    pub unaddressable: bool,
}

/// What was read of one view index.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexAnswer {
    /// Its signature.
    pub signature: Signature,
    /// Its facts, per file.
    pub facts: Facts,
    /// The collator versions one copy names.
    pub collators: Vec<String>,
    /// The shard whose index this is, where one copy was read; else it is the cluster's sum.
    pub copy: Option<TargetIx>,
}

/// One running task.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveTask {
    /// What it does.
    pub doing: TaskKind,
    /// The shard file's name.
    pub shard: String,
    /// The phase of a compaction; what is done is counted from zero in each.
    pub phase: Option<String>,
    /// Percent of the phase, by CouchDB; above 100 where more came than it expected.
    pub progress: Option<f64>,
    /// What is done of the phase.
    pub changes_done: Option<u64>,
    /// What there is to do in the phase.
    pub total_changes: Option<u64>,
    /// When this process of it began, in seconds since 1970 by the node's clock.
    pub started_on: Option<u64>,
    /// When it last reported its progress, in seconds since 1970 by the node's clock.
    pub updated_on: Option<u64>,
    /// The Erlang process; each pass of a compaction has another.
    pub pid: Option<String>,
    /// Of an indexer, the process it works for: a compaction's, where that one rebuilds.
    pub indexer_pid: Option<String>,
    /// `running`, `waiting`, `suspended`, … (3.2+).
    pub process_status: Option<String>,
}

impl ActiveTask {
    /// A task of which nothing is known but what it does.
    #[must_use]
    pub const fn bare(doing: TaskKind, shard: String) -> Self {
        Self {
            doing,
            shard,
            phase: None,
            progress: None,
            changes_done: None,
            total_changes: None,
            started_on: None,
            updated_on: None,
            pid: None,
            indexer_pid: None,
            process_status: None,
        }
    }
}

/// What a task does with its shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// Compacts the shard.
    Compacts,
    /// Compacts the index of this design document.
    CompactsView(String),
    /// Builds the index of this design document.
    Builds(String),
    /// Builds a search index.
    BuildsSearch {
        /// Its design document.
        design: String,
        /// Its name there.
        index: String,
    },
}
