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
    Bytes, HeaderError, HeaderPosition,
    block::{self, BLOCK, MAX_HEADER_BYTES, PREFIX},
};
use std::{borrow::Cow, io, iter};

const BLOCK_BYTES: u64 = BLOCK as u64;

/// A header's term and its position.
type FoundTerm<'w> = (Cow<'w, [u8]>, HeaderPosition);

/// Number of blocks in the first reads; later reads have the maximum size.
const FIRST_BATCHES: [u64; 4] = [1, 1, 16, 64];
/// Maximum number of blocks in one read.
const MAX_BATCH: u64 = 256;

/// Finds the newest header with a valid checksum and passes its term to `decode`; searches the
/// last `furthest` bytes, rounded to blocks.
///
/// # Errors
///
/// If reading fails, no header is found, or `decode` fails.
pub(super) fn find_newest<T>(
    bytes: &dyn Bytes,
    furthest: u64,
    decode: impl FnOnce(&[u8], HeaderPosition) -> Result<T, HeaderError>,
) -> Result<T, HeaderError> {
    let size = bytes.size();
    let last = size.saturating_sub(furthest) / BLOCK_BYTES;
    let searched = size - last * BLOCK_BYTES;
    let mut search = HeaderSearch {
        bytes,
        size,
        false_headers: 0,
        candidate_budget: searched.saturating_add(MAX_HEADER_BYTES.into()),
    };
    let mut first = [0; BLOCK];
    let mut batch = Vec::new();
    // A header in a block that would begin at the end of the file has no bytes yet.
    let mut end = size.div_ceil(BLOCK_BYTES);
    for blocks in FIRST_BATCHES.into_iter().chain(iter::repeat(MAX_BATCH)) {
        if blocks == MAX_BATCH {
            // Zeros contain no header, and a sparse file may have terabytes of them.
            end =
                bytes.end_of_data(end.saturating_mul(BLOCK_BYTES).min(size)).div_ceil(BLOCK_BYTES);
        }
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
        read_exact_at(bytes, from, window)?;
        if let Some((term, place)) = search.find_in_window(window, from)? {
            return decode(&term, place);
        }
        end = start;
    }
    let rejected = search.false_headers;
    Err(if last == 0 {
        HeaderError::NoValidHeader { rejected }
    } else {
        HeaderError::NoHeaderWithin { searched, rejected }
    })
}

struct HeaderSearch<'a> {
    bytes: &'a dyn Bytes,
    size: u64,
    false_headers: u32,
    /// Number of candidate bytes that may still be checked. Records do not overlap, so false
    /// headers cost at most the size of the file, unless they were constructed.
    candidate_budget: u64,
}

impl HeaderSearch<'_> {
    /// The newest header that begins in `window`, whose first byte is at `from`.
    fn find_in_window<'w>(
        &mut self,
        window: &'w [u8],
        from: u64,
    ) -> Result<Option<FoundTerm<'w>>, HeaderError> {
        for (at, block) in window.chunks(BLOCK).enumerate().rev() {
            if block.first() != Some(&block::HEADER_MARKER) {
                continue;
            }
            let start = at * BLOCK;
            let at = from + start as u64;
            match self.check_candidate(window.get(start..).unwrap_or_default(), at)? {
                Some(found) => return Ok(Some(found)),
                None => self.false_headers = self.false_headers.saturating_add(1),
            }
        }
        Ok(None)
    }

    /// The header that begins at `at`, if its checksum is valid; `known` are the bytes already
    /// read from there.
    fn check_candidate<'w>(
        &mut self,
        known: &'w [u8],
        at: u64,
    ) -> Result<Option<FoundTerm<'w>>, HeaderError> {
        let Some(length) = block::header_length(known) else { return Ok(None) };
        let Some(stored) = block::stored_length(length) else { return Ok(None) };
        let behind = self.size.saturating_sub(at + PREFIX as u64);
        let Some(tail) = behind.checked_sub(stored) else { return Ok(None) };
        self.candidate_budget = self
            .candidate_budget
            .checked_sub(stored)
            .ok_or(HeaderError::TooManyFalseHeaders { rejected: self.false_headers })?;
        let length_stored = usize::try_from(stored).unwrap_or(usize::MAX);
        let known = known.get(PREFIX..).unwrap_or_default();
        let checked = match known.get(..length_stored) {
            Some(whole) => block::verify_checksum(block::without_markers(whole, PREFIX)),
            None => {
                // The claimed length was checked against the size of the file before this
                // allocation.
                let mut whole = vec![0; length_stored];
                let (front, rest) = whole.split_at_mut(known.len());
                front.copy_from_slice(known);
                read_exact_at(self.bytes, at + (PREFIX + known.len()) as u64, rest)?;
                let record = block::without_markers(&whole, PREFIX).into_owned();
                block::verify_checksum(Cow::Owned(record))
            }
        };
        Ok(checked.map(|(term, checksum)| {
            (
                term,
                HeaderPosition {
                    at,
                    length,
                    checksum,
                    false_headers: self.false_headers,
                    bytes_after: tail,
                },
            )
        }))
    }
}

/// Fills `buf`; a file that ends earlier has shrunk since its size was measured.
pub(super) fn read_exact_at(bytes: &dyn Bytes, at: u64, buf: &mut [u8]) -> Result<(), HeaderError> {
    let length = buf.len();
    let failed = |why| HeaderError::Read { at, length, why };
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
