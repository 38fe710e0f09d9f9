//! What CouchDB says of a database file, and of a clustered database.

use super::loose;
use serde::Deserialize;

/// Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Sizes {
    /// The file, without a compaction's new file.
    #[serde(deserialize_with = "loose::loose")]
    pub file: Option<u64>,
    /// What a compaction would keep, by CouchDB's count.
    #[serde(deserialize_with = "loose::loose")]
    pub active: Option<u64>,
    /// The documents uncompressed.
    #[serde(deserialize_with = "loose::loose")]
    pub external: Option<u64>,
}

/// A shard copy's own facts (`couch_db:get_db_info/1`), or a clustered database's sums
/// (`fabric_db_info`), which lack `compacted_seq`, `engine` and `uuid`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ShardInfo {
    /// The name, as asked.
    #[serde(deserialize_with = "loose::loose")]
    pub db_name: Option<String>,
    /// Sizes in bytes.
    #[serde(deserialize_with = "loose::loose")]
    pub sizes: Sizes,
    /// Documents.
    #[serde(deserialize_with = "loose::loose")]
    pub doc_count: Option<u64>,
    /// Deleted documents that remain as tombstones.
    #[serde(deserialize_with = "loose::loose")]
    pub doc_del_count: Option<u64>,
    /// The last change's sequence; for the cluster the number in front of the `-`.
    #[serde(deserialize_with = "loose::seq")]
    pub update_seq: Option<u64>,
    /// The sequence at the last compaction; 0 when there was none.
    #[serde(deserialize_with = "loose::seq")]
    pub compacted_seq: Option<u64>,
    /// Whether a compaction runs.
    #[serde(deserialize_with = "loose::loose")]
    pub compact_running: Option<bool>,
    /// The version of the file's format; 8 since 3.0.
    #[serde(deserialize_with = "loose::loose")]
    pub disk_format_version: Option<u64>,
    /// The storage engine, `couch_bt_engine`.
    #[serde(deserialize_with = "loose::loose")]
    pub engine: Option<String>,
    /// On one node microseconds at which the file was opened, for the cluster the
    /// database's suffix.
    #[serde(deserialize_with = "loose::loose")]
    pub instance_start_time: Option<String>,
}

impl ShardInfo {
    /// Whether the answer tells anything of a database: one that does not must not
    /// overwrite older facts.
    pub(crate) const fn tells_something(&self) -> bool {
        self.sizes.file.is_some() || self.sizes.active.is_some() || self.update_seq.is_some()
    }
}

impl loose::Object for Sizes {}
