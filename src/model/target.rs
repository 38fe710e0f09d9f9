//! Targets that can be compacted, and their names.
//!
//! Owns the target vocabulary of the whole program: kinds, states, shard ranges and the text form
//! of an identity (`db:<node>/<shard name>`). Never holds a measurement.

mod id;
mod selector;

pub use id::{TargetId, database_of, file_name};
pub use selector::TargetSelector;

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// The pseudo-node of cluster-wide targets: views and cleanups over HTTP.
pub const CLUSTER_NODE: &str = "_cluster";

/// A node's name without `couchdb@`, CouchDB's default; other names stay whole. It does not depend on
/// the other nodes' names, so a node has the same short name everywhere, and no two nodes share one.
pub fn short_node(name: &str) -> &str {
    name.strip_prefix("couchdb@").unwrap_or(name)
}

/// The kind of a target.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetKind {
    /// One copy of a database shard, on one node; also node-local databases such as `_dbs`.
    Db,
    /// A view index, known by its database (with instance suffix) and signature.
    View,
    /// The stale index files of one database.
    Cleanup,
    /// A search index, known by its database, engine, design document and name. It has no
    /// compaction: Lucene merges its files by itself.
    Search,
}

impl TargetKind {
    /// The kinds that have a compaction, and therefore channels.
    pub const WITH_COMPACTION: [Self; 3] = [Self::Db, Self::View, Self::Cleanup];
}

/// The relation between a target and the shard map.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetState {
    /// In the shard map and on disk.
    #[default]
    Ok,
    /// On disk, but no database of the shard map owns it.
    Orphan,
    /// In the shard map, but not on its node's disk.
    Missing,
    /// Being split or moved, according to `_reshard` and the map's changelog.
    Resharding,
    /// It has a name that no request can carry safely, such as `_design/..`.
    Unaddressable,
    /// Undecidable: the map places it on a node that is not a member of the cluster, or the data
    /// that would show whether its file is still needed could not be read.
    Unknown,
}
