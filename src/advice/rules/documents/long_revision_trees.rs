//! Live bytes that are trees of old revisions that nobody reads.

use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Subject, Wording},
    table::DbIx,
    text::size::format_size_short,
};
use std::collections::BTreeMap;

pub(crate) const RULE: Rule = Rule {
    code: "long_revision_trees",
    finds: "Databases whose live data consists largely of ids of old revisions.",
    because: "CouchDB keeps the ids of the last `_revs_limit` revisions of each document, 1000 by default, in both of its trees, and compactions copy them (WMCore#8886: 149 GB, a tenth with a limit of 10). Replication needs them only to recognise that a peer's document is an earlier version, so a limit above the number of writes to a document while a peer is offline is enough. Only the files' contents show their size, so the rule is silent where neither recliner nor a sidecar has read them.",
    untried: Some(
        "it takes many documents with over a hundred revisions, in files that recliner reads",
    ),
    ..Rule::info(check)
};

/// Share of live bytes from which they count as the reason why the file is large.
const MIN_SHARE: f64 = 0.2;

/// The limit that is proposed: the trees that count have more revisions.
const PROPOSED: u64 = 100;

/// Sums over the shards of one database that were X-rayed.
#[derive(Clone, Copy, Debug, Default)]
struct Trees {
    shards: u64,
    bytes: u64,
    left_bytes: u64,
    limit: u64,
}

impl Trees {
    fn share(&self) -> f64 {
        self.bytes as f64 / self.left_bytes.max(1) as f64
    }
}

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let mut dbs: BTreeMap<DbIx, Trees> = BTreeMap::new();
    for (shard, inside) in situation.snapshot().insides() {
        let known = inside.revision_bytes.get().zip(inside.revs_limit.get());
        let Some((bytes, limit)) = known.filter(|(_, limit)| *limit > PROPOSED) else { continue };
        let db = dbs.entry(shard.db()).or_default();
        db.shards += 1;
        db.bytes = db.bytes.saturating_add(bytes);
        db.left_bytes = db.left_bytes.saturating_add(inside.left_bytes);
        db.limit = db.limit.max(limit);
    }
    for (ix, db) in dbs {
        if db.bytes >= situation.settings().min_bytes && db.share() >= MIN_SHARE {
            findings.offer(Gain::Unknown, || finding(situation.db_name(ix), &db));
        }
    }
}

fn finding(name: &str, db: &Trees) -> Wording {
    let limit = serde_json::json!(PROPOSED);
    Wording {
        subject: Subject::Database(name.to_owned()),
        says: format!(
            "{name} keeps up to {} revisions of a document: trees with more than {PROPOSED} take {} now; compactions with this limit would leave {} in the shards that were read.",
            db.limit,
            format_size_short(db.bytes),
            format_size_short(db.left_bytes),
        ),
        evidence: vec![
            ("revision_bytes", db.bytes.into()),
            ("left_bytes", db.left_bytes.into()),
            ("revs_limit", db.limit.into()),
            ("shard_copies", db.shards.into()),
        ],
        remedy: vec![
            Remedy::tombstones(
                format!(
                    "See who replicates it, and how far behind each peer is. If a document may be written more than {PROPOSED} times before a peer comes back, choose a higher number; otherwise the peer's version becomes a conflict."
                ),
                name,
            ),
            Remedy::get(
                "Note the present limit, so that you can restore it:",
                &[name, "_revs_limit"],
            ),
            Remedy::couchdb(
                "Lower it; this drops nothing yet, and never a document:",
                "PUT",
                &[name, "_revs_limit"],
                Some(&limit),
            ),
            Remedy::compact_db(
                "Each compaction then drops the ids of older revisions; raising the limit again does not restore them.",
                name,
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advice::{
            Finding,
            test_cluster::{Shard, TestCluster},
        },
        model::facts::{Inside, OptionalU64},
    };

    const MIB: u64 = 1 << 20;

    /// Two copies of 400 MiB each after a compaction, `trees` bytes of them in revision trees.
    fn found(trees: Option<u64>, limit: u64) -> Vec<Finding> {
        let shard = |node| Shard::new("orders", node, 0, 900 * MIB).with_active(400 * MIB);
        let mut cluster = TestCluster::with_shards(&[shard("a"), shard("b")]);
        let inside = Inside {
            file_bytes: 900 * MIB,
            left_bytes: 400 * MIB,
            revision_bytes: trees.map(|mib| mib * MIB).into(),
            revs_limit: OptionalU64::new(limit),
            ..Inside::default()
        };
        cluster.set_inside("orders", inside);
        cluster.findings_of(&RULE)
    }

    #[test]
    fn reports_revision_trees_from_a_fifth_of_the_compacted_size() {
        let found = found(Some(80), 1_000);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "orders keeps up to 1000 revisions of a document: trees with more than 100 take 160 MiB now; compactions with this limit would leave 800 MiB in the shards that were read."
        );
        assert_eq!(only.gain, Gain::Unknown);
        let last = only.remedy.last().and_then(|remedy| remedy.text.as_deref());
        assert!(last.is_some_and(|line| line.ends_with("/orders/_compact")), "{last:?}");
    }

    #[test]
    fn ignores_small_shares_low_limits_and_shards_without_xray() {
        assert_eq!(found(Some(79), 1_000), []);
        assert_eq!(found(Some(300), 100), []);
        assert_eq!(found(None, 1_000), []);
    }
}
