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
pub(super) const BLOCK: usize = 4096;

/// The marker of a block that begins with a header.
pub(super) const HEADER_MARKER: u8 = 1;

/// Marker and length.
pub(super) const PREFIX: usize = 5;

/// Bytes of a checksum.
pub(super) const CHECKSUM: usize = 16;

/// The longest header that is read. CouchDB sets no limit; its own are a few hundred bytes, and
/// some kilobytes where reduces of views keep much.
pub(super) const LONGEST: u32 = 64 << 20;

/// How many bytes of a file the record holds behind its prefix, markers of blocks included;
/// `None` where no header is so long or so short.
pub(super) fn stored(length: u32) -> Option<u64> {
    let allowed = (CHECKSUM as u64..=LONGEST.into()).contains(&length.into());
    allowed.then(|| with_markers(PREFIX, length.into()))
}

/// How many bytes of a file hold `length` bytes of data that begin `into` a block.
pub(super) fn with_markers(into: usize, length: u64) -> u64 {
    let marker = u64::from(into == 0);
    let first = (BLOCK - into.max(1)) as u64;
    marker + length + length.saturating_sub(first).div_ceil(BLOCK as u64 - 1)
}

/// The data of what is stored, which begins `into` a block.
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

/// The length that a block gives for the header it begins with; `None` where it begins with none.
pub(super) fn length(block: &[u8]) -> Option<u32> {
    match block {
        [HEADER_MARKER, a, b, c, d, ..] => Some(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => None,
    }
}

/// What stands behind a checksum, if that holds.
///
/// Which checksum it is, the file does not say: CouchDB tries both, the newer first.
pub(super) fn checked(record: Cow<'_, [u8]>) -> Option<(Cow<'_, [u8]>, Checksum)> {
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
