//! Design documents and their view indexes.

use super::{Sizes, loose, search};
use couchdb_names::Signature;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A design document: what tells whether it has an index, who builds it, and which other
/// documents share it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct DesignDoc {
    /// The id, with `_design/`.
    #[serde(rename = "_id", deserialize_with = "loose::loose")]
    pub id: Option<String>,
    /// The revision.
    #[serde(rename = "_rev", deserialize_with = "loose::loose")]
    pub rev: Option<String>,
    /// The language; CouchDB takes a missing one as `javascript`.
    #[serde(deserialize_with = "loose::loose")]
    pub language: Option<String>,
    /// What it defines. `None` where `views` is missing or no object, or has none.
    #[serde(deserialize_with = "views")]
    pub views: Option<Views>,
    /// The names of its nouveau indexes.
    #[serde(deserialize_with = "search::names")]
    pub nouveau: Vec<String>,
    /// The names of its clouseau indexes.
    #[serde(deserialize_with = "search::names")]
    pub indexes: Vec<String>,
    /// Whether indexes may be built without being asked for.
    pub autoupdate: Autoupdate,
    /// Options that change the index.
    #[serde(deserialize_with = "loose::loose")]
    pub options: DesignOptions,
    /// The document as CouchDB sent it: the order of its keys decides about the signature.
    #[serde(skip)]
    pub text: String,
}

impl DesignDoc {
    /// Reads the document from its own text; of one that is no object nothing is known.
    fn of(text: &RawValue) -> Option<Self> {
        let read: Self = serde_json::from_str(text.get()).ok()?;
        Some(Self { text: text.get().to_owned(), ..read })
    }

    /// Whether it has views; on one without, `_info` tells of an index that does not
    /// exist.
    #[must_use]
    pub fn has_views(&self) -> bool {
        self.views.is_some()
    }

    /// The language, with CouchDB's default.
    #[must_use]
    pub fn language(&self) -> &str {
        self.language.as_deref().unwrap_or("javascript")
    }
}

/// The views of a design document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Views {
    /// What they define: equal texts in one language share an index, as far as the
    /// [`options`](DesignDoc::options) are equal.
    pub text: String,
    /// A view to query; none where no entry maps anything.
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

/// Whether the indexes of a design document may be built without being asked for
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

/// Options of a design document.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct DesignOptions {
    /// Whether the index is partitioned.
    #[serde(deserialize_with = "loose::loose")]
    pub partitioned: Option<bool>,
    /// Whether views see the sequence.
    #[serde(deserialize_with = "loose::loose")]
    pub local_seq: Option<bool>,
    /// Whether views see design documents.
    #[serde(deserialize_with = "loose::loose")]
    pub include_design: Option<bool>,
}

/// A page of `/{db}/_design_docs?include_docs=true`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DesignRows {
    /// How many there are in all.
    #[serde(deserialize_with = "loose::loose")]
    pub(crate) total_rows: Option<u64>,
    #[serde(deserialize_with = "loose::loose")]
    pub(crate) rows: Vec<DesignRow>,
}

/// One row of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DesignRow {
    #[serde(deserialize_with = "loose::loose")]
    pub(crate) id: Option<String>,
    doc: Option<Box<RawValue>>,
}

impl DesignRow {
    /// How long its document is, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.doc.as_deref().map_or(0, |doc| doc.get().len())
    }

    /// The document, where it is one.
    pub(crate) fn doc(&self) -> Option<DesignDoc> {
        DesignDoc::of(self.doc.as_deref()?)
    }
}

/// `_info` of a view index, of one copy or of the cluster.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ViewInfo {
    /// The design document's name, without `_design/`.
    #[serde(deserialize_with = "loose::loose")]
    pub name: Option<String>,
    /// The index.
    #[serde(deserialize_with = "loose::loose")]
    pub view_index: ViewIndex,
}

/// A view index.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ViewIndex {
    /// The signature that names its file.
    #[serde(deserialize_with = "loose::loose")]
    pub signature: Option<Signature>,
    /// The language of its views.
    #[serde(deserialize_with = "loose::loose")]
    pub language: Option<String>,
    /// Sizes in bytes: of one file, or the sum of one copy a range.
    #[serde(deserialize_with = "loose::loose")]
    pub sizes: Sizes,
    /// The database's sequence up to which it is built.
    #[serde(deserialize_with = "loose::seq")]
    pub update_seq: Option<u64>,
    /// The last purge it has taken in.
    #[serde(deserialize_with = "loose::seq")]
    pub purge_seq: Option<u64>,
    /// Versions of ICU's collator that built it (3.3+); on cluster routes the union over
    /// nodes.
    #[serde(deserialize_with = "loose::loose")]
    pub collator_versions: Option<Vec<String>>,
    /// Whether a compaction runs.
    #[serde(deserialize_with = "loose::loose")]
    pub compact_running: Option<bool>,
    /// Whether it is being built.
    #[serde(deserialize_with = "loose::loose")]
    pub updater_running: Option<bool>,
    /// Whether changes wait to be synced.
    #[serde(deserialize_with = "loose::loose")]
    pub waiting_commit: Option<bool>,
    /// Requests that wait for it.
    #[serde(deserialize_with = "loose::loose")]
    pub waiting_clients: Option<u64>,
    /// Sequences one copy is behind its database.
    #[serde(deserialize_with = "loose::loose")]
    pub pending_updates: Option<u64>,
    /// The same over the copies that answered for the cluster.
    #[serde(deserialize_with = "loose::loose")]
    pub updates_pending: Option<UpdatesPending>,
}

/// Sequences an index is behind, over the copies that answered.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct UpdatesPending {
    /// Of the best copy of each range.
    #[serde(deserialize_with = "loose::loose")]
    pub minimum: Option<u64>,
    /// Of the preferred copies among them.
    #[serde(deserialize_with = "loose::loose")]
    pub preferred: Option<u64>,
    /// Of all of them.
    #[serde(deserialize_with = "loose::loose")]
    pub total: Option<u64>,
}

impl loose::Object for DesignDoc {}
impl loose::Object for DesignOptions {}
impl loose::Object for DesignRow {}
impl loose::Object for ViewIndex {}
impl loose::Object for UpdatesPending {}
