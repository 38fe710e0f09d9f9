//! Queries against a small fake on loopback, and against a real Prometheus if it is installed.

use super::*;
use crate::{
    model::settings::limits::Free,
    plan::disk::{SpaceMeter as _, SpaceSource, SystemMeter},
    skipped::skipped,
};
use axum::{Router, extract::Query, http::StatusCode, routing::get};
use std::{collections::HashMap, process::Stdio, sync::Arc};
use tokio::{net::TcpListener, task::JoinSet, time};

const NOW: u64 = 1_000_000;
/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn client() -> reqwest::Client {
    // Another test may have installed the same provider before.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap()
}

/// The answer to a query.
type Rule = fn(&str) -> (u16, String);

async fn fake(rule: Rule) -> (Address, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/prom", listener.local_addr().unwrap()).parse().unwrap();
    let rule = Arc::new(rule);
    let answer = move |Query(query): Query<HashMap<String, String>>| async move {
        // Both the query and its evaluation at a given time get the same answer.
        let (status, body) = rule(&query["query"]);
        (StatusCode::from_u16(status).unwrap(), body)
    };
    let router = Router::new().route("/prom/api/v1/query", get(answer));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
    (address, tasks)
}

fn vector(values: &[&str]) -> String {
    let result: Vec<_> = values
        .iter()
        .map(|value| serde_json::json!({"metric": {}, "value": [NOW as f64 + 0.781, value]}))
        .collect();
    let data = serde_json::json!({"resultType": "vector", "result": result});
    serde_json::json!({"status": "success", "data": data}).to_string()
}

fn refusal(kind: &str, why: &str) -> String {
    serde_json::json!({"status": "error", "errorType": kind, "error": why}).to_string()
}

/// Answers the query itself with `answer`, and its `timestamp()` with a scrape at `NOW`.
fn at_now(query: &str, answer: (u16, String)) -> (u16, String) {
    if query.starts_with("timestamp(") { (200, vector(&["1000000"])) } else { answer }
}

#[tokio::test]
async fn accepts_one_sample_and_explains_every_other_answer() {
    type Case = (Rule, Result<(u64, u64), &'static str>);
    let cases: &[Case] = &[
        (|query| at_now(query, (200, vector(&["1.5e9"]))), Ok((1_500_000_000, NOW))),
        (|query| at_now(query, (200, vector(&["0"]))), Ok((0, NOW))),
        (|_| (200, vector(&[])), Err("it returned no sample")),
        (|_| (200, vector(&["1", "2"])), Err("it returned 2 samples; add labels")),
        (|query| at_now(query, (200, vector(&["NaN"]))), Err("its sample is NaN")),
        (|query| at_now(query, (200, vector(&["+Inf"]))), Err("its sample is +Inf")),
        (|query| at_now(query, (200, vector(&["-5"]))), Err("which is negative")),
        (|_| (200, vector(&["many"])), Err("\"many\" is not a number")),
        (|_| (503, String::new()), Err("HTTP 503")),
        (|_| (422, refusal("execution", "query timed out")), Err("HTTP 422, query timed out")),
        (|_| (400, refusal("bad_data", "parse error")), Err("HTTP 400, parse error")),
        (|_| (200, "<html>".to_owned()), Err("check that this is a Prometheus server")),
        (|_| (200, "{}".to_owned()), Err("has no data")),
        (|_| (302, String::new()), Err("HTTP 302")),
        (|_| (200, "x".repeat(MAX_ANSWER_BYTES + 1)), Err("is larger than")),
        // The sample was scraped long before the evaluation.
        (
            |query| {
                let stamped = query.starts_with("timestamp(");
                (200, vector(&[if stamped { "999600" } else { "7" }]))
            },
            Err("is 6m 40s old, older than max_age (5m)"),
        ),
        // A scalar has no timestamp of its own.
        (
            |query| match query {
                "scalar(free)" | "free" => {
                    let data = r#"{"status":"success","data":{"resultType":"scalar","result":[1000000.5,"8"]}}"#;
                    (200, data.to_owned())
                }
                _ => (400, refusal("bad_data", "expected type instant vector")),
            },
            Ok((8, NOW)),
        ),
        (
            |_| {
                (
                    200,
                    r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#.to_owned(),
                )
            },
            Err("remove the range"),
        ),
    ];
    let http = client();
    for (at, (rule, expected)) in cases.iter().enumerate() {
        let (url, _server) = fake(*rule).await;
        let now = Moment::from_unix(NOW);
        let found = query_bytes(&http, &url, "free", Duration::from_secs(300), now).await;
        match (found, expected) {
            (Ok(answer), Ok(expected)) => {
                assert_eq!((answer.bytes, answer.measured_at.unix()), *expected, "case {at}");
            }
            (Err(error), Err(says)) => {
                assert!(error.contains(says), "case {at}: {error}");
                assert!(error.contains("\"free\"") && error.contains("/prom"), "{error}");
            }
            (found, expected) => panic!("case {at}: {found:?} is not {expected:?}"),
        }
    }
}

#[tokio::test]
async fn queries_size_of_volume_along_with_free_space() {
    let rule: Rule = |query| match query {
        "free" => (200, vector(&["5e9"])),
        "size" => (200, vector(&["9e9"])),
        other => at_now(other, (200, vector(&[]))),
    };
    let (url, _server) = fake(rule).await;
    let _installed = client();
    let meter = SystemMeter::new().unwrap();
    let now = Moment::from_unix(NOW);
    for (size_query, expected) in
        [(None, Ok(None)), (Some("size"), Ok(Some(9_000_000_000))), (Some("none"), Err(()))]
    {
        let source = SpaceSource::Configured(Free::Prometheus {
            url: url.clone(),
            query: "free".to_owned(),
            size_query: size_query.map(str::to_owned),
            max_age: Duration::from_secs(300),
        });
        let found = meter.measure(&source, None, now).await;
        assert_eq!(found.map(|found| found.space.size).map_err(|_| ()), expected);
    }
}

#[tokio::test]
async fn a_refused_connection_names_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: Address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let now = Moment::from_unix(NOW);
    let error = query_bytes(&client(), &url, "up", Duration::from_secs(1), now).await.unwrap_err();
    assert!(error.contains(url.as_str()) && error.contains("refused"), "{error}");
}

#[test]
fn sample_age_is_the_larger_of_two_estimates() {
    for (stamp, age, now, at) in [
        (1_000_000.0, 10, 1_000_010, 1_000_000),
        // The sample's timestamp makes it older than its age does.
        (999_900.0, 10, 1_000_010, 999_900),
        // Prometheus's clock is ahead of the local one, so the age is computed by Prometheus's
        // clock.
        (2_000_000.0, 10, 1_000_010, 1_000_000),
        (-5.0, 0, 1_000_010, 0),
    ] {
        let found = sample_time(stamp, Duration::from_secs(age), Moment::from_unix(now));
        assert_eq!(found.unix(), at, "{stamp}");
    }
}

/// A Prometheus that scrapes itself.
async fn real() -> Option<(Address, tokio::process::Child, tempfile::TempDir)> {
    let dir = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let config = format!(
        "scrape_configs: [{{job_name: self, scrape_interval: 1s, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]"
    );
    std::fs::write(dir.path().join("prometheus.yml"), config).unwrap();
    let spawned = tokio::process::Command::new("prometheus")
        .arg("--config.file=prometheus.yml")
        .arg("--storage.tsdb.path=tsdb")
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    match spawned {
        Ok(child) => {
            let address = format!("http://127.0.0.1:{port}").parse().unwrap();
            Some((address, child, dir))
        }
        Err(why) => {
            skipped(&format!("prometheus, whose real answers it tests: {why}"));
            None
        }
    }
}

#[tokio::test]
async fn a_real_prometheus_answers_like_the_fake() {
    const FREE: &str = "process_virtual_memory_bytes{job=\"self\"} # bytes";
    let Some((url, mut child, _dir)) = real().await else { return };
    let http = client();
    let clock = wall_clock::Clock::System;
    let max_age = Duration::from_secs(120);
    let query_now = async |query: &str| query_bytes(&http, &url, query, max_age, clock.now()).await;
    let first = time::timeout(PATIENCE, async {
        loop {
            match query_now(FREE).await {
                Ok(answer) => return answer,
                Err(_) => time::sleep(Duration::from_millis(200)).await,
            }
        }
    });
    let first = first.await.expect("prometheus scrapes itself within a minute");
    assert!(first.bytes > 0 && first.measured_at.age(clock.now()) < max_age, "{first:?}");
    for (query, says) in [
        ("up{job=\"nobody\"}", "it returned no sample"),
        ("{job=\"self\"}", "samples; add labels"),
        ("up{", "HTTP 400"),
        ("up[5m]", "remove the range"),
        ("0/0", "its sample is NaN"),
    ] {
        let error = query_now(query).await.unwrap_err();
        assert!(error.contains(says), "{query}: {error}");
    }
    assert_eq!(query_now("scalar(vector(42))").await.unwrap().bytes, 42);
    child.kill().await.unwrap();
}
