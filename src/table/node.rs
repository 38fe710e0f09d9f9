//! Nodes, as far as they were seen.

use crate::datadir::Volume;
use couchdb_client::OwnAddress;
use couchdb_names::Version;
use std::sync::Arc;
use wall_clock::Moment;

/// A node's place in the snapshot's list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIx(pub(super) u16);

impl NodeIx {
    /// The pseudo node of what belongs to the whole cluster.
    pub const CLUSTER: Self = Self(0);

    /// As an index.
    #[must_use]
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }

    /// From an index; `None` beyond what a cluster can have.
    #[must_use]
    pub fn from_usize(at: usize) -> Option<Self> {
        u16::try_from(at).ok().map(Self)
    }
}

/// One node of the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// CouchDB's name for it, `couchdb@host`.
    pub name: Arc<str>,
    /// Whether it answered when last asked; absent before.
    pub up: Option<bool>,
    /// Whether the cluster still counts it among its nodes.
    pub member: bool,
    /// Whether its targets belong to this process's share: of what other processes serve,
    /// nothing is known here, not even zero.
    pub served: bool,
    /// Whether nothing is asked about it but its files.
    pub files_alone: bool,
    /// Its CouchDB version, where its own address is known.
    pub version: Option<Version>,
    /// Where it listens itself; it is asked there rather than through another node.
    pub own_address: OwnAddress,
    /// When a pass over its targets last ended with none of them unread.
    pub last_success: Option<Moment>,
    /// When the oldest of its targets' facts was measured, as of the last sweep's end.
    pub oldest_fact: Option<Moment>,
    /// What its own daemon says.
    pub smoosh: SmooshSeen,
    /// Whether the last sweep did not ask for all of its shards, so that CouchDB may have
    /// closed them.
    pub spared: bool,
    /// What was read of its directories, where this process can.
    pub disk: Option<OnDisk>,
    /// What those directories lie on.
    pub volumes: Vec<OnVolume>,
    /// Targets of which CouchDB and files' headers say different things, where both were read.
    pub disagreements: Option<u64>,
}

/// What lies in a node's directories, as of the last walk. Bytes; unknown is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnDisk {
    /// When a walk last read every directory.
    pub last_success: Option<Moment>,
    /// When what is known longest of its targets' files was read.
    pub oldest_fact: Option<Moment>,
    /// How long the last walk took, in milliseconds.
    pub took_ms: u64,
    /// Files it met.
    pub files: u64,
    /// View index files that nothing uses: of a signature that no design document has, or of a
    /// shard that is gone; of those that can be judged.
    pub stale_index: u64,
    /// Such files.
    pub stale_index_files: u64,
    /// Whether design documents were known, so that signatures could be judged.
    pub designs_known: bool,
    /// What compactions left behind.
    pub leftover: u64,
    /// Such files.
    pub leftover_files: u64,
    /// Deleted by CouchDB and still there.
    pub trash: u64,
    /// Nouveau's indexes, where they lie inside.
    pub nouveau: u64,
    /// Clouseau's indexes, where they lie inside.
    pub clouseau: u64,
    /// Whatever is no file of CouchDB's.
    pub other: u64,
}

/// What of one file system's bytes nothing uses, as of the last walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnVolume {
    /// What it is.
    pub volume: Volume,
    /// View index files that nothing uses.
    pub stale_index: u64,
    /// What compactions left behind.
    pub leftover: u64,
    /// Deleted by CouchDB and still there.
    pub trash: u64,
}

/// What is known of smoosh on a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SmooshSeen {
    /// Not asked yet, or the node has no address of its own to ask at.
    #[default]
    Unasked,
    /// The server is older than 3.4 and shows nothing over HTTP.
    NotOffered,
    /// It was asked and did not answer.
    Failed,
    /// It answered: channels by name.
    Channels(Vec<SmooshChannel>),
}

/// One of smoosh's own channels on a node.
#[derive(Clone, Debug, PartialEq)]
pub struct SmooshChannel {
    /// Its name.
    pub name: Arc<str>,
    /// Jobs it runs.
    pub active: u64,
    /// Jobs it is about to run.
    pub starting: u64,
    /// Objects that wait.
    pub waiting: u64,
    /// Smallest and largest priority of what waits, as smoosh quantises it.
    pub priority: Option<WaitingPriority>,
}

/// Smallest and largest priority in one of smoosh's queues.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaitingPriority {
    /// The smallest.
    pub min: f64,
    /// The largest; infinity for what was saved over a restart.
    pub max: f64,
}
