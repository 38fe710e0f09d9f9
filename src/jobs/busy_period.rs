//! Busy periods: how long compactions of this process ran on a node without a break.
//!
//! A period begins when a compaction starts on a node that runs no other, and ends when the node runs none. Jobs that
//! operators ordered do not count. Holds times only; `plan` decides how long the node pauses afterwards. The job state
//! task updates the periods each time it examines its jobs, so a period ends up to one poll after the last job did.

use super::job::{JobKey, JobKind};
use crate::{model::records::BusyRecord, table::NodeIx};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use wall_clock::Moment;

/// A period in which compactions of this process ran on a node without a break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyPeriod {
    /// When it began.
    pub since: Moment,
    /// The job with which it began. Further jobs may join as long as this one runs.
    pub first_job: JobKey,
    /// When the first job ended.
    pub first_ended_at: Option<Moment>,
    /// When the last job ended.
    pub ended_at: Option<Moment>,
}

impl BusyPeriod {
    /// A period that begins now.
    pub(crate) const fn beginning(first_job: JobKey, now: Moment) -> Self {
        Self { since: now, first_job, first_ended_at: None, ended_at: None }
    }

    /// The period in its stored form.
    pub(crate) fn record(&self) -> BusyRecord {
        BusyRecord {
            since: self.since,
            first_shard: self.first_job.shard.to_string(),
            first_design: self.first_job.kind.design().map(ToOwned::to_owned),
            first_ended_at: self.first_ended_at,
            ended_at: self.ended_at,
        }
    }

    /// The period that an earlier process stored. A time later than now stems from before the clock was set back.
    pub(crate) fn restored(node: NodeIx, record: &BusyRecord, now: Moment) -> Self {
        let kind = match &record.first_design {
            Some(design) => JobKind::CompactView(design.as_str().into()),
            None => JobKind::CompactDb,
        };
        let past = |at: Option<Moment>| at.map(|at| at.min(now));
        Self {
            since: record.since.min(now),
            first_job: JobKey { node, shard: record.first_shard.as_str().into(), kind },
            first_ended_at: past(record.first_ended_at),
            ended_at: past(record.ended_at),
        }
    }

    /// How long it lasted, or has lasted so far.
    pub fn length(&self, now: Moment) -> Duration {
        self.since.age(self.ended_at.unwrap_or(now))
    }

    /// Updates the periods of all nodes: `running` are the compactions that this process decided to
    /// start and that have not ended.
    pub(crate) fn update_all(
        periods: &mut BTreeMap<NodeIx, Self>,
        running: &BTreeSet<&JobKey>,
        now: Moment,
    ) {
        for (node, period) in periods.iter_mut().filter(|(_, period)| period.ended_at.is_none()) {
            if !running.contains(&period.first_job) {
                period.first_ended_at.get_or_insert(now);
            }
            if !running.iter().any(|key| key.node == *node) {
                period.ended_at = Some(now);
            }
        }
        for &key in running {
            let period = periods.get(&key.node);
            if period.is_none_or(|period| period.ended_at.is_some()) {
                periods.insert(key.node, Self::beginning(key.clone(), now));
            }
        }
    }

    /// Shifts its times after the clock was set from `before` to `now`.
    pub(crate) fn shift(&mut self, before: Moment, now: Moment) {
        for at in std::iter::once(&mut self.since)
            .chain(&mut self.first_ended_at)
            .chain(&mut self.ended_at)
        {
            *at = at.shifted(before, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::JobKind;

    fn node(at: usize) -> NodeIx {
        NodeIx::from_usize(at).unwrap()
    }

    fn job(on: usize, shard: &str) -> JobKey {
        JobKey { node: node(on), shard: shard.into(), kind: JobKind::CompactDb }
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_unix(seconds)
    }

    /// The periods after updates at these times, each with the jobs running then.
    fn after(looks: &[(u64, &[(usize, &str)])]) -> BTreeMap<NodeIx, BusyPeriod> {
        let mut periods = BTreeMap::new();
        for (now, running) in looks {
            let running: Vec<JobKey> = running.iter().map(|(on, name)| job(*on, name)).collect();
            BusyPeriod::update_all(&mut periods, &running.iter().collect(), at(*now));
        }
        periods
    }

    #[test]
    fn busy_period_lasts_from_the_first_start_to_the_last_end() {
        let period =
            |since, first: &str, first_ended: Option<u64>, ended: Option<u64>| BusyPeriod {
                since: at(since),
                first_job: job(1, first),
                first_ended_at: first_ended.map(at),
                ended_at: ended.map(at),
            };
        type Looks<'a> = &'a [(u64, &'a [(usize, &'a str)])];
        let cases: [(Looks<'_>, BusyPeriod); 7] = [
            (&[(10, &[(1, "a")])], period(10, "a", None, None)),
            (&[(10, &[(1, "a")]), (14, &[(1, "a")])], period(10, "a", None, None)),
            (&[(10, &[(1, "a")]), (14, &[])], period(10, "a", Some(14), Some(14))),
            // An ended period stays as it is.
            (&[(10, &[(1, "a")]), (14, &[]), (90, &[])], period(10, "a", Some(14), Some(14))),
            (
                &[
                    (10, &[(1, "b")]),
                    (12, &[(1, "a"), (1, "b")]),
                    (14, &[(1, "a")]),
                    (16, &[(1, "a")]),
                ],
                period(10, "b", Some(14), None),
            ),
            (
                &[(10, &[(1, "b")]), (12, &[(1, "a"), (1, "b")]), (14, &[(1, "a")]), (18, &[])],
                period(10, "b", Some(14), Some(18)),
            ),
            (&[(10, &[(1, "a")]), (14, &[]), (20, &[(1, "a")])], period(20, "a", None, None)),
        ];
        for (looks, expected) in cases {
            assert_eq!(after(looks), BTreeMap::from([(node(1), expected)]), "{looks:?}");
        }
    }

    #[test]
    fn each_node_has_its_own_busy_period() {
        let periods = after(&[(10, &[(1, "a")]), (20, &[(1, "a"), (2, "a")]), (30, &[(2, "a")])]);
        let lengths =
            periods.iter().map(|(on, it)| (*on, it.length(at(50)).as_secs(), it.ended_at));
        assert_eq!(lengths.collect::<Vec<_>>(), [(node(1), 20, Some(at(30))), (node(2), 30, None)]);
    }

    #[test]
    fn restored_period_continues_and_has_no_future_times() {
        let began = BusyPeriod::beginning(job(1, "a"), at(10));
        let period = BusyPeriod { first_ended_at: Some(at(14)), ..began };
        let restored = |now| BusyPeriod::restored(node(1), &period.record(), at(now));
        assert_eq!(restored(20), period);
        assert_eq!((restored(5).since, restored(5).first_ended_at), (at(5), Some(at(5))));
    }

    #[test]
    fn clock_changes_do_not_affect_the_length_of_a_period() {
        for (before, now) in [(100, 90_000), (90_000, 90_003), (200_000, 90_000)] {
            let running = BusyPeriod::beginning(job(1, "a"), at(before - 40));
            let ended = BusyPeriod {
                first_ended_at: Some(at(before - 20)),
                ended_at: Some(at(before - 10)),
                ..running.clone()
            };
            for (period, length) in [(running, 40), (ended, 30)] {
                let mut shifted = period.clone();
                shifted.shift(at(before), at(now));
                assert_eq!(shifted.length(at(now)).as_secs(), length);
                let since_end =
                    |period: &BusyPeriod, now| period.ended_at.map(|it| it.age(at(now)));
                assert_eq!(since_end(&shifted, now), since_end(&period, before));
            }
        }
    }
}
