//! A node's information about itself: versions, Erlang's numbers, counters. The numbers are plausible and
//! have the correct format; only uptime, the run queue and replication follow the world.

use super::answer::{Answer, METRICS, json, stream};
use crate::{cluster::Inner, config::V3_4_0};
use serde_json::{Map, Value, json as value};

/// Whether a node has version 3.4 or later, with `QuickJS` and with HELP lines in its metrics.
fn is_recent(inner: &Inner, node: &str) -> bool {
    let version = inner.world.version_of(node);
    version >= V3_4_0
}

/// What a real 3.5.0 returned, apart from the values that follow the world.
const SYSTEM: &str = include_str!("system.json");

/// A link to another node, with a real link's numbers.
fn link() -> Value {
    value!({
        "recv_avg": 245, "recv_cnt": 70_763, "recv_dvi": 40, "recv_max": 65_183,
        "recv_oct": 17_391_744, "send_avg": 1_575, "send_cnt": 150_023,
        "send_max": 65_576, "send_oct": 236_313_151, "send_pend": 0,
    })
}

pub(super) fn system(inner: &Inner, node: &str) -> Answer {
    let tasks = inner.world.tasks().iter().filter(|task| task.node == node).count();
    let others = inner.world.nodes().into_iter().filter(|other| other != node);
    let links: Map<String, Value> = others.map(|other| (other, link())).collect();
    let came: Map<String, Value> = links
        .keys()
        .map(|other| (other.clone(), value!([["2026-11-21T00:50:38Z", "nodeup"]])))
        .collect();
    let mut figures: Map<String, Value> = serde_json::from_str(SYSTEM).unwrap_or_default();
    let mut set = |key: &str, value: Value| figures.insert(key.to_owned(), value);
    set("uptime", inner.world.now().as_secs().saturating_add(60).into());
    set("run_queue", tasks.into());
    set("internal_replication_jobs", (tasks * 10).into());
    set("distribution", links.into());
    if is_recent(inner, node) {
        set("distribution_events", came.into());
    }
    json(200, &figures)
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
    stream(METRICS, text.into())
}
