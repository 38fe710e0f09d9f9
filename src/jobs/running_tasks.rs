//! The task lists of all nodes at one moment.

use super::job::{JobKey, JobKind};
use crate::{
    sources::inventory::{ActiveTask, TaskKind},
    table::{NodeIx, TargetIx},
};
use std::{collections::BTreeMap, sync::Arc};
use wall_clock::Moment;

/// The task list of each node. Nodes that were never polled are absent; nothing is known about
/// them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Running {
    /// Number of polls so far; zero before the first.
    pub poll_count: u64,
    /// The last poll of each node.
    pub nodes: BTreeMap<NodeIx, NodePoll>,
}

/// The result of polling one node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePoll {
    /// When the node was polled. Tasks that began or ended since then may be missing or outdated.
    pub asked_at: Moment,
    /// The node's tasks; `None` if it did not answer, which differs from having none.
    pub tasks: Option<Vec<RunningTask>>,
}

/// One task that works on a target.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningTask {
    /// The job the task belongs to.
    pub key: JobKey,
    /// The target, if the tables contain it.
    pub target: Option<TargetIx>,
    /// What CouchDB reports about the task.
    pub seen: ActiveTask,
}

impl RunningTask {
    /// Creates a task from a node's report.
    pub fn new(node: NodeIx, target: Option<TargetIx>, seen: ActiveTask) -> Self {
        let work = match &seen.doing {
            TaskKind::Compacts => JobKind::CompactDb,
            TaskKind::CompactsView(design) => JobKind::CompactView(Arc::from(design.as_str())),
            TaskKind::Builds(design) => JobKind::BuildView(Arc::from(design.as_str())),
            TaskKind::BuildsSearch { design, index } => {
                JobKind::BuildSearch(Arc::from(design.as_str()), Arc::from(index.as_str()))
            }
        };
        Self {
            key: JobKey { node, shard: Arc::from(seen.shard.as_str()), kind: work },
            target,
            seen,
        }
    }
}
