//! Lag of all indexes and the location of their copies, from the tables. Pure.
//!
//! For a view CouchDB reports the lag. For a search index it reports only the indexed sequence: a
//! sum over one copy of each range, whichever copies answered first. Copies of a range count
//! their sequences independently, so the lag is known only within bounds: at least what is
//! missing relative to the furthest-behind copies, at most relative to the furthest-ahead ones.

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

/// Result of measuring the lag of all indexes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Looked {
    /// Indexes that can be built.
    pub(super) all: Vec<Seen>,
    /// Search indexes whose engine the cluster does not have, or could not be confirmed.
    pub(super) absent: Vec<Ix>,
}

/// Lag of one index of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) ix: Ix,
    /// Distinguishes it from an earlier index at the same table position.
    pub(super) signature: Signature,
    /// Time of the measurement.
    pub(super) measured_at: Moment,
    /// Number of sequences not indexed.
    pub(super) pending: u64,
    /// The last indexed sequence.
    pub(super) indexed: u64,
    /// Whether it may not lag at all.
    pub(super) unsure: bool,
    /// Whether it is a search index.
    pub(super) search: bool,
    /// Number of ranges that the two sums cover.
    pub(super) ranges: u64,
    /// The copies of its database.
    pub(super) database: Database,
}

impl Seen {
    /// The sequence at which it is current.
    pub(super) const fn goal(&self) -> u64 {
        self.indexed.saturating_add(self.pending)
    }

    /// Lag of one shard's index.
    pub(super) const fn pending_of_a_shard(&self) -> u64 {
        self.pending.div_ceil(if self.ranges == 0 { 1 } else { self.ranges })
    }
}

/// The copies of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Database {
    /// Number of copies on each node.
    pub(super) sites: BTreeMap<NodeIx, usize>,
    /// Whether one of them is being split or moved.
    pub(super) resharding: bool,
    /// Sum of the update sequences of all copies.
    pub(super) written: u64,
    /// Sum over one copy of each range, taking the furthest behind; `None` if any is unknown.
    pub(super) least: Option<u64>,
    /// The same for the copies furthest ahead.
    pub(super) most: Option<u64>,
    /// Hash of the content: equal if only sequences moved, as with `_security`, revision limits and
    /// purges.
    pub(super) content: u64,
    /// Time of the oldest measurement of a copy; `None` if one was never measured.
    pub(super) oldest: Option<Moment>,
    /// Time of the newest measurement of a copy.
    pub(super) newest: Option<Moment>,
}

/// Computes the lag of all indexes that have copies to build.
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

/// Sequences of the furthest-behind and furthest-ahead copy of each range; `None` if one is
/// unknown.
type Ranges = BTreeMap<Option<Range>, Option<(u64, u64)>>;

/// Collects the copies of a database.
#[derive(Debug, Default)]
struct Copies {
    database: Database,
    content: DefaultHasher,
    /// Sequence bounds, if needed.
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

/// Lag of a search index, if the sequences of the index and its database are known.
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

/// Distinguishes a search index from an earlier one at the same table position, by its name.
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
