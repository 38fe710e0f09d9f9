//! Lag of all indexes and the location of their copies, from the tables. Pure.
//!
//! For a view CouchDB reports the lag. For a search index it reports only the indexed sequence: a
//! sum over one copy of each range, whichever copies answered first. Copies of a range count
//! their sequences independently, so the lag is known only within bounds: at least what is
//! missing relative to the furthest-behind copies, at most relative to the furthest-ahead ones.

use crate::{
    model::target::{TargetKind, TargetState},
    table::{DbIx, NodeIx, Snapshot, TargetIx, TargetRef},
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
pub(super) struct IndexLags {
    /// Indexes that can be built.
    pub(super) buildable: Vec<IndexLag>,
    /// Search indexes whose engine the cluster does not have, or whose engine could not be
    /// confirmed.
    pub(super) without_engine: Vec<TargetIx>,
}

/// Lag of one index of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct IndexLag {
    pub(super) ix: TargetIx,
    /// Distinguishes it from an earlier index at the same table position.
    pub(super) signature: Signature,
    pub(super) measured_at: Moment,
    /// Number of sequences not indexed.
    pub(super) pending: u64,
    pub(super) indexed_seq: u64,
    /// Whether it may not lag at all.
    pub(super) may_be_current: bool,
    /// Whether it is a search index.
    pub(super) is_search: bool,
    /// Number of ranges that the two sums cover.
    pub(super) ranges: u64,
    pub(super) database: DatabaseCopies,
}

impl IndexLag {
    /// The sequence at which it is current.
    pub(super) const fn target_seq(&self) -> u64 {
        self.indexed_seq.saturating_add(self.pending)
    }

    /// Lag of one shard's index.
    pub(super) const fn pending_per_shard(&self) -> u64 {
        self.pending.div_ceil(if self.ranges == 0 { 1 } else { self.ranges })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DatabaseCopies {
    /// Number of copies on each node.
    pub(super) copies_by_node: BTreeMap<NodeIx, usize>,
    /// Whether one of them is being split or moved.
    pub(super) resharding: bool,
    /// Sum of the update sequences of all copies.
    pub(super) seq_sum: u64,
    /// Sum over one copy of each range, taking the copy that is furthest behind; `None` if any is
    /// unknown.
    pub(super) min_seq_sum: Option<u64>,
    /// Sum over one copy of each range, taking the copy that is furthest ahead; `None` if any is
    /// unknown.
    pub(super) max_seq_sum: Option<u64>,
    /// Hash of the content: equal if only sequences moved, as with `_security`, revision limits and
    /// purges.
    pub(super) content_hash: u64,
    /// Time of the oldest measurement of a copy; `None` if one was never measured.
    pub(super) oldest_measurement: Option<Moment>,
    /// Time of the newest measurement of a copy.
    pub(super) newest_measurement: Option<Moment>,
}

/// Computes the lag of all indexes that have copies to build.
pub(super) fn index_lags(snapshot: &Snapshot) -> IndexLags {
    let indexes: Vec<TargetRef<'_>> = snapshot
        .targets()
        .filter(|it| matches!(it.kind(), TargetKind::View | TargetKind::Search))
        .filter(|it| it.node_ix() == NodeIx::CLUSTER && it.state() == TargetState::Ok)
        .collect();
    if indexes.is_empty() {
        return IndexLags::default();
    }
    let mut databases: HashMap<DbIx, CopiesBuilder> = HashMap::new();
    for index in &indexes {
        let copies = databases.entry(index.db()).or_default();
        if index.search().is_some() {
            copies.ranges.get_or_insert_default();
        }
    }
    for target in snapshot.targets().filter(|it| it.kind() == TargetKind::Db) {
        if let Some(copies) = databases.get_mut(&target.db())
            && matches!(target.state(), TargetState::Ok | TargetState::Resharding)
        {
            copies.add(target);
        }
    }
    let databases = databases.into_iter().map(|(db, copies)| (db, copies.build())).collect();
    let mut lags = IndexLags::default();
    for index in indexes {
        match index.search() {
            Some(search) if search.is_supported != Some(true) => {
                lags.without_engine.push(index.ix())
            }
            Some(_) => lags.buildable.extend(search_lag(index, &databases)),
            None => lags.buildable.extend(view_lag(index, &databases)),
        }
    }
    lags
}

/// Sequences of the furthest-behind and furthest-ahead copy of each range; `None` if one is
/// unknown.
type RangeBounds = BTreeMap<Option<Range>, Option<(u64, u64)>>;

/// Collects the copies of a database.
#[derive(Debug, Default)]
struct CopiesBuilder {
    database: DatabaseCopies,
    content: DefaultHasher,
    /// Sequence bounds, if needed.
    ranges: Option<RangeBounds>,
}

impl CopiesBuilder {
    fn add(&mut self, copy: TargetRef<'_>) {
        let (facts, database) = (copy.facts(), &mut self.database);
        let first = database.copies_by_node.is_empty();
        *database.copies_by_node.entry(copy.node_ix()).or_default() += 1;
        database.resharding |= copy.state() == TargetState::Resharding;
        let seq = facts.update_seq.get();
        database.seq_sum = database.seq_sum.saturating_add(seq.unwrap_or_default());
        (copy.ix(), facts.docs, facts.deleted_docs, facts.external_bytes, facts.active_bytes)
            .hash(&mut self.content);
        let at = facts.measured_at.map(|measured| measured.at);
        database.oldest_measurement = if first { at } else { database.oldest_measurement.min(at) };
        database.newest_measurement = database.newest_measurement.max(at);
        if let Some(ranges) = &mut self.ranges {
            let range = ranges.entry(copy.range()).or_insert_with(|| seq.map(|seq| (seq, seq)));
            *range = range.zip(seq).map(|((least, most), seq)| (least.min(seq), most.max(seq)));
        }
    }

    fn build(self) -> DatabaseCopies {
        let ranges = self.ranges.iter().flat_map(BTreeMap::values).copied();
        let sums = ranges.reduce(|sum, range| {
            let ((least, most), (back, ahead)) = sum.zip(range)?;
            Some((least.saturating_add(back), most.saturating_add(ahead)))
        });
        let (least, most) = sums.flatten().unzip();
        DatabaseCopies {
            content_hash: self.content.finish(),
            min_seq_sum: least,
            max_seq_sum: most,
            ..self.database
        }
    }
}

fn view_lag(view: TargetRef<'_>, databases: &HashMap<DbIx, DatabaseCopies>) -> Option<IndexLag> {
    let facts = view.facts();
    let attributes = view.view()?;
    Some(IndexLag {
        ix: view.ix(),
        signature: attributes.signature,
        measured_at: facts.measured_at?.at,
        pending: facts.updates_pending.get()?,
        indexed_seq: facts.update_seq.get()?,
        may_be_current: false,
        is_search: false,
        ranges: if attributes.exact_range { 1 } else { u64::from(view.shard_map().ranges) },
        database: databases.get(&view.db())?.clone(),
    })
}

/// Lag of a search index, if the sequences of the index and its database are known.
fn search_lag(index: TargetRef<'_>, databases: &HashMap<DbIx, DatabaseCopies>) -> Option<IndexLag> {
    let facts = index.facts();
    let database = databases.get(&index.db())?;
    let indexed = facts.update_seq.get()?;
    let at_least = database.min_seq_sum?.saturating_sub(indexed);
    let at_most = database.max_seq_sum?.saturating_sub(indexed);
    let may_be_current = at_least == 0 && at_most > 0;
    Some(IndexLag {
        ix: index.ix(),
        signature: search_signature(index),
        measured_at: facts.measured_at?.at,
        pending: if may_be_current { at_most } else { at_least },
        indexed_seq: indexed,
        may_be_current,
        is_search: true,
        ranges: u64::from(index.shard_map().ranges),
        database: database.clone(),
    })
}

/// Distinguishes a search index from an earlier one at the same table position, by its name.
fn search_signature(index: TargetRef<'_>) -> Signature {
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
