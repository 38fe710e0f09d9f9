//! Databases that are mostly deleted documents.

use super::super::Rule;
use crate::{
    advice::{DbSurvey, Finding, Findings, Gain, Remedy, Severity, Situation, Subject},
    model::correction::TOMBSTONE_BYTES,
    table::DbIx,
    text::{grouped, size::format_size_short},
};
use couchdb_names::encode_part;
use serde_json::json;

pub(super) const RULE: Rule = Rule {
    code: "deleted_documents",
    finds: "Databases of which a large share of all documents is deleted.",
    because: "CouchDB keeps an entry for every deleted document for good, in both trees of the database, so that deletions replicate; compaction keeps it too. An entry takes about 200 bytes in each copy (measured from 100 to 300), is read by every new index build and replication, and counts as live bytes. Only a purge, or a new database filled by a replication that leaves deletions out, removes it. It is a warning if nothing but deleted documents is left. The share is `advice.deleted_documents`.",
    severities: &[Severity::Info, Severity::Warning],
    untried: None,
    check,
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    for (ix, db) in situation.survey.dbs() {
        // CouchDB's own cannot be replaced by another.
        let is_own = situation.db_name(ix).starts_with('_');
        let Some(share) = deleted_share(db).filter(|_| !is_own) else { continue };
        let bytes = db.deleted_docs.saturating_mul(TOMBSTONE_BYTES).min(db.counted_bytes);
        let settings = situation.settings();
        if share * 100.0 < settings.deleted_documents_percent || bytes < settings.min_bytes {
            continue;
        }
        let severity = if db.docs == 0 { Severity::Warning } else { Severity::Info };
        findings.offer(severity, Gain::Bytes(bytes), || {
            finding(severity, situation, ix, db, (share, bytes))
        });
    }
}

/// The share of deleted documents; none while documents are not counted, and where there is none.
fn deleted_share(db: &DbSurvey) -> Option<f64> {
    let all = db.docs.saturating_add(db.deleted_docs);
    (db.counted_shards > 0 && all > 0).then(|| db.deleted_docs as f64 / all as f64)
}

fn finding(
    severity: Severity,
    situation: &Situation<'_>,
    ix: DbIx,
    db: &DbSurvey,
    (share, bytes): (f64, u64),
) -> Finding {
    let name = situation.db_name(ix);
    // A process may see only some of the copies, such as those on its node.
    let ranges = situation.snapshot().shard_map(ix).ranges.max(1);
    let copies = u64::from((db.counted_shards / ranges).max(1));
    let (deleted, docs) = (db.deleted_docs / copies, db.docs / copies);
    let says = if docs == 0 {
        format!(
            "{name} has no documents but {} deleted ones, which take about {} in all copies.",
            grouped(deleted),
            format_size_short(bytes)
        )
    } else {
        format!(
            "{name} has {} deleted documents and {} live ones; the deleted ones take about {} in all copies.",
            grouped(deleted),
            grouped(docs),
            format_size_short(bytes)
        )
    };
    let into = format!("{name}-new");
    let login = json!({ "basic": { "username": "", "password": "" } });
    let address = |db: &str| json!({ "url": format!("/{}", encode_part(db)), "auth": login });
    let replication = json!({
        "source": address(name), "target": address(&into), "create_target": true,
        "selector": { "_deleted": { "$exists": false } },
    });
    let mut remedy = vec![Remedy::choice(
        "Decide whether any client still has to learn of these deletions; a replica that never hears of one keeps its document.",
    )];
    if docs == 0 {
        remedy.push(Remedy::couchdb(
            "If the database is not needed any more, delete it:",
            "DELETE",
            &[name],
            None,
        ));
    }
    remedy.push(Remedy::couchdb_with_variables(
        format!(
            "Copy the database without them to {into}. A node then uses $COUCHDB_URL, $COUCHDB_USER and $COUCHDB_PASSWORD itself:"
        ),
        &["_replicate"],
        &replication,
        &[
            ("/source/url", "COUCHDB_URL"),
            ("/source/auth/basic/username", "COUCHDB_USER"),
            ("/source/auth/basic/password", "COUCHDB_PASSWORD"),
            ("/target/url", "COUCHDB_URL"),
            ("/target/auth/basic/username", "COUCHDB_USER"),
            ("/target/auth/basic/password", "COUCHDB_PASSWORD"),
        ],
    ));
    remedy.push(Remedy::copy_document(
        format!("A replication leaves out who may read and write; copy that too, then switch clients to {into}:"),
        &[name, "_security"],
        &[&into, "_security"],
    ));
    Finding {
        severity,
        subject: Subject::Database(name.to_owned()),
        says,
        evidence: vec![
            ("deleted_documents", deleted.into()),
            ("documents", docs.into()),
            ("deleted_share", share.into()),
            ("deleted_bytes", bytes.into()),
        ],
        gain: Gain::Bytes(bytes),
        remedy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::test_cluster::{Shard, TestCluster};

    const MIB: u64 = 1 << 20;

    fn found(docs: u64, deleted: u64) -> Vec<Finding> {
        let shard = |node| Shard::new("orders", node, 0, 900 * MIB).with_docs(docs, deleted);
        TestCluster::with_shards(&[shard("a"), shard("b")]).findings_of(&RULE)
    }

    #[test]
    fn from_the_share_on_it_is_advice() {
        let some = found(1_000_000, 1_000_000);
        let [only] = &some[..] else { panic!("{some:?}") };
        assert_eq!((only.severity, only.gain), (Severity::Info, Gain::Bytes(400_000_000)));
        assert_eq!(
            only.says,
            "orders has 1,000,000 deleted documents and 1,000,000 live ones; the deleted ones take about 381 MiB in all copies."
        );
        assert_eq!(found(1_000_001, 1_000_000), []);
        assert_eq!(found(100, 100_000), [], "they take too little");
    }

    #[test]
    fn a_copy_takes_the_login_of_the_shell_and_the_rights_too() {
        let found = found(1_000_000, 1_000_000);
        let texts: Vec<&str> =
            found[0].remedy.iter().filter_map(|remedy| remedy.text.as_deref()).collect();
        assert!(texts[0].contains(r#""url":"'"${COUCHDB_URL}"'/orders-new""#), "{}", texts[0]);
        assert!(texts[0].contains(r#""password":"'"${COUCHDB_PASSWORD}"'""#), "{}", texts[0]);
        assert_eq!(
            texts[1],
            "curl -f -u \"$COUCHDB_USER\" \"$COUCHDB_URL\"/orders/_security | curl -u \"$COUCHDB_USER\" -X PUT -H 'Content-Type: application/json' \"$COUCHDB_URL\"/orders-new/_security -d @-"
        );
    }

    #[test]
    fn what_couchdb_keeps_for_itself_is_not_replaced() {
        let shard = Shard::new("_dbs", "a", 0, 900 * MIB).with_docs(10, 1_000_000);
        assert_eq!(TestCluster::with_shards(&[shard]).findings_of(&RULE), []);
    }

    #[test]
    fn a_process_that_sees_one_copy_counts_each_document_once() {
        let shard = |range| Shard::new("orders", "a", range, 900 * MIB);
        let counted = |range| shard(range).with_docs(500_000, 500_000);
        let others = |range| Shard { node: "b", ..shard(range) };
        let shards = [counted(0), counted(1), others(0), others(1)];
        let found = TestCluster::with_shards(&shards).findings_of(&RULE);
        assert!(found[0].says.starts_with("orders has 1,000,000 deleted"), "{}", found[0].says);
    }

    #[test]
    fn a_database_of_nothing_else_is_a_warning() {
        assert_eq!(found(0, 1_000_000)[0].severity, Severity::Warning);
    }

    #[test]
    fn without_counts_it_is_silent() {
        let shard = Shard::new("orders", "a", 0, 900 * MIB);
        assert_eq!(TestCluster::with_shards(&[shard]).findings_of(&RULE), []);
    }
}
