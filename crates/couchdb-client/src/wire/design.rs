//! Design documents and their view indexes.

use super::{
    lenient::{self, lenient},
    search,
    shard::Sizes,
};
use couchdb_names::{Engine, Signature};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A design document: the fields that show whether it has an index, how the index is built, and
/// which other documents share it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct DesignDoc {
    /// The id, with `_design/`.
    #[serde(rename = "_id", deserialize_with = "lenient::field")]
    pub id: Option<String>,
    /// The revision.
    #[serde(rename = "_rev", deserialize_with = "lenient::field")]
    pub rev: Option<String>,
    /// The language; CouchDB takes a missing one as `javascript`.
    #[serde(deserialize_with = "lenient::field")]
    pub language: Option<String>,
    /// Its views; `None` if `views` is missing, not an object, or empty.
    #[serde(deserialize_with = "views")]
    pub views: Option<Views>,
    /// The names of its nouveau indexes.
    #[serde(deserialize_with = "search::names")]
    pub nouveau: Vec<String>,
    /// The names of its clouseau indexes.
    #[serde(deserialize_with = "search::names")]
    pub indexes: Vec<String>,
    /// Whether its indexes may be built automatically.
    pub autoupdate: Autoupdate,
    /// Options that change the index.
    #[serde(deserialize_with = "lenient::field")]
    pub options: DesignOptions,
    /// The document as CouchDB sent it: its signature depends on the order of the keys.
    #[serde(skip)]
    pub text: String,
}

impl DesignDoc {
    /// Parses the document, and keeps its text; `None` if it is not an object.
    fn parse_object(text: &RawValue) -> Option<Self> {
        let read: Self = serde_json::from_str(text.get()).ok()?;
        Some(Self { text: text.get().to_owned(), ..read })
    }

    /// Whether it has views. If it has none, `_info` describes an index that does not exist.
    pub fn has_views(&self) -> bool {
        self.views.is_some()
    }

    /// The language, with CouchDB's default.
    pub fn language(&self) -> &str {
        self.language.as_deref().unwrap_or("javascript")
    }

    /// The names of its search indexes.
    pub fn searches(&self, engine: Engine) -> &[String] {
        match engine {
            Engine::Nouveau => &self.nouveau,
            Engine::Clouseau => &self.indexes,
        }
    }
}

/// The views of a design document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Views {
    /// The definition. Equal definitions in one language with equal
    /// [`options`](DesignDoc::options) share an index.
    pub text: String,
    /// A view that can be queried; `None` if no view has a map function.
    pub first: Option<String>,
}

fn views<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Views>, D::Error> {
    let value = serde_json::Value::deserialize(from)?;
    let views = value.as_object().filter(|views| !views.is_empty());
    Ok(views.map(|views| {
        let maps = |(_, view): &(&String, &serde_json::Value)| view.get("map").is_some();
        Views { text: value.to_string(), first: views.iter().find(maps).map(|it| it.0.clone()) }
    }))
}

/// Whether the indexes of a design document may be built automatically
/// (`ken_server:should_update/2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Autoupdate {
    /// Its views.
    pub views: bool,
    /// Its nouveau indexes.
    pub nouveau: bool,
    /// Its clouseau indexes.
    pub indexes: bool,
}

impl Default for Autoupdate {
    fn default() -> Self {
        Self { views: true, nouveau: true, indexes: true }
    }
}

impl<'de> Deserialize<'de> for Autoupdate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(from)?;
        let on = |kind: &str| value != false && value.get(kind).is_none_or(|is| *is != false);
        Ok(Self { views: on("views"), nouveau: on("nouveau"), indexes: on("indexes") })
    }
}

lenient! {
    /// Options of a design document.
    #[derive(Copy, Eq)]
    pub struct DesignOptions {
        /// Whether the index is partitioned.
        pub partitioned: Option<bool>,
        /// Whether map functions see the sequence.
        pub local_seq: Option<bool>,
        /// Whether map functions see design documents.
        pub include_design: Option<bool>,
    }
}

/// A page of `/{db}/_design_docs?include_docs=true`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DesignRows {
    /// The total number of rows.
    #[serde(deserialize_with = "lenient::field")]
    pub(crate) total_rows: Option<u64>,
    #[serde(deserialize_with = "lenient::field")]
    pub(crate) rows: Vec<DesignRow>,
}

/// One row of the page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DesignRow {
    #[serde(deserialize_with = "lenient::field")]
    pub(crate) id: Option<String>,
    doc: Option<Box<RawValue>>,
}

impl DesignRow {
    /// The document's size in bytes.
    pub(crate) fn estimated_memory(&self) -> usize {
        self.doc.as_deref().map_or(0, |doc| doc.get().len())
    }

    /// The document, if the row has one.
    pub(crate) fn doc(&self) -> Option<DesignDoc> {
        DesignDoc::parse_object(self.doc.as_deref()?)
    }
}

lenient! {
    /// `_info` of a view index, for one copy or for the cluster.
    pub struct ViewInfo {
        /// The design document's name, without `_design/`.
        pub name: Option<String>,
        /// The index.
        pub view_index: ViewIndex,
    }

    /// A view index.
    pub struct ViewIndex {
        /// The signature, which is also the name of its file.
        pub signature: Option<Signature>,
        /// The language of its views.
        pub language: Option<String>,
        /// Sizes in bytes: of one file, or the sum over one copy of each range.
        pub sizes: Sizes,
        /// The database's sequence up to which it is built.
        pub update_seq: Option<u64>,
        /// The last purge it has processed.
        pub purge_seq: Option<u64>,
        /// The versions of ICU's collator that built it (3.3+); for the cluster, the union over all
        /// nodes.
        pub collator_versions: Option<Vec<String>>,
        /// Whether a compaction runs.
        pub compact_running: Option<bool>,
        /// Whether an indexer is building it.
        pub updater_running: Option<bool>,
        /// Whether changes wait to be synced.
        pub waiting_commit: Option<bool>,
        /// Requests that wait for its build.
        pub waiting_clients: Option<u64>,
        /// Number of sequences by which one copy is behind its database.
        pub pending_updates: Option<u64>,
        /// How many sequences the copies that responded for the cluster are behind.
        pub updates_pending: Option<UpdatesPending>,
    }

    /// How many sequences the responding copies of an index are behind.
    #[derive(Copy, Eq)]
    pub struct UpdatesPending {
        /// For the best copy of each range.
        pub minimum: Option<u64>,
        /// For the preferred copies among them.
        pub preferred: Option<u64>,
        /// For all copies.
        pub total: Option<u64>,
    }
}

impl lenient::Object for DesignDoc {}
impl lenient::Object for DesignRow {}
