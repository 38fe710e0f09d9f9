//! The databases with the most reclaimable bytes: the choice of those exported by name, and their
//! sums.
//!
//! Owns the choice. A chosen database is exported completely, with every target, so that sums over
//! the exported series are sums over the database. The choice is updated with every change but
//! changes slowly: a series that comes and goes costs Prometheus more than one that stays, and
//! operators look at a database after its compaction too.

use super::{
    ChunkedTable, DbIx, IndexSet, NodeIx, Snapshot, TargetIx, TargetRef,
    totals::{Contribution, PartialSum},
};
use crate::model::target::{TargetKind, TargetState};
use hashbrown::HashMap;
use std::{collections::BTreeSet, time::Duration};
use wall_clock::Moment;

/// Maximum number of exported targets, as an average over the databases that may be exported
/// completely. Most databases have fewer targets; one with thousands of shards does not fit.
pub(super) const MAX_TARGETS_PER_DATABASE: usize = 10;

/// Databases are compared by their maximum of reclaimable bytes in the last one to two of these
/// spans, so that a compaction does not remove a database from the choice at once.
const SCORE_SPAN: Duration = Duration::from_secs(1_800);

/// A database that is younger than this is chosen only if it has at least [`MIN_BYTES_OF_NEW`]
/// reclaimable bytes: many are created for a test or a request, stay empty, and are gone before
/// anyone looks at their series.
const NEW_FOR: Duration = Duration::from_secs(3_600);
const MIN_BYTES_OF_NEW: u64 = 1 << 20;

/// The databases exported by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportedDatabases {
    /// The databases whose sums are exported, in table order.
    pub databases: Vec<ExportedDatabase>,
    /// Every target of the completely exported databases, in table order.
    pub targets: Vec<TargetIx>,
    /// Number of databases that are not exported completely.
    pub incomplete_count: usize,
}

/// A database whose sums are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportedDatabase {
    /// The database.
    pub db: DbIx,
    /// Whether each of its targets is exported too.
    pub is_complete: bool,
    /// Its sums.
    pub sums: DbSums,
}

/// Sums over one database, in bytes on disk, excluding missing targets and orphans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DbSums {
    /// Sums over its shard copies.
    pub shards: FileSums,
    /// Sums over its views, each with all its copies.
    pub views: FileSums,
}

/// Sums over the files of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSums {
    /// Number of files.
    pub file_count: u64,
    /// File bytes.
    pub file_bytes: PartialSum,
    /// Active bytes.
    pub active_bytes: PartialSum,
    /// Bytes that a compaction would free.
    pub reclaimable_bytes: PartialSum,
}

impl FileSums {
    /// The sums over the files of both.
    #[must_use]
    pub const fn and(&self, other: &Self) -> Self {
        Self {
            file_count: self.file_count.saturating_add(other.file_count),
            file_bytes: self.file_bytes.and(other.file_bytes),
            active_bytes: self.active_bytes.and(other.active_bytes),
            reclaimable_bytes: self.reclaimable_bytes.and(other.reclaimable_bytes),
        }
    }
}

impl ExportedDatabases {
    /// Replaces the values of a target of this database.
    pub(super) fn replace(&mut self, db: DbIx, before: &Contribution, after: &Contribution) {
        let Ok(at) = self.databases.binary_search_by_key(&db, |top| top.db) else { return };
        let Some(top) = self.databases.get_mut(at) else { return };
        if is_exported(before.kind, before.state) {
            top.sums.update(before, PartialSum::remove, u64::saturating_sub);
            top.sums.update(after, PartialSum::add, u64::saturating_add);
        }
    }
}

impl DbSums {
    fn update(
        &mut self,
        target: &Contribution,
        sum: impl Fn(&mut PartialSum, Option<u64>, bool),
        count: impl Fn(u64, u64) -> u64,
    ) {
        let files = match target.kind {
            TargetKind::Db => &mut self.shards,
            // A cluster-wide view counts all its copies, so its parts are not added.
            TargetKind::View if !target.is_part() => &mut self.views,
            TargetKind::View | TargetKind::Cleanup | TargetKind::Search => return,
        };
        files.file_count = count(files.file_count, u64::from(target.file_count));
        sum(&mut files.file_bytes, target.file_bytes, target.is_estimated);
        sum(&mut files.active_bytes, target.active_bytes, target.is_estimated);
        sum(&mut files.reclaimable_bytes, target.reclaimable_bytes, target.is_estimated);
    }
}

/// Whether a target counts as files of a database in its present state.
pub(super) const fn is_exported(kind: TargetKind, state: TargetState) -> bool {
    matches!(kind, TargetKind::Db | TargetKind::View)
        && !matches!(state, TargetState::Missing | TargetState::Orphan)
}

/// The state of a database whose sums are exported.
#[derive(Clone, Debug, Default)]
struct TrackedDatabase {
    sums: DbSums,
    is_complete: bool,
    /// Its maximum of reclaimable bytes in this span and in the previous one.
    max_reclaimable: [u64; 2],
}

impl TrackedDatabase {
    /// The score that other databases must clearly exceed.
    fn score(&self) -> u64 {
        let [this, before] = self.max_reclaimable;
        this.max(before)
    }
}

/// Whether a number of reclaimable bytes clearly exceeds a score: by more than a quarter.
const fn clearly_exceeds(reclaimable: u64, score: u64) -> bool {
    reclaimable > score.saturating_add(score / 4)
}

/// Whether a database was created within the last hour, according to the suffix of its files.
fn is_new(tables: &Snapshot, db: DbIx, now: Moment) -> bool {
    let suffix = tables.db_name(db).and_then(|name| name.suffix.strip_prefix('.'));
    let created = suffix.and_then(|suffix| suffix.parse().ok()).map(Moment::from_unix);
    created.is_some_and(|created| created <= now && created.age(now) < NEW_FOR)
}

/// Bytes, then index: a total order, so that ties need no extra rule.
type RankedDatabase = (u64, DbIx);

/// Orders the databases by reclaimable bytes, as far down as necessary, and chooses among them.
///
/// Every database above `floor` is in `best`, which holds a few more than needed, so that most
/// changes do not require a scan of the others.
#[derive(Debug, Default)]
pub(super) struct TopDatabases {
    /// Maximum number of completely exported databases; the sums of twice as many are exported.
    limit: usize,
    /// Number of targets, by database.
    targets: ChunkedTable<u32>,
    /// Reclaimable bytes of shards and views, by database.
    reclaimable_bytes: ChunkedTable<u64>,
    /// Reclaimable bytes of views' parts, by database; empty until a part is known.
    part_reclaimable_bytes: ChunkedTable<u64>,
    /// Whether the bytes of views' parts count: true if this process does not read the whole views.
    counts_parts: bool,
    /// Number of databases with any target.
    databases: usize,
    best: BTreeSet<RankedDatabase>,
    /// The best entry that is not in `best`.
    floor: Option<RankedDatabase>,
    tracked: HashMap<DbIx, TrackedDatabase>,
    /// Every target of the completely exported databases.
    exported_targets: Vec<TargetIx>,
    /// The start of the current score span.
    span_start: Moment,
    /// Whether any input of the choice changed.
    changed: bool,
    /// Whether the targets must be listed again.
    needs_listing: bool,
}

impl TopDatabases {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Sets the number of completely exported databases.
    pub(super) fn set_limit(&mut self, limit: usize) {
        if self.limit != limit {
            self.limit = limit;
            self.refill();
        }
    }

    const fn max_tracked(&self) -> usize {
        self.limit.saturating_mul(2)
    }

    pub(super) fn add(&mut self, db: DbIx, target: &Contribution) {
        self.update(db, target, u64::saturating_add, PartialSum::add);
    }

    /// Removes a target, with the same values as when it was added.
    pub(super) fn remove(&mut self, db: DbIx, target: &Contribution) {
        self.update(db, target, u64::saturating_sub, PartialSum::remove);
    }

    fn update(
        &mut self,
        db: DbIx,
        target: &Contribution,
        apply: impl Fn(u64, u64) -> u64,
        sum: impl Fn(&mut PartialSum, Option<u64>, bool),
    ) {
        if !is_exported(target.kind, target.state) {
            return;
        }
        let before = self.reclaimable_bytes_of(db);
        let at = db.as_usize();
        self.targets.grow_to(at + 1);
        if let Some(count) = self.targets.get_mut(at) {
            *count = u32::try_from(apply(u64::from(*count), 1)).unwrap_or(u32::MAX);
        }
        let sums = if target.is_part() {
            &mut self.part_reclaimable_bytes
        } else {
            &mut self.reclaimable_bytes
        };
        sums.grow_to(at + 1);
        if let Some(bytes) = sums.get_mut(at) {
            *bytes = apply(*bytes, target.reclaimable_bytes.unwrap_or_default());
        }
        if let Some(tracked) = self.tracked.get_mut(&db) {
            tracked.sums.update(target, sum, apply);
            self.changed = true;
        }
        self.update_rank(db, before);
    }

    /// A database's reclaimable bytes; `None` if it has no target.
    fn reclaimable_bytes_of(&self, db: DbIx) -> Option<u64> {
        let at = db.as_usize();
        self.targets.get(at).filter(|count| **count > 0)?;
        let of = |sums: &ChunkedTable<u64>| sums.get(at).copied().unwrap_or_default();
        let parts = if self.counts_parts { of(&self.part_reclaimable_bytes) } else { 0 };
        Some(of(&self.reclaimable_bytes).saturating_add(parts))
    }

    fn target_count(&self, db: DbIx) -> usize {
        self.targets.get(db.as_usize()).map_or(0, |count| *count as usize)
    }

    fn update_rank(&mut self, db: DbIx, before: Option<u64>) {
        let after = self.reclaimable_bytes_of(db);
        if before == after {
            return;
        }
        if before.is_none() {
            self.databases += 1;
        }
        if after.is_none() {
            self.databases = self.databases.saturating_sub(1);
        }
        if let Some(before) = before {
            let entry = (before, db);
            // Entries below the floor are not in `best`.
            if self.floor.is_none_or(|floor| entry >= floor) {
                self.changed |= self.best.remove(&entry);
            }
        }
        if let Some(after) = after {
            self.insert_ranked((after, db));
        }
    }

    fn insert_ranked(&mut self, entry: RankedDatabase) {
        if self.floor.is_some_and(|floor| entry < floor) {
            return;
        }
        self.best.insert(entry);
        self.changed = true;
        let kept = self.max_tracked();
        if self.best.len() > kept.saturating_mul(4).max(16) {
            while self.best.len() > kept.saturating_mul(2) {
                self.floor = self.best.pop_first();
            }
        }
    }

    fn refill(&mut self) {
        (self.best, self.floor) = (BTreeSet::new(), None);
        self.changed = true;
        for db in (0..self.targets.len()).filter_map(DbIx::from_usize) {
            if let Some(bytes) = self.reclaimable_bytes_of(db) {
                self.insert_ranked((bytes, db));
            }
        }
    }

    /// Removes a database, so that the next one with its index starts from empty.
    pub(super) fn remove_database(&mut self, db: DbIx) {
        if let Some(tracked) = self.tracked.remove(&db) {
            self.needs_listing |= tracked.is_complete;
            self.changed = true;
        }
    }

    /// Records that a target was added, removed or changed its state.
    pub(super) fn target_changed(&mut self, db: DbIx) {
        if self.tracked.get(&db).is_some_and(|tracked| tracked.is_complete) {
            (self.needs_listing, self.changed) = (true, true);
        }
    }

    /// The new choice, if it may have changed.
    pub(super) fn choose(&mut self, tables: &Snapshot, now: Moment) -> Option<ExportedDatabases> {
        let knows_views = tables.node(NodeIx::CLUSTER).is_some_and(|node| node.is_served);
        if self.counts_parts == knows_views {
            self.counts_parts = !knows_views;
            self.refill();
        }
        if self.best.len() < self.max_tracked() && self.floor.is_some() {
            self.refill();
        }
        self.advance_span(now);
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let mut removed = Vec::new();
        let mut tracked = std::mem::take(&mut self.tracked);
        for (db, tracked) in &mut tracked {
            let [this, _] = &mut tracked.max_reclaimable;
            match self.reclaimable_bytes_of(*db) {
                Some(bytes) => *this = (*this).max(bytes),
                None => removed.push(*db),
            }
        }
        self.tracked = tracked;
        removed.into_iter().for_each(|db| self.remove_database(db));
        let admitted = self.admit_databases(|db| is_new(tables, db, now));
        self.compute_sums(&admitted, tables);
        self.choose_complete();
        if std::mem::take(&mut self.needs_listing) {
            self.list_targets(tables);
        }
        let complete = self.tracked.values().filter(|tracked| tracked.is_complete).count();
        let databases = self.tracked.iter().map(|(db, tracked)| ExportedDatabase {
            db: *db,
            is_complete: tracked.is_complete,
            sums: tracked.sums,
        });
        let mut databases: Vec<ExportedDatabase> = databases.collect();
        databases.sort_unstable_by_key(|top| top.db);
        let incomplete = self.databases.saturating_sub(complete);
        Some(ExportedDatabases {
            databases,
            targets: self.exported_targets.clone(),
            incomplete_count: incomplete,
        })
    }

    /// Starts a new score span when the current one is over; the maximum of the span before the
    /// previous one is dropped.
    fn advance_span(&mut self, now: Moment) {
        let age = self.span_start.age(now);
        if age < SCORE_SPAN && self.span_start <= now {
            return;
        }
        let long_ago = age >= SCORE_SPAN.saturating_mul(2);
        for tracked in self.tracked.values_mut() {
            let [this, _] = tracked.max_reclaimable;
            tracked.max_reclaimable = [0, if long_ago { 0 } else { this }];
        }
        (self.span_start, self.changed) = (now, true);
    }

    /// Adds databases to export sums of, replacing databases that they clearly exceed; returns the
    /// added ones.
    fn admit_databases(&mut self, is_new: impl Fn(DbIx) -> bool) -> Vec<DbIx> {
        let limit = self.max_tracked();
        let mut by_score: Vec<RankedDatabase> =
            self.tracked.iter().map(|(db, tracked)| (tracked.score(), *db)).collect();
        by_score.sort_unstable();
        let mut weakest = by_score.into_iter().peekable();
        while self.tracked.len() > limit
            && let Some((_, db)) = weakest.next()
        {
            self.remove_database(db);
        }
        let mut admitted = Vec::new();
        for &(bytes, db) in self.best.iter().rev().take(limit) {
            if self.tracked.contains_key(&db) || bytes < MIN_BYTES_OF_NEW && is_new(db) {
                continue;
            }
            if self.tracked.len() >= limit {
                let beaten = weakest.next_if(|(score, _)| clearly_exceeds(bytes, *score));
                let Some((_, beaten)) = beaten else { break };
                if let Some(tracked) = self.tracked.remove(&beaten) {
                    self.needs_listing |= tracked.is_complete;
                }
            }
            self.tracked.insert(
                db,
                TrackedDatabase { max_reclaimable: [bytes, 0], ..TrackedDatabase::default() },
            );
            admitted.push(db);
        }
        admitted
    }

    /// Computes the sums of newly tracked databases.
    fn compute_sums(&mut self, admitted: &[DbIx], tables: &Snapshot) {
        if admitted.is_empty() {
            return;
        }
        for target in tables.targets_of(admitted) {
            let contribution = target.contribution();
            if is_exported(contribution.kind, contribution.state)
                && let Some(tracked) = self.tracked.get_mut(&target.db())
            {
                tracked.sums.update(&contribution, PartialSum::add, u64::saturating_add);
            }
        }
    }

    /// Chooses the databases to export completely, within the limits on databases and on their
    /// targets.
    fn choose_complete(&mut self) {
        let room = self.limit.saturating_mul(MAX_TARGETS_PER_DATABASE);
        let mut used: usize = 0;
        let (mut complete, mut others) = (BTreeSet::new(), Vec::new());
        for (db, tracked) in &self.tracked {
            if tracked.is_complete {
                used += self.target_count(*db);
                complete.insert((tracked.score(), *db));
            } else if let Some(bytes) = self.reclaimable_bytes_of(*db) {
                others.push((bytes, *db));
            }
        }
        let mut changes = Vec::new();
        while (complete.len() > self.limit || used > room)
            && let Some((_, db)) = complete.pop_first()
        {
            used -= self.target_count(db);
            changes.push((db, false));
        }
        others.sort_unstable_by(|one, other| other.cmp(one));
        for (bytes, db) in others {
            let size = self.target_count(db);
            let (mut beaten, mut freed) = (0, 0);
            let fits = |beaten: usize, freed: usize, complete: &BTreeSet<RankedDatabase>| {
                complete.len() - beaten < self.limit && used - freed + size <= room
            };
            for (score, weaker) in &complete {
                if size > room || fits(beaten, freed, &complete) || !clearly_exceeds(bytes, *score)
                {
                    break;
                }
                beaten += 1;
                freed += self.target_count(*weaker);
            }
            if !fits(beaten, freed, &complete) {
                continue;
            }
            for _ in 0..beaten {
                changes.extend(complete.pop_first().map(|(_, weaker)| (weaker, false)));
            }
            used = used - freed + size;
            changes.push((db, true));
            complete.insert((bytes, db));
        }
        self.needs_listing |= !changes.is_empty();
        for (db, is_complete) in changes {
            if let Some(tracked) = self.tracked.get_mut(&db) {
                tracked.is_complete = is_complete;
            }
        }
    }

    fn list_targets(&mut self, tables: &Snapshot) {
        let complete = self.tracked.iter().filter(|(_, tracked)| tracked.is_complete);
        let complete: Vec<DbIx> = complete.map(|(db, _)| *db).collect();
        let targets = tables.targets_of(&complete);
        self.exported_targets = targets
            .filter(|target| is_exported(target.kind(), target.state()))
            .map(TargetRef::ix)
            .collect();
    }
}

impl Snapshot {
    /// Every target of these databases, in table order. Scans all rows.
    fn targets_of(&self, dbs: &[DbIx]) -> impl Iterator<Item = TargetRef<'_>> {
        let mut wanted = IndexSet::default();
        dbs.iter().for_each(|db| wanted.insert(db.as_usize()));
        let rows = self.rows.iter().enumerate();
        rows.filter(move |(_, row)| wanted.contains(row.db as usize))
            .filter_map(|(at, _)| self.target_at(at))
    }
}

#[cfg(test)]
mod tests;
