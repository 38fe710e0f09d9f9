//! Access logs, read without a service.

use super::recliner;
use serde_json::Value;
use std::fs;

const LINES: &str = r#"192.0.2.1 - jan [26/Nov/2026:05:00:00 +0000] "GET /shop/_design/orders/_view/by_day?key=%22secret%22 HTTP/1.1" 200 12 "-" "Mozilla/5.0"
[notice] 2026-11-27T05:00:00.830527Z node1@127.0.0.1 <0.5163.0> b5a3d9556d couch.example 192.0.2.1 jan POST /shop/_find 200 ok 36
"#;

#[tokio::test]
async fn reads_command_reports_readers_of_indexes_and_no_other_data() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (log, other) = (path("mixed.log"), path("other.log"));
    fs::write(&log, LINES).unwrap();
    fs::write(&other, "[info] started\n").unwrap();
    let ran = recliner(&["reads", "--log", &log, "--format", "json"], &[]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    let sources = answer["sources"].as_array().unwrap();
    assert_eq!(sources.len(), 2, "{answer}");
    assert_eq!(sources[0]["node"], "node1@127.0.0.1");
    assert_eq!(
        (&sources[0]["uses"][0]["how"], &sources[0]["uses"][0]["db"]),
        (&"find".into(), &"shop".into())
    );
    let read = &sources[1]["uses"][0];
    assert_eq!((&read["view"], &read["class"]), (&"by_day".into(), &"browser".into()));
    for secret in ["secret", "jan", "192.0.2.1", "couch.example"] {
        assert!(!ran.out.contains(secret), "{secret}: {}", ran.out);
    }
    let ran = recliner(&["reads", "--log", &log, &other, &path("none")], &[]).await;
    assert!(ran.out.contains("by_day"), "{ran:?}");
    assert_eq!(ran.code, 2, "{ran:?}");
    for says in ["none of its 1 lines is a request", "none: cannot be read"] {
        assert!(ran.err.contains(says), "{says}: {ran:?}");
    }
}
