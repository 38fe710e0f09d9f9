//! A node's information about itself: versions, Erlang's numbers, counters. The numbers are plausible and
//! have the correct format; only uptime, the run queue and replication follow the world.

use super::answer::{Answer, json, metrics, not_found};
use crate::{cluster::Inner, config::V3_4_0};
use serde_json::{Map, Value, json as value};

/// Whether a node is of 3.4 or later, with `QuickJS` and HELP lines in its metrics.
fn is_recent(inner: &Inner, node: &str) -> bool {
    let version = inner.world.version_of(node);
    version >= V3_4_0
}

pub(super) fn versions(inner: &Inner, node: &str) -> Answer {
    let engine = if is_recent(inner, node) {
        value!({"name": "quickjs"})
    } else {
        value!({"name": "spidermonkey", "version": "78"})
    };
    json(
        200,
        &value!({
            "javascript_engine": engine,
            "erlang": {"version": "25.2.3", "supported_hashes": ["sha256", "sha512", "md5"]},
            "collation_driver": {
                "name": "libicu", "library_version": "72.1", "collator_version": "153.120",
                "collation_algorithm_version": "15",
            },
        }),
    )
}

/// The names of the message queues in `_system`.
const QUEUES: [&str; 8] = [
    "chttpd",
    "couch_server",
    "couch_task_status",
    "index_server",
    "ioq",
    "mem3_sync",
    "rexi_server",
    "smoosh_server",
];

pub(super) fn system(inner: &Inner, node: &str) -> Answer {
    let tasks = inner.world.tasks().iter().filter(|task| task.node == node).count();
    let others: Vec<String> =
        inner.world.nodes().into_iter().filter(|other| other != node).collect();
    let traffic: Map<String, Value> = others
        .iter()
        .map(|other| {
            let numbers = value!({
                "recv_avg": 245, "recv_cnt": 70_763, "recv_dvi": 40, "recv_max": 65_183,
                "recv_oct": 17_391_744, "send_avg": 1_575, "send_cnt": 150_023,
                "send_max": 65_576, "send_oct": 236_313_151, "send_pend": 0,
            });
            (other.clone(), numbers)
        })
        .collect();
    let came: Map<String, Value> = others
        .into_iter()
        .map(|other| (other, value!([["2026-11-21T00:50:38Z", "nodeup"]])))
        .collect();
    let queue = |name: &&str| ((*name).to_owned(), 0.into());
    let mut queues: Map<String, Value> = QUEUES.iter().map(queue).collect();
    for name in ["couch_file", "couch_db_updater"] {
        let summary = value!({"50": 0, "90": 0, "99": 0, "count": 178, "max": 0, "min": 0});
        queues.insert(name.to_owned(), summary);
    }
    let mut figures = value!({
        "uptime": inner.world.now().as_secs().saturating_add(60),
        "memory": {
            "other": 11_713_593, "atom": 680_161, "atom_used": 647_336, "processes": 68_540_544,
            "processes_used": 67_445_096, "binary": 20_206_288, "code": 14_777_870,
            "ets": 2_967_416,
        },
        "run_queue": tasks,
        "run_queue_dirty_cpu": 0,
        "ets_table_count": 136,
        "context_switches": 6_578_241,
        "reductions": 2_420_287_719_u64,
        "garbage_collection_count": 1_859_703,
        "words_reclaimed": 3_214_945_235_u64,
        "io_input": 740_526_957,
        "io_output": 706_406_895,
        "os_proc_count": 20,
        "stale_proc_count": 0,
        "process_count": 1_554,
        "process_limit": 262_144,
        "message_queues": queues,
        "internal_replication_jobs": tasks * 10,
        "distribution": traffic,
    });
    let recent = is_recent(inner, node);
    if let Some(figures) = figures.as_object_mut().filter(|_| recent) {
        figures.insert("distribution_events".to_owned(), came.into());
    }
    json(200, &figures)
}

pub(super) fn stats(rest: &[&str]) -> Answer {
    let counter =
        |count: u64, about: &str| value!({"value": count, "type": "counter", "desc": about});
    let all = value!({
        "couchdb": {
            "httpd": {"requests": counter(1_024, "number of HTTP requests")},
            "httpd_status_codes": {
                "200": counter(1_000, "number of HTTP 200 OK responses"),
                "507": counter(0, "number of HTTP 507 Insufficient Storage responses"),
            },
            "open_databases": counter(42, "number of open databases"),
        },
        "fsync": {"count": counter(17, "number of fsync calls")},
    });
    let found = rest.iter().try_fold(&all, |at, part| at.get(part));
    found.map_or_else(|| not_found("missing"), |found| json(200, found))
}

/// CouchDB's metrics with their known errors: a carriage return between HELP and TYPE, and before 3.4 no
/// HELP lines.
pub(super) fn prometheus(inner: &Inner, node: &str) -> Answer {
    let recent = is_recent(inner, node);
    let nodes = inner.world.nodes().len();
    let up = inner.world.now().as_secs().saturating_add(60);
    let mut text = String::new();
    for (name, kind, help, labels, number) in [
        ("couchdb_uptime_seconds", "counter", "couchdb uptime", "", up),
        ("couchdb_open_databases", "gauge", "number of open databases", "", 42),
        (
            "couchdb_membership",
            "gauge",
            "nodes of the cluster",
            "{nodes=\"cluster_nodes\"}",
            nodes as u64,
        ),
        ("couchdb_internal_replication_jobs", "gauge", "pending internal replications", "", 0),
        ("couchdb_fsync_count_total", "counter", "number of fsync calls", "", 17),
    ] {
        let help =
            if recent { ["\n# HELP ", name, " ", help, "\r"].concat() } else { String::new() };
        text.push_str(&[help.as_str(), "# TYPE ", name, " ", kind, "\n"].concat());
        text.push_str(&[name, labels, " ", &number.to_string(), "\n"].concat());
    }
    metrics(text)
}
