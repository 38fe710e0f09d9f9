//! The last purge of a database, which is not part of its header.
//!
//! Owns the walk down the last branch of the tree of purges. Bounded like the search for the header:
//! each step moves toward the beginning of the file, and no node is read or decompressed beyond a
//! length that real nodes never reach.

use super::{
    Bytes, DbHeader,
    chunk::Reader,
    db::{PurgeRoot, TreeRoot},
    term::Term,
};

/// Maximum length of a node that is read or decompressed; CouchDB's have one or two kilobytes.
const MAX_NODE_BYTES: usize = 4 << 20;
/// Maximum depth of a tree.
pub(super) const MAX_TREE_DEPTH: usize = 64;

/// The number of the last purge; `None` if a node of the tree cannot be read.
///
/// Takes one or two reads for each level of the tree, and none if nothing was purged.
#[must_use]
pub fn last_purge(bytes: &dyn Bytes, db: &DbHeader) -> Option<u64> {
    let mut reader = Reader::new(bytes);
    let mut record = |at| reader.chunk(at, MAX_NODE_BYTES).ok().flatten().map(|chunk| chunk.term);
    let mut at = match db.purge_root {
        None => return db.purge_seq,
        Some(PurgeRoot::Tree(at)) => at,
        Some(PurgeRoot::List { at, first }) => {
            let record = record(at)?;
            let purged = Term::decode(&record).ok()?.list()?.len() as u64;
            // CouchDB does not store an empty list.
            return purged.checked_sub(1).map_or(Some(0), |later| first.checked_add(later));
        }
    };
    for _ in 0..MAX_TREE_DEPTH {
        let record = record(at)?;
        let mut node = Term::decode(&record).ok()?.tuple()?;
        let kind = node.next()?;
        let mut last = node.next()?.list()?.last()?.tuple()?;
        let (key, value) = (last.next()?, last.next()?);
        if kind.is_atom("kv_node") {
            return key.number();
        }
        // A node only refers to nodes written before it.
        at = TreeRoot::decode(value)?.position.filter(|inner| *inner < at)?;
    }
    None
}
