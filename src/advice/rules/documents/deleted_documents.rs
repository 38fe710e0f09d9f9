//! Databases that are mostly deleted documents.

use crate::{
    advice::{DbSurvey, Findings, Gain, Remedy, Rule, Severity, Situation, Subject, Wording},
    model::correction::TOMBSTONE_BYTES,
    sources::tombstones::copy_name,
    table::DbIx,
    text::{grouped, quote::shell_word, size::format_size_short},
};
use couchdb_names::encode_part;
use serde_json::json;

pub(crate) const RULE: Rule = Rule {
    code: "deleted_documents",
    finds: "Databases in which a large share of all documents is deleted.",
    because: "CouchDB keeps an entry for every deleted document for ever, also in compactions, in both trees of the database, so that deletions replicate. An entry takes about 200 bytes in each copy (measured from 100 to 300), 40 more for each further revision, ten times as much where a deletion kept a body; `recliner tombstones DB` measures it, and says who still reads the deletions. New index builds and replications read it, and it counts as live bytes. Only a purge, or a new database filled by a replication without deletions, removes it. It is a warning if only deleted documents are left. The share is `advice.deleted_documents`.",
    severities: &[Severity::Info, Severity::Warning],
    ..Rule::info(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    for (ix, db) in situation.survey.dbs() {
        // CouchDB's own databases cannot be replaced by others.
        let is_own = situation.db_name(ix).starts_with('_');
        let Some(share) = deleted_share(db).filter(|_| !is_own) else { continue };
        let bytes = db.deleted_docs.saturating_mul(TOMBSTONE_BYTES).min(db.counted_bytes);
        let settings = situation.settings();
        if share * 100.0 < settings.deleted_documents_percent || bytes < settings.min_bytes {
            continue;
        }
        let severity = if db.docs == 0 { Severity::Warning } else { Severity::Info };
        findings.offer_as(severity, Gain::Bytes(bytes), || finding(situation, ix, db, bytes));
    }
}

/// The share of deleted documents; `None` while documents are not counted, or if there are none.
fn deleted_share(db: &DbSurvey) -> Option<f64> {
    let all = db.docs.saturating_add(db.deleted_docs);
    (db.counted_shards > 0 && all > 0).then(|| db.deleted_docs as f64 / all as f64)
}

fn finding(situation: &Situation<'_>, ix: DbIx, db: &DbSurvey, bytes: u64) -> Wording {
    let share = deleted_share(db).unwrap_or_default();
    let name = situation.db_name(ix);
    // A process may see only some of the copies, such as those on its node.
    let ranges = situation.snapshot().shard_map(ix).ranges.max(1);
    let copies = u64::from((db.counted_shards / ranges).max(1));
    let (deleted, docs) = (db.deleted_docs / copies, db.docs / copies);
    let most = db.deleted_docs.saturating_mul(10 * TOMBSTONE_BYTES).min(db.counted_bytes);
    let take = match (format_size_short(bytes), format_size_short(most)) {
        (least, most) if least == most => least,
        (least, most) => format!("{least} to {most}"),
    };
    let says = if docs == 0 {
        format!(
            "{name} has only deleted documents, {} of them, which take {take} in all files.",
            grouped(deleted),
        )
    } else {
        format!(
            "{name} has {} deleted documents and {} live ones; the deleted ones take {take} in all files.",
            grouped(deleted),
            grouped(docs),
        )
    };
    let mut remedy = copy_without_deleted(name);
    if docs == 0 {
        let delete = "If the database is no longer needed, back up its design documents and its security object, then delete it.";
        remedy.insert(1, delete.into());
    }
    let first = "See who still needs the deletions, and how else to remove them:";
    remedy.insert(0, Remedy::tombstones(first, name));
    Wording {
        subject: Subject::Database(name.to_owned()),
        says,
        evidence: vec![
            ("deleted_documents", deleted.into()),
            ("documents", docs.into()),
            ("deleted_share", share.into()),
            ("deleted_bytes", bytes.into()),
        ],
        remedy,
    }
}

/// How to replace a database by one without its deleted documents, and what is lost.
pub(in crate::advice) fn copy_without_deleted(name: &str) -> Vec<Remedy> {
    let into = copy_name(name);
    vec![
        Remedy::choice(format!(
            "Decide whether any client still has to learn of these deletions; a replica that never receives one keeps its document. {into} also lacks the _local documents of {name} (checkpoints), its purges and old revisions, and its sequences start over: each replication, each client of _changes and each index starts from the beginning."
        )),
        copy_script(name, &into),
        catch_up_script(name, &into),
        Remedy::get(
            format!(
                "Compare its doc_count with that of {name}, then switch clients, and keep {name} for 30 days:"
            ),
            &[&into],
        ),
    ]
}

/// Lines that every script begins with. The replicator gets the password in a body, which curl reads as part of its
/// configuration, so that it is on no command line.
const REPLICATE: &str = r#"escaped() { printf %s "$1" | sed 's/[\\"]/\\&/g'; }
secret=$(escaped "$password")
replicate() { printf 'user = "%s"\ndata = "%s"\n' "$login" "$(escaped "$1")" | curl -sS -f -K - -X POST -H 'Content-Type: application/json' "$COUCHDB_URL"/_replicate; }"#;

/// The document in the copy that records from where the original has to be read again.
const COPIED_SINCE: &str = "/_local/copied-since";

/// Creates a database with the parameters of another, and copies its security object, its revision
/// limit and its documents, including design documents but not deleted ones.
fn copy_script(name: &str, into: &str) -> Remedy {
    let path = |db: &str| shell_word(&format!("/{}", encode_part(db))).into_owned();
    let (from, to) = (path(name), path(into));
    let selector = json!({ "selector": { "_deleted": { "$exists": false } } });
    let put = "ask -f -X PUT";
    let lines = [
        REPLICATE.to_owned(),
        format!("info=$(ask -f \"$COUCHDB_URL\"{from})"),
        "q=$(printf %s \"$info\" | sed -n 's/.*\"cluster\":{[^}]*\"q\":\\([0-9]*\\).*/\\1/p')"
            .to_owned(),
        "n=$(printf %s \"$info\" | sed -n 's/.*\"cluster\":{[^}]*\"n\":\\([0-9]*\\).*/\\1/p')"
            .to_owned(),
        "since=$(printf %s \"$info\" | sed -n 's/.*\"update_seq\":\"\\([^\"]*\\)\".*/\\1/p')"
            .to_owned(),
        "case $info in *'\"partitioned\":true'*) partitioned=true ;; *) partitioned=false ;; esac"
            .to_owned(),
        format!("security=$(ask -f \"$COUCHDB_URL\"{from}/_security)"),
        format!("limit=$(ask -f \"$COUCHDB_URL\"{from}/_revs_limit)"),
        format!("{put} \"$COUCHDB_URL\"{to}\"?q=${{q:?}}&n=${{n:?}}&partitioned=$partitioned\""),
        format!(
            "{put} -H 'Content-Type: application/json' \"$COUCHDB_URL\"{to}/_security -d \"$security\""
        ),
        format!("{put} \"$COUCHDB_URL\"{to}/_revs_limit -d \"$limit\""),
        format!("{put} \"$COUCHDB_URL\"{to}{COPIED_SINCE} -d '{{\"seq\":\"'\"${{since:?}}\"'\"}}'"),
        replicate(name, into, &selector, &[]),
    ];
    Remedy::script(
        format!(
            "Copy the database without them to {into}, which must not exist yet, with the same q, n, partitions and rights. One of the nodes will use $COUCHDB_URL, $COUCHDB_USER and the password itself:"
        ),
        &lines,
    )
}

/// Copies everything that was written since, including deletions: otherwise a document that was
/// copied and then deleted would survive in the copy.
fn catch_up_script(name: &str, into: &str) -> Remedy {
    let to = shell_word(&format!("/{}", encode_part(into))).into_owned();
    let lines = [
        REPLICATE.to_owned(),
        format!("copied=$(ask -f \"$COUCHDB_URL\"{to}{COPIED_SINCE})"),
        "since=$(printf %s \"$copied\" | sed -n 's/.*\"seq\":\"\\([^\"]*\\)\".*/\\1/p')".to_owned(),
        ": \"${since:?}\"".to_owned(),
        replicate(name, into, &json!({ "since_seq": "" }), &[("/since_seq", "since")]),
    ];
    Remedy::script(
        "Copy what was written and deleted since; when writes have stopped, repeat until it answers no_changes or writes no document:",
        &lines,
    )
}

/// The request for a replication with these options; the shell fills in the login.
fn replicate(
    name: &str,
    into: &str,
    options: &serde_json::Value,
    variables: &[(&str, &str)],
) -> String {
    let login = json!({ "basic": { "username": "", "password": "" } });
    let address = |db: &str| json!({ "url": format!("/{}", encode_part(db)), "auth": login });
    let mut replication = json!({ "source": address(name), "target": address(into) });
    if let (Some(all), Some(more)) = (replication.as_object_mut(), options.as_object()) {
        all.extend(more.clone());
    }
    let all: Vec<(&str, &str)> = [
        ("/source/url", "COUCHDB_URL"),
        ("/source/auth/basic/username", "COUCHDB_USER"),
        ("/source/auth/basic/password", "secret"),
        ("/target/url", "COUCHDB_URL"),
        ("/target/auth/basic/username", "COUCHDB_USER"),
        ("/target/auth/basic/password", "secret"),
    ]
    .into_iter()
    .chain(variables.iter().copied())
    .collect();
    let remedy = Remedy::couchdb_with_variables("", &["_replicate"], &replication, &all);
    let text = remedy.text.unwrap_or_default();
    let body = text.split_once(" -d ").map_or("", |(_, body)| body);
    format!("replicate {body}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::advice::test_cluster::{Shard, TestCluster};

    const MIB: u64 = 1 << 20;

    fn found(docs: u64, deleted: u64) -> Vec<Finding> {
        let shard = |node| Shard::new("orders", node, 0, 900 * MIB).with_docs(docs, deleted);
        TestCluster::with_shards(&[shard("a"), shard("b")]).findings_of(&RULE)
    }

    #[test]
    fn reports_deleted_documents_from_the_configured_share() {
        let some = found(1_000_000, 1_000_000);
        let [only] = &some[..] else { panic!("{some:?}") };
        assert_eq!((only.severity, only.gain), (Severity::Info, Gain::Bytes(400_000_000)));
        assert_eq!(
            only.says,
            "orders has 1,000,000 deleted documents and 1,000,000 live ones; the deleted ones take 381 MiB to 1.8 GiB in all files."
        );
        assert_eq!(found(1_000_001, 1_000_000), []);
        assert_eq!(found(100, 100_000), [], "they take too little");
    }

    #[test]
    fn replication_uses_the_shell_login_and_original_parameters() {
        let found = found(1_000_000, 1_000_000);
        let texts: Vec<&str> =
            found[0].remedy.iter().filter_map(|remedy| remedy.text.as_deref()).collect();
        let [first, texts @ ..] = &texts[..] else { panic!("{texts:?}") };
        assert_eq!(*first, "recliner tombstones orders --couchdb.url \"$COUCHDB_URL\"");
        for part in [
            r#""url":"'"${COUCHDB_URL}"'/orders-new""#,
            r#""password":"'"${secret}"'""#,
            "\"$COUCHDB_URL\"/orders-new\"?q=${q:?}&n=${n:?}&partitioned=$partitioned\"",
            "\"$COUCHDB_URL\"/orders-new/_security -d \"$security\"",
        ] {
            assert!(texts[0].contains(part), "{part} in {}", texts[0]);
        }
        assert!(!texts[0].contains("create_target"), "{}", texts[0]);
        for text in texts.iter().filter(|text| text.contains("\n")) {
            assert!(!text.contains("curl -u"), "it would ask for the password each time: {text}");
        }
    }

    #[test]
    fn ignores_couchdbs_own_databases() {
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
    fn database_of_only_deleted_documents_is_a_warning() {
        assert_eq!(found(0, 1_000_000)[0].severity, Severity::Warning);
    }

    #[test]
    fn is_silent_if_document_counts_are_unknown() {
        let shard = Shard::new("orders", "a", 0, 900 * MIB);
        assert_eq!(TestCluster::with_shards(&[shard]).findings_of(&RULE), []);
    }
}
