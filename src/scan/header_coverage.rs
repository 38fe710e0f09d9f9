//! The shards that a sweep need not request from CouchDB, because their headers were just read and
//! contain what CouchDB would answer.
//!
//! Owns which headers are exact, which nodes' headers are distrusted, and the sweep's counts of shards.
//! Reading a header costs CouchDB nothing, while a request for a shard that is not open costs an fsync.
//! Only sweeps use this: reads just before a start, after a job, or after a feed event always go to
//! CouchDB.

use super::SweptShards;
use crate::{
    model::facts::{FactKind, Facts, ReadingComparison},
    sources::inventory::DbFile,
    table::{IndexSet, NodeIx, Snapshot, TargetIx, TargetRef},
};
use couchdb_files::ReportMatch;
use std::collections::{BTreeMap, BTreeSet};

/// The state that is kept from sweep to sweep.
#[derive(Debug, Default)]
pub(super) struct HeaderCoverage {
    /// Shards whose last compaction CouchDB has confirmed for their current file.
    asked: IndexSet,
    /// Targets for which two sources last reported different facts.
    differ: BTreeSet<TargetIx>,
    /// Nodes with a target in `differ` at the start of the sweep: their headers are not trusted.
    distrusted: BTreeSet<NodeIx>,
    /// Nodes for which two sources were compared in this sweep.
    compared: BTreeSet<NodeIx>,
    /// The counts of shards in this sweep.
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

    /// The counts of shards in this sweep so far.
    pub(super) const fn shards(&self) -> SweptShards {
        self.shards
    }

    /// Counts shards that this sweep does not read because feeds confirm them.
    pub(super) const fn count_followed(&mut self, followed: u64) {
        self.shards.followed += followed;
    }

    /// Counts shards that this sweep requests from CouchDB, and shards that headers cover.
    pub(super) const fn count_shards(&mut self, asked: u64, covered: u64) {
        self.shards.asked += asked;
        self.shards.covered += covered;
    }

    /// Records that CouchDB reported the facts of a shard.
    pub(super) fn couchdb_answered(&mut self, ix: TargetIx) {
        self.asked.insert(ix.as_usize());
    }

    /// Records a comparison of two sources of a target.
    pub(super) fn compared(&mut self, node: NodeIx, ix: TargetIx, verdict: ReadingComparison) {
        match verdict {
            ReadingComparison::Incomparable => return,
            ReadingComparison::Equal => self.differ.remove(&ix),
            ReadingComparison::Different => self.differ.insert(ix),
        };
        self.compared.insert(node);
    }

    /// Whether a header contains everything that CouchDB would report, after this file was read.
    pub(super) fn is_exact(&mut self, ix: TargetIx, file: &DbFile) -> bool {
        if !file.same {
            self.asked.remove(ix.as_usize());
            self.differ.remove(&ix);
        }
        match file.reported {
            ReportMatch::Identical => true,
            // In an unchanged file, no compaction has ended since CouchDB confirmed the last one.
            ReportMatch::ExceptCompactedSeq => self.asked.contains(ix.as_usize()),
            ReportMatch::Different => false,
        }
    }

    /// Drops the last comparison of a target whose header is probably newer than CouchDB's
    /// response.
    pub(super) fn superseded(&mut self, ix: TargetIx) {
        self.differ.remove(&ix);
    }

    /// Drops the last comparison of an index if its header has changed.
    pub(super) fn index_read(&mut self, ix: TargetIx, before: &Facts, now: &Facts) {
        if [FactKind::File, FactKind::UpdateSeq].iter().any(|it| before.get(*it) != now.get(*it)) {
            self.superseded(ix);
        }
    }

    /// Whether the headers of a node are distrusted in this sweep.
    pub(super) fn distrusts(&self, node: NodeIx) -> bool {
        self.distrusted.contains(&node)
    }

    /// Whether two sources of a node were compared in this sweep.
    pub(super) fn has_compared(&self, node: NodeIx) -> bool {
        self.compared.contains(&node)
    }

    /// The number of targets of each node for which the sources disagree.
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
    fn header_without_compacted_seq_suffices_after_couchdb_answered() {
        let (_, _, ix) = one_target();
        let mut headers = HeaderCoverage::default();
        assert!(headers.is_exact(ix, &file(ReportMatch::Identical, true)));
        assert!(!headers.is_exact(ix, &file(ReportMatch::Different, true)));
        assert!(!headers.is_exact(ix, &file(ReportMatch::ExceptCompactedSeq, true)));
        headers.couchdb_answered(ix);
        assert!(headers.is_exact(ix, &file(ReportMatch::ExceptCompactedSeq, true)));
        assert!(
            !headers.is_exact(ix, &file(ReportMatch::ExceptCompactedSeq, false)),
            "the file was replaced"
        );
        assert!(
            !headers.is_exact(ix, &file(ReportMatch::ExceptCompactedSeq, true)),
            "CouchDB was not asked since"
        );
    }

    #[test]
    fn distrusts_node_after_disagreement_until_sources_agree() {
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
    fn changed_index_or_removed_target_ends_disagreement() {
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
    fn each_sweep_counts_its_shards_from_zero() {
        let mut headers = HeaderCoverage::default();
        headers.count_followed(4);
        headers.count_shards(2, 3);
        headers.count_shards(1, 0);
        assert_eq!(headers.shards(), SweptShards { asked: 3, covered: 3, followed: 4 });
        headers.begin_sweep(Draft::new(1).current());
        assert_eq!(headers.shards(), SweptShards::default());
    }
}
