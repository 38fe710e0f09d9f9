//! An X-ray of a file: what its bytes are.
//!
//! Owns the parts, and attributes every byte to one of them, so the parts add up to the file. Reads the trees of the
//! last header, and a body only where its row does not give its size. Memory is bounded: one path through a tree, one
//! document, and the positions of attachments.

mod attachments;
mod body;
mod compaction;
mod db;
mod parts;
mod purges;
mod view;
mod walk;

pub use parts::{Part, PartBytes};
pub use walk::{Sample, XrayError};

use super::{
    Bytes, Header, HeaderError,
    block::{self, BLOCK, PREFIX},
    chunk::Reader,
    header_search::read_exact_at,
    read,
};
use parts::Parts;
use walk::{Scale, Walk};

/// The parts of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xray {
    /// The size of the file, which is the sum of its parts.
    pub file_bytes: u64,
    /// Whether everything was read and each byte is attributed exactly.
    pub exact: bool,
    /// The parts that have bytes or a count.
    pub parts: Vec<PartBytes>,
    /// The size after a compaction with CouchDB's defaults, if nothing is written meanwhile;
    /// `None` if part of the file cannot be read, or a compaction is writing it.
    pub after_compaction: Option<u64>,
    /// In a sample: with 95 % probability that size differs by no more than this.
    pub error: u64,
    /// Active bytes, as the header counts them.
    pub active: Option<u64>,
    /// The last sequence committed or indexed.
    pub update_seq: Option<u64>,
    /// The number of revisions that are kept of a document; databases only.
    pub revs_limit: Option<u64>,
}

/// Reads the trees of a file's last header, or a sample of their nodes, and attributes its bytes.
///
/// # Errors
///
/// If the file cannot be read, or its parts overlap.
pub fn xray(bytes: &dyn Bytes, sample: Option<Sample>) -> Result<Xray, XrayError> {
    let header = read(bytes)?;
    let place = header.position;
    let mut xray = Walk {
        reader: Reader::new(bytes),
        parts: Parts::default(),
        budget: header.file_bytes,
        exact: true,
        sample,
        scales: match &header.header {
            Header::View(_) => Scale::Bytes,
            Header::Db(_) | Header::Compaction(_) => Scale::Rows,
        },
    };
    let record = PREFIX as u64 + block::with_markers(PREFIX, place.length.into());
    let after_compaction = match &header.header {
        Header::Db(db) => Some(db::xray(&mut xray, db, record)?),
        Header::Compaction(checkpoint) => {
            db::xray(&mut xray, checkpoint, record)?;
            None
        }
        Header::View(index) => Some(view::xray(&mut xray, index, record)?),
    };
    let mut parts = xray.parts;
    let padding = padding(bytes, place.at, parts.end)?;
    parts.add(Part::Header, record + padding, 1);
    parts.add(Part::Uncommitted, place.bytes_after, 0);
    let is_whole = parts.get(Part::Unreadable) == (0, 0);
    let error = parts.copy_error(after_compaction.unwrap_or_default());
    let (active, update_seq, revs_limit) = match &header.header {
        Header::Db(db) | Header::Compaction(db) => {
            (db.active, Some(db.update_seq), Some(db.revs_limit))
        }
        Header::View(index) => {
            let index = index.committed.as_ref();
            (index.and_then(|it| it.active), index.map(|it| it.update_seq), None)
        }
    };
    Ok(Xray {
        file_bytes: header.file_bytes,
        exact: is_whole && xray.exact,
        parts: parts.complete(header.file_bytes).ok_or(XrayError::Overlap)?,
        after_compaction: after_compaction.filter(|_| is_whole),
        error,
        active,
        update_seq,
        revs_limit,
    })
}

/// The number of zeros before a header that fill its last block.
fn padding(bytes: &dyn Bytes, header_at: u64, end: u64) -> Result<u64, HeaderError> {
    let mut block = [0; BLOCK];
    let longest = header_at.saturating_sub(end).min(BLOCK as u64 - 1);
    let length = usize::try_from(longest).unwrap_or_default();
    let Some(tail) = block.get_mut(..length) else { return Ok(0) };
    read_exact_at(bytes, header_at - longest, tail)?;
    Ok(tail.iter().rev().take_while(|byte| **byte == 0).count() as u64)
}
