//! Search indexes: their names in design documents, and the cluster's information about one.

use super::lenient::lenient;
use serde::{Deserialize, Deserializer};

/// The names of the indexes in `nouveau` or `indexes`. An entry without `index` defines none
/// (`nouveau_util:design_doc_to_index/3`, `dreyfus_index:design_doc_to_index/2`).
pub(super) fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let value = serde_json::Value::deserialize(from)?;
    let defined = value.as_object().into_iter().flatten();
    let defined = defined.filter(|(_, entry)| entry.get("index").is_some());
    Ok(defined.map(|(name, _)| name.clone()).collect())
}

lenient! {
    /// `_nouveau_info` or `_search_info` of a search index of the cluster.
    pub struct SearchInfo {
        /// The design document's id and the index's name, separated by a slash.
        pub name: Option<String>,
        /// The index.
        pub search_index: SearchIndex,
    }

    /// A search index: sums over one copy of each range, the first that responded.
    pub struct SearchIndex {
        /// Indexed documents; nouveau only.
        pub num_docs: Option<u64>,
        /// Indexed documents; clouseau only.
        pub doc_count: Option<u64>,
        /// Bytes on disk.
        pub disk_size: Option<u64>,
        /// The sum of the shards' sequences up to which it is built; nouveau only.
        pub update_seq: Option<u64>,
        /// The sum of the shards' sequences that searches see; clouseau only.
        pub pending_seq: Option<u64>,
        /// The sum of the shards' sequences that are synced to disk; clouseau only.
        pub committed_seq: Option<u64>,
    }
}

impl SearchIndex {
    /// The sum of the shards' sequences up to which it is built.
    pub fn built_to(&self) -> Option<u64> {
        self.update_seq.or(self.pending_seq).or(self.committed_seq)
    }

    /// Indexed documents.
    pub fn docs(&self) -> Option<u64> {
        self.num_docs.or(self.doc_count)
    }
}
