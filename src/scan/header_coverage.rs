//! Which shards a sweep need not ask CouchDB for: their headers were just read and cover what it
//! would say.
//!
//! Owns which headers are exact, which nodes' headers are distrusted, and what the sweep did about
//! shards. A header costs CouchDB nothing, and a question about a shard that is not open costs it an
//! fsync. Only sweeps use this: what is read just before a start, after a job, or because a feed
//! named it, CouchDB always says itself.

use super::SweptShards;
use crate::{
    model::facts::{FactKind, Facts, ReadingComparison},
    sources::inventory::DbFile,
    table::{IndexSet, NodeIx, Snapshot, TargetIx, TargetRef},
};
use couchdb_files::ReportMatch;
use std::collections::{BTreeMap, BTreeSet};

/// What is remembered from sweep to sweep.
#[derive(Debug, Default)]
pub(super) struct HeaderCoverage {
    /// Shards whose last compaction CouchDB said since their file took its place.
    asked: IndexSet,
    /// Targets of which two sources last said different things.
    differ: BTreeSet<TargetIx>,
    /// Nodes with at least one such target when the sweep began: none of their headers is trusted.
    distrusted: BTreeSet<NodeIx>,
    /// Nodes of which two sources were compared in this sweep.
    compared: BTreeSet<NodeIx>,
    /// What this sweep did about shards.
    shards: SweptShards,
}

impl HeaderCoverage {
    pub(super) fn begin_sweep(&mut self, snapshot: &Snapshot) {
        self.differ.retain(|ix| snapshot.target(*ix).is_some());
        let nodes = self.differ.iter().filter_map(|ix| snapshot.target(*ix));
        self.distrusted = nodes.map(TargetRef::node_ix).collect();
        self.compared.clear();
        self.shards = SweptShards::default();
    }

    /// What this sweep did about shards so far.
    pub(super) const fn shards(&self) -> SweptShards {
        self.shards
    }

    /// So many shards this sweep leaves to feeds.
    pub(super) const fn count_followed(&mut self, followed: u64) {
        self.shards.followed += followed;
    }

    /// This sweep asks CouchDB for so many shards, and so many are covered by their headers.
    pub(super) const fn count_shards(&mut self, asked: u64, covered: u64) {
        self.shards.asked += asked;
        self.shards.covered += covered;
    }

    /// CouchDB said the facts of a shard.
    pub(super) fn couchdb_answered(&mut self, ix: TargetIx) {
        self.asked.insert(ix.as_usize());
    }

    /// Two readings of a target were compared.
    pub(super) fn compared(&mut self, node: NodeIx, ix: TargetIx, verdict: ReadingComparison) {
        match verdict {
            ReadingComparison::Incomparable => return,
            ReadingComparison::Equal => self.differ.remove(&ix),
            ReadingComparison::Different => self.differ.insert(ix),
        };
        self.compared.insert(node);
    }

    /// Whether a header says all that CouchDB would, now that this file was read.
    pub(super) fn is_exact(&mut self, ix: TargetIx, file: &DbFile) -> bool {
        if !file.same {
            self.asked.remove(ix.as_usize());
            self.differ.remove(&ix);
        }
        match file.reported {
            ReportMatch::Identical => true,
            // In a file that is still the same, no compaction ended since CouchDB said the last.
            ReportMatch::ExceptCompactedSeq => self.asked.contains(ix.as_usize()),
            ReportMatch::Different => false,
        }
    }

    /// The header is of a later state than CouchDB's answer, as far as one can say: what was
    /// compared before is out of date.
    pub(super) fn superseded(&mut self, ix: TargetIx) {
        self.differ.remove(&ix);
    }

    /// The header of an index was read again; of another state, what was compared is out of date.
    pub(super) fn index_read(&mut self, ix: TargetIx, before: &Facts, now: &Facts) {
        if [FactKind::File, FactKind::UpdateSeq].iter().any(|it| before.get(*it) != now.get(*it)) {
            self.superseded(ix);
        }
    }

    /// Whether no header of a node is trusted in this sweep.
    pub(super) fn distrusts(&self, node: NodeIx) -> bool {
        self.distrusted.contains(&node)
    }

    /// Whether two sources of a node were compared in this sweep.
    pub(super) fn has_compared(&self, node: NodeIx) -> bool {
        self.compared.contains(&node)
    }

    /// How many targets of each node two sources say different things of.
    pub(super) fn disagreements(&self, snapshot: &Snapshot) -> BTreeMap<NodeIx, u64> {
        let mut counts = BTreeMap::new();
        for target in self.differ.iter().filter_map(|ix| snapshot.target(*ix)) {
            *counts.entry(target.node_ix()).or_default() += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::facts::OptionalU64,
        table::{DbName, Draft},
    };

    fn file(reported: ReportMatch, same: bool) -> DbFile {
        let (shard, facts) = (Box::default(), Facts::default());
        DbFile { shard, facts, reported, same, problem: None }
    }

    fn one_target() -> (Draft, NodeIx, TargetIx) {
        let mut draft = Draft::new(1);
        let node = draft.get_or_add_node("couchdb@a");
        let db = draft.get_or_add_db(DbName { db: "a", suffix: ".1" });
        let ix = draft.get_or_add_shard(node, db, None);
        (draft, node, ix)
    }

    #[test]
    fn a_header_without_its_compacted_seq_is_exact_once_couchdb_said_that() {
        let (_, _, ix) = one_target();
        let mut headers = HeaderCoverage::default();
        assert!(headers.is_exact(ix, &file(ReportMatch::Identical, true)));
        assert!(!headers.is_exact(ix, &file(ReportMatch::Different, true)));
        assert!(!headers.is_exact(ix, &file(ReportMatch::ExceptCompactedSeq, true)));
        headers.couchdb_answered(ix);
        assert!(headers.is_exact(ix, &file(ReportMatch::ExceptCompactedSeq, true)));
        assert!(
            !headers.is_exact(ix, &file(ReportMatch::ExceptCompactedSeq, false)),
            "another file"
        );
        assert!(
            !headers.is_exact(ix, &file(ReportMatch::ExceptCompactedSeq, true)),
            "not asked since"
        );
    }

    #[test]
    fn a_node_is_distrusted_from_the_sweep_after_a_disagreement_until_sources_agree() {
        let (draft, node, ix) = one_target();
        let mut headers = HeaderCoverage::default();
        headers.compared(node, ix, ReadingComparison::Incomparable);
        assert!(!headers.has_compared(node));
        headers.compared(node, ix, ReadingComparison::Different);
        assert!(headers.has_compared(node) && !headers.distrusts(node));
        assert_eq!(headers.disagreements(draft.current()), BTreeMap::from([(node, 1)]));
        headers.begin_sweep(draft.current());
        assert!(headers.distrusts(node) && !headers.has_compared(node));
        headers.compared(node, ix, ReadingComparison::Equal);
        assert!(headers.distrusts(node), "until the next sweep");
        headers.begin_sweep(draft.current());
        assert!(!headers.distrusts(node));
        assert!(headers.disagreements(draft.current()).is_empty());
    }

    #[test]
    fn an_index_of_another_state_and_a_target_that_is_gone_disagree_no_more() {
        let (mut draft, node, ix) = one_target();
        let mut headers = HeaderCoverage::default();
        let at = |seq| Facts { update_seq: OptionalU64::new(seq), ..Facts::default() };
        headers.compared(node, ix, ReadingComparison::Different);
        headers.index_read(ix, &at(3), &at(3));
        assert_eq!(headers.disagreements(draft.current()).len(), 1);
        headers.index_read(ix, &at(3), &at(4));
        assert!(headers.disagreements(draft.current()).is_empty());
        headers.compared(node, ix, ReadingComparison::Different);
        draft.remove(ix);
        headers.begin_sweep(draft.current());
        assert!(!headers.distrusts(node));
    }

    #[test]
    fn what_a_sweep_did_about_shards_is_counted_anew_in_each() {
        let mut headers = HeaderCoverage::default();
        headers.count_followed(4);
        headers.count_shards(2, 3);
        headers.count_shards(1, 0);
        assert_eq!(headers.shards(), SweptShards { asked: 3, covered: 3, followed: 4 });
        headers.begin_sweep(Draft::new(1).current());
        assert_eq!(headers.shards(), SweptShards::default());
    }
}
