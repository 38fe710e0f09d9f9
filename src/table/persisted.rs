//! The persistent form of the tables, for use after a restart.
//!
//! Owns the byte format of a block, and its conversion back into a draft. Never reads or writes a
//! file: the archive requests the blocks, the journal stores them, and the scanner restores them
//! into its draft before its first sweep.
//!
//! A block covers a fixed number of adjacent rows with the names they share. The moment at which
//! most of them were measured is stored separately, so that the bytes of a block do not change if
//! only that moment does.

use super::{
    DbName, Draft, NodeIx, PackedFacts, ShardMapEntry, SizeHistory, Snapshot, TargetIx, View,
};
use crate::{
    model::{
        facts::{FactKind, OptionalU64},
        growth::Growth,
        rent::Rent,
        target::{TargetKind, TargetState},
    },
    text::Label,
};
use couchdb_names::{Range, Signature};
use flate2::{Compression, bufread::DeflateDecoder, write::DeflateEncoder};
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{Read as _, Write as _},
    time::Duration,
};
use wall_clock::Moment;

const ROWS_PER_BLOCK: usize = 256;

/// The format version of a block.
const FORMAT_VERSION: u8 = 3;

/// A measurement that is older than the newest of its block by more than this is stored with its
/// own moment.
const SHARED_TIME_SPAN: Duration = Duration::from_secs(3_600);

/// Maximum size of a block that is read back.
const MAX_BLOCK_BYTES: u64 = 64 << 20;

/// A stored block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableBlock {
    /// Its number.
    pub number: u32,
    /// The earliest of the measurements that share one moment.
    pub at: Moment,
    /// The compressed content; empty if no target is left.
    pub bytes: Vec<u8>,
}

/// A block that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is damaged, or of another version")]
pub struct DamagedBlock;

/// A block before compression.
#[derive(Clone, Debug)]
pub struct UncompressedBlock {
    number: u32,
    at: Moment,
    bytes: Vec<u8>,
}

/// The content of a block. In the stored bytes, the histories follow it in the order of its
/// targets, so that a version without histories can read the content alone.
#[derive(Debug, Default, Serialize, Deserialize)]
struct BlockContent<'a> {
    #[serde(borrow)]
    nodes: Vec<&'a str>,
    dbs: Vec<StoredDb<'a>>,
    targets: Vec<StoredTarget<'a>>,
}

/// The rent and growth of one target: [`Rent::parts`] and [`Growth::parts`], with times in seconds
/// since the Unix epoch.
#[derive(Debug, Serialize, Deserialize)]
struct StoredHistory {
    rent: Option<(f32, u32)>,
    growth: ([f32; 4], [u32; 2]),
}

impl StoredHistory {
    fn of(SizeHistory { rent, growth }: SizeHistory) -> Self {
        // Seconds of any realistic moment fit into 32 bits.
        let seconds = |at: Moment| u32::try_from(at.unix()).unwrap_or_default();
        let (means, times) = growth.parts();
        Self {
            rent: rent.parts().map(|(paid, since)| (paid, seconds(since))),
            growth: (means, times.map(seconds)),
        }
    }

    fn restored(&self) -> SizeHistory {
        let moment = |seconds: u32| Moment::from_unix(seconds.into());
        let rent = self.rent.map(|(paid, since)| Rent::from_parts(paid, moment(since)));
        let (means, times) = self.growth;
        SizeHistory {
            rent: rent.unwrap_or_default(),
            growth: Growth::from_parts(means, times.map(moment)),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredDb<'a> {
    db: &'a str,
    suffix: &'a str,
    copies: u32,
    ranges: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredTarget<'a> {
    node: u16,
    db: u16,
    /// Its index in `TargetState::ALL`.
    state: u8,
    #[serde(borrow)]
    what: StoredIdentity<'a>,
    bits: (u8, u16),
    /// By slot; a version with more slots reads the missing ones as unknown.
    numbers: Vec<Option<u64>>,
    /// In seconds since the Unix epoch, if it differs from the block's moment.
    at: Option<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
enum StoredIdentity<'a> {
    Db(Option<(u32, u32)>),
    View {
        signature: [u8; 16],
        #[serde(borrow)]
        designs: Vec<&'a str>,
        language: &'a str,
        collators: Vec<&'a str>,
        exact_range: bool,
    },
    Cleanup,
}

impl Snapshot {
    /// Number of blocks in the tables.
    pub const fn block_count(&self) -> usize {
        self.row_count().div_ceil(ROWS_PER_BLOCK)
    }

    /// One block of the tables. Empty if no target is left or if it cannot be serialised.
    pub fn build_block(&self, number: u32) -> UncompressedBlock {
        let from = (number as usize).saturating_mul(ROWS_PER_BLOCK);
        let places = from..from.saturating_add(ROWS_PER_BLOCK);
        // Parts are read from files right after a start, and search indexes together with the design documents.
        let stored = places
            .filter_map(|at| self.target_at(at))
            .filter(|target| !target.is_part() && target.kind() != TargetKind::Search);
        let targets: Vec<_> = stored.collect();
        let moments = || targets.iter().filter_map(|it| it.facts().measured_at).map(|it| it.at);
        let newest = moments().max().unwrap_or_default();
        let is_shared = |at: Moment| at.age(newest) <= SHARED_TIME_SPAN;
        let at = moments().filter(|at| is_shared(*at)).min().unwrap_or_default();
        let (mut nodes, mut dbs) = (HashMap::new(), HashMap::new());
        let mut content = BlockContent::default();
        for target in &targets {
            let node = *nodes.entry(target.node_ix()).or_insert_with(|| {
                content.nodes.push(target.node());
                content.nodes.len() - 1
            });
            let db = *dbs.entry(target.db()).or_insert_with(|| {
                let (DbName { db, suffix }, map) = (target.db_name(), target.shard_map());
                let ShardMapEntry { copies, ranges } = map;
                content.dbs.push(StoredDb { db, suffix, copies, ranges });
                content.dbs.len() - 1
            });
            let what = match (target.kind(), target.view()) {
                (TargetKind::View, Some(view)) => StoredIdentity::View {
                    signature: view.signature.0,
                    designs: view.designs.iter().map(|id| &**id).collect(),
                    language: &view.language,
                    collators: view.collators.iter().map(|version| &**version).collect(),
                    exact_range: view.exact_range,
                },
                (TargetKind::Cleanup, _) => StoredIdentity::Cleanup,
                (TargetKind::Db | TargetKind::View | TargetKind::Search, _) => {
                    StoredIdentity::Db(target.range().map(|range| (range.from, range.to)))
                }
            };
            let facts = target.facts();
            let (bits, numbers) = PackedFacts::pack(target.kind(), &facts).parts();
            let own = facts.measured_at.map(|it| it.at).filter(|at| !is_shared(*at));
            let state = TargetState::ALL.iter().position(|state| *state == target.state());
            content.targets.push(StoredTarget {
                node: u16::try_from(node).unwrap_or_default(),
                db: u16::try_from(db).unwrap_or_default(),
                state: state.and_then(|at| u8::try_from(at).ok()).unwrap_or_default(),
                what,
                bits,
                numbers: numbers.iter().map(|number| number.get()).collect(),
                at: own.and_then(|at| u32::try_from(at.unix()).ok()),
            });
        }
        let histories: Vec<_> =
            targets.iter().map(|target| StoredHistory::of(target.history())).collect();
        let bytes = if targets.is_empty() {
            Ok(Vec::new())
        } else {
            postcard::to_stdvec(&(content, histories))
        };
        UncompressedBlock { number, at, bytes: bytes.unwrap_or_default() }
    }
}

impl UncompressedBlock {
    /// The earliest of the measurements that share one moment.
    pub const fn at(&self) -> Moment {
        self.at
    }

    /// A hash of the content.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.bytes.hash(&mut hasher);
        hasher.finish()
    }

    /// The block in its stored form.
    pub fn compress(&self) -> TableBlock {
        let Self { number, at, ref bytes } = *self;
        let mut encoder = DeflateEncoder::new(vec![FORMAT_VERSION], Compression::fast());
        // Writing into memory does not fail.
        let packed = encoder.write_all(bytes).and_then(|()| encoder.finish());
        let packed = packed.ok().filter(|_| !bytes.is_empty());
        TableBlock { number, at, bytes: packed.unwrap_or_default() }
    }
}

impl Draft {
    /// Restores a block that an earlier process stored: its targets with their facts and
    /// measurement times. Data that is already in the tables is kept.
    ///
    /// # Errors
    ///
    /// If it cannot be read; then nothing is restored.
    pub fn restore(&mut self, block: &TableBlock) -> Result<(), DamagedBlock> {
        let Some((&FORMAT_VERSION, packed)) = block.bytes.split_first() else {
            return Err(DamagedBlock);
        };
        let mut bytes = Vec::new();
        let mut decoder = DeflateDecoder::new(packed).take(MAX_BLOCK_BYTES);
        decoder.read_to_end(&mut bytes).map_err(|_| DamagedBlock)?;
        let (content, rest) =
            postcard::take_from_bytes::<BlockContent<'_>>(&bytes).map_err(|_| DamagedBlock)?;
        let histories: Vec<StoredHistory> = if rest.is_empty() {
            Vec::new()
        } else {
            postcard::from_bytes(rest).map_err(|_| DamagedBlock)?
        };
        let is_valid = content.targets.iter().all(|stored| {
            usize::from(stored.node) < content.nodes.len()
                && usize::from(stored.db) < content.dbs.len()
                && usize::from(stored.state) < TargetState::ALL.len()
        });
        if !is_valid || content.targets.len() > ROWS_PER_BLOCK {
            return Err(DamagedBlock);
        }
        let nodes: Vec<NodeIx> =
            content.nodes.iter().map(|name| self.get_or_add_node(name)).collect();
        for node in nodes.iter().filter(|node| **node != NodeIx::CLUSTER) {
            self.update_node(*node, |node| node.is_member = true);
        }
        for (at, stored) in content.targets.iter().enumerate() {
            let node = nodes.get(usize::from(stored.node)).copied().unwrap_or_default();
            if let Some(db) = content.dbs.get(usize::from(stored.db)) {
                let ix = self.restore_target(node, db, stored, block.at);
                if let Some(history) = histories.get(at) {
                    self.set_history(ix, history.restored());
                }
            }
        }
        self.movements_restored(&nodes);
        Ok(())
    }

    fn restore_target(
        &mut self,
        node: NodeIx,
        stored_db: &StoredDb<'_>,
        target: &StoredTarget<'_>,
        at: Moment,
    ) -> TargetIx {
        let db = self.get_or_add_db(DbName { db: stored_db.db, suffix: stored_db.suffix });
        if self.shard_map(db) == ShardMapEntry::default() {
            let map = ShardMapEntry { copies: stored_db.copies, ranges: stored_db.ranges };
            self.set_shard_map(db, map, &[]);
        }
        let (kind, ix) = match &target.what {
            StoredIdentity::Db(range) => {
                let range = range.map(|(from, to)| Range { from, to });
                (TargetKind::Db, self.get_or_add_shard(node, db, range))
            }
            StoredIdentity::Cleanup => (TargetKind::Cleanup, self.get_or_add_cleanup(db)),
            StoredIdentity::View { signature, designs, language, collators, exact_range } => {
                let view = View {
                    signature: Signature(*signature),
                    designs: designs.iter().map(|id| (*id).into()).collect(),
                    language: (*language).into(),
                    collators: collators.iter().map(|version| (*version).into()).collect(),
                    exact_range: *exact_range,
                    // Other attributes are read again from design documents before anything is
                    // built.
                    ..View::default()
                };
                (TargetKind::View, self.add_view(db, view))
            }
        };
        let mut numbers = [OptionalU64::UNKNOWN; FactKind::SLOTS];
        for (number, stored) in numbers.iter_mut().zip(&target.numbers) {
            *number = (*stored).into();
        }
        let at = target.at.map_or(at, |at| Moment::from_unix(u64::from(at)));
        let mut facts = PackedFacts::from_parts(target.bits, numbers, at).unpack(kind);
        if kind == TargetKind::Cleanup {
            // The bytes of unused files are known only from the walk that also gives the node's sums, which
            // include them.
            facts.file_bytes = OptionalU64::UNKNOWN;
        }
        self.set_facts(ix, facts);
        if let Some(state) = TargetState::ALL.get(usize::from(target.state)) {
            self.set_state(ix, *state);
        }
        ix
    }
}

#[cfg(test)]
mod tests;
