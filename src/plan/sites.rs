//! On which nodes the copies of a database lie, for what is started over the cluster.

use crate::{
    model::target::{Kind, State},
    table::{DbIx, Ix, NodeIx, Snapshot},
};
use hashbrown::{HashMap, HashSet};

/// The copies of one database on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) node: NodeIx,
    /// How many of its shards lie there.
    pub(super) copies: u32,
    /// One of them.
    pub(super) shard: Ix,
}

/// Where one database lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sited {
    /// By node.
    pub(super) sites: Vec<Site>,
    /// Whether a shard of it is being split or moved.
    pub(super) resharding: bool,
}

/// Where some databases lie.
#[derive(Clone, Debug, Default)]
pub(super) struct Sites(HashMap<DbIx, Sited>);

impl Sites {
    /// Looks for the copies of these databases.
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
