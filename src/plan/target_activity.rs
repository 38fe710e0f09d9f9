//! Running jobs and stored constraints by target, as the admission needs them.

use super::{conditions::Conditions, placement::Placement, slots::JobSlots};
use crate::{
    jobs::{Job, JobKind},
    model::{
        channel::Channels,
        records::{Backoff, JobOwner},
        target::TargetKind,
    },
    table::{ChunkedTable, DbIx, IndexSet, NodeIx, Snapshot, TargetIx},
};
use couchdb_names::Range;
use hashbrown::{HashMap, HashSet};
use std::time::Duration;
use wall_clock::Moment;

/// How long a "compaction runs" fact counts for a node that does not answer, since its jobs may
/// still be running. After that, a node that never returns blocks nothing.
const RUNNING_FLAG_MAX_AGE: Duration = Duration::from_secs(3_600);

/// State of a target in addition to its facts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TargetStatus {
    /// Start of the job that compacts it.
    pub(super) compacting_since: Option<Moment>,
    /// Start of the job that builds it.
    pub(super) building_since: Option<Moment>,
    /// Why it is not started for now.
    pub(super) backoff: Option<Backoff>,
    /// The time of its last start, if it has not been measured since.
    pub(super) last_start: Option<Moment>,
    /// Whether no request can carry its name.
    pub(super) unaddressable: bool,
    /// Whether an operator ordered this target alone: then it waits neither for the node's rest nor
    /// for reserved slots. Members of a run do, because a run may take days.
    pub(super) ordered: bool,
    /// Whether that order is forced: it overrides missing channels and back-off.
    pub(super) forced: bool,
}

/// Running jobs and constraints by target.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TargetActivity {
    with_status: IndexSet,
    statuses: HashMap<TargetIx, TargetStatus>,
    /// Ranges of which a copy is being compacted, with that copy's node.
    busy_ranges: HashMap<(DbIx, Range), NodeIx>,
    busy_dbs: HashSet<DbIx>,
}

impl TargetActivity {
    /// Collects running jobs and constraints, and counts the jobs in `slots`.
    ///
    /// `active` lists targets that are being compacted according to their facts, with their queues.
    /// For a node that has not reported its tasks, these facts replace the report for a limited
    /// time.
    pub(super) fn new(
        snapshot: &Snapshot,
        channels: &Channels,
        conditions: &Conditions,
        placements: &ChunkedTable<Placement>,
        active: impl Iterator<Item = ((NodeIx, usize), TargetIx)>,
        slots: &mut JobSlots,
        now: Moment,
    ) -> Self {
        let mut running = Self::default();
        for (ix, rest) in &conditions.constraints.backoffs {
            running.status_mut(*ix).backoff = Some(*rest);
        }
        for (ix, at) in &conditions.constraints.started_unmeasured {
            running.status_mut(*ix).last_start = Some(*at);
        }
        for (ix, ordered) in &conditions.constraints.orders {
            let status = running.status_mut(*ix);
            (status.ordered, status.forced) = (ordered.run.is_none(), ordered.force);
            if status.ordered {
                let facts = snapshot.target(*ix).map(|target| target.facts()).unwrap_or_default();
                status.backoff = status.backoff.filter(|backoff| !backoff.yields_to_order(&facts));
            }
        }
        let mut counted = HashSet::new();
        let mut whole_views = HashSet::new();
        for job in &conditions.jobs.list {
            if let Some(ix) = job.target {
                running.add_job(snapshot, job, ix);
            }
            if !job.is_compaction() {
                continue;
            }
            slots.count_job(job.key.node);
            let channel = job_channel(job, snapshot, channels, placements);
            let is_new = job.target.is_none_or(|ix| counted.insert((job.key.node, ix)));
            if let Some(channel) = channel.filter(|_| is_new) {
                slots.count_target(job.key.node, channel);
            }
            if is_all_copies_job(snapshot, job)
                && job.target.is_some_and(|ix| whole_views.insert(ix))
            {
                slots.count_all_copies_job();
            }
        }
        let polled: HashSet<NodeIx> =
            conditions.jobs.polled_nodes.iter().map(|(at, _)| *at).collect();
        for ((node, channel), ix) in active {
            let is_reported =
                if node == NodeIx::CLUSTER { !polled.is_empty() } else { polled.contains(&node) };
            let measured = snapshot.target(ix).and_then(|target| target.facts().measured_at);
            let long_ago =
                measured.is_none_or(|measured| measured.at.age(now) > RUNNING_FLAG_MAX_AGE);
            if long_ago
                || is_reported
                || running.status(ix).is_some_and(|status| status.compacting_since.is_some())
            {
                continue;
            }
            slots.count_job(node);
            slots.count_target(node, channel);
            running.occupy_range(snapshot, ix);
        }
        running
    }

    /// The state of a target in addition to its facts, if there is any.
    pub(super) fn status(&self, ix: TargetIx) -> Option<&TargetStatus> {
        if self.with_status.contains(ix.as_usize()) { self.statuses.get(&ix) } else { None }
    }

    /// Marks a target that no request can address.
    pub(super) fn mark_unaddressable(&mut self, ix: TargetIx) {
        self.status_mut(ix).unaddressable = true;
    }

    /// Marks the range of a shard that starts as busy.
    pub(super) fn occupy_range(&mut self, snapshot: &Snapshot, ix: TargetIx) {
        let Some(target) = snapshot.target(ix) else { return };
        if let Some(range) = target.range() {
            self.busy_ranges.insert((target.db(), range), target.node_ix());
            self.busy_dbs.insert(target.db());
        }
    }

    /// Whether another copy of a shard's range is being compacted.
    pub(super) fn is_other_copy_running(
        &self,
        snapshot: &Snapshot,
        db: DbIx,
        ix: TargetIx,
    ) -> bool {
        !self.busy_dbs.is_empty()
            && self.busy_dbs.contains(&db)
            && snapshot
                .target(ix)
                .and_then(|target| target.range())
                .is_some_and(|range| self.busy_ranges.contains_key(&(db, range)))
    }

    fn add_job(&mut self, snapshot: &Snapshot, job: &Job, ix: TargetIx) {
        let status = self.status_mut(ix);
        if !job.is_compaction() {
            status.building_since =
                Some(status.building_since.map_or(job.started_at, |at| at.min(job.started_at)));
            return;
        }
        status.compacting_since =
            Some(status.compacting_since.map_or(job.started_at, |at| at.min(job.started_at)));
        if job.key.kind == JobKind::CompactDb {
            self.occupy_range(snapshot, ix);
        }
    }

    fn status_mut(&mut self, ix: TargetIx) -> &mut TargetStatus {
        self.with_status.insert(ix.as_usize());
        self.statuses.entry(ix).or_default()
    }
}

/// The channel that a job counts towards: the one for which it was started, or the one that takes
/// its target.
fn job_channel(
    job: &Job,
    snapshot: &Snapshot,
    channels: &Channels,
    placements: &ChunkedTable<Placement>,
) -> Option<usize> {
    let started_for = job.channel.as_deref().and_then(|name| channels.find(name));
    let takes = || placements.get(snapshot.target(job.target?)?.ix().as_usize())?.channel_index();
    started_for.map(|(at, _)| at).or_else(takes)
}

/// Whether a job is part of a compaction of all copies of a view; only recliner starts those.
fn is_all_copies_job(snapshot: &Snapshot, job: &Job) -> bool {
    job.target_kind == TargetKind::View
        && job.owner == JobOwner::Recliner
        && job.target.and_then(|ix| snapshot.target(ix)).is_some_and(|target| {
            target.node_ix() == NodeIx::CLUSTER && target.shard_map().ranges > 1
        })
}
