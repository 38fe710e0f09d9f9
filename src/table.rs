//! The snapshot: every target of the cluster with its facts at one moment.
//!
//! Owns the compact tables that hold a million targets, their totals, and the choice of the
//! databases that are exported by name. Never sends requests to CouchDB and never scores. One
//! task, the scanner, holds the [`Draft`] and publishes [`Snapshot`]s; planner, metrics and API
//! read those.
//!
//! Indexes and chunks save memory and time: rows refer to their database by number and are copied
//! 64 at a time. Rows of owned strings would take six times the memory, and cloning everything for
//! a thousand changed rows fifteen times the time.

mod chunked_table;
mod draft;
mod index_set;
mod indexes;
mod movements;
mod name_table;
mod node;
mod packed_facts;
mod persisted;
mod projection;
mod published_state;
mod replaced_file;
mod target_index;
mod target_ref;
mod top_databases;
mod totals;
mod view;
mod waste;

pub use draft::Draft;
#[cfg(test)]
pub(crate) use draft::recount;
pub use index_set::IndexSet;
pub use indexes::{DbIx, TargetIx};
pub use movements::{Movement, Movements, NodeFiles};
pub use name_table::DbName;
pub use node::{
    CompactionFiles, DiskUsage, Node, NodeIx, NodeSmoosh, PriorityRange, SmooshChannel, VolumeUsage,
};
pub use persisted::{DamagedBlock, TableBlock, UncompressedBlock};
pub use projection::Projection;
pub use published_state::{PublishedDbState, PublishedUpdateSeqs};
pub use replaced_file::ReplacedFile;
pub use target_ref::TargetRef;
pub use top_databases::{DbSums, ExportedDatabase, ExportedDatabases, FileSums};
pub use totals::{PartialSum, TargetSums, Totals};
pub use view::{IndexQuery, PartSums, SearchAttributes, View, ViewCopies};
pub use waste::Waste;

pub(crate) use chunked_table::ChunkedTable;
pub(crate) use target_index::TargetIndex;

use crate::{
    datadir::ReadProblem,
    model::{
        correction::{Correction, DbCorrections},
        facts::{Facts, Inside, Overhead},
        growth::{Growth, SizeReading},
        rent::{Rent, WasteReading},
        target::{TargetKind, TargetState},
    },
};
use couchdb_names::Range;
use hashbrown::HashMap;
use name_table::NameTable;
use packed_facts::PackedFacts;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};
use wall_clock::Moment;

/// The identity of one target. `kind` is `None` in a row whose target was removed.
///
/// Facts are in a separate table: they change with every sweep, while identities hardly ever
/// change.
#[derive(Clone, Copy, Debug)]
struct TargetRow {
    db: u32,
    /// For a db target its range index plus one; for a view its index in the table of views.
    range_or_view_index: u32,
    node: NodeIx,
    kind: Option<TargetKind>,
    state: TargetState,
    /// Number of targets that occupied this row before.
    generation: u32,
}

/// Rent and growth according to the readings of one target, in thirty-two bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct SizeHistory {
    rent: Rent,
    growth: Growth,
}

impl SizeHistory {
    /// The history after a reading of one file; `known` are the facts before it.
    fn after_reading(
        self,
        kind: TargetKind,
        known: &Facts,
        seen: &Facts,
        correction: Correction,
    ) -> Self {
        let waste = |facts| WasteReading::of(kind, facts, correction);
        let size = |facts| SizeReading::of(kind, facts);
        Self {
            rent: self.rent.after_reading(waste(known).as_ref(), waste(seen).as_ref()),
            growth: self.growth.after_reading(size(known).as_ref(), size(seen).as_ref()),
        }
    }

    /// The same history on a clock that read `before` when it was set to `now`.
    fn settled(self, reclaimable_bytes: u64, before: Moment, now: Moment) -> Self {
        Self {
            rent: self.rent.settled(reclaimable_bytes, before, now),
            growth: self.growth.settled(before, now),
        }
    }
}

/// The shard map's entry for one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardMapEntry {
    /// Number of shard copies on all nodes together.
    pub copies: u32,
    /// Number of ranges into which the hash ring is split (q).
    pub ranges: u32,
}

/// All targets with their facts at one moment; cheap to share, immutable.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    version: u64,
    generated_at: Moment,
    rows: ChunkedTable<TargetRow>,
    facts: ChunkedTable<PackedFacts>,
    histories: ChunkedTable<SizeHistory>,
    /// Corrections of predictions, for the databases whose compactions led to any.
    corrections: Arc<HashMap<DbIx, DbCorrections>>,
    /// Bytes that another compaction would leave of one file, for targets whose last compaction showed this.
    left_bytes: Arc<BTreeMap<TargetIx, u64>>,
    names: NameTable,
    shard_maps: ChunkedTable<ShardMapEntry>,
    views: ChunkedTable<Arc<View>>,
    ranges: Arc<Vec<Range>>,
    nodes: Vec<Arc<Node>>,
    totals: Arc<Totals>,
    top: Arc<ExportedDatabases>,
    changed_targets: Arc<[TargetIx]>,
    sweep_duration: Option<Duration>,
    feeds_complete_since: Option<Moment>,
    unconfirmed: Arc<IndexSet>,
    /// Why a file's header could not be read, for the few targets affected.
    problems: Arc<BTreeMap<TargetIx, ReadProblem>>,
    /// X-rays of files, for the few targets whose files were X-rayed.
    insides: Arc<BTreeMap<TargetIx, Inside>>,
    /// Contents of shards other than documents, for the few shards where these are large.
    overheads: Arc<BTreeMap<TargetIx, Overhead>>,
    replaced: Arc<VecDeque<ReplacedFile>>,
    quiet: bool,
}

impl Snapshot {
    /// The version: the draft's snapshots count from one; zero is the empty snapshot.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// When it was published.
    pub const fn generated_at(&self) -> Moment {
        self.generated_at
    }

    /// Duration of the last sweep over all targets.
    pub const fn sweep_duration(&self) -> Option<Duration> {
        self.sweep_duration
    }

    /// When the feeds began to report every database that is written to, created or deleted; `None`
    /// while they do not.
    pub const fn feeds_complete_since(&self) -> Option<Moment> {
        self.feeds_complete_since
    }

    /// Whether the feeds reported no change and no job was running for a while.
    pub const fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// The name of a database instance.
    pub fn db_name(&self, db: DbIx) -> Option<DbName<'_>> {
        self.names.get(db.as_usize())
    }

    /// Every database instance, including those without any remaining target.
    pub fn databases(&self) -> impl Iterator<Item = (DbIx, DbName<'_>)> {
        self.names.iter().filter_map(|(at, name)| Some((DbIx::from_usize(at)?, name)))
    }

    /// The shard map's entry for a database instance.
    pub fn shard_map(&self, db: DbIx) -> ShardMapEntry {
        self.shard_maps.get(db.as_usize()).copied().unwrap_or_default()
    }

    /// Whether a target's facts still hold regardless of their age: since they were measured, the
    /// feeds, which report every write, have not named its database, no job was seen on it, and its
    /// node was up all the time.
    ///
    /// A view is confirmed only if it had processed every change: an index that lags may be built
    /// without notice. Compactions are not reported either; one that no poll saw leaves facts that
    /// are too large, but a target is read again just before its start.
    pub fn is_confirmed(&self, ix: TargetIx) -> bool {
        let Some(since) = self.feeds_complete_since else { return false };
        let Some(target) = self.target(ix).filter(|_| !self.unconfirmed.contains(ix.as_usize()))
        else {
            return false;
        };
        let facts = target.facts();
        let is_complete = match target.kind() {
            TargetKind::Db => true,
            TargetKind::View => facts.updates_pending.get() == Some(0),
            // How far these have progressed is known only approximately.
            TargetKind::Cleanup | TargetKind::Search => false,
        };
        is_complete && facts.measured_at.is_some_and(|measured| measured.at >= since)
    }

    /// The targets that changed, were added or were removed since the previous version. For a
    /// reused row, the removed target comes before the added one.
    pub fn changed_targets(&self) -> &[TargetIx] {
        &self.changed_targets
    }

    /// These targets without their facts, for holders that need identities for a long time: a whole
    /// snapshot that is held during a sweep would keep every old fact in memory next to the new
    /// one.
    pub fn without_facts(&self) -> Self {
        Self { facts: ChunkedTable::default(), histories: ChunkedTable::default(), ..self.clone() }
    }

    /// The same tables, except that for these targets the bytes that another compaction would leave of one file are
    /// known from the last one instead of predicted from sizes. Sums include them.
    pub fn with_left_bytes(self: &Arc<Self>, left: &BTreeMap<TargetIx, u64>) -> Arc<Self> {
        if *self.left_bytes == *left {
            return Arc::clone(self);
        }
        let mut learned = Self { left_bytes: Arc::new(left.clone()), ..Self::clone(self) };
        let (mut totals, mut top) = (Totals::clone(&self.totals), (*self.top).clone());
        let targets: BTreeSet<TargetIx> =
            self.left_bytes.keys().chain(left.keys()).copied().collect();
        for ix in targets {
            let Some((before, after)) = self.target(ix).zip(learned.target(ix)) else { continue };
            let db = before.db();
            let (before, after) = (before.contribution(), after.contribution());
            totals.remove(&before);
            totals.add(&after);
            top.replace(db, &before, &after);
        }
        (learned.totals, learned.top) = (Arc::new(totals), Arc::new(top));
        Arc::new(learned)
    }

    /// Number of rows; an upper bound of every [`TargetIx`].
    pub const fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// The target at `ix`, unless it was removed; never another target that reuses its row.
    pub fn target(&self, ix: TargetIx) -> Option<TargetRef<'_>> {
        TargetRef::new(self, ix)
    }

    /// The target that occupies a row now, if any.
    pub fn target_at(&self, place: usize) -> Option<TargetRef<'_>> {
        self.target(self.latest_ix(u32::try_from(place).ok()?))
    }

    /// The index of the last target in a row.
    fn latest_ix(&self, place: u32) -> TargetIx {
        TargetIx::of(place, self.rows.get(place as usize).map_or(0, |row| row.generation))
    }

    /// Whether cluster-wide views, with all their copies, are known; otherwise views are known only
    /// by their files.
    pub fn has_views(&self) -> bool {
        let views = self.totals.sums_of(NodeIx::CLUSTER, TargetKind::View);
        views.counts_by_state.iter().any(|count| *count > 0)
    }

    /// Every target once: files that are parts of a cluster-wide view are left out.
    pub fn targets_once(&self) -> impl Iterator<Item = TargetRef<'_>> {
        let has_views = self.has_views();
        self.targets().filter(move |target| !has_views || !target.is_part())
    }

    /// Everything that takes space, once: shards and views that are not missing.
    pub fn files_once(&self) -> impl Iterator<Item = TargetRef<'_>> {
        self.targets_once().filter(|target| {
            matches!(target.kind(), TargetKind::Db | TargetKind::View)
                && target.state() != TargetState::Missing
        })
    }

    /// Every target, in row order.
    pub fn targets(&self) -> impl Iterator<Item = TargetRef<'_>> {
        self.rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.kind.is_some())
            .filter_map(|(at, _)| self.target_at(at))
    }

    /// The targets whose files were X-rayed, with the X-rays.
    pub fn insides(&self) -> impl Iterator<Item = (TargetRef<'_>, &Inside)> {
        let each = self.insides.iter();
        each.filter_map(|(ix, inside)| Some((self.target(*ix)?, inside)))
    }

    /// The targets with large contents other than documents, and those contents.
    pub fn overheads(&self) -> impl Iterator<Item = (TargetRef<'_>, &Overhead)> {
        let each = self.overheads.iter();
        each.filter_map(|(ix, overhead)| Some((self.target(*ix)?, overhead)))
    }

    /// Every node that was ever a member, after the cluster's pseudo-node.
    pub fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// The node at `ix`.
    pub fn node(&self, ix: NodeIx) -> Option<&Node> {
        self.nodes.get(ix.as_usize()).map(AsRef::as_ref)
    }

    /// Counts and bytes by node and kind.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The databases with the most reclaimable bytes, which are exported by name.
    pub fn top(&self) -> &ExportedDatabases {
        &self.top
    }
}

#[cfg(test)]
mod tests;
