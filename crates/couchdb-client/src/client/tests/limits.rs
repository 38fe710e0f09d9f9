use super::fake::{Cluster, connect, json, settings, timed};
use crate::Cache;
use futures::future::join_all;
use std::{sync::atomic::Ordering, time::Duration};

const A: &str = "http://a:5984";

async fn most_in_flight(nodes: &[&str], limit: usize) -> usize {
    let (mut cluster, _seen) =
        Cluster::new(|seen| (seen.host != "a").then(|| json(503, r#"{"error":"nobody here"}"#)));
    cluster.delay = Duration::from_millis(100);
    let mut settings = settings(&[A]);
    settings.requests_in_flight = limit;
    let client = connect(&cluster, settings);
    for node in nodes {
        client.shard_info(node, "warm", Cache::Warm).await.unwrap();
    }
    cluster.most_in_flight.store(0, Ordering::SeqCst);
    let reads = nodes.iter().flat_map(|node| (0..40).map(move |_| node));
    let all = join_all(reads.map(|node| client.shard_info(node, "s", Cache::Warm)));
    timed(all).await.0.into_iter().for_each(|read| drop(read.unwrap()));
    cluster.most_in_flight.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn limits_requests_in_flight_per_entry_and_node() {
    assert_eq!(most_in_flight(&["couchdb@a"], 3).await, 3);
    // Three nodes behind one entry share the entry's limit.
    assert_eq!(most_in_flight(&["couchdb@a", "couchdb@b", "couchdb@c"], 4).await, 4);
}

#[tokio::test(start_paused = true)]
async fn design_document_reads_are_paced_for_each_cold_node() {
    let (cluster, _seen) = Cluster::new(|seen| {
        seen.path.contains("_design_docs").then(|| json(200, r#"{"rows":[]}"#))
    });
    let mut settings = settings(&[A]);
    settings.cold_reads_per_second = 20;
    let client = connect(&cluster, settings);
    client.session().await.unwrap();
    let read = |cold: &'static [&'static str]| {
        let client = client.client.clone();
        let reads = (0..50).map(move |_| {
            let client = client.clone();
            async move { client.design_docs("app", cold.iter().copied()).await.unwrap() }
        });
        timed(join_all(reads))
    };
    // Two copies on one node and one on another: both nodes' requests are paced in parallel.
    let (_, took) = read(&["couchdb@a", "couchdb@b", "couchdb@a"]).await;
    assert!((4.8..5.6).contains(&took.as_secs_f64()), "{took:?}");
    let (_, took) = read(&[]).await;
    assert!(took < Duration::from_millis(200), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn cold_reads_are_paced_and_warm_reads_are_not() {
    let (cluster, _seen) = Cluster::new(|_| None);
    let mut settings = settings(&[A]);
    settings.cold_reads_per_second = 20;
    settings.requests_in_flight = 50;
    let client = connect(&cluster, settings);
    client.shard_info("couchdb@a", "s", Cache::Warm).await.unwrap();
    let read = |cache| {
        let client = client.client.clone();
        let reads = (0..100).map(move |_| {
            let client = client.clone();
            async move { client.shard_info("couchdb@a", "s", cache).await.unwrap() }
        });
        timed(join_all(reads))
    };
    let (_, took) = read(Cache::Cold).await;
    assert!((4.8..5.3).contains(&took.as_secs_f64()), "{took:?}");
    let (_, took) = read(Cache::Warm).await;
    assert!(took < Duration::from_millis(100), "{took:?}");
}
