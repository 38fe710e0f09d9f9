//! Corrections of predictions in the mutable tables.

use super::*;
use crate::model::correction::DbCorrections;
use hashbrown::HashMap;

impl Draft {
    /// Sets the corrections of predictions, and updates the sums and the rents of the targets whose
    /// predictions change.
    ///
    /// Rent up to `now` is kept, with the waste that was predicted until then. Without `now`, all
    /// rent is assumed to have been predicted with these corrections: both come from an earlier
    /// process. Returns whether any prediction may have changed.
    pub fn set_corrections(&mut self, corrections: &Arc<Corrections>, now: Option<Moment>) -> bool {
        self.corrections = Arc::clone(corrections);
        let by_db: HashMap<DbIx, DbCorrections> = corrections
            .iter()
            .filter_map(|(db, suffix, it)| Some((self.find_db(DbName { db, suffix })?, *it)))
            .collect();
        let before = Arc::clone(&self.current.corrections);
        let dbs = by_db.keys().chain(before.keys());
        let changed: HashSet<DbIx> =
            dbs.filter(|db| by_db.get(*db) != before.get(*db)).copied().collect();
        if changed.is_empty() {
            return false;
        }
        let targets = self.current.targets();
        let changed: Vec<TargetIx> =
            targets.filter(|target| changed.contains(&target.db())).map(TargetRef::ix).collect();
        for ix in &changed {
            if let Some(now) = now {
                // The rent up to now was incurred with the old prediction.
                self.settle_rent(*ix, now);
            }
            self.remove_from_sums(*ix);
        }
        self.current.corrections = Arc::new(by_db);
        for ix in &changed {
            self.add_to_sums(*ix);
            self.mark_changed(*ix);
        }
        !changed.is_empty()
    }

    /// Applies the corrections of a database that has just got its row.
    pub(super) fn correct_new_db(&mut self, db: DbIx, name: DbName<'_>) {
        if let Some(corrections) = self.corrections.of(name.db, name.suffix) {
            Arc::make_mut(&mut self.current.corrections).insert(db, *corrections);
        }
    }

    /// Removes the corrections of a database that lost its row, which another one may get.
    pub(super) fn forget_corrections(&mut self, db: DbIx) {
        if self.current.corrections.contains_key(&db) {
            Arc::make_mut(&mut self.current.corrections).remove(&db);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        correction::Correction,
        facts::{Confidence, OptionalU64},
    };

    const RANGE: Range = Range { from: 0, to: u32::MAX };
    const HOUR: u64 = 3_600;

    fn at(hours: u64) -> Moment {
        Moment::from_unix(1_000_000 + hours * HOUR)
    }

    /// A thousand documents of a thousand bytes each, with three times as many active bytes.
    fn bloated(hours: u64) -> Facts {
        Facts {
            docs: OptionalU64::new(1_000),
            deleted_docs: OptionalU64::new(0),
            update_seq: OptionalU64::new(5_000),
            compacted_seq: OptionalU64::new(0),
            ..Facts::read(3_100_000, 3_000_000, at(hours))
        }
    }

    fn corrections(dbs: &[&str]) -> Arc<Corrections> {
        let learned = Correction {
            density: 1_000.0,
            trust: 1.0,
            trust_where_low: 1.0,
            is_confirmed: true,
            ..Correction::NONE
        };
        let mut corrections = Corrections::default();
        for db in dbs {
            corrections.set(db, ".1", TargetKind::Db, learned);
        }
        Arc::new(corrections)
    }

    fn add(draft: &mut Draft, db: &str) -> TargetIx {
        let node = draft.get_or_add_node("couchdb@a");
        let db = draft.get_or_add_db(DbName { db, suffix: ".1" });
        let ix = draft.get_or_add_shard(node, db, Some(RANGE));
        draft.set_facts(ix, bloated(0));
        ix
    }

    /// Waste of all db targets, in three ways: from the totals, from the exported databases, and summed over targets.
    fn wasted(draft: &mut Draft, hours: u64) -> [f64; 3] {
        let snapshot = draft.publish(at(hours));
        let node = draft.find_node("couchdb@a").unwrap();
        let total = snapshot.totals().sums_of(node, TargetKind::Db).reclaimable_bytes.get();
        let exported = snapshot.top().databases.iter();
        let exported: f64 =
            exported.map(|db| db.sums.shards.reclaimable_bytes.get().unwrap_or_default()).sum();
        let each = snapshot.targets().filter_map(TargetRef::reclaimable_bytes).sum::<u64>();
        [total.unwrap_or_default(), exported, each as f64]
    }

    #[test]
    fn changed_correction_updates_sums_and_affected_targets() {
        let mut draft = Draft::new(10);
        let (a, b) = (add(&mut draft, "a"), add(&mut draft, "b"));
        let [fitted, ..] = wasted(&mut draft, 0);
        assert!(fitted < 600_000.0, "{fitted}");
        assert!(draft.set_corrections(&corrections(&["a", "unknown"]), None));
        let [total, exported, each] = wasted(&mut draft, 0);
        assert_eq!((total, exported), (each, each));
        assert!((total - fitted / 2.0 - 2_083_000.0).abs() < 1_000.0, "{total}");
        let snapshot = Arc::new(draft.current().clone());
        assert_eq!(snapshot.changed_targets(), [a]);
        assert_eq!(snapshot.target(a).unwrap().confidence(), Confidence::Learned);
        assert_eq!(snapshot.target(b).unwrap().confidence(), Confidence::High);

        assert!(!draft.set_corrections(&corrections(&["unknown", "a"]), Some(at(1))));
        assert!(draft.set_corrections(&corrections(&["b"]), Some(at(1))));
        let [total_b, exported, each] = wasted(&mut draft, 1);
        assert_eq!((total_b, exported, each), (total, total, total));
        draft.remove(b);
        assert!(!draft.set_corrections(&Arc::default(), Some(at(1))), "its row is free");
        let [total, _, each] = wasted(&mut draft, 1);
        assert_eq!((total, each), (fitted / 2.0, fitted / 2.0));
    }

    #[test]
    fn correction_applies_to_a_late_database_but_not_to_a_reused_row() {
        let mut draft = Draft::new(10);
        draft.set_corrections(&corrections(&["late"]), None);
        let ix = add(&mut draft, "late");
        assert_eq!(draft.current().target(ix).unwrap().confidence(), Confidence::Learned);
        let row = draft.current().target(ix).unwrap().db();
        draft.remove(ix);
        let other = add(&mut draft, "other");
        let other = draft.current().target(other).unwrap();
        assert_eq!((other.db(), other.correction()), (row, Correction::NONE));
        let again = add(&mut draft, "late");
        assert_eq!(draft.current().target(again).unwrap().confidence(), Confidence::Learned);
    }

    #[test]
    fn accumulated_rent_is_kept_when_predictions_change() {
        let rent = |draft: &Draft, ix, hours| {
            let target = draft.current().target(ix).unwrap();
            let waste = target.correction().reclaimable_bytes(TargetKind::Db, &target.facts());
            target.rent().byte_seconds(waste.unwrap(), at(hours)).unwrap() / HOUR as f64
        };
        let mut draft = Draft::new(10);
        let ix = add(&mut draft, "a");
        let small = rent(&draft, ix, 1);
        draft.set_corrections(&Arc::default(), None);
        draft.set_corrections(&corrections(&["a"]), Some(at(10)));
        assert!((rent(&draft, ix, 10) / (10.0 * small) - 1.0).abs() < 1e-6);
        let large = rent(&draft, ix, 11) - rent(&draft, ix, 10);
        assert!(large > 2_000_000.0, "{large}");
        // A reading without changes does not change rent either.
        draft.set_facts(ix, bloated(11));
        assert!((rent(&draft, ix, 12) - 10.0 * small - 2.0 * large).abs() < 1.0);

        // After a restart, rents are calculated with the same corrections.
        let mut restarted = Draft::new(10);
        let ix = add(&mut restarted, "a");
        restarted.set_corrections(&corrections(&["a"]), None);
        assert!((rent(&restarted, ix, 5) / (5.0 * large) - 1.0).abs() < 1e-6);
    }
}
