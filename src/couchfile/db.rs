//! The header of a database file.
//!
//! Owns the fields of `db_header` in every version and the sizes that follow from them.

/// What a database file's header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DbHeader {
    /// Version of the format: 4 to 8; 8 since CouchDB 3.0.
    pub disk_version: u8,
    /// Fields of the header: more than 16 are of a CouchDB newer than 3.5.
    pub fields: usize,
    /// The last sequence committed.
    pub update_seq: u64,
    /// The sequence at the last compaction's swap; zero before the first.
    pub compacted_seq: u64,
    /// Documents that are not deleted.
    pub docs: Option<u64>,
    /// Deleted documents.
    pub deleted_docs: Option<u64>,
    /// Live bytes: bodies, attachments and trees. Unknown where a tree of CouchDB before 1.2
    /// does not count its bytes.
    pub active: Option<u64>,
    /// Bytes of the documents uncompressed, as CouchDB estimates them; zero in files of
    /// versions that did not count them, as CouchDB itself says.
    pub external: Option<u64>,
    /// 32 hex digits; files of CouchDB 1 may have none.
    pub uuid: Option<String>,
    /// The nodes that owned the file, newest first.
    pub epochs: Vec<Epoch>,
    /// Its trees.
    pub trees: Trees,
    /// Purges that it remembers.
    pub purges: Option<u64>,
    /// Purges that it may remember.
    pub purge_infos_limit: u64,
    /// Revisions kept of a document.
    pub revs_limit: u64,
}

/// Since which sequence a node owns a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// The node's name.
    pub node: String,
    /// Its first sequence.
    pub since: u64,
}

/// The trees of a database file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trees {
    /// Documents by id.
    pub id: Tree,
    /// Documents by sequence.
    pub seq: Tree,
    /// `_local` documents, bodies included.
    pub local: Tree,
    /// Purges by UUID.
    pub purge: Tree,
    /// Purges by sequence.
    pub purge_seq: Tree,
}

/// The bytes of a tree's live nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tree {
    /// There is nothing in it.
    Empty,
    /// So many.
    Sized(u64),
    /// Written by CouchDB before 1.2, which does not say.
    Unsized,
}

impl Tree {
    /// The bytes, where they are known.
    #[must_use]
    pub const fn bytes(self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Sized(bytes) => Some(bytes),
            Self::Unsized => None,
        }
    }
}
