//! One pass over all targets, for all rules together.
//!
//! Owns the sums of each database and the lists of targets that some rule looks at. A rule that needs another sum
//! adds a field here instead of another pass: a million targets take a tenth of a second each time.

use crate::{
    model::{
        correction::Correction,
        target::{TargetKind, TargetState},
    },
    table::{DbIx, NodeIx, Snapshot, TargetIx, TargetRef},
};
use std::time::Duration;
use wall_clock::Moment;

/// The sums of one database instance. Bytes are on disk; unknown sizes add nothing and are counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct DbSurvey {
    /// Number of its shard copies that are in the shard map and on disk.
    pub shards: u32,
    /// Number of those shards whose size or live bytes are unknown.
    pub unmeasured_shards: u32,
    /// Bytes of those shards.
    pub file_bytes: u64,
    /// Their live bytes.
    pub active_bytes: u64,
    /// Number of those shards whose documents are counted.
    pub counted_shards: u32,
    /// Documents in them that are not deleted, each copy counted.
    pub docs: u64,
    /// Deleted documents in the counted shards, each copy counted.
    pub deleted_docs: u64,
    /// Live bytes of the shards whose documents are counted.
    pub counted_bytes: u64,
    /// Bytes that compacting them would free although CouchDB counts them as live, judging by
    /// earlier compactions.
    pub hidden_bytes: u64,
    /// The most hidden bytes in one shard copy, and that copy.
    pub most_hidden: Option<(u64, TargetIx)>,
    /// The largest shard copy, by live bytes.
    pub largest: Option<(u64, TargetIx)>,
    /// Number of its view indexes.
    pub views: u32,
    /// Bytes of all their files.
    pub view_file_bytes: u64,
    /// The largest index, by live bytes of all its files.
    pub largest_view: Option<(u64, TargetIx)>,
    /// The number of changes that the index furthest behind lacks.
    pub most_pending: u64,
    /// Number of views in the design document with the most views.
    pub most_views: usize,
}

/// The sums of one node over its shards, or, for the pseudo node, over the views of the cluster with all their
/// copies.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeSurvey {
    /// Number of shards in the shard map and on disk.
    pub shards: u64,
    /// Number of those shards whose live bytes are unknown.
    pub unmeasured_shards: u64,
    /// Live bytes of shards.
    pub active_bytes: u64,
    /// Number of those shards that were written to in the last days, among those of known growth.
    pub written_shards: u64,
    /// Bytes of files.
    pub file_bytes: u64,
    /// Growth over the last days.
    pub growth: GrowthSums,
}

/// How fast files grow, summed.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrowthSums {
    /// Bytes a second that are appended to files.
    pub file_rate: f64,
    /// Bytes a second by which live bytes grow.
    pub active_rate: f64,
    /// Bytes of the files whose growth is known.
    watched_bytes: f64,
    /// Bytes of all files.
    file_bytes: f64,
    /// Bytes of files times the seconds for which they were watched.
    byte_seconds: f64,
}

impl GrowthSums {
    fn add_file(&mut self, target: TargetRef<'_>, file_bytes: u64, now: Moment) -> bool {
        let (files, bytes) = (f64::from(target.file_count()), file_bytes as f64);
        self.file_bytes += bytes;
        let growth = target.growth();
        let Some((file, active)) = growth.rates_of_days(now) else { return false };
        self.file_rate = file.mul_add(files, self.file_rate);
        self.active_rate = active.mul_add(files, self.active_rate);
        self.watched_bytes += bytes;
        let watched = growth.watched(now).unwrap_or_default();
        self.byte_seconds = watched.as_secs_f64().mul_add(bytes, self.byte_seconds);
        file >= MIN_WRITE_RATE
    }

    /// Adds a share of other sums.
    pub fn add(&mut self, other: &Self, share: f64) {
        self.file_rate += other.file_rate * share;
        self.active_rate += other.active_rate * share;
        self.watched_bytes += other.watched_bytes * share;
        self.file_bytes += other.file_bytes * share;
        self.byte_seconds += other.byte_seconds * share;
    }

    /// How long the files were watched, averaged over their bytes; `None` if the growth of most of
    /// them is unknown.
    pub fn watched(&self) -> Option<Duration> {
        if self.watched_bytes <= 0.0 || self.watched_bytes < self.file_bytes / 2.0 {
            return None;
        }
        Duration::try_from_secs_f64(self.byte_seconds / self.watched_bytes).ok()
    }
}

/// Growth in bytes per second below which a shard is idle, about 90 KB a day: a fading mean never
/// returns to zero.
const MIN_WRITE_RATE: f64 = 1.0;

/// An index that lacks fewer changes is only seconds behind.
const MIN_LAG: u64 = 1_000;

/// The sums of all databases and nodes, and the targets that are listed one by one.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    now: Moment,
    dbs: Vec<DbSurvey>,
    nodes: Vec<NodeSurvey>,
    shards_by_db: Groups,
    shards_by_node: Groups,
    views_by_db: Groups,
    /// Shard copies on disk that no database owns.
    pub orphans: Vec<TargetIx>,
    /// Shard copies in the shard map that are not on disk.
    pub missing: Vec<TargetIx>,
    /// Shard copies that the map places on nodes that are not members.
    pub on_strangers: Vec<TargetIx>,
    /// Cleanups of databases that have stale index files.
    pub cleanups: Vec<TargetIx>,
    /// View indexes that are far behind their database.
    pub lagging_views: Vec<TargetIx>,
}

impl Survey {
    /// Surveys every target of a snapshot.
    pub fn of(snapshot: &Snapshot, now: Moment) -> Self {
        let mut survey = Self { now, ..Self::default() };
        snapshot.targets().for_each(|target| survey.add(snapshot, target));
        survey
    }

    /// Every database instance that has a target.
    pub fn dbs(&self) -> impl Iterator<Item = (DbIx, &DbSurvey)> {
        let dbs = self.dbs.iter().enumerate().filter(|(_, db)| db.shards > 0 || db.views > 0);
        dbs.filter_map(|(at, db)| Some((DbIx::from_usize(at)?, db)))
    }

    /// The sums of a node, or of the views of the whole cluster for the pseudo node.
    pub fn node(&self, node: NodeIx) -> NodeSurvey {
        self.nodes.get(node.as_usize()).copied().unwrap_or_default()
    }

    /// The shard copies of a database that are in the shard map and on disk.
    pub(super) fn shards_of(&self, db: DbIx) -> impl Iterator<Item = usize> {
        self.shards_by_db.rows_of(db.as_usize())
    }

    /// The shard copies on a node that are in the shard map and on disk.
    pub(super) fn shards_on(&self, node: NodeIx) -> impl Iterator<Item = usize> {
        self.shards_by_node.rows_of(node.as_usize())
    }

    /// The view indexes of a database.
    pub(crate) fn views_of(&self, db: DbIx) -> impl Iterator<Item = usize> {
        self.views_by_db.rows_of(db.as_usize())
    }

    /// The growth of all files.
    pub fn growth(&self) -> GrowthSums {
        self.nodes.iter().fold(GrowthSums::default(), |mut sums, node| {
            sums.add(&node.growth, 1.0);
            sums
        })
    }

    fn add(&mut self, snapshot: &Snapshot, target: TargetRef<'_>) {
        match (target.kind(), target.state()) {
            (TargetKind::Db, TargetState::Orphan) => self.orphans.push(target.ix()),
            (TargetKind::Db, TargetState::Missing) => self.missing.push(target.ix()),
            (TargetKind::Db, TargetState::Unknown) => {
                if snapshot.node(target.node_ix()).is_some_and(|node| !node.is_member) {
                    self.on_strangers.push(target.ix());
                }
            }
            (TargetKind::Db, _) => self.add_shard(target),
            (TargetKind::View, TargetState::Ok) if !target.is_part() => self.add_view(target),
            (TargetKind::Cleanup, _) if target.facts().flags.evidence => {
                self.cleanups.push(target.ix());
            }
            (TargetKind::View | TargetKind::Cleanup | TargetKind::Search, _) => {}
        }
    }

    fn db(&mut self, target: TargetRef<'_>) -> &mut DbSurvey {
        let at = target.db().as_usize();
        if self.dbs.len() <= at {
            self.dbs.resize(at + 1, DbSurvey::default());
        }
        &mut self.dbs[at]
    }

    /// Adds the bytes of a target's files.
    fn add_to_node(&mut self, target: TargetRef<'_>, file: Option<u64>) {
        let at = target.node_ix().as_usize();
        if self.nodes.len() <= at {
            self.nodes.resize(at + 1, NodeSurvey::default());
        }
        let (now, node) = (self.now, &mut self.nodes[at]);
        let file = file.unwrap_or_default();
        node.file_bytes = node.file_bytes.saturating_add(file);
        let is_written = node.growth.add_file(target, file, now);
        if target.kind() == TargetKind::Db {
            let active = target.active_bytes();
            node.shards += 1;
            node.unmeasured_shards += u64::from(active.is_none());
            node.active_bytes = node.active_bytes.saturating_add(active.unwrap_or_default());
            node.written_shards += u64::from(is_written);
        }
    }

    fn add_shard(&mut self, target: TargetRef<'_>) {
        self.shards_by_db.add(target.db().as_usize(), target.ix());
        self.shards_by_node.add(target.node_ix().as_usize(), target.ix());
        let facts = target.facts();
        let (file, active) = (facts.file_bytes.get(), facts.active_bytes.get());
        let db = self.db(target);
        db.shards += 1;
        db.unmeasured_shards += u32::from(file.is_none() || active.is_none());
        db.file_bytes = db.file_bytes.saturating_add(file.unwrap_or_default());
        db.active_bytes = db.active_bytes.saturating_add(active.unwrap_or_default());
        let reclaimable = target.correction().reclaimable_bytes(TargetKind::Db, &facts);
        let uncorrected = Correction::NONE.reclaimable_bytes(TargetKind::Db, &facts);
        let hidden = reclaimable
            .zip(uncorrected)
            .map_or(0, |(all, uncorrected)| all.saturating_sub(uncorrected));
        db.hidden_bytes = db.hidden_bytes.saturating_add(hidden);
        db.most_hidden = db.most_hidden.max((hidden > 0).then_some((hidden, target.ix())));
        db.largest = db.largest.max(active.map(|bytes| (bytes, target.ix())));
        let counted = facts.docs.get().zip(facts.deleted_docs.get()).zip(active);
        if let Some(((docs, deleted), active)) = counted {
            db.counted_shards += 1;
            db.docs = db.docs.saturating_add(docs);
            db.deleted_docs = db.deleted_docs.saturating_add(deleted);
            db.counted_bytes = db.counted_bytes.saturating_add(active);
        }
        self.add_to_node(target, file);
    }

    fn add_view(&mut self, target: TargetRef<'_>) {
        self.views_by_db.add(target.db().as_usize(), target.ix());
        let (file, active) = (target.file_bytes(), target.active_bytes());
        let pending = target.facts().updates_pending.get().unwrap_or_default();
        if pending >= MIN_LAG {
            self.lagging_views.push(target.ix());
        }
        let functions = target.view().map_or(0, |view| view.functions.len());
        let db = self.db(target);
        db.views += 1;
        db.most_pending = db.most_pending.max(pending);
        db.most_views = db.most_views.max(functions);
        db.view_file_bytes = db.view_file_bytes.saturating_add(file.unwrap_or_default());
        db.largest_view = db.largest_view.max(active.map(|bytes| (bytes, target.ix())));
        self.add_to_node(target, file);
    }
}

/// Targets by group: each row links to the previous row of its group. This takes four bytes per
/// target, and no list for each of a million databases.
#[derive(Clone, Debug, Default)]
struct Groups {
    /// By group, the last row plus one; zero for an empty group.
    last: Vec<u32>,
    /// By row, the row before it plus one.
    before: Vec<u32>,
}

impl Groups {
    fn add(&mut self, group: usize, ix: TargetIx) {
        let place = ix.as_usize();
        let Some(link) = u32::try_from(place).ok().and_then(|row| row.checked_add(1)) else {
            return;
        };
        if self.last.len() <= group {
            self.last.resize(group + 1, 0);
        }
        if self.before.len() <= place {
            self.before.resize(place + 1, 0);
        }
        self.before[place] = std::mem::replace(&mut self.last[group], link);
    }

    /// The rows of a group, the last one first.
    fn rows_of(&self, group: usize) -> impl Iterator<Item = usize> {
        let place = |link: u32| link.checked_sub(1).map(|row| row as usize);
        let last = self.last.get(group).copied().and_then(place);
        std::iter::successors(last, move |row| self.before.get(*row).copied().and_then(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_lists_exactly_its_targets() {
        let mut groups = Groups::default();
        for (row, group) in [(0, 2), (3, 0), (4, 2), (7, 2)] {
            groups.add(group, TargetIx::from_usize(row).unwrap());
        }
        let rows = |group| groups.rows_of(group).collect::<Vec<_>>();
        assert_eq!((rows(0), rows(1), rows(2), rows(9)), (vec![3], vec![], vec![7, 4, 0], vec![]));
    }
}
