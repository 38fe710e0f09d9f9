//! What a sweep must read: the shards on each node, and the databases whose views are requested.
//!
//! Reads nothing itself.

use super::Scanner;
use crate::{
    model::target::{TargetKind, TargetState},
    scan::listing::is_hidden,
    sources::inventory::{Databases, NodeReads},
    table::{IndexSet, NodeIx, TargetIx, TargetRef},
};
use std::collections::BTreeMap;

/// One in this many shards is requested although its header covers it, a different one in each sweep.
/// Otherwise a disagreement between files and CouchDB would go unnoticed.
const SAMPLE_INTERVAL: usize = 64;

impl Scanner {
    /// What to read on each node of this round.
    pub(super) fn node_reads(&mut self) -> Vec<NodeReads> {
        let mut due: BTreeMap<NodeIx, Vec<TargetIx>> = BTreeMap::new();
        let mut followed = 0;
        for target in self.targets.now().targets().filter(|target| target.kind() == TargetKind::Db)
        {
            let node = target.node_ix();
            let there =
                !matches!(target.state(), TargetState::Missing | TargetState::Unaddressable);
            // No request can carry such a name.
            let is_hidden = target.state() == TargetState::Unknown && is_hidden(target);
            if !there
                || is_hidden
                || !self.sweep.round().contains(&node)
                || !self.targets.is_up(node)
            {
                continue;
            }
            if self.followed.is_due(target.ix(), &self.targets, &self.settings) {
                due.entry(node).or_default().push(target.ix());
            } else {
                followed += 1;
            }
        }
        self.targets.headers.count_followed(followed);
        due.into_iter().filter_map(|(node, targets)| self.reads(node, targets)).collect()
    }

    /// Divides the due shards on `node` into those to request from CouchDB and those that headers cover,
    /// and settles the latter.
    fn reads(&mut self, node: NodeIx, due: Vec<TargetIx>) -> Option<NodeReads> {
        let is_covered = |ix: &TargetIx| {
            let target = self.targets.now().target(*ix);
            !self.followed.reads_all()
                && !self.followed.is_turn_of(*ix, SAMPLE_INTERVAL)
                && target.is_some_and(|it| {
                    self.disk.has_file(it.node_ix(), it.ix()) && self.targets.is_covered(it)
                })
        };
        let (covered, asked): (Vec<TargetIx>, Vec<TargetIx>) =
            due.into_iter().partition(is_covered);
        let snapshot = self.targets.now();
        let reads = snapshot.node(node).map(|node| {
            let mut reads = NodeReads::of(&node.name, asked, snapshot);
            if !covered.is_empty() {
                // CouchDB has closed shards that are requested so rarely.
                reads.unread = reads.targets.len();
            }
            reads
        });
        self.targets.draft.update_node(node, |node| node.skipped_shards = !covered.is_empty());
        let asked = reads.as_ref().map_or(0, |reads| reads.targets.len());
        self.targets.headers.count_shards(asked as u64, covered.len() as u64);
        for ix in covered {
            self.followed.swept(&mut self.targets.draft, ix);
        }
        reads.filter(|reads| !reads.targets.is_empty())
    }

    /// Of the shards to read, one copy of each range of the databases whose design documents were not read yet.
    pub(super) fn designs_to_count(&self, node_reads: &[NodeReads]) -> IndexSet {
        let (mut to_read, mut count) = (IndexSet::default(), IndexSet::default());
        if !self.settings.views || node_reads.is_empty() {
            return count;
        }
        node_reads.iter().flat_map(|it| &it.targets).for_each(|ix| to_read.insert(ix.as_usize()));
        let copies = self.targets.copies(|db| !self.views.were_requested(db));
        for copies in copies.chunk_by(|(one, _), (other, _)| one == other) {
            let copies = copies.iter().filter(|(_, ix)| to_read.contains(ix.as_usize()));
            let copies = copies.filter_map(|(_, ix)| self.targets.now().target(*ix));
            let mut copies: Vec<TargetRef<'_>> = copies.collect();
            copies.sort_by_key(|copy| (copy.range(), copy.node()));
            copies.dedup_by_key(|copy| copy.range());
            copies.iter().for_each(|copy| count.insert(copy.ix().as_usize()));
        }
        count
    }

    /// The databases whose views a sweep reads: all except those that are known to have none and
    /// whose copies have not changed since their design documents were read.
    pub(super) fn dbs_to_read(&mut self) -> Databases {
        let mut dbs = Databases::default();
        let Self { targets, views, disk, followed, settings, .. } = self;
        for copies in targets.copies(|_| true).chunk_by(|(one, _), (other, _)| one == other) {
            let copies = copies.iter().map(|(_, ix)| *ix);
            let has_parts = |db| disk.has_parts(db);
            let is_due = |ix| followed.is_due(ix, targets, settings);
            if views.due(targets.now(), copies.clone(), has_parts, is_due) {
                dbs.push(copies);
            }
        }
        dbs
    }
}
