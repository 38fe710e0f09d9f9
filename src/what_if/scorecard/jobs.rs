//! The advised compactions that would run now, beside the jobs that really run.
//!
//! Owns what the planner would remember of advised compactions: recent starts, pauses, rests and views of
//! which some copies are done. Never decides what starts. Pure.

use crate::{
    jobs::{BusyPeriod, Job, JobKey, Jobs, TargetConstraints},
    model::{
        records::{AdvisedJob, JobOwner},
        settings::limits::BUDGET_PERIOD,
    },
    plan::{Conditions, Plan, PlannedStart},
    table::{DbIx, NodeIx, Snapshot, TargetIndex, TargetIx, TargetRef},
    what_if::{
        compaction::{self, ImaginedJob},
        nodes_of,
    },
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
    /// Bytes of these files at the start.
    file_bytes: Option<u64>,
}

impl Running {
    /// Whether it compacts one copy of a view.
    pub(super) fn is_copy_of_view(&self) -> bool {
        self.record.design.is_some() && self.record.shard.is_some()
    }

    fn imagined(&self) -> ImaginedJob {
        ImaginedJob {
            shard: self.record.shard.as_deref().map(Arc::from),
            design: self.record.design.as_deref().map(Arc::from),
            channel: Some(self.record.channel.as_str().into()),
            started_at: self.record.started_at,
            peak_bytes: self.record.peak_bytes,
            file_bytes: self.file_bytes,
            rewrite_bytes: Some(self.record.rewrite_bytes),
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

/// All of them.
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
        let running = records.into_iter().map(|record| Running {
            record,
            ix: None,
            nodes: Vec::new(),
            file_bytes: None,
        });
        Self { running: running.collect(), ..Self::default() }
    }

    /// Lets no job of an earlier process begin later than now, as after a clock that was set back.
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

    /// The views that are compacted copy by copy.
    pub(super) fn views(&self) -> impl Iterator<Item = TargetIx> {
        self.running.iter().filter(|job| job.is_copy_of_view()).filter_map(|job| job.ix)
    }

    /// Bytes of the new files of all that run.
    pub(super) fn extra_bytes(&self) -> u64 {
        self.running.iter().map(|job| job.record.rewrite_bytes).fold(0, u64::saturating_add)
    }

    /// Forgets everything that runs, and what is remembered of it.
    pub(super) fn clear(&mut self) {
        self.running.clear();
        self.memory = TargetConstraints::default();
    }

    /// Notes the compactions that really run; returns the bytes of their new files.
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
            let Some(target) = job.ix.and_then(|ix| snapshot.target(ix)) else { continue };
            let named = |name: &str| {
                let at = snapshot.nodes().iter().position(|node| *node.name == *name);
                at.and_then(NodeIx::from_usize)
            };
            job.nodes = match named(&job.record.node) {
                None | Some(NodeIx::CLUSTER) => nodes_of(snapshot, target),
                Some(node) => vec![node],
            };
        }
    }

    /// The conditions of a plan with advised compactions instead of this process's own starts, apart from
    /// the jobs. Operators' orders are left out: they start nothing while recliner advises.
    pub(super) fn conditions(&self, plan: &Plan) -> Conditions {
        let real = &plan.conditions.constraints;
        let mut constraints = TargetConstraints {
            orders: BTreeMap::new(),
            enforcing_since: None,
            journal_failure: None,
            busy_periods: self.memory.busy_periods.clone(),
            ..(**real).clone()
        };
        constraints.recent_starts.extend(&self.memory.recent_starts);
        for (node, at) in &self.memory.last_start_by_node {
            let last = constraints.last_start_by_node.entry(*node).or_insert(*at);
            *last = (*last).max(*at);
        }
        let rounds = self.memory.partly_compacted_views.clone();
        constraints.partly_compacted_views.extend(rounds);
        Conditions { constraints: Arc::new(constraints), ..plan.conditions.clone() }
    }

    /// All jobs at one moment: the advised compactions, and what really ran.
    pub(super) fn at(&self, plan: &Plan, at: Moment) -> Jobs {
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
        Jobs { list, ..(**real).clone() }
    }

    /// Notes in the conditions which nodes are busy with jobs of recliner, advised or real.
    pub(super) fn update_busy_periods(&mut self, conditions: &mut Conditions, now: Moment) {
        let own = conditions.jobs.compactions().filter(|job| job.owner == JobOwner::Recliner);
        let running = own.map(|job| &job.key).collect();
        BusyPeriod::update_all(&mut self.memory.busy_periods, &running, now);
        let constraints = Arc::make_mut(&mut conditions.constraints);
        constraints.busy_periods.clone_from(&self.memory.busy_periods);
    }

    /// Begins a start.
    pub(super) fn begin(
        &mut self,
        plan: &Plan,
        start: &PlannedStart,
        conditions: &mut Conditions,
        now: Moment,
    ) {
        let Some(target) = plan.snapshot.target(start.ix) else { return };
        let nodes = match start.node {
            NodeIx::CLUSTER => nodes_of(&plan.snapshot, target),
            node => vec![node],
        };
        let constraints = Arc::make_mut(&mut conditions.constraints);
        let takes = compaction::duration_of(start, constraints);
        self.memory.recent_starts.retain(|(at, _)| at.age(now) < BUDGET_PERIOD);
        for constraints in [&mut self.memory, &mut *constraints] {
            compaction::remember_start(constraints, start, &nodes, now);
        }
        let channel = plan.channels.list.get(start.channel);
        let node = plan.snapshot.node(start.node).map_or("", |node| &node.name);
        self.running.push(Running {
            record: AdvisedJob {
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
            },
            ix: Some(start.ix),
            nodes,
            file_bytes: start.file_bytes,
        });
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
    pub(super) fn is_last_copy(
        &mut self,
        job: &Running,
        target: TargetRef<'_>,
        conditions: &mut Conditions,
    ) -> bool {
        let Some(node) = job.nodes.first() else { return true };
        let constraints = Arc::make_mut(&mut conditions.constraints);
        compaction::is_last_copy(constraints, target, *node);
        compaction::is_last_copy(&mut self.memory, target, *node)
    }

    /// Marks the advised compactions that are in conflict with another program's; returns how many are
    /// marked for the first time.
    pub(super) fn mark_conflicts(&mut self, snapshot: &Snapshot) -> u64 {
        let Self { running, seen, .. } = self;
        running.iter_mut().map(|job| u64::from(mark_conflict(job, seen, snapshot))).sum()
    }

    /// The same for one that was taken out.
    pub(super) fn mark_conflict(&self, job: &mut Running, snapshot: &Snapshot) -> bool {
        mark_conflict(job, &self.seen, snapshot)
    }

    /// The next time after `at` at which one ends, or a real compaction had ended.
    pub(super) fn next_end(&self, at: Moment) -> Option<Moment> {
        let advised = self.running.iter().map(|job| job.record.ends_at);
        let real = self.seen.values().map(|seen| seen.last_seen.plus(Duration::from_secs(1)));
        advised.chain(real).filter(|end| *end > at).min()
    }

    /// Forgets real compactions that were not seen any more at this time.
    pub(super) fn forget_seen_before(&mut self, now: Moment) {
        self.seen.retain(|_, seen| seen.last_seen >= now);
    }

    /// Moves all times with a clock that read `before` when it was set to `now`.
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

fn mark_conflict(
    job: &mut Running,
    seen: &BTreeMap<(JobKey, Moment), SeenJob>,
    snapshot: &Snapshot,
) -> bool {
    let Some(target) = job.ix.and_then(|ix| snapshot.target(ix)) else { return false };
    let is_new =
        !job.record.is_in_conflict && seen.values().any(|other| other.conflicts_with(job, target));
    job.record.is_in_conflict |= is_new;
    is_new
}
