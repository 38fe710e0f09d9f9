//! The advised compactions that would be running now, and the jobs that really run.
//!
//! Owns what the planner would remember of advised compactions: recent starts, pauses, rests, and
//! views with only some copies done. Never decides what starts. Pure.

use crate::{
    jobs::{BusyPeriod, Job, JobKey, Jobs, TargetConstraints},
    model::{
        records::{AdvisedJob, JobOwner},
        settings::limits::BUDGET_PERIOD,
    },
    plan::{Conditions, Plan, PlannedStart, disk::Disks},
    table::{DbIx, NodeIx, Snapshot, TargetIndex, TargetIx, TargetRef},
    what_if::imagined::{self, ImaginedJob, nodes_of},
};
use couchdb_names::Range;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use wall_clock::Moment;

/// An advised compaction that runs.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) record: AdvisedJob,
    pub(super) ix: Option<TargetIx>,
    /// The nodes with the files that it compacts.
    nodes: Vec<NodeIx>,
}

impl Running {
    /// Whether it compacts one copy of a view.
    pub(super) fn is_copy_of_view(&self) -> bool {
        self.record.design.is_some() && self.record.shard.is_some()
    }

    fn imagined(&self) -> ImaginedJob<'_> {
        ImaginedJob {
            shard: self.record.shard.as_deref(),
            design: self.record.design.as_deref(),
            channel: &self.record.channel,
            started_at: self.record.started_at,
            peak_bytes: self.record.peak_bytes,
        }
    }
}

/// A compaction that really ran, as it was seen.
#[derive(Clone, Debug)]
struct SeenJob {
    job: Job,
    begun: Moment,
    last_seen: Moment,
    /// The copy of a range that it compacts.
    range: Option<(DbIx, Range)>,
}

impl SeenJob {
    fn ran_at(&self, at: Moment) -> bool {
        self.begun <= at && at <= self.last_seen
    }

    /// Whether another program ran it at the same time as an advised compaction of the same file, or of
    /// another copy of its range.
    fn conflicts_with(&self, advised: &Running, target: TargetRef<'_>) -> bool {
        let same_time =
            self.begun < advised.record.ends_at && advised.record.started_at <= self.last_seen;
        let same_file =
            self.job.target == Some(target.ix()) && advised.nodes.contains(&self.job.key.node);
        let same_range = || {
            let range = target.range().map(|range| (target.db(), range));
            range.is_some() && range == self.range
        };
        self.job.owner == JobOwner::Other && same_time && (same_file || same_range())
    }
}

/// All running advised compactions, and the real ones that were seen running.
#[derive(Debug, Default)]
pub(super) struct AdvisedJobs {
    running: Vec<Running>,
    /// What the planner would remember of advised compactions, and nothing else.
    memory: TargetConstraints,
    /// Real compactions seen since the last step, by key and start.
    seen: BTreeMap<(JobKey, Moment), SeenJob>,
}

impl AdvisedJobs {
    pub(super) fn new(records: Vec<AdvisedJob>) -> Self {
        let running =
            records.into_iter().map(|record| Running { record, ix: None, nodes: Vec::new() });
        Self { running: running.collect(), ..Self::default() }
    }

    /// Ensures that no job of an earlier process begins later than now, as it could after the clock
    /// was set back.
    pub(super) fn begin_by(&mut self, now: Moment) {
        for AdvisedJob { started_at, ends_at, .. } in
            self.running.iter_mut().map(|it| &mut it.record)
        {
            if *started_at > now {
                (*started_at, *ends_at) = (now, now.plus(started_at.age(*ends_at)));
            }
        }
    }

    pub(super) fn records(&self) -> Vec<AdvisedJob> {
        self.running.iter().map(|job| job.record.clone()).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    /// The views with some copies being compacted or done while others wait.
    pub(super) fn views<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = TargetIx> + 'a {
        let running = self.running.iter().filter(|job| job.is_copy_of_view());
        let rounds = [&*plan.conditions.constraints, &self.memory];
        let rounds = rounds.into_iter().flat_map(|it| it.partly_compacted_views.keys().copied());
        rounds.chain(running.filter_map(|job| job.ix))
    }

    /// Bytes of the new files of all running jobs.
    pub(super) fn extra_bytes(&self) -> u64 {
        self.running.iter().map(|job| job.record.rewrite_bytes).fold(0, u64::saturating_add)
    }

    /// Forgets all running jobs, and everything remembered about them.
    pub(super) fn clear(&mut self) {
        self.running.clear();
        self.memory = TargetConstraints::default();
    }

    /// Records the compactions that really run; returns the bytes of their new files.
    pub(super) fn see(&mut self, plan: &Plan, now: Moment) -> u64 {
        let mut extra = 0_u64;
        for job in plan.conditions.jobs.compactions() {
            extra = extra.saturating_add(job.predicted_bytes.or(job.file_bytes).unwrap_or(0));
            let key = (job.key.clone(), job.started_at);
            let seen = self.seen.entry(key).or_insert_with(|| {
                let target = job.target.and_then(|ix| plan.snapshot.target(ix));
                SeenJob {
                    job: job.clone(),
                    begun: job.started_at.min(now),
                    last_seen: now,
                    range: target.and_then(|target| Some((target.db(), target.range()?))),
                }
            });
            seen.last_seen = now;
        }
        extra
    }

    /// Finds the targets of jobs that an earlier process left.
    pub(super) fn find_positions(&mut self, snapshot: &Snapshot) {
        let mut index = TargetIndex::default();
        for job in &mut self.running {
            job.ix = job.ix.filter(|ix| snapshot.target(*ix).is_some());
            if job.ix.is_none() {
                index.add(&job.record.target);
            }
        }
        index.update(snapshot);
        for job in self.running.iter_mut().filter(|job| job.ix.is_none()) {
            job.ix = index.position(&job.record.target);
            let node = snapshot.nodes().iter().position(|node| *node.name == *job.record.node);
            let node = node.and_then(NodeIx::from_usize).unwrap_or(NodeIx::CLUSTER);
            job.nodes = nodes_of(snapshot, node);
        }
    }

    /// The conditions of a plan at one moment, with advised compactions instead of this process's own starts.
    /// Operators' orders are left out: they start nothing while recliner advises.
    pub(super) fn conditions(&mut self, plan: &Plan, disks: &Arc<Disks>, at: Moment) -> Conditions {
        let jobs = self.run_until(plan, at);
        let memory = &self.memory;
        let mut constraints = TargetConstraints {
            orders: BTreeMap::new(),
            enforcing_since: None,
            journal_failure: None,
            busy_periods: memory.busy_periods.clone(),
            ..(*plan.conditions.constraints).clone()
        };
        constraints.recent_starts.extend(&memory.recent_starts);
        for (node, at) in &memory.last_start_by_node {
            let last = constraints.last_start_by_node.entry(*node).or_insert(*at);
            *last = (*last).max(*at);
        }
        constraints.partly_compacted_views.extend(memory.partly_compacted_views.clone());
        constraints.started_unmeasured.extend(&memory.started_unmeasured);
        Conditions {
            jobs: Arc::new(jobs),
            constraints: Arc::new(constraints),
            disks: Arc::clone(disks),
            ..plan.conditions.clone()
        }
    }

    /// All jobs at one moment: the advised compactions and the real jobs. Also records which nodes
    /// are busy with recliner's jobs.
    pub(super) fn run_until(&mut self, plan: &Plan, at: Moment) -> Jobs {
        let real = &plan.conditions.jobs;
        let builds = real.list.iter().filter(|job| !job.is_compaction());
        let ran = self.seen.values().filter(|seen| seen.ran_at(at)).map(|seen| &seen.job);
        let advised = self.running.iter().flat_map(|job| {
            let target = job.ix.and_then(|ix| plan.snapshot.target(ix));
            let imagined = job.imagined();
            let on = move |node: &NodeIx| Some(imagined.on(target?, *node));
            job.nodes.iter().filter_map(on)
        });
        let list = builds.chain(ran).cloned().chain(advised).collect();
        let jobs = Jobs { list, ..(**real).clone() };
        let own = jobs.compactions().filter(|job| job.owner == JobOwner::Recliner);
        let own = own.map(|job| &job.key).collect();
        BusyPeriod::update_all(&mut self.memory.busy_periods, &own, at);
        jobs
    }

    /// Begins the job of a start.
    pub(super) fn begin(&mut self, plan: &Plan, start: &PlannedStart, now: Moment) {
        let Some(target) = plan.snapshot.target(start.ix) else { return };
        let nodes = nodes_of(&plan.snapshot, start.node);
        let takes = imagined::duration_of(start, &plan.conditions.constraints);
        self.memory.recent_starts.retain(|(at, _)| at.age(now) < BUDGET_PERIOD);
        imagined::remember_start(&mut self.memory, start, &nodes, now);
        let channel = plan.channels.list.get(start.channel);
        let node = plan.snapshot.node(start.node).map_or("", |node| &node.name);
        let record = AdvisedJob {
            target: target.id(),
            node: node.to_owned(),
            shard: start.shard.as_deref().map(str::to_owned),
            design: start.design.as_deref().map(str::to_owned),
            channel: channel.map_or_else(String::new, |channel| channel.name.to_string()),
            started_at: now,
            ends_at: now.plus(takes),
            rewrite_bytes: start.rewrite_bytes.unwrap_or_default(),
            peak_bytes: start.peak_bytes,
            is_in_conflict: false,
        };
        self.running.push(Running { record, ix: Some(start.ix), nodes });
    }

    /// Takes out the jobs that are over by now, in the order of their ends.
    pub(super) fn take_ended(&mut self, now: Moment) -> Vec<Running> {
        let (mut over, running): (Vec<_>, Vec<_>) = std::mem::take(&mut self.running)
            .into_iter()
            .partition(|job| job.record.ends_at <= now);
        self.running = running;
        over.sort_by_key(|job| job.record.ends_at);
        over
    }

    /// Remembers that a copy of a view was compacted; returns whether it was the last.
    pub(super) fn is_last_copy(&mut self, job: &Running, target: TargetRef<'_>) -> bool {
        job.nodes.first().is_none_or(|node| imagined::is_last_copy(&mut self.memory, target, *node))
    }

    /// Remembers that a target was compacted: until the next step, its facts are still those from
    /// before.
    pub(super) fn remember_end(&mut self, ix: TargetIx) {
        self.memory.started_unmeasured.insert(ix, Moment::from_unix(u64::MAX));
    }

    /// At the start of a step, drops the record of which targets have facts from before their compaction.
    pub(super) fn begin_step(&mut self) {
        self.memory.started_unmeasured.clear();
    }

    /// Marks the advised compactions that are in conflict with another program's; returns how many are
    /// marked for the first time.
    pub(super) fn mark_conflicts(&mut self, snapshot: &Snapshot) -> u64 {
        let mut marked = 0;
        for job in self.running.iter_mut().filter(|job| !job.record.is_in_conflict) {
            let Some(target) = job.ix.and_then(|ix| snapshot.target(ix)) else { continue };
            job.record.is_in_conflict =
                self.seen.values().any(|seen| seen.conflicts_with(job, target));
            marked += u64::from(job.record.is_in_conflict);
        }
        marked
    }

    /// The next time after `at` at which an advised compaction ends, or a real one has ended.
    pub(super) fn next_end(&self, at: Moment) -> Option<Moment> {
        let advised = self.running.iter().map(|job| job.record.ends_at);
        let real = self.seen.values().map(|seen| seen.last_seen.plus(Duration::from_secs(1)));
        advised.chain(real).filter(|end| *end > at).min()
    }

    /// Forgets real compactions that were last seen before this time.
    pub(super) fn forget_seen_before(&mut self, now: Moment) {
        self.seen.retain(|_, seen| seen.last_seen >= now);
    }

    /// Moves all times after a clock that read `before` was set to `now`.
    pub(super) fn shift(&mut self, before: Moment, now: Moment) {
        for job in &mut self.running {
            job.record.started_at = job.record.started_at.shifted(before, now);
            job.record.ends_at = job.record.ends_at.shifted(before, now);
        }
        let memory = &mut self.memory;
        let starts = memory.recent_starts.iter_mut().map(|(at, _)| at);
        for at in starts.chain(memory.last_start_by_node.values_mut()) {
            *at = at.shifted(before, now);
        }
        for period in memory.busy_periods.values_mut() {
            period.shift(before, now);
        }
        self.seen.clear();
    }
}
