//! The persistent form of the tables, for use after a restart.
//!
//! Owns the byte format of a block, and its conversion back into a draft. Never reads or writes a
//! file: the archive requests the blocks, the journal stores them, and the scanner restores them
//! into its draft before its first sweep.
//!
//! A block covers a fixed number of adjacent rows with the names they share. The moment at which
//! most of them were measured is stored separately, so that a block in which only that moment
//! changed keeps its bytes.

use super::{DbMap, DbName, Draft, NodeIx, Packed, Snapshot, View};
use crate::model::target::{Kind, State};
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

/// Rows in a block: as many as in a chunk of the tables.
const PLACES: usize = 256;

/// The format version of a block.
const FORM: u8 = 2;

/// A measurement older than the newest of its block by more than this has its own moment.
const TOGETHER: Duration = Duration::from_secs(3_600);

/// Maximum size of a block that is read back.
const LONGEST: u64 = 64 << 20;

/// A stored block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its number.
    pub number: u32,
    /// The first moment of the measurements that share one moment.
    pub at: Moment,
    /// Everything else; empty if no target is left.
    pub bytes: Vec<u8>,
}

/// A block that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is damaged, or of another version")]
pub struct Damaged;

/// A block before compression.
#[derive(Clone, Debug)]
pub struct Loose {
    number: u32,
    at: Moment,
    bytes: Vec<u8>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    nodes: Vec<&'a str>,
    dbs: Vec<KeptDb<'a>>,
    targets: Vec<KeptTarget<'a>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptDb<'a> {
    db: &'a str,
    suffix: &'a str,
    copies: u32,
    ranges: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptTarget<'a> {
    node: u16,
    db: u16,
    /// Its index in [`State::ALL`].
    state: u8,
    #[serde(borrow)]
    what: What<'a>,
    bits: [u8; 2],
    numbers: [Option<u64>; Packed::NUMBERS],
    /// In seconds since 1970, if it differs from the block's moment.
    at: Option<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
enum What<'a> {
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
    #[must_use]
    pub const fn blocks(&self) -> usize {
        self.capacity().div_ceil(PLACES)
    }

    /// One block of the tables. Empty if no target is left or if it cannot be serialised.
    #[must_use]
    pub fn block(&self, number: u32) -> Loose {
        let from = (number as usize).saturating_mul(PLACES);
        let places = from..from.saturating_add(PLACES);
        // Parts are read from files right after a start, and search indexes together with the
        // design documents.
        let kept = places
            .filter_map(|at| self.target_at(at))
            .filter(|target| !target.is_part() && target.kind() != Kind::Search);
        let targets: Vec<_> = kept.collect();
        let moments = || targets.iter().filter_map(|it| it.facts().measured_at).map(|it| it.at);
        let newest = moments().max().unwrap_or_default();
        let together = |at: Moment| at.age(newest) <= TOGETHER;
        let at = moments().filter(|at| together(*at)).min().unwrap_or_default();
        let (mut nodes, mut dbs) = (HashMap::new(), HashMap::new());
        let mut content = Content::default();
        for target in &targets {
            let node = *nodes.entry(target.node_ix()).or_insert_with(|| {
                content.nodes.push(target.node());
                content.nodes.len() - 1
            });
            let db = *dbs.entry(target.db()).or_insert_with(|| {
                let (DbName { db, suffix }, map) = (target.db_name(), target.map());
                let DbMap { copies, ranges } = map;
                content.dbs.push(KeptDb { db, suffix, copies, ranges });
                content.dbs.len() - 1
            });
            let what = match (target.kind(), target.view()) {
                (Kind::View, Some(view)) => What::View {
                    signature: view.signature.0,
                    designs: view.designs.iter().map(|id| &**id).collect(),
                    language: &view.language,
                    collators: view.collators.iter().map(|version| &**version).collect(),
                    exact_range: view.exact_range,
                },
                (Kind::Cleanup, _) => What::Cleanup,
                (Kind::Db | Kind::View | Kind::Search, _) => {
                    What::Db(target.range().map(|range| (range.from, range.to)))
                }
            };
            let facts = target.facts();
            let (bits, numbers) = Packed::of(target.kind(), &facts).parts();
            let own = facts.measured_at.map(|it| it.at).filter(|at| !together(*at));
            let state = State::ALL.iter().position(|state| *state == target.state());
            content.targets.push(KeptTarget {
                node: u16::try_from(node).unwrap_or_default(),
                db: u16::try_from(db).unwrap_or_default(),
                state: state.and_then(|at| u8::try_from(at).ok()).unwrap_or_default(),
                what,
                bits,
                numbers: numbers.map(crate::model::facts::Known::get),
                at: own.and_then(|at| u32::try_from(at.unix()).ok()),
            });
        }
        let bytes = if targets.is_empty() { Ok(Vec::new()) } else { postcard::to_stdvec(&content) };
        Loose { number, at, bytes: bytes.unwrap_or_default() }
    }
}

impl Loose {
    /// The first moment of the measurements that share one moment.
    #[must_use]
    pub const fn at(&self) -> Moment {
        self.at
    }

    /// A hash of the content.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.bytes.hash(&mut hasher);
        hasher.finish()
    }

    /// The block in its stored form.
    #[must_use]
    pub fn packed(&self) -> Block {
        let Self { number, at, ref bytes } = *self;
        let mut encoder = DeflateEncoder::new(vec![FORM], Compression::fast());
        // Writing into memory does not fail.
        let packed = encoder.write_all(bytes).and_then(|()| encoder.finish());
        let packed = packed.ok().filter(|_| !bytes.is_empty());
        Block { number, at, bytes: packed.unwrap_or_default() }
    }
}

impl Draft {
    /// Restores a block that an earlier process stored: its targets with their facts and the times
    /// of measurement. Existing data in the tables is kept.
    ///
    /// # Errors
    ///
    /// If it cannot be read; then nothing is restored.
    pub fn restore(&mut self, block: &Block) -> Result<(), Damaged> {
        let Some((&FORM, packed)) = block.bytes.split_first() else { return Err(Damaged) };
        let mut bytes = Vec::new();
        let mut decoder = DeflateDecoder::new(packed).take(LONGEST);
        decoder.read_to_end(&mut bytes).map_err(|_| Damaged)?;
        let content: Content<'_> = postcard::from_bytes(&bytes).map_err(|_| Damaged)?;
        let whole = content.targets.iter().all(|kept| {
            usize::from(kept.node) < content.nodes.len()
                && usize::from(kept.db) < content.dbs.len()
                && usize::from(kept.state) < State::ALL.len()
        });
        if !whole || content.targets.len() > PLACES {
            return Err(Damaged);
        }
        let nodes: Vec<NodeIx> = content.nodes.iter().map(|name| self.node(name)).collect();
        for node in nodes.iter().filter(|node| **node != NodeIx::CLUSTER) {
            self.change_node(*node, |node| node.member = true);
        }
        for kept in &content.targets {
            let node = nodes.get(usize::from(kept.node)).copied().unwrap_or_default();
            if let Some(db) = content.dbs.get(usize::from(kept.db)) {
                self.put_back(node, db, kept, block.at);
            }
        }
        Ok(())
    }

    fn put_back(&mut self, node: NodeIx, kept: &KeptDb<'_>, target: &KeptTarget<'_>, at: Moment) {
        let db = self.db(DbName { db: kept.db, suffix: kept.suffix });
        if self.map_of(db) == DbMap::default() {
            self.set_map(db, DbMap { copies: kept.copies, ranges: kept.ranges }, &[]);
        }
        let (kind, ix) = match &target.what {
            What::Db(range) => {
                let range = range.map(|(from, to)| Range { from, to });
                (Kind::Db, self.db_target(node, db, range))
            }
            What::Cleanup => (Kind::Cleanup, self.cleanup_target(db)),
            What::View { signature, designs, language, collators, exact_range } => {
                let view = View {
                    signature: Signature(*signature),
                    designs: designs.iter().map(|id| (*id).into()).collect(),
                    language: (*language).into(),
                    collators: collators.iter().map(|version| (*version).into()).collect(),
                    exact_range: *exact_range,
                    // Design documents are read again before anything is built.
                    ..View::default()
                };
                (Kind::View, self.add_view(db, view))
            }
        };
        let numbers = target.numbers.map(crate::model::facts::Known::from);
        let at = target.at.map_or(at, |at| Moment::from_unix(u64::from(at)));
        self.set_facts(ix, Packed::from_parts(target.bits, numbers, at).facts(kind));
        if let Some(state) = State::ALL.get(usize::from(target.state)) {
            self.set_state(ix, *state);
        }
    }
}

#[cfg(test)]
mod tests;
