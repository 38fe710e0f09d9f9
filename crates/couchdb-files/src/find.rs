//! The newest valid header of a file.
//!
//! Owns the search from the end backward: what is read, in how many reads, and when it stops.
//! Never looks into the term that a header carries.
//!
//! A healthy file costs one read of its last block, whatever its size, and two or three where a
//! header is longer than a block. Else the search goes back in batches that widen to a bound,
//! as far as the file's begin or as it is allowed to: an upload, an index build or a crash can
//! leave many megabytes behind the header.

use super::{
    Bytes, Place, Unreadable,
    block::{self, BLOCK, LONGEST, PREFIX},
};
use std::{borrow::Cow, io, iter};

const BLOCK_BYTES: u64 = BLOCK as u64;

/// A header's term, and where it is.
type Found<'w> = (Cow<'w, [u8]>, Place);

/// How many blocks are read at once, one after the other; then always the most.
const BATCHES: [u64; 4] = [1, 1, 16, 64];
/// The most blocks that are read at once.
const LARGEST_BATCH: u64 = 256;

/// Finds the newest header whose checksum holds, and gives its term to `decode`; looks no
/// further back from the end than `furthest` bytes, up to a block.
///
/// # Errors
/// When reading fails, none is found, or `decode` refuses.
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
    // A header in the block that the file's size would begin has no bytes yet.
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
    /// Bytes of candidates that may still be looked at. Records do not overlap, so that what
    /// looks like one and is none costs no more than the file, unless somebody made it so.
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

    /// The header that begins at `at`, if its checksum holds; `known` is what was read from
    /// there.
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
                // The file holds so much: no length is believed before that is known.
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

/// Reads all of `buf`; a file that ends before, shrank since its size was measured.
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
