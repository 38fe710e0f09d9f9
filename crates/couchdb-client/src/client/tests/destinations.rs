use super::fake::{Cluster, NODES, address, connect, drain, endless, json, paths, settings, timed};
use crate::{Cache, ErrorKind, NodeAccess, OwnAddress};
use axum::response::Response;
use std::time::Duration;
use tokio::time::sleep;

const A: &str = "http://a:5984";
const B: &str = "http://b:5984";

fn nobody() -> Response {
    json(503, r#"{"error":"nobody here"}"#)
}

fn own(text: &str) -> NodeAccess {
    NodeAccess { own: OwnAddress::Found(address(text)), held_back: false }
}

#[tokio::test(start_paused = true)]
async fn each_node_is_asked_at_the_host_in_its_name() {
    let (cluster, mut seen) = Cluster::new(|_| None);
    let client = connect(&cluster, settings(&[A]));
    for node in NODES {
        client.shard_info(node, "shard", Cache::Warm).await.unwrap();
        let host = node.strip_prefix("couchdb@").unwrap();
        assert_eq!(client.access(node), own(&format!("http://{host}:5984")));
        let log = paths(&mut seen);
        assert_eq!(log.last().unwrap(), &format!("{host} /_node/{node}/shard"), "{log:?}");
    }
    assert_eq!(client.access("couchdb@unheard"), NodeAccess::default());
}

#[tokio::test(start_paused = true)]
async fn own_address_counts_only_if_server_confirms_the_name() {
    let (cluster, mut seen) = Cluster::new(|seen| {
        (seen.path == "/_node/_local").then(|| json(200, r#"{"name":"couchdb@a"}"#))
    });
    let mut settings = settings(&[A]);
    settings.nodes.insert("couchdb@b".to_owned(), address("http://c:5984"));
    let client = connect(&cluster, settings);
    client.shard_info("couchdb@b", "shard", Cache::Warm).await.unwrap();
    assert_eq!(client.access("couchdb@b"), NodeAccess::default());
    assert_eq!(client.access("couchdb@a"), own(A));
    let log = paths(&mut seen);
    assert!(log.contains(&"c /_node/_local".to_owned()), "{log:?}");
    assert_eq!(log.last().unwrap(), "a /_node/couchdb@b/shard");
    let error = client.smoosh_status("couchdb@b").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoOwnAddress);
    assert!(!paths(&mut seen).iter().any(|path| path.contains("_smoosh")));
}

#[tokio::test(start_paused = true)]
async fn smoosh_is_asked_at_the_configured_node_address() {
    let (cluster, _seen) = Cluster::new(|_| None);
    let mut settings = settings(&[A]);
    settings.nodes.insert("couchdb@b".to_owned(), address("http://b:7777"));
    let client = connect(&cluster, settings);
    let status = client.smoosh_status("couchdb@b").await.unwrap().unwrap();
    assert_eq!(status.channels.keys().collect::<Vec<_>>(), ["couchdb@b"]);
    assert_eq!(client.access("couchdb@b"), own("http://b:7777"));
}

#[tokio::test(start_paused = true)]
async fn couchdb_without_smoosh_status_gives_none() {
    let (cluster, _seen) = Cluster::new(|seen| {
        let body = r#"{"error":"illegal_database_name","reason":"Name: '_smoosh'."}"#;
        seen.path.contains("_smoosh").then(|| json(400, body))
    });
    let client = connect(&cluster, settings(&[A]));
    assert_eq!(client.smoosh_status("couchdb@a").await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn own_address_is_found_late_and_dropped_if_another_node_answers() {
    let name = std::sync::Arc::new(arc_swap::ArcSwap::from_pointee(String::new()));
    let says = std::sync::Arc::clone(&name);
    let (cluster, _seen) = Cluster::new(move |seen| {
        let says = says.load();
        (seen.host == "b").then(|| match says.as_str() {
            "" => nobody(),
            name if seen.path == "/_node/_local" => json(200, &format!(r#"{{"name":"{name}"}}"#)),
            _ => json(200, r#"{"couchdb":"Welcome","userCtx":{"name":"adm"},"sizes":{"file":1}}"#),
        })
    });
    let client = connect(&cluster, settings(&[A]));
    client.shard_info("couchdb@b", "shard", Cache::Warm).await.unwrap();
    assert_eq!(client.access("couchdb@b").own, OwnAddress::Unknown);
    name.store(std::sync::Arc::new("couchdb@b".to_owned()));
    sleep(Duration::from_secs(70)).await;
    assert_eq!(client.access("couchdb@b"), own(B));
    name.store(std::sync::Arc::new("couchdb@z".to_owned()));
    sleep(Duration::from_secs(70)).await;
    assert_eq!(client.access("couchdb@b").own, OwnAddress::Unknown);
}

#[tokio::test(start_paused = true)]
async fn hanging_entry_is_skipped() {
    let (cluster, mut seen) = Cluster::new(|seen| (seen.host == "a").then(endless));
    let client = connect(&cluster, settings(&[A, B]));
    let (read, took) = timed(client.membership()).await;
    read.unwrap();
    assert!(took < Duration::from_secs(62), "{took:?}");
    for _ in 0..8 {
        client.membership().await.unwrap();
    }
    drain(&mut seen);
    let (_, took) = timed(async {
        for _ in 0..20 {
            client.membership().await.unwrap();
        }
    })
    .await;
    assert!(
        took < Duration::from_secs(62),
        "at most one more request meets the hanging entry: {took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn requests_pause_only_for_the_hanging_node() {
    let (cluster, mut seen) = Cluster::new(|seen| match seen.path.as_str() {
        path if path.starts_with("/_node/couchdb@b/") => Some(endless()),
        _ => (seen.host != "a").then(nobody),
    });
    let client = connect(&cluster, settings(&[A]));
    for _ in 0..2 {
        let (read, took) = timed(client.shard_info("couchdb@b", "shard", Cache::Warm)).await;
        assert_eq!(read.unwrap_err().kind(), ErrorKind::Timeout);
        assert!(took < Duration::from_secs(90), "{took:?}");
    }
    drain(&mut seen);
    assert!(client.access("couchdb@b").held_back);
    let error = client.shard_info("couchdb@b", "shard", Cache::Warm).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().starts_with("node couchdb@b was not asked: its last "), "{error}");
    assert_eq!(drain(&mut seen), []);
    client.shard_info("couchdb@c", "shard", Cache::Warm).await.unwrap();
    client.membership().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_shard_map_is_read_by_pages_without_losing_a_row() {
    let (cluster, mut seen) = Cluster::new(|seen| {
        let query =
            seen.path.strip_prefix("/_node/_local/_dbs/_all_docs?include_docs=true&limit=3")?;
        let rows: &[&str] = match query {
            "" => &["a", "b", "c"],
            // "c" has been deleted between two pages.
            "&startkey=%22c%22" => &["d", "e/f", "g"],
            "&startkey=%22g%22" => &["g", "h"],
            _ => return None,
        };
        let rows: Vec<_> = rows
            .iter()
            .map(|name| serde_json::json!({"id": name, "doc": {"_id": name, "shard_suffix": [46, 49]}}))
            .collect();
        Some(json(200, &serde_json::json!({ "rows": rows }).to_string()))
    });
    let client = connect(&cluster, settings(&[A]));
    let mut names = Vec::new();
    let mut after = None;
    loop {
        let page = client.shard_map_page(None, after.as_ref(), 2).await.unwrap();
        names.extend(page.docs.into_iter().filter_map(|doc| doc.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(names, ["a", "b", "c", "d", "e/f", "g", "h"]);
    assert_eq!(paths(&mut seen).len(), 2 + 3);
}

#[tokio::test(start_paused = true)]
async fn shrinks_pages_when_design_documents_are_too_large() {
    let (cluster, mut seen) = Cluster::new(|seen| {
        let query = seen.path.strip_prefix("/app/_design_docs?include_docs=true&limit=")?;
        let limit: usize = query.split('&').next()?.parse().ok()?;
        if limit > 13 {
            return Some(json(200, &"x".repeat(65 << 20)));
        }
        let from = query
            .split_once("&startkey=%22_design%2Fd")
            .map_or(0, |(_, rest)| rest.trim_end_matches("%22").parse::<usize>().unwrap());
        let rows: Vec<_> = (from..(from + limit).min(130))
            .map(|number| format!("_design/d{number:03}"))
            .map(|id| serde_json::json!({"id": id, "doc": {"_id": id, "views": {"v": {}}}}))
            .collect();
        Some(json(200, &serde_json::json!({ "rows": rows }).to_string()))
    });
    let client = connect(&cluster, settings(&[A]));
    let docs = client.design_docs("app", []).await.unwrap();
    let ids: Vec<String> = docs.into_iter().filter_map(|doc| doc.id).collect();
    let expected: Vec<String> = (0..130).map(|number| format!("_design/d{number:03}")).collect();
    assert_eq!(ids, expected);
    assert_eq!(paths(&mut seen).len(), 2 + 4 + 11);
}

#[tokio::test(start_paused = true)]
async fn node_in_maintenance_is_not_an_error() {
    let (cluster, _seen) = Cluster::new(|_| None);
    let client = connect(&cluster, settings(&[A]));
    let up = client.up("couchdb@b").await.unwrap();
    assert_eq!(up.status.as_deref(), Some("maintenance_mode"));
}
