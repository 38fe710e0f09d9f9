//! X-rays of files in the mutable tables.

use super::*;
use crate::model::{estimate, facts::Inside};

impl Draft {
    /// Sets the X-ray of a target's file and updates the sums, unless the X-ray is of another file, or a compaction has
    /// contradicted an earlier X-ray of this target. Returns whether it was new.
    pub fn set_inside(&mut self, ix: TargetIx, inside: Inside) -> bool {
        let Some(target) = self.current.target(ix) else { return false };
        let is_known = target.inside().is_some_and(|known| known.at >= inside.at);
        if is_known || self.distrusted.contains(&ix) || !inside.is_of_file(&target.facts()) {
            return false;
        }
        // The rent up to now was incurred with the old prediction.
        self.settle_rent(ix, inside.at);
        self.remove_from_sums(ix);
        Arc::make_mut(&mut self.current.insides).insert(ix, inside);
        self.add_to_sums(ix);
        self.mark_changed(ix);
        true
    }

    /// Drops the X-ray of a file that was replaced between two readings. Meanwhile, the target's sums are not counted.
    pub(super) fn check_inside(
        &mut self,
        ix: TargetIx,
        kind: TargetKind,
        (before, after): (&Facts, &Facts),
    ) {
        let Some(inside) = self.current.insides.get(&ix).copied() else { return };
        if inside.is_of_file(after) {
            return;
        }
        if inside.is_contradicted(before, after, estimate::fitted_bytes(kind, after)) {
            self.distrusted.insert(ix);
        }
        Arc::make_mut(&mut self.current.insides).remove(&ix);
    }

    /// Forgets all X-rays of a target that lost its row.
    pub(super) fn forget_inside(&mut self, ix: TargetIx) {
        self.distrusted.remove(&ix);
        if self.current.insides.contains_key(&ix) {
            Arc::make_mut(&mut self.current.insides).remove(&ix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::{Confidence, OptionalU64};

    const MIB: u64 = 1 << 20;

    fn facts(file: u64, compacted_seq: u64, at: u64) -> Facts {
        Facts {
            update_seq: OptionalU64::new(90),
            compacted_seq: OptionalU64::new(compacted_seq),
            ..Facts::read(file * MIB, file * MIB, Moment::from_unix(at))
        }
    }

    fn inside(left: u64, at: u64) -> Inside {
        Inside {
            at: Moment::from_unix(at),
            file_bytes: 100 * MIB,
            active_bytes: OptionalU64::new(100 * MIB),
            update_seq: OptionalU64::new(90),
            left_bytes: left * MIB,
            ..Inside::default()
        }
    }

    fn reclaimable(draft: &mut Draft, ix: TargetIx) -> (u64, f64) {
        let snapshot = draft.publish(Moment::from_unix(2_000));
        let target = snapshot.target(ix).unwrap();
        let total = snapshot.totals().sums_of(target.node_ix(), TargetKind::Db).reclaimable_bytes;
        (target.reclaimable_bytes().unwrap() / MIB, total.get().unwrap() / MIB as f64)
    }

    #[test]
    fn xray_counts_until_its_file_is_replaced_and_not_if_it_was_wrong() {
        let mut draft = Draft::new(1);
        let node = draft.get_or_add_node("couchdb@a");
        let db = draft.get_or_add_db(DbName { db: "orders", suffix: ".1" });
        let ix = draft.get_or_add_shard(node, db, Some(Range { from: 0, to: u32::MAX }));
        draft.set_facts(ix, facts(100, 0, 1_000));
        assert_eq!(reclaimable(&mut draft, ix), (0, 0.0));
        assert!(draft.set_inside(ix, inside(40, 1_001)));
        assert!(!draft.set_inside(ix, inside(40, 1_001)), "known");
        assert_eq!(reclaimable(&mut draft, ix), (60, 60.0));
        assert_eq!(draft.current().target(ix).unwrap().confidence(), Confidence::Xray);
        // The compaction freed as much as predicted, so the next X-ray is used too.
        draft.set_facts(ix, facts(41, 90, 1_002));
        assert_eq!(draft.current().target(ix).unwrap().inside(), None);
        assert!(!draft.set_inside(ix, inside(40, 1_001)), "of the old file");
        draft.set_facts(ix, facts(100, 90, 1_004));
        assert!(draft.set_inside(ix, inside(40, 1_005)));
        // This one freed 20 MiB instead of 60.
        draft.set_facts(ix, facts(80, 91, 1_006));
        draft.set_facts(ix, facts(100, 91, 1_007));
        assert!(!draft.set_inside(ix, inside(40, 1_008)));
        assert_eq!(reclaimable(&mut draft, ix).0, 0);
        // Another target in the same row has its own X-rays.
        draft.remove(ix);
        let db = draft.get_or_add_db(DbName { db: "clients", suffix: ".2" });
        let ix = draft.get_or_add_shard(node, db, Some(Range { from: 0, to: u32::MAX }));
        draft.set_facts(ix, facts(100, 0, 1_009));
        assert!(draft.set_inside(ix, inside(40, 1_010)));
    }
}
