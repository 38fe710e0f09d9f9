//! Answers of a service, for tests: a small cluster with a problem and running jobs.

use super::{
    answers::{Answers, SlowAnswers},
    model::Model,
};
use crate::serve::report::{EventLine, Explained, StartLine};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use wall_clock::Moment;

/// The time in every test.
pub(super) fn now() -> Moment {
    Moment::parse("2026-11-23T12:00:00Z").expect("a valid time")
}

const NODE: &str = "couchdb@node-1.example";
const OTHER: &str = "couchdb@node-2.example";

fn parsed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a valid answer of the API")
}

fn shard(db: &str) -> String {
    format!("shards/80000000-ffffffff/{db}.1795222434")
}

pub(super) fn id(node: &str, db: &str) -> String {
    format!("db:{node}/{}", shard(db).replace('/', "%2F"))
}

fn status(mode: &str) -> Value {
    let node = |name: &str, up: bool| {
        json!({
            "node": name, "up": up, "member": true, "served": true, "version": "3.5.0",
            "own_address": true, "findings": [], "smoosh": "up",
        })
    };
    json!({
        "version": "0.1.0", "revision": "unknown", "date": "unknown", "book": "/docs/",
        "simulated": false, "mode": mode, "ready": true, "generated_at": "2026-11-23T11:59:00Z",
        "couchdb": [], "nodes": [node(NODE, true), node(OTHER, true)], "suspensions": [],
        "sweep": {
            "ended": 3, "shards": {"asked": 1, "spared": 0, "followed": 0},
            "last_end": "2026-11-23T11:55:00Z", "last_success": "2026-11-23T11:55:00Z",
        },
        "errors": [], "missing_rights": [], "feeds": {"pending_events": 0, "list": []},
        "smoosh": [],
        "config": {
            "loaded_at": "2026-11-23T11:00:00Z", "last_reload_successful": true, "needs_restart": [],
        },
    })
}

fn space() -> Value {
    json!({
        "generated_at": "2026-11-23T11:59:00Z", "file_bytes": 600_u64 << 30,
        "reclaimable_bytes": 130_u64 << 30, "targets": 1_234, "waiting": 3,
        "volumes": [
            {
                "volume": "/srv/couchdb", "nodes": [NODE], "size_bytes": 1_000_u64 << 30,
                "available_bytes": 400_u64 << 30, "live_bytes": 400_u64 << 30,
                "reclaimable_bytes": 100_u64 << 30, "unused_bytes": 1_u64 << 30,
            },
            {
                "volume": "prometheus", "nodes": [OTHER], "unused_bytes": 0,
                "problem": "no answer from http://prom:9090",
            },
        ],
    })
}

fn jobs() -> Value {
    let job = |db: &str, node: &str, progress: Option<f64>, ddoc: Option<&str>| {
        json!({
            "node": node, "kind": if ddoc.is_some() { "view" } else { "db" },
            "work": if ddoc.is_some() { "build" } else { "compaction" },
            "shard": shard(db), "ddoc": ddoc, "target": ddoc.is_none().then(|| id(node, db)),
            "owner": if ddoc.is_some() { "other" } else { "recliner" },
            "channel": ddoc.is_none().then_some("ratio_dbs"), "phase": "running",
            "since": "2026-11-23T11:50:00Z", "progress": progress,
            "last_progress": "2026-11-23T11:59:58Z", "file_bytes": 40_u64 << 30,
            "predicted_bytes": 10_u64 << 30, "reserved_bytes": 0,
        })
    };
    json!({
        "generated_at": "2026-11-23T11:59:59Z", "nodes": [],
        "jobs": [
            job("orders", NODE, Some(0.25), None),
            job("carts/2026", OTHER, Some(0.8), None),
            job("carts/2026", OTHER, None, Some("_design/open")),
        ],
    })
}

/// A start in the plan.
pub(super) fn start() -> StartLine {
    parsed(json!({
        "id": id(NODE, "sessions"), "kind": "db", "node": NODE, "db": "sessions",
        "range": "80000000-ffffffff", "name": shard("sessions"), "channel": "ratio_dbs",
        "priority": 4.5, "since": "2026-11-23T11:00:00Z",
        "request": format!("POST /_node/{NODE}/{}/_compact", shard("sessions").replace('/', "%2F")),
        "file_bytes": 20_u64 << 30, "gain_bytes": 15_u64 << 30, "rewrite_bytes": 5_u64 << 30,
        "peak_bytes": 6_u64 << 30, "duration_seconds": 95.0, "confidence": "high", "caveats": [],
    }))
}

fn planned(mode: &str) -> Value {
    let waits = |db: &str, node: &str, reason: &str, why: &str, bytes: Option<u64>| {
        json!({
            "id": id(node, db), "title": format!("{} on {node}", shard(db)), "node": node,
            "channel": "slack_dbs", "priority": 1.0, "reclaimable_bytes": bytes,
            "refusal": {"reason": reason, "since": "2026-11-23T10:00:00Z"}, "why": why,
        })
    };
    let hostile = "evil\u{1b}[2J\u{202e}name";
    json!({
        "generated_at": "2026-11-23T11:59:00Z", "made_at": "2026-11-23T11:59:59Z", "mode": mode,
        "starts": [start()], "orders": [], "gates": [], "suspensions": [],
        "candidates": [
            {"node": NODE, "channel": "ratio_dbs", "starts": 1, "refused": {}},
            {"node": OTHER, "channel": "slack_dbs", "starts": 0, "refused": {"window": 2, "headroom": 1}},
        ],
        "total": 12, "offset": 0, "limit": 500,
        "refused": [
            waits("telemetry", OTHER, "window", "the window of slack_dbs opens at 20:00", Some(9 << 30)),
            waits("archive", OTHER, "headroom", "it needs 30 GiB more at its peak, and 12 GiB are free", None),
            {
                "id": "view:_cluster/orders.1795222434/0f045e3b41d71d93aaa32f23021ba536",
                "title": "orders/_design/by_day", "node": "_cluster", "channel": "ratio_views",
                "reclaimable_bytes": 7_u64 << 30, "refusal": {"reason": "window"},
                "why": "the window of ratio_views opens at 20:00",
            },
            {
                "id": format!("cleanup:{hostile}"), "title": format!("index files of {hostile}"),
                "node": "_cluster", "channel": "cleanup", "refusal": {"reason": "no_evidence"},
                "why": "nothing says that it has stale index files",
            },
        ],
    })
}

fn queues() -> Value {
    let queue = |node: &str, channel: &str, size: u64, active: u64, bytes: u64| {
        json!({
            "node": node, "channel": channel, "size": size, "capacity": 9_999, "overflow": 0,
            "active": active, "reclaimable_bytes": bytes, "targets": [],
            "oldest": (size > 0).then_some("2026-11-23T10:00:00Z"),
        })
    };
    json!({
        "generated_at": "2026-11-23T11:59:00Z", "offset": 0, "limit": 0, "limits": [], "windows": [],
        "queues": [
            queue(NODE, "ratio_dbs", 1, 1, 15 << 30),
            queue(OTHER, "ratio_dbs", 0, 1, 0),
            queue(NODE, "slack_dbs", 0, 0, 0),
            queue(OTHER, "slack_dbs", 2, 0, 9 << 30),
            queue("_cluster", "ratio_views", 1, 0, 7 << 30),
        ],
    })
}

/// Answers of a service in this mode, to a user who may suspend but not compact.
fn runs() -> Value {
    let run = |number: u64, ended: Option<&str>| {
        json!({
            "run": number, "db": "orders", "node": null, "force": false, "by": "ann",
            "since": "2026-11-23T11:00:00Z", "state": "running", "changed_by": null,
            "ended_at": ended, "members": 24, "done": 5, "running": 1, "results": {"freed": 5},
            "freed_bytes": 41_u64 << 30, "reclaimable_bytes": 99_u64 << 30,
            "seconds_left": 10_800.0, "waits": null, "left_out": [],
            "says": "5 of 24, 41 GiB freed, about 3 hours left",
        })
    };
    json!({"runs": [run(3, None), run(2, None), run(1, Some("2026-11-22T11:00:00Z"))]})
}

pub(super) fn answers(mode: &str) -> Answers {
    let off = "this order is disabled; start recliner with --web.enable-admin-api";
    Answers {
        status: parsed(status(mode)),
        space: parsed(space()),
        jobs: parsed(jobs()),
        runs: parsed(runs()),
        planned: parsed(planned(mode)),
        queues: parsed(queues()),
        slow: SlowAnswers {
            advice: parsed(
                json!({"says": "Nothing to do.", "gain_bytes": 0, "advice": [], "more": []}),
            ),
            permissions: Some(parsed(json!({"orders": [
                {"order": "suspend", "refused": null},
                {"order": "resume", "refused": null},
                {"order": "compact", "refused": off},
            ]}))),
        },
    }
}

/// The events of the journal, in order.
pub(super) fn events() -> Vec<EventLine> {
    let target = id(NODE, "orders");
    parsed(json!([
        {"seq": 7, "at": "2026-11-23T11:50:00Z", "type": "started", "target": target, "node": NODE, "channel": "ratio_dbs", "owner": "recliner"},
        {"seq": 8, "at": "2026-11-23T11:51:30Z", "type": "refused", "target": id(OTHER, "telemetry"), "channel": "slack_dbs", "reason": "window"},
        {"seq": 9, "at": "2026-11-23T11:52:00Z", "type": "suspended", "scope": "node:couchdb@node-2.example", "by": "ann from 10.0.0.7", "why": "its disk is moved"},
    ]))
}

/// The explanation of the start's target.
pub(super) fn explained() -> Explained {
    let mut explained = Explained { start: Some(start()), ..Explained::default() };
    let target = &mut explained.target;
    target.id = id(NODE, "sessions");
    target.kind = "db".into();
    target.node = NODE.to_owned();
    target.db = "sessions".to_owned();
    target.range = Some("80000000-ffffffff".to_owned());
    target.name = Some(shard("sessions"));
    target.state = "ok".into();
    target.copies = 1;
    target.file_bytes = Some(20 << 30);
    target.active_bytes = Some(5 << 30);
    target.ratio = Some(4.0);
    target.reclaimable_bytes = Some(15 << 30);
    target.predicted_bytes = Some(5 << 30);
    target.confidence = "high".into();
    target.channel = Some("ratio_dbs".to_owned());
    target.priority = Some(4.5);
    explained
}

/// The state of a screen that has received all answers and events.
pub(super) fn model(mode: &str) -> Model {
    let mut model = Model::new("http://127.0.0.1:10984".to_owned(), answers(mode), now());
    model.events.add(events());
    model
}
