//! The header of a view index.
//!
//! Owns the forms it had from CouchDB 1.2 to 3.5 and the sizes that follow from it.

use super::Tree;
use crate::target::Signature;

/// What a view index's header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewHeader {
    /// Of the definition the index was built for; its file is named by it.
    pub signature: Signature,
    /// The index; `None` where it was opened or reset and nothing was committed yet.
    pub committed: Option<Index>,
}

/// A committed view index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// The last sequence indexed.
    pub update_seq: u64,
    /// The last purge taken in.
    pub purge_seq: u64,
    /// Live bytes: its trees. Unknown where one does not count its bytes.
    pub active: Option<u64>,
    /// Bytes of the rows uncompressed, as CouchDB estimates them. A group without rows counts
    /// two here, for `[]`; what CouchDB counts depends on its reduces:
    /// `external_with`.
    pub external: Option<u64>,
    /// The tree of documents, to find their rows by.
    pub id_tree: Tree,
    /// Groups of views that share map and options, in the order of [`super::Design::groups`].
    pub views: Vec<Group>,
    /// How many of them have no rows.
    pub empty_groups: usize,
    /// Versions of ICU's collation that rows were sorted by, such as `153.120`; two or more
    /// are a mix that only a compaction cures. Empty where the format does not say.
    pub collators: Vec<String>,
}

/// Views that share map and options, and so one tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its rows.
    pub tree: Tree,
    /// How many.
    pub rows: Option<u64>,
    /// How many reduces it has; unknown without rows.
    pub reduces: Option<usize>,
    /// Bytes of its rows uncompressed; `None` where there are none, or it is not known.
    pub external: Option<u64>,
}
