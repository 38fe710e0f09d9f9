//! Tests of `/metrics` and of service discovery.

#[path = "../../../../tests/duplicate_series/mod.rs"]
mod duplicate_series;

use super::*;
use crate::{
    model::records::{Suspension, SuspensionScope},
    serve::http::{families, metrics::Scrape},
    sources::request_metrics::RequestMetrics,
};
use couchdb_client::CertificateEnds;
use duplicate_series::duplicate_series;
use metrics_text::{Encoding, TextFormat, Unit, Writer};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read as _, Write as _},
    process::{Command, Stdio},
};

/// A surface with all the metrics that the service registers.
fn whole() -> Surface {
    let surface = Surface::new();
    #[cfg(target_os = "linux")]
    {
        let process = prometheus::process_collector::ProcessCollector::for_self();
        surface.state.registry.register(Box::new(process)).unwrap();
    }
    RequestMetrics::register(&surface.state.registry).unwrap();
    surface
}

/// The names of the metric families in a scrape.
fn names(text: &str) -> BTreeSet<&str> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split(' ').next()).collect()
}

/// The samples of the cluster of [`Surface::new`]: at least one of each family with a value.
const SHOWN: &str = r#"
recliner_mode{mode="advise"} 1
recliner_channel_mode{channel="ratio_dbs",mode="enforce"} 0
recliner_config_last_reload_successful 1
recliner_config_last_reload_success_timestamp_seconds 1795222000
recliner_couchdb_up{url="http://b:5984"} 0
recliner_node_up{node="couchdb@a"} 1
recliner_node_info{node="couchdb@a",version="3.5.0"} 1
recliner_scan_last_success_timestamp_seconds{node="couchdb@a",source="http"} 1795222440
recliner_scan_oldest_fact_timestamp_seconds{node="couchdb@a",source="http"} 1795222434
recliner_scan_duration_seconds{source="http"} 2.5
recliner_scan_fresh_for_seconds 1200
recliner_targets{node="_cluster",kind="view",state="ok"} 2
recliner_targets{node="_cluster",kind="cleanup",state="ok"} 1
recliner_targets{node="couchdb@b",kind="db",state="missing"} 1
recliner_active_bytes{node="couchdb@a",kind="db"} 32505856
recliner_external_bytes{node="couchdb@a",kind="db"} 65011712
recliner_reclaimable_bytes{node="_cluster",kind="view"} 150982656
recliner_targets_unmeasured{node="couchdb@a"} 0
recliner_orphan_bytes{node="couchdb@a"} 524288000
recliner_database_copies{db="orders",kind="view"} 3
recliner_databases_not_exported 0
recliner_target_active_bytes{node="couchdb@a",kind="db",db="_dbs",range="",ddoc="",signature=""} 0
recliner_queue_size{node="_cluster",channel="ratio_views"} 2
recliner_queue_drainable_bytes{node="couchdb@a",channel="ratio_dbs"} 138038475
recliner_queue_reclaimable_bytes{node="couchdb@a",channel="ratio_dbs"} 138038475
recliner_queue_active{node="couchdb@a",channel="ratio_dbs"} 0
recliner_queue_capacity{node="couchdb@b",channel="slack_dbs"} 9999
recliner_queue_overflow{node="couchdb@b",channel="slack_dbs"} 0
recliner_queue_oldest_timestamp_seconds{node="couchdb@a",channel="ratio_dbs"} 1795222440
recliner_queue_ratio_min{node="couchdb@a",channel="ratio_dbs"} 3
recliner_queue_ratio_max{node="couchdb@a",channel="ratio_dbs"} 10
recliner_channel_concurrency_limit{channel="index_cleanup"} 1
recliner_node_concurrency_limit 2
recliner_cluster_concurrency_limit 8
recliner_channel_window_open{channel="ratio_dbs"} 1
recliner_candidates{node="_cluster",channel="ratio_views",decision="start"} 1
recliner_candidates{node="_cluster",channel="ratio_views",decision="channel_limit"} 1
recliner_candidates{node="couchdb@a",channel="ratio_dbs",decision="ramp"} 2
recliner_gate_open{node="couchdb@b",gate="mode"} 0
recliner_gate_open{node="couchdb@b",gate="journal"} 1
recliner_suspended{scope="all"} 0
recliner_runs{state="paused"} 0
recliner_run_members{state="waiting"} 0
recliner_smoosh_up{node="couchdb@a"} 1
recliner_smoosh_active{node="couchdb@a",channel="ratio_dbs"} 1
recliner_smoosh_starting{node="couchdb@a",channel="ratio_dbs"} 0
recliner_smoosh_waiting{node="couchdb@a",channel="ratio_dbs"} 7
recliner_smoosh_waiting_ratio_min{node="couchdb@a",channel="ratio_dbs"} 2.5
recliner_smoosh_waiting_ratio_max{node="couchdb@a",channel="ratio_dbs"} +Inf
recliner_compactions_finished_total{node="_cluster",channel="index_cleanup",kind="cleanup",result="lost"} 0
recliner_compaction_duration_seconds_count{kind="view"} 0
recliner_compaction_estimate_ratio_count{kind="db"} 0
recliner_quarantined_targets{node="couchdb@b"} 0
recliner_advised_compactions_total 4
recliner_advised_reclaimed_bytes_total 0
recliner_advised_rewritten_bytes_total 0
recliner_advised_conflicts_total 0
recliner_advised_reclaimable_bytes 31457280
recliner_advice{code="orphan_shards",severity="info"} 1
recliner_advice_gain_bytes{code="orphan_shards"} 73400320
"#;

#[tokio::test]
async fn scrape_shows_the_cluster_in_consistent_families() {
    let text = Surface::new().get("/metrics").await;
    let text = text.text();
    let lines: BTreeSet<&str> = text.lines().collect();
    let lacking: Vec<&str> = SHOWN.trim().lines().filter(|line| !lines.contains(line)).collect();
    assert_eq!(lacking, [""; 0], "{text}");

    let of = |family: &str, by: &[&str]| summed(text, &format!("recliner_{family}"), by);
    let mut files = of("target_file_bytes", &["node", "kind"]);
    // An orphan has no series of its own.
    *files.get_mut(&["couchdb@a", "db"].map(str::to_owned)[..]).unwrap() += 524_288_000;
    files.insert(["couchdb@b", "db"].map(str::to_owned).into(), 0);
    assert_eq!(files, of("file_bytes", &["node", "kind"]));
    let queue = ["node", "channel"];
    assert_eq!(of("candidates", &queue), of("queue_size", &queue), "each has one decision");
    let queues: Vec<_> = of("queue_size", &queue).into_keys().collect();
    for what in ["active", "capacity", "overflow", "drainable_bytes", "reclaimable_bytes"] {
        let others: Vec<_> = of(&format!("queue_{what}"), &queue).into_keys().collect();
        assert_eq!(others, queues, "{what}");
    }
    assert!(of("channel_mode", &["channel"]).values().all(|modes| *modes == 1));
    let (codes, gains) = (of("advice", &["code"]), of("advice_gain_bytes", &["code"]));
    assert!(codes.keys().eq(gains.keys()) && codes.len() > 30, "each rule has both");
    let job = ["node", "channel", "kind"];
    let (started, ended) =
        (of("compactions_started_total", &job), of("compactions_finished_total", &job));
    assert!(started.keys().eq(ended.keys()), "{started:?} {ended:?}");
    for kind in ["db", "view"] {
        let buckets = of("compaction_duration_seconds_bucket", &["kind", "le"]);
        assert_eq!(buckets.keys().filter(|labels| labels[0] == kind).count(), 13);
    }
}

#[tokio::test]
async fn text_and_openmetrics_have_the_same_samples_with_metadata() {
    let surface = Surface::new();
    let text = surface.get("/metrics").await;
    // OpenMetrics differs only in its comments.
    let accept = [("accept", "application/openmetrics-text; version=1.0.0")];
    let open = surface.ask(Method::GET, "/metrics", &accept).await;
    let samples = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    assert_eq!(samples(open.text()), samples(text.text()));
    for family in families::all().filter(|family| text.text().contains(family.name)) {
        let name = family.name.strip_suffix("_total").unwrap_or(family.name);
        let help = format!("# HELP {name} {}\n# TYPE {name} ", family.help);
        assert!(open.text().contains(&help), "{help}");
        let unit = format!("\n# UNIT {name} {}\n", family.unit.label());
        let ends_in_unit = Unit::ending(family.name) != Unit::None;
        assert_eq!(open.text().contains(&unit), ends_in_unit, "{unit}");
    }
}

#[tokio::test]
async fn scrape_shows_one_plan_although_another_is_published() {
    let surface = Surface::new();
    let render = |scrape: &Scrape| {
        let mut writer = Writer::new(TextFormat::Text, Encoding::Identity);
        scrape.write(&mut writer);
        writer.finish()
    };
    let scrape = Scrape::of(&surface.state);
    let before = render(&scrape);
    surface.plan.send_replace(Arc::default());
    assert_eq!(render(&scrape), before);
    assert_ne!(render(&Scrape::of(&surface.state)), before, "the next scrape shows the new plan");
}

#[tokio::test]
async fn negotiates_format_and_declares_it() {
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
async fn gzip_scrape_has_the_same_text() {
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
async fn series_are_unique_and_families_declared() {
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
    let table: BTreeSet<&str> = families::all().map(|family| family.name).collect();
    let unknown: Vec<&&str> = own.difference(&table).collect();
    assert!(unknown.is_empty(), "written but not declared: {unknown:?}");
    for process in ["process_cpu_seconds_total", "process_resident_memory_bytes"] {
        assert!(names(answer.text()).contains(process), "{process}");
    }
}

#[test]
fn client_registers_the_declared_families() {
    let declared = |name: &str| {
        let family = families::all().find(|family| family.name == name);
        family.unwrap_or_else(|| panic!("{name} is not declared"))
    };
    let [requests, durations] =
        ["recliner_couchdb_requests_total", "recliner_couchdb_request_duration_seconds"]
            .map(declared);
    let registry = prometheus::Registry::new();
    RequestMetrics::register(&registry).unwrap();
    let gathered = registry.gather();
    let found = gathered.iter().find(|it| it.name() == requests.name);
    let found = found.expect("the family is registered under its declared name");
    assert_eq!(found.help(), requests.help);
    let mut labels: Vec<&str> =
        found.get_metric()[0].get_label().iter().map(|label| label.name()).collect();
    let mut expected = requests.labels.to_vec();
    labels.sort_unstable();
    expected.sort_unstable();
    assert_eq!(labels, expected);
    // A histogram without observations is not gathered, but its name cannot be registered again.
    let twin = prometheus::HistogramVec::new(
        prometheus::HistogramOpts::new(durations.name, durations.help),
        durations.labels,
    );
    let registered = registry.register(Box::new(twin.unwrap()));
    assert!(matches!(registered, Err(prometheus::Error::AlreadyReg)), "{registered:?}");
}

#[tokio::test]
async fn scrape_before_first_scan_has_only_process_metrics() {
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
    // A node that was named but never read.
    let mut draft = Draft::new(1);
    draft.get_or_add_node("couchdb@a");
    surface.plan.send_replace(Arc::new(planned(&draft.publish(NOW))));
    let text = surface.get("/metrics").await;
    assert!(!text.text().contains("recliner_targets{"), "{}", text.text());
}

#[tokio::test]
async fn unknown_values_are_absent_and_known_zeros_are_shown() {
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
    // An orphan is counted but has no series of its own: the live instance of its database has that
    // name.
    assert!(!mentions(
        "recliner_target_file_bytes{node=\"couchdb@a\",kind=\"db\",db=\"orders.16\""
    ));
    assert!(has(
        "recliner_target_file_bytes{node=\"couchdb@a\",kind=\"db\",db=\"orders\",range=\"00000000-ffffffff\",ddoc=\"\",signature=\"\"} 104857600"
    ));
}

/// The sample lines of a metric family.
fn samples<'a>(text: &'a str, family: &str) -> Vec<&'a str> {
    let of = |line: &&str| line.strip_prefix(family).is_some_and(|it| it.starts_with([' ', '{']));
    text.lines().filter(of).collect()
}

#[tokio::test]
async fn suspension_metrics_show_start_and_reason() {
    let surface = Surface::new();
    let mut plan = planned(&snapshot());
    let why = Some("disks are\nmoved".to_owned());
    let suspension = Suspension { since: NOW, by: None, why };
    let history = Arc::make_mut(&mut plan.conditions.constraints);
    history.suspensions.0.insert(SuspensionScope::Channel("ratio_dbs".into()), suspension);
    surface.plan.send_replace(Arc::new(plan));
    let answer = surface.get("/metrics").await;
    let since = "recliner_suspended_since_timestamp_seconds";
    let expected = format!("{since}{{scope=\"channel:ratio_dbs\"}} {}", NOW.unix());
    assert_eq!(samples(answer.text(), since), [expected]);
    assert_eq!(
        samples(answer.text(), "recliner_suspension_info"),
        ["recliner_suspension_info{scope=\"channel:ratio_dbs\",by=\"\",why=\"disks are moved\"} 1"]
    );
}

#[tokio::test]
async fn exports_pending_restarts_and_certificate_expiry() {
    let mut surface = Surface::new();
    surface.config.send_modify(|config| {
        Arc::make_mut(config).needs_restart = vec!["--log.format".into(), "storage.path".into()];
    });
    let ends = CertificateEnds { own: Some(NOW), authorities: None };
    surface.state.certificates = watch::channel(ends).1;
    let answer = surface.get("/metrics").await;
    let pending = "recliner_config_settings_pending_restart";
    assert_eq!(samples(answer.text(), pending), [format!("{pending} 2")]);
    let end = "recliner_certificate_expiry_timestamp_seconds";
    let expected = format!("{end}{{use=\"couchdb\"}} {}", NOW.unix());
    assert_eq!(samples(answer.text(), end), [expected]);
}

#[tokio::test]
async fn copies_on_nonmember_node_count_as_unknown() {
    let surface = Surface::new();
    let mut draft = Draft::new(10);
    let member = draft.get_or_add_node("couchdb@a");
    draft.update_node(member, |node| node.is_member = true);
    let gone = draft.get_or_add_node("couchdb@gone");
    for node in [member, gone] {
        draft.update_node(node, |node| node.is_served = true);
        let db = draft.get_or_add_db(DbName { db: "orders", suffix: ".16" });
        let ix = draft.get_or_add_shard(node, db, Some(RANGE));
        if node == gone {
            draft.set_state(ix, TargetState::Unknown);
        } else {
            draft.set_facts(ix, facts(MIB, MIB));
        }
    }
    surface.plan.send_replace(Arc::new(planned(&draft.publish(NOW))));
    let answer = surface.get("/metrics").await;
    let of_the_node = answer.text().lines().filter(|line| line.contains("couchdb@gone"));
    assert_eq!(
        of_the_node.collect::<Vec<_>>(),
        ["recliner_targets{node=\"couchdb@gone\",kind=\"db\",state=\"unknown\"} 1"]
    );
}

#[tokio::test]
async fn exports_only_the_largest_database_of_the_same_name() {
    let surface = Surface::new();
    let mut draft = Draft::new(10);
    let node = draft.get_or_add_node("couchdb@a");
    draft.update_node(node, |node| node.is_member = true);
    for (suffix, file) in [(".16", 90), (".17", 80), ("", 70)] {
        let db = draft.get_or_add_db(DbName { db: "orders", suffix });
        let ix = draft.get_or_add_shard(node, db, Some(RANGE));
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
        let line =
            format!("recliner_database_file_bytes{{db=\"orders\",kind=\"{kind}\"}} {}", 90 * MIB);
        assert!(text.text().lines().any(|it| it == line), "{line}");
    }
}

/// The values of a metric family, summed by these labels.
fn summed(text: &str, family: &str, by: &[&str]) -> BTreeMap<Vec<String>, u64> {
    let mut sums = BTreeMap::new();
    let lines = text.lines().filter_map(|line| line.strip_prefix(family)?.strip_prefix('{'));
    for (labels, value) in lines.filter_map(|line| line.split_once("} ")) {
        let of = |name: &&str| {
            let named = format!("{name}=\"");
            let mut found = labels.split("\",").filter_map(|pair| pair.strip_prefix(&*named));
            found.next().unwrap_or_default().trim_end_matches('"').to_owned()
        };
        *sums.entry(by.iter().map(of).collect()).or_default() += value.parse::<u64>().unwrap();
    }
    sums
}

#[tokio::test]
async fn target_sums_equal_database_sums() {
    let surface = Surface::new();
    let mut draft = Draft::new(2);
    let [a, b] = ["couchdb@a", "couchdb@b"].map(|name| draft.get_or_add_node(name));
    for node in [a, b] {
        draft.update_node(node, |node| {
            node.is_member = true;
            node.disk_usage = Some(crate::table::DiskUsage::default());
        });
    }
    // More databases than the limits for exported targets and for exported sums.
    for at in 1..=5_u64 {
        let db = draft.get_or_add_db(DbName { db: &format!("db-{at}"), suffix: ".17" });
        for node in [a, b] {
            let shard = draft.get_or_add_shard(node, db, Some(RANGE));
            draft.set_facts(shard, facts(at * 10 * MIB, MIB));
            let part = draft.get_or_add_part(node, db, Some(RANGE), Signature([1; 16]));
            draft.set_facts(part, facts(at * 5 * MIB, MIB));
        }
        let view = View { signature: Signature([1; 16]), ..View::default() };
        let view = draft.add_view(db, view);
        draft.set_shard_map(db, ShardMapEntry { copies: 2, ranges: 1 }, &[view]);
        draft.set_facts(view, facts(at * 5 * MIB, MIB));
    }
    surface.plan.send_replace(Arc::new(planned(&draft.publish(NOW))));
    let answer = surface.get("/metrics").await;
    let text = answer.text();
    for what in ["file", "active", "reclaimable"] {
        let databases = summed(text, &format!("recliner_database_{what}_bytes"), &["db", "kind"]);
        let targets = summed(text, &format!("recliner_target_{what}_bytes"), &["db", "kind"]);
        let dbs: BTreeSet<&str> = databases.keys().map(|labels| labels[0].as_str()).collect();
        assert_eq!(dbs, BTreeSet::from(["db-2", "db-3", "db-4", "db-5"]));
        let whole: BTreeSet<&str> = targets.keys().map(|labels| labels[0].as_str()).collect();
        assert_eq!(whole, BTreeSet::from(["db-4", "db-5"]));
        for (labels, sum) in &targets {
            assert_eq!(databases[labels], *sum, "{what} of {labels:?}");
        }
    }
    // The same files are counted again in the families read from the directories.
    let parts = summed(text, "recliner_view_part_file_bytes", &["db"]);
    assert_eq!(parts[&vec!["db-5".to_owned()]], 50 * MIB);
    let kinds = summed(text, "recliner_file_bytes", &["node", "kind"]);
    let of = |node: &str, kind: &str| kinds.get(&vec![node.to_owned(), kind.to_owned()]).copied();
    assert_eq!(of("_cluster", "view"), Some((1..=5).map(|at| at * 10 * MIB).sum()));
    assert_eq!(of("couchdb@a", "view"), None, "a copy of a view is counted beside the view");
    let nodes = summed(text, "recliner_node_view_file_bytes", &[]);
    assert_eq!(nodes[&Vec::new()], of("_cluster", "view").unwrap());
    assert!(text.contains("\nrecliner_databases_not_exported 3\n"));

    // A process that serves only some nodes does not know the sum over all nodes.
    draft.update_node(b, |node| node.is_served = false);
    surface.plan.send_replace(Arc::new(planned(&draft.publish(NOW))));
    let answer = surface.get("/metrics").await;
    let kinds = summed(answer.text(), "recliner_database_file_bytes", &["kind"]);
    assert_eq!(kinds.into_keys().collect::<Vec<_>>(), [["view".to_owned()]]);
}

#[tokio::test]
async fn excess_scrape_gets_503_and_retry_after() {
    let surface = Surface::new();
    let scrapes = metrics::Scrapes::new(1);
    let route = get(metrics::metrics).layer(axum::Extension(scrapes.clone()));
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
        assert_eq!(answer.status, StatusCode::OK, "the turn was not returned");
    }
}

#[tokio::test]
async fn promtool_accepts_the_scrape() {
    if Command::new("promtool").arg("--version").output().is_err() {
        crate::skipped::skipped("promtool, which Debian has in the package prometheus");
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
    let output = promtool.wait_with_output().unwrap();
    let words = [output.stdout, output.stderr].concat();
    assert_eq!(String::from_utf8_lossy(&words), "", "{}", text.text());
    assert!(output.status.success());
}

#[tokio::test]
async fn service_discovery_lists_confirmed_addresses_only() {
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
