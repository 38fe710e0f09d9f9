//! Blocks, and a header record in them.
//!
//! Owns the arithmetic of markers and the two checksums. Never searches.
//!
//! The first byte of each block of 4096 bytes is a marker, 1 where a header begins, and no part
//! of the data: what crosses into a block is interrupted by one byte. A header record is
//! marker, length (four bytes, big endian, of what follows), checksum (16), term.

use super::Checksum;
use md5::{Digest, Md5};
use std::borrow::Cow;
use xxhash_rust::xxh3::xxh3_128;

/// Bytes of a block.
pub(super) const BLOCK: u64 = 4096;

/// The marker of a block that begins with a header.
pub(super) const HEADER_MARKER: u8 = 1;

/// Marker and length.
pub(super) const PREFIX: usize = 5;

/// Bytes of a checksum.
const CHECKSUM: u32 = 16;

/// The longest header that is read. CouchDB sets no limit; its own are a few hundred bytes, and
/// some kilobytes where reduces of views keep much.
pub(super) const LONGEST: u32 = 64 << 20;

/// How many bytes of a file the record holds behind its prefix, markers of blocks included;
/// `None` where no header is so long or so short.
pub(super) fn stored(length: u32) -> Option<u64> {
    if !(CHECKSUM..=LONGEST).contains(&length) {
        return None;
    }
    let length = u64::from(length);
    let first = BLOCK - PREFIX as u64;
    Some(length + length.saturating_sub(first).div_ceil(BLOCK - 1))
}

/// The length that a block gives for the header it begins with; `None` where it begins with none.
pub(super) fn length(block: &[u8]) -> Option<u32> {
    match block {
        [HEADER_MARKER, a, b, c, d, ..] => Some(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => None,
    }
}

/// The term of a record whose checksum holds, from the bytes behind its prefix.
///
/// Which checksum it is, the file does not say: CouchDB tries both, the newer first.
pub(super) fn checked(stored: &[u8]) -> Option<(Cow<'_, [u8]>, Checksum)> {
    let record = without_markers(stored);
    let (checksum, term) = record.split_at_checked(CHECKSUM as usize)?;
    let kind = if checksum == xxh3_128(term).to_be_bytes() {
        Checksum::Xxh3
    } else if checksum == Md5::digest(term).as_slice() {
        Checksum::Md5
    } else {
        return None;
    };
    let term = match record {
        Cow::Borrowed(record) => Cow::Borrowed(record.get(CHECKSUM as usize..)?),
        Cow::Owned(mut record) => {
            record.drain(..CHECKSUM as usize);
            Cow::Owned(record)
        }
    };
    Some((term, kind))
}

/// What was written, without the markers of the blocks it crosses into.
fn without_markers(stored: &[u8]) -> Cow<'_, [u8]> {
    let first = BLOCK as usize - PREFIX;
    match stored.split_at_checked(first) {
        None | Some((_, [])) => Cow::Borrowed(stored),
        Some((first, rest)) => {
            let mut whole = Vec::with_capacity(stored.len());
            whole.extend_from_slice(first);
            for block in rest.chunks(BLOCK as usize) {
                whole.extend_from_slice(block.get(1..).unwrap_or_default());
            }
            Cow::Owned(whole)
        }
    }
}
