//! Information about a database file, and about a clustered database.

use super::lenient::lenient;

lenient! {
    /// Sizes in bytes.
    #[derive(Copy)]
    pub struct Sizes {
        /// The file, without the new file of a running compaction.
        pub file: Option<u64>,
        /// What a compaction would keep, as CouchDB computes it.
        pub active: Option<u64>,
        /// The uncompressed documents.
        pub external: Option<u64>,
    }

    /// The facts of one shard copy (`couch_db:get_db_info/1`), or the sums of a clustered database
    /// (`fabric_db_info`), which have no `compacted_seq`, `engine` and `uuid`.
    pub struct ShardInfo {
        /// The name, as requested.
        pub db_name: Option<String>,
        /// Sizes in bytes.
        pub sizes: Sizes,
        /// The number of documents.
        pub doc_count: Option<u64>,
        /// Deleted documents that remain as tombstones.
        pub doc_del_count: Option<u64>,
        /// The sequence of the last change; for the cluster, the number before the `-`.
        pub update_seq: Option<u64>,
        /// The sequence at the last compaction; 0 if there was none.
        pub compacted_seq: Option<u64>,
        /// The number of the last purge; for the cluster, the number before the `-`.
        pub purge_seq: Option<u64>,
        /// Whether a compaction runs.
        pub compact_running: Option<bool>,
        /// The version of the file format; 8 since 3.0.
        pub disk_format_version: Option<u64>,
        /// The file's own UUID. Each copy of a shard has a different one, and compactions keep it.
        pub uuid: Option<String>,
        /// The storage engine, `couch_bt_engine`.
        pub engine: Option<String>,
        /// For one node, the time in microseconds when the file was opened; for the cluster, the
        /// database's suffix.
        pub instance_start_time: Option<String>,
    }
}

impl ShardInfo {
    /// Whether the response has any facts of a database. If not, it must not overwrite older
    /// facts.
    pub(crate) const fn has_data(&self) -> bool {
        self.sizes.file.is_some() || self.sizes.active.is_some() || self.update_seq.is_some()
    }
}
