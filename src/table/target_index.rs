//! Positions in the tables of targets that are stored by id.

use super::{Snapshot, TargetIx};
use crate::model::target::TargetId;
use couchdb_names::ShardName;
use hashbrown::{HashMap, HashSet};

/// Table positions of targets by id, where the tables contain them.
#[derive(Debug, Default)]
pub(crate) struct TargetIndex {
    positions: HashMap<TargetId, Option<TargetIx>>,
    snapshot_version: u64,
    missing: usize,
}

impl TargetIndex {
    /// Tracks a target from now on.
    pub(crate) fn add(&mut self, id: &TargetId) {
        if !self.positions.contains_key(id) {
            self.positions.insert(id.clone(), None);
            self.missing += 1;
            // Forces a search of the whole table at the next update.
            self.snapshot_version = 0;
        }
    }

    pub(crate) fn remove(&mut self, id: &TargetId) {
        if self.positions.remove(id) == Some(None) {
            self.missing = self.missing.saturating_sub(1);
        }
    }

    pub(crate) fn position(&self, id: &TargetId) -> Option<TargetIx> {
        self.positions.get(id).copied().flatten()
    }

    /// Updates the positions for a snapshot. If the snapshot directly follows the last one, only
    /// changed targets are examined.
    pub(crate) fn update(&mut self, tables: &Snapshot) {
        let next = self.snapshot_version != 0 && tables.version() == self.snapshot_version + 1;
        let same = self.snapshot_version != 0 && tables.version() == self.snapshot_version;
        self.snapshot_version = tables.version();
        if same || self.positions.is_empty() {
            return;
        }
        let changed: HashSet<TargetIx> = tables.changed_targets().iter().copied().collect();
        for (id, place) in &mut self.positions {
            if let Some(ix) = place
                && (!next || changed.contains(ix))
                && tables.target(*ix).is_none_or(|target| target.id() != *id)
            {
                *place = None;
                self.missing += 1;
            }
        }
        if self.missing == 0 {
            return;
        }
        let missing_dbs: HashSet<String> = self
            .positions
            .iter()
            .filter(|(_, place)| place.is_none())
            .map(|(id, _)| clustered_db(id))
            .collect();
        let mut found = Vec::new();
        let mut look = |ix: TargetIx| {
            let Some(target) = tables.target(ix) else { return };
            // Building an id allocates text, so ids are compared only if the database matches.
            if missing_dbs.contains(target.db_name().db) {
                found.push((target.id(), ix));
            }
        };
        if next {
            changed.into_iter().for_each(&mut look);
        } else {
            tables.targets().map(|target| target.ix()).for_each(&mut look);
        }
        for (id, ix) in found {
            if let Some(place @ None) = self.positions.get_mut(&id) {
                *place = Some(ix);
                self.missing -= 1;
            }
        }
    }
}

/// Name of the clustered database in an id.
fn clustered_db(id: &TargetId) -> String {
    match id {
        TargetId::Db { shard, .. } => {
            ShardName::split(shard).map_or_else(|| shard.clone(), |name| name.db.to_owned())
        }
        // A view's database includes the instance suffix, a dot and digits, which no database name
        // can contain.
        TargetId::View { db, .. } => {
            db.rsplit_once('.').map_or(db.as_str(), |(db, _)| db).to_owned()
        }
        TargetId::Cleanup { db } | TargetId::Search { db, .. } => db.clone(),
    }
}
