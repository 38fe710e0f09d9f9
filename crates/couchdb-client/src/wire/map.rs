//! The shard map: documents of the node-local database `_dbs`.

use super::loose;
use serde::{Deserialize, de::SeqAccess};
use std::collections::BTreeMap;

/// One database's document in the shard map (`mem3_util`).
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct DbsDoc {
    /// The database.
    #[serde(rename = "_id", deserialize_with = "loose::loose")]
    pub id: Option<String>,
    /// The instance suffix with its dot, `.1795222434`; sent as character codes.
    #[serde(rename = "shard_suffix", deserialize_with = "loose::letters")]
    pub suffix: Option<String>,
    /// Node to its ranges; what CouchDB builds the map from.
    #[serde(deserialize_with = "loose::loose")]
    pub by_node: BTreeMap<String, Vec<String>>,
    /// Range to its nodes, in the order in which copies are asked.
    #[serde(deserialize_with = "loose::loose")]
    pub by_range: BTreeMap<String, Vec<String>>,
    /// What was done to the map: `add`, `delete`, `split`.
    #[serde(deserialize_with = "loose::loose")]
    pub changelog: Vec<Change>,
}

impl DbsDoc {
    /// About what the copies that it names take in memory once they are targets, in bytes.
    pub(crate) fn weight(&self) -> usize {
        const A_COPY: usize = 256;
        let lists = self.by_node.iter().chain(&self.by_range);
        let copies: usize = lists.map(|(_, others)| others.len()).sum();
        let texts = self.id.as_deref().map_or(0, str::len);
        // Each copy stands in both lists.
        A_COPY.saturating_add(texts).saturating_add(copies.saturating_mul(A_COPY / 2))
    }
}

/// One entry of a changelog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What was done: `add`, `delete`, `split`.
    pub what: String,
    /// The range it was done to.
    pub range: String,
    /// The node; for a split what follows, or nothing.
    pub node: String,
}

/// A changelog's entry: a list of strings.
impl<'de> loose::Loose<'de> for Option<Change> {
    fn of_seq<A: SeqAccess<'de>>(items: A) -> Result<Self, A::Error> {
        let mut parts = Vec::<String>::of_seq(items)?.into_iter();
        Ok(parts.next().zip(parts.next()).map(|(what, range)| Change {
            what,
            range,
            node: parts.next().unwrap_or_default(),
        }))
    }
}

/// A page of `_dbs/_all_docs?include_docs=true`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MapRows {
    /// How many there are in all.
    #[serde(deserialize_with = "loose::loose")]
    pub(crate) total_rows: Option<u64>,
    #[serde(deserialize_with = "loose::loose")]
    pub(crate) rows: Vec<MapRow>,
}

/// One row of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MapRow {
    #[serde(deserialize_with = "loose::loose")]
    pub(crate) id: Option<String>,
    #[serde(deserialize_with = "loose::loose")]
    pub(crate) doc: Option<DbsDoc>,
}

impl loose::Object for DbsDoc {}
impl loose::Object for MapRow {}
