//! The shard map: documents of the node-local database `_dbs`.

use super::lenient::{self, lenient};
use serde::{Deserialize, de::SeqAccess};
use std::collections::BTreeMap;

/// One database's document in the shard map (`mem3_util`).
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct DbsDoc {
    /// The database.
    #[serde(rename = "_id", deserialize_with = "lenient::field")]
    pub id: Option<String>,
    /// The instance suffix with its dot, `.1795222434`; sent as character codes.
    #[serde(rename = "shard_suffix", deserialize_with = "lenient::char_codes")]
    pub suffix: Option<String>,
    /// The ranges of each node, from which CouchDB builds the map.
    #[serde(deserialize_with = "lenient::field")]
    pub by_node: BTreeMap<String, Vec<String>>,
    /// The nodes of each range, in the order in which CouchDB reads copies.
    #[serde(deserialize_with = "lenient::field")]
    pub by_range: BTreeMap<String, Vec<String>>,
    /// The history of the map: `add`, `delete`, `split`.
    #[serde(deserialize_with = "lenient::field")]
    pub changelog: Vec<ChangelogEntry>,
}

impl DbsDoc {
    /// The approximate memory of the document's shard copies once they are targets, in bytes.
    pub(crate) fn estimated_memory(&self) -> usize {
        const BYTES_PER_COPY: usize = 256;
        let lists = self.by_node.iter().chain(&self.by_range);
        let copies: usize = lists.map(|(_, others)| others.len()).sum();
        let texts = self.id.as_deref().map_or(0, str::len);
        // Each copy is in both lists.
        BYTES_PER_COPY
            .saturating_add(texts)
            .saturating_add(copies.saturating_mul(BYTES_PER_COPY / 2))
    }
}

/// One entry of a changelog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangelogEntry {
    /// The operation: `add`, `delete`, `split`.
    pub what: String,
    /// The range it applied to.
    pub range: String,
    /// The node; for a split the resulting range, or nothing.
    pub node: String,
}

/// An entry of a changelog is a list of strings.
impl<'de> lenient::Lenient<'de> for Option<ChangelogEntry> {
    fn from_seq<A: SeqAccess<'de>>(items: A) -> Result<Self, A::Error> {
        let mut parts = Vec::<String>::from_seq(items)?.into_iter();
        Ok(parts.next().zip(parts.next()).map(|(what, range)| ChangelogEntry {
            what,
            range,
            node: parts.next().unwrap_or_default(),
        }))
    }
}

lenient! {
    /// A page of `_dbs/_all_docs?include_docs=true`.
    pub(crate) struct MapRows {
        /// The total number of rows.
        pub(crate) total_rows: Option<u64>,
        pub(crate) rows: Vec<MapRow>,
    }

    /// One row of the page.
    pub(crate) struct MapRow {
        pub(crate) id: Option<String>,
        pub(crate) doc: Option<DbsDoc>,
    }
}

impl lenient::Object for DbsDoc {}
