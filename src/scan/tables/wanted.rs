//! What a sweep is to read: nodes, the shards on each, and the databases whose views count.
//!
//! Picks from the tables as they stand; reads nothing itself.

use super::Tables;
use crate::{
    model::target::{Kind, State as TargetState},
    scan::Settings,
    sources::inventory::{Databases, Lane},
    table::{DbIx, Ix, NodeIx},
};
use std::collections::{BTreeMap, BTreeSet};

impl Tables {
    /// The nodes of this process's share that answered and were not read yet: the next round.
    pub(super) fn nodes_to_read(&mut self, settings: &Settings) -> Vec<String> {
        let mut round = BTreeSet::new();
        let mut names = Vec::new();
        for (at, node) in self.draft.now().nodes().iter().enumerate().skip(1) {
            let Some(at) = NodeIx::from_usize(at).filter(|at| self.rounds.is_next(*at)) else {
                continue;
            };
            if node.member && node.up == Some(true) && settings.nodes.has(&node.name) {
                round.insert(at);
                names.push(node.name.to_string());
            }
        }
        self.rounds.begin(round);
        names
    }

    /// What to read on each node.
    pub(super) fn lanes(&mut self, settings: &Settings) -> Vec<Lane> {
        let snapshot = self.draft.now();
        let mut due: BTreeMap<NodeIx, Vec<Ix>> = BTreeMap::new();
        let mut followed = 0;
        let in_round =
            |at| self.rounds.has(at) && snapshot.node(at).is_some_and(|node| node.up == Some(true));
        for target in snapshot.targets().filter(|target| target.kind() == Kind::Db) {
            let there =
                !matches!(target.state(), TargetState::Missing | TargetState::Unaddressable);
            if !there || !in_round(target.node_ix()) {
                continue;
            }
            if self.is_due(target.ix(), settings) {
                due.entry(target.node_ix()).or_default().push(target.ix());
            } else {
                followed += 1;
            }
        }
        self.spared.left(followed);
        due.into_iter().filter_map(|(at, targets)| self.lane(at, targets)).collect()
    }

    /// The wanted databases of the map, with the places of their copies.
    pub(in crate::scan) fn clustered_dbs(&self, wanted: impl Fn(DbIx) -> bool) -> Databases {
        let mut dbs = Databases::default();
        for copies in self.copies(wanted).chunk_by(|(one, _), (other, _)| one == other) {
            dbs.push(copies.iter().map(|(_, ix)| *ix));
        }
        dbs
    }

    /// The databases whose views a sweep reads: all but those known to have none, of which
    /// no copy changed since their design documents were read.
    pub(super) fn dbs_to_read(&mut self, settings: &Settings) -> Databases {
        let mut dbs = Databases::default();
        for copies in self.copies(|_| true).chunk_by(|(one, _), (other, _)| one == other) {
            let copies = copies.iter().map(|(_, ix)| *ix);
            let mut views = std::mem::take(&mut self.views);
            let due = views.due(
                self.draft.now(),
                copies.clone(),
                |db| self.disk.has_parts(db),
                |ix| self.is_due(ix, settings),
            );
            self.views = views;
            if due {
                dbs.push(copies);
            }
        }
        dbs
    }

    /// The copies of the wanted databases that are where the map has them, database by
    /// database.
    fn copies(&self, wanted: impl Fn(DbIx) -> bool) -> Vec<(DbIx, Ix)> {
        let snapshot = self.draft.now();
        let mut copies: Vec<(DbIx, Ix)> = snapshot
            .targets()
            .filter(|target| target.kind() == Kind::Db && target.range().is_some())
            .filter(|target| target.map().copies > 0 && target.state() == TargetState::Ok)
            .filter(|target| wanted(target.db()))
            .map(|target| (target.db(), target.ix()))
            .collect();
        copies.sort_unstable();
        copies
    }
}
