//! The targets' facts, and two tables that follow them: trusted headers and database events.
//!
//! Every measured fact enters through [`TargetTables::record`], so that no table misses one. Answers queries
//! about nodes and copies; decides nothing about a sweep.

use super::{
    DbEventBatch, EarlierProcess, ScanSettings, db_events::ChangeDetector,
    header_coverage::HeaderCoverage,
};
use crate::{
    model::{
        facts::{FactSource, Facts, ReadingComparison, compare_index, merge},
        target::{TargetKind, TargetState},
    },
    sources::inventory::{Databases, IndexAnswer},
    table::{DbIx, Draft, NodeIx, Snapshot, TargetIx, TargetRef},
};
use std::collections::BTreeMap;
use wall_clock::Moment;

/// The targets' facts, and the tables that follow them.
#[derive(Debug)]
pub(super) struct TargetTables {
    pub(super) draft: Draft,
    pub(super) headers: HeaderCoverage,
    pub(super) changes: ChangeDetector,
}

impl TargetTables {
    pub(super) fn new(top: usize) -> Self {
        Self {
            draft: Draft::new(top),
            headers: HeaderCoverage::default(),
            changes: ChangeDetector::default(),
        }
    }

    /// The tables with their unpublished changes.
    pub(super) const fn now(&self) -> &Snapshot {
        self.draft.current()
    }

    /// Records one source's measurement of a target, merged with the known facts.
    pub(super) fn record(&mut self, ix: TargetIx, measured: Facts) {
        let Some(target) = self.draft.current().target(ix) else { return };
        let node = target.node_ix();
        let (facts, verdict) = merge(&target.facts(), &measured);
        self.changes.shard_read(target, facts.update_seq.get());
        let source = |facts: &Facts| facts.measured_at.map(|it| it.source);
        match source(&measured) {
            Some(FactSource::Http) => self.headers.couchdb_answered(ix),
            Some(FactSource::Files)
                if verdict == ReadingComparison::Incomparable
                    && source(&target.facts()) == Some(FactSource::Http) =>
            {
                self.headers.superseded(ix);
            }
            Some(FactSource::Files) | None => {}
        }
        self.headers.compared(node, ix, verdict);
        self.draft.set_facts(ix, facts);
        if let Some(inside) = measured.inside {
            self.draft.set_inside(ix, inside);
        }
    }

    /// Compares CouchDB's facts of one shard's index with the header that was read.
    ///
    /// The cluster's sum is not compared, although the smallest and largest sums of all parts bound it.
    /// It is requested only if no copy can be requested by itself, and it says neither which copies it
    /// covers nor when they were read. So an index that was built or compacted after a sidecar read it
    /// would violate the bounds without any error, and a disagreement could not be assigned to a node,
    /// whose headers would have to be distrusted.
    pub(super) fn compare_index(
        &mut self,
        db: DbIx,
        index: &IndexAnswer,
        has_file: impl Fn(NodeIx, TargetIx) -> bool,
    ) {
        let snapshot = self.draft.current();
        let copy = index.copy.and_then(|ix| snapshot.target(ix));
        let Some(copy) = copy.filter(|it| it.kind() == TargetKind::Db && it.db() == db) else {
            return;
        };
        let node = copy.node_ix();
        let part = self.draft.find_part(node, db, copy.range(), index.signature);
        let Some(part) = part.filter(|ix| has_file(node, *ix)) else { return };
        if let Some(header) = snapshot.target(part) {
            self.headers.compared(node, part, compare_index(&header.facts(), &index.facts));
        }
    }

    /// Restores the measurements of an earlier process; returns the number of unreadable blocks.
    pub(super) fn restore(&mut self, before: EarlierProcess) -> usize {
        let mut damaged = 0;
        for block in before.blocks {
            if self.draft.restore(&block).is_err() {
                damaged += 1;
            }
        }
        self.changes.restored(&self.draft);
        before.marks.iter().for_each(|mark| self.changes.marked(mark, &mut self.draft));
        damaged
    }

    /// Takes the waiting database events.
    pub(super) fn take_events(&mut self, swept: Option<Moment>) -> DbEventBatch {
        self.changes.take(&self.draft, swept)
    }

    /// Sets the nodes that this process serves, and the number of exported databases.
    pub(super) fn serve(&mut self, settings: &ScanSettings) {
        self.draft.set_top(settings.top);
        for at in self.nodes(0) {
            self.draft.update_node(at, |node| {
                node.is_served = match at {
                    NodeIx::CLUSTER => settings.views,
                    _ => settings.nodes.has(&node.name),
                };
            });
        }
    }

    /// The positions of the nodes from `first` on.
    pub(super) fn nodes(&self, first: usize) -> impl Iterator<Item = NodeIx> + use<> {
        (first..self.now().nodes().len()).filter_map(NodeIx::from_usize)
    }

    /// The names of the served member nodes that are up, or down.
    pub(super) fn members(&self, up: bool, settings: &ScanSettings) -> Vec<String> {
        let nodes = self.now().nodes().iter().skip(1).filter(|node| {
            node.is_member && node.is_up == Some(up) && settings.nodes.has(&node.name)
        });
        nodes.map(|node| node.name.to_string()).collect()
    }

    pub(super) fn is_up(&self, node: NodeIx) -> bool {
        self.now().node(node).is_some_and(|node| node.answers())
    }

    /// The number of shards on these nodes. Excludes node-local databases, which have other
    /// addresses.
    pub(super) fn shard_count(&self, is_wanted: impl Fn(NodeIx) -> bool) -> usize {
        let shards = self.now().targets().filter(|target| {
            target.kind() == TargetKind::Db
                && target.range().is_some()
                && is_wanted(target.node_ix())
        });
        shards.count()
    }

    /// The wanted databases of the map, with the positions of their copies.
    pub(super) fn databases(&self, wanted: impl Fn(DbIx) -> bool) -> Databases {
        let mut dbs = Databases::default();
        for copies in self.copies(wanted).chunk_by(|(one, _), (other, _)| one == other) {
            dbs.push(copies.iter().map(|(_, ix)| *ix));
        }
        dbs
    }

    /// The copies of the wanted databases that are in their place in the map, database by database.
    pub(super) fn copies(&self, wanted: impl Fn(DbIx) -> bool) -> Vec<(DbIx, TargetIx)> {
        let mut copies: Vec<(DbIx, TargetIx)> = self
            .now()
            .targets()
            .filter(|target| target.kind() == TargetKind::Db && target.range().is_some())
            .filter(|target| target.shard_map().copies > 0 && target.state() == TargetState::Ok)
            .filter(|target| wanted(target.db()))
            .map(|target| (target.db(), target.ix()))
            .collect();
        copies.sort_unstable();
        copies
    }

    /// Whether CouchDB must confirm a shard's header. Feeds confirm that nothing was written since, but
    /// not that the header was exact.
    pub(super) fn needs_couchdb(&self, ix: TargetIx) -> bool {
        let target = self.now().target(ix).filter(|it| it.kind() == TargetKind::Db);
        target.is_some_and(|it| is_by_files(&it.facts()) && !self.is_header_trusted(it))
    }

    /// Whether a shard's header contains everything that CouchDB would report.
    pub(super) fn is_covered(&self, target: TargetRef<'_>) -> bool {
        let facts = target.facts();
        is_by_files(&facts)
            && self.is_header_trusted(target)
            // Only CouchDB says when a compaction has ended.
            && !facts.flags.compact_running
    }

    /// Whether a header contains everything that CouchDB would report and no disagreement is known on
    /// its node.
    fn is_header_trusted(&self, target: TargetRef<'_>) -> bool {
        target.facts().flags.exact && !self.headers.distrusts(target.node_ix())
    }

    /// Counts the disagreements between two sources on each node, for targets that both have read.
    pub(super) fn count_disagreements(&mut self, has_files: impl Fn(NodeIx) -> bool) {
        let counts = self.headers.disagreements(self.draft.current());
        for at in self.nodes(0) {
            let (compared, met) = (self.headers.has_compared(at), has_files(at));
            let count = counts.get(&at).copied().unwrap_or_default();
            self.draft.update_node(at, |node| {
                node.disagreements = if compared { Some(count) } else { node.disagreements };
                node.disagreements = node.disagreements.filter(|_| met);
            });
        }
    }

    /// Sets the age of the oldest fact of each node; confirmed facts count as measured now.
    pub(super) fn update_ages(&mut self, now: Moment) {
        let mut oldest: BTreeMap<(NodeIx, FactSource), Moment> = BTreeMap::new();
        // The facts of a cleanup are evidence, which does not age.
        for target in self.now().targets().filter(|it| it.kind() != TargetKind::Cleanup) {
            if let Some(measured) = target.facts().measured_at {
                let confirmed = self.now().is_confirmed(target.ix());
                let at = if confirmed { now.max(measured.at) } else { measured.at };
                let first = oldest.entry((target.node_ix(), measured.source)).or_insert(at);
                *first = at.min(*first);
            }
        }
        for at in self.nodes(0) {
            self.draft.update_node(at, |node| {
                node.oldest_fact = oldest.get(&(at, FactSource::Http)).copied();
                if let Some(disk) = &mut node.disk_usage {
                    disk.oldest_fact = oldest.get(&(at, FactSource::Files)).copied();
                }
            });
        }
    }
}

fn is_by_files(facts: &Facts) -> bool {
    facts.measured_at.is_some_and(|measured| measured.source == FactSource::Files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::facts::{Measurement, OptionalU64},
        table::DbName,
    };
    use couchdb_names::Range;

    const RANGE: Range = Range { from: 0, to: u32::MAX };

    fn one_shard() -> (TargetTables, NodeIx, TargetIx) {
        let mut targets = TargetTables::new(1);
        let draft = &mut targets.draft;
        let node = draft.get_or_add_node("couchdb@a");
        let db = draft.get_or_add_db(DbName { db: "a", suffix: ".1" });
        let ix = draft.get_or_add_shard(node, db, Some(RANGE));
        (targets, node, ix)
    }

    fn measured(by: FactSource, at: u64, seq: u64, active: u64) -> Facts {
        Facts {
            file_bytes: OptionalU64::new(100),
            update_seq: OptionalU64::new(seq),
            active_bytes: OptionalU64::new(active),
            measured_at: Some(Measurement { at: Moment::from_unix(at), source: by }),
            ..Facts::default()
        }
    }

    #[test]
    fn recorded_reading_updates_facts_headers_and_events() {
        let (mut targets, node, ix) = one_shard();
        targets.record(ix, measured(FactSource::Http, 5, 3, 10));
        assert_eq!(targets.now().target(ix).unwrap().facts().active_bytes.get(), Some(10));
        assert_eq!(targets.changes.waiting(), 0, "a first reading is not a change");
        targets.record(ix, measured(FactSource::Http, 6, 4, 10));
        assert_eq!(targets.changes.waiting(), 1);
        let header = measured(FactSource::Files, 7, 4, 11).marked_from_files();
        targets.record(ix, header);
        assert!(targets.headers.has_compared(node), "both say sequence 4");
        assert_eq!(targets.headers.disagreements(targets.now()), BTreeMap::from([(node, 1)]));
        targets.draft.remove(ix);
        targets.record(ix, measured(FactSource::Http, 8, 9, 10));
        assert_eq!(targets.changes.waiting(), 1, "no target has that position");
    }

    #[test]
    fn node_local_databases_do_not_count_as_shards() {
        let (mut targets, node, _) = one_shard();
        let name = DbName { db: "_nodes", suffix: "" };
        let local = targets.draft.get_or_add_db(name);
        targets.draft.get_or_add_shard(node, local, None);
        assert_eq!(targets.shard_count(|at| at == node), 1);
        assert_eq!(targets.shard_count(|at| at != node), 0);
    }

    #[test]
    fn age_of_a_node_follows_its_oldest_unconfirmed_fact() {
        let (mut targets, node, ix) = one_shard();
        targets.record(ix, measured(FactSource::Http, 5, 3, 10));
        let db = targets.draft.get_or_add_db(DbName { db: "b", suffix: ".1" });
        let other = targets.draft.get_or_add_shard(node, db, Some(RANGE));
        targets.record(other, measured(FactSource::Http, 8, 3, 10));
        let oldest = |targets: &TargetTables| targets.now().node(node).unwrap().oldest_fact;
        targets.update_ages(Moment::from_unix(20));
        assert_eq!(oldest(&targets), Some(Moment::from_unix(5)));
        targets.draft.set_feeds_complete_since(Some(Moment::from_unix(5)));
        targets.update_ages(Moment::from_unix(20));
        assert_eq!(oldest(&targets), Some(Moment::from_unix(20)));
        targets.draft.mark_unconfirmed(other);
        targets.update_ages(Moment::from_unix(20));
        assert_eq!(oldest(&targets), Some(Moment::from_unix(8)));
    }

    #[test]
    fn databases_include_only_copies_where_the_map_places_them() {
        let (mut targets, _, ix) = one_shard();
        let db = targets.now().target(ix).unwrap().db();
        assert!(targets.databases(|_| true).is_empty(), "the map does not have it");
        targets.draft.set_shard_map(db, crate::table::ShardMapEntry { copies: 2, ranges: 1 }, &[]);
        assert_eq!(targets.databases(|_| true).copies(0), [ix]);
        assert!(targets.databases(|_| false).is_empty());
        targets.draft.set_state(ix, TargetState::Missing);
        assert!(targets.databases(|_| true).is_empty());
    }
}
