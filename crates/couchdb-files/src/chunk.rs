//! Chunks: tree nodes, bodies of documents and other terms that headers refer to by position.
//!
//! Owns their storage: length, optional checksum, compression. Never knows what a term means. No
//! chunk is read or decompressed beyond the caller's limit, or beyond the end of the file.

use super::{
    Bytes, HeaderError,
    block::{self, BLOCK, CHECKSUM},
    header_search::read_exact_at,
};
use std::{
    borrow::Cow,
    io::{self, Read},
};

/// Size of a chunk's length in bytes; its highest bit tells whether a checksum follows.
pub(super) const HEAD: usize = 4;

/// Bytes of the first read at a position far from the last one.
const FIRST_READ: usize = BLOCK;
/// Maximum number of bytes read ahead when positions follow each other.
const MAX_AHEAD: usize = 128 << 10;

/// The kinds of compressed terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Snappy,
    /// Erlang's own, which uses zlib.
    Deflate,
    /// Newer than CouchDB 3.5.
    Zstd,
}

/// A decompressed chunk.
#[derive(Debug)]
pub(super) struct Chunk {
    /// The term, with its version byte.
    pub(super) term: Vec<u8>,
    /// Its bytes in the file, with length, checksum and markers.
    pub(super) stored: u64,
    pub(super) compression: Compression,
}

/// Data without markers, and its bytes in the file.
type StoredData<'w> = (Cow<'w, [u8]>, u64);

/// Reads chunks, and reads ahead while positions follow each other.
pub(super) struct Reader<'a> {
    bytes: &'a dyn Bytes,
    size: u64,
    window: Vec<u8>,
    from: u64,
    ahead: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a dyn Bytes) -> Self {
        Self { bytes, size: bytes.size(), window: Vec::new(), from: 0, ahead: FIRST_READ }
    }

    pub(super) const fn source(&self) -> &'a dyn Bytes {
        self.bytes
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// The chunk at `at`, decompressed; `None` if there is none of at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// If reading fails.
    pub(super) fn chunk(&mut self, at: u64, limit: usize) -> Result<Option<Chunk>, HeaderError> {
        let Some((length, summed)) = self.head(at)? else { return Ok(None) };
        let sum = if summed { CHECKSUM } else { 0 };
        let Some(length) = usize::try_from(length).ok().filter(|it| *it <= limit) else {
            return Ok(None);
        };
        let Some((mut data, stored)) = self.data(at, HEAD + sum + length)? else {
            return Ok(None);
        };
        data = match data {
            Cow::Borrowed(all) => Cow::Borrowed(all.get(HEAD..).unwrap_or_default()),
            Cow::Owned(mut all) => Cow::Owned(all.split_off(HEAD.min(all.len()))),
        };
        if summed {
            match block::verify_checksum(data) {
                Some((checked, _)) => data = checked,
                None => return Ok(None),
            }
        }
        Ok(decompress(&data, limit).map(|(term, compression)| Chunk { term, stored, compression }))
    }

    /// Bytes in the file of the chunk at `at`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If reading fails.
    pub(super) fn stored(&mut self, at: u64) -> Result<Option<u64>, HeaderError> {
        let Some((length, summed)) = self.head(at)? else { return Ok(None) };
        let sum = if summed { CHECKSUM } else { 0 };
        let into = usize::try_from(at % BLOCK as u64).unwrap_or_default();
        let stored = block::with_markers(into, u64::from(length) + (HEAD + sum) as u64);
        Ok(Some(stored).filter(|stored| at.saturating_add(*stored) <= self.size))
    }

    /// The length of the chunk at `at` without checksum, and whether it has one.
    fn head(&mut self, at: u64) -> Result<Option<(u32, bool)>, HeaderError> {
        let Some((head, _)) = self.data(at, HEAD)? else { return Ok(None) };
        let Ok(head) = <[u8; HEAD]>::try_from(head.as_ref()) else { return Ok(None) };
        let length = u32::from_be_bytes(head);
        Ok(Some((length & (u32::MAX >> 1), length >> 31 == 1)))
    }

    /// `length` bytes of data from `at` on, without markers, and their bytes in the file.
    fn data(&mut self, at: u64, length: usize) -> Result<Option<StoredData<'_>>, HeaderError> {
        let into = usize::try_from(at % BLOCK as u64).unwrap_or_default();
        let stored = block::with_markers(into, length as u64);
        if at.checked_add(stored).is_none_or(|end| end > self.size) {
            return Ok(None);
        }
        let Ok(wanted) = usize::try_from(stored) else { return Ok(None) };
        let inside = at.checked_sub(self.from).and_then(|skip| usize::try_from(skip).ok());
        let mut skip = inside.unwrap_or(usize::MAX);
        if skip.checked_add(wanted).is_none_or(|end| end > self.window.len()) {
            self.ahead = if skip <= self.window.len() + FIRST_READ {
                (self.ahead * 2).min(MAX_AHEAD)
            } else {
                FIRST_READ
            };
            let rest = usize::try_from(self.size - at).unwrap_or(usize::MAX);
            if self.window.capacity() > wanted.max(MAX_AHEAD) {
                self.window = Vec::new();
            }
            self.window.resize(wanted.max(self.ahead).min(rest), 0);
            self.from = at;
            skip = 0;
            if let Err(why) = read_exact_at(self.bytes, at, &mut self.window) {
                self.window.clear();
                return Err(why);
            }
        }
        let found = self.window.get(skip..skip + wanted).unwrap_or_default();
        Ok(Some((block::without_markers(found, into), stored)))
    }
}

/// The term in a chunk's data, or in a compressed binary within a term.
pub(super) fn decompress(data: &[u8], limit: usize) -> Option<(Vec<u8>, Compression)> {
    let read_all = |mut term: Vec<u8>, from: &mut dyn Read| -> io::Result<Vec<u8>> {
        from.take(limit as u64).read_to_end(&mut term)?;
        Ok(term)
    };
    match data {
        [1, packed @ ..] => {
            snap::raw::decompress_len(packed).ok().filter(|length| *length <= limit)?;
            let term = snap::raw::Decoder::new().decompress_vec(packed).ok()?;
            Some((term, Compression::Snappy))
        }
        [131, 80, _, _, _, _, packed @ ..] => {
            let term = read_all(vec![131], &mut flate2::read::ZlibDecoder::new(packed)).ok()?;
            Some((term, Compression::Deflate))
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let mut decoder = ruzstd::decoding::StreamingDecoder::new(data).ok()?;
            Some((read_all(Vec::new(), &mut decoder).ok()?, Compression::Zstd))
        }
        _ => Some((data.to_vec(), Compression::None)),
    }
}
