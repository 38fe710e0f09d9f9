//! Imagined compactions: their duration, what the planner sees and would remember of them, and the bytes
//! that they free.
//!
//! Pure pieces that the simulation of days ahead and the scorecard of advice share.

use super::ASSUMED_RATE;
use crate::{
    jobs::{Job, JobKey, JobKind, JobPhase, TargetConstraints},
    model::{records::JobOwner, rounding::to_bytes},
    plan::{
        PlannedStart,
        disk::{Disks, Volume},
    },
    table::{NodeIx, Snapshot, TargetRef},
};
use std::{sync::Arc, time::Duration};
use wall_clock::Moment;

/// Shortest duration of a compaction.
const SHORTEST: Duration = Duration::from_secs(1);

/// Longest duration of a compaction.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// Duration of a start, at the measured rate or the assumed one.
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
    if !target.is_round_over(done) {
        return false;
    }
    constraints.partly_compacted_views.remove(&target.ix());
    true
}

/// An imagined compaction that runs.
#[derive(Clone, Debug)]
pub(super) struct ImaginedJob<'a> {
    pub(super) shard: Option<&'a str>,
    pub(super) design: Option<&'a str>,
    pub(super) channel: &'a str,
    pub(super) started_at: Moment,
    pub(super) peak_bytes: u64,
}

impl ImaginedJob<'_> {
    /// The job on one of its nodes, as the planner sees jobs.
    pub(super) fn on(&self, target: TargetRef<'_>, node: NodeIx) -> Job {
        let shard = self.shard.map(str::to_owned).or_else(|| target.shard_name());
        let design = self.design.map(Arc::from);
        Job {
            key: JobKey {
                node,
                shard: shard.unwrap_or_else(|| target.id().to_string()).into(),
                kind: design.map_or(JobKind::CompactDb, JobKind::CompactView),
            },
            target: Some(target.ix()),
            target_kind: target.kind(),
            owner: JobOwner::Recliner,
            channel: Some(self.channel.into()),
            started_at: self.started_at,
            phase: JobPhase::Running,
            progress: None,
            last_progress_at: self.started_at,
            reserved_bytes: self.peak_bytes,
            // The planner reads neither of these sizes.
            file_bytes: None,
            predicted_bytes: None,
        }
    }
}

/// Bytes on each node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NodeBytes(Vec<f64>);

impl NodeBytes {
    /// Zero bytes on each node.
    pub(super) fn none(snapshot: &Snapshot) -> Self {
        Self(vec![0.0; snapshot.nodes().len()])
    }

    /// Spreads bytes evenly over nodes.
    pub(super) fn spread(&mut self, bytes: f64, nodes: &[NodeIx]) {
        for node in nodes {
            if let Some(sum) = self.0.get_mut(node.as_usize()) {
                *sum += bytes / nodes.len() as f64;
            }
        }
    }

    pub(super) fn on(&self, node: NodeIx) -> f64 {
        self.0.get(node.as_usize()).copied().unwrap_or(0.0)
    }

    pub(super) fn sum(&self) -> f64 {
        self.0.iter().sum()
    }
}

/// The nodes with the files of a target or start on this node; the pseudo-node stands for all nodes.
pub(super) fn nodes_of(snapshot: &Snapshot, node: NodeIx) -> Vec<NodeIx> {
    if node != NodeIx::CLUSTER {
        return vec![node];
    }
    snapshot.members().map(|(node, _)| node).collect()
}

/// The nodes with files on a volume.
pub(super) fn nodes_on<'a>(
    snapshot: &'a Snapshot,
    volume: &'a Volume,
) -> impl Iterator<Item = NodeIx> + 'a {
    let nodes = snapshot.nodes().iter().enumerate();
    let there = nodes.filter(|(_, node)| volume.nodes.contains(&node.name));
    there.filter_map(|(at, _)| NodeIx::from_usize(at))
}

/// The volumes as if the files of each node had grown by this many bytes.
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
