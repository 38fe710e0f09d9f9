//! The remembered purges of a database, and which of them a compaction forgets.
//!
//! A compaction forgets the purges up to a number, so that as many stay as the limit allows, but none that a
//! checkpoint has yet to see (`couch_db:get_minimum_purge_seq/1`). Since 3.5.2 it forgets only the first one while a
//! checkpoint of some other copy is missing (`mem3_rep:have_all_purge_checkpoints/1`). A checkpoint names the copy
//! that it is of as its target; that it was written by the other side, and so names this node instead, counts as
//! missing too.

use super::{
    compaction::DbCompaction,
    parts::Part,
    walk::{Shares, Walk, XrayError},
};
use crate::{
    DbHeader,
    chunk::{Compression, Reader},
    compacted::Reduction,
    term::Term,
    tree::{self, Visit},
};
use std::collections::BTreeSet;

/// Ids of checkpoints of purges, and of those of other copies of the shard.
const PREFIX: &str = "_local/purge-";
const COPY_PREFIX: &str = "_local/purge-mem3-";

/// Maximum bytes of nodes that are read to find checkpoints.
const MAX_BYTES: u64 = 64 << 20;

/// The trees of purges, by UUID and by sequence.
pub(super) fn purges(
    walk: &mut Walk<'_>,
    db: &DbHeader,
    compaction: &mut DbCompaction,
) -> Result<(), XrayError> {
    let last = crate::last_purge(walk.reader.source(), db).unwrap_or_default();
    let surplus = last.saturating_sub(db.purge_infos_limit);
    // Without a surplus nothing is forgotten, whatever the checkpoints say.
    let forgotten =
        if surplus == 0 { Some(0) } else { forgotten(&mut walk.reader, db, (surplus, last)) };
    walk.exact &= forgotten.is_some();
    let forgotten = forgotten.unwrap_or_default();
    let trees =
        [((db.roots.purge, db.trees.purge), 0), ((db.roots.purge_seq, db.trees.purge_seq), 1)];
    for (root, count) in trees {
        let weight = walk.tree(root, |_| 0, &mut |_, parts, leaf| {
            let mut shares = Shares::of(leaf);
            let done = leaf.each(|key, value| {
                parts.add(Part::PurgeInfos, shares.take(key, value), count);
                let seq = if count == 1 { key } else { value.tuple()?.next()? };
                if seq.number()? > forgotten && leaf.is_copied {
                    compaction.row(key, value, Reduction::Count(1));
                }
                Some(())
            });
            shares.finish(parts, done);
            Ok(())
        })?;
        compaction.end_tree(Compression::Snappy, weight);
    }
    Ok(())
}

/// One checkpoint of purges.
struct Checkpoint {
    purge_seq: Option<u64>,
    /// Source and target of a checkpoint of another copy.
    nodes: Option<[Vec<u8>; 2]>,
}

/// The number up to which a compaction forgets purges, of which `surplus` exceed the limit; `None` if the checkpoints
/// do not show it.
fn forgotten(reader: &mut Reader<'_>, db: &DbHeader, (surplus, last): (u64, u64)) -> Option<u64> {
    let first = last.saturating_sub(db.purges?).saturating_add(1);
    let checkpoints = checkpoints(reader, db)?;
    let seen: Option<Vec<u64>> = checkpoints.iter().map(|it| it.purge_seq).collect();
    let Some(seen) = seen else { return Some(first) };
    let copies: Vec<&[Vec<u8>; 2]> =
        checkpoints.iter().filter_map(|it| it.nodes.as_ref()).collect();
    let names: BTreeSet<&Vec<u8>> = copies.iter().flat_map(|nodes| nodes.iter()).collect();
    let is_own = |name: &&Vec<u8>| copies.iter().all(|nodes| nodes.contains(name));
    let (own, others): (Vec<&Vec<u8>>, Vec<_>) = names.into_iter().partition(is_own);
    if !copies.is_empty() && own.len() != 1 {
        return None;
    }
    let is_target = |name: &&Vec<u8>| copies.iter().any(|[_, target]| target == *name);
    let all_seen = seen.into_iter().fold(surplus, u64::min);
    Some(if others.iter().all(is_target) { all_seen } else { first })
}

/// The checkpoints of purges among the `_local` documents; `None` if they cannot all be read.
fn checkpoints(reader: &mut Reader<'_>, db: &DbHeader) -> Option<Vec<Checkpoint>> {
    let mut found = Vec::new();
    let Some(root) = db.roots.local else { return Some(found) };
    let own = format!("{COPY_PREFIX}{}-", db.uuid.as_deref().unwrap_or_default());
    let (mut budget, mut is_whole) = (MAX_BYTES, true);
    let walked = tree::walk(reader, root, &mut budget, &mut |_, visit| {
        match visit {
            Visit::Inner { .. } => {}
            Visit::Leaf(leaf) => {
                let done = leaf.each(|id, value| {
                    let id = id.binary()?;
                    if id.starts_with(PREFIX.as_bytes()) {
                        found.push(Checkpoint::read(value, id.starts_with(own.as_bytes())));
                    }
                    Some(())
                });
                is_whole &= done.is_some();
            }
            Visit::Unreadable(_) => is_whole = false,
        }
        Ok(())
    });
    (walked.is_ok() && is_whole).then_some(found)
}

impl Checkpoint {
    /// Reads a `_local` document: `{Rev, {[{Key, Value}]}}`.
    fn read(value: Term<'_>, is_of_copy: bool) -> Self {
        let fields = || value.tuple()?.nth(1)?.tuple()?.next()?.list();
        let field = |name: &str| {
            fields()?.find_map(|pair| {
                let mut pair = pair.tuple()?;
                let is_wanted = pair.next()?.binary()? == name.as_bytes();
                pair.next().filter(|_| is_wanted)
            })
        };
        let node = |name| Some(field(name)?.binary()?.to_vec());
        Self {
            purge_seq: field("purge_seq").and_then(Term::number),
            nodes: node("source").zip(node("target")).filter(|_| is_of_copy).map(Into::into),
        }
    }
}
