//! The only mutable copy of the tables.

mod corrections;
mod insides;
mod movements;
mod views;

#[cfg(test)]
pub(crate) use movements::recount;

use super::{
    ChunkedTable, DbIx, DbName, IndexSet, Node, NodeIx, PackedFacts, PartSums, ShardMapEntry,
    SizeHistory, Snapshot, TargetIx, TargetRef, TargetRow, View, movements::MovementSums,
    top_databases::TopDatabases,
};
use crate::{
    datadir::ReadProblem,
    model::{
        correction::Corrections,
        facts::{Facts, Overhead},
        rent::WasteReading,
        target::{CLUSTER_NODE, TargetKind, TargetState},
    },
};
use couchdb_names::{Range, Signature};
use hashbrown::{DefaultHashBuilder, HashSet, HashTable};
use std::{hash::BuildHasher, sync::Arc, time::Duration};
use wall_clock::Moment;

/// The values that identify a row.
type RowKey = (Option<TargetKind>, NodeIx, u32, u32);

/// The scanner's own copy of the snapshot, with the lookup tables that only it needs.
#[derive(Debug)]
pub struct Draft {
    current: Snapshot,
    hasher: DefaultHashBuilder,
    by_name: HashTable<u32>,
    by_key: HashTable<u32>,
    /// Parts of views, by the values that identify them.
    by_part: HashTable<u32>,
    /// A template for parts, so that they all share the same empty attributes.
    empty_part: View,
    /// Number of targets of each database; a name's row is reused when the last one is removed.
    targets_by_db: ChunkedTable<u32>,
    free_rows: Vec<u32>,
    free_dbs: Vec<u32>,
    free_views: Vec<u32>,
    top_databases: TopDatabases,
    /// The corrections in force, for databases with and without a row.
    corrections: Arc<Corrections>,
    /// Targets for which a compaction contradicted an X-ray.
    distrusted: HashSet<TargetIx>,
    changed: Vec<TargetIx>,
    /// Row indexes that are already in `changed`.
    changed_rows: IndexSet,
    /// The movements since they were last taken.
    movements: MovementSums,
}

impl Draft {
    /// An empty draft whose snapshots export the `top` databases with the most reclaimable bytes.
    pub fn new(top: usize) -> Self {
        let mut draft = Self {
            current: Snapshot::default(),
            hasher: DefaultHashBuilder::default(),
            by_name: HashTable::new(),
            by_key: HashTable::new(),
            by_part: HashTable::new(),
            empty_part: View { exact_range: true, ..View::default() },
            targets_by_db: ChunkedTable::default(),
            free_rows: Vec::new(),
            free_dbs: Vec::new(),
            free_views: Vec::new(),
            top_databases: TopDatabases::new(top),
            corrections: Arc::default(),
            distrusted: HashSet::default(),
            changed: Vec::new(),
            changed_rows: IndexSet::default(),
            movements: MovementSums::default(),
        };
        draft.get_or_add_node(CLUSTER_NODE);
        draft
    }

    /// The current tables, including unpublished changes.
    pub const fn current(&self) -> &Snapshot {
        &self.current
    }

    /// The node with this name, created if new.
    pub fn get_or_add_node(&mut self, name: &str) -> NodeIx {
        if let Some(ix) = self.find_node(name) {
            return ix;
        }
        let node = Node { name: name.into(), is_served: true, ..Node::default() };
        self.current.nodes.push(Arc::new(node));
        NodeIx(u16::try_from(self.current.nodes.len() - 1).unwrap_or(u16::MAX))
    }

    /// The node with this name, if it is in the tables.
    pub fn find_node(&self, name: &str) -> Option<NodeIx> {
        let at = self.current.nodes.iter().position(|node| &*node.name == name)?;
        NodeIx::from_usize(at)
    }

    /// Changes a node's state.
    pub fn update_node(&mut self, ix: NodeIx, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.current.nodes.get_mut(ix.as_usize()) {
            change(Arc::make_mut(node));
        }
    }

    /// Sets the number of databases exported from the next snapshot on.
    pub fn set_top(&mut self, top: usize) {
        self.top_databases.set_limit(top);
    }

    /// Sets the duration of the last sweep.
    pub fn set_sweep_duration(&mut self, took: Duration) {
        self.current.sweep_duration = Some(took);
    }

    /// Sets when the feeds began to report every change of a database; `None` while they do not.
    pub const fn set_feeds_complete_since(&mut self, since: Option<Moment>) {
        self.current.feeds_complete_since = since;
    }

    /// Sets whether the cluster is quiet.
    pub const fn set_quiet(&mut self, quiet: bool) {
        self.current.quiet = quiet;
    }

    /// Marks that a target may have changed: its facts are unconfirmed until [`Self::mark_confirmed`].
    pub fn mark_unconfirmed(&mut self, ix: TargetIx) {
        if self.current.target(ix).is_some() && !self.current.unconfirmed.contains(ix.as_usize()) {
            Arc::make_mut(&mut self.current.unconfirmed).insert(ix.as_usize());
        }
    }

    /// Sets why the header of a target's file could not be read.
    pub fn set_problem(&mut self, ix: TargetIx, problem: Option<ReadProblem>) {
        if self.current.problems.get(&ix).copied() == problem {
            return;
        }
        let problems = Arc::make_mut(&mut self.current.problems);
        match problem {
            Some(problem) => problems.insert(ix, problem),
            None => problems.remove(&ix),
        };
    }

    /// Adds a reading of a shard's overhead; overhead that is not notable is not stored.
    fn update_overhead(&mut self, ix: TargetIx, reading: Overhead) {
        let before = self.current.overheads.get(&ix).copied();
        let merged = before.unwrap_or_default().updated(reading);
        let notable = Some(merged).filter(Overhead::is_notable);
        if notable != before {
            self.set_overhead(ix, notable);
        }
    }

    fn set_overhead(&mut self, ix: TargetIx, overhead: Option<Overhead>) {
        let overheads = Arc::make_mut(&mut self.current.overheads);
        match overhead {
            Some(overhead) => overheads.insert(ix, overhead),
            None => overheads.remove(&ix),
        };
    }

    /// Marks that a target has been measured since it may have changed.
    pub fn mark_confirmed(&mut self, ix: TargetIx) {
        if self.current.target(ix).is_some() && self.current.unconfirmed.contains(ix.as_usize()) {
            Arc::make_mut(&mut self.current.unconfirmed).remove(ix.as_usize());
        }
    }

    /// The database instance with this name, created if new.
    pub fn get_or_add_db(&mut self, name: DbName<'_>) -> DbIx {
        let hash = self.hasher.hash_one(name.db);
        let names = &self.current.names;
        let found = self.by_name.find(hash, |at| names.get(*at as usize) == Some(name));
        if let Some(at) = found {
            return DbIx(*at);
        }
        let at = if let Some(free) = self.free_dbs.pop() {
            self.current.names.replace(free as usize, name);
            if let Some(map) = self.current.shard_maps.get_mut(free as usize) {
                *map = ShardMapEntry::default();
            }
            free
        } else {
            self.current.shard_maps.push(ShardMapEntry::default());
            self.targets_by_db.push(0);
            row_index(self.current.names.push(name))
        };
        let (names, hasher) = (&self.current.names, &self.hasher);
        self.by_name.insert_unique(hash, at, |at| hasher.hash_one(name_at(names, *at).db));
        self.movements.database_added(at);
        self.correct_new_db(DbIx(at), name);
        DbIx(at)
    }

    /// The database instance with this name, if it has any target.
    pub fn find_db(&self, name: DbName<'_>) -> Option<DbIx> {
        let hash = self.hasher.hash_one(name.db);
        let names = &self.current.names;
        self.by_name.find(hash, |at| names.get(*at as usize) == Some(name)).map(|at| DbIx(*at))
    }

    /// Every instance of a database that has any target.
    pub fn instances_of(&self, db: &str) -> Vec<DbIx> {
        let names = &self.current.names;
        let same_hash = self.by_name.iter_hash(self.hasher.hash_one(db)).copied();
        same_hash
            .filter(|at| names.get(*at as usize).is_some_and(|it| it.db == db))
            .map(DbIx)
            .collect()
    }

    /// The copies of a database instance on all nodes.
    pub fn copies_of(&self, db: DbIx) -> Vec<TargetIx> {
        let ranges = row_index(self.current.ranges.len());
        let nodes = (0..self.current.nodes.len()).filter_map(NodeIx::from_usize);
        nodes
            .flat_map(|node| {
                (0..=ranges).map(move |extra| (Some(TargetKind::Db), node, db.0, extra))
            })
            .filter_map(|key| self.find(key))
            .collect()
    }

    /// The shard map's entry for a database.
    pub fn shard_map(&self, db: DbIx) -> ShardMapEntry {
        self.current.shard_maps.get(db.0 as usize).copied().unwrap_or_default()
    }

    /// Sets the shard map's entry for a database and updates the bytes of its views.
    pub fn set_shard_map(&mut self, db: DbIx, map: ShardMapEntry, views: &[TargetIx]) {
        if self.current.shard_maps.get(db.0 as usize) == Some(&map) {
            return;
        }
        let counted: Vec<_> = views.iter().map(|ix| self.counted(*ix)).collect();
        for ix in views {
            self.remove_from_sums(*ix);
        }
        if let Some(row) = self.current.shard_maps.get_mut(db.0 as usize) {
            *row = map;
        }
        for (ix, before) in views.iter().zip(counted) {
            self.add_to_sums(*ix);
            self.mark_changed(*ix);
            self.count_change(*ix, before, None);
        }
    }

    /// The copy of a shard on a node, created if new.
    pub fn get_or_add_shard(&mut self, node: NodeIx, db: DbIx, range: Option<Range>) -> TargetIx {
        let extra = range.map_or(0, |range| self.range_index(range) + 1);
        self.get_or_add_row((Some(TargetKind::Db), node, db.0, extra))
    }

    /// The copy of a shard on a node, if it exists.
    pub fn find_shard(&self, node: NodeIx, db: DbIx, range: Option<Range>) -> Option<TargetIx> {
        let extra = match range {
            None => 0,
            Some(range) => {
                row_index(self.current.ranges.iter().position(|other| *other == range)?) + 1
            }
        };
        self.find((Some(TargetKind::Db), node, db.0, extra))
    }

    /// The copy of a shard of the database with this name, if it exists.
    pub fn find_copy(
        &self,
        node: NodeIx,
        name: DbName<'_>,
        range: Option<Range>,
    ) -> Option<TargetIx> {
        self.find_shard(node, self.find_db(name)?, range)
    }

    /// A database's cleanup target, created if new.
    pub fn get_or_add_cleanup(&mut self, db: DbIx) -> TargetIx {
        self.get_or_add_row((Some(TargetKind::Cleanup), NodeIx::CLUSTER, db.0, 0))
    }

    /// Sets a target's facts.
    pub fn set_facts(&mut self, ix: TargetIx, facts: Facts) {
        let Some(target) = self.current.target(ix) else { return };
        let (kind, known, before) = (target.kind(), target.facts(), target.history());
        let counted = target.counted_bytes();
        let correction = target.correction();
        let history = before.after_reading(kind, &known, &facts, correction);
        let reading = |facts| WasteReading::of(kind, facts, correction);
        let readings = reading(&known).zip(reading(&facts));
        if kind == TargetKind::Db
            && readings.is_some_and(|(known, seen)| known.was_compacted_until(&seen))
        {
            self.current.add_replaced(ix, &known, &facts);
        }
        self.remove_from_sums(ix);
        if let Some(row) = self.current.facts.get_mut(ix.as_usize()) {
            *row = PackedFacts::pack(kind, &facts);
        }
        if history != before {
            self.set_history(ix, history);
        }
        if kind == TargetKind::Db {
            self.update_overhead(ix, facts.overhead);
        }
        self.check_inside(ix, kind, (&known, &facts));
        self.add_to_sums(ix);
        self.mark_changed(ix);
        self.count_change(ix, counted, Some((&known, &facts)));
    }

    /// Replaces the rent and growth of a target.
    pub(super) fn set_history(&mut self, ix: TargetIx, history: SizeHistory) {
        if let Some(row) = self.current.histories.get_mut(ix.as_usize()) {
            *row = history;
        }
    }

    /// Continues every rent and growth on a clock that read `before` when it was set to `now`, so
    /// that the step itself has no effect.
    pub fn settle_histories(&mut self, before: Moment, now: Moment) {
        self.settle_histories_where(|_| Some(before), now);
    }

    /// Like [`Self::settle_histories`], for targets that were read after `now` by an earlier
    /// process whose clock was ahead.
    pub fn settle_histories_of_the_future(&mut self, now: Moment) {
        self.settle_histories_where(|waste| Some(waste.at).filter(|at| *at > now), now);
    }

    fn settle_histories_where(
        &mut self,
        clock_before: impl Fn(&WasteReading) -> Option<Moment>,
        now: Moment,
    ) {
        for at in 0..self.current.row_count() {
            if let Some(ix) = self.current.target_at(at).map(TargetRef::ix) {
                self.settle_history(ix, &clock_before, now);
            }
        }
    }

    /// Adds up a target's rent until now, before the prediction of its waste changes.
    fn settle_rent(&mut self, ix: TargetIx, now: Moment) {
        let Some(target) = self.current.target(ix) else { return };
        let reading = WasteReading::of(target.kind(), &target.facts(), target.correction());
        if let Some(waste) = reading {
            let history = target.history();
            let rent = history.rent.settled(waste.reclaimable_bytes, now, now);
            self.set_history(ix, SizeHistory { rent, ..history });
        }
    }

    /// Adds up a target's history until the clock was set to `now`; `clock_before` is what the
    /// clock read before, given the last reading.
    fn settle_history(
        &mut self,
        ix: TargetIx,
        clock_before: impl Fn(&WasteReading) -> Option<Moment>,
        now: Moment,
    ) {
        let Some(target) = self.current.target(ix) else { return };
        let reading = WasteReading::of(target.kind(), &target.facts(), target.correction());
        if let Some((waste, before)) = reading.and_then(|it| Some((it, clock_before(&it)?))) {
            let history = target.history().settled(waste.reclaimable_bytes, before, now);
            self.set_history(ix, history);
        }
    }

    /// Sets the relation between a target and the shard map.
    pub fn set_state(&mut self, ix: TargetIx, state: TargetState) {
        if self.current.target(ix).is_none_or(|target| target.state() == state) {
            return;
        }
        let counted = self.counted(ix);
        self.remove_from_sums(ix);
        if let Some(row) = self.current.rows.get_mut(ix.as_usize()) {
            row.state = state;
            self.top_databases.target_changed(DbIx(row.db));
        }
        self.add_to_sums(ix);
        self.mark_changed(ix);
        self.count_change(ix, counted, None);
    }

    fn counted(&self, ix: TargetIx) -> Option<u64> {
        self.current.target(ix).and_then(TargetRef::counted_bytes)
    }

    /// Removes a target; its row is reused.
    pub fn remove(&mut self, ix: TargetIx) {
        if self.current.target(ix).is_none() {
            return;
        }
        let Some(&row) = self.current.rows.get(ix.as_usize()) else { return };
        self.mark_confirmed(ix);
        self.count_removed(ix);
        self.movements.unnamed_parts.remove(&ix);
        self.remove_from_sums(ix);
        let place = ix.row();
        if let Some(part) = part_at(&self.current, place)
            && let Ok(entry) =
                self.by_part.find_entry(self.hasher.hash_one(part), |at| *at == place)
        {
            entry.remove();
        }
        let hash = self.hasher.hash_one(row_key(&row));
        if let Ok(entry) = self.by_key.find_entry(hash, |at| *at == place) {
            entry.remove();
        }
        if matches!(row.kind, Some(TargetKind::View | TargetKind::Search)) {
            self.free_views.push(row.range_or_view_index);
        }
        if let Some(row) = self.current.rows.get_mut(ix.as_usize()) {
            row.kind = None;
        }
        self.free_rows.push(place);
        self.set_problem(ix, None);
        if self.current.overheads.contains_key(&ix) {
            self.set_overhead(ix, None);
        }
        self.forget_inside(ix);
        self.mark_changed(ix);
        self.top_databases.target_changed(DbIx(row.db));
        self.release_db(row.db);
    }

    /// Publishes the current tables.
    pub fn publish(&mut self, now: Moment) -> Arc<Snapshot> {
        if let Some(top) = self.top_databases.choose(&self.current, now) {
            self.current.top = Arc::new(top);
        }
        self.movements.rotate(self.current.sweep_duration.is_some(), now);
        self.current.version += 1;
        self.current.generated_at = now;
        for node in &mut self.current.nodes {
            let since = node.is_down().then(|| node.down_since.unwrap_or(now));
            if since != node.down_since {
                Arc::make_mut(node).down_since = since;
            }
        }
        for ix in &self.changed {
            self.changed_rows.remove(ix.as_usize());
        }
        self.current.changed_targets = std::mem::take(&mut self.changed).into();
        Arc::new(self.current.clone())
    }

    fn range_index(&mut self, range: Range) -> u32 {
        if let Some(at) = self.current.ranges.iter().position(|other| *other == range) {
            return row_index(at);
        }
        let ranges = Arc::make_mut(&mut self.current.ranges);
        ranges.push(range);
        row_index(ranges.len() - 1)
    }

    fn find(&self, wanted: RowKey) -> Option<TargetIx> {
        let rows = &self.current.rows;
        self.by_key
            .find(self.hasher.hash_one(wanted), |at| key_at(rows, *at) == wanted)
            .map(|at| self.current.latest_ix(*at))
    }

    fn get_or_add_row(&mut self, wanted: RowKey) -> TargetIx {
        if let Some(ix) = self.find(wanted) {
            return ix;
        }
        let (kind, node, db, extra) = wanted;
        let mut row = TargetRow {
            db,
            range_or_view_index: extra,
            node,
            kind,
            state: TargetState::Ok,
            generation: 0,
        };
        let at = match self.free_rows.pop() {
            Some(free) => {
                if let Some(place) = self.current.rows.get_mut(free as usize) {
                    row.generation = place.generation.wrapping_add(1);
                    *place = row;
                }
                if let Some(facts) = self.current.facts.get_mut(free as usize) {
                    *facts = PackedFacts::UNKNOWN;
                }
                if let Some(history) = self.current.histories.get_mut(free as usize) {
                    *history = SizeHistory::default();
                }
                free
            }
            None => {
                self.current.facts.push(PackedFacts::UNKNOWN);
                self.current.histories.push(SizeHistory::default());
                row_index(self.current.rows.push(row))
            }
        };
        let (rows, hasher) = (&self.current.rows, &self.hasher);
        self.by_key
            .insert_unique(hasher.hash_one(wanted), at, |at| hasher.hash_one(key_at(rows, *at)));
        if let Some(uses) = self.targets_by_db.get_mut(db as usize) {
            *uses += 1;
        }
        let ix = TargetIx::of(at, row.generation);
        self.add_to_sums(ix);
        // If another target has just left this row, both are reported: the removed one and the new
        // one.
        self.changed_rows.insert(ix.as_usize());
        self.changed.push(ix);
        self.top_databases.target_changed(DbIx(db));
        ix
    }

    fn add_to_sums(&mut self, ix: TargetIx) {
        let Some(target) = self.current.target(ix) else { return };
        let (db, contribution) = (target.db(), target.contribution());
        self.top_databases.add(db, &contribution);
        Arc::make_mut(&mut self.current.totals).add(&contribution);
    }

    fn remove_from_sums(&mut self, ix: TargetIx) {
        let Some(target) = self.current.target(ix) else { return };
        let (db, contribution) = (target.db(), target.contribution());
        self.top_databases.remove(db, &contribution);
        Arc::make_mut(&mut self.current.totals).remove(&contribution);
    }

    fn mark_changed(&mut self, ix: TargetIx) {
        if !self.changed_rows.contains(ix.as_usize()) {
            self.changed_rows.insert(ix.as_usize());
            self.changed.push(ix);
        }
    }

    fn release_db(&mut self, db: u32) {
        let Some(uses) = self.targets_by_db.get_mut(db as usize) else { return };
        *uses = uses.saturating_sub(1);
        if *uses > 0 {
            return;
        }
        if let Some(name) = self.current.names.get(db as usize)
            && let Ok(entry) =
                self.by_name.find_entry(self.hasher.hash_one(name.db), |at| *at == db)
        {
            entry.remove();
            self.free_dbs.push(db);
            self.top_databases.remove_database(DbIx(db));
            self.forget_corrections(DbIx(db));
        }
    }
}

/// The lookup of a view by signature, for a scanner that walks a database's views.
impl Snapshot {
    /// The view index of a database with this signature.
    pub fn find_view(&self, views: &[TargetIx], signature: Signature) -> Option<TargetIx> {
        views.iter().copied().find(|ix| {
            self.target(*ix)
                .filter(|target| target.kind() == TargetKind::View)
                .and_then(TargetRef::view)
                .is_some_and(|view| view.signature == signature)
        })
    }
}

/// The values that identify a part.
type PartKey = (NodeIx, u32, Option<Range>, Signature);

fn part_at(tables: &Snapshot, at: u32) -> Option<PartKey> {
    let row = tables.rows.get(at as usize).filter(|row| row.node != NodeIx::CLUSTER)?;
    let view = (row.kind == Some(TargetKind::View))
        .then(|| tables.views.get(row.range_or_view_index as usize))??;
    Some((row.node, row.db, view.range, view.signature))
}

fn row_key(row: &TargetRow) -> RowKey {
    (row.kind, row.node, row.db, row.range_or_view_index)
}

fn key_at(rows: &ChunkedTable<TargetRow>, at: u32) -> RowKey {
    rows.get(at as usize).map_or((None, NodeIx::CLUSTER, 0, 0), row_key)
}

fn name_at(names: &super::name_table::NameTable, at: u32) -> DbName<'_> {
    names.get(at as usize).unwrap_or(DbName { db: "", suffix: "" })
}

/// A row index. Tables have far fewer than four billion rows: a row takes more than 200 bytes.
fn row_index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
