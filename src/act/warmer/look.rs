//! What the tables say of indexes: how far each lags, and where its copies lie. Pure.
//!
//! CouchDB says of a view how far it lags. Of a search index it says how far it is: a sum over
//! one copy of each range, whichever answered first. Copies of a range count their sequences
//! each for itself, so that lag is known within bounds: it is at least what is missing to the
//! copies that are furthest back, and at most what is missing to those furthest ahead.

use crate::{
    model::target::{Kind, State},
    table::{DbIx, Ix, NodeIx, Snapshot, TargetRef},
};
use couchdb_names::{Range, Signature};
use hashbrown::HashMap;
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};
use wall_clock::Moment;

/// What a look brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Looked {
    /// Indexes that can be built.
    pub(super) all: Vec<Seen>,
    /// Search indexes of an engine that the cluster does not have, or of which no node could
    /// say so.
    pub(super) absent: Vec<Ix>,
}

/// One index of the cluster.
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
    /// Whether it may lag that far and may not lag at all.
    pub(super) unsure: bool,
    /// Whether it is a search index.
    pub(super) search: bool,
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
    /// The same over one copy of each range, those furthest back; none where one of them is
    /// not known.
    pub(super) least: Option<u64>,
    /// And those furthest ahead.
    pub(super) most: Option<u64>,
    /// What tells their documents from other ones: equal where nothing but sequences moved,
    /// as they do by `_security`, revision limits and purges.
    pub(super) content: u64,
    /// When the one that was measured longest ago was; none where one never was.
    pub(super) oldest: Option<Moment>,
    /// When the one that was measured last was.
    pub(super) newest: Option<Moment>,
}

/// The indexes that have copies to build, with everything a decision is made by.
pub(super) fn look(snapshot: &Snapshot) -> Looked {
    let indexes: Vec<TargetRef<'_>> = snapshot
        .targets()
        .filter(|it| matches!(it.kind(), Kind::View | Kind::Search))
        .filter(|it| it.node_ix() == NodeIx::CLUSTER && it.state() == State::Ok)
        .collect();
    if indexes.is_empty() {
        return Looked::default();
    }
    let mut databases: HashMap<DbIx, Copies> = HashMap::new();
    for index in &indexes {
        let copies = databases.entry(index.db()).or_default();
        if index.search().is_some() {
            copies.ranges.get_or_insert_default();
        }
    }
    for target in snapshot.targets().filter(|it| it.kind() == Kind::Db) {
        if let Some(copies) = databases.get_mut(&target.db())
            && matches!(target.state(), State::Ok | State::Resharding)
        {
            copies.add(target);
        }
    }
    let databases = databases.into_iter().map(|(db, copies)| (db, copies.database())).collect();
    let mut looked = Looked::default();
    for index in indexes {
        match index.search() {
            Some(search) if search.offered != Some(true) => looked.absent.push(index.ix()),
            Some(_) => looked.all.extend(searched(index, &databases)),
            None => looked.all.extend(seen(index, &databases)),
        }
    }
    looked
}

/// Of each range how far the copies are that are furthest back and ahead; none where one of them
/// is not known.
type Ranges = BTreeMap<Option<Range>, Option<(u64, u64)>>;

/// The copies of a database, as they are gone through.
#[derive(Debug, Default)]
struct Copies {
    database: Database,
    content: DefaultHasher,
    /// How far they are, where that is wanted.
    ranges: Option<Ranges>,
}

impl Copies {
    fn add(&mut self, copy: TargetRef<'_>) {
        let (facts, database) = (copy.facts(), &mut self.database);
        let first = database.sites.is_empty();
        *database.sites.entry(copy.node_ix()).or_default() += 1;
        database.resharding |= copy.state() == State::Resharding;
        let seq = facts.update_seq.get();
        database.written = database.written.saturating_add(seq.unwrap_or_default());
        (copy.ix(), facts.docs, facts.deleted_docs, facts.external, facts.active)
            .hash(&mut self.content);
        let at = facts.measured_at.map(|measured| measured.at);
        database.oldest = if first { at } else { database.oldest.min(at) };
        database.newest = database.newest.max(at);
        if let Some(ranges) = &mut self.ranges {
            let range = ranges.entry(copy.range()).or_insert_with(|| seq.map(|seq| (seq, seq)));
            *range = range.zip(seq).map(|((least, most), seq)| (least.min(seq), most.max(seq)));
        }
    }

    fn database(self) -> Database {
        let ranges = self.ranges.iter().flat_map(BTreeMap::values).copied();
        let sums = ranges.reduce(|sum, range| {
            let ((least, most), (back, ahead)) = sum.zip(range)?;
            Some((least.saturating_add(back), most.saturating_add(ahead)))
        });
        let (least, most) = sums.flatten().unzip();
        Database { content: self.content.finish(), least, most, ..self.database }
    }
}

fn seen(view: TargetRef<'_>, databases: &HashMap<DbIx, Database>) -> Option<Seen> {
    let facts = view.facts();
    let attributes = view.view()?;
    Some(Seen {
        ix: view.ix(),
        signature: attributes.signature,
        measured_at: facts.measured_at?.at,
        pending: facts.updates_pending.get()?,
        indexed: facts.update_seq.get()?,
        unsure: false,
        search: false,
        ranges: if attributes.exact_range { 1 } else { u64::from(view.map().ranges) },
        database: databases.get(&view.db())?.clone(),
    })
}

/// A search index, where it is known how far it is and how far its database.
fn searched(index: TargetRef<'_>, databases: &HashMap<DbIx, Database>) -> Option<Seen> {
    let facts = index.facts();
    let database = databases.get(&index.db())?;
    let indexed = facts.update_seq.get()?;
    let at_least = database.least?.saturating_sub(indexed);
    let at_most = database.most?.saturating_sub(indexed);
    let unsure = at_least == 0 && at_most > 0;
    Some(Seen {
        ix: index.ix(),
        signature: told_apart(index),
        measured_at: facts.measured_at?.at,
        pending: if unsure { at_most } else { at_least },
        indexed,
        unsure,
        search: true,
        ranges: u64::from(index.map().ranges),
        database: database.clone(),
    })
}

/// What tells one search index from another that had its place before: its name.
fn told_apart(index: TargetRef<'_>) -> Signature {
    let mut hasher = DefaultHasher::new();
    index.id().hash(&mut hasher);
    let [high, low] = [1, 2].map(|half: u8| {
        half.hash(&mut hasher);
        hasher.finish()
    });
    Signature(((u128::from(high) << 64) | u128::from(low)).to_be_bytes())
}

#[cfg(test)]
mod tests;
