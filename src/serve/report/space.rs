//! How many bytes there are, how many of them nothing needs, and what each volume has left.

use crate::{
    advice::Waste,
    model::{rounding::to_bytes, target::TargetKind},
    plan::{Plan, disk::Volume},
    table::NodeIx,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes of the whole cluster, in all copies. Unknown is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Space {
    /// When the targets were read.
    pub generated_at: String,
    /// Of all files.
    pub file_bytes: Option<u64>,
    /// Of these, what compactions would free, as predicted.
    pub reclaimable_bytes: Option<u64>,
    /// How many targets there are.
    pub targets: usize,
    /// How many of them wait for a compaction.
    pub waiting: usize,
    /// The volumes that are configured or were found.
    pub volumes: Vec<VolumeSpaceLine>,
}

/// What one volume holds, and what it has left. Unknown is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeSpaceLine {
    /// Its name in metrics.
    pub volume: String,
    /// The nodes with files on it.
    pub nodes: Vec<String>,
    /// Its size.
    pub size_bytes: Option<u64>,
    /// What may still be written.
    pub available_bytes: Option<u64>,
    /// What compactions would leave of the files on it; null where a node has several volumes, because it
    /// is unknown which of its files are on which.
    pub live_bytes: Option<u64>,
    /// What compactions would free of the files on it, likewise.
    pub reclaimable_bytes: Option<u64>,
    /// Files on it that nothing uses, likewise.
    pub unused_bytes: Option<u64>,
    /// Why its space is unknown.
    pub problem: Option<String>,
}

impl Space {
    /// What a plan knows.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let waste = Waste::of(&plan.snapshot);
        let volumes = plan.conditions.disks.volumes.iter();
        Self {
            generated_at: plan.snapshot.generated_at().rfc3339(),
            file_bytes: waste.file_bytes,
            reclaimable_bytes: waste.compactable_bytes,
            targets: plan.snapshot.targets().count(),
            waiting: plan.queues.iter().map(|queue| queue.queued().len()).sum(),
            volumes: volumes.map(|volume| VolumeSpaceLine::of(plan, volume)).collect(),
        }
    }
}

impl VolumeSpaceLine {
    fn of(plan: &Plan, volume: &Volume) -> Self {
        let files = Files::on(plan, volume);
        Self {
            volume: volume.name.to_string(),
            nodes: volume.nodes.iter().map(ToString::to_string).collect(),
            size_bytes: volume.space.and_then(|space| space.size),
            available_bytes: volume.space.map(|space| space.available),
            live_bytes: files.map(|files| to_bytes(files.all - files.reclaimable)),
            reclaimable_bytes: files.map(|files| to_bytes(files.reclaimable)),
            unused_bytes: files.map(|files| files.unused),
            problem: volume.problem.clone(),
        }
    }
}

/// The files of all nodes on one volume, in bytes.
#[derive(Clone, Copy, Default)]
struct Files {
    all: f64,
    reclaimable: f64,
    unused: u64,
}

impl Files {
    /// None if a node of it has another volume, or if nothing of a node was measured.
    fn on(plan: &Plan, volume: &Volume) -> Option<Self> {
        let members: Vec<_> = plan.snapshot.members().collect();
        let totals = plan.snapshot.totals();
        // Sizes of views come for the whole cluster; each node has about the same share of them.
        let views = totals.sums_of(NodeIx::CLUSTER, TargetKind::View);
        let share = |bytes: Option<f64>| bytes.unwrap_or_default() / members.len().max(1) as f64;
        let mut files = Self::default();
        for name in &volume.nodes {
            let (ix, node) = members.iter().find(|(_, node)| node.name == *name)?;
            if plan.conditions.disks.of_node(name).count() != 1 {
                return None;
            }
            let shards = totals.sums_of(*ix, TargetKind::Db);
            files.all += shards.file_bytes.get()? + share(views.file_bytes.get());
            files.reclaimable +=
                shards.reclaimable_bytes.get()? + share(views.reclaimable_bytes.get());
            files.unused += node.disk_usage.unwrap_or_default().unused_bytes();
        }
        Some(files)
    }
}
