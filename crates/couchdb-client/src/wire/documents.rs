//! Documents of one shard copy, and replications.

use super::lenient::{self, lenient};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

lenient! {
    /// `_changes` of one shard copy.
    pub struct ShardChanges {
        /// The changed documents, in the order of their sequences.
        pub results: Vec<ShardChange>,
    }

    /// `_changes` of a database after a sequence.
    pub struct ChangesLeft {
        /// The changed documents, up to the limit.
        pub results: Vec<ShardChange>,
        /// How many more have changed.
        pub pending: Option<u64>,
    }

    /// One changed document.
    pub struct ShardChange {
        /// Its id.
        pub id: Option<String>,
        /// The sequence of its last change, in this copy.
        pub seq: Option<u64>,
        /// Whether it is deleted, so that all of its leaf revisions are.
        pub deleted: Option<bool>,
    }

    /// A page of `_local_docs`.
    pub struct LocalDocs {
        /// The documents.
        pub rows: Vec<LocalRow>,
    }

    /// A document that is not replicated.
    pub struct LocalRow {
        /// Its id, with `_local/`.
        pub id: Option<String>,
        /// The document.
        pub doc: Checkpoint,
    }

    /// A checkpoint of a replicator, of CouchDB's internal replication or of a reader of purges. Each kind has other
    /// fields.
    pub struct Checkpoint {
        /// For a replicator: the source's sequence.
        pub source_last_seq: SourceSeq,
        /// For `PouchDB`'s replicator: the source's sequence.
        pub last_seq: SourceSeq,
        /// For a replicator: its sessions, newest first. For internal replication: what each source node has
        /// sent, newest first.
        pub history: History,
        /// For a client that processes purges: the last purge that it has processed.
        pub purge_seq: Option<u64>,
        /// For a client that processes purges: seconds since 1970.
        pub updated_on: Option<u64>,
        /// For internal replication's reader of purges: the node that ran the internal replication.
        pub source: Option<String>,
        /// For internal replication's reader of purges: the other node.
        pub target: Option<String>,
        /// For the purge client of a view: its design document.
        pub ddoc_id: Option<String>,
    }

    /// The end of one session of a replicator.
    pub struct ReplicatorSession {
        /// When it last wrote a checkpoint, as an HTTP date.
        pub end_time: Option<String>,
    }

    /// What one copy has sent to another.
    pub struct InternalSession {
        /// The UUID of the copy that sends.
        pub source_uuid: Option<String>,
        /// The last of its sequences that was sent.
        pub source_seq: Option<u64>,
        /// The node of the copy that receives.
        pub target_node: Option<String>,
        /// When it was sent, as RFC 3339.
        pub timestamp: Option<String>,
    }

    /// `_scheduler/docs` or `_scheduler/jobs`.
    pub struct Replications {
        /// The number of all rows.
        pub total_rows: Option<u64>,
        /// Replications described by documents.
        pub docs: Vec<Replication>,
        /// Replications that run or wait.
        pub jobs: Vec<Replication>,
    }

    /// One replication.
    pub struct Replication {
        /// Its id, which begins with that of its checkpoint.
        pub id: Option<String>,
        /// The document that describes it.
        pub doc_id: Option<String>,
        /// The source's URL or name.
        pub source: Option<String>,
        /// The target's URL or name.
        pub target: Option<String>,
        /// `running`, `pending`, `crashing`, `error`, `failed`, `completed`; of a job nothing.
        pub state: Option<String>,
    }

    /// `/{db}/_time_seq`.
    pub struct TimeSeq {
        /// By range and node: the starts of periods, with the number of changes in each, in order.
        pub time_seq: BTreeMap<String, BTreeMap<String, Vec<TimeBin>>>,
    }

    /// `/{db}/_auto_purge`.
    pub struct AutoPurge {
        /// How long a deleted document is kept, such as `30_days`; unset or `infinity` for always.
        pub deleted_document_ttl: Option<String>,
    }
}

/// The start of a period, and the number of changes in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeBin {
    /// RFC 3339.
    pub from: String,
    /// The number of changes.
    pub changes: u64,
}

impl<'de> lenient::Lenient<'de> for Option<TimeBin> {
    fn from_seq<A: serde::de::SeqAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        let from = items.next_element::<lenient::Element<Option<String>>>()?;
        let changes = items.next_element::<lenient::Element<Option<u64>>>()?;
        while items.next_element::<serde::de::IgnoredAny>()?.is_some() {}
        let from = from.and_then(|lenient::Element(from)| from);
        let changes = changes.and_then(|lenient::Element(changes)| changes);
        Ok(from.zip(changes).map(|(from, changes)| TimeBin { from, changes }))
    }
}

/// The sequence of a replication's source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SourceSeq {
    /// Missing, or of another type.
    #[default]
    Unknown,
    /// A number: the sequence of one file, not of a clustered database.
    Number(u64),
    /// The sequence of a clustered database, `123-g1AAAA…`.
    Packed(String),
}

impl lenient::Lenient<'_> for SourceSeq {
    fn from_u64(value: u64) -> Self {
        Self::Number(value)
    }
    fn from_str(value: &str) -> Self {
        Self::Packed(value.to_owned())
    }
}

/// The history in a checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum History {
    /// Missing, or of another type.
    #[default]
    Unknown,
    /// The history of a replicator.
    Replicator(Vec<ReplicatorSession>),
    /// The history of internal replication, by sending node.
    Internal(BTreeMap<String, Vec<InternalSession>>),
}

impl<'de> lenient::Lenient<'de> for History {
    fn from_seq<A: serde::de::SeqAccess<'de>>(items: A) -> Result<Self, A::Error> {
        Vec::<ReplicatorSession>::from_seq(items).map(Self::Replicator)
    }
    fn from_map<A: serde::de::MapAccess<'de>>(items: A) -> Result<Self, A::Error> {
        BTreeMap::<String, Vec<InternalSession>>::from_map(items).map(Self::Internal)
    }
}

/// A document of a shard copy, with its JSON as it was sent.
#[derive(Clone, Debug)]
pub struct ShardDoc {
    /// Its id.
    pub id: String,
    /// The sequence of its last change, in this copy.
    pub seq: u64,
    /// The winning revision.
    pub text: String,
}

/// A row of `_changes` with documents.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DocRow {
    id: String,
    seq: u64,
    deleted: bool,
    doc: Option<Box<RawValue>>,
}

/// `_changes` with documents.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DocRows {
    results: Vec<DocRow>,
}

impl lenient::Object for DocRows {}

impl DocRows {
    /// The documents that are not deleted, and the number of rows.
    pub(crate) fn docs(self) -> (Vec<ShardDoc>, usize) {
        let rows = self.results.len();
        let live = self.results.into_iter().filter(|row| !row.deleted);
        let docs = live.filter_map(|row| {
            let text = row.doc?.get().to_owned();
            Some(ShardDoc { id: row.id, seq: row.seq, text })
        });
        (docs.collect(), rows)
    }
}

/// The leaf revisions of a document: `[{"ok": {…}}]`.
#[derive(Debug, Deserialize)]
pub(crate) struct LeafRow {
    pub(crate) ok: Option<Box<RawValue>>,
}

lenient! {
    /// A leaf revision of a document.
    pub struct Leaf {
        /// The revision and its ancestors.
        #[serde(rename = "_revisions")]
        pub revisions: Revisions,
        /// Whether it is deleted.
        #[serde(rename = "_deleted")]
        pub deleted: Option<bool>,
        /// Its attachments by name.
        #[serde(rename = "_attachments")]
        pub attachments: BTreeMap<String, Attachment>,
    }

    /// Revisions, newest first.
    pub struct Revisions {
        /// The number of the newest.
        pub start: Option<u64>,
        /// Their hashes.
        pub ids: Vec<String>,
    }

    /// An attachment.
    #[derive(Copy)]
    pub struct Attachment {
        /// Bytes, uncompressed.
        pub length: Option<u64>,
    }
}

impl Leaf {
    /// Parses the revisions of a response, each with its text.
    pub(crate) fn of(rows: &[LeafRow]) -> Option<Vec<(Self, String)>> {
        let texts = rows.iter().filter_map(|row| row.ok.as_ref());
        texts
            .map(|text| Some((serde_json::from_str(text.get()).ok()?, text.get().to_owned())))
            .collect()
    }
}
