//! The last purge of a database, which is not part of its header.
//!
//! Owns the storage of tree nodes in a file, and the walk down the last branch of the tree of
//! purges. Bounded like the search for the header: each step moves toward the beginning of the
//! file, and no node is read or decompressed beyond a length that real nodes never reach.

use super::{
    Bytes, DbHeader,
    block::{self, BLOCK, CHECKSUM},
    db::{PurgeRoot, TreeRoot},
    header_search::read_exact_at,
    term::Term,
};
use std::{borrow::Cow, io::Read};

/// Maximum length of a node that is read or decompressed; CouchDB's have one or two kilobytes.
const MAX_NODE_BYTES: usize = 4 << 20;
/// Maximum depth of a tree.
const MAX_TREE_DEPTH: usize = 64;

/// The number of the last purge; `None` if a node of the tree cannot be read.
///
/// Takes one or two reads for each level of the tree, and none if nothing was purged.
#[must_use]
pub fn last_purge(bytes: &dyn Bytes, db: &DbHeader) -> Option<u64> {
    let mut at = match db.purge_root {
        None => return db.purge_seq,
        Some(PurgeRoot::Tree(at)) => at,
        Some(PurgeRoot::List { at, first }) => {
            let record = decompress(read_chunk(bytes, at)?)?;
            let purged = Term::decode(&record).ok()?.list()?.len() as u64;
            // CouchDB does not store an empty list.
            return purged.checked_sub(1).map_or(Some(0), |later| first.checked_add(later));
        }
    };
    for _ in 0..MAX_TREE_DEPTH {
        let record = decompress(read_chunk(bytes, at)?)?;
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

/// The chunk at `at`: a length, whose highest bit tells whether a checksum follows, and the data.
fn read_chunk(bytes: &dyn Bytes, at: u64) -> Option<Vec<u8>> {
    let head: [u8; 4] = read_data(bytes, at, 4)?.try_into().ok()?;
    let length = u32::from_be_bytes(head);
    let summed = length >> 31 == 1;
    let length =
        usize::try_from(length & (u32::MAX >> 1)).ok().filter(|it| *it <= MAX_NODE_BYTES)?;
    let sum = if summed { CHECKSUM } else { 0 };
    let record = read_data(bytes, at, head.len() + sum + length)?.split_off(head.len());
    if !summed {
        return Some(record);
    }
    Some(block::verify_checksum(Cow::Owned(record))?.0.into_owned())
}

/// Bytes of data from `at` on.
fn read_data(bytes: &dyn Bytes, at: u64, length: usize) -> Option<Vec<u8>> {
    let into = usize::try_from(at % BLOCK as u64).ok()?;
    let stored = block::with_markers(into, length as u64);
    if at.checked_add(stored)? > bytes.size() {
        return None;
    }
    let mut buf = vec![0; usize::try_from(stored).ok()?];
    read_exact_at(bytes, at, &mut buf).ok()?;
    Some(block::without_markers(&buf, into).into_owned())
}

/// The decompressed term of a node.
fn decompress(data: Vec<u8>) -> Option<Vec<u8>> {
    match data.as_slice() {
        // Snappy.
        [1, packed @ ..] => {
            snap::raw::decompress_len(packed).ok().filter(|length| *length <= MAX_NODE_BYTES)?;
            snap::raw::Decoder::new().decompress_vec(packed).ok()
        }
        // Erlang's own compression, which uses zlib.
        [131, 80, _, _, _, _, packed @ ..] => {
            let mut term = vec![131];
            let limit = MAX_NODE_BYTES as u64;
            flate2::read::ZlibDecoder::new(packed).take(limit).read_to_end(&mut term).ok()?;
            Some(term)
        }
        _ => Some(data),
    }
}
