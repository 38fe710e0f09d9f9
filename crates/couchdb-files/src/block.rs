//! Blocks, and header records within them.
//!
//! Owns the arithmetic of markers and the two checksums. Never searches.
//!
//! The first byte of each block of 4096 bytes is a marker, 1 if a header begins there, and not
//! part of the data: data that crosses into a block is interrupted by one byte. A header record
//! consists of marker, length (four bytes, big endian, of the rest), checksum (16 bytes) and term.

use super::Checksum;
use md5::{Digest, Md5};
use std::borrow::Cow;
use xxhash_rust::xxh3::xxh3_128;

/// Size of a block in bytes.
pub(super) const BLOCK: usize = 4096;

/// The marker of a block that begins with a header.
pub(super) const HEADER_MARKER: u8 = 1;

/// Size of marker and length in bytes.
pub(super) const PREFIX: usize = 5;

/// Size of a checksum in bytes.
pub(super) const CHECKSUM: usize = 16;

/// Maximum length of a header. CouchDB sets no limit; its own headers have a few hundred bytes, or
/// some kilobytes if reduces of views keep much data.
pub(super) const MAX_HEADER_BYTES: u32 = 64 << 20;

/// Number of bytes in the file after the record's prefix, including markers; `None` if no header
/// has such a length.
pub(super) fn stored_length(length: u32) -> Option<u64> {
    let allowed = (CHECKSUM as u64..=MAX_HEADER_BYTES.into()).contains(&length.into());
    allowed.then(|| with_markers(PREFIX, length.into()))
}

/// Number of bytes in the file for `length` bytes of data that begin at offset `into` of a block.
pub(super) fn with_markers(into: usize, length: u64) -> u64 {
    let marker = u64::from(into == 0);
    let first = (BLOCK - into.max(1)) as u64;
    marker + length + length.saturating_sub(first).div_ceil(BLOCK as u64 - 1)
}

/// The data in `stored`, which begins at offset `into` of a block.
pub(super) fn without_markers(stored: &[u8], into: usize) -> Cow<'_, [u8]> {
    let first = if into == 0 { 0 } else { BLOCK - into };
    match stored.split_at_checked(first) {
        None | Some((_, [])) => Cow::Borrowed(stored),
        Some((first, rest)) => {
            let mut whole = Vec::with_capacity(stored.len());
            whole.extend_from_slice(first);
            for block in rest.chunks(BLOCK) {
                whole.extend_from_slice(block.get(1..).unwrap_or_default());
            }
            Cow::Owned(whole)
        }
    }
}

/// The length of the header at the beginning of a block; `None` if the block does not begin with
/// one.
pub(super) fn header_length(block: &[u8]) -> Option<u32> {
    match block {
        [HEADER_MARKER, a, b, c, d, ..] => Some(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => None,
    }
}

/// The data after a checksum, if that is valid.
///
/// The file does not tell the kind of checksum: like CouchDB, this tries both, the newer one
/// first.
pub(super) fn verify_checksum(record: Cow<'_, [u8]>) -> Option<(Cow<'_, [u8]>, Checksum)> {
    let (checksum, data) = record.split_at_checked(CHECKSUM)?;
    let kind = if checksum == xxh3_128(data).to_be_bytes() {
        Checksum::Xxh3
    } else if checksum == Md5::digest(data).as_slice() {
        Checksum::Md5
    } else {
        return None;
    };
    let data = match record {
        Cow::Borrowed(record) => Cow::Borrowed(record.get(CHECKSUM..)?),
        Cow::Owned(mut record) => {
            record.drain(..CHECKSUM);
            Cow::Owned(record)
        }
    };
    Some((data, kind))
}
