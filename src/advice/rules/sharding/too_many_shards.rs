//! Small databases with many ranges.

use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Subject, Wording},
    table::DbIx,
    text::{grouped, listed, size::format_size_short},
};

pub(crate) const RULE: Rule = Rule {
    code: "too_many_shards",
    finds: "Small databases that are divided into more ranges than their data needs.",
    because: "Each range is a file on each node with a copy. View queries, lists of documents and index builds open every range, and an index also has a file for each range. CouchDB keeps only `[couchdb] max_dbs_open` files open on a node, 500 by default, and closes others to open more, so with many small databases most requests open files. An empty file takes 8 KiB (measured with 3.5.0). The number of ranges is chosen when a database is created (`q`, by default `[cluster] q`); CouchDB can split ranges but not merge them. Shards below `advice.small_shard` are small; the rule reports them if one range per database would save `advice.surplus_shards` files.",
    ..Rule::info(check)
};

/// Bytes of a shard file without documents, as CouchDB 3.5.0 creates it.
const EMPTY_SHARD_BYTES: u64 = 8_348;

/// Number of databases that are named.
const MAX_NAMED: usize = 5;

/// The sums of all small databases with several ranges.
#[derive(Debug, Default)]
struct SmallDatabases {
    count: u64,
    shards: u64,
    surplus: u64,
    live_bytes: u64,
    /// The databases with the most surplus files, worst first.
    worst: Vec<(u64, DbIx)>,
}

impl SmallDatabases {
    fn of(situation: &Situation<'_>) -> Self {
        let mut small = Self::default();
        for (ix, db) in situation.survey.dbs() {
            let shards = u64::from(db.shards);
            let has_ranges = situation.snapshot().shard_map(ix).ranges >= 2;
            let limit = situation.settings().small_shard_bytes.saturating_mul(shards);
            if !has_ranges || db.unmeasured_shards > 0 || db.active_bytes >= limit {
                continue;
            }
            let surplus = shards.saturating_sub(situation.copies_of(ix));
            small.count += 1;
            small.shards += shards;
            small.surplus += surplus;
            small.live_bytes = small.live_bytes.saturating_add(db.active_bytes);
            let place = small.worst.partition_point(|(other, _)| *other >= surplus);
            if place < MAX_NAMED {
                small.worst.insert(place, (surplus, ix));
                small.worst.truncate(MAX_NAMED);
            }
        }
        small
    }
}

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let small = SmallDatabases::of(situation);
    if small.surplus == 0 || small.surplus < situation.settings().surplus_shards {
        return;
    }
    let gain = Gain::Bytes(small.surplus.saturating_mul(EMPTY_SHARD_BYTES));
    findings.offer(gain, || finding(situation, &small));
}

fn finding(situation: &Situation<'_>, small: &SmallDatabases) -> Wording {
    let name = |(surplus, ix): &(u64, DbIx)| format!("{} ({surplus})", situation.db_name(*ix));
    let worst = listed(&small.worst.iter().map(name).collect::<Vec<_>>());
    Wording {
        subject: Subject::Cluster,
        says: format!(
            "{} small {} with {} of live data {} {} shard files; with one range each, {} of them would not be needed, most of them by {worst}.",
            grouped(small.count),
            if small.count == 1 { "database" } else { "databases" },
            format_size_short(small.live_bytes),
            if small.count == 1 { "has" } else { "have" },
            grouped(small.shards),
            grouped(small.surplus),
        ),
        evidence: vec![
            ("databases", small.count.into()),
            ("shard_files", small.shards.into()),
            ("surplus_shard_files", small.surplus.into()),
            ("live_bytes", small.live_bytes.into()),
            ("worst", worst.into()),
        ],
        remedy: vec![
            Remedy::configuration(
                "Give new databases one range, on every node, or create each with ?q=1:",
                "[cluster]\nq = 1",
            ),
            "An existing database keeps its ranges: create another one with ?q=1, replicate to it, and switch clients. That is worth it for databases that are used often.".into(),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::test_cluster::{Shard, TestCluster};

    const KIB: u64 = 1 << 10;

    fn cluster(kib: u64) -> TestCluster {
        let shards = ["a", "b"].into_iter().flat_map(|node| {
            let shard = move |(db, range)| Shard::new(db, node, range, kib * KIB);
            (0..8)
                .map(|range| ("user-1", range))
                .chain((0..4).map(|range| ("user-2", range)))
                .map(shard)
        });
        let mut cluster = TestCluster::with_shards(&shards.collect::<Vec<_>>());
        cluster.settings.surplus_shards = 20;
        cluster
    }

    #[test]
    fn counts_surplus_files_and_names_the_worst_databases() {
        let found = cluster(100).findings_of(&RULE);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "2 small databases with 2.3 MiB of live data have 24 shard files; with one range each, 20 of them would not be needed, most of them by user-1 (14) and user-2 (6)."
        );
        assert_eq!(only.gain, Gain::Bytes(20 * EMPTY_SHARD_BYTES));
    }

    #[test]
    fn ignores_few_surplus_shards_and_large_shards() {
        let mut few = cluster(100);
        few.settings.surplus_shards = 21;
        assert_eq!(few.findings_of(&RULE), []);
        assert_eq!(cluster(1_024).findings_of(&RULE), []);
    }

    #[test]
    fn a_database_of_unknown_size_does_not_count() {
        let unknown = |range| Shard { active_bytes: None, ..Shard::new("user", "a", range, KIB) };
        let mut cluster = TestCluster::with_shards(&[unknown(0), unknown(1)]);
        cluster.settings.surplus_shards = 1;
        assert_eq!(cluster.findings_of(&RULE), []);
    }
}
