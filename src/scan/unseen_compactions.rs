//! Which shards to read because a compaction that no poll showed may have ended there.
//!
//! CouchDB has no event for a compaction, and one of a few megabytes ends between two polls of
//! `_active_tasks`. The evidence is how often a node flushed a file to disk, which each poll reads after the
//! tasks: a compaction flushes about ten times (3.5.2), and so do writes and index builds. Feeds name the
//! databases that are written to, and those are read anyway. So when the count moved, the other shards of
//! the node are read too, those first in which a compaction would free the most and which were not read for
//! the longest time.
//!
//! What shows a compaction that another client started, and how soon:
//!
//! | | shows | after its end |
//! |---|---|---|
//! | tasks | one that ran during a poll, also of a file that is in no table yet | a poll, 5 s; 30 s in a quiet cluster |
//! | flushes, nothing else written | one of any shard | a poll, and 256 shards of its node per poll |
//! | flushes of a busy node | one of any shard | as many polls as the node has shards that rank higher, 16 per poll |
//! | a write, if feeds follow | one of a shard of the written database | a second |
//! | a sweep | one of a shard that no feed confirms, or whose file a walk of its directory found changed | `scan.interval` |
//! | a rare read | one of any other shard | `scan.interval_followed` |
//!
//! smoosh's own status has only sums of its queues, and `_db_updates` says nothing of compactions.

use crate::{
    model::target::TargetKind,
    table::{NodeIx, Snapshot, TargetIx, TargetRef},
    tasks::Now,
};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;
use wall_clock::Moment;

/// Shards of a node that are read with each poll while something is written: three reads a second.
const READS_PER_POLL: usize = 16;

/// Shards of a node that are read with each poll of a quiet cluster, where only a compaction or an index
/// build can have moved the count.
const READS_PER_QUIET_POLL: usize = 256;

/// Maximum number of a node's shards that are ranked at once.
const MAX_RANKED: usize = 4_096;

/// Shards are ranked at most this often: it visits every target.
const RANKING_PAUSE_PER_TARGET: Duration = Duration::from_micros(20);

/// Added to the bytes that a compaction would free, so that shards without waste have their turn too.
const LEAST_BYTES: u64 = 4 << 20;

/// The counts of flushes, and the shards that wait to be read because one moved.
#[derive(Debug, Default)]
pub(super) struct UnseenCompactions {
    flushes: BTreeMap<NodeIx, u64>,
    /// Nodes whose count moved since their shards were ranked.
    moved: BTreeSet<NodeIx>,
    /// The shards to read, the most urgent last.
    ranked: BTreeMap<NodeIx, Vec<TargetIx>>,
    next_ranking: Option<Instant>,
}

impl UnseenCompactions {
    /// Records a node's count from a poll. After a poll without a count, two more polls are needed
    /// before a change can be seen.
    pub(super) fn polled(&mut self, node: NodeIx, flushes: Option<u64>) {
        let before = match flushes {
            Some(flushes) => self.flushes.insert(node, flushes),
            None => self.flushes.remove(&node),
        };
        if before.is_some_and(|before| flushes.is_some_and(|now| now != before)) {
            self.moved.insert(node);
        }
    }

    /// Takes the shards to read after a poll.
    pub(super) fn take_due(&mut self, snapshot: &Snapshot, now: Now) -> Vec<TargetIx> {
        if !self.moved.is_empty() && self.next_ranking.is_none_or(|at| at <= now.at) {
            let targets = u32::try_from(snapshot.row_count()).unwrap_or(u32::MAX);
            self.next_ranking = Some(now.at + RANKING_PAUSE_PER_TARGET.saturating_mul(targets));
            self.rank(snapshot, now.wall);
        }
        let count = if snapshot.is_quiet() { READS_PER_QUIET_POLL } else { READS_PER_POLL };
        let mut due = Vec::new();
        for ranked in self.ranked.values_mut() {
            due.extend(ranked.drain(ranked.len().saturating_sub(count)..).rev());
        }
        self.ranked.retain(|_, ranked| !ranked.is_empty());
        due
    }

    /// Ranks the shards of the nodes whose count moved.
    fn rank(&mut self, snapshot: &Snapshot, now: Moment) {
        let moved = std::mem::take(&mut self.moved);
        let mut scores: BTreeMap<NodeIx, Vec<(f64, TargetIx)>> = BTreeMap::new();
        for target in snapshot.targets().filter(|target| moved.contains(&target.node_ix())) {
            let score = score(target, now).map(|score| (score, target.ix()));
            scores.entry(target.node_ix()).or_default().extend(score);
        }
        let by_score = |one: &(f64, TargetIx), other: &(f64, TargetIx)| -> Ordering {
            one.0.total_cmp(&other.0)
        };
        for (node, mut scores) in scores {
            let surplus = scores.len().saturating_sub(MAX_RANKED);
            if surplus > 0 {
                scores.select_nth_unstable_by(surplus, by_score);
                scores.drain(..surplus);
            }
            scores.sort_unstable_by(by_score);
            self.ranked.insert(node, scores.into_iter().map(|(_, ix)| ix).collect());
        }
    }
}

/// How urgent it is to read a shard: the age of its facts, times the square root of the bytes that a compaction would
/// free, so that small shards have their turn on a busy node. `None` for one that was never read, which a sweep reads
/// first, and for one whose compaction runs.
fn score(target: TargetRef<'_>, now: Moment) -> Option<f64> {
    if target.kind() != TargetKind::Db {
        return None;
    }
    let facts = target.facts();
    let age = facts.measured_at.filter(|_| !facts.flags.compact_running)?.at.age(now);
    let waste = target.correction().reclaimable_bytes(target.kind(), &facts).unwrap_or_default();
    Some((waste.saturating_add(LEAST_BYTES) as f64).sqrt() * age.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::facts::{FactSource, Facts, Measurement},
        table::{DbName, Draft},
    };

    fn at(seconds: u64) -> Now {
        Now { wall: Moment::from_unix(1_000 + seconds), at: Instant::now() }
    }

    /// Two nodes, each with this many shards, of which the later have more waste.
    fn tables(shards: u64) -> (Draft, [NodeIx; 2]) {
        let mut draft = Draft::new(1);
        let nodes = ["couchdb@a", "couchdb@b"].map(|name| draft.get_or_add_node(name));
        for number in 0..shards {
            for node in nodes {
                let db = draft.get_or_add_db(DbName { db: &format!("db{number:04}"), suffix: "" });
                let ix = draft.get_or_add_shard(node, db, None);
                let measured =
                    Measurement { at: Moment::from_unix(1_000), source: FactSource::Http };
                let facts = Facts {
                    measured_at: Some(measured),
                    ..Facts::sized((number + 1) << 20, 1 << 10)
                };
                draft.set_facts(ix, facts);
            }
        }
        (draft, nodes)
    }

    fn names(draft: &Draft, due: &[TargetIx]) -> Vec<String> {
        let name = |ix: &TargetIx| Some(draft.current().target(*ix)?.db_name().db.to_owned());
        due.iter().filter_map(name).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn most_wasteful_shards_of_a_flushing_node_are_read_first() {
        let (draft, [a, b]) = tables(40);
        let mut unseen = UnseenCompactions::default();
        for node in [a, b] {
            unseen.polled(node, Some(7));
        }
        assert!(unseen.take_due(draft.current(), at(5)).is_empty(), "nothing to compare with");
        unseen.polled(a, Some(7));
        unseen.polled(b, None);
        assert!(unseen.take_due(draft.current(), at(10)).is_empty(), "did not move; not said");
        unseen.polled(a, Some(17));
        unseen.polled(b, Some(99));
        let due = unseen.take_due(draft.current(), at(15));
        assert_eq!(due.len(), READS_PER_POLL);
        assert!(due.iter().all(|ix| draft.current().target(*ix).unwrap().node_ix() == a));
        assert_eq!(names(&draft, &due)[..2], ["db0039", "db0038"]);
        let rest: Vec<usize> =
            (0..3).map(|_| unseen.take_due(draft.current(), at(20)).len()).collect();
        assert_eq!(rest, [16, 8, 0], "each once");
    }

    #[tokio::test(start_paused = true)]
    async fn quiet_cluster_is_read_at_once_and_a_busy_node_in_batches() {
        let (mut draft, [a, _]) = tables(200);
        draft.set_quiet(true);
        let mut unseen = UnseenCompactions::default();
        unseen.polled(a, Some(1));
        unseen.polled(a, Some(2));
        assert_eq!(unseen.take_due(draft.current(), at(30)).len(), 200);
        draft.set_quiet(false);
        let mut read = BTreeSet::new();
        for poll in 1..=120_u64 {
            unseen.polled(a, Some(2 + poll));
            tokio::time::advance(Duration::from_secs(5)).await;
            let now = at(30 + 5 * poll);
            for ix in unseen.take_due(draft.current(), now) {
                read.insert(ix);
                let mut facts = draft.current().target(ix).unwrap().facts();
                facts.measured_at = Some(Measurement { at: now.wall, source: FactSource::Http });
                draft.set_facts(ix, facts);
            }
        }
        assert_eq!(read.len(), 200, "all have their turn, however often the count moves");
    }
}
