//! Deleted documents of a simulated cluster, which answers no request about documents.

use super::{Site, recliner, world};
use serde_json::Value;

#[tokio::test]
async fn what_cannot_be_read_is_unknown_and_no_choice_is_hidden() {
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
}
