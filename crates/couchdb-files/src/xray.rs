//! What the bytes of a file are: an X-ray.
//!
//! Owns the parts, and the attribution of every byte to one of them. Reads the trees of the last
//! header, and a body only where its row does not tell its size. The sum of the parts is the file.
//! Memory is bounded: one path through a tree, one document, and the positions of attachments.

mod attachments;
mod compaction;
mod db;
mod parts;
mod view;

pub use parts::{Part, PartBytes};

use super::{
    Bytes, Header, HeaderError, TreeSize,
    block::{self, BLOCK, PREFIX},
    chunk::Reader,
    header_search::read_exact_at,
    read,
    term::Term,
    tree::{self, Leaf, NodeRef, Visit, WalkError},
};
use parts::{Parts, Samples};

/// A tree of so many bytes or less is read as a whole.
const SMALL_TREE_BYTES: u64 = 1 << 20;
/// Bytes of a node with rows, about.
const MEAN_NODE_BYTES: u64 = 1000;
/// Bytes of a node with few rows.
const SHORT_NODE_BYTES: u64 = 500;
/// Minimum number of nodes in a sample of a tree.
const FEWEST_SAMPLES: u64 = 400;

/// Why a file has no X-ray.
#[derive(Debug, thiserror::Error)]
pub enum XrayError {
    /// The file cannot be read, or has no usable header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Trees or bodies overlap, which no CouchDB writes.
    #[error("its trees refer to more bytes than the file has, so the file is damaged")]
    Overlap,
}

impl From<WalkError> for XrayError {
    fn from(why: WalkError) -> Self {
        match why {
            WalkError::Read(why) => Self::Header(why),
            WalkError::Overlap => Self::Overlap,
        }
    }
}

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
}

/// A part of a file that is read instead of all of it.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The share of the nodes with rows, from 0 to 1. Small trees are read as a whole.
    pub share: f64,
    /// Determines which nodes are read.
    pub seed: u64,
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
    let error = parts.error();
    Ok(Xray {
        file_bytes: header.file_bytes,
        exact: is_whole && xray.exact,
        parts: parts.complete(header.file_bytes).ok_or(XrayError::Overlap)?,
        after_compaction: after_compaction.filter(|_| is_whole),
        error,
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

/// The state of an X-ray.
struct Walk<'b> {
    reader: Reader<'b>,
    parts: Parts,
    /// Bytes of nodes that may still be read.
    budget: u64,
    /// Whether each attachment was counted once.
    exact: bool,
    sample: Option<Sample>,
}

/// What adds the rows of a leaf to parts.
type LeafReader<'v> =
    dyn FnMut(&mut Reader<'_>, &mut Parts, &Leaf<'_>) -> Result<(), WalkError> + 'v;

impl Walk<'_> {
    /// Walks a tree, or a sample of it, and calls `leaf` with the nodes that have rows; the bytes
    /// of others are those of nodes. Returns the number of rows for which each that was read
    /// stands. `below` are the bytes that rows below a node refer to.
    fn tree(
        &mut self,
        (root, size): (Option<u64>, TreeSize),
        below: impl Fn(&NodeRef<'_>) -> u64,
        leaf: &mut LeafReader<'_>,
    ) -> Result<f64, WalkError> {
        let Some(root) = root else { return Ok(1.0) };
        let large = size.bytes().filter(|bytes| *bytes > SMALL_TREE_BYTES);
        if let Some((sample, bytes)) = self.sample.zip(large) {
            self.exact = false;
            return self.sampled_tree(root, bytes, sample, leaf);
        }
        let parts = &mut self.parts;
        tree::walk(&mut self.reader, root, &mut self.budget, &mut |reader, visit| {
            match visit {
                Visit::Inner { at, stored } => {
                    parts.reach(at, stored);
                    parts.add(Part::TreeNodes, stored, 1);
                }
                Visit::Leaf(node) => {
                    parts.reach(node.at, node.stored);
                    parts.add(Part::TreeNodes, 0, 1);
                    leaf(reader, parts, &node)?;
                }
                Visit::Unreadable(node) => {
                    let bytes = node.bytes.unwrap_or_default().saturating_add(below(&node));
                    parts.add(Part::Unreadable, bytes, 1);
                }
            }
            Ok(())
        })?;
        Ok(1.0)
    }

    /// Reads random leaves of a tree of so many bytes.
    fn sampled_tree(
        &mut self,
        root: u64,
        bytes: u64,
        sample: Sample,
        leaf: &mut LeafReader<'_>,
    ) -> Result<f64, WalkError> {
        let count = (bytes / MEAN_NODE_BYTES) as f64 * sample.share.clamp(0.0, 1.0);
        let count = (count as u64).max(FEWEST_SAMPLES);
        let mut state = sample.seed ^ root;
        let mut random = |below: u64| {
            // SplitMix64.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ (mixed >> 31)) % below
        };
        let mut samples = Samples::default();
        let (mut leaves, mut copied) = (0.0, 0.0);
        for _ in 0..count {
            let mut parts = Parts::default();
            let chance = random(SHORT_NODE_BYTES);
            let reader = &mut self.reader;
            let read = tree::random_leaf(reader, root, &mut random, |reader, mut node, p| {
                // Leaves are chosen more often the larger they are; this undoes it.
                node.is_copied = chance * node.stored < SHORT_NODE_BYTES * SHORT_NODE_BYTES;
                parts.reach(node.at, node.stored);
                parts.add(Part::TreeNodes, 0, 1);
                leaf(reader, &mut parts, &node)?;
                Ok((p.recip(), node.stored as f64, node.is_copied))
            })?;
            match read {
                Some((weight, stored, is_copied)) => {
                    leaves += weight * stored;
                    copied += f64::from(is_copied);
                    samples.parts.push((parts, weight));
                }
                None => self.parts.add(Part::Unreadable, 0, 1),
            }
        }
        let read = samples.parts.len().max(1) as f64;
        let weight = samples.parts.iter().map(|(_, weight)| weight).sum::<f64>() / read;
        self.parts.add_samples(&samples);
        // The nodes with references are what leaves do not take.
        let inner = bytes as f64 - leaves / read;
        self.parts.add(Part::TreeNodes, inner.max(0.0) as u64, 0);
        Ok(weight / f64::max(copied, 1.0))
    }

    /// Adds a term that the header refers to.
    fn term(&mut self, at: Option<u64>) -> Result<u64, HeaderError> {
        let Some(at) = at else { return Ok(0) };
        let Some(stored) = self.reader.stored(at)? else {
            self.parts.add(Part::Unreadable, 0, 1);
            return Ok(0);
        };
        self.parts.reach(at, stored);
        self.parts.add(Part::SecurityAndProperties, stored, 1);
        Ok(stored)
    }
}

/// Divides the bytes of a node among its rows; what is left belongs to the node.
struct Shares {
    stored: u64,
    length: u64,
    given: u64,
}

impl Shares {
    const fn of(leaf: &Leaf<'_>) -> Self {
        Self { stored: leaf.stored, length: leaf.length as u64, given: 0 }
    }

    /// The bytes in the file for a row.
    fn take(&mut self, key: Term<'_>, value: Term<'_>) -> u64 {
        // The pair of both has two bytes of its own.
        self.take_bytes(2 + key.encoded().len() + value.encoded().len())
    }

    /// The bytes in the file for `length` bytes of the node's term.
    fn take_bytes(&mut self, length: usize) -> u64 {
        let share = u128::from(self.stored) * length as u128 / u128::from(self.length.max(1));
        let share = u64::try_from(share).unwrap_or(u64::MAX).min(self.stored - self.given);
        self.given += share;
        share
    }

    /// Adds the rest to the nodes, and a place that cannot be read if a row has an unknown form.
    fn finish(self, parts: &mut Parts, rows: Option<()>) {
        let rest = self.stored - self.given;
        match rows {
            Some(()) => parts.add(Part::TreeNodes, rest, 0),
            None => parts.add(Part::Unreadable, rest, 1),
        }
    }
}
