//! The header of a view index.
//!
//! Owns its forms from CouchDB 1.2 to 3.5 and the sizes derived from it, as `couch_mrview_util`
//! computes them. Never finds or checks the header.

use super::{
    DecodeError, EmptyGroupBytes, TreeSize,
    db::TreeRoot,
    term::{Elements, Term},
};
use couchdb_names::Signature;
use std::iter::zip;

/// The size that CouchDB counts for `[]`, the reductions of a group without reduces.
const EMPTY_REDUCTION_BYTES: u64 = 2;

/// Maximum number of view groups in an index.
const MAX_GROUPS: usize = 100_000;
/// Maximum number of collator versions that it names.
const MAX_COLLATORS: usize = 1000;
/// Maximum number of parts of such a version; ICU's have four.
const MAX_VERSION_PARTS: usize = 16;

/// The content of a view index's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewHeader {
    /// The signature of the definition the index was built for; it also names the file.
    pub signature: Signature,
    /// The index; `None` if it was opened or reset without a commit since.
    pub committed: Option<CommittedIndex>,
}

/// A committed view index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedIndex {
    /// The form of its header.
    pub form: IndexForm,
    /// The last indexed sequence.
    pub update_seq: u64,
    /// The last processed purge.
    pub purge_seq: u64,
    /// Active bytes: those of its trees. Unknown if one of them does not count its bytes.
    pub active: Option<u64>,
    /// Uncompressed bytes of the rows, as CouchDB estimates them. A group without rows counts as
    /// two bytes here, for `[]`; CouchDB's number depends on its reduces: see `external_with`.
    pub external: Option<u64>,
    /// The tree of documents, which maps each to its rows.
    pub id_tree: TreeSize,
    /// Groups of views that share map and options, in the order of [`super::Design::groups`].
    pub views: Vec<ViewGroup>,
    /// Number of groups without rows.
    pub empty_groups: usize,
    /// Versions of the ICU collation that rows were sorted with, such as `153.120`; two or more
    /// are a mix that only a compaction removes. Empty if the format does not contain them.
    pub collators: Vec<String>,
    /// The positions of its trees.
    pub(super) roots: IndexRoots,
}

/// The positions of an index's trees; `None` if a tree is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IndexRoots {
    pub(super) id: Option<u64>,
    /// For each group of views.
    pub(super) views: Vec<Option<u64>>,
    /// Trees of changes that CouchDB 2 kept besides the rows.
    pub(super) changes: Vec<u64>,
}

/// The forms of a committed index's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexForm {
    /// CouchDB 1.2.
    V1_2,
    /// CouchDB 1.3 to 1.6, and 3.0 to 3.2.
    Plain,
    /// CouchDB 2: with the position of a tree of changes.
    V2,
    /// Since CouchDB 3.3: with collator versions.
    Current,
}

/// Views that share map and options, and therefore one tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewGroup {
    /// The tree of its rows.
    pub tree: TreeSize,
    /// Number of rows.
    pub rows: Option<u64>,
    /// Number of reduces; unknown without rows.
    pub reduces: Option<usize>,
    /// Uncompressed bytes of its rows; `None` if unknown or if it has none.
    pub external: Option<u64>,
}

impl ViewHeader {
    /// Decodes the pair of a signature and CouchDB's `mrheader`, or `nil`.
    ///
    /// # Errors
    ///
    /// If it is not such a pair.
    pub(super) fn decode(signature: [u8; 16], header: Term<'_>) -> Result<Self, DecodeError> {
        let committed =
            if header.is_atom("nil") { None } else { Some(CommittedIndex::decode(header)?) };
        Ok(Self { signature: Signature(signature), committed })
    }
}

impl CommittedIndex {
    fn decode(header: Term<'_>) -> Result<Self, DecodeError> {
        let fields: Vec<Term<'_>> = header
            .tuple()
            .filter(|fields| matches!(fields.len(), 5 | 6))
            .ok_or(DecodeError::NotAHeader)?
            .collect();
        let [name, update_seq, purge_seq, id_tree, middle @ .., groups] = fields.as_slice() else {
            return Err(DecodeError::NotAHeader);
        };
        let info = middle.first().copied();
        let form = match info {
            None if name.is_atom("index_header") => IndexForm::V1_2,
            _ if !name.is_atom("mrheader") => return Err(DecodeError::NotAHeader),
            None => IndexForm::Plain,
            Some(info) if info.map().is_some() => IndexForm::Current,
            Some(_) => IndexForm::V2,
        };
        let id_root = TreeRoot::decode(*id_tree).ok_or(DecodeError::Field("id_btree_state"))?;
        let id_tree = id_root.tree;
        let mut roots = IndexRoots { id: id_root.position, views: Vec::new(), changes: Vec::new() };
        // CouchDB 2 kept a log of changes.
        roots.changes.extend(info.and_then(TreeRoot::decode).and_then(|log| log.position));
        let views: Vec<ViewGroup> = groups
            .bounded_list(MAX_GROUPS)
            .and_then(|groups| groups.map(|group| ViewGroup::decode(group, &mut roots)).collect())
            .ok_or(DecodeError::Field("view_states"))?;
        let sum = |of: &dyn Fn(&ViewGroup) -> Option<u64>, first: Option<u64>| {
            views.iter().map(of).fold(first, |sum, next| sum?.checked_add(next?))
        };
        let external = |group: &ViewGroup| match group.tree {
            TreeSize::Empty => Some(EMPTY_REDUCTION_BYTES),
            TreeSize::Bytes(_) | TreeSize::Unknown => group.external,
        };
        Ok(Self {
            form,
            update_seq: update_seq.number().ok_or(DecodeError::Field("seq"))?,
            purge_seq: purge_seq.number().ok_or(DecodeError::Field("purge_seq"))?,
            active: sum(&|group| group.tree.bytes(), id_tree.bytes()),
            external: sum(&external, Some(0)),
            id_tree,
            empty_groups: views.iter().filter(|group| group.tree == TreeSize::Empty).count(),
            collators: info.and_then(Term::map).map_or_else(Vec::new, collators),
            views,
            roots,
        })
    }

    /// The external size including the bytes that CouchDB adds for groups without rows, given for each group
    /// ([`super::Design::groups`]). `None` if the size of one is unknown.
    #[must_use]
    pub fn external_with(&self, empty: &[EmptyGroupBytes]) -> Option<u64> {
        if empty.len() != self.views.len() {
            return None;
        }
        zip(&self.views, empty).try_fold(0_u64, |sum, (group, empty)| {
            let bytes = if group.tree == TreeSize::Empty { *empty } else { group.external };
            sum.checked_add(bytes?)
        })
    }
}

impl ViewGroup {
    /// `{Tree, …}` since CouchDB 1.3; `nil` before, for a group without rows.
    fn decode(state: Term<'_>, roots: &mut IndexRoots) -> Option<Self> {
        let root = match state.tuple() {
            None if state.is_atom("nil") => TreeRoot::EMPTY,
            None => return None,
            Some(mut fields) => {
                let root = TreeRoot::decode(fields.next()?)?;
                // `{Tree, Changes, ChangesByKey, Seq, PurgeSeq}` in CouchDB 2.
                if fields.len() == 4 {
                    let more = fields.take(2).filter_map(TreeRoot::decode);
                    roots.changes.extend(more.filter_map(|tree| tree.position));
                }
                root
            }
        };
        roots.views.push(root.position);
        let mut reduction = root.reduction.and_then(Term::tuple);
        let mut next = || reduction.as_mut().and_then(Elements::next);
        let (rows, reduces, external) = (next(), next(), next());
        let rows = if root.tree == TreeSize::Empty { Some(0) } else { rows.and_then(Term::number) };
        Some(Self {
            tree: root.tree,
            rows,
            reduces: reduces.and_then(Term::list).map(|reduces| reduces.len()),
            // Not counted before CouchDB 2; CouchDB itself then uses zero.
            external: match external {
                None => rows.filter(|_| root.tree != TreeSize::Empty).map(|_| 0),
                Some(bytes) => bytes.number(),
            },
        })
    }
}

/// Formats the versions in `#{ucol_vs => [{153, 120, 0, 0}, …]}` as CouchDB prints them.
fn collators(mut info: Elements<'_>) -> Vec<String> {
    while let (Some(key), Some(versions)) = (info.next(), info.next()) {
        if key.is_atom("ucol_vs") {
            return versions
                .bounded_list(MAX_COLLATORS)
                .map(|all| all.filter_map(version).collect())
                .unwrap_or_default();
        }
    }
    Vec::new()
}

/// Formats a version without trailing zeros.
fn version(parts: Term<'_>) -> Option<String> {
    let parts = parts.tuple().or_else(|| parts.list())?;
    let parts = Some(parts).filter(|parts| parts.len() <= MAX_VERSION_PARTS)?;
    let parts: Vec<u64> = parts.map(Term::number).collect::<Option<_>>()?;
    let used = parts.iter().rposition(|part| *part != 0).map_or(0, |at| at + 1);
    let parts: Vec<String> = parts.iter().take(used).map(u64::to_string).collect();
    Some(parts.join("."))
}
