//! The file that a compaction would write, by position.
//!
//! Owns how CouchDB divides the rows of a tree into nodes when it appends them in batches
//! (`couch_btree`: `chunkify/1`, `write_node/5`, `can_reuse_old_node/2`), and what that leaves
//! behind. Holds the last node of each level, never the file.

use super::{
    block::{self, BLOCK},
    chunk::{Compression, HEAD},
    design::Encoder,
};
use flate2::{Compress, FlushCompress};
use std::rc::Rc;

/// `[couchdb] btree_chunk_size`.
pub(super) const NODE_BYTES: usize = 1279;
/// A node with fewer bytes is written again when rows are appended to it.
const REUSED_NODE_BYTES: usize = 640;

/// An estimate as a whole number.
#[expect(
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "negative ones are zero"
)]
pub(super) const fn rounded(value: f64) -> u64 {
    value.round() as u64
}

/// A file being written.
#[derive(Debug, Default)]
pub(super) struct CompactedFile {
    /// Its size so far.
    pub(super) end: u64,
}

impl CompactedFile {
    /// Appends data with its length; returns its position and its bytes in the file.
    pub(super) fn append(&mut self, length: u64) -> (u64, u64) {
        let at = self.end;
        let into = usize::try_from(at % BLOCK as u64).unwrap_or_default();
        let stored = block::with_markers(into, length);
        self.end = at.saturating_add(stored);
        (at, stored)
    }

    /// Multiplies the bytes appended after `from`: they were a sample and each stands for `weight`.
    pub(super) fn scale(&mut self, from: u64, weight: f64) {
        if weight > 1.0 {
            let more = self.end.saturating_sub(from) as f64 * weight;
            self.end = from.saturating_add(rounded(more));
        }
    }

    /// Appends a header of `record` bytes at the next block.
    pub(super) fn header(&mut self, record: u64) {
        self.end = self.end.next_multiple_of(BLOCK as u64).saturating_add(record);
    }
}

/// The reduction of rows.
#[derive(Clone, Debug)]
pub(super) enum Reduction {
    /// `[]`.
    Nothing,
    Count(u64),
    Docs {
        docs: u64,
        deleted: u64,
        active: u64,
        external: u64,
    },
    /// Encoded reductions of the same function, each with its number of rows: those of a node and of the nodes above
    /// it. Only their lengths matter. `rows` is the number of rows of this reduction.
    Like {
        others: Rc<[(u64, Vec<u8>)]>,
        rows: u64,
    },
}

impl Reduction {
    fn add(self, other: &Self) -> Self {
        match (self, other) {
            (Self::Count(one), Self::Count(two)) => Self::Count(one + two),
            (
                Self::Docs { docs, deleted, active, external },
                Self::Docs { docs: docs2, deleted: deleted2, active: active2, external: external2 },
            ) => Self::Docs {
                docs: docs + docs2,
                deleted: deleted + deleted2,
                active: active.saturating_add(*active2),
                external: external.saturating_add(*external2),
            },
            (Self::Like { others, rows }, Self::Like { rows: rows2, .. }) => {
                Self::Like { others, rows: rows + rows2 }
            }
            (first, _) => first,
        }
    }

    fn encode(&self, out: &mut Encoder) {
        match self {
            Self::Nothing => out.nil(),
            Self::Count(count) => out.integer((*count).into()),
            Self::Docs { docs, deleted, active, external } => {
                out.tuple(3);
                out.integer((*docs).into());
                out.integer((*deleted).into());
                out.tuple(3);
                out.atom("size_info");
                out.integer((*active).into());
                out.integer((*external).into());
            }
            Self::Like { others, rows } => {
                out.encoded(reduction_like(others, *rows));
            }
        }
    }
}

/// A reduction as long as one of this many rows should be, interpolated between those of fewer and of more rows:
/// `_approx_count_distinct` grows with its rows, most others do not.
fn reduction_like(others: &[(u64, Vec<u8>)], rows: u64) -> &[u8] {
    let above = others.iter().position(|(count, _)| *count >= rows).unwrap_or(others.len());
    // Outside the known range, the nearest two are extrapolated.
    let above = above.clamp(1, others.len().saturating_sub(1).max(1));
    let Some((count, larger)) = others.get(above) else {
        return others.last().map_or(&[], |(_, reduction)| reduction);
    };
    let Some((fewer, smaller)) = others.get(above - 1) else { return larger };
    let share = (rows as f64 - *fewer as f64) / count.saturating_sub(*fewer).max(1) as f64;
    let length = smaller.len() as f64 + share * (larger.len() as f64 - smaller.len() as f64);
    let length = usize::try_from(rounded(length)).unwrap_or_default();
    larger.get(..length).unwrap_or(larger)
}

/// An element of a node: a row, or a reference to a node.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// The encoded pair of key and value.
    pair: Vec<u8>,
    /// The length of the key, which follows the pair's two bytes.
    key: usize,
    reduction: Reduction,
    /// Bytes of the referenced node and its subtree; zero for a row.
    subtree: u64,
}

impl Item {
    /// A row, with `value` encoding its value.
    pub(super) fn row(key: &[u8], reduction: Reduction, value: impl FnOnce(&mut Encoder)) -> Self {
        let mut out = Encoder::part(Vec::with_capacity(256));
        out.tuple(2);
        out.encoded(key);
        value(&mut out);
        Self { pair: out.finish(), key: key.len(), reduction, subtree: 0 }
    }

    /// The length that CouchDB counts.
    pub(super) fn length(&self) -> usize {
        self.pair.len() + 1
    }

    fn key(&self) -> &[u8] {
        self.pair.get(2..2 + self.key).unwrap_or_default()
    }
}

/// Computes the compressed length of terms.
pub(super) struct Packer {
    compression: Compression,
    snappy: snap::raw::Encoder,
    out: Vec<u8>,
}

impl Packer {
    pub(super) fn new(compression: Compression) -> Self {
        Self { compression, snappy: snap::raw::Encoder::new(), out: Vec::new() }
    }

    pub(super) fn length(&mut self, term: &[u8]) -> usize {
        match self.compression {
            Compression::None => term.len(),
            Compression::Snappy => {
                self.out.resize(snap::raw::max_compress_len(term.len()), 0);
                self.snappy.compress(term, &mut self.out).map_or(term.len(), |length| length + 1)
            }
            Compression::Deflate => {
                let inner = term.get(1..).unwrap_or_default();
                self.out.clear();
                self.out.reserve(inner.len() + 64);
                let mut deflate = Compress::new(flate2::Compression::new(6), true);
                let done = deflate.compress_vec(inner, &mut self.out, FlushCompress::Finish);
                // Erlang keeps a term that does not become shorter.
                done.map_or(term.len(), |_| (self.out.len() + 6).min(term.len()))
            }
            Compression::Zstd => {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                ruzstd::encoding::compress_to_vec(term, level).len()
            }
        }
    }
}

/// A tree to which rows are appended in the order of their keys.
pub(super) struct AppendTree {
    packer: Packer,
    /// The elements of the last node of each level, rows first.
    levels: Vec<Vec<Item>>,
    /// The reference to the root.
    root: Option<Item>,
}

impl AppendTree {
    pub(super) fn new(compression: Compression) -> Self {
        Self { packer: Packer::new(compression), levels: Vec::new(), root: None }
    }

    pub(super) fn add(&mut self, file: &mut CompactedFile, rows: Vec<Item>) {
        if rows.is_empty() {
            return;
        }
        // What is appended at this level, and whether it replaces the last element.
        let (mut more, mut replaces) = (rows, false);
        for level in 0..self.levels.len() {
            let Some(last) = self.levels.get_mut(level) else { break };
            let mut old = std::mem::take(last);
            let kept: usize = old.iter().map(Item::length).sum();
            let is_reused = !replaces && old.len() > 1 && kept >= REUSED_NODE_BYTES;
            if !is_reused {
                if replaces {
                    old.pop();
                }
                old.append(&mut more);
                more = old;
            }
            (more, replaces) = (self.write(file, level, more), !is_reused);
        }
        if self.levels.is_empty() {
            self.levels.push(Vec::new());
            more = self.write(file, 0, more);
        } else if !replaces {
            let root = self.root.take();
            more = root.into_iter().chain(more).collect();
        }
        while more.len() > 1 {
            self.levels.push(Vec::new());
            more = self.write(file, self.levels.len() - 1, more);
        }
        self.root = more.pop();
    }

    /// Writes elements as nodes of a level, and returns the references to them.
    pub(super) fn write(
        &mut self,
        file: &mut CompactedFile,
        level: usize,
        items: Vec<Item>,
    ) -> Vec<Item> {
        let mut references = Vec::new();
        let mut last = Vec::new();
        for node in divide(items) {
            references.extend(self.write_node(file, level == 0, &node));
            last = node;
        }
        if let Some(place) = self.levels.get_mut(level) {
            *place = last;
        }
        references
    }

    fn write_node(
        &mut self,
        file: &mut CompactedFile,
        is_leaf: bool,
        node: &[Item],
    ) -> Option<Item> {
        let mut out = Encoder::new();
        out.tuple(2);
        out.atom(if is_leaf { "kv_node" } else { "kp_node" });
        out.list(node.iter(), |out, item| out.encoded(&item.pair));
        let packed = self.packer.length(&out.finish());
        let (at, stored) = file.append((HEAD + packed) as u64);
        let (first, rest) = node.split_first()?;
        let reduction =
            rest.iter().fold(first.reduction.clone(), |sum, item| sum.add(&item.reduction));
        let subtree = node.iter().fold(stored, |sum, item| sum.saturating_add(item.subtree));
        let reference = Item::row(node.last()?.key(), reduction.clone(), |out| {
            out.tuple(3);
            out.integer(at.into());
            reduction.encode(out);
            out.integer(subtree.into());
        });
        Some(Item { subtree, ..reference })
    }
}

/// Divides elements into nodes (`couch_btree:chunkify/1`).
fn divide(items: Vec<Item>) -> Vec<Vec<Item>> {
    // The 7 bytes are version, tag, length and end of a list.
    let whole: usize = items.iter().map(|item| item.pair.len()).sum::<usize>() + 7;
    if whole <= NODE_BYTES {
        return vec![items];
    }
    let threshold = whole / (whole / NODE_BYTES + 1);
    let (mut nodes, mut node, mut length) = (Vec::<Vec<Item>>::new(), Vec::new(), 0);
    for item in items {
        let more = item.length();
        let is_full = length + more > threshold && !node.is_empty();
        node.push(item);
        length += more;
        if is_full {
            nodes.push(std::mem::take(&mut node));
            length = 0;
        }
    }
    match (node.len(), nodes.last_mut()) {
        (1, Some(last)) => last.append(&mut node),
        (0, _) => {}
        _ => nodes.push(node),
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reduction_length_is_interpolated_from_other_tree_nodes() {
        let others = [(10, vec![1; 100]), (100, vec![2; 1000]), (1000, vec![3; 1100])];
        let length = |rows| reduction_like(&others, rows).len();
        let lengths = [5, 10, 55, 100, 550, 1000, 5000].map(length);
        assert_eq!(lengths, [50, 100, 550, 1000, 1050, 1100, 1100]);
        let sums = [(10, vec![1; 7]), (100, vec![2; 7])];
        assert_eq!([1, 10, 50, 900].map(|rows| reduction_like(&sums, rows).len()), [7; 4]);
        assert_eq!(reduction_like(&others[..1], 500).len(), 100);
        assert!(reduction_like(&[], 1).is_empty());
    }
}
