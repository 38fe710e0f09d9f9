//! Deleted documents of a simulated cluster, which answers no request about documents.

use super::{Site, recliner, world};
use axum::{Router, http::Uri, routing::get};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

#[tokio::test]
async fn unreadable_facts_are_reported_as_unknown() {
    let site = Site::open(world()).await;
    let words = ["tombstones", "orders/2024+x"];
    let ran = site.run(&[&words[..], &["--format", "json"]].concat()).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    assert!(answer["tombstones"].is_u64() && answer["documents"].is_u64(), "{answer}");
    assert!(answer["size"].is_null() && answer["ages"].is_null(), "{answer}");
    let peers = answer["peers"].as_array().unwrap();
    assert!(!peers.is_empty() && peers.iter().all(|peer| peer["behind"].is_null()), "{answer}");
    let unknown = answer["unknown"].as_array().unwrap();
    for says in ["The checkpoints in shards/", "Replications are unknown"] {
        let is_said = unknown.iter().any(|it| it.as_str().unwrap().starts_with(says));
        assert!(is_said && ran.err.contains(says), "{says}: {answer}");
    }
    let ran = site.run(&words).await;
    assert!(ran.out.starts_with("orders/2024+x has "), "{ran:?}");
    site.run(&["tombstones", "none"]).await.refuses(1, &["no database is called \"none\""]);
    recliner(&["tombstones", "none"], &[]).await.refuses(64, &["--couchdb.url"]);
    let files = env!("CARGO_TARGET_TMPDIR");
    let words = ["tombstones", "none", "--data-dir", files];
    recliner(&words, &[]).await.refuses(64, &["--couchdb.url"]);
    let help = recliner(&["tombstones", "--help"], &[]).await.out;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, says) = help.split_once("directly; ").unwrap();
    let (commands, _) = says.split_once(" then need no CouchDB").unwrap();
    assert!(!commands.contains("tombstones"), "{commands}");
}

#[tokio::test]
async fn recorded_ages_come_only_from_a_recliner_of_this_database() {
    const DB: &str = "orders/2024+x";
    let site = Site::open(world()).await;
    let asked = async |suffix: &str| {
        let says = "Of 9 deleted documents, all are older than 8 days.";
        let ages = json!({"suffix": suffix, "deleted": 9, "times": [], "says": says});
        let mut line = json!({"db": DB, "deletions": ages});
        for number in ["file_bytes", "document_bytes", "index_bytes", "reclaimable_bytes"] {
            line[number] = json!(1);
        }
        for number in ["targets", "unmeasured", "estimated", "waiting"] {
            line[number] = json!(0);
        }
        let found =
            json!({"generated_at": "", "total": 1, "offset": 0, "limit": 1, "databases": [line]});
        let answer = json!({"status": "success", "data": found}).to_string();
        let databases = async move |uri: Uri| {
            assert_eq!(uri.query(), Some("name=orders%2F2024%2Bx"));
            answer
        };
        let routes = Router::new().route("/api/v1/databases", get(databases));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut servers = JoinSet::new();
        servers.spawn(async move { axum::serve(listener, routes).await });
        let words = ["tombstones", DB, "--format", "json", "--recliner.url", &url];
        let answer: Value = serde_json::from_str(&site.run(&words).await.out).unwrap();
        answer
    };
    let other = asked(".1").await;
    assert!(other["recorded"].is_null(), "{other}");
    let says = other["unknown"].to_string();
    let (_, rest) = says.split_once(DB).unwrap();
    let (suffix, _) = rest.split_once(' ').unwrap();
    let own = asked(suffix).await;
    assert_eq!(own["recorded"]["deleted"], 9, "{own}");

    let words = ["tombstones", DB, "--recliner.url", "http://127.0.0.1:9"];
    let ran = site.run(&words).await;
    let says = "The recorded ages are unknown: cannot ask recliner at http://127.0.0.1:9";
    assert!(ran.code == 2 && ran.err.contains(says), "{ran:?}");
}
