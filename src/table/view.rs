//! What a view index is, beside its measurements.

use couchdb_names::{Engine, Range, Signature};
use std::sync::Arc;

/// An index: a view's of the cluster, known by database and signature, or the part of one that lies
/// in one file, known by its shard and signature; the rest are attributes.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The MD5 that names its files.
    pub signature: Signature,
    /// Of a part its shard's range; none for a node-local database's.
    pub range: Option<Range>,
    /// Of a view of the cluster what is known of its parts.
    pub parts: PartSums,
    /// The design documents that share it, by id (`_design/x`), sorted.
    pub designs: Arc<[Arc<str>]>,
    /// The language its functions are written in.
    pub language: Arc<str>,
    /// The collator versions one copy of it names (3.3 and later).
    pub collators: Arc<[Arc<str>]>,
    /// The design document's own range, where one copy was read exactly; else its sizes
    /// are the cluster's sum divided by the number of ranges.
    pub exact_range: bool,
    /// What to query so that CouchDB builds it; none where its documents say that only
    /// readers' queries shall (`autoupdate`), and until they were read.
    pub built_by: Option<Query>,
    /// What only a search index has; of one, `signature` says nothing.
    pub search: Option<Search>,
}

/// What a search index has beside its design document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// What builds it.
    pub engine: Engine,
    /// Its name in its design document.
    pub index: Arc<str>,
    /// Whether the cluster has that engine; none where no node could say.
    pub offered: Option<bool>,
}

/// A view of a design document, or a search index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Query {
    /// The document's id.
    pub design: Arc<str>,
    /// Its name there.
    pub view: Arc<str>,
}

impl Default for View {
    /// Nothing but a place.
    fn default() -> Self {
        Self {
            signature: Signature([0; 16]),
            range: None,
            parts: PartSums::default(),
            designs: Arc::new([]),
            language: Arc::from(""),
            collators: Arc::new([]),
            exact_range: false,
            built_by: None,
            search: None,
        }
    }
}

/// What the parts of a view come to, of which all sizes are known, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartSums {
    /// How many there are.
    pub count: u32,
    /// Their sizes.
    pub file: u64,
    /// What of that is live.
    pub active: u64,
    /// The same uncompressed.
    pub external: u64,
    /// Their sizes after a compaction, as predicted.
    pub predicted: u64,
    /// What a compaction of each would free, as predicted.
    pub reclaimable: u64,
}

impl PartSums {
    /// Adds a part.
    pub const fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.file = self.file.saturating_add(other.file);
        self.active = self.active.saturating_add(other.active);
        self.external = self.external.saturating_add(other.external);
        self.predicted = self.predicted.saturating_add(other.predicted);
        self.reclaimable = self.reclaimable.saturating_add(other.reclaimable);
    }
}
