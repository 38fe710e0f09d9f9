//! The X-ray of a database file.
//!
//! Owns which part a row and a revision belong to. The order in which trees are read is the order
//! in which a compaction writes them.

use super::{
    attachments::SeenAttachments,
    body::{Body, has_fields},
    compaction::DbCompaction,
    parts::{Part, Parts},
    purges::purges,
    walk::{Shares, Walk, XrayError},
};
use crate::{
    DbHeader,
    chunk::{Compression, Reader},
    compacted::Reduction,
    revisions::{DocRow, DocTree, Revision},
    term::Term,
    tree::{NodeRef, WalkError},
};

/// Attributes the bytes of a database; returns its size after a compaction.
pub(super) fn xray(walk: &mut Walk<'_>, db: &DbHeader, record: u64) -> Result<u64, XrayError> {
    let mut compaction = DbCompaction::new(db, record, walk.reader.size());
    purges(walk, db, &mut compaction)?;
    let weight = docs_by_seq(walk, db, &mut compaction)?;
    let terms = walk.term(db.roots.security)? + walk.term(db.roots.props)?;
    compaction.end_docs(&mut walk.reader, weight, terms)?;
    docs_by_id(walk, db, &mut compaction)?;
    let mut compression = Compression::Snappy;
    let local = (db.roots.local, db.trees.local);
    let weight = walk.tree(local, |_| 0, &mut |_, parts, leaf| {
        compression = leaf.compression;
        let mut shares = Shares::of(leaf);
        let done = leaf.each(|id, value| {
            parts.add(Part::LocalDocuments, shares.take(id, value), 1);
            if leaf.is_copied {
                compaction.row(id, value, Reduction::Nothing);
            }
            Some(())
        });
        shares.finish(parts, done);
        Ok(())
    })?;
    Ok(compaction.finish(compression, weight))
}

/// Returns the number of documents that each read document stands for.
fn docs_by_seq(
    walk: &mut Walk<'_>,
    db: &DbHeader,
    compaction: &mut DbCompaction,
) -> Result<f64, XrayError> {
    let weight = walk.tree((db.roots.seq, db.trees.seq), |_| 0, &mut |reader, parts, leaf| {
        let mut shares = Shares::of(leaf);
        let (mut row, mut failed) = (DocRow::default(), Ok(()));
        let done = leaf.each(|key, value| {
            row.read(DocTree::Seq, key, value)?;
            add_row(parts, &mut shares, &row, (key, value), 0);
            if leaf.is_copied {
                failed = bytes_beside(reader, &row).map(|bytes| parts.beside_rows += bytes);
            }
            if leaf.is_copied && failed.is_ok() {
                failed = compaction.doc(reader, &row, (key, value), leaf.compression);
            }
            failed.is_ok().then_some(())
        });
        failed?;
        shares.finish(parts, done);
        Ok(())
    })?;
    Ok(weight)
}

/// The bytes of the bodies and attachments that a compaction copies of a document.
fn bytes_beside(reader: &mut Reader<'_>, row: &DocRow<'_>) -> Result<u64, WalkError> {
    let mut bytes = 0_u64;
    let leaves = row.revisions.iter().filter(|revision| revision.leaf);
    for content in leaves.filter_map(|revision| revision.content) {
        let body = Body::of(reader, content)?;
        bytes = bytes.saturating_add(body.stored);
        body.each_attachment(|attachment| bytes = bytes.saturating_add(attachment.length));
    }
    Ok(bytes)
}

fn docs_by_id(
    walk: &mut Walk<'_>,
    db: &DbHeader,
    compaction: &mut DbCompaction,
) -> Result<(), XrayError> {
    let mut seen = SeenAttachments::default();
    let is_sampled = walk.sample.is_some();
    let active = |node: &NodeRef<'_>| active_bytes(node).unwrap_or_default();
    let weight = walk.tree((db.roots.id, db.trees.id), active, &mut |reader, parts, leaf| {
        if is_sampled {
            // A sample may contain a leaf twice.
            seen = SeenAttachments::default();
        }
        let mut shares = Shares::of(leaf);
        let (mut row, mut failed) = (DocRow::default(), Ok(()));
        let done = leaf.each(|key, value| {
            row.read(DocTree::Id, key, value)?;
            add_row(parts, &mut shares, &row, (key, value), 1);
            failed = add_revisions(reader, parts, &mut seen, &row);
            if leaf.is_copied && failed.is_ok() {
                failed = compaction.id_row(reader, &row);
            }
            failed.is_ok().then_some(())
        });
        failed?;
        shares.finish(parts, done);
        Ok(())
    })?;
    compaction.end_ids(weight);
    walk.exact &= !seen.is_overfull;
    Ok(())
}

/// The bytes of bodies and attachments below a node of the tree of ids, as CouchDB counts them.
fn active_bytes(node: &NodeRef<'_>) -> Option<u64> {
    let sizes = node.reduction?.tuple()?.nth(2)?;
    let Some(mut fields) = sizes.tuple() else { return sizes.number() };
    if fields.len() == 3 {
        fields.next();
    }
    fields.next()?.number()
}

/// Adds a document's row; `count` is one in only one of the two trees, so that the document counts once.
fn add_row(
    parts: &mut Parts,
    shares: &mut Shares,
    row: &DocRow<'_>,
    (key, value): (Term<'_>, Term<'_>),
    count: u64,
) {
    if row.deleted {
        parts.add(Part::TombstoneRows, shares.take(key, value), count);
    } else {
        let part = Part::of_revisions(row.revisions.len());
        parts.add(part, shares.take_bytes(row.tree_bytes), count);
    }
}

/// Adds the bodies and attachments of a document.
fn add_revisions(
    reader: &mut Reader<'_>,
    parts: &mut Parts,
    seen: &mut SeenAttachments,
    row: &DocRow<'_>,
) -> Result<(), WalkError> {
    let winner = row.winner();
    // Leaves first: attachments that a replaced revision shares with one are not dead.
    for is_leaf in [true, false] {
        for (index, revision) in row.revisions.iter().enumerate() {
            let Revision { leaf, content: Some(content), .. } = *revision else { continue };
            if leaf != is_leaf {
                continue;
            }
            let body = Body::of(reader, content)?;
            let part = match (leaf, content.deleted, winner == Some(index)) {
                (false, ..) => Part::DeadBodies,
                (true, false, true) => Part::WinningBodies,
                (true, false, false) => Part::ConflictBodies,
                (true, true, false) => Part::DeletedConflicts,
                (true, true, true) if has_fields(reader, content.at, body.stored)? => {
                    Part::TombstonesWithBody
                }
                (true, true, true) => Part::TombstonesWithoutBody,
            };
            if body.is_lost && leaf {
                parts.add(Part::Unreadable, body.stored, 1);
                continue;
            }
            parts.add(part, body.stored, 1);
            if leaf {
                parts.reach(content.at, body.stored);
            }
            body.each_attachment(|attachment| seen.add(parts, attachment, leaf));
        }
    }
    Ok(())
}
