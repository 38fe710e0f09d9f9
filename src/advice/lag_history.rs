//! How far indexes lagged earlier.
//!
//! Owns two earlier readings of each index that is far behind; a cluster has few of those. A plain
//! value, kept by [`AdviceTask`](super::AdviceTask); commands that read the cluster once have none.

use crate::table::{Snapshot, TargetIx, TargetRef};
use std::{collections::BTreeMap, time::Duration};
use wall_clock::Moment;

/// Minimum time between the readings that are kept, so that the older one is at least this old.
/// Indexes are built in bursts, so a few minutes show nothing.
const INTERVAL: Duration = Duration::from_secs(3_600);

/// Maximum number of remembered indexes, which limits the cost if all indexes of a cluster lag.
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

/// Earlier lags of indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LagHistory(BTreeMap<TargetIx, Readings>);

/// By how much the lag of an index changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LagChange {
    /// Time between the two readings.
    pub span: Duration,
    /// How far the index lagged then.
    pub before: u64,
    /// How far it lags now.
    pub now: u64,
}

impl LagChange {
    /// By how much it grew; zero if it did not grow.
    pub const fn growth(&self) -> u64 {
        self.now.saturating_sub(self.before)
    }
}

impl LagHistory {
    /// The history with new readings of these indexes; all others are forgotten.
    pub fn updated(&self, snapshot: &Snapshot, lagging: &[TargetIx]) -> Self {
        let readings = lagging.iter().take(MAX_INDEXES).filter_map(|ix| {
            let reading = Reading::of(snapshot.target(*ix)?)?;
            let previous = self.0.get(ix).copied();
            let previous = previous.unwrap_or(Readings { earlier: reading, recent: reading });
            let is_later = previous.recent.at.age(reading.at) >= INTERVAL;
            let next = Readings { earlier: previous.recent, recent: reading };
            Some((*ix, if is_later { next } else { previous }))
        });
        Self(readings.collect())
    }

    /// How the lag of an index changed over an hour or more; `None` if unknown.
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

    /// The last change after these readings, each given as minutes and missing changes.
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
    fn lag_change_spans_between_one_and_two_hours() {
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
