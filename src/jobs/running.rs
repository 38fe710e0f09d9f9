//! The task lists of all nodes at one moment.

use super::{JobKey, Work};
use crate::{
    sources::inventory::{Doing, TaskSeen},
    table::{Ix, NodeIx},
};
use std::{collections::BTreeMap, sync::Arc};
use wall_clock::Moment;

/// The task list of each node. Nodes that were never polled are absent; nothing is known about
/// them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Running {
    /// Number of polls so far; zero before the first.
    pub polls: u64,
    /// The last poll of each node.
    pub nodes: BTreeMap<NodeIx, Polled>,
}

/// The result of polling one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Polled {
    /// When the node was polled. Tasks that began or ended since then may be missing or outdated.
    pub asked_at: Moment,
    /// The node's tasks; `None` if it did not answer, which differs from having none.
    pub tasks: Option<Vec<Task>>,
}

/// One task that works on a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The job the task belongs to.
    pub key: JobKey,
    /// The target, if the tables contain it.
    pub target: Option<Ix>,
    /// What CouchDB reports about the task.
    pub seen: TaskSeen,
}

impl Task {
    /// Creates a task from a node's report.
    #[must_use]
    pub fn new(node: NodeIx, target: Option<Ix>, seen: TaskSeen) -> Self {
        let work = match &seen.doing {
            Doing::Compacts => Work::Db,
            Doing::CompactsView(design) => Work::View(Arc::from(design.as_str())),
            Doing::Builds(design) => Work::Build(Arc::from(design.as_str())),
            Doing::BuildsSearch { design, index } => {
                Work::BuildSearch(Arc::from(design.as_str()), Arc::from(index.as_str()))
            }
        };
        Self { key: JobKey { node, shard: Arc::from(seen.shard.as_str()), work }, target, seen }
    }
}
