//! The nodes of a tree, from its first key to its last.
//!
//! Owns the walk and its bounds. A node refers only to nodes that were written before it, which
//! ends loops; and nodes do not overlap, so that a walk that has read more than the file contains
//! is one through a damaged file. Never knows what rows mean.

use super::{
    HeaderError,
    chunk::{Chunk, Compression, Reader},
    purge_seq::MAX_TREE_DEPTH,
    term::{Term, Tokens},
};

/// Maximum length of a node; rows of views and `_local` documents can be large.
pub(super) const MAX_NODE_BYTES: usize = 64 << 20;
/// Maximum total bytes of the nodes on the path to a leaf.
const MAX_PATH_BYTES: usize = 128 << 20;

/// A reference to a node: `{Position, Reduction, Bytes}`, or before CouchDB 1.2
/// `{Position, Reduction}`.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeRef<'a> {
    pub(super) at: u64,
    pub(super) reduction: Option<Term<'a>>,
    /// The reductions of the nodes above, from its parent's to the root's.
    above: &'a [Term<'a>],
    /// Bytes of the node and its subtree.
    pub(super) bytes: Option<u64>,
}

impl<'a> NodeRef<'a> {
    fn reductions(&self) -> Vec<Term<'a>> {
        self.reduction.into_iter().chain(self.above.iter().copied()).collect()
    }
}

/// An item of a walk.
pub(super) enum Visit<'a> {
    /// A node with references.
    Inner { at: u64, stored: u64 },
    /// A node with rows.
    Leaf(Leaf<'a>),
    /// A node that cannot be read, with its subtree.
    Unreadable(NodeRef<'a>),
}

/// A node with rows: pairs of key and value.
pub(super) struct Leaf<'a> {
    pub(super) at: u64,
    /// Its bytes in the file.
    pub(super) stored: u64,
    /// The length of its term.
    pub(super) length: usize,
    pub(super) compression: Compression,
    /// The reductions of its rows and of the subtrees above it, without the root's, which the header holds.
    pub(super) reductions: Vec<Term<'a>>,
    /// In a sample: whether the simulated compaction uses it, which needs leaves in the frequency of the tree.
    pub(super) is_copied: bool,
    rows: Tokens<'a>,
    /// The number of its rows.
    pub(super) count: u32,
}

impl<'a> Leaf<'a> {
    fn of(from: &NodeRef<'a>, chunk: &Chunk, rows: Tokens<'a>, count: u32) -> Self {
        Self {
            at: from.at,
            stored: chunk.stored,
            length: chunk.term.len(),
            compression: chunk.compression,
            reductions: from.reductions(),
            is_copied: true,
            rows,
            count,
        }
    }

    /// Calls `row` with the key and the value of each row; `None` at a row of an unknown form.
    pub(super) fn each(&self, mut row: impl FnMut(Term<'a>, Term<'a>) -> Option<()>) -> Option<()> {
        let mut tokens = self.rows.clone();
        for _ in 0..self.count {
            if tokens.tuple()? != 2 {
                return None;
            }
            let key = tokens.next()?;
            row(key, tokens.next()?)?;
        }
        Some(())
    }
}

/// Why a walk ended early.
#[derive(Debug)]
pub(super) enum WalkError {
    Read(HeaderError),
    /// The nodes exceed the file, so some were read twice.
    Overlap,
}

/// Called with each item of a walk.
pub(super) type Visitor<'v> = dyn FnMut(&mut Reader<'_>, Visit<'_>) -> Result<(), WalkError> + 'v;

/// The path to a node.
#[derive(Clone, Copy, Default)]
struct Path {
    depth: usize,
    /// Bytes of the nodes above it.
    bytes: usize,
}

/// Visits all nodes of the tree at `root`; `budget` is the number of bytes of nodes that may still be read.
///
/// # Errors
///
/// If reading fails, or the nodes exceed the budget.
pub(super) fn walk(
    reader: &mut Reader<'_>,
    root: u64,
    budget: &mut u64,
    visit: &mut Visitor<'_>,
) -> Result<(), WalkError> {
    let root = NodeRef { at: root, reduction: None, above: &[], bytes: None };
    node(reader, root, Path::default(), budget, visit)
}

fn node(
    reader: &mut Reader<'_>,
    reference: NodeRef<'_>,
    path: Path,
    budget: &mut u64,
    visit: &mut Visitor<'_>,
) -> Result<(), WalkError> {
    let chunk = reader.chunk(reference.at, MAX_NODE_BYTES).map_err(WalkError::Read)?;
    let Some(chunk) = chunk else { return visit(reader, Visit::Unreadable(reference)) };
    let Some((is_leaf, count, mut tokens)) = open(&chunk.term) else {
        return visit(reader, Visit::Unreadable(reference));
    };
    *budget = budget.checked_sub(chunk.stored).ok_or(WalkError::Overlap)?;
    if is_leaf {
        return visit(reader, Visit::Leaf(Leaf::of(&reference, &chunk, tokens, count)));
    }
    visit(reader, Visit::Inner { at: reference.at, stored: chunk.stored })?;
    let below = Path { depth: path.depth + 1, bytes: path.bytes + chunk.term.len() };
    let above = reference.reductions();
    for _ in 0..count {
        let Some(inner) = inner_reference(&mut tokens, &above) else {
            // The rest of this node has an unknown form.
            let lost = NodeRef { reduction: None, bytes: None, ..reference };
            return visit(reader, Visit::Unreadable(lost));
        };
        let is_bounded = below.depth < MAX_TREE_DEPTH && below.bytes <= MAX_PATH_BYTES;
        if inner.at < reference.at && is_bounded {
            node(reader, inner, below, budget, visit)?;
        } else {
            visit(reader, Visit::Unreadable(inner))?;
        }
    }
    Ok(())
}

/// The number of rows of a tree, from the reductions in its root; `None` if they do not count rows, or cannot be read.
///
/// # Errors
///
/// If reading fails.
pub(super) fn rows(reader: &mut Reader<'_>, root: u64) -> Result<Option<u64>, WalkError> {
    let chunk = reader.chunk(root, MAX_NODE_BYTES).map_err(WalkError::Read)?;
    let Some(chunk) = chunk else { return Ok(None) };
    let Some((is_leaf, count, mut tokens)) = open(&chunk.term) else { return Ok(None) };
    if is_leaf {
        return Ok(Some(count.into()));
    }
    // The tree of ids counts live and deleted documents.
    let of_tuple = |reduction: Term<'_>| {
        let mut fields = reduction.tuple()?;
        let deleted = |field: Option<Term<'_>>| field.and_then(Term::number).unwrap_or_default();
        Some(fields.next()?.number()?.saturating_add(deleted(fields.next())))
    };
    let below = |reduction: Term<'_>| reduction.number().or_else(|| of_tuple(reduction));
    let mut rows = (0..count).map(|_| below(inner_reference(&mut tokens, &[])?.reduction?));
    Ok(rows.try_fold(0_u64, |sum, more| Some(sum.saturating_add(more?))))
}

/// Calls `visit` with a random leaf and the probability of choosing it: at each node, a reference is chosen in
/// proportion to the bytes below it. `None` if a node cannot be read.
///
/// # Errors
///
/// If reading fails.
pub(super) fn random_leaf<T>(
    reader: &mut Reader<'_>,
    root: u64,
    random: &mut dyn FnMut(u64) -> u64,
    visit: impl FnOnce(&mut Reader<'_>, Leaf<'_>, f64) -> Result<T, WalkError>,
) -> Result<Option<T>, WalkError> {
    let (mut at, mut probability) = (root, 1.0);
    let mut reductions: Vec<Vec<u8>> = Vec::new();
    for _ in 0..MAX_TREE_DEPTH {
        let chunk = reader.chunk(at, MAX_NODE_BYTES).map_err(WalkError::Read)?;
        let Some(chunk) = chunk else { return Ok(None) };
        let Some((is_leaf, count, mut tokens)) = open(&chunk.term) else { return Ok(None) };
        if is_leaf {
            let above: Vec<Term<'_>> =
                reductions.iter().rev().map(|it| Term::Encoded(it)).collect();
            let from = NodeRef { at, reduction: None, above: &above, bytes: None };
            let leaf = Leaf::of(&from, &chunk, tokens, count);
            return visit(reader, leaf, probability).map(Some);
        }
        let inner: Option<Vec<NodeRef<'_>>> =
            (0..count).map(|_| inner_reference(&mut tokens, &[])).collect();
        let Some(inner) = inner else { return Ok(None) };
        let bytes = |it: &NodeRef<'_>| it.bytes.unwrap_or_default();
        let all = inner.iter().map(bytes).fold(0, u64::saturating_add);
        let mut chosen = if all > 0 { random(all) } else { return Ok(None) };
        let next = inner.iter().find(|it| match chosen.checked_sub(bytes(it)) {
            Some(rest) => {
                chosen = rest;
                false
            }
            None => true,
        });
        let Some(next) = next.filter(|next| next.at < at) else { return Ok(None) };
        at = next.at;
        probability *= bytes(next) as f64 / all as f64;
        reductions.extend(next.reduction.map(|reduction| reduction.encoded().to_vec()));
    }
    Ok(None)
}

/// Whether a node is a leaf, the number of its elements, and the elements.
fn open(term: &[u8]) -> Option<(bool, u32, Tokens<'_>)> {
    let mut tokens = Tokens::of(term)?;
    if tokens.tuple()? != 2 {
        return None;
    }
    let kind = tokens.next()?;
    let is_leaf = kind.is_atom("kv_node");
    let count = tokens.list()?;
    (is_leaf || kind.is_atom("kp_node")).then_some((is_leaf, count, tokens))
}

/// The reference in the next element of a node: `{LastKey, Reference}`.
fn inner_reference<'a>(tokens: &mut Tokens<'a>, above: &'a [Term<'a>]) -> Option<NodeRef<'a>> {
    if tokens.tuple()? != 2 {
        return None;
    }
    let _last_key = tokens.next()?;
    let parts = tokens.tuple().filter(|parts| matches!(parts, 2 | 3))?;
    let at = tokens.number()?;
    let reduction = tokens.next()?;
    // Trees that CouchDB before 1.2 wrote do not count their bytes.
    let bytes = if parts == 3 { tokens.next()?.number() } else { None };
    Some(NodeRef { at, reduction: Some(reduction), above, bytes })
}
