//! Finds the newest valid header of a file.
//!
//! Owns the backward search: the ranges that are read, the number of reads, and the end of the
//! search. Never decodes the term of a header.
//!
//! A healthy file takes one read of its last block, whatever its size, or two or three if a header
//! is longer than a block. Otherwise the search goes back in batches of growing size, to the
//! beginning of the file or to the given limit: an upload, an index build or a crash can leave
//! many megabytes after the header.

use super::{
    Bytes, Place, Unreadable,
    block::{self, BLOCK, LONGEST, PREFIX},
};
use std::{borrow::Cow, io, iter};

const BLOCK_BYTES: u64 = BLOCK as u64;

/// A header's term and its position.
type Found<'w> = (Cow<'w, [u8]>, Place);

/// Number of blocks in the first reads; later reads have the maximum size.
const BATCHES: [u64; 4] = [1, 1, 16, 64];
/// Maximum number of blocks in one read.
const LARGEST_BATCH: u64 = 256;

/// Finds the newest header with a valid checksum and passes its term to `decode`; searches the
/// last `furthest` bytes, rounded to blocks.
///
/// # Errors
///
/// If reading fails, no header is found, or `decode` fails.
pub(super) fn newest<T>(
    bytes: &dyn Bytes,
    furthest: u64,
    decode: impl FnOnce(&[u8], Place) -> Result<T, Unreadable>,
) -> Result<T, Unreadable> {
    let size = bytes.size();
    let last = size.saturating_sub(furthest) / BLOCK_BYTES;
    let searched = size - last * BLOCK_BYTES;
    let mut search =
        Search { bytes, size, rejected: 0, allowance: searched.saturating_add(LONGEST.into()) };
    let mut first = [0; BLOCK];
    let mut batch = Vec::new();
    // A header in a block that would begin at the end of the file has no bytes yet.
    let mut end = size.div_ceil(BLOCK_BYTES);
    for blocks in BATCHES.into_iter().chain(iter::repeat(LARGEST_BATCH)) {
        if end <= last {
            break;
        }
        let start = end.saturating_sub(blocks).max(last);
        let from = start * BLOCK_BYTES;
        let length =
            usize::try_from(size.min(end.saturating_mul(BLOCK_BYTES)) - from).unwrap_or(usize::MAX);
        let window = match first.get_mut(..length) {
            Some(window) => window,
            None => {
                batch.resize(length, 0);
                batch.as_mut_slice()
            }
        };
        fill(bytes, from, window)?;
        if let Some((term, place)) = search.newest_in(window, from)? {
            return decode(&term, place);
        }
        end = start;
    }
    let rejected = search.rejected;
    Err(if last == 0 {
        Unreadable::NoValidHeader { rejected }
    } else {
        Unreadable::NoHeaderWithin { searched, rejected }
    })
}

struct Search<'a> {
    bytes: &'a dyn Bytes,
    size: u64,
    rejected: u32,
    /// Number of candidate bytes that may still be checked. Records do not overlap, so false
    /// headers cost at most the size of the file, unless they were constructed.
    allowance: u64,
}

impl Search<'_> {
    /// The newest header that begins in `window`, whose first byte is at `from`.
    fn newest_in<'w>(
        &mut self,
        window: &'w [u8],
        from: u64,
    ) -> Result<Option<Found<'w>>, Unreadable> {
        for (at, block) in window.chunks(BLOCK).enumerate().rev() {
            if block.first() != Some(&block::HEADER_MARKER) {
                continue;
            }
            let start = at * BLOCK;
            let at = from + start as u64;
            match self.candidate(window.get(start..).unwrap_or_default(), at)? {
                Some(found) => return Ok(Some(found)),
                None => self.rejected = self.rejected.saturating_add(1),
            }
        }
        Ok(None)
    }

    /// The header that begins at `at`, if its checksum is valid; `known` are the bytes already
    /// read from there.
    fn candidate<'w>(&mut self, known: &'w [u8], at: u64) -> Result<Option<Found<'w>>, Unreadable> {
        let Some(length) = block::length(known) else { return Ok(None) };
        let Some(stored) = block::stored(length) else { return Ok(None) };
        let behind = self.size.saturating_sub(at + PREFIX as u64);
        let Some(tail) = behind.checked_sub(stored) else { return Ok(None) };
        self.allowance = self
            .allowance
            .checked_sub(stored)
            .ok_or(Unreadable::TooManyFalseHeaders { rejected: self.rejected })?;
        let length_stored = usize::try_from(stored).unwrap_or(usize::MAX);
        let known = known.get(PREFIX..).unwrap_or_default();
        let checked = match known.get(..length_stored) {
            Some(whole) => block::checked(block::without_markers(whole, PREFIX)),
            None => {
                // The claimed length was checked against the size of the file before this
                // allocation.
                let mut whole = vec![0; length_stored];
                let (front, rest) = whole.split_at_mut(known.len());
                front.copy_from_slice(known);
                fill(self.bytes, at + (PREFIX + known.len()) as u64, rest)?;
                let record = block::without_markers(&whole, PREFIX).into_owned();
                block::checked(Cow::Owned(record))
            }
        };
        Ok(checked.map(|(term, checksum)| {
            (term, Place { at, bytes: length, checksum, rejected: self.rejected, tail })
        }))
    }
}

/// Fills `buf`; a file that ends earlier has shrunk since its size was measured.
pub(super) fn fill(bytes: &dyn Bytes, at: u64, buf: &mut [u8]) -> Result<(), Unreadable> {
    let length = buf.len();
    let failed = |why| Unreadable::Read { at, length, why };
    let mut done = 0;
    while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match bytes.read_at(at + done as u64, rest) {
            Ok(0) => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
            Ok(read) => done += read,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(failed(why)),
        }
    }
    Ok(())
}
