//! Targets that were started and have to be measured again before they may start once more.
//!
//! What was measured before a start has been acted on: until it is measured again, or the
//! start's outcome tells what became of it, it is no cause for another, however short
//! `limits.wait` is. Pure.

use crate::model::{
    facts::Facts,
    target::{Kind, TargetId},
};
use std::{collections::BTreeMap, time::Duration};
use wall_clock::Moment;

/// For how long nobody tries again after a request that may or may not have arrived, of which
/// CouchDB shows nothing.
const UNSURE: Duration = Duration::from_secs(30);

/// For how long a start is remembered of a target that the tables do not have.
const GONE: Duration = Duration::from_secs(3_600);

/// One start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Start {
    at: Moment,
    /// Until when it counts whatever is measured; for good where none.
    until: Option<Moment>,
}

/// Starts whose targets were not measured since.
#[derive(Debug, Default)]
pub(super) struct PendingRereads(BTreeMap<TargetId, Start>);

impl PendingRereads {
    /// A start was decided.
    pub(super) fn started(&mut self, id: &TargetId, now: Moment) {
        self.0.insert(id.clone(), Start { at: now, until: None });
    }

    /// Its request may have arrived, and nothing will show whether it did.
    pub(super) fn unsure(&mut self, id: &TargetId, now: Moment) {
        if let Some(start) = self.0.get_mut(id) {
            start.until = Some(now.plus(UNSURE));
        }
    }

    /// It never went out, or its outcome is known.
    pub(super) fn settle(&mut self, id: &TargetId) {
        self.0.remove(id);
    }

    /// Whether a start of this target is pending.
    pub(super) fn has(&self, id: &TargetId) -> bool {
        self.0.contains_key(id)
    }

    /// The clock was set: what was started counts as started now at the latest.
    pub(super) fn clock_set(&mut self, now: Moment) {
        for start in self.0.values_mut() {
            start.at = start.at.min(now);
            start.until = start.until.map(|_| now.plus(UNSURE));
        }
    }

    /// Forgets what was measured since, given each target's facts where the tables have it;
    /// answers with what was forgotten.
    pub(super) fn measured(
        &mut self,
        facts: impl Fn(&TargetId) -> Option<Facts>,
        now: Moment,
    ) -> Vec<TargetId> {
        let over = self.0.iter().filter(|(id, start)| start.is_over(id, facts(id), now));
        let over: Vec<TargetId> = over.map(|(id, _)| id.clone()).collect();
        over.iter().for_each(|id| self.settle(id));
        over
    }

    /// Every target that was not measured since it was started, with when it was.
    pub(super) fn all(&self) -> impl Iterator<Item = (&TargetId, Moment)> {
        self.0.iter().map(|(id, start)| (id, start.at))
    }
}

impl Start {
    fn is_over(self, id: &TargetId, facts: Option<Facts>, now: Moment) -> bool {
        let lapsed = self.until.is_some_and(|until| until <= now);
        let Some(facts) = facts else { return lapsed || self.at.age(now) >= GONE };
        // Moments are whole seconds: what was measured within the same one may be older.
        let measured = facts.measured_at.is_some_and(|measured| measured.at > self.at);
        let cleaned = id.kind() == Kind::Cleanup && !facts.flags.evidence;
        lapsed || measured || cleaned
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::{Flags, Measured, Source};

    fn at(seconds: u64) -> Moment {
        Moment::from_unix(seconds)
    }

    fn facts(measured: u64, evidence: bool) -> Option<Facts> {
        let measured_at = Some(Measured { at: at(measured), by: Source::Http });
        let flags = Flags { evidence, ..Flags::default() };
        Some(Facts { measured_at, flags, ..Facts::default() })
    }

    #[test]
    fn a_start_is_pending_until_its_target_is_measured_or_its_evidence_is_gone() {
        let cleanup = TargetId::Cleanup { db: "a".into() };
        let db = TargetId::Db { node: "n".into(), shard: "a".into() };
        let cases = [
            (&db, false, facts(99, false), 500, false, "measured before"),
            (&db, false, facts(100, false), 500, false, "within the same second"),
            (&db, false, facts(101, false), 101, true, "measured since"),
            (&db, false, None, 500, false, "not in the tables for a moment"),
            (&db, false, None, 3_700, true, "gone for long"),
            (&cleanup, false, facts(50, true), 9_999, false, "the evidence it was started by"),
            (&cleanup, false, facts(50, false), 100, true, "taken in by the scanner"),
            (&cleanup, false, facts(160, true), 161, true, "other evidence"),
            (&cleanup, true, facts(50, true), 129, false, "it may have arrived"),
            (&cleanup, true, facts(50, true), 130, true, "and nobody will ever know"),
        ];
        for (id, unsure, facts, now, over, why) in cases {
            let mut pending = PendingRereads::default();
            pending.started(id, at(100));
            if unsure {
                pending.unsure(id, at(100));
            }
            let forgotten = pending.measured(|_| facts, at(now));
            assert_eq!(forgotten.len(), usize::from(over), "{why}");
            assert_eq!(pending.has(id), !over, "{why}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_holds_nothing_up_for_longer() {
        let id = TargetId::Cleanup { db: "a".into() };
        let mut pending = PendingRereads::default();
        pending.started(&id, at(9_000));
        pending.unsure(&id, at(9_000));
        pending.clock_set(at(100));
        assert_eq!(pending.measured(|_| facts(50, true), at(129)), []);
        assert_eq!(pending.measured(|_| facts(50, true), at(130)), [id]);
    }
}
