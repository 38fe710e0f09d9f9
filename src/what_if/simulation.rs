//! One policy through time: what is due, what the planner starts, and what that leaves.

use super::{
    Outlook, Policy, Present, SAMPLES, Sample, Unchecked,
    batch_slots::BatchSlots,
    compaction::{self, ImaginedJob},
    course::{CompactedCourse, Courses, TargetCourse},
    nodes_of, volume_outlooks,
};
use crate::{
    jobs::{BusyPeriod, Jobs, TargetConstraints},
    model::{
        channel::{Channel, Channels},
        records::Backoff,
        rounding::to_bytes,
        score::RentNow,
        settings::limits::{BUDGET_PERIOD, Limits},
        target::TargetKind,
    },
    plan::{
        Conditions, HorizonFactors, Plan, PlannedStart, Queues, Rules, disk::Disks, first_channel,
    },
    table::{NodeIx, Projection, TargetIx, TargetRef},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    sync::Arc,
    time::Duration,
};
use wall_clock::Moment;

/// Steps between two samples, at most: at each, what waits is read again.
const STEPS_PER_SAMPLE: usize = 4;

/// A plan takes time in proportion to the rows of the tables; this many rows may be planned over.
const ROW_BUDGET: usize = 60_000_000;

/// The fewest plans of a simulation, one for each sample, and the most.
const PLANS: (usize, usize) = (SAMPLES - 1, 30_000);

/// The longest queue: a plan's time grows with the queues, and what waits beyond this does not start
/// before the next one.
const MAX_QUEUE: usize = 2_000;

/// After this many compactions it is known how long they take.
const KNOWN_JOBS: u64 = 50;

/// Prices that changed by more than this share make targets due at other times.
const PRICE_TOLERANCE: f64 = 0.1;

/// How many targets at the head of each queue are read again in each step.
const READ_AGAIN: usize = 100;

/// A compaction that runs.
#[derive(Clone, Debug)]
struct RunningJob {
    ends: Duration,
    start: PlannedStart,
    nodes: Vec<NodeIx>,
}

/// The sums of an outlook.
#[derive(Clone, Debug, Default)]
struct Sums {
    rewritten_bytes: u64,
    freed_bytes: u64,
    compactions: u64,
    longest_wait: Option<Duration>,
    /// Seconds of all compactions.
    job_seconds: f64,
}

/// The state of the simulated cluster.
#[derive(Debug)]
pub(super) struct Simulation<'a> {
    present: &'a Present,
    unchecked: &'a Unchecked,
    span: Duration,
    channels: Arc<Channels>,
    rules: Arc<Rules>,
    courses: Courses<'a>,
    projection: Projection,
    queues: Queues,
    conditions: Conditions,
    /// When targets become due, in seconds.
    due: BinaryHeap<Reverse<(u64, TargetIx)>>,
    /// The prices for which these times hold.
    prices: HorizonFactors,
    jobs: Vec<RunningJob>,
    /// Bytes of each node that compactions freed.
    freed_on: Vec<f64>,
    /// The same at each sample.
    freed_at_samples: Vec<Vec<f64>>,
    samples: Vec<Sample>,
    /// Waste that compactions of targets that do not grow freed.
    saved_for_good: SavedWaste,
    sums: Sums,
    /// The shortest time from one plan to the next.
    tick: Duration,
    steps_per_sample: usize,
    /// What runs when, once compactions end sooner than plans are made.
    batches: Option<BatchSlots>,
    /// The last plan.
    plan: Plan,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(
        present: &'a Present,
        policy: &Policy,
        unchecked: &'a Unchecked,
        span: Duration,
    ) -> Self {
        let rows = present.snapshot.row_count().max(1);
        let plans = (ROW_BUDGET / rows).clamp(PLANS.0, PLANS.1);
        let shorter = |channel: &Channel| Channel {
            capacity: channel.capacity.min(MAX_QUEUE),
            ..channel.clone()
        };
        let channels = Arc::new(policy.channels.map(shorter));
        let rules = Rules { fresh_for: Duration::MAX, ..policy.rules.clone() };
        Self {
            present,
            unchecked,
            span,
            queues: Queues::new(Arc::clone(&channels)),
            channels,
            rules: Arc::new(rules),
            courses: Courses::new(present),
            projection: Projection::of(&present.snapshot),
            conditions: undisturbed(&present.conditions),
            due: BinaryHeap::new(),
            prices: HorizonFactors::default(),
            jobs: Vec::new(),
            freed_on: vec![0.0; present.snapshot.nodes().len()],
            freed_at_samples: Vec::with_capacity(SAMPLES),
            samples: Vec::with_capacity(SAMPLES),
            saved_for_good: SavedWaste::default(),
            sums: Sums::default(),
            tick: span.mul_f64(1.0 / plans as f64).max(Duration::from_secs(1)),
            steps_per_sample: (plans / (SAMPLES - 1)).clamp(1, STEPS_PER_SAMPLE),
            batches: None,
            plan: Plan::default(),
        }
    }

    /// Runs to the end.
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
                at = self.advance(at, end);
            }
            let knows = self.sums.compactions >= KNOWN_JOBS;
            if knows && self.batches.is_none() && self.mean_job_seconds() < self.tick.as_secs_f64()
            {
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
        self.apply_due(at);
        let now = self.moment(at);
        self.conditions.disks = Arc::new(self.disks_after(at));
        self.conditions.jobs = Arc::new(self.running_jobs());
        let constraints = Arc::make_mut(&mut self.conditions.constraints);
        constraints.recent_starts.retain(|(at, _)| at.age(now) < BUDGET_PERIOD);
        self.update_busy_periods(&Arc::clone(&self.conditions.jobs), now);
        let snapshot = self.projection.publish(now);
        self.queues.apply_snapshot(&snapshot, now);
        self.plan = self.queues.make_plan(&snapshot, &self.conditions, &self.rules, now);
        let starts = Arc::clone(&self.plan.starts);
        for start in starts.iter() {
            self.begin(start, at);
        }
        if !starts.is_empty() {
            self.update_busy_periods(&self.running_jobs(), now);
        }
        if self.batches.is_some() {
            return (at + self.tick).min(end);
        }
        let job_end = self.jobs.iter().map(|job| job.ends).min();
        let due = self.due.peek().map(|Reverse((seconds, _))| Duration::from_secs(*seconds));
        let waits = self.plan.queues.iter().any(|queue| queue.queued().len() > 0);
        let change = self.plan.next_change.filter(|_| waits).map(|change| at + now.age(change));
        let next = [job_end, due, change].into_iter().flatten().min().unwrap_or(end);
        next.max(at + self.tick).min(end)
    }

    fn moment(&self, after: Duration) -> Moment {
        self.present.now.plus(after)
    }

    /// The target, by its identity in the present.
    fn target(&self, ix: TargetIx) -> Option<TargetRef<'a>> {
        self.present.snapshot.target(ix)
    }

    /// Sets the price of waste, and finds anew what becomes due when if it changed.
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
        for at_row in 0..self.present.snapshot.row_count() {
            if let Some(target) = self.present.snapshot.target_at(at_row) {
                self.find_due(target, at);
            }
        }
    }

    /// Remembers when a target becomes due, if it does within the time.
    fn find_due(&mut self, target: TargetRef<'a>, from: Duration) {
        if !matches!(target.kind(), TargetKind::Db | TargetKind::View) || target.is_part() {
            return;
        }
        let course = self.courses.of(target);
        let horizon_factor = self.prices.product_on(target.node_ix());
        let correction = target.correction();
        let is_taken = |after: Duration| {
            let (facts, rent) = course.state_after(after);
            let rent = RentNow { rent, now: self.moment(after), horizon_factor, correction };
            first_channel(&self.channels, target, &facts, rent).is_some()
        };
        let (mut before, mut due) = (from, self.span);
        if !is_taken(due) {
            return;
        }
        if is_taken(before) {
            due = before;
        }
        let exact = self.span.mul_f64(1.0 / ((SAMPLES - 1) * STEPS_PER_SAMPLE) as f64);
        while due - before > exact {
            let middle = before + (due - before) / 2;
            if is_taken(middle) { due = middle } else { before = middle }
        }
        self.due.push(Reverse((due.as_secs(), target.ix())));
    }

    fn apply_due(&mut self, at: Duration) {
        while let Some(Reverse((_, ix))) =
            self.due.peek().filter(|Reverse((seconds, _))| *seconds <= at.as_secs()).copied()
        {
            self.due.pop();
            self.read_again(ix, at);
        }
    }

    /// Gives the planner the facts of what waits first as they are now.
    fn read_queued_again(&mut self, at: Duration) {
        let queues = Arc::clone(&self.plan.queues);
        for ix in queues.iter().flat_map(|queue| queue.queued().take(READ_AGAIN)) {
            self.read_again(ix, at);
        }
    }

    fn read_again(&mut self, ix: TargetIx, at: Duration) {
        if let Some(target) = self.target(ix) {
            let (facts, rent) = self.courses.of(target).state_after(at);
            self.projection.set(ix, &facts, rent);
        }
    }

    fn begin(&mut self, start: &PlannedStart, at: Duration) {
        let Some(target) = self.target(start.ix) else { return };
        let (now, kind) = (self.moment(at), target.kind());
        let nodes = match start.node {
            NodeIx::CLUSTER => nodes_of(&self.present.snapshot, target),
            node => vec![node],
        };
        let takes = compaction::duration_of(start, &self.conditions.constraints);
        let begins = match &mut self.batches {
            None => Some(at),
            Some(slots) => slots.take(&nodes, start.channel, (at, at + self.tick), takes),
        };
        let Some(begins) = begins else { return };
        let waited = self.plan.placement(start.ix).map(|(_, placed)| placed.queued_since.age(now));
        self.sums.longest_wait = self.sums.longest_wait.max(waited);
        let constraints = Arc::make_mut(&mut self.conditions.constraints);
        compaction::remember_start(constraints, start, &nodes, now);
        if kind == TargetKind::Cleanup {
            let mut facts = target.facts();
            facts.flags.evidence = false;
            self.projection.set(start.ix, &facts, target.rent());
            return;
        }
        self.sums.compactions += 1;
        self.sums.job_seconds += takes.as_secs_f64();
        self.jobs.push(RunningJob {
            ends: begins.saturating_add(takes),
            start: start.clone(),
            nodes,
        });
    }

    /// Ends the jobs that are over by now, in the order of their ends.
    fn end_jobs(&mut self, at: Duration) {
        let (mut over, running): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.jobs).into_iter().partition(|job| job.ends <= at);
        self.jobs = running;
        over.sort_by_key(|job| job.ends);
        for job in over {
            self.end_job(&job);
        }
    }

    fn end_job(&mut self, job: &RunningJob) {
        let ix = job.start.ix;
        let Some(target) = self.target(ix) else { return };
        let is_copy = target.kind() == TargetKind::View && job.start.shard.is_some();
        let constraints = Arc::make_mut(&mut self.conditions.constraints);
        if is_copy && !compaction::is_last_copy(constraints, target, job.start.node) {
            self.add_rewritten(job.start.rewrite_bytes.unwrap_or_default());
            return;
        }
        let Some(compacted) = self.courses.compact(target, job.ends) else { return };
        let CompactedCourse { before, after, file, left } = compacted;
        if before.is_idle() {
            self.saved_for_good.add(target, &before, &after, job.ends);
        }
        let count = u64::from(target.file_count());
        self.add_rewritten(if is_copy { left } else { left.saturating_mul(count) });
        let freed = file.saturating_sub(left).saturating_mul(count);
        self.sums.freed_bytes = self.sums.freed_bytes.saturating_add(freed);
        let change = (file as f64 - left as f64) * count as f64;
        let places = nodes_of(&self.present.snapshot, target);
        for node in &places {
            if let Some(bytes) = self.freed_on.get_mut(node.as_usize()) {
                *bytes += change / places.len() as f64;
            }
        }
        self.read_again(ix, job.ends);
        self.find_due(target, job.ends);
    }

    fn add_rewritten(&mut self, bytes: u64) {
        self.sums.rewritten_bytes = self.sums.rewritten_bytes.saturating_add(bytes);
    }

    fn running_jobs(&self) -> Jobs {
        let one = |job: &RunningJob, node: NodeIx| {
            let target = self.target(job.start.ix)?;
            let channel = self.channels.list.get(job.start.channel);
            let imagined = ImaginedJob {
                shard: job.start.shard.clone(),
                design: job.start.design.clone(),
                channel: channel.map(|channel| Arc::clone(&channel.name)),
                started_at: self.present.now,
                peak_bytes: job.start.peak_bytes,
                file_bytes: job.start.file_bytes,
                rewrite_bytes: job.start.rewrite_bytes,
            };
            Some(imagined.on(target, node))
        };
        let list = self
            .jobs
            .iter()
            .flat_map(|job| job.nodes.iter().filter_map(move |node| one(job, *node)))
            .collect();
        Jobs { list, ..Jobs::default() }
    }

    fn update_busy_periods(&mut self, jobs: &Jobs, now: Moment) {
        let running = jobs.list.iter().map(|job| &job.key).collect();
        let constraints = Arc::make_mut(&mut self.conditions.constraints);
        BusyPeriod::update_all(&mut constraints.busy_periods, &running, now);
    }

    /// The volumes, with the space that is free after this time.
    fn disks_after(&self, after: Duration) -> Disks {
        let grown = |node: NodeIx| {
            let freed = self.freed_on.get(node.as_usize()).copied().unwrap_or(0.0);
            self.unchecked.grown_on(node, self.span, after) - freed
        };
        let Present { conditions, snapshot, .. } = self.present;
        let mut disks = compaction::disks_grown_by(&conditions.disks, snapshot, grown);
        // How fast space will disappear is not known.
        disks.volumes.iter_mut().for_each(|volume| volume.falling_since = None);
        disks
    }

    fn sample(&mut self, at: Duration) {
        let Some(unchecked) = self.unchecked.samples.get(self.samples.len()).copied() else {
            return;
        };
        let mut saved = self.saved_for_good;
        for (target, course) in self.courses.growing() {
            saved.add(target, &TargetCourse::of(self.present, target), course, at);
        }
        let freed: f64 = self.freed_on.iter().sum();
        let less = |bytes: u64, by: f64| to_bytes(bytes as f64 - by);
        self.samples.push(Sample {
            waste_bytes: less(unchecked.waste_bytes, saved.bytes),
            view_waste_bytes: less(unchecked.view_waste_bytes, saved.in_views),
            file_bytes: less(unchecked.file_bytes, freed),
        });
        self.freed_at_samples.push(self.freed_on.clone());
    }

    /// From now on, each plan starts as many compactions as fit until the next one.
    fn decide_in_batches(&mut self) {
        let limits = self.rules.limits;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let fit = (self.tick.as_secs_f64() / self.mean_job_seconds()).ceil().max(1.0) as usize;
        self.batches = Some(BatchSlots::new(limits, &self.channels));
        let limits = Limits {
            per_node: limits.per_node.saturating_mul(fit),
            cluster: limits.cluster.saturating_mul(fit),
            wait: Duration::ZERO,
            duty_percent: 100.0,
            ..limits
        };
        self.rules = Arc::new(Rules { limits, ..(*self.rules).clone() });
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

    fn outlook(self, name: &str) -> Outlook {
        let end = self.moment(self.span);
        let queues = || self.plan.queues.iter();
        let waiting = queues().filter_map(|queue| queue.oldest_queued_at).min();
        let waiting = waiting.map(|oldest| oldest.age(end));
        let volumes = volume_outlooks(self.present, self.span, |node, at| {
            let freed = self.freed_at_samples.get(at).and_then(|row| row.get(node.as_usize()));
            self.unchecked.grown_by_sample(node, at) - freed.copied().unwrap_or(0.0)
        });
        Outlook {
            name: name.to_owned(),
            samples: self.samples,
            volumes,
            rewritten_bytes: self.sums.rewritten_bytes,
            freed_bytes: self.sums.freed_bytes,
            compactions: self.sums.compactions,
            longest_wait: self.sums.longest_wait.max(waiting),
            undone_targets: queues().map(|it| (it.queued().len() + it.overflow) as u64).sum(),
            undone_bytes: queues().map(|queue| queue.reclaimable_bytes).sum(),
            is_coarse: self.batches.is_some(),
        }
    }
}

/// Wasted bytes that targets do not have because they were compacted.
#[derive(Clone, Copy, Debug, Default)]
struct SavedWaste {
    bytes: f64,
    /// Those of views.
    in_views: f64,
}

impl SavedWaste {
    /// Adds what a target wastes less on its course than without its compactions.
    fn add(
        &mut self,
        target: TargetRef<'_>,
        without: &TargetCourse,
        course: &TargetCourse,
        at: Duration,
    ) {
        let waste = |course: &TargetCourse| course.sizes_after(at).1 as f64;
        let bytes = (waste(without) - waste(course)) * f64::from(target.file_count());
        self.bytes += bytes;
        if target.kind() == TargetKind::View {
            self.in_views += bytes;
        }
    }
}

/// The same conditions without what passes: nothing is suspended, busy, resting or ordered. Targets
/// that were given up on stay so.
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
