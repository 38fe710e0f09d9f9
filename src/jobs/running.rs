//! What the nodes' task lists show, at one moment.

use super::{JobKey, Work};
use crate::{
    sources::inventory::{Doing, TaskSeen},
    table::{Ix, NodeIx},
};
use std::{collections::BTreeMap, sync::Arc};
use wall_clock::Moment;

/// What each node shows; one that was never asked is absent, and nothing is known of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Running {
    /// Counts the polls; zero before the first.
    pub polls: u64,
    /// The nodes.
    pub nodes: BTreeMap<NodeIx, Polled>,
}

/// What one node shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Polled {
    /// When it was asked; what began or ended since may not show.
    pub asked_at: Moment,
    /// Its tasks; `None` where it did not answer, which is not the same as none.
    pub tasks: Option<Vec<Task>>,
}

/// One task that works on a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The job it belongs to.
    pub key: JobKey,
    /// What it works on, where the tables have it.
    pub target: Option<Ix>,
    /// What CouchDB says of it.
    pub seen: TaskSeen,
}

impl Task {
    /// A task as a node shows it.
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
