//! Walks a file's trees, or a sample of them.
//!
//! Owns the state of an X-ray, and divides a node's bytes among its rows. Never knows what a row means.

use super::parts::{Mean, Part, Parts, Samples};
use crate::{
    HeaderError, TreeSize,
    chunk::Reader,
    compacted::rounded,
    random_bits,
    term::Term,
    tree::{self, Leaf, NodeRef, Visit, WalkError},
};
use std::collections::BTreeSet;

/// A tree of at most this many bytes is read completely.
const SMALL_TREE_BYTES: u64 = 1 << 20;
/// Typical bytes of a node with rows.
const MEAN_NODE_BYTES: u64 = 1000;
/// Hardly any node with documents has fewer bytes. Smaller ones are too rare among those that are copied.
const SHORT_NODE_BYTES: f64 = 250.0;
/// Leaves with large rows are chosen more often, and the nodes above them have large keys: by so much their size may
/// be off.
const INNER_ERROR: f64 = 0.2;
/// The precision of random shares.
const CHANCES: u64 = 1 << 20;
/// Maximum number of copied leaves that are remembered. In a tree of which so many are copied, few are chosen twice.
const MAX_REMEMBERED: usize = 1 << 18;
/// Minimum number of sampled nodes of a tree.
const FEWEST_SAMPLES: u64 = 1000;

/// Why a file has no X-ray.
#[derive(Debug, thiserror::Error)]
pub enum XrayError {
    /// The file cannot be read, or has no usable header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Trees or bodies overlap; CouchDB never writes such a file.
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

/// A sample of a file to read.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The share of the nodes with rows, from 0 to 1. Small trees are read completely.
    pub share: f64,
    /// Determines which nodes are read.
    pub seed: u64,
}

/// What a sample of a tree is scaled by.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scale {
    /// The number of rows: documents, each with bodies beside its row.
    Rows,
    /// The bytes of nodes with rows, which a compaction hardly changes.
    Bytes,
}

pub(super) struct Walk<'b> {
    pub(super) reader: Reader<'b>,
    pub(super) parts: Parts,
    /// Bytes of nodes that may still be read.
    pub(super) budget: u64,
    /// Whether each attachment was counted once.
    pub(super) exact: bool,
    pub(super) sample: Option<Sample>,
    pub(super) scales: Scale,
}

/// Adds the rows of a leaf to parts.
pub(super) type LeafReader<'v> =
    dyn FnMut(&mut Reader<'_>, &mut Parts, &Leaf<'_>) -> Result<(), WalkError> + 'v;

impl Walk<'_> {
    /// Walks a tree, or a sample of it, and calls `leaf` with the nodes that have rows; the bytes of other nodes count
    /// as tree nodes. Returns how many rows each read row stands for. `below` gives the bytes referenced by the rows
    /// below a node.
    pub(super) fn tree(
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

    /// Reads random leaves of a tree of `bytes` bytes.
    fn sampled_tree(
        &mut self,
        root: u64,
        bytes: u64,
        sample: Sample,
        leaf: &mut LeafReader<'_>,
    ) -> Result<f64, WalkError> {
        let count = (bytes / MEAN_NODE_BYTES) as f64 * sample.share.clamp(0.0, 1.0);
        let count = rounded(count).max(FEWEST_SAMPLES);
        let mut steps = 0_u64..;
        let mut random =
            |below: u64| random_bits(sample.seed ^ root, steps.next().unwrap_or_default()) % below;
        let mut samples = Samples::default();
        let scales = self.scales;
        let (mut leaf_bytes, mut rows) = (Mean::default(), Mean::default());
        let mut copied = BTreeSet::new();
        for _ in 0..count {
            let mut parts = Parts::default();
            // Decides whether the simulated compaction copies the leaf.
            let chance = random(CHANCES) as f64 / CHANCES as f64;
            let reader = &mut self.reader;
            let chosen = tree::random_leaf(reader, root, &mut random, |reader, mut node, p| {
                // The larger a leaf and the nodes above it, the more often it is chosen; this corrects for that.
                let is_wanted = match scales {
                    Scale::Rows => chance * p * (bytes as f64) < SHORT_NODE_BYTES,
                    Scale::Bytes => true,
                };
                // Two equal leaves side by side would compress too well.
                node.is_copied =
                    is_wanted && (copied.len() >= MAX_REMEMBERED || copied.insert(node.at));
                parts.reach(node.at, node.stored);
                parts.add(Part::TreeNodes, 0, 1);
                leaf(reader, &mut parts, &node)?;
                let (stored, own_rows) = (node.stored as f64, f64::from(node.count));
                leaf_bytes.add(stored / p);
                rows.add(own_rows / p);
                samples.add(&parts, p.recip());
                if node.is_copied {
                    let (bytes, units) = match scales {
                        Scale::Rows => (stored + parts.beside_rows as f64, own_rows),
                        Scale::Bytes => (node.length as f64, stored),
                    };
                    samples.copied.add(bytes, units);
                }
                Ok(())
            })?;
            if chosen.is_none() {
                self.parts.add(Part::Unreadable, 0, 1);
            }
        }
        let all = match (scales, tree::rows(&mut self.reader, root)?) {
            (Scale::Bytes, _) => &leaf_bytes,
            (Scale::Rows, Some(known)) => &Mean::of(known as f64),
            (Scale::Rows, None) => &rows,
        };
        self.parts.add_samples(&samples, all);
        // The bytes outside leaves belong to nodes with references.
        let inner = f64::max(bytes as f64 - leaf_bytes.mean(), 0.0);
        self.parts.add_rest(Part::TreeNodes, inner, leaf_bytes.variance());
        if matches!(scales, Scale::Bytes) {
            self.parts.copy_bias += INNER_ERROR * inner;
        }
        Ok(all.mean() / samples.copied.units.max(1.0))
    }

    /// Adds a term that the header references.
    pub(super) fn term(&mut self, at: Option<u64>) -> Result<u64, HeaderError> {
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

/// Divides a node's bytes among its rows; the remainder belongs to the node.
pub(super) struct Shares {
    stored: u64,
    length: u64,
    given: u64,
}

impl Shares {
    pub(super) const fn of(leaf: &Leaf<'_>) -> Self {
        Self { stored: leaf.stored, length: leaf.length as u64, given: 0 }
    }

    /// The share of a row in the node's bytes in the file.
    pub(super) fn take(&mut self, key: Term<'_>, value: Term<'_>) -> u64 {
        // The pair itself has two bytes.
        self.take_bytes(2 + key.encoded().len() + value.encoded().len())
    }

    /// The share of `length` bytes of the node's term in its bytes in the file.
    pub(super) fn take_bytes(&mut self, length: usize) -> u64 {
        let share = u128::from(self.stored) * length as u128 / u128::from(self.length.max(1));
        let share = u64::try_from(share).unwrap_or(u64::MAX).min(self.stored - self.given);
        self.given += share;
        share
    }

    /// Adds the remainder to the tree nodes, or an unreadable place if a row has an unknown form.
    pub(super) fn finish(self, parts: &mut Parts, rows: Option<()>) {
        let rest = self.stored - self.given;
        match rows {
            Some(()) => parts.add(Part::TreeNodes, rest, 0),
            None => parts.add(Part::Unreadable, rest, 1),
        }
    }
}
