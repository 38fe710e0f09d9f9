//! Hosts that are known only from node names: no connection is made to them.

use super::{PASSWORD, recliner, world};
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    middleware::{Next, from_fn},
    response::Response,
};
use couchdb_sim::{Cluster, Config, Database};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{net::TcpListener, task::JoinSet};
use wall_clock::Clock;

const HERE: &str = "couchdb@127.0.0.1";
const MEMBER: &str = "couchdb@127.0.0.2";
/// A node that only the shard map names.
const IN_THE_MAP: &str = "couchdb@127.0.0.3";

/// Replaces the member by another node in the shard map.
async fn hostile_map(request: Request, next: Next) -> Response {
    let of_map = request.uri().path().contains("/_dbs/");
    let answer = next.run(request).await;
    if !of_map {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    let text = to_bytes(body, 1 << 20).await.expect("the answer is whole");
    let text = String::from_utf8(text.to_vec()).expect("it is text");
    head.headers.remove("content-length");
    Response::from_parts(head, Body::from(text.replace(MEMBER, IN_THE_MAP)))
}

async fn counting(at: SocketAddr, servers: &mut JoinSet<()>) -> Arc<AtomicUsize> {
    let listener = TcpListener::bind(at).await.expect("the port is free");
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    servers.spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    count
}

#[tokio::test]
async fn never_connects_to_hosts_named_only_by_nodes() {
    let mut config = Config::new(&[HERE, MEMBER]).with(Database::new("orders"));
    config.users = world().users;
    let cluster = Cluster::new(config, 1, Clock::System).expect("the configuration is valid");
    let router: Router = cluster.router(HERE).layer(from_fn(hostile_map));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let entry = listener.local_addr().expect("the listener is bound");
    let mut servers = JoinSet::new();
    servers.spawn(async move { axum::serve(listener, router).await.unwrap_or_default() });
    let host = |last: u8| SocketAddr::from(([127, 0, 0, last], entry.port()));
    let counts = [counting(host(2), &mut servers).await, counting(host(3), &mut servers).await];

    let url = format!("http://{entry}");
    let words = ["scan", "--format", "json", "--couchdb.url", &url];
    let ran = recliner(&words, &[("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", PASSWORD)]).await;

    let answer = ran.json();
    let node = |name: &str| {
        let mut nodes = answer["nodes"].as_array().into_iter().flatten();
        nodes.find(|node| node["node"] == name).cloned().unwrap_or_default()
    };
    assert_eq!(node(MEMBER)["up"], true, "it is read through the other node: {ran:?}");
    assert_eq!(
        node(MEMBER)["findings"][0],
        "no direct address: list it under couchdb.nodes, or repeat --couchdb.url for it"
    );
    assert_eq!(node(HERE)["findings"], serde_json::json!([]));
    assert!(!node(IN_THE_MAP).is_null(), "{ran:?}");
    let expected = format!(
        "{MEMBER}: no direct address: list it under couchdb.nodes, or repeat --couchdb.url for it\n"
    );
    assert!(ran.err.contains(&expected), "{ran:?}");
    for count in counts {
        assert_eq!(count.load(Ordering::SeqCst), 0);
    }
}
