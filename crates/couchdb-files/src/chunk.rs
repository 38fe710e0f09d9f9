//! The last purge of a database, which its header does not hold.
//!
//! Owns how a tree's nodes are stored in a file, and the walk down the last branch of the tree of
//! purges. Bounded like the search for the header: each step goes nearer to the file's begin,
//! and no node is read or unpacked beyond a length that its tree never reaches.

use super::{
    Bytes, DbHeader,
    block::{self, BLOCK, CHECKSUM},
    db::Root,
    find::fill,
    term::Term,
};
use std::{borrow::Cow, io::Read};

/// The longest node that is read or unpacked; CouchDB's have one or two kilobytes.
const LONGEST: usize = 4 << 20;
/// The deepest a tree is.
const DEEPEST: usize = 64;

/// The number of the last purge; `None` where a node of the tree cannot be read.
///
/// Costs a read or two a level of the tree, and none where nothing was purged.
#[must_use]
pub fn last_purge(bytes: &dyn Bytes, db: &DbHeader) -> Option<u64> {
    let Some(mut at) = db.purge_seq_root else { return db.purge_seq };
    for _ in 0..DEEPEST {
        let record = unpacked(chunk(bytes, at)?)?;
        let mut node = Term::decode(&record).ok()?.tuple()?;
        let kind = node.next()?;
        let mut last = node.next()?.list()?.last()?.tuple()?;
        let (key, value) = (last.next()?, last.next()?);
        if kind.is_atom("kv_node") {
            return key.number();
        }
        // What a node names was written before it.
        at = Root::decode(value)?.position.filter(|inner| *inner < at)?;
    }
    None
}

/// What was written at `at`: a length, whose highest bit tells that a checksum follows, and the
/// data.
fn chunk(bytes: &dyn Bytes, at: u64) -> Option<Vec<u8>> {
    let head: [u8; 4] = data(bytes, at, 4)?.try_into().ok()?;
    let length = u32::from_be_bytes(head);
    let summed = length >> 31 == 1;
    let length = usize::try_from(length & (u32::MAX >> 1)).ok().filter(|it| *it <= LONGEST)?;
    let sum = if summed { CHECKSUM } else { 0 };
    let record = data(bytes, at, head.len() + sum + length)?.split_off(head.len());
    if !summed {
        return Some(record);
    }
    Some(block::checked(Cow::Owned(record))?.0.into_owned())
}

/// Bytes of data from `at` on.
fn data(bytes: &dyn Bytes, at: u64, length: usize) -> Option<Vec<u8>> {
    let into = usize::try_from(at % BLOCK as u64).ok()?;
    let stored = block::with_markers(into, length as u64);
    if at.checked_add(stored)? > bytes.size() {
        return None;
    }
    let mut buf = vec![0; usize::try_from(stored).ok()?];
    fill(bytes, at, &mut buf).ok()?;
    Some(block::without_markers(&buf, into).into_owned())
}

/// The term of a node, however it is compressed.
fn unpacked(data: Vec<u8>) -> Option<Vec<u8>> {
    match data.as_slice() {
        // Snappy.
        [1, packed @ ..] => {
            snap::raw::decompress_len(packed).ok().filter(|length| *length <= LONGEST)?;
            snap::raw::Decoder::new().decompress_vec(packed).ok()
        }
        // Erlang's own, by zlib.
        [131, 80, _, _, _, _, packed @ ..] => {
            let mut term = vec![131];
            let limit = LONGEST as u64;
            flate2::read::ZlibDecoder::new(packed).take(limit).read_to_end(&mut term).ok()?;
            Some(term)
        }
        _ => Some(data),
    }
}
