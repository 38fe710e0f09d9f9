//! Scans of a data directory, without a CouchDB and with another one's.

use super::{NODES, Ran, Site, recliner, widest, world};
use couchdb_sim::DiskFile;
use std::{fs, path::Path};

/// Copies one of CouchDB's files to a name in a data directory.
pub(crate) fn put(root: &Path, name: &str, file: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("it has one")).expect("the directory is created");
    let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/crates/couchdb-files/tests/data"));
    fs::copy(data.join(file), path).expect("the file is there");
}

/// A node's directory: a shard with its index, and files without usable content.
fn directory() -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a temporary directory");
    let shard = |db: &str| format!("shards/00000000-ffffffff/{db}.1795222434.couch");
    put(root.path(), "_dbs.couch", "deletes.couch");
    put(root.path(), &shard(&format!("orders/{}", "x".repeat(60))), "updates.couch");
    put(root.path(), &shard("garbage"), "dmg_no_header.couch");
    put(
        root.path(),
        ".shards/00000000-ffffffff/gone.1795222434_design/mrview/9fc623f8178b1907d8922afdd34debf1.view",
        "dmg_view_wrong_sig.view",
    );
    put(root.path(), &shard("far"), "updates.couch");
    // A sparse file: it takes no disk space.
    let far = fs::File::options().write(true).open(root.path().join(shard("far")));
    let longer = far.and_then(|far| far.set_len((1 << 30) + (1 << 20)));
    longer.expect("it can be made longer");
    root
}

async fn run(words: &[&str], root: &Path, columns: &str) -> Ran {
    let root = root.display().to_string();
    let words: Vec<&str> = words.iter().copied().chain(["--data-dir", &root]).collect();
    recliner(&words, &[("COLUMNS", columns)]).await
}

#[tokio::test]
async fn file_without_header_is_reported_with_the_reason() {
    let root = directory();
    let scan = run(&["scan", "--format", "json"], root.path(), "80").await;
    assert_eq!(scan.code, 2, "{scan:?}");
    for said in ["1 could not be read (no header within)", "(no valid header)", "(wrong signature)"]
    {
        assert!(scan.err.contains(said), "{said}: {}", scan.err);
    }
    let answer = scan.json();
    let problem = |end: &str| {
        let targets = answer["targets"].as_array().unwrap();
        let ends = |name: Option<&str>| name.is_some_and(|name| name.ends_with(end));
        let target = targets.iter().find(|it| ends(it["name"].as_str())).unwrap();
        target["problem"]["reason"].clone()
    };
    assert_eq!(problem("far.1795222434"), "no_header_within");
    assert_eq!(problem("garbage.1795222434"), "no_valid_header");
    assert_eq!(problem("gone.1795222434"), "wrong_signature");
    assert!(problem("_dbs").is_null());

    let explained = run(&["explain", "far"], root.path(), "80").await;
    let expected = "problem its last gibibyte contains no valid header: recliner inspect searches further back";
    let words = explained.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(expected) && words.contains("reclaimable unknown"), "{}", explained.out);
    // `inspect` does search further back, and shows all data after the header that it finds.
    let far = root.path().join("shards/00000000-ffffffff/far.1795222434.couch");
    let words = ["inspect", "--format", "json", &*far.to_string_lossy()];
    let inspected = recliner(&words, &[]).await;
    assert_eq!(inspected.code, 0, "{inspected:?}");
    let file = &inspected.json()["files"][0];
    assert_eq!((&file["error"], &file["opening"]["is"]), (&().into(), &"recovers".into()));
    assert!(file["header"]["tail"].as_u64().unwrap() > 1 << 30);
}

#[tokio::test]
async fn scan_warns_of_files_last_written_by_another_node() {
    let root = directory();
    let said = "were last written by ";
    let scan = run(&["scan", "--node", "couchdb@elsewhere"], root.path(), "80").await;
    assert!(scan.err.contains(said), "{}", scan.err);
    let scan = run(&["scan"], root.path(), "80").await;
    assert!(!scan.err.contains(said), "{}", scan.err);
}

#[tokio::test]
async fn advice_names_what_a_directory_cannot_show() {
    let empty = tempfile::tempdir().unwrap();
    let ran = run(&["advise"], empty.path(), "80").await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("no shard files were found in "), "{}", ran.err);
    let gone = run(&["advise"], &empty.path().join("gone"), "80").await;
    assert_eq!(gone.code, 1, "{gone:?}");
    assert!(gone.err.starts_with("recliner: cannot read "), "{}", gone.err);
    assert!(gone.err.contains("gone: No such file or directory"), "{}", gone.err);
    let read = run(&["advise"], directory().path(), "80").await;
    let words = read.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("age and mutes of advice are unknown."), "{words}");
    assert!(!words.contains("No directory was read"), "{words}");
}

#[tokio::test]
async fn directory_tables_fit_without_wrapping_names() {
    let root = directory();
    let deep = root.path().join("a-data-directory-of-some-length-below");
    fs::create_dir(&deep).unwrap();
    for name in ["_dbs.couch", "shards", ".shards"] {
        fs::rename(root.path().join(name), deep.join(name)).unwrap();
    }
    for columns in [60, 80, 160] {
        let scan = run(&["scan"], &deep, &columns.to_string()).await;
        assert_eq!(scan.code, 2, "{scan:?}");
        assert!(widest(&scan.out) <= columns.max(80), "{}", scan.out);
        let rows = |head: &str| {
            let at = scan.out.lines().position(|line| line.starts_with(head)).unwrap();
            let rows = scan.out.lines().skip(at + 1).take_while(|line| !line.is_empty());
            rows.map(ToOwned::to_owned).collect::<Vec<_>>()
        };
        assert!(scan.out.lines().any(|line| line.starts_with("TARGET ")), "{}", scan.out);
        if columns > 60 {
            let [volume] = &rows("VOLUME")[..] else { panic!("{}", scan.out) };
            assert!(volume.contains("below "), "{volume}");
            assert_eq!(rows("TARGET ").len(), 2, "{}", scan.out);
            let [_, views, total] = &rows("NODE")[..] else { panic!("{}", scan.out) };
            assert!(views.starts_with("1 view index ") && total.starts_with("total "), "{views}");
        }
    }
}

#[tokio::test]
async fn directory_of_another_node_is_refused_and_its_files_are_not_used() {
    let site = Site::open(world()).await;
    let root = tempfile::tempdir().unwrap();
    // Files of the same names, as another node of the cluster has them.
    for file in site.cluster.walk(NODES[0]).unwrap().files {
        if let DiskFile::Shard(shard) = file {
            put(root.path(), &format!("{}.couch", shard.name), "updates.couch");
        }
    }
    let data_dir = root.path().display().to_string();
    let words = ["--node", NODES[0], "--data-dir", &data_dir, "--format", "json"];
    for command in ["scan", "advise"] {
        let ran = site.run(&[&[command], &words[..]].concat()).await;
        assert_eq!(ran.code, 2, "{ran:?}");
        let said = format!("the files in {data_dir} are not {}'s", NODES[0]);
        assert!(
            ran.err.contains(&said) && ran.err.contains("name the data directory"),
            "{}",
            ran.err
        );
        if command == "scan" {
            let targets = ran.json()["targets"].as_array().unwrap().clone();
            assert!(!targets.is_empty());
            assert!(targets.iter().all(|it| it["source"] != "files"), "{targets:?}");
        }
    }
}
