//! How far indexes lagged earlier.
//!
//! Owns two earlier readings of each index that is far behind, and of no other: a cluster has few of them. As a
//! value; [`AdviceTask`](super::AdviceTask) keeps it. Commands that read the cluster once have none.

use crate::table::{Snapshot, TargetIx, TargetRef};
use std::{collections::BTreeMap, time::Duration};
use wall_clock::Moment;

/// Time from one reading to the next that is kept, so that the older of the two is always at least as old: an
/// index is built in bursts, so a few minutes tell nothing.
const INTERVAL: Duration = Duration::from_secs(3_600);

/// Maximum number of indexes that are remembered, so that a cluster in which all lag costs little.
const MAX_INDEXES: usize = 10_000;

/// How far an index lagged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    at: Moment,
    pending: u64,
}

impl Reading {
    fn of(index: TargetRef<'_>) -> Option<Self> {
        let facts = index.facts();
        Some(Self { at: facts.measured_at?.at, pending: facts.updates_pending.get()? })
    }
}

/// The earlier readings of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Readings {
    earlier: Reading,
    recent: Reading,
}

/// How far indexes lagged earlier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LagHistory(BTreeMap<TargetIx, Readings>);

/// By how much the lag of an index changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LagChange {
    /// How long ago the lag was known before.
    pub span: Duration,
    /// How far the index lagged then.
    pub before: u64,
    /// How far it lags now.
    pub now: u64,
}

impl LagChange {
    /// By how much it grew; zero if it did not.
    #[must_use]
    pub const fn growth(&self) -> u64 {
        self.now.saturating_sub(self.before)
    }
}

impl LagHistory {
    /// With the readings of these indexes; all others are forgotten.
    #[must_use]
    pub fn updated(&self, snapshot: &Snapshot, lagging: &[TargetIx]) -> Self {
        let readings = lagging.iter().take(MAX_INDEXES).filter_map(|ix| {
            let seen = Reading::of(snapshot.target(*ix)?)?;
            let known = self.0.get(ix).copied();
            let known = known.unwrap_or(Readings { earlier: seen, recent: seen });
            let is_later = known.recent.at.age(seen.at) >= INTERVAL;
            let next = Readings { earlier: known.recent, recent: seen };
            Some((*ix, if is_later { next } else { known }))
        });
        Self(readings.collect())
    }

    /// How the lag of an index changed over an hour or more; none if that is not known.
    #[must_use]
    pub fn change(&self, index: TargetRef<'_>) -> Option<LagChange> {
        let (before, now) = (self.0.get(&index.ix())?.earlier, Reading::of(index)?);
        let span = before.at.age(now.at);
        (span >= INTERVAL).then_some(LagChange { span, before: before.pending, now: now.pending })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advice::test_cluster::{Index, NOW, Shard, TestCluster},
        model::facts::{FactSource, Measurement, OptionalU64},
    };

    /// The history after these readings, as minutes and changes that are missing, and the last change.
    fn change_after(readings: &[(u64, u64)]) -> Option<LagChange> {
        let mut cluster = TestCluster::with_shards(&[Shard::new("orders", "a", 0, 1 << 20)]);
        cluster.add_index(&Index::new("orders", "_design/reports", 1));
        let index = cluster.draft.current().targets().find(|it| it.view().is_some());
        let (ix, facts) = index.map(|it| (it.ix(), it.facts())).unwrap();
        let mut history = LagHistory::default();
        for (minutes, pending) in readings {
            let mut facts = facts;
            let at = Moment::from_unix(NOW.unix() + 60 * minutes);
            facts.updates_pending = OptionalU64::new(*pending);
            facts.measured_at = Some(Measurement { at, source: FactSource::Http });
            cluster.draft.set_facts(ix, facts);
            history = history.updated(cluster.draft.current(), &[ix]);
        }
        history.change(cluster.draft.current().target(ix).unwrap())
    }

    #[test]
    fn a_change_is_known_after_an_hour_and_is_never_that_of_more_than_two() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        for (readings, expected) in [
            (&[(0, 5)][..], None),
            (&[(0, 5), (59, 9)], None),
            (&[(0, 5), (60, 9)], Some((60, 5, 9))),
            (&[(0, 5), (30, 2), (60, 9), (90, 7)], Some((90, 5, 7))),
            (&[(0, 5), (60, 9), (119, 7)], Some((119, 5, 7))),
            (&[(0, 5), (60, 9), (120, 7)], Some((60, 9, 7))),
        ] {
            let expected =
                expected.map(|(span, before, now)| LagChange { span: minutes(span), before, now });
            assert_eq!(change_after(readings), expected, "{readings:?}");
        }
    }

    #[test]
    fn an_index_that_caught_up_is_forgotten() {
        let snapshot = Snapshot::default();
        let reading = Reading { at: NOW, pending: 1 };
        let known = Readings { earlier: reading, recent: reading };
        let ix = TargetIx::from_usize(0).unwrap();
        let history = LagHistory([(ix, known)].into());
        assert_eq!(history.updated(&snapshot, &[]), LagHistory::default());
    }
}
