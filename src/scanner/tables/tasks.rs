//! What runs: jobs CouchDB shows, whoever started them.

use super::views::Views;
use crate::{
    facts::Flags,
    inventory::TaskSeen,
    snapshot::{DbName, Draft, Ix, NodeIx, TargetRef},
    target::ShardName,
};
use std::collections::{BTreeMap, BTreeSet};

/// The targets each node was seen working on.
#[derive(Debug, Default)]
pub(super) struct Running {
    compacting: BTreeMap<NodeIx, BTreeSet<Ix>>,
    building: BTreeMap<NodeIx, BTreeSet<Ix>>,
}

impl Running {
    /// Takes in what a node runs; answers with the targets on which nothing runs any more:
    /// what was measured of them before no longer holds.
    pub(super) fn seen(
        &mut self,
        draft: &mut Draft,
        views: &Views,
        node: NodeIx,
        tasks: &[TaskSeen],
    ) -> Vec<Ix> {
        let (mut compacting, mut building) = (BTreeSet::new(), BTreeSet::new());
        for task in tasks {
            match task {
                TaskSeen::Compaction { shard } => compacting.extend(db_target(draft, node, shard)),
                TaskSeen::ViewCompaction { shard, design } => {
                    compacting.extend(view_target(draft, views, shard, design));
                }
                TaskSeen::Indexer { shard, design } => {
                    building.extend(view_target(draft, views, shard, design));
                }
            }
        }
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
