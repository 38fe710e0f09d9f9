//! `/metrics`.

use super::*;
use crate::exposition::{duplicate_series, families};
use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    process::{Command, Stdio},
};

/// With everything registered that the service registers.
fn whole() -> Surface {
    let surface = Surface::new();
    let process = prometheus::process_collector::ProcessCollector::for_self();
    surface.state.registry.register(Box::new(process)).unwrap();
    couch::Metrics::register(&surface.state.registry).unwrap();
    surface
}

/// The names of the families in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split(' ').next()).collect()
}

#[tokio::test]
async fn a_small_cluster_scrapes_as_written_down() {
    let surface = Surface::new();
    let text = surface.get("/metrics").await;
    insta::assert_snapshot!("text", text.text());
    let accept = [("accept", "application/openmetrics-text; version=1.0.0")];
    let open = surface.ask(Method::GET, "/metrics", &accept).await;
    insta::assert_snapshot!("openmetrics", open.text());
}

#[tokio::test]
async fn the_format_is_negotiated_and_always_named() {
    let surface = whole();
    let text = "text/plain; version=0.0.4; charset=utf-8";
    let open = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    for (headers, expected) in [
        (&[][..], text),
        (&[("accept", "*/*")], text),
        (&[("accept", "text/html, */*;q=0.1")], text),
        (&[("accept", "image/png")], text),
        (
            &[(
                "accept",
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            )],
            open,
        ),
        (&[("accept", "application/openmetrics-text;q=0.1, text/plain;q=0.9")], text),
        (&[("accept", "text/plain;q=0.5"), ("accept", "application/openmetrics-text")], open),
    ] {
        let answer = surface.ask(Method::GET, "/metrics", headers).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.header("content-type"), expected, "{headers:?}");
        assert_eq!(answer.header("vary"), "accept, accept-encoding");
        assert_eq!(answer.text().ends_with("# EOF\n"), expected == open);
    }
}

#[tokio::test]
async fn gzip_carries_the_same_text() {
    let surface = Surface::new();
    let plain = surface.get("/metrics").await;
    assert_eq!(plain.header("content-encoding"), "");
    let packed = surface.ask(Method::GET, "/metrics", &[("accept-encoding", "gzip")]).await;
    assert_eq!(packed.header("content-encoding"), "gzip");
    assert_eq!(packed.header("content-type"), plain.header("content-type"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&*packed.body).read_to_string(&mut text).unwrap();
    assert_eq!(text, plain.text());
    let refused = surface.ask(Method::GET, "/metrics", &[("accept-encoding", "gzip;q=0")]).await;
    assert_eq!(refused.header("content-encoding"), "");
}

#[tokio::test]
async fn no_series_is_named_twice_and_no_family_lacks_its_row() {
    let mut surface = whole();
    surface.state.journal = Some(journal::opened().1);
    let accept = [("accept", "application/openmetrics-text")];
    for answer in
        [surface.get("/metrics").await, surface.ask(Method::GET, "/metrics", &accept).await]
    {
        assert_eq!(duplicate_series(answer.text()), [""; 0]);
    }
    let answer = surface.get("/metrics").await;
    let own: BTreeSet<&str> =
        names(answer.text()).into_iter().filter(|name| name.starts_with("recliner_")).collect();
    let table: BTreeSet<&str> = families::ALL.iter().map(|family| family.name).collect();
    // None has anything to show here: no feed is followed, nobody looked for indexes that lag, no
    // request was sent, slack queues are empty, no node said what it runs, no volume is configured
    // and no directory read, smoosh is left alone, no gate is shut since a moment and nothing is suspended.
    let silent = BTreeSet::from([
        families::FEED_CONNECTED.name,
        families::FEED_EVENTS.name,
        families::FEED_PENDING_EVENTS.name,
        families::FEED_SUBSCRIBERS.name,
        families::VIEW_UPDATES_PENDING.name,
        families::SEARCH_UPDATES_PENDING.name,
        families::INDEX_BUILDS_RUNNING.name,
        families::INDEX_BUILDS_WAITING.name,
        families::INDEX_BUILDS_STALLED.name,
        families::INDEX_BUILDS_STARTED.name,
        families::INDEX_BUILDS_FINISHED.name,
        families::PRESSURE.name,
        families::SMOOSH_TAKEN_OVER.name,
        families::DISK_SIZE_BYTES.name,
        families::DISK_AVAILABLE_BYTES.name,
        families::DISK_RESERVED_BYTES.name,
        families::STALE_INDEX_BYTES.name,
        families::LEFTOVER_BYTES.name,
        families::TRASH_BYTES.name,
        families::SOURCE_DISAGREEMENTS.name,
        families::JOBS_RUNNING.name,
        families::JOB_PROGRESS_RATIO.name,
        families::JOB_LAST_PROGRESS_TIMESTAMP.name,
        families::COMPACTION_RECLAIMED_BYTES.name,
        families::COMPACTION_REWRITTEN_BYTES.name,
        families::COUCHDB_REQUEST_DURATION.name,
        families::QUEUE_SLACK_BYTES_MIN.name,
        families::QUEUE_SLACK_BYTES_MAX.name,
        families::GATE_CLOSED_SINCE_TIMESTAMP.name,
        families::SUSPENDED_SINCE_TIMESTAMP.name,
    ]);
    assert_eq!(own, &table - &silent);
    for process in ["process_cpu_seconds_total", "process_resident_memory_bytes"] {
        assert!(names(answer.text()).contains(process), "{process}");
    }
}

#[test]
fn what_the_client_counts_is_what_the_table_says() {
    let registry = prometheus::Registry::new();
    couch::Metrics::register(&registry).unwrap();
    let gathered = registry.gather();
    let requests = gathered.iter().find(|it| it.name() == families::COUCHDB_REQUESTS.name);
    let requests = requests.expect("registered under the table's name");
    assert_eq!(requests.help(), families::COUCHDB_REQUESTS.help);
    let mut labels: Vec<&str> =
        requests.get_metric()[0].get_label().iter().map(|label| label.name()).collect();
    let mut expected = families::COUCHDB_REQUESTS.labels.to_vec();
    labels.sort_unstable();
    expected.sort_unstable();
    assert_eq!(labels, expected);
    // A histogram without children is not gathered: its name is taken all the same.
    let twin = prometheus::HistogramVec::new(
        prometheus::HistogramOpts::new(
            families::COUCHDB_REQUEST_DURATION.name,
            families::COUCHDB_REQUEST_DURATION.help,
        ),
        &families::COUCHDB_REQUEST_DURATION.labels,
    );
    let registered = registry.register(Box::new(twin.unwrap()));
    assert!(matches!(registered, Err(prometheus::Error::AlreadyReg)), "{registered:?}");
}

#[tokio::test]
async fn before_anything_was_seen_only_the_program_shows() {
    let surface = Surface::new();
    surface.plan.send_replace(Arc::default());
    surface.status.send_replace(Arc::default());
    let text = surface.get("/metrics").await;
    let names = names(text.text());
    for unknown in [
        "recliner_node_up",
        "recliner_scan_duration_seconds",
        "recliner_targets",
        "recliner_file_bytes",
    ] {
        assert!(!names.contains(unknown), "{unknown}");
    }
    assert!(names.contains("recliner_build_info"));
    // A node that was named and never read.
    let mut draft = Draft::new(1);
    draft.node("couchdb@a");
    surface.plan.send_replace(Arc::new(planned(&draft.publish(NOW))));
    let text = surface.get("/metrics").await;
    assert!(!text.text().contains("recliner_targets{"), "{}", text.text());
}

#[tokio::test]
async fn what_is_not_known_is_absent_and_what_is_empty_is_zero() {
    let surface = Surface::new();
    let text = surface.get("/metrics").await;
    let has = |line: &str| text.text().lines().any(|it| it == line);
    let mentions = |start: &str| text.text().lines().any(|it| it.starts_with(start));
    assert!(has("recliner_node_up{node=\"couchdb@b\"} 0"));
    assert!(!mentions("recliner_node_info{node=\"couchdb@b\""));
    assert!(!mentions("recliner_smoosh_up{node=\"couchdb@b\""));
    assert!(!mentions("recliner_scan_last_success_timestamp_seconds{node=\"couchdb@b\""));
    assert!(has("recliner_queue_size{node=\"couchdb@b\",channel=\"ratio_dbs\"} 0"));
    assert!(!mentions("recliner_queue_oldest_timestamp_seconds{node=\"couchdb@b\""));
    assert!(has("recliner_scan_errors_total{node=\"couchdb@a\",reason=\"timeout\"} 0"));
    assert!(has("recliner_scan_errors_total{node=\"couchdb@b\",reason=\"connect\"} 2"));
    assert!(has("recliner_targets{node=\"couchdb@a\",kind=\"db\",state=\"orphan\"} 1"));
    // What lies about is counted, and has no series of its own: its database's live
    // instance has that name.
    assert!(!mentions(
        "recliner_target_file_bytes{node=\"couchdb@a\",kind=\"db\",db=\"orders.16\""
    ));
    assert!(has(
        "recliner_target_file_bytes{node=\"couchdb@a\",kind=\"db\",db=\"orders\",range=\"00000000-ffffffff\",ddoc=\"\",signature=\"\"} 104857600"
    ));
}

#[tokio::test]
async fn of_two_live_instances_of_one_name_the_larger_shows() {
    let surface = Surface::new();
    let mut draft = Draft::new(10);
    let node = draft.node("couchdb@a");
    draft.change_node(node, |node| node.member = true);
    for (suffix, file) in [(".16", 90), (".17", 80), ("", 70)] {
        let db = draft.db(DbName { db: "orders", suffix });
        let ix = draft.db_target(node, db, Some(RANGE));
        draft.set_facts(ix, facts(file * MIB, MIB));
        let view = View {
            signature: Signature([1; 16]),
            designs: ["_design/a".into()].into(),
            language: "javascript".into(),
            collators: [].into(),
            exact_range: true,
            ..View::default()
        };
        let view = draft.add_view(db, view);
        draft.set_facts(view, facts(file * MIB, MIB));
    }
    surface.plan.send_replace(Arc::new(planned(&draft.publish(NOW))));
    let text = surface.get("/metrics").await;
    assert_eq!(duplicate_series(text.text()), [""; 0]);
    let files = text.text().lines().filter(|it| it.starts_with("recliner_target_file_bytes{"));
    let view = "01".repeat(16);
    assert_eq!(
        files.collect::<Vec<_>>(),
        [
            format!(
                "recliner_target_file_bytes{{node=\"couchdb@a\",kind=\"db\",db=\"orders\",range=\"00000000-ffffffff\",ddoc=\"\",signature=\"\"}} {}",
                90 * MIB
            ),
            format!(
                "recliner_target_file_bytes{{node=\"_cluster\",kind=\"view\",db=\"orders\",range=\"\",ddoc=\"_design/a\",signature=\"{view}\"}} {}",
                90 * MIB
            ),
        ]
    );
    for kind in ["db", "view"] {
        let line = format!("recliner_targets_not_exported{{kind=\"{kind}\"}} 2");
        assert!(text.text().lines().any(|it| it == line), "{line}");
    }
}

#[tokio::test]
async fn one_scrape_too_many_is_told_to_come_again() {
    let surface = Surface::new();
    let scrapes = metrics::Scrapes::new(1);
    let route = get(metrics::metrics).layer(Extension(scrapes.clone()));
    let router = Router::new().route("/metrics", route).with_state(surface.state.clone());
    let held = scrapes.turn().await.unwrap();
    let answer = ask(router.clone(), Method::GET, "/metrics", &[]).await;
    assert_eq!(
        (answer.status, answer.text()),
        (StatusCode::SERVICE_UNAVAILABLE, "too many scrapes at a time\n")
    );
    assert_eq!(answer.header("retry-after"), "1");
    drop(held);
    for _ in 0..3 {
        let answer = ask(router.clone(), Method::GET, "/metrics", &[]).await;
        assert_eq!(answer.status, StatusCode::OK, "a turn comes back");
    }
}

#[tokio::test]
async fn promtool_finds_nothing_to_say() {
    if Command::new("promtool").arg("--version").output().is_err() {
        println!("skipped: promtool is not installed (Debian has it in the package prometheus)");
        return;
    }
    let text = whole().get("/metrics").await;
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool.stdin.take().unwrap().write_all(&text.body).unwrap();
    let said = promtool.wait_with_output().unwrap();
    let words = [said.stdout, said.stderr].concat();
    assert_eq!(String::from_utf8_lossy(&words), "", "{}", text.text());
    assert!(said.status.success());
}

#[tokio::test]
async fn nodes_are_found_at_addresses_proven_to_be_their_own() {
    let surface = Surface::new();
    let (status, found) = surface.json("/sd").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        found,
        json!([{
            "targets": ["couch-a:5984"],
            "labels": {
                "__scheme__": "http",
                "__metrics_path__": "/db/_node/_local/_prometheus",
                "__meta_recliner_node": "couchdb@a",
                "__meta_recliner_version": "3.5.0",
            },
        }])
    );
}
