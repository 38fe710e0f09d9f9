//! The example configurations of Prometheus and Alertmanager, judged by their own tools.

use crate::monitoring::{
    rules::alerts,
    tools::{self, AMTOOL, PROMTOOL},
};
use axum::{Router, http::header, routing::get};
use std::{collections::BTreeSet, fs};
use tokio::net::TcpListener;

const BY_HTTP: &str = include_str!("../../../deploy/prometheus/fleet.yml");
const TARGETS: &str = include_str!("../../../deploy/prometheus/targets.json");
const ALERTMANAGER: &str = include_str!("../../../deploy/alertmanager/alertmanager.yml");

#[tokio::test]
async fn promtool_accepts_the_configurations() {
    if !tools::installed(&[PROMTOOL]) {
        return;
    }
    for file in ["deploy/prometheus/prometheus.yml", "deploy/prometheus/fleet.yml"] {
        let ran = tools::run(PROMTOOL, &["check", "config", "--lint-fatal", file], "").await;
        assert!(ran.success && ran.said.contains("2 rule files found"), "{}", ran.said);
    }
}

#[tokio::test]
async fn targets_are_discovered_from_the_example_response() {
    if !tools::installed(&[PROMTOOL]) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("the listener is bound").to_string();
    let answer = get(async || ([(header::CONTENT_TYPE, "application/json")], TARGETS));
    let router = Router::new().route("/targets.json", answer);
    let server = axum::serve(listener, router).into_future();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("prometheus.yml");
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/alerts/");
    let text = BY_HTTP.replace("127.0.0.1:8080", &address).replace("../../alerts/", rules);
    fs::write(&file, text).expect("the file is writable");
    let words = ["check", "service-discovery", "--timeout=10s"];
    let words = words.into_iter().chain([file.to_str().expect("a plain path"), "recliner"]);
    let words: Vec<&str> = words.collect();
    let ran = tokio::select! {
        ran = tools::run(PROMTOOL, &words, "") => ran,
        ended = server => panic!("the server ended: {ended:?}"),
    };
    assert!(ran.success, "{}", ran.said);
    for part in ["recliner-1.example.net:10984", "\"cluster\": \"production\"", "\"test\""] {
        assert!(ran.said.contains(part), "{part} is not in {}", ran.said);
    }
}

#[tokio::test]
async fn alerts_are_routed_by_severity() {
    if !tools::installed(&[AMTOOL]) {
        return;
    }
    let file = "deploy/alertmanager/alertmanager.yml";
    let ran = tools::run(AMTOOL, &["check-config", file], "").await;
    assert!(ran.success, "{}", ran.said);
    for (severity, receiver) in [("critical", "on-call"), ("warning", "team"), ("info", "nobody")] {
        let file = format!("--config.file={file}");
        let severity = format!("severity={severity}");
        let ran = tools::run(AMTOOL, &["config", "routes", "test", &file, &severity], "").await;
        assert_eq!(ran.said.lines().next(), Some(receiver), "{severity}");
    }
}

#[test]
fn routes_name_only_existing_alerts() {
    let alerts = alerts();
    let named: BTreeSet<&str> = ALERTMANAGER
        .split("alertname")
        .skip(1)
        .filter_map(|rest| rest.split('"').nth(1))
        .flat_map(|names| names.split('|'))
        .filter(|name| name.starts_with("Recliner"))
        .collect();
    assert!(named.len() > 10, "alerts are named: {named:?}");
    let there = |name: &str| match name.strip_suffix(".+") {
        Some(start) => alerts.keys().any(|it| it.starts_with(start)),
        None => alerts.contains_key(name),
    };
    assert!(named.iter().all(|name| there(name)), "{named:?}");
}
