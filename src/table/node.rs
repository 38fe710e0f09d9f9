//! The state of each node.

use super::Snapshot;
use crate::datadir::DirectoryVolume;
use couchdb_client::OwnAddress;
use couchdb_names::{Build, Version};
use std::{collections::BTreeSet, sync::Arc};
use wall_clock::Moment;

/// A node's index in the snapshot's list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIx(pub(super) u16);

impl NodeIx {
    /// The pseudo-node of cluster-wide targets.
    pub const CLUSTER: Self = Self(0);

    /// The index as a number.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }

    /// From a number; `None` beyond the maximum.
    pub fn from_usize(at: usize) -> Option<Self> {
        u16::try_from(at).ok().map(Self)
    }
}

impl Snapshot {
    /// The members of the cluster, whether or not this process serves them.
    pub fn members(&self) -> impl Iterator<Item = (NodeIx, &Node)> {
        let nodes = self.nodes().iter().enumerate().skip(1);
        let members = nodes.filter(|(_, node)| node.is_member);
        members.filter_map(|(at, node)| Some((NodeIx::from_usize(at)?, &**node)))
    }

    /// The only node, if the cluster is one node.
    #[must_use]
    pub fn only_node(&self) -> Option<&Node> {
        let mut members = self.members().map(|(_, node)| node);
        let (first, second) = (members.next(), members.next());
        first.filter(|_| second.is_none())
    }

    /// The names of the served nodes that can be sent requests: members that are not known to be
    /// down.
    pub fn reachable_nodes(&self) -> BTreeSet<String> {
        let nodes = self.nodes().iter().skip(1);
        let nodes = nodes.filter(|node| node.is_served && node.is_member && !node.files_only);
        let nodes = nodes.filter(|node| !node.is_down());
        nodes.map(|node| node.name.to_string()).collect()
    }
}

/// One node of the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// CouchDB's name for it, `couchdb@host`.
    pub name: Arc<str>,
    /// Whether it answered its last request; `None` before the first.
    pub is_up: Option<bool>,
    /// When this process first found that it did not answer, if it still does not.
    pub down_since: Option<Moment>,
    /// Whether it is still a member of the cluster.
    pub is_member: bool,
    /// Whether this process serves the node. Nothing, not even zero, is known here about nodes that
    /// other processes serve.
    pub is_served: bool,
    /// Whether only its files are read and no request is sent for it.
    pub files_only: bool,
    /// The CouchDB build that it runs, if its own address is known.
    pub build: Option<Build>,
    /// The address on which it listens itself; requests go there and not through another node.
    pub own_address: OwnAddress,
    /// When a pass over its targets last ended with every target read.
    pub last_success: Option<Moment>,
    /// The time of the oldest fact among its targets, at the end of the last sweep.
    pub oldest_fact: Option<Moment>,
    /// The state of its own smoosh.
    pub smoosh: NodeSmoosh,
    /// Whether the last sweep skipped some of its shards, so that CouchDB may have closed them.
    pub skipped_shards: bool,
    /// The content of its directories, if this process can read them.
    pub disk_usage: Option<DiskUsage>,
    /// Whether a sidecar measures its shard and index files.
    pub has_sidecar: bool,
    /// The largest compaction files on it, of running compactions or left over.
    pub compactions: Vec<CompactionFiles>,
    /// The volumes that hold these directories.
    pub volume_usage: Vec<VolumeUsage>,
    /// Targets for which CouchDB and files' headers disagree, if both were read.
    pub disagreements: Option<u64>,
    /// Why its list of running tasks could not be read although it answers.
    pub unread_tasks: Option<Arc<str>>,
    /// Why the directories that are read for it cannot be its own, in a sentence; their free space is not
    /// its own either.
    pub foreign_directory: Option<Arc<str>>,
}

impl Node {
    /// Whether it is known to answer.
    pub fn answers(&self) -> bool {
        self.is_up == Some(true)
    }

    /// Whether it is known not to answer.
    pub fn is_down(&self) -> bool {
        self.is_up == Some(false)
    }

    /// The version of its CouchDB, if its own address is known.
    pub fn version(&self) -> Option<Version> {
        self.build.as_ref().map(Build::version)
    }
}

/// The content of a node's directories at the last walk. Sizes are in bytes; unknown is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// When a walk last read every directory.
    pub last_success: Option<Moment>,
    /// When the oldest known file data was read.
    pub oldest_fact: Option<Moment>,
    /// Duration of the last walk, in milliseconds.
    pub took_ms: u64,
    /// Number of files found.
    pub files: u64,
    /// View index files that nothing uses, because no design document has their signature or their
    /// shard is gone; as far as this can be determined.
    pub stale_index_bytes: u64,
    /// Number of unused view index files.
    pub stale_index_files: u64,
    /// The part of `stale_index_bytes` that no request to CouchDB removes, because the shard of the
    /// files is gone or CouchDB does not look for indexes in their directory.
    pub ownerless_index_bytes: u64,
    /// Whether design documents were known, so that unused signatures could be determined.
    pub designs_known: bool,
    /// Files left over from compactions.
    pub leftover_bytes: u64,
    /// Number of files left over from compactions.
    pub leftover_files: u64,
    /// Files that CouchDB has deleted but that still exist.
    pub trash_bytes: u64,
    /// The part of `trash_bytes` that is younger than an hour and that CouchDB may be about to
    /// delete.
    pub recent_trash_bytes: u64,
    /// The part of `trash_bytes` that `enable_database_recovery` keeps.
    pub recoverable_bytes: u64,
    /// Nouveau's indexes, if they are inside these directories.
    pub nouveau_bytes: u64,
    /// Clouseau's indexes, if they are inside these directories.
    pub clouseau_bytes: u64,
    /// Any file that does not belong to CouchDB.
    pub other_bytes: u64,
}

/// The files of one shard's compactions, or of its indexes' compactions, still written or left
/// over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionFiles {
    /// The shard, by CouchDB's name.
    pub shard: Arc<str>,
    /// Whether they are files of its indexes.
    pub of_views: bool,
    /// Whether they are left over: no compaction writes to them any more.
    pub is_leftover: bool,
    /// Their number.
    pub files: u64,
    /// Their size.
    pub bytes: u64,
    /// The size of the shard's own file, where it is known.
    pub shard_bytes: Option<u64>,
}

impl DiskUsage {
    /// Bytes of files that nothing uses and that CouchDB is not about to delete.
    pub const fn unused_bytes(&self) -> u64 {
        let trash = self.trash_bytes.saturating_sub(self.recent_trash_bytes);
        self.stale_index_bytes.saturating_add(self.leftover_bytes).saturating_add(trash)
    }
}

/// Unused bytes on one file system, at the last walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeUsage {
    /// The volume.
    pub volume: DirectoryVolume,
    /// View index files that nothing uses.
    pub stale_index_bytes: u64,
    /// Files left over from compactions.
    pub leftover_bytes: u64,
    /// Files that CouchDB has deleted but that still exist.
    pub trash_bytes: u64,
}

/// The state of smoosh on a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum NodeSmoosh {
    /// Not queried yet, or the node did not answer.
    #[default]
    NotRead,
    /// The node has no direct address.
    NoDirectAddress,
    /// The server is older than 3.4 and does not report smoosh over HTTP.
    Unsupported,
    /// It did not answer the query.
    Failed,
    /// Its channels, by name.
    Channels(Vec<SmooshChannel>),
}

/// One smoosh channel on a node.
#[derive(Clone, Debug, PartialEq)]
pub struct SmooshChannel {
    /// Its name.
    pub name: Arc<str>,
    /// Running jobs.
    pub active: u64,
    /// Jobs about to start.
    pub starting: u64,
    /// Queued objects.
    pub waiting: u64,
    /// Smallest and largest priority in its queue, as quantised by smoosh.
    pub priority_range: Option<PriorityRange>,
}

/// Smallest and largest priority in one of smoosh's queues.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PriorityRange {
    /// The smallest.
    pub min: f64,
    /// The largest; infinity for objects that were restored after a restart.
    pub max: f64,
}
