//! Targets that were started and must be measured before they may start again.
//!
//! Facts measured before a start are outdated. They must not justify a second start, however short
//! `limits.wait` is, until the target is measured again or the outcome of the start is known. Pure.

use crate::model::{
    facts::Facts,
    target::{TargetId, TargetKind},
};
use std::{collections::BTreeMap, time::Duration};
use wall_clock::Moment;

/// How long nothing is retried after a request that may or may not have arrived and for which
/// CouchDB shows no task.
const UNCONFIRMED_WAIT: Duration = Duration::from_secs(30);

/// How long a start is remembered while the tables do not contain its target.
const ABSENT_TIMEOUT: Duration = Duration::from_secs(3_600);

/// A start whose target has not been measured since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnmeasuredStart {
    at: Moment,
    /// Expiry regardless of measurements; `None` for no expiry.
    until: Option<Moment>,
}

/// All starts whose targets have not been measured since.
#[derive(Debug, Default)]
pub(super) struct PendingRereads(BTreeMap<TargetId, UnmeasuredStart>);

impl PendingRereads {
    /// Records a start.
    pub(super) fn add(&mut self, id: &TargetId, now: Moment) {
        self.0.insert(id.clone(), UnmeasuredStart { at: now, until: None });
    }

    /// Records that the request may have arrived and nothing will show whether it did.
    pub(super) fn mark_unconfirmed(&mut self, id: &TargetId, now: Moment) {
        if let Some(start) = self.0.get_mut(id) {
            start.until = Some(now.plus(UNCONFIRMED_WAIT));
        }
    }

    /// Removes a start that was never sent or whose outcome is known.
    pub(super) fn remove(&mut self, id: &TargetId) {
        self.0.remove(id);
    }

    /// Whether a start of this target is pending.
    pub(super) fn contains(&self, id: &TargetId) -> bool {
        self.0.contains_key(id)
    }

    /// After the clock was set, moves starts that now lie in the future to `now`.
    pub(super) fn restart_waits(&mut self, now: Moment) {
        for start in self.0.values_mut() {
            start.at = start.at.min(now);
            start.until = start.until.map(|_| now.plus(UNCONFIRMED_WAIT));
        }
    }

    /// Removes starts whose targets have been measured since, given the facts of each target in the
    /// tables; returns the removed ones.
    pub(super) fn remove_measured(
        &mut self,
        facts: impl Fn(&TargetId) -> Option<Facts>,
        now: Moment,
    ) -> Vec<TargetId> {
        let ids = self.0.iter().filter(|(id, start)| start.is_over(id, facts(id), now));
        let ids: Vec<TargetId> = ids.map(|(id, _)| id.clone()).collect();
        ids.iter().for_each(|id| self.remove(id));
        ids
    }

    /// All pending starts with their times.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&TargetId, Moment)> {
        self.0.iter().map(|(id, start)| (id, start.at))
    }
}

impl UnmeasuredStart {
    fn is_over(self, id: &TargetId, facts: Option<Facts>, now: Moment) -> bool {
        let lapsed = self.until.is_some_and(|until| until <= now);
        let Some(facts) = facts else { return lapsed || self.at.age(now) >= ABSENT_TIMEOUT };
        // Times have a resolution of one second, so facts of the same second may be older than the
        // start.
        let measured = facts.measured_at.is_some_and(|measured| measured.at > self.at);
        let cleaned = id.kind() == TargetKind::Cleanup && !facts.flags.evidence;
        lapsed || measured || cleaned
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::{FactFlags, FactSource, Measurement};

    fn at(seconds: u64) -> Moment {
        Moment::from_unix(seconds)
    }

    fn facts(measured: u64, evidence: bool) -> Option<Facts> {
        let measured_at = Some(Measurement { at: at(measured), source: FactSource::Http });
        let flags = FactFlags { evidence, ..FactFlags::default() };
        Some(Facts { measured_at, flags, ..Facts::default() })
    }

    #[test]
    fn start_is_pending_until_remeasured_or_its_evidence_is_gone() {
        let cleanup = TargetId::Cleanup { db: "a".into() };
        let db = TargetId::Db { node: "n".into(), shard: "a".into() };
        let cases = [
            (&db, false, facts(99, false), 500, false, "measured before"),
            (&db, false, facts(100, false), 500, false, "within the same second"),
            (&db, false, facts(101, false), 101, true, "measured since"),
            (&db, false, None, 500, false, "briefly absent from the tables"),
            (&db, false, None, 3_700, true, "absent for a long time"),
            (
                &cleanup,
                false,
                facts(50, true),
                9_999,
                false,
                "the evidence that caused the start is still present",
            ),
            (&cleanup, false, facts(50, false), 100, true, "the scanner removed the evidence"),
            (&cleanup, false, facts(160, true), 161, true, "other evidence"),
            (&cleanup, true, facts(50, true), 129, false, "it may have arrived"),
            (&cleanup, true, facts(50, true), 130, true, "and this will never be known"),
        ];
        for (id, unsure, facts, now, over, why) in cases {
            let mut pending = PendingRereads::default();
            pending.add(id, at(100));
            if unsure {
                pending.mark_unconfirmed(id, at(100));
            }
            let forgotten = pending.remove_measured(|_| facts, at(now));
            assert_eq!(forgotten.len(), usize::from(over), "{why}");
            assert_eq!(pending.contains(id), !over, "{why}");
        }
    }

    #[test]
    fn a_clock_set_back_does_not_extend_the_wait() {
        let id = TargetId::Cleanup { db: "a".into() };
        let mut pending = PendingRereads::default();
        pending.add(&id, at(9_000));
        pending.mark_unconfirmed(&id, at(9_000));
        pending.restart_waits(at(100));
        assert_eq!(pending.remove_measured(|_| facts(50, true), at(129)), []);
        assert_eq!(pending.remove_measured(|_| facts(50, true), at(130)), [id]);
    }
}
