//! The attributes of a view index.

use super::NodeIx;
use crate::model::facts::Facts;
use couchdb_names::{Engine, Range, Signature};
use std::sync::Arc;

/// An index: a cluster-wide view, identified by database and signature, or the part of a view in
/// one file, identified by shard and signature. All other fields are attributes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// The MD5 hash that names its files.
    pub signature: Signature,
    /// The range of a part's shard; `None` for a node-local database.
    pub range: Option<Range>,
    /// The sums of a cluster-wide view's known parts.
    pub part_sums: PartSums,
    /// The design documents that share the index, by id (`_design/x`), sorted.
    pub designs: Arc<[Arc<str>]>,
    /// The language of its functions.
    pub language: Arc<str>,
    /// The collator versions that one copy names (CouchDB 3.3 and later).
    pub collators: Arc<[Arc<str>]>,
    /// Whether sizes are exact ones of the copy on the design document's own range; otherwise they
    /// are the cluster's sum divided by the number of ranges.
    pub exact_range: bool,
    /// How its copies differ.
    pub copies: ViewCopies,
    /// The query that makes CouchDB build it; `None` until its design documents were read, or if
    /// they leave building to readers' queries (`autoupdate`).
    pub build_query: Option<IndexQuery>,
    /// A hash of each of its views' functions and options, sorted; empty until its design documents were read.
    pub functions: Arc<[u64]>,
    /// The attributes of a search index; its `signature` has no meaning.
    pub search_index: Option<SearchAttributes>,
}

/// How the copies of an index differ, if each can be read by itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ViewCopies {
    /// They were not all read.
    #[default]
    Unknown,
    /// The facts of one apply to all.
    Alike,
    /// The facts of each by node, the copy with most waste first.
    Differ(Arc<[(NodeIx, Facts)]>),
}

/// The attributes of a search index in addition to its design document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchAttributes {
    /// The engine that builds it.
    pub engine: Engine,
    /// Its name in its design document.
    pub index: Arc<str>,
    /// Whether the cluster has that engine; `None` if no node could tell.
    pub is_supported: Option<bool>,
}

/// A view of a design document, or a search index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexQuery {
    /// The document's id.
    pub design: Arc<str>,
    /// Its name in the design document.
    pub view: Arc<str>,
}

/// Sums over those parts of a view whose sizes are all known, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartSums {
    /// Number of parts.
    pub count: u32,
    /// Their sizes.
    pub file_bytes: u64,
    /// Active bytes.
    pub active_bytes: u64,
    /// Uncompressed bytes.
    pub external_bytes: u64,
    /// Predicted sizes after a compaction.
    pub predicted_bytes: u64,
    /// Predicted bytes that compacting each part would free.
    pub reclaimable_bytes: u64,
}

impl PartSums {
    /// Adds a part.
    pub const fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.file_bytes = self.file_bytes.saturating_add(other.file_bytes);
        self.active_bytes = self.active_bytes.saturating_add(other.active_bytes);
        self.external_bytes = self.external_bytes.saturating_add(other.external_bytes);
        self.predicted_bytes = self.predicted_bytes.saturating_add(other.predicted_bytes);
        self.reclaimable_bytes = self.reclaimable_bytes.saturating_add(other.reclaimable_bytes);
    }
}
