//! The header of a database file.
//!
//! Owns the fields of `db_header` in every version and the sizes derived from them, as CouchDB
//! 3.5's `couch_bt_engine` computes them. Never finds or checks the header.

use super::{
    DecodeError, HeaderError, HeaderPosition,
    term::{Elements, Term},
};
use std::ops::RangeInclusive;

/// Disk versions that CouchDB 3 opens; it refuses all others.
const VERSIONS: RangeInclusive<u64> = 4..=8;

/// The first version with trees of purges (CouchDB 2.3). Before it, the header had a number and a
/// position in these fields.
const PURGE_TREES: u8 = 7;

/// The default of a limit that the header does not contain.
const DEFAULT_LIMIT: u64 = 1000;

/// Maximum number of a file's owners.
const MAX_EPOCHS: usize = 10_000;

/// Maximum length of a UUID in bytes; CouchDB's have 32.
const MAX_UUID_BYTES: usize = 64;

/// The content of a database file's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DbHeader {
    /// Version of the format: 4 to 8; 8 since CouchDB 3.0.
    pub disk_version: u8,
    /// Number of fields in the header: more than 16 mean a CouchDB newer than 3.5.
    pub fields: usize,
    /// The last committed sequence.
    pub update_seq: u64,
    /// The sequence when the last compaction was swapped in; zero before the first.
    pub compacted_seq: u64,
    /// Documents that are not deleted.
    pub docs: Option<u64>,
    /// Deleted documents.
    pub deleted_docs: Option<u64>,
    /// Active bytes: bodies, attachments and trees. Unknown if a tree written by CouchDB before
    /// 1.2 does not count its bytes.
    pub active: Option<u64>,
    /// Uncompressed bytes of the documents, as CouchDB estimates them; zero in files of versions
    /// that did not count them, as in CouchDB itself.
    pub external: Option<u64>,
    /// 32 hex digits; files of CouchDB 1 may have none.
    pub uuid: Option<String>,
    /// The nodes that owned the file, newest first.
    pub epochs: Vec<Epoch>,
    /// Its trees.
    pub trees: Trees,
    /// The number of the last purge; if unknown, [`super::last_purge`] reads it.
    pub purge_seq: Option<u64>,
    /// Where the number of the last purge is stored.
    pub(super) purge_root: Option<PurgeRoot>,
    /// Where its trees and terms begin.
    pub(super) roots: Roots,
    /// Number of remembered purges.
    pub purges: Option<u64>,
    /// Maximum number of remembered purges.
    pub purge_infos_limit: u64,
    /// Number of revisions kept for each document.
    pub revs_limit: u64,
}

impl DbHeader {
    /// Decodes the tuple that begins with the atom `db_header`.
    ///
    /// # Errors
    ///
    /// If its version is unknown, or a field does not have CouchDB's form.
    pub(super) fn decode(term: Term<'_>, place: HeaderPosition) -> Result<Self, HeaderError> {
        let undecodable = |why| HeaderError::UndecodableHeader { place, why };
        let fields = Fields::of(term).ok_or_else(|| undecodable(DecodeError::NotAHeader))?;
        let version = fields.required(2, "disk_version").map_err(undecodable)?;
        if !VERSIONS.contains(&version) {
            return Err(HeaderError::UnknownDiskVersion { place, version });
        }
        fields.read(u8::try_from(version).unwrap_or_default()).map_err(undecodable)
    }
}

/// The positions of trees and terms; `None` if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Roots {
    pub(super) id: Option<u64>,
    pub(super) seq: Option<u64>,
    pub(super) local: Option<u64>,
    pub(super) purge: Option<u64>,
    pub(super) purge_seq: Option<u64>,
    pub(super) security: Option<u64>,
    pub(super) props: Option<u64>,
}

/// Where purges are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PurgeRoot {
    /// The root of the tree of purges by sequence.
    Tree(u64),
    /// A list of the latest purged documents, which CouchDB numbers from `first` when it opens
    /// the file (`couch_bt_engine:upgrade_purge_info/2`).
    List { at: u64, first: u64 },
}

/// The fields of a header by their position in the tuple, counted from one.
struct Fields<'a> {
    terms: Vec<Term<'a>>,
    count: usize,
}

impl<'a> Fields<'a> {
    /// Number of known fields; a newer CouchDB may append more.
    const KNOWN: usize = 16;

    fn of(term: Term<'a>) -> Option<Self> {
        let elements: Elements<'a> = term.tuple()?;
        Some(Self { count: elements.len(), terms: elements.take(Self::KNOWN).collect() })
    }

    /// A field that exists and is not empty.
    fn get(&self, position: usize) -> Option<Term<'a>> {
        self.terms.get(position - 1).copied().filter(|term| !is_absent(*term))
    }

    fn required(&self, position: usize, name: &'static str) -> Result<u64, DecodeError> {
        self.get(position).and_then(Term::number).ok_or(DecodeError::Field(name))
    }

    fn number_or(&self, at: usize, name: &'static str, other: u64) -> Result<u64, DecodeError> {
        match self.get(at) {
            None => Ok(other),
            Some(term) => term.number().ok_or(DecodeError::Field(name)),
        }
    }

    fn tree(&self, at: usize, name: &'static str) -> Result<TreeRoot<'a>, DecodeError> {
        match self.get(at) {
            None => Ok(TreeRoot::EMPTY),
            Some(term) => TreeRoot::decode(term).ok_or(DecodeError::Field(name)),
        }
    }

    fn read(&self, disk_version: u8) -> Result<DbHeader, DecodeError> {
        let id = self.tree(5, "id_tree_state")?;
        let seq = self.tree(6, "seq_tree_state")?;
        let local = self.tree(7, "local_tree_state")?;
        let (purge, purge_seq_tree, purge_root, purge_seq, purges);
        if disk_version < PURGE_TREES {
            (purge, purge_seq_tree) = (TreeRoot::EMPTY, TreeRoot::EMPTY);
            let first = self.number_or(8, "purge_seq", 0)?;
            let list = self.get(9).map(|at| at.number().ok_or(DecodeError::Field("purged_docs")));
            purge_root = list.transpose()?.map(|at| PurgeRoot::List { at, first });
            purge_seq = if purge_root.is_none() { Some(first) } else { None };
            purges = if first == 0 { Some(0) } else { None };
        } else {
            purge = self.tree(8, "purge_tree_state")?;
            purge_seq_tree = self.tree(9, "purge_seq_tree_state")?;
            purge_root = purge_seq_tree.position.map(PurgeRoot::Tree);
            purge_seq = if purge_root.is_none() { Some(0) } else { None };
            purges = purge_seq_tree.reduction.map_or(Some(0), Term::number);
        }
        let counts = DocSums::of(id);
        let trees = Trees {
            id: id.tree,
            seq: seq.tree,
            local: local.tree,
            purge: purge.tree,
            purge_seq: purge_seq_tree.tree,
        };
        let all = [trees.id, trees.seq, trees.local, trees.purge, trees.purge_seq];
        Ok(DbHeader {
            disk_version,
            fields: self.count,
            update_seq: self.required(3, "update_seq")?,
            compacted_seq: self.number_or(14, "compacted_seq", 0)?,
            docs: counts.docs,
            deleted_docs: counts.deleted,
            active: all
                .iter()
                .try_fold(counts.active, |sum, tree| {
                    Some(sum.zip(tree.bytes()).and_then(|(sum, bytes)| sum.checked_add(bytes)))
                })
                .flatten(),
            external: counts.external,
            uuid: self.get(12).map(uuid).transpose()?,
            epochs: self
                .get(13)
                .map_or(Some(Vec::new()), epochs)
                .ok_or(DecodeError::Field("epochs"))?,
            trees,
            purge_seq,
            purge_root,
            roots: Roots {
                id: id.position,
                seq: seq.position,
                local: local.position,
                purge: purge.position,
                purge_seq: purge_seq_tree.position,
                security: self.get(10).and_then(Term::number),
                props: self.get(16).and_then(Term::number),
            },
            purges,
            purge_infos_limit: self.number_or(15, "purge_infos_limit", DEFAULT_LIMIT)?,
            revs_limit: self.number_or(11, "revs_limit", DEFAULT_LIMIT)?,
        })
    }
}

/// Whether a term stands for a missing value in Erlang.
fn is_absent(term: Term<'_>) -> bool {
    term.is_atom("undefined") || term.is_atom("nil")
}

fn uuid(term: Term<'_>) -> Result<String, DecodeError> {
    term.binary()
        .filter(|bytes| bytes.len() <= MAX_UUID_BYTES)
        .and_then(|bytes| str::from_utf8(bytes).ok())
        .map(str::to_owned)
        .ok_or(DecodeError::Field("uuid"))
}

fn epochs(term: Term<'_>) -> Option<Vec<Epoch>> {
    let epoch = |term: Term<'_>| {
        let mut pair = term.tuple().filter(|pair| pair.len() == 2)?;
        let node = pair.next()?.atom()?;
        // Atoms are Latin-1 if they are not UTF-8.
        let node = str::from_utf8(node)
            .map_or_else(|_| node.iter().copied().map(char::from).collect(), str::to_owned);
        Some(Epoch { node, since: pair.next()?.number()? })
    };
    term.bounded_list(MAX_EPOCHS)?.map(epoch).collect()
}

/// The sums in the root of the tree of ids.
struct DocSums {
    docs: Option<u64>,
    deleted: Option<u64>,
    active: Option<u64>,
    external: Option<u64>,
}

impl DocSums {
    fn of(id: TreeRoot<'_>) -> Self {
        let unknown = Self { docs: None, deleted: None, active: None, external: None };
        if id.tree == TreeSize::Empty {
            return Self { docs: Some(0), deleted: Some(0), active: Some(0), external: Some(0) };
        }
        let Some(mut parts) = id.reduction.and_then(Term::tuple) else { return unknown };
        let docs = parts.next().and_then(Term::number);
        let deleted = parts.next().and_then(Term::number);
        let (active, external) = match parts.next() {
            // CouchDB stored no sizes before 1.2, and no external size until 1.6; it then uses zero itself.
            None => (None, Some(0)),
            Some(sizes) => match sizes.tuple() {
                None => {
                    let active = sizes.number();
                    (active, active.map(|_| 0))
                }
                Some(mut sizes) => {
                    // `{size_info, Active, External}`, or the same without the atom.
                    if sizes.len() == 3 {
                        sizes.next();
                    }
                    (sizes.next().and_then(Term::number), sizes.next().and_then(Term::number))
                }
            },
        };
        Self { docs, deleted, active, external }
    }
}

/// The node that owns a file from a sequence on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// The node's name.
    pub node: String,
    /// The sequence from which it owns the file.
    pub since: u64,
}

/// The trees of a database file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trees {
    /// Documents by id.
    pub id: TreeSize,
    /// Documents by sequence.
    pub seq: TreeSize,
    /// `_local` documents, bodies included.
    pub local: TreeSize,
    /// Purges by UUID.
    pub purge: TreeSize,
    /// Purges by sequence.
    pub purge_seq: TreeSize,
}

/// The number of bytes in a tree's nodes that are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeSize {
    /// The tree is empty.
    Empty,
    /// Number of bytes.
    Bytes(u64),
    /// Written by CouchDB before 1.2, which does not count bytes.
    Unknown,
}

impl TreeSize {
    /// The number of bytes; `None` if it is unknown.
    #[must_use]
    pub const fn bytes(self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Bytes(bytes) => Some(bytes),
            Self::Unknown => None,
        }
    }
}

/// The state of a tree in a header.
#[derive(Clone, Copy, Debug)]
pub(super) struct TreeRoot<'a> {
    pub(super) tree: TreeSize,
    /// The offset of its root; `None` for an empty tree.
    pub(super) position: Option<u64>,
    /// The reduction of the whole tree; `None` for an empty tree.
    pub(super) reduction: Option<Term<'a>>,
}

impl<'a> TreeRoot<'a> {
    pub(super) const EMPTY: Self = Self { tree: TreeSize::Empty, position: None, reduction: None };

    /// `nil`, `{Position, Reduction, Bytes}`, or before CouchDB 1.2 `{Position, Reduction}`.
    pub(super) fn decode(term: Term<'a>) -> Option<Self> {
        if is_absent(term) {
            return Some(Self::EMPTY);
        }
        let mut parts = term.tuple().filter(|parts| matches!(parts.len(), 2 | 3))?;
        let position = Some(parts.next()?.number()?);
        let reduction = Some(parts.next()?);
        let tree = match parts.next() {
            None => TreeSize::Unknown,
            Some(bytes) => TreeSize::Bytes(bytes.number()?),
        };
        Some(Self { tree, position, reduction })
    }
}
