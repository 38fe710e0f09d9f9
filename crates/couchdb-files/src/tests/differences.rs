//! Every difference between a recorded file and CouchDB's report is explained.

use super::{
    files::{expected, file},
    *,
};
use serde_json::{Value, json};

/// Our values, under CouchDB's names.
fn facts(bytes: &dyn Bytes, headed: &FileHeader) -> Value {
    match &headed.header {
        Header::Db(db) | Header::Compaction(db) => json!({
            "file_bytes": headed.file_bytes, "active_bytes": db.active,
            "external_bytes": db.external, "update_seq": db.update_seq,
            "compacted_seq": db.compacted_seq, "purge_seq": last_purge(bytes, db), "docs": db.docs,
            "deleted_docs": db.deleted_docs, "disk_version": db.disk_version, "uuid": db.uuid,
        }),
        Header::View(view) => {
            let index = view.committed.as_ref();
            json!({
                "file_bytes": headed.file_bytes, "signature": view.signature.to_string(),
                "active_bytes": index.map_or(Some(0), |index| index.active),
                "external_bytes": index.and_then(|index| index.external),
                "update_seq": index.map_or(0, |index| index.update_seq),
                "purge_seq": index.map_or(0, |index| index.purge_seq),
                "collator_versions": index.map(|index| &index.collators),
            })
        }
    }
}

/// CouchDB's report, under our names.
fn http_values(http: &Value) -> Value {
    json!({
        "file_bytes": http["sizes"]["file"], "active_bytes": http["sizes"]["active"],
        "external_bytes": http["sizes"]["external"], "update_seq": http["update_seq"],
        "compacted_seq": http["compacted_seq"], "purge_seq": http["purge_seq"],
        "docs": http["doc_count"], "deleted_docs": http["doc_del_count"],
        "disk_version": http["disk_format_version"], "uuid": http["uuid"],
        "signature": http["signature"], "collator_versions": http["collator_versions"],
    })
}

#[test]
fn every_value_that_couchdb_reports_differently_is_explained() {
    let mut differing = Vec::new();
    for (name, expected) in expected() {
        let Some(http) = expected.get("http") else { continue };
        let path = expected["file_name"].as_str().unwrap_or(&name);
        let role = Role::of(path.rsplit('/').next().unwrap());
        let bytes = file(&name);
        let read = read(&bytes.as_slice());
        let explained = Difference::of(role, &read);
        let facts = read.as_ref().map_or(Value::Null, |headed| facts(&bytes.as_slice(), headed));
        for (fact, theirs) in http_values(http).as_object().unwrap() {
            let ours = facts.get(fact).unwrap_or(&Value::Null);
            if ours != theirs {
                let explained = explained.iter().any(|it| it.facts.contains(&fact.as_str()));
                assert!(explained, "{name}: {fact} is {ours} and CouchDB says {theirs}");
                differing.push(format!("{name} {fact}"));
            }
        }
    }
    assert!(differing.contains(&"compacted_no_local.couch compacted_seq".to_owned()));
    assert!(differing.contains(&"view_empty.view external_bytes".to_owned()));
}

#[test]
fn header_values_marked_as_matching_equal_couchdbs_report() {
    let mut alike = [0; 3];
    for (name, expected) in expected() {
        let bytes = file(&name);
        let bytes = bytes.as_slice();
        let Ok(headed) = read(&bytes) else { continue };
        let (Header::Db(db), Some(http)) = (&headed.header, expected.get("http")) else { continue };
        let reported = ReportMatch::of(db);
        alike[reported as usize] += 1;
        if reported == ReportMatch::Different {
            continue;
        }
        let (ours, theirs) = (facts(&bytes, &headed), http_values(http));
        for fact in
            ["file_bytes", "active_bytes", "external_bytes", "update_seq", "docs", "deleted_docs"]
        {
            assert_eq!(ours[fact], theirs[fact], "{name}: {fact}");
        }
        if reported == ReportMatch::Identical {
            assert_eq!(ours["compacted_seq"], theirs["compacted_seq"], "{name}");
        }
    }
    assert!(alike.iter().all(|count| *count > 0), "{alike:?}");
}

#[test]
fn predicts_what_couchdb_does_when_it_opens_each_file() {
    for (name, expected) in expected() {
        let Some(appended) = expected.get("couch_appended").and_then(Value::as_i64) else {
            continue;
        };
        let path = expected["file_name"].as_str().unwrap_or(&name);
        let bytes = file(&name);
        let opening =
            OpenAction::of(Role::of(path.rsplit('/').next().unwrap()), &read(&bytes.as_slice()));
        let kept = expected["couch_kept_prefix"].as_bool().unwrap();
        let error = expected["http"].get("error").is_some();
        match opening {
            OpenAction::Opens | OpenAction::Recovers { .. } => {
                assert_eq!((appended, kept), (0, true), "{name}")
            }
            OpenAction::Upgrades { .. } => assert!(appended > 0 && kept, "{name}"),
            OpenAction::Resets => {
                assert!(appended > 0 && kept, "{name}");
                assert_eq!(expected["http"]["update_seq"], 0, "{name}");
            }
            OpenAction::Rebuilds => assert!(!kept, "{name}"),
            OpenAction::Refuses => assert!(error && appended == 0, "{name}"),
            OpenAction::Continues
            | OpenAction::Adopts
            | OpenAction::Discards
            | OpenAction::Ignores => {
                panic!("{name}: {opening:?}")
            }
        }
    }
}
