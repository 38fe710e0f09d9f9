//! What a compaction that is only imagined takes, and what the planner would remember of it.
//!
//! Pure pieces that the simulation of days ahead and the scorecard of advice share.

use super::{ASSUMED_RATE, nodes_on};
use crate::{
    jobs::{Job, JobKey, JobKind, JobPhase, TargetConstraints},
    model::{records::JobOwner, rounding::to_bytes},
    plan::{PlannedStart, disk::Disks},
    table::{NodeIx, Snapshot, TargetRef},
};
use std::{sync::Arc, time::Duration};
use wall_clock::Moment;

/// The shortest compaction.
const SHORTEST: Duration = Duration::from_secs(1);

/// The longest one.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// How long a start takes, at the measured rate or the assumed one.
pub(super) fn duration_of(start: &PlannedStart, constraints: &TargetConstraints) -> Duration {
    let rate = constraints.measured_rate();
    let seconds = start.rewrite_bytes.unwrap_or_default() as f64 / rate.unwrap_or(ASSUMED_RATE);
    Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST).clamp(SHORTEST, LONGEST)
}

/// Remembers a start for the hourly budget and for the pause between starts.
pub(super) fn remember_start(
    constraints: &mut TargetConstraints,
    start: &PlannedStart,
    nodes: &[NodeIx],
    now: Moment,
) {
    constraints.recent_starts.push((now, start.file_bytes.unwrap_or_default()));
    for node in nodes.iter().chain(std::iter::once(&start.node)) {
        constraints.last_start_by_node.insert(*node, now);
    }
}

/// Remembers that a copy of a view was compacted; returns whether it was the last.
pub(super) fn is_last_copy(
    constraints: &mut TargetConstraints,
    target: TargetRef<'_>,
    node: NodeIx,
) -> bool {
    let done = constraints.partly_compacted_views.entry(target.ix()).or_default();
    done.insert(node);
    if done.len() < target.file_count() as usize {
        return false;
    }
    constraints.partly_compacted_views.remove(&target.ix());
    true
}

/// An imagined compaction that runs.
#[derive(Clone, Debug)]
pub(super) struct ImaginedJob {
    pub(super) shard: Option<Arc<str>>,
    pub(super) design: Option<Arc<str>>,
    pub(super) channel: Option<Arc<str>>,
    pub(super) started_at: Moment,
    pub(super) peak_bytes: u64,
    pub(super) file_bytes: Option<u64>,
    pub(super) rewrite_bytes: Option<u64>,
}

impl ImaginedJob {
    /// The job on one of its nodes, as the planner sees jobs.
    pub(super) fn on(&self, target: TargetRef<'_>, node: NodeIx) -> Job {
        let shard = self.shard.clone().or_else(|| Some(target.shard_name()?.into()));
        let shard = shard.unwrap_or_else(|| target.id().to_string().into());
        let kind = match &self.design {
            Some(design) => JobKind::CompactView(Arc::clone(design)),
            None => JobKind::CompactDb,
        };
        Job {
            key: JobKey { node, shard, kind },
            target: Some(target.ix()),
            target_kind: target.kind(),
            owner: JobOwner::Recliner,
            channel: self.channel.clone(),
            started_at: self.started_at,
            phase: JobPhase::Running,
            progress: None,
            last_progress_at: self.started_at,
            reserved_bytes: self.peak_bytes,
            file_bytes: self.file_bytes,
            predicted_bytes: self.rewrite_bytes,
        }
    }
}

/// The volumes, if the files of each node had grown by so many bytes.
pub(super) fn disks_grown_by(
    disks: &Disks,
    snapshot: &Snapshot,
    grown: impl Fn(NodeIx) -> f64,
) -> Disks {
    let mut disks = disks.clone();
    for volume in &mut disks.volumes {
        let grown: f64 = nodes_on(snapshot, volume).map(&grown).sum();
        if let Some(space) = &mut volume.space {
            space.available = to_bytes(space.available as f64 - grown);
        }
    }
    disks
}
