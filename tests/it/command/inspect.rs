//! `recliner inspect` on CouchDB's files, without a CouchDB.

use super::{Ran, recliner, widest};
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::PathBuf};

fn data() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/crates/couchdb-files/tests/data"))
}

async fn inspect(words: &[&str], columns: &str) -> Ran {
    let words: Vec<&str> = ["inspect"].iter().chain(words).copied().collect();
    recliner(&words, &[("COLUMNS", columns)]).await
}

fn path(name: &str) -> String {
    data().join(name).display().to_string()
}

#[tokio::test]
async fn inspect_matches_the_recorded_numbers() {
    let expected: BTreeMap<String, Value> =
        serde_json::from_slice(&fs::read(data().join("expected.json")).unwrap()).unwrap();
    let paths: Vec<String> = expected.keys().map(|name| path(name)).collect();
    let mut words = vec!["--format", "json"];
    words.extend(paths.iter().map(String::as_str));
    let ran = inspect(&words, "80").await;
    assert_eq!((ran.code, ran.err.as_str()), (1, ""), "three of the files have no valid header");
    let answer = ran.json();
    let files = answer["files"].as_array().unwrap();
    assert_eq!(files.len(), expected.len());
    for (file, (name, expected)) in files.iter().zip(&expected) {
        let parsed = &expected["parsed"];
        for (ours, recorded) in [
            ("file_bytes", &parsed["sizes"]["file"]),
            ("active_bytes", &parsed["sizes"]["active"]),
            ("external_bytes", &parsed["sizes"]["external"]),
            ("update_seq", &parsed["update_seq"]),
            ("compacted_seq", &parsed["compacted_seq"]),
            ("purge_seq", &parsed["purge_seq"]),
            ("docs", &parsed["doc_count"]),
            ("deleted_docs", &parsed["doc_del_count"]),
            ("uuid", &parsed["uuid"]),
            ("signature", &parsed["signature"]),
        ] {
            assert_eq!(&file[ours], recorded, "{name}: {ours}");
        }
        for field in ["offset", "bytes", "checksum", "rejected", "tail"] {
            assert_eq!(file["header"][field], parsed["header"][field], "{name}: header {field}");
        }
        assert_eq!(file["error"].is_null(), parsed["error"].is_null(), "{name}");
    }
}

#[tokio::test]
async fn inspect_output_fits_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let wrong = dir.path().join("9fc623f8178b1907d8922afdd34debf1.view");
    fs::copy(path("dmg_view_wrong_sig.view"), &wrong).unwrap();
    let names = [
        "updates.couch",
        "dmg_corrupt_last_header.couch",
        "dmg_no_header.couch",
        "syn_v7.couch",
        "syn_v9.couch",
        "run.couch.compact.data",
        "run.couch.compact.meta",
        "view_multi.view",
        "view_empty.view",
        "view_reset.view",
    ];
    let mut paths: Vec<String> = names.iter().map(|name| path(name)).collect();
    paths.push(wrong.display().to_string());
    let words: Vec<&str> = paths.iter().map(String::as_str).collect();
    let ran = inspect(&words, "80").await;
    assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{ran:?}");
    let data = data().display().to_string();
    let output = ran.out.replace(&data, "DIR").replace(&*dir.path().to_string_lossy(), "DIR");
    insta::assert_snapshot!(output);
    let lines: Vec<&str> = ran.out.lines().filter(|line| line.starts_with(' ')).collect();
    assert!(lines.len() > 100 && widest(&lines.join("\n")) <= 80, "{}", ran.out);
}

#[tokio::test]
async fn unreadable_file_does_not_affect_others() {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().display().to_string();
    let (none, good) = (path("none.couch"), path("empty.couch"));
    let ran = inspect(&[&none, &directory, &good], "80").await;
    assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{ran:?}");
    for says in ["cannot be opened: No such file", "is a directory; name the", "opens it as it is"]
    {
        assert!(ran.out.contains(says), "{says}: {}", ran.out);
    }
    let ran = inspect(&["--format", "json", &directory, &good], "80").await;
    let answer = ran.json();
    assert_eq!(answer["files"][0]["error"]["is"], "read_failed");
    assert_eq!(answer["files"][0]["file_bytes"], Value::Null);
    assert_eq!(answer["files"][1]["file_bytes"], 8348);
    assert_eq!(inspect(&[&good], "80").await.code, 0);
    assert_eq!(inspect(&[], "80").await.code, 64);
}

/// No file that CouchDB may write to is created or changed.
#[tokio::test]
async fn inspect_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("zero.couch");
    fs::copy(path("dmg_zero_length.couch"), &copy).unwrap();
    let ran = inspect(&[&copy.display().to_string()], "80").await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    assert_eq!(fs::metadata(copy).unwrap().len(), 0);
}

#[tokio::test]
async fn xray_reports_what_the_bytes_of_files_are() {
    let root = tempfile::tempdir().unwrap();
    let shards = ["00000000-7fffffff", "80000000-ffffffff"].map(|range| {
        let folder = root.path().join("shards").join(range).join("team");
        fs::create_dir_all(&folder).unwrap();
        for (name, file) in [("orders", "updates.couch"), ("orders-old", "deletes.couch")] {
            fs::copy(path(file), folder.join(format!("{name}.1795222434.couch"))).unwrap();
        }
        folder.join("orders.1795222434.couch").display().to_string()
    });
    let data = root.path().display().to_string();
    let views = root.path().join("views");
    let folder = views.join(".shards/00000000-7fffffff/team/orders.1795222434_design/mrview");
    fs::create_dir_all(&folder).unwrap();
    fs::copy(path("mango.view"), folder.join(format!("{}.view", "0f".repeat(16)))).unwrap();
    let words =
        ["xray", "team/orders", "--data-dir", &data, "--view-index-dir", views.to_str().unwrap()];
    let ran = recliner(&words, &[]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.out.starts_with("team/orders, 3 files\n"), "{}", ran.out);
    assert!(ran.out.contains("view rows") && ran.out.contains("winning bodies"), "{}", ran.out);
    let words = ["xray", "team/orders", "--data-dir", &data, "--format", "json"];
    let ran = recliner(&words, &[]).await;
    assert!(ran.code == 0 && ran.err.starts_with("without indexes: "), "{ran:?}");
    assert!(ran.err.ends_with("name it with --view-index-dir\n"), "{ran:?}");
    let lines: Vec<Value> = ran.out.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{}", ran.out);
    for (line, shard) in lines.iter().zip(&shards) {
        let file_bytes = line["file_bytes"].as_u64().unwrap();
        let parts = line["parts"].as_array().unwrap();
        let sum: u64 = parts.iter().map(|it| it["bytes"].as_u64().unwrap()).sum();
        assert_eq!((line["file"].as_str(), sum), (Some(shard.as_str()), file_bytes));
        assert_eq!(line["exact"], true);
        assert!(line["after_compaction_bytes"].as_u64() < Some(file_bytes), "{line}");
        let keys: Vec<&String> = line.as_object().unwrap().keys().collect();
        let fixed =
            ["file", "file_bytes", "exact", "parts", "after_compaction_bytes", "revs_limit"];
        assert_eq!(keys.len(), fixed.len());
        assert!(fixed.iter().all(|key| line.get(key).is_some()), "{line}");
    }
    let table = recliner(&["xray", &shards[0], "--sample", "10%"], &[("COLUMNS", "80")]).await;
    assert!(table.out.contains("winning bodies") && table.code == 0, "{table:?}");
    assert!(widest(&table.out) <= 80 + shards[0].len(), "{}", table.out);
    for wrong in [path("dmg_no_header.couch"), path("run.couch.compact.meta")] {
        let ran = recliner(&["xray", &wrong], &[]).await;
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains(&wrong), "{}", ran.err);
    }
    let none = recliner(&["xray", "nothing", "--data-dir", &data], &[]).await;
    assert_eq!(none.code, 64, "{none:?}");
}
