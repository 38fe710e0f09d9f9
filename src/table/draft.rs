//! The only mutable copy of the tables.

mod views;

use super::{
    Bits, Chunked, DbIx, DbMap, DbName, Ix, Node, NodeIx, Packed, PartSums, Row, Snapshot,
    TargetRef, View, top::TopDatabases,
};
use crate::{
    datadir::Problem,
    model::{
        facts::Facts,
        target::{CLUSTER, Kind, State},
    },
};
use couchdb_names::{Range, Signature};
use hashbrown::{DefaultHashBuilder, HashTable};
use std::{hash::BuildHasher, sync::Arc, time::Duration};
use wall_clock::Moment;

/// The values that identify a row.
type Key = (Option<Kind>, NodeIx, u32, u32);

/// The scanner's own copy of the snapshot, with the lookup tables that only it needs.
#[derive(Debug)]
pub struct Draft {
    now: Snapshot,
    hasher: DefaultHashBuilder,
    by_name: HashTable<u32>,
    by_key: HashTable<u32>,
    /// Parts of views, by their identifying values.
    by_part: HashTable<u32>,
    /// A template for parts, so that they all share the same empty attributes.
    blank: View,
    /// Number of targets of each database; a name's row is reused when the last one is removed.
    uses: Chunked<u32>,
    free_rows: Vec<u32>,
    free_dbs: Vec<u32>,
    free_views: Vec<u32>,
    top: TopDatabases,
    changed: Vec<Ix>,
    /// Row indexes that are already in `changed`.
    marked: Bits,
}

impl Draft {
    /// An empty draft whose snapshots export the `top` databases with the most reclaimable bytes.
    #[must_use]
    pub fn new(top: usize) -> Self {
        let mut draft = Self {
            now: Snapshot::default(),
            hasher: DefaultHashBuilder::default(),
            by_name: HashTable::new(),
            by_key: HashTable::new(),
            by_part: HashTable::new(),
            blank: View { exact_range: true, ..View::default() },
            uses: Chunked::default(),
            free_rows: Vec::new(),
            free_dbs: Vec::new(),
            free_views: Vec::new(),
            top: TopDatabases::new(top),
            changed: Vec::new(),
            marked: Bits::default(),
        };
        draft.node(CLUSTER);
        draft
    }

    /// The current tables, including unpublished changes.
    #[must_use]
    pub const fn now(&self) -> &Snapshot {
        &self.now
    }

    /// The node with this name, created if new.
    pub fn node(&mut self, name: &str) -> NodeIx {
        if let Some(known) = self.find_node(name) {
            return known;
        }
        let node = Node { name: name.into(), served: true, ..Node::default() };
        self.now.nodes.push(Arc::new(node));
        NodeIx(u16::try_from(self.now.nodes.len() - 1).unwrap_or(u16::MAX))
    }

    /// The node with this name, if it was ever seen.
    #[must_use]
    pub fn find_node(&self, name: &str) -> Option<NodeIx> {
        let at = self.now.nodes.iter().position(|node| &*node.name == name)?;
        NodeIx::from_usize(at)
    }

    /// Changes a node's state.
    pub fn change_node(&mut self, ix: NodeIx, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.now.nodes.get_mut(ix.as_usize()) {
            change(Arc::make_mut(node));
        }
    }

    /// Sets the number of databases exported from the next snapshot on.
    pub fn set_top(&mut self, top: usize) {
        self.top.set_limit(top);
    }

    /// Sets the duration of the last sweep.
    pub fn set_sweep(&mut self, took: Duration) {
        self.now.sweep = Some(took);
    }

    /// Sets when the feeds began to report every change of a database; none while they do not.
    pub const fn set_followed_since(&mut self, since: Option<Moment>) {
        self.now.followed_since = since;
    }

    /// Sets whether the cluster is quiet.
    pub const fn set_quiet(&mut self, quiet: bool) {
        self.now.quiet = quiet;
    }

    /// Marks that a target may have changed: its facts are unconfirmed until [`Self::trust`].
    pub fn doubt(&mut self, ix: Ix) {
        if self.now.target(ix).is_some() && !self.now.in_doubt.has(ix.as_usize()) {
            Arc::make_mut(&mut self.now.in_doubt).set(ix.as_usize());
        }
    }

    /// Sets why the header of a target's file could not be read.
    pub fn set_problem(&mut self, ix: Ix, problem: Option<Problem>) {
        if self.now.problems.get(&ix).copied() == problem {
            return;
        }
        let problems = Arc::make_mut(&mut self.now.problems);
        match problem {
            Some(problem) => problems.insert(ix, problem),
            None => problems.remove(&ix),
        };
    }

    /// Marks that a target was measured since it may have changed.
    pub fn trust(&mut self, ix: Ix) {
        if self.now.target(ix).is_some() && self.now.in_doubt.has(ix.as_usize()) {
            Arc::make_mut(&mut self.now.in_doubt).unset(ix.as_usize());
        }
    }

    /// The database instance with this name, created if new.
    pub fn db(&mut self, name: DbName<'_>) -> DbIx {
        let hash = self.hasher.hash_one(name.db);
        let names = &self.now.names;
        let found = self.by_name.find(hash, |at| names.get(*at as usize) == Some(name));
        if let Some(at) = found {
            return DbIx(*at);
        }
        let at = if let Some(free) = self.free_dbs.pop() {
            self.now.names.replace(free as usize, name);
            if let Some(map) = self.now.maps.get_mut(free as usize) {
                *map = DbMap::default();
            }
            free
        } else {
            self.now.maps.push(DbMap::default());
            self.uses.push(0);
            place(self.now.names.push(name))
        };
        let (names, hasher) = (&self.now.names, &self.hasher);
        self.by_name.insert_unique(hash, at, |at| hasher.hash_one(name_at(names, *at).db));
        DbIx(at)
    }

    /// The database instance with this name, if it has any target.
    #[must_use]
    pub fn find_db(&self, name: DbName<'_>) -> Option<DbIx> {
        let hash = self.hasher.hash_one(name.db);
        let names = &self.now.names;
        self.by_name.find(hash, |at| names.get(*at as usize) == Some(name)).map(|at| DbIx(*at))
    }

    /// Every instance of a database with any target.
    #[must_use]
    pub fn instances(&self, db: &str) -> Vec<DbIx> {
        let names = &self.now.names;
        let alike = self.by_name.iter_hash(self.hasher.hash_one(db)).copied();
        alike.filter(|at| names.get(*at as usize).is_some_and(|it| it.db == db)).map(DbIx).collect()
    }

    /// The copies of a database instance on all nodes.
    #[must_use]
    pub fn copies_of(&self, db: DbIx) -> Vec<Ix> {
        let ranges = place(self.now.ranges.len());
        let nodes = (0..self.now.nodes.len()).filter_map(NodeIx::from_usize);
        nodes
            .flat_map(|node| (0..=ranges).map(move |extra| (Some(Kind::Db), node, db.0, extra)))
            .filter_map(|key| self.find(key))
            .collect()
    }

    /// The shard map's entry for a database.
    #[must_use]
    pub fn map_of(&self, db: DbIx) -> DbMap {
        self.now.maps.get(db.0 as usize).copied().unwrap_or_default()
    }

    /// Sets the shard map's entry for a database and updates the bytes of its views.
    pub fn set_map(&mut self, db: DbIx, map: DbMap, views: &[Ix]) {
        if self.now.maps.get(db.0 as usize) == Some(&map) {
            return;
        }
        for ix in views {
            self.uncount(*ix);
        }
        if let Some(row) = self.now.maps.get_mut(db.0 as usize) {
            *row = map;
        }
        for ix in views {
            self.count(*ix);
            self.mark(*ix);
        }
    }

    /// The copy of a shard on a node, created if new.
    pub fn db_target(&mut self, node: NodeIx, db: DbIx, range: Option<Range>) -> Ix {
        let extra = range.map_or(0, |range| self.range(range) + 1);
        self.row((Some(Kind::Db), node, db.0, extra))
    }

    /// The same, if it exists.
    #[must_use]
    pub fn find_db_target(&self, node: NodeIx, db: DbIx, range: Option<Range>) -> Option<Ix> {
        let extra = match range {
            None => 0,
            Some(range) => place(self.now.ranges.iter().position(|known| *known == range)?) + 1,
        };
        self.find((Some(Kind::Db), node, db.0, extra))
    }

    /// A database's cleanup target, created if new.
    pub fn cleanup_target(&mut self, db: DbIx) -> Ix {
        self.row((Some(Kind::Cleanup), NodeIx::CLUSTER, db.0, 0))
    }

    /// Sets a target's facts.
    pub fn set_facts(&mut self, ix: Ix, facts: Facts) {
        let Some(kind) = self.now.target(ix).map(TargetRef::kind) else { return };
        self.uncount(ix);
        if let Some(known) = self.now.facts.get_mut(ix.as_usize()) {
            *known = Packed::of(kind, &facts);
        }
        self.count(ix);
        self.mark(ix);
    }

    /// Sets a target's relation to the shard map.
    pub fn set_state(&mut self, ix: Ix, state: State) {
        if self.now.target(ix).is_none_or(|target| target.state() == state) {
            return;
        }
        self.uncount(ix);
        if let Some(row) = self.now.rows.get_mut(ix.as_usize()) {
            row.state = state;
            self.top.target_changed(DbIx(row.db));
        }
        self.count(ix);
        self.mark(ix);
    }

    /// Removes a target; its row is reused.
    pub fn remove(&mut self, ix: Ix) {
        if self.now.target(ix).is_none() {
            return;
        }
        let Some(&row) = self.now.rows.get(ix.as_usize()) else { return };
        self.trust(ix);
        self.uncount(ix);
        let place = ix.place();
        if let Some(part) = part_at(&self.now, place)
            && let Ok(entry) =
                self.by_part.find_entry(self.hasher.hash_one(part), |at| *at == place)
        {
            entry.remove();
        }
        let hash = self.hasher.hash_one(key(&row));
        if let Ok(entry) = self.by_key.find_entry(hash, |at| *at == place) {
            entry.remove();
        }
        if matches!(row.kind, Some(Kind::View | Kind::Search)) {
            self.free_views.push(row.extra);
        }
        if let Some(row) = self.now.rows.get_mut(ix.as_usize()) {
            row.kind = None;
        }
        self.free_rows.push(place);
        self.set_problem(ix, None);
        self.mark(ix);
        self.top.target_changed(DbIx(row.db));
        self.release(row.db);
    }

    /// Publishes the current tables.
    pub fn publish(&mut self, now: Moment) -> Arc<Snapshot> {
        if let Some(top) = self.top.choose(&self.now, now) {
            self.now.top = Arc::new(top);
        }
        self.now.version += 1;
        self.now.generated_at = now;
        for ix in &self.changed {
            self.marked.unset(ix.as_usize());
        }
        self.now.changed = std::mem::take(&mut self.changed).into();
        Arc::new(self.now.clone())
    }

    fn range(&mut self, range: Range) -> u32 {
        if let Some(at) = self.now.ranges.iter().position(|known| *known == range) {
            return place(at);
        }
        let ranges = Arc::make_mut(&mut self.now.ranges);
        ranges.push(range);
        place(ranges.len() - 1)
    }

    fn find(&self, wanted: Key) -> Option<Ix> {
        let rows = &self.now.rows;
        self.by_key
            .find(self.hasher.hash_one(wanted), |at| key_at(rows, *at) == wanted)
            .map(|at| self.now.ix_at(*at))
    }

    fn row(&mut self, wanted: Key) -> Ix {
        if let Some(ix) = self.find(wanted) {
            return ix;
        }
        let (kind, node, db, extra) = wanted;
        let mut row = Row { db, extra, node, kind, state: State::Ok, generation: 0 };
        let at = match self.free_rows.pop() {
            Some(free) => {
                if let Some(place) = self.now.rows.get_mut(free as usize) {
                    row.generation = place.generation.wrapping_add(1);
                    *place = row;
                }
                if let Some(facts) = self.now.facts.get_mut(free as usize) {
                    *facts = Packed::UNKNOWN;
                }
                free
            }
            None => {
                self.now.facts.push(Packed::UNKNOWN);
                place(self.now.rows.push(row))
            }
        };
        let (rows, hasher) = (&self.now.rows, &self.hasher);
        self.by_key
            .insert_unique(hasher.hash_one(wanted), at, |at| hasher.hash_one(key_at(rows, *at)));
        if let Some(uses) = self.uses.get_mut(db as usize) {
            *uses += 1;
        }
        let ix = Ix::of(at, row.generation);
        self.count(ix);
        // If another target just left this row, both are reported: the removed one and the new
        // one.
        self.marked.set(ix.as_usize());
        self.changed.push(ix);
        self.top.target_changed(DbIx(db));
        ix
    }

    fn count(&mut self, ix: Ix) {
        let Some(target) = self.now.target(ix) else { return };
        let (db, contribution) = (target.db(), target.contribution());
        self.top.add(db, &contribution);
        Arc::make_mut(&mut self.now.totals).add(&contribution);
    }

    fn uncount(&mut self, ix: Ix) {
        let Some(target) = self.now.target(ix) else { return };
        let (db, contribution) = (target.db(), target.contribution());
        self.top.remove(db, &contribution);
        Arc::make_mut(&mut self.now.totals).remove(&contribution);
    }

    fn mark(&mut self, ix: Ix) {
        if !self.marked.has(ix.as_usize()) {
            self.marked.set(ix.as_usize());
            self.changed.push(ix);
        }
    }

    fn release(&mut self, db: u32) {
        let Some(uses) = self.uses.get_mut(db as usize) else { return };
        *uses = uses.saturating_sub(1);
        if *uses > 0 {
            return;
        }
        if let Some(name) = self.now.names.get(db as usize)
            && let Ok(entry) =
                self.by_name.find_entry(self.hasher.hash_one(name.db), |at| *at == db)
        {
            entry.remove();
            self.free_dbs.push(db);
            self.top.forget(DbIx(db));
        }
    }
}

/// The lookup of a view by signature, for a scanner that walks a database's views.
impl Snapshot {
    /// The view index of a database with this signature.
    #[must_use]
    pub fn find_view(&self, views: &[Ix], signature: Signature) -> Option<Ix> {
        views.iter().copied().find(|ix| {
            self.target(*ix)
                .filter(|target| target.kind() == Kind::View)
                .and_then(TargetRef::view)
                .is_some_and(|view| view.signature == signature)
        })
    }
}

/// The values that identify a part.
type Part = (NodeIx, u32, Option<Range>, Signature);

fn part_at(tables: &Snapshot, at: u32) -> Option<Part> {
    let row = tables.rows.get(at as usize).filter(|row| row.node != NodeIx::CLUSTER)?;
    let view = (row.kind == Some(Kind::View)).then(|| tables.views.get(row.extra as usize))??;
    Some((row.node, row.db, view.range, view.signature))
}

fn key(row: &Row) -> Key {
    (row.kind, row.node, row.db, row.extra)
}

fn key_at(rows: &Chunked<Row>, at: u32) -> Key {
    rows.get(at as usize).map_or((None, NodeIx::CLUSTER, 0, 0), key)
}

fn name_at(names: &super::names::Names, at: u32) -> DbName<'_> {
    names.get(at as usize).unwrap_or(DbName { db: "", suffix: "" })
}

/// Tables have far fewer than four billion rows: a row takes more than 200 bytes.
fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
