//! What is sent to a host known only from a node's name: nothing, or no login before the host has
//! proved what it is.

use super::fake::{Cluster, Seen, address, connect, drain, json, run, settings};
use crate::{
    Cache, ClientSettings, ErrorKind, OwnAddress, Transport, transport::authority::Authority,
};
use axum::{http::StatusCode, response::IntoResponse as _};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{net::TcpListener, sync::mpsc, time::sleep};
use tokio_util::task::AbortOnDropHandle;

const EVIL: &str = "couchdb@evil.example";

fn stranger(url: &str) -> ClientSettings {
    let mut settings = settings(&[url]);
    settings.trust_node_hosts = vec![];
    settings
}

fn at<'a>(log: &'a [Seen], host: &str) -> Vec<&'a Seen> {
    log.iter().filter(|seen| seen.host == host).collect()
}

fn paths_and_passwords(log: &[&Seen]) -> Vec<(String, Option<String>)> {
    log.iter().map(|seen| (seen.path.clone(), seen.password.clone())).collect()
}

#[tokio::test(start_paused = true)]
async fn host_known_only_from_node_name_gets_no_request() {
    for url in ["http://a:5984", "https://a:6984"] {
        let (cluster, mut seen) = Cluster::new(|_| None);
        let client = connect(&cluster, stranger(url));
        client.shard_info(EVIL, "shard", Cache::Warm).await.unwrap();
        client.shard_info("couchdb@a", "shard", Cache::Warm).await.unwrap();
        sleep(Duration::from_secs(300)).await;
        assert_eq!(client.smoosh_status(EVIL).await.unwrap_err().kind(), ErrorKind::NoOwnAddress);
        assert_eq!(client.access(EVIL).own, OwnAddress::NotConfigured, "{url}");
        assert_eq!(client.access("couchdb@a").own, OwnAddress::Found(address(url)));
        let log = drain(&mut seen);
        assert_eq!(at(&log, "evil.example"), [] as [&Seen; 0], "{url}");
        assert_eq!(at(&log, "a").len(), log.len());
    }
}

#[tokio::test(start_paused = true)]
async fn trusted_host_must_be_couchdb_before_it_gets_login() {
    let (cluster, mut seen) = Cluster::new(|seen| {
        (seen.path == "/_node/_local" && seen.host == "evil.example")
            .then(|| json(200, &format!(r#"{{"name":"{EVIL}"}}"#)))
    });
    let mut settings = stranger("http://a:5984");
    settings.trust_node_hosts = vec!["*.example".parse().unwrap()];
    let client = connect(&cluster, settings);
    client.shard_info(EVIL, "shard", Cache::Warm).await.unwrap();
    assert_eq!(client.access(EVIL).own, OwnAddress::Found(address("http://evil.example:5984")));
    let log = drain(&mut seen);
    let stranger_log = at(&log, "evil.example");
    assert_eq!(paths_and_passwords(&stranger_log)[0], ("/".to_owned(), None), "{stranger_log:?}");
    assert!(stranger_log[1].login, "{stranger_log:?}");
}

#[tokio::test(start_paused = true)]
async fn trusted_host_without_couchdb_never_gets_the_login() {
    let html = || ([("content-type", "text/html")], "<h1>It works</h1>").into_response();
    let moved = || (StatusCode::FOUND, [("location", "http://b:5984/")], "").into_response();
    let other = || json(200, r#"{"version":"1"}"#);
    let missing = || json(404, r#"{"error":"not_found","reason":"missing"}"#);
    let broken = || json(500, r#"{"error":"internal"}"#);
    for answer in [html, moved, other, missing, broken] as [fn() -> axum::response::Response; 5] {
        let (cluster, mut seen) =
            Cluster::new(move |seen| (seen.host == "evil.example").then(answer));
        let mut settings = stranger("http://a:5984");
        settings.trust_node_hosts = vec!["*.example".parse().unwrap()];
        let client = connect(&cluster, settings);
        client.shard_info(EVIL, "shard", Cache::Warm).await.unwrap();
        sleep(Duration::from_secs(130)).await;
        assert_eq!(client.access(EVIL).own, OwnAddress::Unknown);
        let log = drain(&mut seen);
        let stranger_log = paths_and_passwords(&at(&log, "evil.example"));
        assert!(stranger_log.len() >= 2, "the host is asked again: {stranger_log:?}");
        assert!(stranger_log.iter().all(|it| *it == ("/".to_owned(), None)), "{stranger_log:?}");
        assert!(at(&log, "b").is_empty(), "{log:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn address_configured_for_another_node_is_used_without_greeting() {
    let (cluster, mut seen) = Cluster::new(|_| None);
    let mut settings = stranger("http://a:5984");
    settings.nodes.insert("couchdb@x".to_owned(), address("http://b:5984"));
    let client = connect(&cluster, settings);
    client.shard_info("couchdb@b", "shard", Cache::Warm).await.unwrap();
    assert_eq!(client.access("couchdb@b").own, OwnAddress::Found(address("http://b:5984")));
    assert!(at(&drain(&mut seen), "b").iter().all(|seen| seen.path != "/"));
}

#[tokio::test(start_paused = true)]
async fn own_address_stays_unknown_while_an_entry_has_not_named_itself() {
    let (cluster, _seen) = Cluster::new(|seen| (seen.host == "b").then(|| json(503, "{}")));
    let mut settings = stranger("http://a:5984");
    settings.urls.push(address("http://b:5984"));
    let client = connect(&cluster, settings);
    client.shard_info("couchdb@10.0.0.2", "shard", Cache::Warm).await.unwrap();
    assert_eq!(client.access("couchdb@10.0.0.2").own, OwnAddress::Unknown);
}

/// Counts connections, and answers none.
#[expect(clippy::disallowed_methods, reason = "a test is its own supervisor")]
async fn counting(at: SocketAddr) -> (Arc<AtomicUsize>, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind(at).await.unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let serving = async move {
        loop {
            let _closed = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
        }
    };
    (count, AbortOnDropHandle::new(tokio::spawn(serving)))
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a test is its own supervisor")]
async fn guessed_address_gets_no_connection_over_http() {
    let (cluster, _seen) = Cluster::new(|_| None);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let entry = listener.local_addr().unwrap();
    let router = cluster.router();
    let _entry = AbortOnDropHandle::new(tokio::spawn(async move {
        axum::serve(listener, router).await.unwrap();
    }));
    let (count, _listener) = counting(SocketAddr::from(([127, 0, 0, 2], entry.port()))).await;
    let settings = stranger(&format!("http://{entry}"));
    let client = run(settings.clone(), Transport::http(&settings, "test").unwrap());
    client.shard_info("couchdb@127.0.0.2", "shard", Cache::Warm).await.unwrap();
    assert_eq!(client.access("couchdb@127.0.0.2").own, OwnAddress::NotConfigured);
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

/// An entry over TLS, and a second server at the address derived from a node's name.
struct OverTls {
    ours: Authority,
    _dir: tempfile::TempDir,
    settings: ClientSettings,
    stranger: String,
    _entry: AbortOnDropHandle<()>,
    _seen: mpsc::Receiver<Seen>,
}

async fn over_tls() -> OverTls {
    let ours = Authority::new();
    let (cluster, seen) = second();
    let (entry, handle) = ours.serve_router("127.0.0.1:0", "127.0.0.1", cluster.router()).await;
    let dir = tempfile::tempdir().unwrap();
    let mut settings = stranger(&format!("https://{entry}"));
    settings.tls.ca_file = Some(dir.path().join("ca.pem"));
    std::fs::write(dir.path().join("ca.pem"), ours.pem()).unwrap();
    let stranger = format!("127.0.0.2:{}", entry.port());
    OverTls { ours, _dir: dir, settings, stranger, _entry: handle, _seen: seen }
}

fn second() -> (Cluster, mpsc::Receiver<Seen>) {
    Cluster::new(|_| None)
}

#[tokio::test]
async fn tls_proves_a_host_under_the_operators_own_authority() {
    let site = over_tls().await;
    let (cluster, mut seen) = second();
    let (at, _server) = site.ours.serve_router(&site.stranger, "127.0.0.2", cluster.router()).await;
    let client = run(site.settings.clone(), Transport::http(&site.settings, "test").unwrap());
    client.shard_info("couchdb@127.0.0.2", "shard", Cache::Warm).await.unwrap();
    let own = address(&format!("https://{at}"));
    assert_eq!(client.access("couchdb@127.0.0.2").own, OwnAddress::Found(own));
    let log = drain(&mut seen);
    assert_eq!((log[0].path.as_str(), &log[0].password), ("/", &None), "{log:?}");
}

#[tokio::test]
async fn host_with_foreign_certificate_gets_no_request() {
    let site = over_tls().await;
    for (authority, name) in [(&Authority::new(), "127.0.0.2"), (&site.ours, "couch-b.example")] {
        let (cluster, mut seen) = second();
        let (_, server) = authority.serve_router(&site.stranger, name, cluster.router()).await;
        let client = run(site.settings.clone(), Transport::http(&site.settings, "test").unwrap());
        client.shard_info("couchdb@127.0.0.2", "shard", Cache::Warm).await.unwrap();
        assert_eq!(client.access("couchdb@127.0.0.2").own, OwnAddress::Unknown);
        assert_eq!(drain(&mut seen), [], "{name}");
        drop(server);
        tokio::task::yield_now().await;
    }
}
