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
            let db_copies = found.entry(target.db()).or_default();
            db_copies.resharding |= target.state() == TargetState::Resharding;
            let (node, shard) = (target.node_ix(), target.ix());
            match db_copies.by_node.iter_mut().find(|node_copies| node_copies.node == node) {
                Some(node_copies) => node_copies.count += 1,
                None => db_copies.by_node.push(NodeCopies { node, count: 1, any_shard: shard }),
            }
        }
        for db_copies in found.values_mut() {
            db_copies.by_node.sort_unstable_by_key(|node_copies| node_copies.node);
        }
        Self(found)
    }

    pub(super) fn get(&self, db: DbIx) -> Option<&DbCopies> {
        self.0.get(&db)
    }
}
