//! The types of CouchDB's responses.
//!
//! Owns parsing only. Every field may be missing, null or of an unexpected type; then it is
//! unknown (`None`), never zero. Unknown fields are ignored. A response that is not JSON, or not
//! an object where one is expected, is an error of the request.

mod cluster;
mod design;
mod documents;
mod feed;
mod lenient;
mod map;
mod search;
mod shard;
mod tasks;

pub use cluster::{
    Counter, DbShards, ErrorBody, LocalName, Membership, Session, System, Up, UserContext, Vendor,
    Welcome,
};
pub use design::{
    Autoupdate, DesignDoc, DesignOptions, UpdatesPending, ViewIndex, ViewInfo, Views,
};
pub(crate) use design::{DesignRow, DesignRows};
pub use documents::{
    Attachment, AutoPurge, ChangesLeft, Checkpoint, History, InternalSession, Leaf, LocalDocs,
    LocalRow, Replication, Replications, ReplicatorSession, Revisions, ShardChange, ShardChanges,
    ShardDoc, SourceSeq, TimeBin, TimeSeq,
};
pub(crate) use documents::{DocRows, LeafRow};
pub(crate) use feed::UpdatesEnd;
pub use feed::{Change as DbChange, GLOBAL_CHANGES, MapChange, MapChanges, UpdateLine};
pub(crate) use lenient::{List, read};
pub use map::{ChangelogEntry, DbsDoc};
pub(crate) use map::{MapRow, MapRows};
pub use search::{SearchIndex, SearchInfo};
pub use shard::{ShardInfo, Sizes};
pub use tasks::{
    ActiveTask, ReshardJob, ReshardJobs, ReshardStateInfo, SmooshChannel, SmooshStatus,
    SmooshWaiting,
};

use std::collections::BTreeMap;

/// One section of a node's configuration: key to value.
pub type ConfigSection = BTreeMap<String, String>;

/// A node's whole configuration: section to its keys.
pub type Config = BTreeMap<String, ConfigSection>;

#[cfg(test)]
mod tests;
