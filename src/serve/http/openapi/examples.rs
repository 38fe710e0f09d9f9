//! Examples of parameters, responses and errors. A test checks each against its schema.

use serde_json::{Value, json};

/// An example of a parameter of a route; `None` if any value works.
pub(super) fn parameter(path: &str, name: &Value) -> Option<Value> {
    Some(match (path, name.as_str()?) {
        // This route takes numbers as strings, because CouchDB accepts more than JSON numbers.
        ("/_db_updates", "limit") => json!("100"),
        (_, "limit") => json!(100),
        (_, "offset") => json!(0),
        (_, "node") => json!("couchdb@couch-a"),
        (_, "db") => json!("orders"),
        ("/api/v1/explain" | "/api/v1/history" | "/api/v1/events", "target") => {
            json!("orders/_design/reports")
        }
        ("/api/v1/facts", "after") => {
            json!("db:couchdb@couch-a/shards%2F00000000-7fffffff%2Forders.1795237693")
        }
        ("/api/v1/history" | "/api/v1/history/hours" | "/api/v1/scorecard", "since") => {
            json!("7d")
        }
        ("/api/v1/events", "since") => json!("2h"),
        _ => return None,
    })
}

/// An example of an operation's response, if it adds anything to the schema.
pub(super) fn answer(operation: &str) -> Option<Value> {
    let data = match operation {
        "suspend" => json!({
            "since": "2026-11-21T00:54:00Z", "by": "ann from 10.0.0.7",
            "why": "its disk is being replaced", "already": false, "running": 1,
        }),
        "resume" => json!({ "lifted": ["node:couchdb@couch-a"], "remaining": [] }),
        "compact" => json!({
            "requests": ["POST /orders/_compact/reports"], "waits": null,
            "until": "2026-11-21T01:54:00Z",
        }),
        "release" => json!({ "targets": ["cleanup:orders"] }),
        "muteAdvice" => json!({ "muted": {
            "since": "2026-11-21T00:54:00Z", "until": "2026-12-21T00:54:00Z",
            "by": "ann from 10.0.0.7", "why": "archived in December",
        } }),
        "unmuteAdvice" => json!({ "muted": null }),
        "rescan" => json!({ "begins": true }),
        "flush" => json!({ "targets": 7 }),
        "jobs" => json!({
            "generated_at": "2026-11-21T00:54:00Z",
            "nodes": [{ "node": "couchdb@couch-a", "asked_at": "2026-11-21T00:53:58Z" }],
            "jobs": [],
        }),
        "events" => json!({
            "limit": 100, "more": false, "last_seq": 9,
            "events": [{
                "seq": 9, "at": "2026-11-21T00:54:00Z", "type": "started",
                "target": "cleanup:orders", "node": "_cluster", "channel": "index_cleanup",
            }],
        }),
        "serviceDiscovery" => {
            return Some(json!([{
                "targets": ["couch-a:5984"],
                "labels": {
                    "__scheme__": "http", "__metrics_path__": "/_node/_local/_prometheus",
                    "__meta_recliner_node": "couchdb@couch-a", "__meta_recliner_version": "3.5.0",
                },
            }]));
        }
        "dbUpdates" => {
            return Some(json!({
                "results": [{ "db_name": "orders", "type": "updated", "seq": "9-x" }],
                "last_seq": "9-x",
            }));
        }
        _ => return None,
    };
    Some(json!({ "status": "success", "data": data }))
}

/// An example of an error with a status.
pub(super) fn error(code: u16, description: &str) -> Value {
    let (kind, error) = match code {
        400 => ("bad_data", "limit 10001 is more than 10000: read page by page with offset"),
        403 => ("forbidden", "this order is disabled; start recliner with --web.enable-admin-api"),
        404 => {
            ("not_found", "no database, view or shard matches \"ordrs\"; did you mean \"orders\"?")
        }
        408 => ("timeout", "the body did not arrive within 10 seconds"),
        409 => {
            return json!({
                "status": "error", "errorType": "conflict",
                "error": "\"orders\" matches 2 targets; give one target's id",
                "data": { "candidates": ["cleanup:orders", "view:_cluster/orders.1795237693/0f045e3b41d71d93aaa32f23021ba536"] },
            });
        }
        415 => {
            ("forbidden", "orders and questions need a body with Content-Type: application/json")
        }
        500 => ("execution", "the journal cannot be written: no space left on device"),
        503 => ("unavailable", "recliner is stopping"),
        _ => ("unavailable", description),
    };
    json!({ "status": "error", "errorType": kind, "error": error })
}
