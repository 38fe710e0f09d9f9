//! How files grow, and what a compaction leaves.
//!
//! Owns the model behind every size of a simulated file. Never holds state: each function takes
//! the description and the changes so far. Only the world calls it.
//!
//! The model: a write appends the document and the tree nodes above it. Live bytes grow only by
//! new documents and tombstones. A compaction leaves the live bytes times a factor for the shape
//! of the documents. All arithmetic is IEEE addition, multiplication and rounding, so the numbers
//! are the same on every machine.

use super::config::Design;
use std::time::Duration;

/// The size of a database file without documents (a fresh 3.5.0 shard).
pub(super) const EMPTY_DB: u64 = 8_348;
/// The size of an index file that was opened but never built.
pub(super) const EMPTY_VIEW: u64 = 51;
/// Live bytes of a tombstone.
const TOMBSTONE: u64 = 180;
/// Bytes of rewritten tree nodes for each write, if writes come in small batches.
const TREE: u64 = 1_100;
/// Bytes of the external sort for each document (measured: 119 MB of `.compact.meta` for 600k
/// documents).
const META: u64 = 200;
/// Bytes that live trees keep for a superseded revision until a compaction, and the rewrites per document above which
/// a further one costs less than half as much (measured on CouchDB 3.5).
const REMAINS: f64 = 55.0;
const REMAINS_HALF_POINT: f64 = 10.0;
/// Live bytes of an index besides its rows.
const VIEW_STATE: u64 = 300;

/// A well-distributed number from two others (splitmix64's finalizer).
pub(super) const fn mix(a: u64, b: u64) -> u64 {
    let mut z = a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A key for a name, independent of its position in a list (FNV-1a).
pub(super) fn key_of(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |key, byte| {
        (key ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A number between `low` and `high`, determined by a mixed key.
pub(super) fn between(key: u64, low: f64, high: f64) -> f64 {
    let unit = (key >> 11) as f64 / (1_u64 << 53) as f64;
    low + (high - low) * unit
}

/// A count or number of bytes times a factor, rounded down, never below zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float to integer casts saturate, and a NaN becomes zero"
)]
pub(super) fn times(count: u64, factor: f64) -> u64 {
    (count as f64 * factor).max(0.0) as u64
}

/// The random pattern of writes to one range: a steady stream with bursts.
#[derive(Clone, Copy, Debug)]
pub(super) struct WritePattern {
    per_second: f64,
    period: f64,
    burst: f64,
    phase: f64,
}

impl WritePattern {
    /// A pattern with an average of `per_second` writes; `key` determines its bursts.
    pub(super) fn new(key: u64, per_second: f64) -> Self {
        let period = between(mix(key, 1), 15.0, 90.0);
        Self {
            per_second,
            period,
            burst: period * between(mix(key, 2), 0.1, 0.9),
            phase: period * between(mix(key, 3), 0.0, 1.0),
        }
    }

    /// The number of writes since the beginning; never decreases with time.
    pub(super) fn writes(&self, since: Duration) -> u64 {
        if self.per_second <= 0.0 {
            return 0;
        }
        let at = since.as_secs_f64();
        let bursts = self.bursts(at + self.phase) - self.bursts(self.phase);
        times(1, self.per_second * (0.4 * at + 0.6 * bursts))
    }

    /// The duration of steady writes, in seconds, that the bursts so far equal, if all writes of a
    /// period fall into its burst.
    fn bursts(&self, at: f64) -> f64 {
        let whole = (at / self.period).floor();
        let within = (at - whole * self.period) / self.burst;
        self.period * (whole + within.min(1.0))
    }
}

/// The model of a shard's content, from the description of its database.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardModel {
    pub(super) docs: u64,
    pub(super) deleted: u64,
    pub(super) doc_bytes: u64,
    pub(super) attachment_bytes: u64,
    pub(super) bloat: f64,
    pub(super) compacted: f64,
    pub(super) compacts_to: f64,
    pub(super) even: bool,
    pub(super) new_share: f64,
    pub(super) delete_share: f64,
    /// Attachment bytes that an average write replaces.
    pub(super) replaced_bytes: u64,
    /// Whether attachments that were replaced since the last compaction count as active (on nodes before
    /// 3.4.3).
    pub(super) counts_dead: bool,
    /// Dead attachment bytes at the start, as a multiple of live bytes, if they count as active.
    pub(super) dead_at_start: f64,
    /// A key that differs between the copies of a range.
    pub(super) copy: u64,
}

/// The document counts of a range after some writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DocCounts {
    pub(super) docs: u64,
    pub(super) deleted: u64,
    pub(super) seq: u64,
}

/// The result of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compacted {
    pub(super) seq: u64,
    pub(super) file: u64,
    pub(super) active: u64,
    pub(super) live: u64,
}

impl ShardModel {
    /// Live bytes at the start, before any write.
    fn live_at_start(&self) -> u64 {
        self.live(DocCounts { docs: self.docs, deleted: self.deleted, seq: 0 })
    }

    fn live(&self, held: DocCounts) -> u64 {
        let each = self.doc_bytes.saturating_add(self.attachment_bytes);
        held.docs.saturating_mul(each).saturating_add(held.deleted.saturating_mul(TOMBSTONE))
    }

    /// Bytes that one write appends to the file.
    fn appended(&self) -> u64 {
        self.doc_bytes
            .saturating_add(TREE)
            .saturating_add(times(self.attachment_bytes, self.new_share))
            .saturating_add(self.replaced_bytes)
    }

    /// The sequence at the start: one write per document, two per tombstone, and those that
    /// caused the bloat.
    pub(super) fn seq_at_start(&self) -> u64 {
        let updates = times(self.live_at_start(), self.bloat - 1.0) / self.appended().max(1);
        self.docs.saturating_add(self.deleted.saturating_mul(2)).saturating_add(updates)
    }

    /// The sequence of the last compaction before the start.
    pub(super) fn compacted_at_start(&self) -> u64 {
        times(self.seq_at_start(), self.compacted)
    }

    /// The document counts after this many writes.
    pub(super) fn doc_counts(&self, writes: u64) -> DocCounts {
        let deletes = times(writes, self.delete_share);
        let docs = self.docs.saturating_add(times(writes, self.new_share)).saturating_sub(deletes);
        DocCounts {
            docs,
            deleted: self.deleted.saturating_add(deletes),
            seq: self.seq_at_start().saturating_add(writes),
        }
    }

    /// File and active bytes, given the result of the last compaction.
    pub(super) fn sizes(&self, held: DocCounts, swap: Option<Compacted>) -> super::Sizes {
        let live = self.live(held);
        let bytes = self.doc_bytes.saturating_sub(300).max(self.doc_bytes / 5);
        let external = held.docs.saturating_mul(bytes.saturating_add(self.attachment_bytes));
        let (file, active) = match swap {
            Some(swap) => (
                self.grown(swap.file, held.seq, swap.seq),
                swap.active
                    .saturating_add(live)
                    .saturating_sub(swap.live)
                    .saturating_add(self.dead(held.seq, swap.seq))
                    .saturating_add(self.remains(held, swap.seq)),
            ),
            None => {
                let bloat = self.bloat * between(self.copy, 1.0, 1.04);
                let start = times(self.live_at_start(), bloat).max(EMPTY_DB);
                let dead_at_start =
                    if self.counts_dead { times(live, self.dead_at_start) } else { 0 };
                let first = self.seq_at_start();
                let dead = dead_at_start.saturating_add(self.dead(held.seq, first));
                let remains = self.remains(held, self.compacted_at_start());
                let active = live.saturating_add(dead).saturating_add(remains);
                (self.grown(start, held.seq, first), active)
            }
        };
        super::Sizes { file: file.max(active), active, external }
    }

    /// Bytes that live trees keep for revisions superseded since a sequence. Only databases that are `even` are
    /// modelled this closely.
    fn remains(&self, held: DocCounts, since: u64) -> u64 {
        let documents = held.docs.saturating_add(held.deleted);
        let ever = held.seq.saturating_sub(documents);
        let rewrites = held.seq.saturating_sub(since).min(ever) as f64;
        if !self.even || documents == 0 {
            return 0;
        }
        let weighted = rewrites / (1.0 + rewrites / (REMAINS_HALF_POINT * documents as f64));
        times(1, REMAINS * weighted).min(self.live(held) / 3)
    }

    /// Bytes of attachments that were replaced between two sequences, if they count as active.
    fn dead(&self, seq: u64, from: u64) -> u64 {
        let replaced = seq.saturating_sub(from).saturating_mul(self.replaced_bytes);
        if self.counts_dead { replaced } else { 0 }
    }

    fn grown(&self, file: u64, seq: u64, from: u64) -> u64 {
        file.saturating_add(seq.saturating_sub(from).saturating_mul(self.appended()))
    }

    /// The result of a compaction that began at `began` and ended at `held`. Further passes copied
    /// the writes in between into the same new file and superseded earlier entries there, so the
    /// file is larger than after a compaction without writes, but its active bytes are not.
    pub(super) fn compacted_file(&self, began: DocCounts, held: DocCounts) -> Compacted {
        let copied = self.clean(began).max(EMPTY_DB);
        let file = self.grown(copied, held.seq, began.seq);
        let (low, high) = if self.even { (0.985, 0.995) } else { (0.9, 0.99) };
        let active = times(self.clean(held), between(mix(self.copy, 7), low, high)).min(file);
        let active = if held.docs == 0 && held.deleted == 0 { 0 } else { active };
        Compacted { seq: held.seq, file, active, live: self.live(held) }
    }

    /// The size of the file after a compaction without concurrent writes.
    pub(super) fn clean(&self, held: DocCounts) -> u64 {
        let (low, high) = if self.even { (0.997, 1.003) } else { (0.97, 1.03) };
        times(self.live(held), self.compacts_to * between(self.copy, low, high))
    }

    /// The size of the new file when a compaction copies `held`.
    pub(super) fn copy_bytes(&self, held: DocCounts) -> u64 {
        times(self.live(held), self.compacts_to)
    }

    /// The size of the compaction's external sort.
    pub(super) const fn meta_bytes(held: DocCounts) -> u64 {
        held.docs.saturating_add(held.deleted).saturating_mul(META)
    }

    /// The bytes that a catch-up pass over `writes` further writes copies.
    pub(super) fn catch_up_bytes(&self, writes: u64) -> u64 {
        writes.saturating_mul(self.appended())
    }
}

/// The state of an index file after a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CompactedView {
    pub(super) seq: u64,
    pub(super) file: u64,
}

/// The documents in an index that is built to `seq`, of a range with `held` documents.
fn indexed(held: DocCounts, seq: u64) -> u64 {
    if held.seq == 0 {
        return 0;
    }
    times(held.docs, (seq.min(held.seq) as f64) / (held.seq as f64))
}

/// Live bytes of an index built to `seq`; 0 if it was never built.
pub(super) fn view_active(design: &Design, held: DocCounts, seq: u64) -> u64 {
    match seq {
        0 => 0,
        _ => indexed(held, seq).saturating_mul(design.bytes_per_doc).saturating_add(VIEW_STATE),
    }
}

/// The sizes of an index that is built to `seq`, and was in the state `start` before.
pub(super) fn view_sizes(
    design: &Design,
    held: DocCounts,
    seq: u64,
    start: CompactedView,
) -> super::Sizes {
    let active = view_active(design, held, seq);
    // A build appends each row several times: an index built in one go is 4 to 8 times as large as
    // its live bytes.
    let append = design.bytes_per_doc.saturating_mul(4).saturating_add(100);
    let file = start.file.saturating_add(seq.saturating_sub(start.seq).saturating_mul(append));
    super::Sizes { file: file.max(active).max(EMPTY_VIEW), active, external: times(active, 0.85) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stock() -> ShardModel {
        ShardModel {
            docs: 1_000,
            deleted: 100,
            doc_bytes: 800,
            attachment_bytes: 0,
            bloat: 2.5,
            compacted: 0.0,
            compacts_to: 1.05,
            even: false,
            new_share: 0.3,
            delete_share: 0.2,
            replaced_bytes: 0,
            counts_dead: false,
            dead_at_start: 0.0,
            copy: 42,
        }
    }

    #[test]
    fn bloated_shard_compacts_to_about_its_active_bytes() {
        let stock = stock();
        let held = stock.doc_counts(0);
        let before = stock.sizes(held, None);
        let ratio = before.file as f64 / before.active as f64;
        assert!((2.5..2.61).contains(&ratio), "{ratio}");
        let swap = stock.compacted_file(held, held);
        let after = stock.sizes(held, Some(swap));
        let left = after.file as f64 / before.active as f64;
        assert!((1.0..1.1).contains(&left), "{left}");
        assert!(after.active <= after.file);
        let again = stock.sizes(held, Some(stock.compacted_file(held, held)));
        assert_eq!(again, after, "compacting twice shrinks no further");
    }

    #[test]
    fn file_that_caught_up_with_writes_is_larger_than_a_clean_one() {
        let stock = ShardModel { new_share: 0.02, delete_share: 0.01, ..stock() };
        let (began, held) = (stock.doc_counts(0), stock.doc_counts(900));
        let swap = stock.compacted_file(began, held);
        let (clean, bloated) = (
            stock.sizes(held, Some(stock.compacted_file(held, held))),
            stock.sizes(held, Some(swap)),
        );
        assert_eq!(swap.seq, held.seq, "its sequence is still the last one written");
        assert_eq!(bloated.active, clean.active);
        let ratio = bloated.file as f64 / clean.file as f64;
        assert!((2.0..3.5).contains(&ratio), "{ratio}");
    }

    #[test]
    fn replaced_attachments_count_as_active_until_compaction() {
        let stock =
            ShardModel { replaced_bytes: 5_000, new_share: 0.0, delete_share: 0.0, ..stock() };
        let (began, later) = (stock.doc_counts(100), stock.doc_counts(500));
        let swap = stock.compacted_file(began, began);
        let old = ShardModel { counts_dead: true, ..stock };
        let (fresh, written) = (stock.sizes(began, Some(swap)), stock.sizes(later, Some(swap)));
        assert_eq!(
            old.sizes(began, Some(swap)),
            fresh,
            "right after a compaction, active bytes are correct"
        );
        let counted = old.sizes(later, Some(swap));
        assert_eq!(counted.active - written.active, 400 * 5_000);
        assert_eq!(counted.file, written.file);
        assert!(
            written.file - fresh.file > 400 * 5_000,
            "the file keeps the old attachments either way"
        );
        assert_eq!(old.clean(later), stock.clean(later));
    }

    #[test]
    fn writes_match_the_rate_over_a_day() {
        let rhythm = WritePattern::new(7, 20.0);
        let day = rhythm.writes(Duration::from_secs(86_400));
        assert!((1_720_000..1_740_000).contains(&day), "{day}");
        assert_eq!(WritePattern::new(7, 0.0).writes(Duration::from_secs(86_400)), 0);
    }

    proptest! {
        #[test]
        fn write_count_never_decreases(key: u64, rate in 0.0..1e4, a in 0_u64..1 << 36, step in 0_u64..1 << 20) {
            let rhythm = WritePattern::new(key, rate);
            let at = |millis| rhythm.writes(Duration::from_millis(millis));
            prop_assert!(at(a) <= at(a + step));
        }

        #[test]
        fn file_is_at_least_its_active_bytes(
            docs in 0_u64..1 << 40, deleted in 0_u64..1 << 30, doc_bytes in 0_u64..1 << 24,
            attachment_bytes in 0_u64..1 << 30, bloat in 1.0..200.0, compacts_to in 0.1..2.0,
            new_share in 0.0..1.0, began in 0_u64..1 << 30, writes in 0_u64..1 << 30, copy: u64,
        ) {
            let delete_share = f64::min(1.0 - new_share, new_share) / 2.0;
            let stock = ShardModel {
                docs, deleted, doc_bytes, attachment_bytes, bloat, compacts_to, new_share,
                delete_share, copy, ..stock()
            };
            let held = stock.doc_counts(began.saturating_add(writes));
            let swap = stock.compacted_file(stock.doc_counts(began), held);
            for sizes in [stock.sizes(held, None), stock.sizes(held, Some(swap))] {
                prop_assert!(sizes.file >= sizes.active && sizes.file >= EMPTY_DB);
            }
            prop_assert!(stock.compacted_at_start() <= stock.seq_at_start());
        }
    }
}
