//! Which shards a sweep need not ask CouchDB for, because their headers were just read and say
//! what it would.
//!
//! Owns that rule and what it remembers of earlier sweeps. A header costs CouchDB nothing, and a
//! question about a shard that is not open costs it an fsync. Only sweeps go by this: what is
//! read just before a start, after a job, or because a feed named it, CouchDB always says itself.

use super::Tables;
use crate::{
    model::{
        facts::{Fact, Facts, Source, Verdict, of_index},
        target::Kind,
    },
    scan::Shards,
    sources::inventory::{DbSeen, IndexSeen, Lane},
    table::{Bits, DbIx, Ix, NodeIx, Snapshot, TargetRef},
};
use couchdb_files::Reported;
use std::collections::{BTreeMap, BTreeSet};

/// Of so many shards one is asked for all the same, another one each sweep: otherwise nobody
/// would notice that files and CouchDB disagree.
const SAMPLE: usize = 64;

/// What is remembered from sweep to sweep.
#[derive(Debug, Default)]
pub(super) struct Spared {
    /// Shards of which CouchDB told the last compaction since their file took its place.
    told: Bits,
    /// Targets of which two sources last said different things.
    differ: BTreeSet<Ix>,
    /// Nodes of whose files one at least was of that kind when the sweep began.
    distrusted: BTreeSet<NodeIx>,
    /// Nodes of which two sources told the same or not in this sweep.
    compared: BTreeSet<NodeIx>,
    /// What this sweep did about shards.
    shards: Shards,
}

impl Spared {
    pub(super) fn begin(&mut self, snapshot: &Snapshot) {
        self.differ.retain(|ix| snapshot.target(*ix).is_some());
        let nodes = self.differ.iter().filter_map(|ix| snapshot.target(*ix));
        self.distrusted = nodes.map(TargetRef::node_ix).collect();
        self.compared.clear();
        self.shards = Shards::default();
    }

    /// What this sweep did about shards so far.
    pub(super) const fn shards(&self) -> Shards {
        self.shards
    }

    /// So many shards this sweep leaves as they are known.
    pub(super) const fn left(&mut self, followed: u64) {
        self.shards.followed += followed;
    }

    /// CouchDB told of a shard.
    pub(super) fn told(&mut self, ix: Ix) {
        self.told.set(ix.as_usize());
    }

    /// Notes what two readings of a target say of each other.
    pub(super) fn compared(&mut self, node: NodeIx, ix: Ix, verdict: Verdict) {
        match verdict {
            Verdict::None => return,
            Verdict::Agree => self.differ.remove(&ix),
            Verdict::Differ => self.differ.insert(ix),
        };
        self.compared.insert(node);
    }

    /// Whether a header says all that CouchDB would, now that this file was seen.
    pub(super) fn is_exact(&mut self, ix: Ix, seen: &DbSeen) -> bool {
        if !seen.same {
            self.told.unset(ix.as_usize());
            self.differ.remove(&ix);
        }
        match seen.reported {
            Reported::AsRead => true,
            // In a file that is still the same, no compaction ended since CouchDB told.
            Reported::ButCompactedSeq => self.told.has(ix.as_usize()),
            Reported::Otherwise => false,
        }
    }

    /// The header is of a later state than that of which CouchDB told, as far as one can say:
    /// what was said of the former is over.
    pub(super) fn went_on(&mut self, ix: Ix) {
        self.differ.remove(&ix);
    }

    /// The header of an index was read again: of another state, what was said is over.
    pub(super) fn moved(&mut self, ix: Ix, before: &Facts, seen: &Facts) {
        if [Fact::File, Fact::UpdateSeq].iter().any(|it| before.get(*it) != seen.get(*it)) {
            self.went_on(ix);
        }
    }
}

impl Tables {
    /// Holds what CouchDB says of one shard's index against the header that was read of it.
    ///
    /// The cluster's sum is held against nothing, though with every copy's part known the smallest
    /// and the largest sum bound it. It is asked for only where no copy can be asked by itself.
    /// It names neither the copies nor the moment, so that an index that was built or compacted
    /// since some sidecar read it would break the bounds without anything being wrong; and a
    /// contradiction would be no node's, so that no header could be distrusted for it.
    pub(super) fn index_said(&mut self, db: DbIx, index: &IndexSeen) {
        let snapshot = self.draft.now();
        let copy = index.copy.and_then(|ix| snapshot.target(ix));
        let Some(copy) = copy.filter(|it| it.kind() == Kind::Db && it.db() == db) else { return };
        let node = copy.node_ix();
        let part = self.draft.find_part(node, db, copy.range(), index.signature);
        let Some(part) = part.filter(|ix| self.disk.has_seen(node, *ix)) else { return };
        if let Some(header) = snapshot.target(part) {
            self.spared.compared(node, part, of_index(&header.facts(), &index.facts));
        }
    }

    /// Whether what a header said of a shard counts only with CouchDB's own word. Feeds tell that
    /// nothing was written since, and not that the header was the whole truth.
    pub(super) fn wants_couchdb(&self, ix: Ix) -> bool {
        let target = self.draft.now().target(ix).filter(|it| it.kind() == Kind::Db);
        target.is_some_and(|it| is_by_files(&it.facts()) && !self.is_trusted(it))
    }

    /// Whether a header says all that CouchDB would, and nothing on its node says otherwise.
    fn is_trusted(&self, target: TargetRef<'_>) -> bool {
        target.facts().flags.exact && !self.spared.distrusted.contains(&target.node_ix())
    }

    /// Whether CouchDB need not be asked for a shard in this sweep.
    pub(super) fn is_spared(&self, target: TargetRef<'_>) -> bool {
        let (ix, facts) = (target.ix(), target.facts());
        is_by_files(&facts)
            && self.is_trusted(target)
            // That it runs no more, only CouchDB tells.
            && !facts.flags.compact_running
            && self.disk.has_seen(target.node_ix(), ix)
            && !self.followed.reads_all()
            && !self.followed.is_turn_of(ix, SAMPLE)
    }

    /// Counts on each node what two sources say different things of, as far as both were read.
    pub(super) fn count_disagreements(&mut self) {
        let mut counts: BTreeMap<NodeIx, u64> = BTreeMap::new();
        for ix in &self.spared.differ {
            if let Some(target) = self.draft.now().target(*ix) {
                *counts.entry(target.node_ix()).or_default() += 1;
            }
        }
        let nodes = self.draft.now().nodes().len();
        for at in (0..nodes).filter_map(NodeIx::from_usize) {
            let (compared, met) = (self.spared.compared.contains(&at), self.disk.has_met(at));
            let count = counts.get(&at).copied().unwrap_or_default();
            self.draft.change_node(at, |node| {
                node.disagreements = if compared { Some(count) } else { node.disagreements };
                node.disagreements = node.disagreements.filter(|_| met);
            });
        }
    }

    /// Parts what a sweep would read on `node` into what it asks CouchDB for and what it need
    /// not, and settles the latter.
    pub(super) fn lane(&mut self, node: NodeIx, due: Vec<Ix>) -> Option<Lane> {
        let snapshot = self.draft.now();
        let is_spared = |ix: &Ix| snapshot.target(*ix).is_some_and(|it| self.is_spared(it));
        let (spared, asked): (Vec<Ix>, Vec<Ix>) = due.into_iter().partition(is_spared);
        let lane = snapshot.node(node).map(|node| {
            let mut lane = Lane::of(&node.name, asked, snapshot);
            if !spared.is_empty() {
                // Whatever is asked for so seldom, CouchDB has closed since.
                lane.unread = lane.targets.len();
            }
            lane
        });
        self.draft.change_node(node, |node| node.spared = !spared.is_empty());
        let asked = lane.as_ref().map_or(0, |lane| lane.targets.len());
        self.spared.shards.asked += asked as u64;
        self.spared.shards.spared += spared.len() as u64;
        spared.into_iter().for_each(|ix| self.swept(ix));
        lane.filter(|lane| !lane.targets.is_empty())
    }
}

fn is_by_files(facts: &Facts) -> bool {
    facts.measured_at.is_some_and(|measured| measured.by == Source::Files)
}
