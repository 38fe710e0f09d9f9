//! The nodes that hold the copies of a database, for jobs that are started cluster-wide.

use crate::{
    model::target::{Kind, State},
    table::{DbIx, Ix, NodeIx, Snapshot},
};
use hashbrown::{HashMap, HashSet};

/// The copies of one database on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) node: NodeIx,
    /// Number of its shards on that node.
    pub(super) copies: u32,
    /// One of these shards.
    pub(super) shard: Ix,
}

/// The copies of one database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sited {
    /// By node.
    pub(super) sites: Vec<Site>,
    /// Whether one of its shards is being split or moved.
    pub(super) resharding: bool,
}

/// The copies of several databases.
#[derive(Clone, Debug, Default)]
pub(super) struct Sites(HashMap<DbIx, Sited>);

impl Sites {
    /// Finds the copies of these databases.
    pub(super) fn of(snapshot: &Snapshot, wanted: &HashSet<DbIx>) -> Self {
        let mut found: HashMap<DbIx, Sited> = HashMap::new();
        if wanted.is_empty() {
            return Self(found);
        }
        for target in snapshot.targets() {
            if target.kind() != Kind::Db
                || !matches!(target.state(), State::Ok | State::Resharding)
                || !wanted.contains(&target.db())
            {
                continue;
            }
            let sited = found.entry(target.db()).or_default();
            sited.resharding |= target.state() == State::Resharding;
            let (node, shard) = (target.node_ix(), target.ix());
            match sited.sites.iter_mut().find(|site| site.node == node) {
                Some(site) => site.copies += 1,
                None => sited.sites.push(Site { node, copies: 1, shard }),
            }
        }
        for sited in found.values_mut() {
            sited.sites.sort_unstable_by_key(|site| site.node);
        }
        Self(found)
    }

    pub(super) fn get(&self, db: DbIx) -> Option<&Sited> {
        self.0.get(&db)
    }
}
