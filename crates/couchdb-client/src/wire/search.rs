//! Search indexes: their names in design documents, and what the cluster tells of one.

use super::{DesignDoc, loose};
use couchdb_names::Engine;
use serde::{Deserialize, Deserializer};

/// The names of what can be built of `nouveau` or `indexes`: an entry without `index` defines
/// nothing (`nouveau_util:design_doc_to_index/3`, `dreyfus_index:design_doc_to_index/2`).
pub(super) fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let value = serde_json::Value::deserialize(from)?;
    let defined = value.as_object().into_iter().flatten();
    let defined = defined.filter(|(_, entry)| entry.get("index").is_some());
    Ok(defined.map(|(name, _)| name.clone()).collect())
}

impl DesignDoc {
    /// The names of its search indexes.
    #[must_use]
    pub fn searches(&self, engine: Engine) -> &[String] {
        match engine {
            Engine::Nouveau => &self.nouveau,
            Engine::Clouseau => &self.indexes,
        }
    }
}

/// `_nouveau_info` or `_search_info` of a search index, over the cluster.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct SearchInfo {
    /// The design document's id and the index's name, with a slash between them.
    #[serde(deserialize_with = "loose::loose")]
    pub name: Option<String>,
    /// The index.
    #[serde(deserialize_with = "loose::loose")]
    pub search_index: SearchIndex,
}

/// A search index: sums over one copy of each range, the first that answered.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct SearchIndex {
    /// Documents in it; of nouveau.
    #[serde(deserialize_with = "loose::loose")]
    pub num_docs: Option<u64>,
    /// The same; of clouseau.
    #[serde(deserialize_with = "loose::loose")]
    pub doc_count: Option<u64>,
    /// Bytes on disk.
    #[serde(deserialize_with = "loose::loose")]
    pub disk_size: Option<u64>,
    /// The shards' sequences up to which it is built; of nouveau.
    #[serde(deserialize_with = "loose::seq")]
    pub update_seq: Option<u64>,
    /// The same, of clouseau: what it answers by.
    #[serde(deserialize_with = "loose::seq")]
    pub pending_seq: Option<u64>,
    /// The same, of clouseau: what is safe on disk.
    #[serde(deserialize_with = "loose::seq")]
    pub committed_seq: Option<u64>,
}

impl SearchIndex {
    /// The sequences up to which it is built, added up.
    #[must_use]
    pub fn built_to(&self) -> Option<u64> {
        self.update_seq.or(self.pending_seq).or(self.committed_seq)
    }

    /// Documents in it.
    #[must_use]
    pub fn docs(&self) -> Option<u64> {
        self.num_docs.or(self.doc_count)
    }
}

impl loose::Object for SearchIndex {}
