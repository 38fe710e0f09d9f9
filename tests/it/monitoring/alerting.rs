//! From a fault in the cluster to the notification that a person gets, and to the notification of
//! its end: through the bundled rules, a real Prometheus and a real Alertmanager.

use super::{
    rules::{ALERTS, RECORDING, alerts},
    servers::Server,
    tools::{self, ALERTMANAGER, AMTOOL, PROMETHEUS},
};
use crate::command::{NODES, Site, service::Running, world};
use axum::{Json, Router, routing::post};
use serde_json::Value;
use std::{fs, time::Duration};
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet, time};

/// Longer than an alert takes to arrive on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The bundled alerts, each firing after one second.
fn hasty() -> String {
    let mut file: yaml_serde::Value = yaml_serde::from_str(ALERTS).expect("valid YAML");
    let groups = file["groups"].as_sequence_mut().expect("there are groups");
    for group in groups {
        for rule in group["rules"].as_sequence_mut().expect("there are rules") {
            rule["for"] = "1s".into();
        }
    }
    yaml_serde::to_string(&file).expect("it is YAML again")
}

/// A server for Alertmanager's notifications; returns its address and the messages.
async fn webhook(servers: &mut JoinSet<std::io::Result<()>>) -> (String, mpsc::Receiver<Value>) {
    let (sender, messages) = mpsc::channel(100);
    let take = move |Json(message): Json<Value>| {
        let sender = sender.clone();
        async move {
            // A failed send means that the test is over.
            let _over = sender.send(message).await;
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("the listener is bound");
    let router = Router::new().route("/", post(take));
    servers.spawn(async move { axum::serve(listener, router).await });
    (format!("http://{address}/"), messages)
}

/// The first alert with this name and status in the messages.
async fn wait_for_alert(
    messages: &mut mpsc::Receiver<Value>,
    name: &str,
    status: &str,
) -> Option<Value> {
    let found = async {
        while let Some(message) = messages.recv().await {
            let alerts = message["alerts"].as_array().cloned().unwrap_or_default();
            let mut alerts = alerts.into_iter();
            let found =
                alerts.find(|it| it["labels"]["alertname"] == name && it["status"] == status);
            if found.is_some() {
                return found;
            }
        }
        None
    };
    time::timeout(PATIENCE, found).await.ok().flatten()
}

#[tokio::test]
async fn fault_and_its_end_are_notified_in_words() {
    if !tools::installed(&[PROMETHEUS, ALERTMANAGER, AMTOOL]) {
        return;
    }
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let hasty_scans = "scan: {interval: 1s}\npoll: 1s\ncouchdb: {timeout: 2s}\n";
    fs::write(dir.path().join("recliner.yml"), hasty_scans).expect("the file is writable");
    let recliner = Running::start(&site, dir.path(), &["--config.file", "recliner.yml"]).await;

    let mut servers = JoinSet::new();
    let (hook, mut messages) = webhook(&mut servers).await;
    let alertmanager = Server::alertmanager(&format!(
        "route: {{receiver: people, group_by: [alertname], group_wait: 1s, group_interval: 1s}}
receivers: [{{name: people, webhook_configs: [{{url: '{hook}', send_resolved: true}}]}}]
"
    ))
    .await;
    let configuration = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [recording.yaml, alerts.yaml]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{}']}}]}}]}}
scrape_configs:
  - job_name: recliner
    honor_labels: true
    static_configs: [{{targets: ['{}'], labels: {{cluster: simulated}}}}]
",
        alertmanager.address, recliner.address
    );
    let rules = [("recording.yaml", RECORDING), ("alerts.yaml", &hasty())];
    let prometheus = Server::prometheus(&configuration, &rules).await;

    // Prometheus has to see the healthy cluster before the fault.
    let query = "/api/v1/query?query=count(cluster_node:recliner_node_up:max==1)";
    let seen = async {
        while prometheus.get(query).await["data"]["result"][0]["value"][1] != "3" {
            time::sleep(Duration::from_millis(200)).await;
        }
    };
    time::timeout(PATIENCE, seen).await.expect("three nodes are seen in time");

    let name = "ReclinerNodeUnseen";
    site.cluster.faults().down(NODES[1]);
    let fired = wait_for_alert(&mut messages, name, "firing").await;
    let fired = fired.unwrap_or_else(|| panic!("no notification: {}", prometheus.said()));
    let labels = serde_json::json!({
        "alertname": name, "severity": "warning", "cluster": "simulated", "node": NODES[1],
    });
    assert_eq!(fired["labels"], labels);
    let rule = &alerts()[name].annotations;
    assert_eq!(fired["annotations"]["summary"], rule["summary"]);
    assert_eq!(fired["annotations"]["runbook_url"], rule["runbook_url"]);
    let rendered = format!(
        "{} has not answered any recliner for 15 minutes. Its facts are out of date, and no compaction starts there.",
        NODES[1]
    );
    assert_eq!(fired["annotations"]["description"], rendered);
    let url = format!("--alertmanager.url=http://{}", alertmanager.address);
    let known = tools::run(AMTOOL, &["alert", "query", &url, "severity=warning"], "").await;
    assert!(known.success && known.said.contains(name), "{}", known.said);

    site.cluster.faults().up(NODES[1]);
    let over = wait_for_alert(&mut messages, name, "resolved").await;
    let over = over.unwrap_or_else(|| panic!("no notification of its end: {}", prometheus.said()));
    assert_eq!(over["labels"], labels);

    // Every rule can be evaluated on recliner's exports, whether it fires or not.
    let answer = prometheus.get("/api/v1/rules").await;
    let groups = answer["data"]["groups"].as_array().expect("there are groups");
    let rules: Vec<&Value> =
        groups.iter().filter_map(|group| group["rules"].as_array()).flatten().collect();
    assert!(rules.len() > alerts().len(), "{answer}");
    for rule in rules {
        assert_eq!((&rule["health"], &rule["lastError"]), (&"ok".into(), &Value::Null), "{rule}");
    }
}
