//! What the tables say of view indexes: how far each lags, and where its copies lie. Pure.

use crate::{
    clock::Moment,
    snapshot::{DbIx, Ix, NodeIx, Snapshot, TargetRef},
    target::{Kind, Signature, State},
};
use hashbrown::HashMap;
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

/// One view index of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) ix: Ix,
    /// Tells it from another that had its place before.
    pub(super) signature: Signature,
    /// When it was measured.
    pub(super) measured_at: Moment,
    /// Sequences it has not seen.
    pub(super) pending: u64,
    /// The last sequence it has seen.
    pub(super) indexed: u64,
    /// Ranges that these two are sums over.
    pub(super) ranges: u64,
    /// Where its database lies.
    pub(super) database: Database,
}

impl Seen {
    /// The sequence at which it has seen everything.
    pub(super) const fn goal(&self) -> u64 {
        self.indexed.saturating_add(self.pending)
    }

    /// What a shard's index lags behind.
    pub(super) const fn pending_of_a_shard(&self) -> u64 {
        self.pending.div_ceil(if self.ranges == 0 { 1 } else { self.ranges })
    }
}

/// The copies of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Database {
    /// How many lie on each node.
    pub(super) sites: BTreeMap<NodeIx, usize>,
    /// Whether one of them is being split or moved.
    pub(super) resharding: bool,
    /// How far they were written, added up.
    pub(super) written: u64,
    /// What tells their documents from other ones: equal where nothing but sequences moved,
    /// as they do by `_security`, revision limits and purges.
    pub(super) content: u64,
    /// When the one that was measured longest ago was; none where one never was.
    pub(super) oldest: Option<Moment>,
    /// When the one that was measured last was.
    pub(super) newest: Option<Moment>,
}

/// The view indexes that have copies to build, with everything a decision is made by.
pub(super) fn look(snapshot: &Snapshot) -> Vec<Seen> {
    let views: Vec<TargetRef<'_>> = snapshot
        .targets()
        .filter(|it| it.kind() == Kind::View && it.node_ix() == NodeIx::CLUSTER)
        .filter(|it| it.state() == State::Ok)
        .collect();
    if views.is_empty() {
        return Vec::new();
    }
    let mut databases: HashMap<DbIx, (Database, DefaultHasher)> =
        views.iter().map(|it| (it.db(), <(Database, DefaultHasher)>::default())).collect();
    for target in snapshot.targets().filter(|it| it.kind() == Kind::Db) {
        if let Some((database, content)) = databases.get_mut(&target.db())
            && matches!(target.state(), State::Ok | State::Resharding)
        {
            database.add(target, content);
        }
    }
    for (database, content) in databases.values_mut() {
        database.content = content.finish();
    }
    views.into_iter().filter_map(|view| seen(view, &databases)).collect()
}

impl Database {
    fn add(&mut self, copy: TargetRef<'_>, content: &mut DefaultHasher) {
        let facts = copy.facts();
        let first = self.sites.is_empty();
        *self.sites.entry(copy.node_ix()).or_default() += 1;
        self.resharding |= copy.state() == State::Resharding;
        self.written = self.written.saturating_add(facts.update_seq.get().unwrap_or_default());
        (copy.ix(), facts.docs, facts.deleted_docs, facts.external, facts.active).hash(content);
        let at = facts.measured_at.map(|measured| measured.at);
        self.oldest = if first { at } else { self.oldest.min(at) };
        self.newest = self.newest.max(at);
    }
}

fn seen(view: TargetRef<'_>, databases: &HashMap<DbIx, (Database, DefaultHasher)>) -> Option<Seen> {
    let facts = view.facts();
    let attributes = view.view()?;
    Some(Seen {
        ix: view.ix(),
        signature: attributes.signature,
        measured_at: facts.measured_at?.at,
        pending: facts.updates_pending.get()?,
        indexed: facts.update_seq.get()?,
        ranges: if attributes.exact_range { 1 } else { u64::from(view.map().ranges) },
        database: databases.get(&view.db())?.0.clone(),
    })
}
