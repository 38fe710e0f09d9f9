//! The nodes of a tree, from its first key to its last.
//!
//! Owns the walk and its bounds. A node refers only to nodes that were written before it, which
//! ends loops; and nodes do not overlap, so that a walk that has read more than the file contains
//! is one through a damaged file. Never knows what rows mean.

use super::{
    HeaderError,
    chunk::{Compression, Reader},
    purge_seq::MAX_TREE_DEPTH,
    term::{Term, Tokens},
};

/// Maximum length of a node; rows of views and `_local` documents can be large.
pub(super) const MAX_NODE_BYTES: usize = 64 << 20;
/// Maximum number of bytes of the nodes on the way to a leaf.
const MAX_PATH_BYTES: usize = 128 << 20;

/// A reference to a node: `{Position, Reduction, Bytes}`, or before CouchDB 1.2
/// `{Position, Reduction}`.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeRef<'a> {
    pub(super) at: u64,
    pub(super) reduction: Option<Term<'a>>,
    /// Bytes of the node and all below it.
    pub(super) bytes: Option<u64>,
}

/// What a walk meets.
pub(super) enum Visit<'a> {
    /// A node with references.
    Inner { at: u64, stored: u64 },
    /// A node with rows.
    Leaf(Leaf<'a>),
    /// A node that cannot be read, with everything below it.
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
    /// The reduction of its rows; `None` in a tree of one node, where the header has it.
    pub(super) reduction: Option<Term<'a>>,
    rows: Tokens<'a>,
    count: u32,
}

impl<'a> Leaf<'a> {
    /// Calls `row` with the key and the value of each row; `None` if one has another form.
    pub(super) fn each(
        &self,
        mut row: impl FnMut(Term<'a>, Term<'a>) -> Option<()>,
    ) -> Option<()> {
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
    /// The nodes exceed the file: some were read twice.
    Overlap,
}

/// What a walk calls with everything it meets.
pub(super) type Visitor<'v> =
    dyn FnMut(&mut Reader<'_>, Visit<'_>) -> Result<(), WalkError> + 'v;

/// The way to a node.
#[derive(Clone, Copy, Default)]
struct Path {
    depth: usize,
    /// Bytes of the nodes above it.
    bytes: usize,
}

/// Visits all nodes of the tree with its root at `root`; `budget` are the bytes of nodes that may
/// still be read.
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
    let root = NodeRef { at: root, reduction: None, bytes: None };
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
        let leaf = Leaf {
            at: reference.at,
            stored: chunk.stored,
            length: chunk.term.len(),
            compression: chunk.compression,
            reduction: reference.reduction,
            rows: tokens,
            count,
        };
        return visit(reader, Visit::Leaf(leaf));
    }
    visit(reader, Visit::Inner { at: reference.at, stored: chunk.stored })?;
    let below = Path { depth: path.depth + 1, bytes: path.bytes + chunk.term.len() };
    for _ in 0..count {
        let Some(inner) = inner_reference(&mut tokens) else {
            // The rest of this node has an unknown form.
            let lost = NodeRef { at: reference.at, reduction: None, bytes: None };
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
fn inner_reference<'a>(tokens: &mut Tokens<'a>) -> Option<NodeRef<'a>> {
    if tokens.tuple()? != 2 {
        return None;
    }
    let _last_key = tokens.next()?;
    let parts = tokens.tuple().filter(|parts| matches!(parts, 2 | 3))?;
    let at = tokens.number()?;
    let reduction = tokens.next()?;
    // Trees that CouchDB before 1.2 wrote do not count their bytes.
    let bytes = if parts == 3 { tokens.next()?.number() } else { None };
    Some(NodeRef { at, reduction: Some(reduction), bytes })
}
