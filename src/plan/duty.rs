//! Duty: how long a node rests after compactions of this process ran on it (`limits.duty`).
//!
//! Pure. After a busy period of `d` seconds nothing starts on the node for `d · (1 / duty − 1)`
//! seconds; at most one hour of the period counts ([`MAX_COUNTED_WORK`]). During a period, further
//! jobs may join until its first job has ended: otherwise each could start before the previous one
//! ends, and the node would never rest.

use super::{
    refusal::{Refusal, RefusalReason},
    slots::is_recent,
};
use crate::{jobs::BusyPeriod, model::settings::limits::BUDGET_PERIOD};
use std::time::Duration;
use wall_clock::Moment;

/// The longest part of a busy period that counts.
///
/// A job may stall for hours without much I/O, and the period ends with its last job. A rest of the
/// same length could stop a node for half a day because of a job that caused no load. One hour is
/// also the period of `limits.bytes_per_hour`, and it is long enough for the node's other work to
/// catch up; if it is not, `pressure` holds starts back.
pub(crate) const MAX_COUNTED_WORK: Duration = BUDGET_PERIOD;

/// How long a node rests after this much work.
pub(crate) fn rest_after(work: Duration, duty_percent: f64) -> Duration {
    work.min(MAX_COUNTED_WORK).mul_f64(rest_ratio(duty_percent).max(0.0))
}

/// Seconds of rest for each second of work.
fn rest_ratio(duty_percent: f64) -> f64 {
    100.0 / duty_percent - 1.0
}

/// Seconds for which a node rests after a period; `None` while the period lasts.
fn rest_seconds(period: &BusyPeriod, duty_percent: f64) -> Option<f64> {
    let ended_at = period.ended_at?;
    Some(rest_after(period.length(ended_at), duty_percent).as_secs_f64())
}

/// The rest rounded up to whole seconds, because the clock has whole seconds.
fn rest_span(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.ceil()).unwrap_or(Duration::MAX)
}

/// The refusal of a start on a node, if its last busy period holds it back.
pub(super) fn refusal(period: &BusyPeriod, duty_percent: f64, now: Moment) -> Option<Refusal> {
    if rest_ratio(duty_percent) <= 0.0 {
        return None;
    }
    let Some((ended_at, rest)) = period.ended_at.zip(rest_seconds(period, duty_percent)) else {
        let refusal = Refusal::without_numbers(RefusalReason::Duty);
        return period.first_ended_at.map(|at| refusal.since(at));
    };
    let rested = ended_at.age(now).as_secs_f64();
    let refusal = Refusal::with_numbers(RefusalReason::Duty, rested, rest).since(ended_at);
    is_recent(ended_at, now, rest_span(rest)).then_some(refusal)
}

/// When the rest after a period is over; `None` while the period lasts.
pub(super) fn rested_at(period: &BusyPeriod, duty_percent: f64) -> Option<Moment> {
    Some(period.ended_at?.plus(rest_span(rest_seconds(period, duty_percent)?)))
}

impl Refusal {
    /// How long compactions ran on the node before the rest, up to the maximum that counts. `None`
    /// while they still run, or if the reason is not [`Duty`](RefusalReason::Duty).
    #[must_use]
    pub fn busy_before_rest(&self, duty_percent: f64) -> Option<Duration> {
        let rest = self.limit.filter(|_| self.reason == RefusalReason::Duty)?;
        Duration::try_from_secs_f64((rest / rest_ratio(duty_percent)).round()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        jobs::{JobKey, JobKind},
        table::NodeIx,
    };

    fn at(seconds: u64) -> Moment {
        Moment::from_unix(seconds)
    }

    /// A period that begins at 1000, and the times at which its first and its last job ended.
    fn period(first_ended: Option<u64>, ended: Option<u64>) -> BusyPeriod {
        let first_job =
            JobKey { node: NodeIx::default(), shard: "a".into(), kind: JobKind::CompactDb };
        BusyPeriod {
            first_ended_at: first_ended.map(at),
            ended_at: ended.map(at),
            ..BusyPeriod::beginning(first_job, at(1_000))
        }
    }

    #[test]
    fn a_node_rests_in_proportion_to_its_work() {
        // Columns: seconds of work, duty in percent, seconds of rest (rounded up, and exact).
        for (worked, duty, rests, exactly) in [
            (40, 50.0, 40, 40.0),
            (40, 25.0, 120, 120.0),
            (40, 80.0, 10, 10.0),
            (40, 90.0, 5, 40.0 / 9.0),
            (3, 1.0, 297, 297.0),
            (3_600, 50.0, 3_600, 3_600.0),
        ] {
            let ended = 1_000 + worked;
            let period = period(Some(ended), Some(ended));
            let refused = |after: u64| refusal(&period, duty, at(ended + after));
            for rested in [0, rests / 2, rests - 1] {
                let found = refused(rested).expect("the node rests");
                assert_eq!(found.reason, RefusalReason::Duty);
                assert_eq!((found.value, found.since), (Some(rested as f64), Some(at(ended))));
                assert!(found.limit.is_some_and(|it| (it - exactly).abs() < 1e-6), "{found:?}");
                assert_eq!(found.busy_before_rest(duty), Some(Duration::from_secs(worked)));
            }
            assert_eq!(refused(rests), None, "{worked} s at {duty} %");
            assert_eq!(rested_at(&period, duty), Some(at(ended + rests)));
        }
    }

    #[test]
    fn counts_at_most_one_hour_of_work() {
        for (duty, rests) in [(50.0, 3_600), (25.0, 3 * 3_600), (90.0, 400)] {
            for worked in [3_600, 3_601, 36_000, 30 * 86_400] {
                let ended = 1_000 + worked;
                let period = period(Some(1_030), Some(ended));
                assert_eq!(rested_at(&period, duty), Some(at(ended + rests)), "{worked} s");
                let refused =
                    refusal(&period, duty, at(ended + rests - 1)).expect("the node rests");
                assert_eq!(refused.busy_before_rest(duty), Some(MAX_COUNTED_WORK));
                assert_eq!(refusal(&period, duty, at(ended + rests)), None);
            }
        }
    }

    #[test]
    fn jobs_may_start_on_a_busy_node_until_its_first_job_ends() {
        let now = at(1_100);
        assert_eq!(refusal(&period(None, None), 50.0, now), None);
        let refused =
            refusal(&period(Some(1_030), None), 50.0, now).expect("no further job may join");
        let expected = Refusal::without_numbers(RefusalReason::Duty);
        assert_eq!(refused, Refusal { since: Some(at(1_030)), ..expected });
        assert_eq!(refused.busy_before_rest(50.0), None);
        assert_eq!(rested_at(&period(Some(1_030), None), 50.0), None);
    }

    #[test]
    fn node_does_not_rest_after_zero_work_or_at_100_percent_duty() {
        assert_eq!(refusal(&period(Some(1_000), Some(1_000)), 50.0, at(1_000)), None);
        for period in [period(Some(1_030), None), period(Some(1_030), Some(1_040))] {
            assert_eq!(refusal(&period, 100.0, at(1_041)), None);
        }
    }

    #[test]
    fn setting_the_clock_back_does_not_block_forever() {
        let period = period(Some(1_040), Some(1_040));
        assert!(
            refusal(&period, 50.0, at(1_001)).is_some(),
            "prolongs the block by at most one rest"
        );
        assert_eq!(refusal(&period, 50.0, at(1_000)), None);
        assert_eq!(refusal(&period, 50.0, at(5)), None);
    }
}
