//! The X-ray of a view index.
//!
//! Owns the rows of the tree of documents and of views, and what a compaction writes of them: all
//! rows as they are, in the same order (`couch_mrview_compactor`).

use super::{
    parts::Part,
    walk::{Shares, Walk, XrayError},
};
use crate::{
    TreeSize, ViewHeader,
    chunk::Compression,
    compacted::{AppendTree, CompactedFile, Item, Reduction},
    term::Term,
};
use std::rc::Rc;

/// `[view_compaction] keyvalue_buffer_size`.
const BUFFER_BYTES: usize = 2 << 20;

/// Bytes of a header without an index: `{Signature, nil}`.
const EMPTY_HEADER: u64 = 51;

/// The encoded reduction of the tree of documents: `[]`.
const NOTHING: &[u8] = &[106];

/// Attributes the bytes of an index; returns its size after a compaction.
pub(super) fn xray(walk: &mut Walk<'_>, view: &ViewHeader, record: u64) -> Result<u64, XrayError> {
    let mut file = CompactedFile::default();
    file.header(EMPTY_HEADER);
    let Some(index) = &view.committed else { return Ok(file.end) };
    copy(walk, (index.roots.id, index.id_tree), Part::ViewIdRows, &mut file)?;
    for (root, group) in index.roots.views.iter().zip(&index.views) {
        copy(walk, (*root, group.tree), Part::ViewRows, &mut file)?;
    }
    for root in &index.roots.changes {
        // A compaction drops these trees.
        let tree = (Some(*root), TreeSize::Unknown);
        copy(walk, tree, Part::TreeNodes, &mut CompactedFile::default())?;
    }
    file.header(record);
    // The swap commits another header.
    file.header(record);
    Ok(file.end)
}

/// Attributes the rows of a tree to a part, and appends them to the new file.
fn copy(
    walk: &mut Walk<'_>,
    root: (Option<u64>, TreeSize),
    part: Part,
    file: &mut CompactedFile,
) -> Result<(), XrayError> {
    let (mut rows, mut buffered) = (Vec::new(), 0);
    let before = file.end;
    let mut tree: Option<AppendTree> = None;
    let weight = walk.tree(root, |_| 0, &mut |_, parts, leaf| {
        let tree = tree.get_or_insert_with(|| AppendTree::new(leaf.compression));
        let counted = |reduction: &Term<'_>| {
            let rows = reduction.tuple().and_then(|mut fields| fields.next()?.number());
            (rows.unwrap_or_default(), reduction.encoded().to_vec())
        };
        let others: Rc<[(u64, Vec<u8>)]> = leaf.reductions.iter().map(counted).collect();
        let reduction = match others.first() {
            None => Reduction::Nothing,
            Some((_, first)) if first == NOTHING => Reduction::Nothing,
            Some(_) => Reduction::Like { others, rows: 1 },
        };
        let mut shares = Shares::of(leaf);
        let done = leaf.each(|key, value| {
            parts.add(part, shares.take(key, value), u64::from(part != Part::TreeNodes));
            if !leaf.is_copied {
                return Some(());
            }
            let row = Item::row(key.encoded(), reduction.clone(), |out| {
                out.encoded(value.encoded());
            });
            buffered += row.length();
            rows.push(row);
            if buffered >= BUFFER_BYTES {
                tree.add(file, std::mem::take(&mut rows));
                buffered = 0;
            }
            Some(())
        });
        shares.finish(parts, done);
        Ok(())
    })?;
    tree.unwrap_or_else(|| AppendTree::new(Compression::None)).add(file, rows);
    file.scale(before, weight);
    Ok(())
}
