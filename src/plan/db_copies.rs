//! The nodes that hold the copies of a database, for jobs that are started cluster-wide.

use crate::{
    model::target::{TargetKind, TargetState},
    table::{DbIx, NodeIx, Snapshot, TargetIx},
};
use hashbrown::{HashMap, HashSet};

/// The copies of one database on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeCopies {
    pub(super) node: NodeIx,
    /// Number of its shards on that node.
    pub(super) count: u32,
    /// One of these shards.
    pub(super) any_shard: TargetIx,
}

/// The copies of one database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DbCopies {
    /// By node.
    pub(super) by_node: Vec<NodeCopies>,
    /// Whether one of its shards is being split or moved.
    pub(super) resharding: bool,
}

/// The copies of several databases.
#[derive(Clone, Debug, Default)]
pub(super) struct CopyMap(HashMap<DbIx, DbCopies>);

impl CopyMap {
    /// Finds the copies of these databases.
    pub(super) fn find(snapshot: &Snapshot, wanted: &HashSet<DbIx>) -> Self {
        let mut found: HashMap<DbIx, DbCopies> = HashMap::new();
        if wanted.is_empty() {
            return Self(found);
        }
        for target in snapshot.targets() {
            if target.kind() != TargetKind::Db
                || !matches!(target.state(), TargetState::Ok | TargetState::Resharding)
                || !wanted.contains(&target.db())
            {
                continue;
            }
            let sited = found.entry(target.db()).or_default();
            sited.resharding |= target.state() == TargetState::Resharding;
            let (node, shard) = (target.node_ix(), target.ix());
            match sited.by_node.iter_mut().find(|site| site.node == node) {
                Some(site) => site.count += 1,
                None => sited.by_node.push(NodeCopies { node, count: 1, any_shard: shard }),
            }
        }
        for sited in found.values_mut() {
            sited.by_node.sort_unstable_by_key(|site| site.node);
        }
        Self(found)
    }

    pub(super) fn get(&self, db: DbIx) -> Option<&DbCopies> {
        self.0.get(&db)
    }
}
