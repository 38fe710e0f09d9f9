//! One pass over all targets, for all rules together.
//!
//! Owns the sums of each database and the lists of targets that some rule looks at. A rule that needs another sum
//! adds a field here instead of another pass: a million targets take a tenth of a second each time.

use crate::{
    model::{
        correction::Correction,
        target::{TargetKind, TargetState},
    },
    table::{DbIx, Snapshot, TargetIx, TargetRef},
};

/// The sums of one database instance. Bytes are on disk; what is unknown adds nothing and is counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct DbSurvey {
    /// Number of its shard copies that are in the shard map and on disk.
    pub shards: u32,
    /// Those of them whose size or live bytes are unknown.
    pub unmeasured_shards: u32,
    /// Bytes of those shards.
    pub file_bytes: u64,
    /// Their live bytes.
    pub active_bytes: u64,
    /// What compacting them would free.
    pub reclaimable_bytes: u64,
    /// Those of them whose documents are counted.
    pub counted_shards: u32,
    /// Documents in them that are not deleted, each copy counted.
    pub docs: u64,
    /// Deleted documents in them, each copy counted.
    pub deleted_docs: u64,
    /// Live bytes of those whose documents are counted.
    pub counted_bytes: u64,
    /// What compacting them would free although CouchDB counts it as live, as earlier compactions showed.
    pub hidden_bytes: u64,
    /// The shard copy that has most of it.
    pub most_hidden: Option<(u64, TargetIx)>,
    /// The largest shard copy, by live bytes.
    pub largest: Option<(u64, TargetIx)>,
    /// Number of its view indexes.
    pub views: u32,
    /// Bytes of all their files.
    pub view_file_bytes: u64,
    /// The largest index, by live bytes of all its files.
    pub largest_view: Option<(u64, TargetIx)>,
}

/// The sums of all databases, and the targets that are listed one by one.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    dbs: Vec<DbSurvey>,
    /// Shard copies on disk that no database owns.
    pub orphans: Vec<TargetIx>,
    /// Shard copies in the shard map that are not on disk.
    pub missing: Vec<TargetIx>,
    /// Cleanups of databases that have stale index files.
    pub cleanups: Vec<TargetIx>,
}

impl Survey {
    /// Looks at every target of a snapshot.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut survey = Self::default();
        snapshot.targets().for_each(|target| survey.add(target));
        survey
    }

    /// Every database instance that has a target.
    pub fn dbs(&self) -> impl Iterator<Item = (DbIx, &DbSurvey)> {
        let dbs = self.dbs.iter().enumerate().filter(|(_, db)| db.shards > 0 || db.views > 0);
        dbs.filter_map(|(at, db)| Some((DbIx::from_usize(at)?, db)))
    }

    fn add(&mut self, target: TargetRef<'_>) {
        match (target.kind(), target.state()) {
            (TargetKind::Db, TargetState::Orphan) => self.orphans.push(target.ix()),
            (TargetKind::Db, TargetState::Missing) => self.missing.push(target.ix()),
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

    fn add_shard(&mut self, target: TargetRef<'_>) {
        let facts = target.facts();
        let db = self.db(target);
        db.shards += 1;
        let (file, active) = (facts.file_bytes.get(), facts.active_bytes.get());
        db.unmeasured_shards += u32::from(file.is_none() || active.is_none());
        db.file_bytes = db.file_bytes.saturating_add(file.unwrap_or_default());
        db.active_bytes = db.active_bytes.saturating_add(active.unwrap_or_default());
        let reclaimable = target.correction().reclaimable_bytes(TargetKind::Db, &facts);
        let shown = Correction::NONE.reclaimable_bytes(TargetKind::Db, &facts);
        let hidden = reclaimable.zip(shown).map_or(0, |(all, shown)| all.saturating_sub(shown));
        db.hidden_bytes = db.hidden_bytes.saturating_add(hidden);
        db.most_hidden = db.most_hidden.max((hidden > 0).then_some((hidden, target.ix())));
        db.reclaimable_bytes = db.reclaimable_bytes.saturating_add(reclaimable.unwrap_or_default());
        db.largest = db.largest.max(active.map(|bytes| (bytes, target.ix())));
        let counted = facts.docs.get().zip(facts.deleted_docs.get()).zip(active);
        if let Some(((docs, deleted), active)) = counted {
            db.counted_shards += 1;
            db.docs = db.docs.saturating_add(docs);
            db.deleted_docs = db.deleted_docs.saturating_add(deleted);
            db.counted_bytes = db.counted_bytes.saturating_add(active);
        }
    }

    fn add_view(&mut self, target: TargetRef<'_>) {
        let (file, active) = (target.file_bytes(), target.active_bytes());
        let db = self.db(target);
        db.views += 1;
        db.view_file_bytes = db.view_file_bytes.saturating_add(file.unwrap_or_default());
        db.largest_view = db.largest_view.max(active.map(|bytes| (bytes, target.ix())));
    }
}
