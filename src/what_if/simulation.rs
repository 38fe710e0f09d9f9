//! Simulates one policy over time: which targets are due, what the planner starts, and the result.

use super::{
    Outlook, Outlooks, Policy, Present, SAMPLES, Sample, Unchecked, Undone,
    batch_slots::{BatchSlots, SlotNeed},
    course::{CompactedCourse, Courses, undisturbed_tables},
    imagined::{self, ImaginedJob, NodeBytes, nodes_of},
};
use crate::{
    jobs::{BusyPeriod, Job, Jobs, TargetConstraints},
    model::{
        channel::{Channel, Channels},
        growth::TimeAhead,
        records::Backoff,
        rounding::to_bytes,
        score::RentNow,
        settings::limits::{BUDGET_PERIOD, Limits},
        target::TargetKind,
    },
    plan::{
        Conditions, Decision, HorizonFactors, Plan, PlannedStart, QueueView, Queues, RefusalReason,
        Rules, disk::Disks, first_channel,
    },
    table::{NodeIx, Projection, TargetIx, TargetRef},
};
use hashbrown::HashMap;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;
use wall_clock::Moment;

/// Maximum number of steps between two samples; at each, waiting targets are read again.
const STEPS_PER_SAMPLE: usize = 4;

/// Maximum number of table rows that all plans may cover: a plan takes time in proportion to its
/// rows.
const ROW_BUDGET: usize = 60_000_000;

/// Minimum and maximum number of plans of a simulation; the minimum is one for each sample.
const PLANS: (usize, usize) = (SAMPLES - 1, 30_000);

/// Maximum number of plans that each decide about all compactions until the next one.
const MAX_BATCHES: usize = 1_000;

/// Number of expected compactions above which they are decided in batches, because a plan for each would take too long.
const MAX_DECIDED_ONE_BY_ONE: f64 = 600.0;

/// Longest queue: a plan's time grows with the queues, and targets beyond this do not start before
/// the next plan.
const MAX_QUEUE: usize = 2_000;

/// Number of compactions after which their mean duration is known.
const KNOWN_JOBS: u64 = 50;

/// Change of prices, as a share, after which due times are computed again.
const PRICE_TOLERANCE: f64 = 0.1;

/// A due time is found with an error of at most this share of the time until then, or of this
/// duration, whichever is larger.
const DUE_PRECISION: f64 = 1.0 / 32.0;
const DUE_ACCURACY: Duration = Duration::from_secs(1);

/// Time ahead of the first check of a target, if channels leave out large targets, so that a check
/// at the end does not suffice; each later check is twice as far ahead.
const FIRST_LOOK: Duration = Duration::from_secs(60);

/// Number of targets at the head of each queue that are read again in each step.
const READ_AGAIN: usize = 100;

/// A compaction that runs.
#[derive(Clone, Debug)]
struct RunningJob {
    begins: Duration,
    ends: Duration,
    ix: TargetIx,
    /// The node of the compacted file; the pseudo node if files on all nodes are compacted.
    node: NodeIx,
    /// Whether it compacts one file of several.
    is_copy: bool,
    /// Bytes it writes, as predicted.
    rewrite_bytes: Option<u64>,
    /// The job on each of its nodes, as the planner sees it; empty if it ends before the next plan.
    on_nodes: Vec<Job>,
}

/// The sums of an outlook.
#[derive(Clone, Debug, Default)]
struct Sums {
    rewritten_bytes: u64,
    freed_bytes: u64,
    compactions: u64,
    longest_wait: Option<Duration>,
    /// Total duration of all compactions, in seconds.
    job_seconds: f64,
}

/// The state of the simulated cluster.
#[derive(Debug)]
pub(super) struct Simulation<'a> {
    present: &'a Present,
    policy: &'a Policy,
    unchecked: &'a Unchecked,
    span: Duration,
    stop: &'a CancellationToken,
    samples_left: Option<&'a AtomicI64>,
    /// The policy's channels and rules, as adapted for the plans of the simulation.
    channels: Arc<Channels>,
    rules: Arc<Rules>,
    courses: Courses<'a>,
    projection: Projection,
    queues: Queues,
    conditions: Conditions,
    /// When targets become due, in seconds.
    due: BinaryHeap<Reverse<(u64, TargetIx)>>,
    /// If a plan decides about everything until the next one: the targets that become due in between, and when.
    due_within_batch: HashMap<TargetIx, Duration>,
    /// The prices with which the due times were computed.
    prices: HorizonFactors,
    jobs: Vec<RunningJob>,
    /// Bytes of each node that compactions freed.
    freed_on: NodeBytes,
    /// Bytes of each node that compactions had freed at each sample.
    freed_at_samples: Vec<NodeBytes>,
    samples: Vec<Sample>,
    /// Waste freed by compactions of targets that do not grow.
    saved_for_good: SavedWaste,
    sums: Sums,
    /// The shortest time from one plan to the next.
    tick: Duration,
    steps_per_sample: usize,
    /// Until when slots are taken, once compactions end sooner than plans are made.
    batches: Option<BatchSlots>,
    /// The queues at the last plan. The plan itself is not kept, because what it shares with the
    /// tables would be copied at each change.
    waiting: Arc<[Arc<QueueView>]>,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(outlooks: &'a Outlooks<'_>, policy: &'a Policy) -> Self {
        let Outlooks { present, span, stop, samples_left, unchecked, evidence: _ } = outlooks;
        let (present, span, stop, samples_left) = (*present, *span, *stop, *samples_left);
        let rows = present.snapshot.row_count().max(1);
        let plans = (ROW_BUDGET / rows).clamp(PLANS.0, PLANS.1);
        let steps_per_sample = (plans / (SAMPLES - 1)).clamp(1, STEPS_PER_SAMPLE);
        let steps = (SAMPLES - 1) * steps_per_sample;
        // Each step has a whole number of plans, so that none comes shortly after another.
        let plans = steps * (plans / steps).max(1);
        let shorter = |channel: &Channel| Channel {
            capacity: channel.capacity.min(MAX_QUEUE),
            ..channel.clone()
        };
        let channels = Arc::new(policy.channels.map(shorter));
        let rules = always_fresh(&policy.rules);
        Self {
            present,
            policy,
            unchecked,
            span,
            stop,
            samples_left,
            queues: Queues::new(Arc::clone(&channels)),
            channels,
            rules: Arc::new(rules),
            courses: Courses::new(present),
            projection: undisturbed_tables(present),
            conditions: undisturbed(&present.conditions),
            due: BinaryHeap::new(),
            due_within_batch: HashMap::new(),
            prices: HorizonFactors::default(),
            jobs: Vec::new(),
            freed_on: NodeBytes::none(&present.snapshot),
            freed_at_samples: Vec::with_capacity(SAMPLES),
            samples: Vec::with_capacity(SAMPLES),
            saved_for_good: SavedWaste::default(),
            sums: Sums::default(),
            tick: span.mul_f64(1.0 / plans as f64).max(Duration::from_secs(1)),
            steps_per_sample,
            batches: None,
            waiting: Arc::default(),
        }
    }

    /// Runs to the end, unless it is stopped.
    pub(super) fn run(mut self, name: &str) -> Outlook {
        let steps = (SAMPLES - 1) * self.steps_per_sample;
        for step in 0..steps {
            let time = |step: usize| self.span.mul_f64(step as f64 / steps as f64);
            let (mut at, end) = (time(step), time(step + 1));
            if step.is_multiple_of(self.steps_per_sample) {
                self.sample(at);
            }
            self.reprice(at);
            self.read_queued_again(at);
            while at < end {
                if self.stop.is_cancelled() {
                    return self.outlook(name);
                }
                at = self.advance(at, end);
            }
            if self.batches.is_none() && self.needs_batches(end) {
                self.decide_in_batches();
            }
        }
        self.end_jobs(self.span);
        self.sample(self.span);
        self.outlook(name)
    }

    /// Lets jobs end and targets become due, plans, and returns the next time at which anything
    /// changes.
    fn advance(&mut self, at: Duration, end: Duration) -> Duration {
        self.end_jobs(at);
        let next_batch = (at + self.tick).min(end);
        if self.batches.is_some() {
            let plan = self.plan_between(at, next_batch);
            self.begin_batch(&plan, (at, next_batch));
            self.waiting = Arc::clone(&plan.queues);
            return next_batch;
        }
        let plan = self.plan_between(at, at);
        for start in plan.starts.iter() {
            self.begin(start, &plan, (at, next_batch));
        }
        self.waiting = Arc::clone(&plan.queues);
        let now = self.moment(at);
        self.update_busy_periods(&[], now);
        let job_end = self.jobs.iter().map(|job| job.ends).min();
        let due = self.due.peek().map(|Reverse((seconds, _))| Duration::from_secs(*seconds));
        let waits = self.waiting.iter().any(|queue| queue.queued().len() > 0);
        let change = plan.next_change.filter(|_| waits).map(|change| at + now.age(change));
        // The plan does not know yet that its own starts briefly hold back others.
        let wait = self.rules.limits.wait;
        let wait_over = (waits && !plan.starts.is_empty() && !wait.is_zero()).then(|| at + wait);
        let next = [job_end, due, change, wait_over].into_iter().flatten().min().unwrap_or(end);
        next.max(at + self.tick).min(end)
    }

    /// Begins all compactions until the next plan, in order of time, including targets that become
    /// due in the meantime, some of them again after a compaction.
    fn begin_batch(&mut self, plan: &Plan, (at, next): (Duration, Duration)) {
        let due_at = |start: &PlannedStart| self.due_within_batch.get(&start.ix).copied();
        let starts = plan.starts.iter().enumerate();
        let mut pending: BinaryHeap<Reverse<(Duration, usize)>> =
            starts.map(|(order, start)| Reverse((due_at(start).unwrap_or(at), order))).collect();
        while let Some(Reverse((from, order))) = pending.pop() {
            let Some(start) = plan.starts.get(order) else { continue };
            if let Some(again) = self.begin(start, plan, (from, next)) {
                pending.push(Reverse((again, order)));
            }
        }
    }

    /// Makes the plan of a time from the due targets, the running jobs and the free space then; it also
    /// decides about targets that become due before `next`.
    fn plan_between(&mut self, at: Duration, next: Duration) -> Plan {
        self.apply_due(at, next);
        let now = self.moment(at);
        self.conditions.disks = Arc::new(self.disks_after(at));
        self.conditions.jobs = Arc::new(self.running_jobs());
        let constraints = Arc::make_mut(&mut self.conditions.constraints);
        constraints.recent_starts.retain(|(at, _)| at.age(now) < BUDGET_PERIOD);
        let snapshot = self.projection.publish(now);
        self.queues.apply_snapshot(&snapshot, now);
        self.queues.make_plan(&snapshot, &self.conditions, &self.rules, now)
    }

    fn moment(&self, after: Duration) -> Moment {
        self.present.now.plus(after)
    }

    /// The target, by its identity in the present.
    fn target(&self, ix: TargetIx) -> Option<TargetRef<'a>> {
        self.present.snapshot.target(ix)
    }

    /// Sets the price of waste; if it changed, computes again when targets become due.
    fn reprice(&mut self, at: Duration) {
        let (now, first) = (self.moment(at), at.is_zero());
        self.conditions.disks = Arc::new(self.disks_after(at));
        let (snapshot, channels) = (&self.present.snapshot, &self.channels);
        let factors = HorizonFactors::of(snapshot, channels, &self.conditions, &self.rules, now);
        if !first && !factors.differ_from(&self.prices, PRICE_TOLERANCE) {
            return;
        }
        self.prices = factors.clone();
        self.queues.set_prices(factors);
        self.due.clear();
        for at_row in
            (0..self.present.snapshot.row_count()).take_while(|_| !self.stop.is_cancelled())
        {
            if let Some(target) = self.present.snapshot.target_at(at_row) {
                self.find_due(target, at);
            }
        }
    }

    /// Remembers when a target becomes due, if that is within the simulated time.
    fn find_due(&mut self, target: TargetRef<'a>, from: Duration) {
        if let Some(seconds) = self.due_second(target, from) {
            self.due.push(Reverse((seconds, target.ix())));
        }
    }

    /// The first whole second from this time on at which a target is due, if within the simulated
    /// time.
    fn due_second(&self, target: TargetRef<'a>, from: Duration) -> Option<u64> {
        if !matches!(target.kind(), TargetKind::Db | TargetKind::View) || target.is_part() {
            return None;
        }
        let course = self.courses.of(target);
        let horizon_factor = self.prices.product_on(target.node_ix());
        let correction = target.correction();
        let is_taken = |after: Duration| {
            let (facts, rent) = course.state_after(TimeAhead::after(after));
            let rent = RentNow { rent, now: self.moment(after), horizon_factor, correction };
            first_channel(&self.channels, target, &facts, rent).is_some()
        };
        let looks = looks(from, self.span, has_maximum(&self.channels));
        let due = first_time(from, looks, is_taken)?;
        // Rounds up to a whole second, so that a target is never due too early.
        Some(due.as_secs().saturating_add(u64::from(due.subsec_nanos() > 0)))
    }

    /// Updates the facts of targets that are due by now, and of those due before the next plan,
    /// with their facts of that time.
    fn apply_due(&mut self, at: Duration, next: Duration) {
        self.due_within_batch.clear();
        let is_due = |seconds: u64| seconds <= at.as_secs() || Duration::from_secs(seconds) < next;
        while let Some(Reverse((seconds, ix))) =
            self.due.peek().filter(|Reverse((seconds, _))| is_due(*seconds)).copied()
        {
            self.due.pop();
            let due = Duration::from_secs(seconds).max(at);
            if due > at {
                self.due_within_batch.insert(ix, due);
            }
            self.read_again(ix, due);
        }
    }

    /// Gives the planner current facts of the targets at the head of each queue.
    fn read_queued_again(&mut self, at: Duration) {
        let waiting = Arc::clone(&self.waiting);
        for ix in waiting.iter().flat_map(|queue| queue.queued().take(READ_AGAIN)) {
            self.read_again(ix, at);
        }
    }

    fn read_again(&mut self, ix: TargetIx, at: Duration) {
        if let Some(target) = self.target(ix) {
            let (facts, rent) = self.courses.of(target).state_after(TimeAhead::after(at));
            self.projection.set(ix, &facts, rent);
        }
    }

    /// Begins a compaction; if one plan decides about all of them, `next` is the time of the next
    /// plan. Returns when the target is due again, if that is before the next plan.
    fn begin(
        &mut self,
        start: &PlannedStart,
        plan: &Plan,
        (at, next): (Duration, Duration),
    ) -> Option<Duration> {
        let target = self.target(start.ix)?;
        let (now, kind) = (self.moment(at), target.kind());
        let nodes = nodes_of(&self.present.snapshot, start.node);
        let takes = imagined::duration_of(start, &self.conditions.constraints);
        let begins = match &mut self.batches {
            Some(slots) if kind != TargetKind::Cleanup => {
                let needs = SlotNeed::of(start, target, &nodes);
                slots.take(&needs, (at, next), takes)
            }
            // Deleting index files takes no slot.
            Some(_) | None => Some(at),
        };
        let begins = begins?;
        let waited = plan.placement(start.ix).map(|(_, placed)| placed.queued_since.age(now));
        self.sums.longest_wait = self.sums.longest_wait.max(waited);
        let constraints = Arc::make_mut(&mut self.conditions.constraints);
        imagined::remember_start(constraints, start, &nodes, now);
        if kind == TargetKind::Cleanup {
            let mut facts = target.facts();
            facts.flags.evidence = false;
            self.projection.set(start.ix, &facts, target.rent());
            return None;
        }
        self.sums.compactions += 1;
        self.sums.job_seconds += takes.as_secs_f64();
        let ends = begins.saturating_add(takes);
        let is_seen = self.batches.is_none() || ends > next;
        let channel = self.channels.list.get(start.channel).filter(|_| is_seen);
        let on_nodes = channel.map(|channel| {
            let imagined = ImaginedJob {
                shard: start.shard.as_deref(),
                design: start.design.as_deref(),
                channel: &channel.name,
                started_at: self.moment(begins),
                peak_bytes: start.peak_bytes,
            };
            nodes.iter().map(|node| imagined.on(target, *node)).collect()
        });
        let job = RunningJob {
            begins,
            ends,
            ix: start.ix,
            node: start.node,
            is_copy: kind == TargetKind::View && start.shard.is_some(),
            rewrite_bytes: start.rewrite_bytes,
            on_nodes: on_nodes.unwrap_or_default(),
        };
        if is_seen || job.is_copy {
            self.jobs.push(job);
            return None;
        }
        self.end_job_until(&job, next)
    }

    /// Ends a compaction; returns when its target is due again, if that is before the next plan.
    fn end_job_until(&mut self, job: &RunningJob, next: Duration) -> Option<Duration> {
        let target = self.finish(job)?;
        let seconds = self.due_second(target, job.ends)?;
        let again = Duration::from_secs(seconds);
        if again < next {
            return Some(again);
        }
        self.due.push(Reverse((seconds, target.ix())));
        None
    }

    /// Ends the jobs that are over by now, in the order of their ends.
    fn end_jobs(&mut self, at: Duration) {
        let (mut over, running): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.jobs).into_iter().partition(|job| job.ends <= at);
        self.jobs = running;
        over.sort_by_key(|job| job.ends);
        for (at, job) in over.iter().enumerate() {
            self.end_job(job);
            // A node rests from the end of its work, not from the next plan.
            let still_running = over.get(at + 1..).unwrap_or_default();
            self.update_busy_periods(still_running, self.moment(job.ends));
        }
    }

    fn end_job(&mut self, job: &RunningJob) {
        if let Some(target) = self.finish(job) {
            self.find_due(target, job.ends);
        }
    }

    /// Applies what a compaction leaves; returns its target, unless other copies are still to be compacted.
    fn finish(&mut self, job: &RunningJob) -> Option<TargetRef<'a>> {
        let RunningJob { ix, is_copy, .. } = *job;
        let target = self.target(ix)?;
        let constraints = Arc::make_mut(&mut self.conditions.constraints);
        if is_copy && !imagined::is_last_copy(constraints, target, job.node) {
            self.add_rewritten(job.rewrite_bytes.unwrap_or_default());
            return None;
        }
        let ends = TimeAhead::after(job.ends);
        let begins = TimeAhead::after(job.begins);
        let compacted = self.courses.compact(target, (begins, ends))?;
        let CompactedCourse { before, after, file, left } = compacted;
        let count = u64::from(target.file_count());
        if before.is_idle() {
            self.saved_for_good.add(target.kind(), after.saved_bytes(&before, ends) * count as f64);
        }
        self.add_rewritten(if is_copy { left } else { left.saturating_mul(count) });
        let freed = file.saturating_sub(left).saturating_mul(count);
        self.sums.freed_bytes = self.sums.freed_bytes.saturating_add(freed);
        let change = (file as f64 - left as f64) * count as f64;
        self.freed_on.spread(change, &nodes_of(&self.present.snapshot, target.node_ix()));
        self.read_again(ix, job.ends);
        Some(target)
    }

    fn add_rewritten(&mut self, bytes: u64) {
        self.sums.rewritten_bytes = self.sums.rewritten_bytes.saturating_add(bytes);
    }

    fn running_jobs(&self) -> Jobs {
        let list = self.jobs.iter().flat_map(|job| job.on_nodes.iter().cloned()).collect();
        Jobs { list, ..Jobs::default() }
    }

    /// Tracks how long nodes have been busy, if they must rest afterwards: with the running jobs,
    /// and with `others` that have not ended yet.
    fn update_busy_periods(&mut self, others: &[RunningJob], now: Moment) {
        if self.rules.limits.duty_percent >= 100.0 {
            return;
        }
        let jobs = self.jobs.iter().chain(others);
        let running = jobs.flat_map(|job| &job.on_nodes).map(|job| &job.key).collect();
        let constraints = Arc::make_mut(&mut self.conditions.constraints);
        BusyPeriod::update_all(&mut constraints.busy_periods, &running, now);
    }

    /// The volumes, with the space that is free after this time.
    fn disks_after(&self, after: Duration) -> Disks {
        let grown =
            |node: NodeIx| self.unchecked.grown_on(node, self.span, after) - self.freed_on.on(node);
        let Present { conditions, snapshot, .. } = self.present;
        let mut disks = imagined::disks_grown_by(&conditions.disks, snapshot, grown);
        // It is unknown how fast space will disappear.
        disks.volumes.iter_mut().for_each(|volume| volume.falling_since = None);
        disks
    }

    fn sample(&mut self, at: Duration) {
        let Some(unchecked) = self.unchecked.samples.get(self.samples.len()).copied() else {
            return;
        };
        if let Some(left) = self.samples_left {
            left.fetch_sub(1, Ordering::Relaxed);
        }
        let mut saved = self.saved_for_good;
        let time = TimeAhead::after(at);
        for (kind, bytes) in self.courses.saved_bytes(time) {
            saved.add(kind, bytes);
        }
        let less = |bytes: u64, by: f64| to_bytes(bytes as f64 - by);
        self.samples.push(Sample {
            waste_bytes: less(unchecked.waste_bytes, saved.bytes),
            view_waste_bytes: less(unchecked.view_waste_bytes, saved.in_views),
            file_bytes: less(unchecked.file_bytes, self.freed_on.sum()),
        });
        self.freed_at_samples.push(self.freed_on.clone());
    }

    /// Whether there are so many compactions, or such short ones, that each plan has to decide about several.
    fn needs_batches(&self, at: Duration) -> bool {
        if self.sums.compactions < KNOWN_JOBS {
            return false;
        }
        let a_second = self.sums.compactions as f64 / at.as_secs_f64().max(1.0);
        let many = a_second * self.span.as_secs_f64() > MAX_DECIDED_ONE_BY_ONE;
        let tick = if many { self.batch_tick() } else { self.tick };
        self.mean_job_seconds() < tick.as_secs_f64()
    }

    /// The time between two plans that each decide about several compactions; each step contains a
    /// whole number of such plans.
    fn batch_tick(&self) -> Duration {
        let steps = (SAMPLES - 1) * self.steps_per_sample;
        let batches = steps * (MAX_BATCHES / steps).max(1);
        self.tick.max(self.span.mul_f64(1.0 / batches as f64))
    }

    /// From now on, each plan starts as many compactions as fit until the next one.
    ///
    /// The planner's own limits apply to one moment. They are widened to what may run until the
    /// next plan, and [`BatchSlots`] enforces the original limits.
    fn decide_in_batches(&mut self) {
        let limits = self.rules.limits;
        self.tick = self.batch_tick();
        let tick = self.tick.as_secs_f64();
        // One more than fits at once, because the next ones are chosen while some are running.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let fit = (tick / self.mean_job_seconds()).ceil().max(1.0) as usize + 1;
        self.batches = Some(BatchSlots::new(limits, &self.channels));
        let periods = (tick / BUDGET_PERIOD.as_secs_f64()).max(1.0);
        let limits = Limits {
            per_node: limits.per_node.saturating_mul(fit),
            cluster: limits.cluster.saturating_mul(fit),
            bytes_per_hour: to_bytes(limits.bytes_per_hour as f64 * periods),
            wait: Duration::ZERO,
            duty_percent: 100.0,
            one_copy_of_a_range: false,
        };
        let rules = Rules { limits, whole_views: fit, ..(*self.rules).clone() };
        self.rules = Arc::new(rules);
        let more = |channel: &Channel| Channel {
            concurrency: channel.concurrency.saturating_mul(fit),
            ..channel.clone()
        };
        self.channels = Arc::new(self.channels.map(more));
        self.queues.reconfigure(Arc::clone(&self.channels));
    }

    fn mean_job_seconds(&self) -> f64 {
        self.sums.job_seconds / (self.sums.compactions.max(1) as f64)
    }

    fn outlook(mut self, name: &str) -> Outlook {
        let freed =
            |node: NodeIx, at: usize| self.freed_at_samples.get(at).map_or(0.0, |row| row.on(node));
        let last_waste = |samples: &[Sample]| samples.last().map_or(0, |it| it.waste_bytes) as f64;
        let due = last_waste(&self.samples);
        let volumes =
            self.unchecked.volume_outlooks(self.present, self.span, &mut self.samples, freed);
        let written = (last_waste(&self.samples) / due.max(1.0)).min(1.0);
        let (mut undone, waiting) = self.undone();
        undone.iter_mut().for_each(|it| it.bytes = to_bytes(it.bytes as f64 * written));
        Outlook {
            name: name.to_owned(),
            samples: self.samples,
            volumes,
            rewritten_bytes: self.sums.rewritten_bytes,
            freed_bytes: self.sums.freed_bytes,
            compactions: self.sums.compactions,
            longest_wait: self.sums.longest_wait.max(waiting),
            undone,
            is_coarse: self.batches.is_some(),
        }
    }

    /// The targets that wait at the end, by reason, most bytes first; and the longest of their waits.
    fn undone(&mut self) -> (Vec<Undone>, Option<Duration>) {
        // The reasons are those of the policy itself, not of widened limits or shortened queues.
        self.rules = Arc::new(always_fresh(&self.policy.rules));
        self.channels = Arc::clone(&self.policy.channels);
        self.queues.reconfigure(Arc::clone(&self.channels));
        let plan = self.plan_between(self.span, self.span);
        let (end, time) = (self.moment(self.span), TimeAhead::after(self.span));
        let mut by_reason = BTreeMap::new();
        let mut longest_wait = None;
        for target in plan.snapshot.targets() {
            let Some((_, placement)) = plan.placement(target.ix()) else { continue };
            let Decision::Refused(refusal) = plan.decision(target) else { continue };
            let Some(target) = self.target(target.ix()) else { continue };
            let reason = refusal.reason;
            if reason == RefusalReason::Running {
                continue;
            }
            let excluding_key = refusal.excluding_key(&self.rules, target);
            let undone = Undone { reason, excluding_key, targets: 0, bytes: 0 };
            let undone = by_reason.entry((reason, excluding_key)).or_insert(undone);
            let waste = self.courses.of(target).sizes_after(time).1;
            undone.targets += 1;
            undone.bytes =
                undone.bytes.saturating_add(waste.saturating_mul(target.file_count().into()));
            longest_wait = longest_wait.max(Some(placement.queued_since.age(end)));
        }
        let mut undone: Vec<Undone> = by_reason.into_values().collect();
        undone.sort_by_key(|it| Reverse((it.bytes, it.targets)));
        (undone, longest_wait)
    }
}

/// `rules` without a maximum age of facts, because facts here are computed for each moment.
fn always_fresh(rules: &Rules) -> Rules {
    Rules { fresh_for: Duration::MAX, ..rules.clone() }
}

/// Whether a channel leaves out what is too large or too bloated, so that it may later stop taking
/// a target that it takes now.
fn has_maximum(channels: &Channels) -> bool {
    let limited = |it: &Channel| it.max_size.is_some() || it.max_priority.is_finite();
    channels.list.iter().any(limited)
}

/// The times from `from` to `end` at which a target is checked for being due: only the end, if a due target stays due.
fn looks(from: Duration, end: Duration, has_maximum: bool) -> impl Iterator<Item = Duration> {
    let first = if has_maximum { from } else { end };
    std::iter::successors(Some(first), move |at| {
        let next = at.saturating_sub(from).saturating_mul(2).max(FIRST_LOOK);
        (*at < end).then(|| from.saturating_add(next).min(end))
    })
}

/// The first time from `from` on at which `holds` is true, searched between `looks`; `None` if it
/// is true at none of `looks`.
fn first_time(
    from: Duration,
    looks: impl Iterator<Item = Duration>,
    holds: impl Fn(Duration) -> bool,
) -> Option<Duration> {
    let mut before = from;
    let mut first = None;
    for look in looks {
        if holds(look) {
            first = Some(look);
            break;
        }
        before = look;
    }
    let mut first = first?;
    if before == from && holds(from) {
        return Some(from);
    }
    while first - before > DUE_ACCURACY.max((first - from).mul_f64(DUE_PRECISION)) {
        let middle = before + (first - before) / 2;
        if holds(middle) { first = middle } else { before = middle }
    }
    Some(first)
}

/// Waste that targets do not have because they were compacted, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct SavedWaste {
    bytes: f64,
    /// The part of this waste in views.
    in_views: f64,
}

impl SavedWaste {
    /// Adds bytes of targets of one kind.
    fn add(&mut self, kind: TargetKind, bytes: f64) {
        self.bytes += bytes;
        if kind == TargetKind::View {
            self.in_views += bytes;
        }
    }
}

/// `conditions` without temporary states: nothing is suspended, busy, resting or ordered.
/// Quarantined targets stay quarantined.
fn undisturbed(conditions: &Conditions) -> Conditions {
    let constraints = &conditions.constraints;
    let quarantined = constraints.backoffs.iter();
    let quarantined = quarantined.filter(|(_, it)| matches!(it, Backoff::Quarantined { .. }));
    let backoffs: BTreeMap<TargetIx, Backoff> = quarantined.map(|(ix, it)| (*ix, *it)).collect();
    Conditions {
        constraints: Arc::new(TargetConstraints {
            backoffs,
            learned_headroom_factor: constraints.learned_headroom_factor,
            rewrite_bytes_per_second: constraints.rewrite_bytes_per_second,
            ..TargetConstraints::default()
        }),
        disks: Arc::clone(&conditions.disks),
        ..Conditions::default()
    }
}
