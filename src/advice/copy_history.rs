//! Which copies of shards differ, and since when.
//!
//! Records for each range whose copies differ since when they have differed and since when nothing was written to
//! them. A plain value, kept by [`AdviceTask`](super::AdviceTask). Commands that read the cluster once have none,
//! because one reading cannot tell a lasting difference from a write in progress.

use super::Survey;
use crate::{
    model::{facts::Facts, target::TargetState},
    table::{DbIx, Snapshot, TargetIx, TargetRef},
};
use couchdb_names::Range;
use std::{collections::BTreeMap, time::Duration};
use wall_clock::Moment;

/// How long copies that differ must have gone without writes. CouchDB retries after five seconds what it could
/// not replicate between them.
const QUIET: Duration = Duration::from_secs(300);

/// Maximum number of remembered ranges, which limits the cost if all copies of a cluster differ.
const MAX_RANGES: usize = 10_000;

/// What a copy contains. All copies of a range that has been replicated have the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyReading {
    /// The copy.
    pub ix: TargetIx,
    /// Documents that are not deleted.
    pub docs: u64,
    /// Deleted documents.
    pub deleted: u64,
    /// Uncompressed bytes of its documents; none if unknown.
    pub external_bytes: Option<u64>,
    /// Purges that it has seen; `None` if there were none or the number is unknown.
    pub purge_seq: Option<u64>,
    /// Its own sequence, which differs between copies.
    update_seq: u64,
    /// When it was read.
    read_at: Moment,
    /// Until when it is known to be unchanged.
    holds_until: Moment,
}

impl CopyReading {
    /// The reading of a copy on a node that answers, with its range; `None` if a number is unknown.
    pub(super) fn of(snapshot: &Snapshot, target: TargetRef<'_>) -> Option<(Range, Self)> {
        let is_up = snapshot.node(target.node_ix())?.answers();
        let range = target.range().filter(|_| is_up && target.state() == TargetState::Ok)?;
        let facts: Facts = target.facts();
        let read_at = facts.measured_at?.at;
        let is_confirmed = snapshot.is_confirmed(target.ix());
        let reading = Self {
            ix: target.ix(),
            docs: facts.docs.get()?,
            deleted: facts.deleted_docs.get()?,
            external_bytes: facts.external_bytes.get(),
            purge_seq: target.overhead().and_then(|it| it.purge_seq.get()),
            update_seq: facts.update_seq.get()?,
            read_at,
            holds_until: if is_confirmed { read_at.max(snapshot.generated_at()) } else { read_at },
        };
        Some((range, reading))
    }

    const fn counts(&self) -> (u64, u64) {
        (self.docs, self.deleted)
    }
}

/// The copies of a range that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyDifference {
    /// The copies, by node.
    pub copies: Vec<CopyReading>,
    /// Since when they have differed, regardless of writes in between.
    pub since: Moment,
    /// When all copies had been read for the first time after the last write.
    quiet_from: Moment,
}

impl CopyDifference {
    /// Whether numbers of documents differ, and not only their bytes.
    pub fn in_documents(&self) -> bool {
        differ(&self.copies, |copy| copy.counts())
    }

    /// Whether the copies saw different purges. A copy that was created after a purge may lack it.
    pub fn in_purges(&self) -> bool {
        differ(&self.copies, |copy| copy.purge_seq)
    }

    /// Whether nothing was written to any copy for long enough: each was read again with its sequence unchanged.
    fn is_quiet(&self) -> bool {
        let held = self.copies.iter().map(|copy| copy.holds_until).min();
        held.is_some_and(|until| self.quiet_from.age(until) >= QUIET)
    }

    /// The same with later readings.
    fn updated(&self, copies: Vec<CopyReading>) -> Self {
        let sequences = |copies: &[CopyReading]| -> Vec<_> {
            copies.iter().map(|copy| (copy.ix, copy.update_seq, copy.counts())).collect()
        };
        let is_same = sequences(&self.copies) == sequences(&copies);
        let now = Self::new(copies);
        let quiet_from = if is_same { self.quiet_from } else { now.quiet_from };
        Self { since: self.since, quiet_from, ..now }
    }

    fn new(copies: Vec<CopyReading>) -> Self {
        let read_at = copies.iter().map(|copy| copy.read_at).max().unwrap_or_default();
        Self { copies, since: read_at, quiet_from: read_at }
    }
}

/// Whether any two copies differ in this value.
fn differ<T, V: PartialEq>(copies: &[T], of: impl Fn(&T) -> V) -> bool {
    copies.windows(2).any(|pair| of(&pair[0]) != of(&pair[1]))
}

/// All ranges whose copies differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyHistory(BTreeMap<(DbIx, Range), CopyDifference>);

impl CopyHistory {
    /// The history updated with the current readings; ranges whose copies agree, or are not all known, are
    /// dropped.
    pub fn updated(&self, snapshot: &Snapshot, survey: &Survey) -> Self {
        let mut found = BTreeMap::new();
        let mut copies: Vec<(Range, CopyReading)> = Vec::new();
        for (db, sums) in survey.dbs() {
            let map = snapshot.shard_map(db);
            let has_copies = map.copies > map.ranges;
            if !has_copies || sums.shards != map.copies || sums.counted_shards != sums.shards {
                continue;
            }
            copies.clear();
            let shards = survey.shards_of(db).filter_map(|row| snapshot.target_at(row));
            copies.extend(shards.filter_map(|shard| CopyReading::of(snapshot, shard)));
            if copies.len() < map.copies as usize {
                continue;
            }
            copies.sort_unstable_by_key(|(range, copy)| (*range, copy.ix));
            for same in copies.chunk_by(|one, other| one.0 == other.0) {
                let in_bytes = same.iter().all(|(_, copy)| copy.external_bytes.is_some())
                    && differ(same, |(_, copy)| copy.external_bytes);
                if !in_bytes && !differ(same, |(_, copy)| copy.counts()) {
                    continue;
                }
                let range = same[0].0;
                let copies: Vec<CopyReading> = same.iter().map(|(_, copy)| *copy).collect();
                let before = self.0.get(&(db, range));
                let difference = match before {
                    Some(before) => before.updated(copies),
                    None => CopyDifference::new(copies),
                };
                found.insert((db, range), difference);
                if found.len() >= MAX_RANGES {
                    return Self(found);
                }
            }
        }
        Self(found)
    }

    /// The differences that no write explains, by database.
    pub fn lasting(&self) -> impl Iterator<Item = (DbIx, Range, &CopyDifference)> {
        let quiet = self.0.iter().filter(|(_, difference)| difference.is_quiet());
        quiet.map(|((db, range), difference)| (*db, *range, difference))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advice::test_cluster::{NOW, Shard, TestCluster},
        model::{
            facts::{FactSource, Measurement, OptionalU64},
            target::TargetState,
        },
    };

    /// A later reading of two copies: sequence and documents of each; `None` if not read.
    type Reading = (u64, [Option<(u64, u64)>; 2]);

    fn cluster() -> TestCluster {
        let shard = |node| Shard::new("orders", node, 0, 1 << 20);
        let mut cluster = TestCluster::new();
        cluster.add_shard(&shard("a"));
        cluster.add_shard(&shard("b"));
        cluster
    }

    fn read(cluster: &mut TestCluster, (seconds, copies): Reading) {
        let at = Moment::from_unix(NOW.unix() + seconds);
        let targets: Vec<_> =
            cluster.draft.current().targets().map(|it| (it.ix(), it.facts())).collect();
        for ((ix, facts), copy) in targets.into_iter().zip(copies) {
            let Some((seq, docs)) = copy else { continue };
            let measured_at = Some(Measurement { at, source: FactSource::Http });
            let [update_seq, docs] = [seq, docs].map(OptionalU64::new);
            let deleted_docs = OptionalU64::new(0);
            let facts = Facts { update_seq, docs, deleted_docs, measured_at, ..facts };
            cluster.draft.set_facts(ix, facts);
        }
    }

    fn look(cluster: &mut TestCluster, history: &CopyHistory, copies: u32) -> CopyHistory {
        let db = cluster.draft.current().targets().next().unwrap().db();
        let map = crate::table::ShardMapEntry { copies, ranges: 1 };
        cluster.draft.set_shard_map(db, map, &[]);
        let snapshot = cluster.draft.publish(NOW);
        history.updated(&snapshot, &Survey::of(&snapshot, NOW))
    }

    /// Seconds since the difference began; `None` unless it lasts.
    fn since(readings: &[Reading]) -> Option<u64> {
        let (mut cluster, mut history) = (cluster(), CopyHistory::default());
        for reading in readings {
            read(&mut cluster, *reading);
            history = look(&mut cluster, &history, 2);
        }
        let mut lasting = history.lasting();
        lasting.next().map(|(_, _, difference)| difference.since.unix() - NOW.unix())
    }

    #[test]
    fn difference_counts_as_lasting_after_each_copy_is_reread() {
        let differ = [Some((9, 5)), Some((7, 4))];
        for (readings, expected) in [
            (&[(0, differ)][..], None),
            (&[(0, differ), (299, differ)], None),
            (&[(0, differ), (300, differ)], Some(0)),
            (&[(0, differ), (900, [None, Some((7, 4))])], None),
            (&[(0, differ), (900, [None, Some((7, 4))]), (901, [Some((9, 5)), None])], Some(0)),
            (&[(0, differ), (600, [Some((10, 6)), Some((8, 5))])], None),
            (
                &[
                    (0, differ),
                    (600, [Some((10, 6)), Some((8, 5))]),
                    (900, [Some((10, 6)), Some((8, 5))]),
                ],
                Some(0),
            ),
            (&[(0, differ), (600, differ), (700, [None, Some((9, 5))])], None),
            (&[(0, differ), (600, differ), (700, [Some((10, 5)), None])], None),
            (
                &[(0, differ), (600, [Some((9, 5)), Some((9, 5))]), (700, differ), (1000, differ)],
                Some(700),
            ),
        ] {
            assert_eq!(since(readings), expected, "{readings:?}");
        }
    }

    #[test]
    fn no_difference_is_reported_while_a_copy_is_unknown_or_split() {
        let differ = |seconds| (seconds, [Some((9, 5)), Some((7, 4))]);
        let after = |change: fn(&mut TestCluster), copies| {
            let mut cluster = cluster();
            read(&mut cluster, differ(0));
            let history = look(&mut cluster, &CopyHistory::default(), 2);
            read(&mut cluster, differ(600));
            change(&mut cluster);
            look(&mut cluster, &history, copies).lasting().count()
        };
        fn second(cluster: &TestCluster) -> (TargetIx, Facts) {
            let target = cluster.draft.current().targets().nth(1).unwrap();
            (target.ix(), target.facts())
        }
        fn set_state(cluster: &mut TestCluster, state: TargetState) {
            cluster.draft.set_state(second(cluster).0, state);
        }
        assert_eq!(after(|_| {}, 2), 1);
        assert_eq!(after(|_| {}, 3), 0, "a copy is in the map alone");
        assert_eq!(after(|cluster| set_state(cluster, TargetState::Missing), 2), 0);
        assert_eq!(after(|cluster| set_state(cluster, TargetState::Unknown), 2), 0);
        assert_eq!(after(|cluster| set_state(cluster, TargetState::Resharding), 2), 0);
        let is_down = |cluster: &mut TestCluster| {
            let node = cluster.draft.find_node("b").unwrap();
            cluster.draft.update_node(node, |node| node.is_up = Some(false));
        };
        assert_eq!(after(is_down, 2), 0);
        let forget = |cluster: &mut TestCluster| {
            let (ix, facts) = second(cluster);
            cluster.draft.set_facts(ix, Facts { docs: OptionalU64::UNKNOWN, ..facts });
        };
        assert_eq!(after(forget, 2), 0);
    }

    #[test]
    fn byte_difference_counts_only_if_all_copies_are_measured() {
        let found = |bytes: [Option<u64>; 2]| {
            let (mut cluster, mut history) = (cluster(), CopyHistory::default());
            for seconds in [0, 300] {
                read(&mut cluster, (seconds, [Some((9, 5)), Some((7, 5))]));
                let targets: Vec<_> =
                    cluster.draft.current().targets().map(|it| (it.ix(), it.facts())).collect();
                for ((ix, facts), bytes) in targets.into_iter().zip(bytes) {
                    cluster.draft.set_facts(ix, Facts { external_bytes: bytes.into(), ..facts });
                }
                history = look(&mut cluster, &history, 2);
            }
            let mut lasting = history.lasting();
            lasting.next().map(|(_, _, difference)| difference.in_documents())
        };
        assert_eq!(found([Some(70), Some(70)]), None);
        assert_eq!(found([Some(70), Some(71)]), Some(false));
        assert_eq!(found([Some(70), None]), None);
    }
}
