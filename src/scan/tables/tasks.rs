//! What runs: jobs CouchDB shows, whoever started them.

use super::views::Views;
use crate::{
    jobs::{self, Polled, Task},
    model::facts::Flags,
    sources::inventory::{Doing, TaskSeen},
    table::{DbName, Draft, Ix, NodeIx, TargetRef},
};
use couchdb_names::ShardName;
use std::collections::{BTreeMap, BTreeSet};
use wall_clock::Moment;

/// What each node was seen running, and the targets of it.
#[derive(Debug, Default)]
pub(super) struct Running {
    compacting: BTreeMap<NodeIx, BTreeSet<Ix>>,
    building: BTreeMap<NodeIx, BTreeSet<Ix>>,
    /// What the last poll saw so far.
    pub(super) shown: jobs::Running,
    polled_at: Moment,
}

impl Running {
    /// A poll begins: of nodes that are not asked, nothing is known.
    pub(super) fn begin(&mut self, now: Moment, asked: &[NodeIx]) {
        self.polled_at = now;
        for (node, polled) in &mut self.shown.nodes {
            if !asked.contains(node) {
                *polled = Polled { asked_at: now, tasks: None };
            }
        }
    }

    /// A poll ended.
    pub(super) fn ended(&mut self) -> jobs::Running {
        self.shown.polls += 1;
        self.shown.clone()
    }

    /// A node did not say what it runs.
    pub(super) fn unseen(&mut self, node: NodeIx) {
        self.shown.nodes.insert(node, Polled { asked_at: self.polled_at, tasks: None });
    }

    /// Takes in what a node runs; answers with the targets on which nothing runs any more:
    /// what was measured of them before no longer holds.
    pub(super) fn seen(
        &mut self,
        draft: &mut Draft,
        views: &Views,
        node: NodeIx,
        tasks: Vec<TaskSeen>,
    ) -> Vec<Ix> {
        let (mut compacting, mut building) = (BTreeSet::new(), BTreeSet::new());
        let mut shown = Vec::with_capacity(tasks.len());
        for task in tasks {
            let target = match &task.doing {
                Doing::Compacts => db_target(draft, node, &task.shard),
                Doing::CompactsView(design) | Doing::Builds(design) => {
                    view_target(draft, views, &task.shard, design)
                }
                Doing::BuildsSearch { design, index } => {
                    search_target(draft, views, &task.shard, design, index)
                }
            };
            match &task.doing {
                Doing::Compacts | Doing::CompactsView(_) => compacting.extend(target),
                Doing::Builds(_) | Doing::BuildsSearch { .. } => building.extend(target),
            }
            shown.push(Task::new(node, target, task));
        }
        let polled = Polled { asked_at: self.polled_at, tasks: Some(shown) };
        self.shown.nodes.insert(node, polled);
        let mut ended = exchange(&mut self.compacting, node, compacting);
        ended.extend(exchange(&mut self.building, node, building));
        let runs = |nodes: &BTreeMap<NodeIx, BTreeSet<Ix>>, ix: Ix| {
            nodes.values().any(|running| running.contains(&ix))
        };
        let touched: BTreeSet<Ix> = self
            .compacting
            .get(&node)
            .into_iter()
            .chain(self.building.get(&node))
            .flatten()
            .copied()
            .chain(ended.iter().copied())
            .collect();
        for ix in touched {
            // A job changes it without a word.
            draft.doubt(ix);
            let Some(mut facts) = draft.now().target(ix).map(TargetRef::facts) else {
                continue;
            };
            let flags = Flags {
                compact_running: runs(&self.compacting, ix),
                updater_running: runs(&self.building, ix),
                ..facts.flags
            };
            if flags != facts.flags {
                facts.flags = flags;
                draft.set_facts(ix, facts);
            }
        }
        ended
            .into_iter()
            .filter(|ix| !runs(&self.compacting, *ix) && !runs(&self.building, *ix))
            .collect()
    }
}

/// Puts in what runs now and answers with what ran before and does not.
fn exchange(
    nodes: &mut BTreeMap<NodeIx, BTreeSet<Ix>>,
    node: NodeIx,
    now: BTreeSet<Ix>,
) -> BTreeSet<Ix> {
    let before = nodes.insert(node, now).unwrap_or_default();
    match nodes.get(&node) {
        Some(now) => before.difference(now).copied().collect(),
        None => before,
    }
}

fn db_target(draft: &Draft, node: NodeIx, shard: &str) -> Option<Ix> {
    let (name, range) = match ShardName::split(shard) {
        Some(split) => (DbName { db: split.db, suffix: split.suffix }, Some(split.range)),
        None => (DbName { db: shard, suffix: "" }, None),
    };
    draft.find_db_target(node, draft.find_db(name)?, range)
}

fn view_target(draft: &Draft, views: &Views, shard: &str, design: &str) -> Option<Ix> {
    let split = ShardName::split(shard)?;
    views.with_design(draft, split.db, split.suffix, design)
}

fn search_target(
    draft: &Draft,
    views: &Views,
    shard: &str,
    design: &str,
    index: &str,
) -> Option<Ix> {
    let split = ShardName::split(shard)?;
    let name = DbName { db: split.db, suffix: split.suffix };
    views.search(draft, name, design, index)
}
