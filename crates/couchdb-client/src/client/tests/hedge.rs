use super::fake::{Cluster, connect, drain, endless, json, settings, timed};
use crate::Cache;
use std::time::Duration;
use tokio::time::timeout;

const A: &str = "http://a:5984";
const B: &str = "http://b:5984";

#[tokio::test(start_paused = true)]
async fn asks_second_server_while_the_first_is_silent() {
    let (cluster, mut seen) =
        Cluster::new(|seen| (seen.host == "a" && seen.path == "/_membership").then(endless));
    let client = connect(&cluster, settings(&[A, B]));
    client.session().await.unwrap();
    client.session().await.unwrap();
    drain(&mut seen);
    let (_, took) = timed(async {
        for _ in 0..20 {
            client.membership().await.unwrap();
        }
    })
    .await;
    assert!(
        took < Duration::from_secs(5),
        "the silent server delays once, by three seconds: {took:?}"
    );
    let asked = drain(&mut seen);
    assert_eq!(asked.iter().filter(|it| it.host == "a" && it.path == "/_membership").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn request_about_whole_cluster_goes_to_one_server() {
    let (cluster, mut seen) = Cluster::new(|seen| seen.path.contains("_reshard").then(endless));
    let client = connect(&cluster, settings(&[A, B]));
    let waited = timeout(Duration::from_secs(25), client.reshard_jobs()).await;
    assert!(waited.is_err(), "{waited:?}");
    assert_eq!(drain(&mut seen).iter().filter(|it| it.path.contains("_reshard")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn uses_a_nodes_own_address_when_the_only_entry_hangs() {
    let hangs = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let now = std::sync::Arc::clone(&hangs);
    let (cluster, _seen) = Cluster::new(move |seen| {
        let hangs = now.load(std::sync::atomic::Ordering::Relaxed);
        (hangs && seen.host == "a").then(endless)
    });
    let client = connect(&cluster, settings(&[A]));
    client.shard_info("couchdb@b", "shard", Cache::Warm).await.unwrap();
    hangs.store(true, std::sync::atomic::Ordering::Relaxed);
    for within in [4, 1, 1] {
        let (members, took) = timed(client.membership()).await;
        members.unwrap();
        assert!(took <= Duration::from_secs(within), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn server_answering_nonsense_is_not_asked_forever() {
    let (cluster, mut seen) = Cluster::new(|seen| match (seen.host.as_str(), &*seen.path) {
        ("a", "/_membership") => Some(json(200, "<html>")),
        ("b", "/_membership") => Some(endless()),
        _ => None,
    });
    let client = connect(&cluster, settings(&[A, B]));
    for _ in 0..4 {
        let (members, took) = timed(client.membership()).await;
        assert!(members.is_err());
        assert!(took < Duration::from_secs(120), "{took:?}");
    }
    assert!(drain(&mut seen).len() < 60);
}
