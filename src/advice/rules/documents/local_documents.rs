//! Live bytes that are `_local` documents.

use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Subject, Wording},
    table::DbIx,
    text::size::format_size_short,
};
use std::collections::BTreeMap;

pub(crate) const RULE: Rule = Rule {
    code: "local_documents",
    finds: "Databases whose live data consists largely of `_local` documents.",
    because: "Replications, indexes and clients keep their checkpoints in `_local` documents. They count neither as documents nor in `external`, and nothing deletes unused ones: a client that gets a new identity leaves its old checkpoint behind. CouchDB counts them as live, so the ratio of the file stays low and every compaction keeps them (couchdb#1621: 11 MB of 18,000 of them beside 23 kB of documents). Their size is only in the files' headers, not visible over HTTP, so the rule is silent where no directory is read. It is unknown how many are still needed, so no gain is given.",
    ..Rule::info(check)
};

/// Share of live bytes from which `_local` documents count as the reason why the file is large.
const MIN_SHARE: f64 = 0.1;

/// Sums over the shards of one database that were read.
#[derive(Clone, Copy, Debug, Default)]
struct LocalBytes {
    shards: u64,
    bytes: u64,
    active_bytes: u64,
}

impl LocalBytes {
    fn share(&self) -> f64 {
        self.bytes as f64 / self.active_bytes.max(1) as f64
    }
}

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let mut dbs: BTreeMap<DbIx, LocalBytes> = BTreeMap::new();
    let overheads = situation.snapshot().overheads();
    for (shard, overhead) in overheads.filter(|(_, it)| it.has_many_locals()) {
        let Some(bytes) = overhead.local_bytes.get() else { continue };
        let Some(active_bytes) = shard.active_bytes() else { continue };
        let db = dbs.entry(shard.db()).or_default();
        db.shards += 1;
        db.bytes = db.bytes.saturating_add(bytes);
        db.active_bytes = db.active_bytes.saturating_add(active_bytes);
    }
    for (ix, db) in dbs {
        if db.bytes >= situation.settings().min_bytes && db.share() >= MIN_SHARE {
            findings.offer(Gain::Unknown, || finding(situation.db_name(ix), &db));
        }
    }
}

fn finding(name: &str, db: &LocalBytes) -> Wording {
    Wording {
        subject: Subject::Database(name.to_owned()),
        says: format!(
            "{name} has {} of `_local` documents, {:.0} % of the live data of the shards that have many; compaction keeps them.",
            format_size_short(db.bytes),
            db.share() * 100.0,
        ),
        evidence: vec![
            ("local_documents_bytes", db.bytes.into()),
            ("active_bytes", db.active_bytes.into()),
            ("shard_copies", db.shards.into()),
        ],
        remedy: vec![
            Remedy::get("See which clients they belong to:", &[name, "_local_docs"]),
            "Delete (DELETE /DB/_local/ID) those of replications and clients that no longer exist; a client whose checkpoint is deleted starts again from the beginning. Keep CouchDB's own, which begin with `_local/shard-sync-` and `_local/purge-`. Then compact the database.".into(),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::{
        advice::{
            Severity,
            test_cluster::{Shard, TestCluster},
        },
        model::facts::{OptionalU64, Overhead},
    };

    const MIB: u64 = 1 << 20;

    /// Two copies with this many MiB of `_local` documents among 400 MiB.
    fn found(local: Option<u64>) -> Vec<Finding> {
        let shard = |node| Shard::new("orders", node, 0, 900 * MIB).with_active(400 * MIB);
        let mut cluster = TestCluster::with_shards(&[shard("a"), shard("b")]);
        let local_bytes = local.map(|mib| mib * MIB).map_or(OptionalU64::UNKNOWN, OptionalU64::new);
        cluster.set_overhead("orders", Overhead { local_bytes, ..Overhead::default() });
        cluster.findings_of(&RULE)
    }

    #[test]
    fn reports_local_documents_from_a_tenth_of_the_live_data() {
        let found = found(Some(40));
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "orders has 80 MiB of `_local` documents, 10 % of the live data of the shards that have many; compaction keeps them."
        );
        assert_eq!((only.severity, only.gain), (Severity::Info, Gain::Unknown));
    }

    #[test]
    fn is_silent_below_a_tenth_or_if_headers_were_not_read() {
        assert_eq!(found(Some(39)), []);
        assert_eq!(found(None), []);
    }

    #[test]
    fn ignores_local_documents_of_a_few_megabytes() {
        let shard = Shard::new("small", "a", 0, 12 * MIB);
        let mut cluster = TestCluster::with_shards(&[shard]);
        let local_bytes = OptionalU64::new(11 * MIB);
        cluster.set_overhead("small", Overhead { local_bytes, ..Overhead::default() });
        assert_eq!(cluster.findings_of(&RULE), []);
    }
}
