//! A service from its start to its end.

use super::{NODES, PASSWORD, PATIENCE, Site, recliner, world};
use recliner::sim::Exchange;
use serde_json::Value;
use std::{collections::BTreeSet, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::Command,
    time,
};

/// The address that a service says it serves on.
async fn address_of(stderr: &mut (impl AsyncBufReadExt + Unpin)) -> String {
    let mut lines = stderr.lines();
    let found = async {
        while let Some(line) = lines.next_line().await.expect("it can be read") {
            if let Some((_, rest)) = line.split_once("address=") {
                return rest.split_whitespace().next().unwrap_or_default().to_owned();
            }
        }
        panic!("it ended without serving");
    };
    time::timeout(PATIENCE, found).await.expect("it serves in time")
}

#[tokio::test]
async fn a_service_answers_for_the_cluster_until_it_is_told_to_stop() {
    let site = Site::open(world()).await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_recliner"));
    command.args(["serve", "--web.listen-address", "127.0.0.1:0"]);
    command.args(site.urls.iter().flat_map(|url| ["--couchdb.url", url]));
    command.env_clear().env("COUCHDB_USER", "adm").env("COUCHDB_PASSWORD", PASSWORD);
    let dir = tempfile::tempdir().unwrap();
    command.current_dir(dir.path()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut service = command.spawn().unwrap();
    let mut stderr = BufReader::new(service.stderr.take().unwrap());
    let base = format!("http://{}", address_of(&mut stderr).await);

    let _again = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = async |path: &str| {
        let answer = http.get(format!("{base}{path}")).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let ready = async {
        while get("/-/ready").await.0 != 200 {
            time::sleep(Duration::from_millis(20)).await;
        }
    };
    time::timeout(PATIENCE, ready).await.unwrap();
    let (_, metrics) = get("/metrics").await;
    for node in NODES {
        assert!(metrics.contains(&format!("recliner_node_up{{node=\"{node}\"}} 1")), "{metrics}");
    }
    for path in
        ["/metrics", "/", "/api/v1/status", "/api/v1/config", "/api/v1/targets", "/api/v1/queue"]
    {
        let (status, body) = get(path).await;
        assert_eq!(status, 200, "{path}");
        assert!(!body.contains(PASSWORD), "{path}");
    }

    let words = ["explain", "orders/2024+x", "--recliner.url", &base, "--format", "json"];
    let asked = recliner(&words, &[]).await;
    assert_eq!((asked.code, asked.err.as_str()), (0, ""), "{asked:?}");
    assert_eq!(asked.json()["memory"], true);
    let read = site.run(&["explain", "orders/2024+x", "--format", "json"]).await;
    let ids = |answer: Value| -> BTreeSet<String> {
        let targets = answer["targets"].as_array().cloned().unwrap_or_default();
        targets.iter().filter_map(|it| it["id"].as_str().map(ToOwned::to_owned)).collect()
    };
    assert_eq!(ids(asked.json()), ids(read.json()));
    assert!(!ids(asked.json()).is_empty());
    recliner(&["explain", "nothing", "--recliner.url", &base], &[]).await.refuses(1, &["nothing"]);

    let pid = service.id().unwrap().to_string();
    let told = std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(told.success());
    let ended = time::timeout(PATIENCE, service.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(0));
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).await.unwrap();
    assert!(!rest.contains("panicked") && !rest.contains(PASSWORD), "{rest}");
    assert!(site.cluster.wire().iter().all(Exchange::is_reading));
    let words = ["explain", "nothing", "--recliner.url", &base];
    recliner(&words, &[]).await.refuses(1, &[&base]);
}
