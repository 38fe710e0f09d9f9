//! The scorecard of advice: what recliner would have done while it only advised, beside what really
//! happened.
//!
//! Owns the advised compactions: those that recliner would have started if it enforced, each
//! simulated to its end by recliner's own prediction. Never sends a request and never changes a
//! plan. Its task receives each published [`Plan`], and about once a minute asks the same pure
//! planner what would have started since, if the advised compactions ran and left their targets as
//! small as predicted. Sums are kept by the hour, in the journal.
//!
//! # What is counted
//!
//! * *Waste* is what compactions would free, over all targets. Had recliner enforced, it would be
//!   less by what advised compactions freed and nobody else has freed since; for each target, at
//!   most by what is really wasted.
//! * *Freed*, *written* and *compactions* of the advised side are recliner's alone; those of the
//!   real side are everybody's, as the job state knows them. A compaction that begins and ends
//!   between two polls is not seen.
//! * A *conflict* is an advised compaction during which another program compacts the same file, or
//!   another copy of its range. A job that already runs when recliner would start is not a conflict:
//!   the planner waits for it.
//! * Time counts only while recliner ran and advised. A gap without steps is reported as missing.
//!
//! # What is simplified
//!
//! A compaction takes its predicted bytes at the measured rate, or at
//! [`ASSUMED_RATE`](super::ASSUMED_RATE), and leaves the predicted size. Cleanups are left out,
//! because the sizes of unused index files are unknown. The price of waste on a node is that of the
//! real cluster. After a restart the hourly budget and the rest of a node start again.

mod jobs;
mod summary;
mod targets;
mod task;

pub use crate::jobs::CompactionTotals;
pub use summary::{AdviceCounters, ScorecardState, ScorecardSum, ScorecardView};
pub(crate) use task::ScorecardTask;

use super::imagined;
use crate::{
    model::{
        channel::Mode,
        records::{
            AdvisedJob, HourNumber, ScorecardChange, ScorecardHour, ScorecardRecords,
            ScorecardSide, hour_begin, hour_of, take_surplus_hours,
        },
        target::TargetKind,
    },
    plan::{Plan, Rules},
    table::{Snapshot, Waste},
};
use jobs::{AdvisedJobs, Running};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use targets::{AdvisedTargets, Savings};
use wall_clock::Moment;

/// A longer time between two steps is a gap, about which nothing is known. If facts stay fresh for long, the limit is
/// that time divided by [`STEPS_OF_FRESH_FACTS`].
const MAX_STEP: Duration = Duration::from_secs(300);

/// Seconds of an hour.
const HOUR: u64 = 3_600;

/// The number of intervals between two readings after which facts are usually no longer fresh.
const STEPS_OF_FRESH_FACTS: u32 = 4;

/// Maximum number of times that the planner is asked within a step.
const MAX_LOOKS: usize = 60;

/// Minimum time between two questions to the planner: moments are whole seconds.
const MIN_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Deviation of the clock from the elapsed time above which it was set.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);

/// The scorecard: handles its inputs, without a clock of its own.
#[derive(Debug, Default)]
pub struct Scorecard {
    hours: BTreeMap<HourNumber, ScorecardHour>,
    targets: AdvisedTargets,
    jobs: AdvisedJobs,
    /// The moment and the totals of the last step.
    last: Option<(Moment, CompactionTotals)>,
    /// The most bytes that new files of real compactions took up at any time since the last step.
    real_extra_bytes: u64,
    state: ScorecardState,
    counters: AdviceCounters,
    /// The waste that would remain, as of the last step.
    advised_waste_bytes: Option<u64>,
    changes: Vec<ScorecardChange>,
    /// The jobs as last stored.
    stored_jobs: Vec<AdvisedJob>,
}

impl Scorecard {
    /// Continues from the records of an earlier process.
    pub fn new(records: ScorecardRecords) -> Self {
        let ScorecardRecords { hours, targets, jobs } = records;
        let stored_jobs = jobs.clone();
        let (targets, jobs) = (AdvisedTargets::new(targets), AdvisedJobs::new(jobs));
        Self { hours, targets, jobs, stored_jobs, ..Self::default() }
    }

    /// Records which compactions really run.
    pub fn see(&mut self, plan: &Plan, now: Moment) {
        let extra = self.jobs.see(plan, now);
        self.real_extra_bytes = self.real_extra_bytes.max(extra);
    }

    /// Advances to `now`. `elapsed` is the time since the last step on the monotonic clock; `None`
    /// at the first step. Returns the changes.
    pub fn step(
        &mut self,
        plan: &Plan,
        totals: CompactionTotals,
        now: Moment,
        elapsed: Option<Duration>,
    ) -> Vec<ScorecardChange> {
        let (earlier, elapsed) = match (self.last.replace((now, totals)), elapsed) {
            (Some((last, earlier)), Some(elapsed)) => {
                self.follow_clock(last.plus(elapsed), now);
                (earlier, elapsed)
            }
            _ => {
                self.jobs.begin_by(now);
                (totals, Duration::MAX)
            }
        };
        self.see(plan, now);
        let Some(wasted) = Waste::of(&plan.snapshot).reclaimable_bytes() else {
            return self.take_changes();
        };
        // Nothing is known about a gap, except that jobs that ran continue.
        let longest = MAX_STEP.max(plan.rules.fresh_for / STEPS_OF_FRESH_FACTS);
        let elapsed = if elapsed <= longest { elapsed } else { Duration::ZERO };
        self.targets.update(&plan.snapshot, &mut self.changes);
        let mut sums = ScorecardHour::default();
        if enforces_everything(plan) {
            self.state = ScorecardState::Enforcing;
            self.advised_waste_bytes = None;
            self.jobs.clear();
            sums.enforced_seconds = elapsed.as_secs();
        } else {
            self.state = ScorecardState::Advising;
            let savings = self.advance(plan, (now, elapsed), &mut sums);
            let advised_waste = wasted.saturating_sub(savings.waste_bytes);
            self.advised_waste_bytes = Some(advised_waste);
            if !elapsed.is_zero() {
                let seconds = elapsed.as_secs_f64();
                sums.advised_seconds = elapsed.as_secs();
                sums.real = real_side(&totals.since(&earlier));
                sums.real.add_waste(wasted, seconds);
                sums.real.peak_extra_bytes = self.real_extra_bytes;
                sums.advised.add_waste(advised_waste, seconds);
            }
        }
        self.real_extra_bytes = 0;
        self.jobs.forget_seen_before(now);
        self.count_earlier_hours(&mut sums, now);
        self.count(&sums, now);
        self.take_changes()
    }

    /// The sums so far, for readers.
    pub fn view(&self, now: Moment) -> ScorecardView {
        ScorecardView {
            hours: self.hours.clone(),
            state: self.state,
            running: self.jobs.len(),
            targets: self.targets.len(),
            counters: self.counters,
            advised_waste_bytes: self.advised_waste_bytes,
            updated_at: now,
        }
    }

    fn take_changes(&mut self) -> Vec<ScorecardChange> {
        let jobs = self.jobs.records();
        if jobs != self.stored_jobs {
            self.stored_jobs.clone_from(&jobs);
            self.changes.push(ScorecardChange::Jobs(jobs));
        }
        std::mem::take(&mut self.changes)
    }

    /// Moves all times if the clock was set, so that it reads `now` instead of `expected`.
    fn follow_clock(&mut self, expected: Moment, now: Moment) {
        let off = expected.distance(now);
        if off > CLOCK_TOLERANCE {
            self.jobs.shift(expected, now);
            self.targets.shift(expected, now);
        }
    }

    /// Attributes the time of a long step to each of its hours, and leaves in `sums` the part of the hour of `now`.
    fn count_earlier_hours(&mut self, sums: &mut ScorecardHour, now: Moment) {
        let (advised, enforced) = (sums.advised_seconds, sums.enforced_seconds);
        let seconds = advised + enforced;
        let mut end = hour_begin(hour_of(now)).unix();
        let mut left = seconds.saturating_sub(now.unix() - end);
        if seconds <= MAX_STEP.as_secs() || left == 0 {
            return;
        }
        let of = |part: u64| match advised {
            0 => ScorecardHour { enforced_seconds: part, ..ScorecardHour::default() },
            _ => ScorecardHour { advised_seconds: part, ..ScorecardHour::default() },
        };
        let here = of(seconds - left);
        (sums.advised_seconds, sums.enforced_seconds) =
            (here.advised_seconds, here.enforced_seconds);
        while left > 0 {
            let part = left.min(HOUR);
            (left, end) = (left - part, end.saturating_sub(part));
            self.count(&of(part), Moment::from_unix(end));
        }
    }

    /// Adds sums to the hour of `now`.
    fn count(&mut self, sums: &ScorecardHour, now: Moment) {
        self.counters.add(sums);
        if *sums == ScorecardHour::default() {
            return;
        }
        let number = hour_of(now);
        let hour = self.hours.entry(number).or_default();
        hour.add(sums);
        self.changes.push(ScorecardChange::Hour(number, Some(*hour)));
        let surplus = take_surplus_hours(&mut self.hours);
        self.changes.extend(surplus.into_iter().map(|hour| ScorecardChange::Hour(hour, None)));
    }

    /// Lets advised compactions end and start up to `now`; returns what they save at that time.
    fn advance(
        &mut self,
        plan: &Plan,
        (now, elapsed): (Moment, Duration),
        sums: &mut ScorecardHour,
    ) -> Savings {
        let snapshot = &plan.snapshot;
        self.jobs.begin_step();
        self.jobs.find_positions(snapshot);
        let mut supposed = self.targets.supposed(snapshot);
        let queues = plan.queues_if(&mut supposed, self.jobs.views(plan));
        self.targets.remember_queued(&supposed);
        sums.is_incomplete |= queues.is_exhausted();
        let rules = Arc::new(Rules { mode: Mode::Advise, ..(*plan.rules).clone() });
        let freed_on = self.targets.savings(snapshot).freed_on;
        let disks = &plan.conditions.disks;
        let disks = imagined::disks_grown_by(disks, snapshot, |node| -freed_on.on(node)).into();
        let mut at = Moment::from_unix(now.unix().saturating_sub(elapsed.as_secs()));
        for _ in 0..MAX_LOOKS {
            self.end_jobs(snapshot, at, sums);
            let conditions = self.jobs.conditions(plan, &disks, at);
            let (starts, change) = queues.starts(&conditions, &rules, at);
            let mut has_begun = false;
            for start in starts.iter().filter(|start| is_advised(plan, start.channel)) {
                if is_cleanup(plan, start.channel) {
                    continue;
                }
                if !self.targets.has_room_for(start.ix) {
                    sums.is_incomplete = true;
                    continue;
                }
                self.jobs.begin(plan, start, at);
                has_begun = true;
            }
            if has_begun {
                self.jobs.run_until(plan, at);
            }
            let extra = &mut sums.advised.peak_extra_bytes;
            *extra = (*extra).max(self.jobs.extra_bytes());
            // The effect of a start is visible only to the next question.
            let soon = has_begun.then(|| at.plus(MIN_LOOK_INTERVAL));
            let next = self.jobs.next_end(at).into_iter().chain(change).chain(soon).min();
            match next.map(|next| next.max(at.plus(MIN_LOOK_INTERVAL))) {
                Some(next) if next <= now => at = next,
                _ => break,
            }
        }
        self.end_jobs(snapshot, now, sums);
        self.targets.savings(snapshot)
    }

    /// Ends the jobs that are over by `at`.
    fn end_jobs(&mut self, snapshot: &Snapshot, at: Moment, sums: &mut ScorecardHour) {
        sums.conflicts += self.jobs.mark_conflicts(snapshot);
        for job in self.jobs.take_ended(at) {
            self.end_job(&job, snapshot, &mut sums.advised);
        }
    }

    fn end_job(&mut self, job: &Running, snapshot: &Snapshot, side: &mut ScorecardSide) {
        // A target that no longer exists was not compacted.
        let Some(target) = job.ix.and_then(|ix| snapshot.target(ix)) else { return };
        side.compactions += 1;
        let is_copy = job.is_copy_of_view();
        if is_copy && !self.jobs.is_last_copy(job, target) {
            side.rewritten_bytes = side.rewritten_bytes.saturating_add(job.record.rewrite_bytes);
            return;
        }
        let Some((before, left, change)) = self.targets.compact(target, job.record.ends_at) else {
            side.unmeasured += 1;
            return;
        };
        self.changes.push(change);
        self.jobs.remember_end(target.ix());
        let count = u64::from(target.file_count());
        let rewritten = if is_copy { left } else { left.saturating_mul(count) };
        side.rewritten_bytes = side.rewritten_bytes.saturating_add(rewritten);
        let freed = before.saturating_sub(left).saturating_mul(count);
        side.freed_bytes = side.freed_bytes.saturating_add(freed);
    }
}

impl ScorecardSide {
    fn add_waste(&mut self, bytes: u64, seconds: f64) {
        self.waste_byte_seconds += bytes as f64 * seconds;
        self.peak_waste_bytes = self.peak_waste_bytes.max(bytes);
    }
}

const fn real_side(totals: &CompactionTotals) -> ScorecardSide {
    ScorecardSide {
        compactions: totals.compactions,
        unmeasured: totals.unmeasured,
        freed_bytes: totals.freed_bytes,
        rewritten_bytes: totals.rewritten_bytes,
        waste_byte_seconds: 0.0,
        peak_waste_bytes: 0,
        peak_extra_bytes: 0,
    }
}

/// Whether starts of a channel are only advised.
fn is_advised(plan: &Plan, channel: usize) -> bool {
    let mode = plan.channels.list.get(channel).map_or(Mode::Enforce, |channel| channel.mode);
    plan.rules.mode.more_cautious(mode) == Mode::Advise
}

fn is_cleanup(plan: &Plan, channel: usize) -> bool {
    plan.channels.list.get(channel).is_some_and(|it| it.kind == TargetKind::Cleanup)
}

/// Whether every channel enforces, apart from cleanups.
fn enforces_everything(plan: &Plan) -> bool {
    (0..plan.channels.list.len())
        .filter(|channel| !is_cleanup(plan, *channel))
        .all(|channel| !is_advised(plan, channel))
}

#[cfg(test)]
mod tests;
