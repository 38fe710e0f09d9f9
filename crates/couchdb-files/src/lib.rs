//! Reads one CouchDB file by its last header: a database shard, a view index, or the file that a
//! compaction of either is writing.
//!
//! Owns the file format: blocks, checksums, Erlang terms, headers of every version, and the
//! signature that names a view's file. Never opens a file, walks a directory, writes, or contacts
//! CouchDB: it reads any implementation of [`Bytes`], in a bounded number of bounded reads, and
//! panics on no input. The caller opens the file and calls [`read`].
//!
//! A file only grows at its end, in blocks of 4096 bytes, and each commit appends a header. The
//! last header with a valid checksum counts: CouchDB itself starts from it after a crash.

mod block;
mod chunk;
mod compacted;
mod db;
mod design;
mod header_error;
mod header_search;
mod index_sample;
mod open_action;
mod purge_seq;
mod random;
mod revisions;
mod sequence;
mod term;
mod tombstones;
mod tree;
mod view;
mod xray;

pub use db::{DbHeader, Epoch, TreeSize, Trees};
pub use design::{Design, DesignError, EmptyGroupBytes};
pub use header_error::{DecodeError, HeaderError};
pub use index_sample::{BuildPace, IndexBytes, IndexSample, SampleSums};
pub use open_action::{Difference, NEWEST_DISK_VERSION, OpenAction, ReportMatch, Role};
pub use purge_seq::last_purge;
pub use random::random_bits;
pub use sequence::{ShardSequence, shard_sequences};
pub use tombstones::{DeletedDoc, DeletedLeaf, compacted_bytes};
pub use view::{CommittedIndex, IndexForm, ViewGroup, ViewHeader};
pub use xray::{Part, PartBytes, Sample, Xray, XrayError, xray};

use std::io;
use term::Term;

/// A file that can be read at any offset.
pub trait Bytes {
    /// Its size, measured once: data appended later is ignored.
    fn size(&self) -> u64;

    /// Reads at an offset like `pread`: fewer bytes than requested at the end of the file.
    ///
    /// # Errors
    ///
    /// If reading fails.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// The end of the data before `end`, if everything from there to `end` is known to be zeros;
    /// otherwise `end`.
    fn end_of_data(&self, end: u64) -> u64 {
        end
    }
}

impl Bytes for &[u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let length = rest.len().min(buf.len());
        let (Some(from), Some(to)) = (rest.get(..length), buf.get_mut(..length)) else {
            return Ok(0);
        };
        to.copy_from_slice(from);
        Ok(length)
    }
}

/// A file with its newest valid header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// The content of the header.
    pub header: Header,
    /// The file's size, from [`Bytes::size`].
    pub file_bytes: u64,
    /// The position of the header.
    pub position: HeaderPosition,
}

/// The position of a header, and the false headers after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderPosition {
    /// Offset of the header's block, a multiple of 4096.
    pub at: u64,
    /// Length of checksum and term, according to the header.
    pub length: u32,
    /// The kind of its valid checksum.
    pub checksum: Checksum,
    /// Number of blocks after it that are marked as headers but are not: damage, or a header that
    /// was being written.
    pub false_headers: u32,
    /// Bytes after the header: not committed yet, or lost in a crash.
    pub bytes_after: u64,
}

/// The kind of a header's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// XXH3-128; the default since 3.5, an option since 3.4.
    Xxh3,
    /// MD5; all earlier versions.
    Md5,
}

impl Checksum {
    /// The label in JSON.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Xxh3 => "xxh3_128",
            Self::Md5 => "md5",
        }
    }
}

/// The content of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Header {
    /// A database file; also a compaction's target before its first and after its last checkpoint.
    Db(DbHeader),
    /// A checkpoint of a database's compaction (`comp_header`), in `.compact.data` or
    /// `.compact.meta`.
    Compaction(DbHeader),
    /// A view index.
    View(ViewHeader),
}

/// Reads a file's newest valid header.
///
/// # Errors
///
/// If the file cannot be read, contains no valid header, or one that no CouchDB could use. A
/// header with a valid checksum that cannot be decoded is an error: CouchDB does not search
/// further back either.
pub fn read(bytes: &dyn Bytes) -> Result<FileHeader, HeaderError> {
    read_within(bytes, u64::MAX)
}

/// Reads a file's newest valid header within the last `furthest` bytes, rounded to blocks. CouchDB
/// itself searches to the beginning.
///
/// # Errors
///
/// Like [`read`]; [`HeaderError::NoHeaderWithin`] if there may be a header further back.
pub fn read_within(bytes: &dyn Bytes, furthest: u64) -> Result<FileHeader, HeaderError> {
    header_search::find_newest(bytes, furthest, |record, place| {
        let header = decode(record, place)?;
        Ok(FileHeader { header, file_bytes: bytes.size(), position: place })
    })
}

/// Decodes a header's term; its first element determines the kind.
fn decode(record: &[u8], place: HeaderPosition) -> Result<Header, HeaderError> {
    let undecodable = |why| HeaderError::UndecodableHeader { place, why };
    let none = || undecodable(DecodeError::NotAHeader);
    let term = Term::decode(record).map_err(undecodable)?;
    let mut fields = term.tuple().ok_or_else(none)?;
    let count = fields.len();
    let (Some(first), second) = (fields.next(), fields.next()) else { return Err(none()) };
    if first.is_atom("db_header") {
        return DbHeader::decode(term, place).map(Header::Db);
    }
    let second = second.ok_or_else(none)?;
    if first.is_atom("comp_header") {
        let named = second.tuple().and_then(|mut inner| inner.next());
        return match named.filter(|name| name.is_atom("db_header")) {
            Some(_) => DbHeader::decode(second, place).map(Header::Compaction),
            None => Err(none()),
        };
    }
    match first.binary().and_then(|bytes| bytes.try_into().ok()).filter(|_| count == 2) {
        Some(signature) => {
            ViewHeader::decode(signature, second).map(Header::View).map_err(undecodable)
        }
        None => Err(none()),
    }
}

/// Compiles and runs the examples of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

#[cfg(test)]
mod tests;
