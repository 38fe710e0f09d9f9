//! The predicted cost of a design document, from a cluster and from a service.

use super::{NODES, PATIENCE, Site, recliner, service::Running, world, written};
use recliner::serve::report::Preflight;
use std::time::Duration;
use tokio::time;

const DESIGN: &str = r#"{"views":{"by_month":{"map":"function(doc){emit(doc.month,1)}"}}}"#;

#[tokio::test]
async fn cluster_and_service_predict_a_design_documents_cost() {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().unwrap();
    let file = written(dir.path(), "by_month.json", DESIGN);
    let words = ["preflight", "orders/2024+x", &file];
    // The simulator has no documents to run the function on.
    let unsampled = site.run(&words).await;
    assert!(
        unsampled.err.starts_with("no document was read, so the ranges are wide"),
        "{unsampled:?}"
    );
    let table = site.run(&[&words[..], &["--sample", "0"]].concat()).await;
    assert_eq!(table.out, unsampled.out);
    assert_eq!((table.code, table.err.as_str()), (0, ""), "{table:?}");
    assert!(
        table.out.starts_with("Building orders/2024+x/_design/by_month takes"),
        "{}",
        table.out
    );
    let json = site.run(&[&words[..], &["--sample", "0", "--format", "json"]].concat()).await;
    let direct: Preflight = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&*direct.build, direct.nodes.is_empty()), ("new", false));

    let text = r#"{"views":{"a":{"map":"function(doc){emit("}}}"#;
    let broken = written(dir.path(), "broken.json", text);
    let ran = site.run(&["preflight", "orders/2024+x", &broken, "--sample", "0"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    let says = "It does not work as it is:\n  A map function cannot be compiled";
    assert!(ran.out.starts_with(says), "{ran:?}");

    let mut running = Running::start(&site, dir.path(), &[]).await;
    let base = format!("http://{}", running.address);
    let words = [&words[..], &["--recliner.url", &base, "--format", "json"]].concat();
    let asked = async {
        loop {
            let asked = recliner(&words, &[]).await;
            if asked.code == 0 {
                break asked;
            }
            assert!(asked.err.contains("first sweep has not ended"), "{asked:?}");
            time::sleep(Duration::from_millis(50)).await;
        }
    };
    let asked = time::timeout(PATIENCE, asked).await.expect("it looks at the cluster");
    assert_eq!(asked.code, 0, "{asked:?}");
    assert!(asked.err.starts_with("a running recliner reads no documents"), "{asked:?}");
    let answer: Preflight = serde_json::from_str(&asked.out).unwrap();
    assert_eq!((&answer.signature, answer.docs), (&direct.signature, direct.docs));
    let present =
        r#"{"_id":"_design/by_day","views":{"by_day":{"map":"function(doc){emit(doc.other)}"}}}"#;
    let changed = written(dir.path(), "changed.json", present);
    let words = ["preflight", "orders/2024+x", &changed, "--recliner.url", &base];
    let table = recliner(&words, &[]).await.out;
    assert!(table.starts_with("Rebuilding orders/2024+x/_design/by_day takes"), "{table}");
    assert!(table.contains("by_day: its map changes"), "{table}");
    let words = ["preflight", "orders/2024", &file, "--recliner.url", &base];
    recliner(&words, &[]).await.refuses(1, &["no database is called", "orders/2024+x"]);
    running.stop().await;
}

#[tokio::test]
async fn preflight_uses_the_free_space_given_in_the_configuration() {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().unwrap();
    let file = written(dir.path(), "by_month.json", DESIGN);
    let volumes = NODES.map(|node| format!("{{nodes: [\"{node}\"], available: 1TB}}")).join(", ");
    for (volumes, verdict, says) in [
        (volumes, "fits", ""),
        (
            format!(
                "{{nodes: [\"{}\"], prometheus: {{url: 'http://127.0.0.1:1', query: free}}}}",
                NODES[0]
            ),
            "unknown",
            "the free space of ",
        ),
    ] {
        let yaml = format!("headroom: {{volumes: [{volumes}]}}\n");
        let config = written(dir.path(), "recliner.yml", &yaml);
        let words = ["preflight", "orders/2024+x", &file, "--sample", "0"];
        let more = ["--config.file", &config, "--format", "json"];
        let ran = site.run(&[&words[..], &more[..]].concat()).await;
        assert!(ran.err.contains(says), "{ran:?}");
        let answer: Preflight = serde_json::from_str(&ran.out).unwrap();
        let node = answer.nodes.iter().find(|it| it.node == NODES[0]).expect("the node is there");
        assert_eq!(node.verdict, verdict, "{ran:?}");
    }
}

#[tokio::test]
async fn refuses_invalid_design_document_before_any_request() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text, says) in [
        ("a.json", "{", "is not JSON"),
        ("b.json", "[]", "not a JSON object"),
        ("c.json", "{}", "neither views nor search indexes"),
        ("d.json", r#"{"_id":"x","views":{}}"#, "its _id is \"x\""),
        ("e.json", r#"{"views":{"v":{}}}"#, "the view \"v\" has no map"),
    ] {
        let file = written(dir.path(), name, text);
        let words = ["preflight", "orders", &file, "--couchdb.url", "http://127.0.0.1:1"];
        recliner(&words, &[]).await.refuses(64, &[&file, says]);
    }
    let none = dir.path().join("none.json");
    let words = ["preflight", "orders", none.to_str().unwrap()];
    recliner(&words, &[]).await.refuses(64, &["none.json", "cannot be read"]);
}
