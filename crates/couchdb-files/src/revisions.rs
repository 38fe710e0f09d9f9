//! The revisions of one document, as the trees of ids and of sequences store them.
//!
//! Owns the form of a row of these trees in every disk version (`couch_bt_engine:id_tree_join/2`,
//! `seq_tree_join/2`, `rev_tree/1`). Never reads a body.

use super::term::{Term, Tokens};

/// A document in a row of a tree.
#[derive(Debug, Default)]
pub(super) struct DocRow<'a> {
    pub(super) id: &'a [u8],
    pub(super) seq: u64,
    pub(super) deleted: bool,
    /// Its revisions, parents first.
    pub(super) revisions: Vec<Revision<'a>>,
    /// The length of the encoded tree of revisions.
    pub(super) tree_bytes: usize,
}

/// One revision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Revision<'a> {
    /// Its number, which begins with one.
    pub(super) depth: u64,
    /// Its hash as a term.
    pub(super) id: Term<'a>,
    /// Index of the parent revision; `None` if the parent is not stored.
    pub(super) parent: Option<usize>,
    /// Whether it has no successor.
    pub(super) leaf: bool,
    /// Its content; `None` if only its id is known.
    pub(super) content: Option<Content<'a>>,
}

/// The content of a revision: body and attachments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content<'a> {
    pub(super) deleted: bool,
    /// The position of its body.
    pub(super) at: u64,
    pub(super) seq: u64,
    /// Bytes of the body in the file, and uncompressed bytes; `None` if the sizes do not cover the body alone, as
    /// before CouchDB 2, where `attachments` is missing too.
    pub(super) bytes: Option<(u64, u64)>,
    /// A list of `{Chunks, Length}`.
    pub(super) attachments: Option<Term<'a>>,
}

/// The tree that a row belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DocTree {
    Id,
    Seq,
}

impl<'a> DocRow<'a> {
    /// Reads a row into `self`, whose memory is reused. `None` if it has another form.
    pub(super) fn read(&mut self, tree: DocTree, key: Term<'a>, value: Term<'a>) -> Option<()> {
        self.revisions.clear();
        let mut tokens = Tokens::within(value.encoded());
        let fields = tokens.tuple().filter(|fields| matches!(fields, 3 | 4))?;
        let other = tokens.next()?;
        let (id, seq) = match tree {
            DocTree::Id => (key, other),
            DocTree::Seq => (other, key),
        };
        (self.id, self.seq) = (id.binary()?, seq.number()?);
        let deleted = tokens.next()?;
        if tree == DocTree::Seq && deleted.number().is_none() {
            // Before CouchDB 1.2: `{Id, Revisions, DeletedRevisions}`, only leaves.
            let before = tokens.rest();
            let leaves = |list: Term<'a>, deleted| -> Option<Vec<Revision<'a>>> {
                list.list()?.map(|leaf| old_leaf(leaf, deleted)).collect()
            };
            let (live, gone) = (leaves(deleted, false)?, leaves(tokens.next()?, true)?);
            self.tree_bytes = deleted.encoded().len() + before.len();
            self.deleted = live.is_empty();
            self.revisions.extend(live.into_iter().chain(gone));
            return Some(());
        }
        self.deleted = deleted.number()? != 0;
        if fields == 4 {
            let _sizes = tokens.next()?;
        }
        self.tree_bytes = tokens.rest().len();
        self.read_tree(&mut tokens)
    }

    /// `[{Depth, {Id, Content, Children}}]`, nested once per revision.
    fn read_tree(&mut self, tokens: &mut Tokens<'a>) -> Option<()> {
        struct Level {
            left: u32,
            parent: Option<usize>,
        }
        let mut levels = vec![Level { left: tokens.list()?, parent: None }];
        let mut is_empty = levels.first().is_some_and(|level| level.left == 0);
        while let Some(level) = levels.last_mut() {
            if level.left == 0 {
                if !is_empty {
                    tokens.end()?;
                }
                is_empty = false;
                levels.pop();
                continue;
            }
            level.left -= 1;
            let parent = level.parent;
            let depth = match parent {
                Some(parent) => self.revisions.get(parent)?.depth.checked_add(1)?,
                None if tokens.tuple()? == 2 => tokens.number()?,
                None => return None,
            };
            if tokens.tuple()? != 3 {
                return None;
            }
            let id = tokens.next()?;
            let content = content(tokens)?;
            let children = tokens.list()?;
            self.revisions.push(Revision { depth, id, parent, leaf: children == 0, content });
            if children > 0 {
                levels.push(Level { left: children, parent: Some(self.revisions.len() - 1) });
            }
        }
        Some(())
    }

    /// The index of the winning revision: one that is not deleted wins over deleted ones, then the highest number, then
    /// the highest hash (`couch_doc:to_doc_info_path/1`).
    pub(super) fn winner(&self) -> Option<usize> {
        let rank = |revision: &Revision<'a>| {
            let deleted = revision.content.is_none_or(|content| content.deleted);
            (!deleted, revision.depth, revision.id.binary())
        };
        let leaves = self.revisions.iter().enumerate().filter(|(_, revision)| revision.leaf);
        leaves.max_by_key(|(_, revision)| rank(revision)).map(|(index, _)| index)
    }
}

/// `{Deleted, Position, Seq}`, `{…, Sizes}`, or `{…, Sizes, Attachments}`; `[]` for a revision without content. The
/// outer `None` means an unknown form.
fn content<'a>(tokens: &mut Tokens<'a>) -> Option<Option<Content<'a>>> {
    let Some(fields) = tokens.tuple() else {
        tokens.next()?;
        return Some(None);
    };
    if !matches!(fields, 3..=5) {
        for _ in 0..fields {
            tokens.next()?;
        }
        return Some(None);
    }
    let deleted = tokens.next()?;
    let (at, seq) = (tokens.next()?.number(), tokens.next()?.number());
    let mut sizes = if fields > 3 { tokens.next()?.tuple() } else { None };
    let attachments = if fields > 4 { Some(tokens.next()?) } else { None };
    let mut size = || sizes.as_mut()?.next()?.number();
    // A leaf that CouchDB 1 wrote and a later version rewrote has no external size and no attachments.
    let bytes = size().zip(size()).filter(|(_, external)| *external > 0 && attachments.is_some());
    let content = |at| Content {
        deleted: deleted.number() == Some(1) || deleted.is_atom("true"),
        at,
        seq: seq.unwrap_or_default(),
        bytes,
        attachments: attachments.filter(|_| bytes.is_some()),
    };
    Some(at.map(content))
}

/// `{{Depth, Id}, Seq, Position}`.
fn old_leaf(term: Term<'_>, deleted: bool) -> Option<Revision<'_>> {
    let mut fields = term.tuple()?;
    let mut revision = fields.next()?.tuple()?;
    let (depth, id) = (revision.next()?.number()?, revision.next()?);
    let (seq, at) = (fields.next()?.number()?, fields.next()?.number()?);
    let content = Content { deleted, at, seq, bytes: None, attachments: None };
    Some(Revision { depth, id, parent: None, leaf: true, content: Some(content) })
}
