//! The JSON API.

use super::*;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// The ids on a page.
fn ids(data: &Value) -> Vec<String> {
    let targets = data["targets"].as_array().unwrap();
    targets.iter().map(|target| target["id"].as_str().unwrap().to_owned()).collect()
}

const SHARD: &str = "db:couchdb@a/shards%2F00000000-ffffffff%2Forders.17";
const MISSING: &str = "db:couchdb@b/shards%2F00000000-ffffffff%2Forders.17";
const ORPHAN: &str = "db:couchdb@a/shards%2F00000000-ffffffff%2Forders.16";
const ODD: &str = "db:couchdb@a/shards%2F00000000-ffffffff%2Fapp%2F_design%2Fx%2By%281%29%24.17";
const DBS: &str = "db:couchdb@a/_dbs";
const VIEW: &str = "view:_cluster/orders.17/01010101010101010101010101010101";
const ODD_VIEW: &str =
    "view:_cluster/app%2F_design%2Fx%2By%281%29%24.17/01010101010101010101010101010101";
const CLEANUP: &str = "cleanup:orders";

#[tokio::test]
async fn targets_are_filtered_ordered_and_paged() {
    let surface = Surface::new();
    let odd_db = format!("db={}", encoded(ODD_DB));
    for (query, total, expected) in [
        ("", 8, &[SHARD, MISSING, ORPHAN, ODD, DBS, VIEW, ODD_VIEW, CLEANUP][..]),
        ("node=couchdb@b", 1, &[MISSING]),
        ("node=_cluster", 3, &[VIEW, ODD_VIEW, CLEANUP]),
        ("node=nobody", 0, &[]),
        ("kind=view", 2, &[VIEW, ODD_VIEW]),
        ("kind=cleanup", 1, &[CLEANUP]),
        ("state=orphan", 1, &[ORPHAN]),
        ("state=missing", 1, &[MISSING]),
        ("db=orders&kind=db", 3, &[SHARD, MISSING, ORPHAN]),
        (&odd_db, 2, &[ODD, ODD_VIEW]),
        ("channel=ratio_dbs", 2, &[SHARD, ODD]),
        ("channel=slack_dbs", 0, &[]),
        ("kind=db&sort=file_bytes", 5, &[ORPHAN, SHARD, ODD, DBS, MISSING]),
        ("kind=db&sort=reclaimable_bytes&limit=2", 5, &[ORPHAN, SHARD]),
        ("kind=db&sort=ratio&limit=3", 5, &[ORPHAN, SHARD, ODD]),
        ("sort=priority&limit=1", 8, &[VIEW]),
        ("limit=2&offset=1", 8, &[MISSING, ORPHAN]),
        ("limit=0", 8, &[]),
        ("offset=8", 8, &[]),
        ("offset=18446744073709551615", 8, &[]),
        ("limit=10000&offset=7", 8, &[CLEANUP]),
    ] {
        let data = surface.data(&format!("/api/v1/targets?{query}")).await;
        assert_eq!(
            (&data["total"], ids(&data)),
            (&json!(total), expected.iter().map(|id| (*id).to_owned()).collect()),
            "{query}"
        );
    }
    let data = surface.data("/api/v1/targets").await;
    assert_eq!(
        (&data["generated_at"], &data["offset"], &data["limit"]),
        (&json!("2026-11-21T00:54:00Z"), &json!(0), &json!(100))
    );
}

#[tokio::test]
async fn a_question_that_means_nothing_is_named() {
    let surface = Surface::new();
    for (path, named) in [
        ("targets?colour=red", "colour"),
        ("targets?kind=shard", "\"shard\" is not a kind: db, view, cleanup or search"),
        ("targets?state=gone", "\"gone\" is not a state"),
        (
            "targets?channel=nope",
            "no channel is called \"nope\"; channels: ratio_dbs, slack_dbs, upgrade_dbs, ratio_views, slack_views, upgrade_views, index_cleanup",
        ),
        ("targets?sort=name", "cannot sort by \"name\""),
        ("targets?limit=10001", "limit 10001 is more than 10000"),
        ("targets?limit=-1", "limit"),
        ("targets?limit=", "limit"),
        ("targets?offset=x", "offset"),
        ("targets?node=a&node=b", "node"),
        ("queue?channel=nope", "no channel is called \"nope\"; channels: ratio_dbs, "),
        ("queue?kind=db", "kind"),
        ("plan?channel=nope", "no channel is called \"nope\"; channels: ratio_dbs, "),
        ("plan?target=x", "target"),
        ("queue?limit=10001", "limit 10001"),
        ("explain", "?target="),
        ("explain?id=x", "id"),
        ("explain?target=x&limit=99999999999999999999", "limit"),
        ("status?x=1", "x"),
        ("config?x=1", "x"),
    ] {
        let (status, body) = surface.json(&format!("/api/v1/{path}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
        assert_eq!((&body["status"], &body["errorType"]), (&json!("error"), &json!("bad_data")));
        let error = body["error"].as_str().unwrap();
        assert!(error.contains(named), "{path}: {error}");
        assert!(!error.contains("deserialize"), "{path}: {error}");
        assert_eq!(body.as_object().unwrap().len(), 3);
    }
}

#[tokio::test]
async fn a_plan_says_what_starts_and_why_the_rest_does_not() {
    let surface = Surface::new();
    let data = surface.data("/api/v1/plan").await;
    assert_eq!(data["mode"], "advise");
    let starts = data["starts"].as_array().unwrap();
    assert_eq!(starts.len(), 1, "{data}");
    assert_eq!((&starts[0]["id"], &starts[0]["node"]), (&json!(VIEW), &json!("couchdb@a")));
    assert_eq!(
        starts[0]["request"],
        "POST /_node/couchdb@a/shards%2F00000000-ffffffff%2Forders.17/_compact/clients"
    );
    assert_eq!(starts[0]["caveats"], json!(["unknown_disk", "estimated", "unknown_rate"]));
    assert_eq!(starts[0]["duration_seconds"], Value::Null);
    let refused = |id: &str| {
        let all = data["refused"].as_array().unwrap();
        let found = all.iter().find(|it| it["id"] == id).unwrap();
        (found["refusal"]["reason"].clone(), found["why"].clone())
    };
    let why = "the last start on the node was 0s ago, and limits.wait is 30s";
    assert_eq!(refused(SHARD), (json!("ramp"), json!(why)));
    let why = "ratio_views already has 1 job on the node, and its concurrency is 1";
    assert_eq!(refused(ODD_VIEW), (json!("channel_limit"), json!(why)));
    let waiting =
        json!({"node": "couchdb@a", "channel": "ratio_dbs", "starts": 0, "refused": {"ramp": 2}});
    assert!(data["candidates"].as_array().unwrap().contains(&waiting), "{data}");
    let page = surface.data("/api/v1/plan?node=couchdb@a&limit=1&offset=1").await;
    assert_eq!((page["starts"].as_array().unwrap().len(), &page["total"]), (1, &json!(2)));
    assert_eq!(page["refused"].as_array().unwrap().len(), 1);
    let explained = surface.data(&format!("/api/v1/explain?target={}", encoded(VIEW))).await;
    assert_eq!(explained["targets"][0]["start"]["request"], starts[0]["request"]);
    assert_eq!(explained["targets"][0]["why"], Value::Null);
}

#[tokio::test]
async fn what_is_not_there_is_said_in_the_envelope() {
    let surface = Surface::new();
    let odd = format!("explain?target={}", encoded("<b>\n\"'%"));
    for path in ["nothing", "targets/x", "", "explain?target=nothing", "explain?target=", &odd] {
        let (status, body) = surface.json(&format!("/api/v1/{path}")).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!((&body["status"], &body["errorType"]), (&json!("error"), &json!("not_found")));
    }
}

#[tokio::test]
async fn explain_takes_every_name_a_target_has() {
    let surface = Surface::new();
    let odd_shard = format!("shards/00000000-ffffffff/{ODD_DB}.17");
    let odd_design = format!("{}/{ODD_DESIGN}", "orders");
    for (text, expected) in [
        (SHARD, &[SHARD][..]),
        (ODD, &[ODD]),
        (VIEW, &[VIEW]),
        (ODD_VIEW, &[ODD_VIEW]),
        (CLEANUP, &[CLEANUP]),
        ("orders", &[SHARD, MISSING, ORPHAN, VIEW, CLEANUP]),
        (ODD_DB, &[ODD, ODD_VIEW]),
        (&odd_shard, &[ODD]),
        ("_dbs", &[DBS]),
        ("orders/_design/clients", &[VIEW]),
        ("orders/_design/customers", &[VIEW]),
    ] {
        // Encoded as a form is, and pasted as it was printed.
        let mut written = vec![encoded(text)];
        if !text.contains(['$', '(']) {
            written.push(text.to_owned());
        }
        for target in written {
            let data = surface.data(&format!("/api/v1/explain?limit=9&target={target}")).await;
            assert_eq!(ids(&data), expected, "{target}");
            assert_eq!(data["total"], expected.len(), "{target}");
        }
    }
    let (status, _) =
        surface.json(&format!("/api/v1/explain?target={}", encoded(&odd_design))).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "another database has that one");
    let page = surface.data("/api/v1/explain?target=orders&offset=4&limit=1").await;
    assert_eq!((ids(&page), &page["total"]), (vec![CLEANUP.to_owned()], &json!(5)));
}

#[tokio::test]
async fn a_target_has_the_fields_of_the_contract() {
    let surface = Surface::new();
    let data = surface.data("/api/v1/targets?db=orders&limit=100").await;
    // Beyond the contract: `ddocs`, all names of a view whose first is `ddoc`, `engine`, what
    // builds a search index, `docs` and `deleted_docs`, and `problem`.
    let contract = "id, kind, engine, node, db, range, name, ddoc, ddocs, signature, state, \
        copies, estimated, file_bytes, active_bytes, external_bytes, predicted_bytes, reclaimable_bytes, \
        confidence, ratio, update_seq, compacted_seq, docs, deleted_docs, updates_pending, \
        collator_versions, \
        compact_running, sources, measured_at, problem, channel, priority, misses, refusal";
    let mut expected: Vec<&str> = contract.split(',').map(str::trim).collect();
    expected.sort_unstable();
    for target in data["targets"].as_array().unwrap() {
        let mut fields: Vec<&str> =
            target.as_object().unwrap().keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(fields, expected);
        for miss in target["misses"].as_array().unwrap() {
            let fields: Vec<&str> = miss.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(fields, ["channel", "limit", "priority", "reason", "unit", "value"]);
        }
        if let Some(refusal) = target["refusal"].as_object() {
            let fields: Vec<&str> = refusal.keys().map(String::as_str).collect();
            assert_eq!(fields, ["limit", "reason", "since", "value"]);
        }
    }
    assert_eq!(data["targets"][4]["refusal"]["reason"], "no_evidence");
    let view = &data["targets"][3];
    assert_eq!(
        (&view["file_bytes"], &view["ddocs"], &view["node"]),
        (&json!(90 * MIB), &json!(["_design/clients", "_design/customers"]), &json!("_cluster"))
    );
}

#[tokio::test]
async fn queues_show_what_waits_best_first() {
    let surface = Surface::new();
    let data = surface.data("/api/v1/queue?node=couchdb@a&channel=ratio_dbs").await;
    let queues = data["queues"].as_array().unwrap();
    assert_eq!(queues.len(), 1);
    let mut queue = queues[0].clone();
    let targets = queue["targets"].take();
    assert_eq!(ids(&json!({ "targets": targets })), [SHARD, ODD]);
    let fields = queue.as_object_mut().unwrap();
    fields.remove("targets");
    let reclaimable = fields.remove("reclaimable_bytes").unwrap().as_u64().unwrap();
    assert!(reclaimable > 100 * MIB && reclaimable < 140 * MIB, "{reclaimable}");
    assert_eq!(
        queue,
        json!({
            "node": "couchdb@a",
            "channel": "ratio_dbs",
            "size": 2,
            "capacity": 9_999,
            "overflow": 0,
            "active": 0,
            "priority_max": 10.0,
            "priority_min": 3.0,
            "oldest": "2026-11-21T00:54:00Z",
        })
    );
    let data = surface.data("/api/v1/queue?channel=ratio_dbs&limit=1").await;
    let sizes: Vec<_> = data["queues"]
        .as_array()
        .unwrap()
        .iter()
        .map(|queue| (queue["node"].clone(), queue["size"].clone(), ids(queue).len()))
        .collect();
    assert_eq!(sizes, [(json!("couchdb@a"), json!(2), 1), (json!("couchdb@b"), json!(0), 0)]);
    let all = surface.data("/api/v1/queue").await;
    assert_eq!(all["queues"].as_array().unwrap().len(), 2 * 3 + 4);
    assert_eq!(surface.data("/api/v1/queue?node=nobody").await["queues"], json!([]));
}

#[tokio::test]
async fn status_and_config_say_what_is_in_force() {
    let surface = Surface::new();
    assert_eq!(surface.data("/api/v1/config").await, json!({"scan": {"interval": "5m"}}));
    surface.config.send_modify(|config| {
        let config = Arc::make_mut(config);
        config.reload_successful = false;
        config.needs_restart = vec!["--log.format".to_owned()];
    });
    let mut data = surface.data("/api/v1/status").await;
    let nodes = data["nodes"].take();
    assert_eq!(nodes.as_array().unwrap().len(), 2);
    assert_eq!(
        nodes[1],
        json!({
            "node": "couchdb@b", "up": false, "member": true, "version": null,
            "own_address": false, "findings": [], "served": true, "last_success": null, "smoosh": "unasked",
            "disk": null,
            "source_disagreements": null,
        })
    );
    assert_eq!(
        data,
        json!({
            "version": "0.1.0",
            "couchdb": [
                {"url": "http://a:5984", "up": true, "problem": null},
                {"url": "http://b:5984", "up": false, "problem": "no answer"},
                {"url": "http://c:5984/couch", "up": null, "problem": null},
            ],
            "revision": "unknown",
            "simulated": false, "simulation": null,
            "mode": "advise",
            "ready": true,
            "generated_at": "2026-11-21T00:54:00Z",
            "nodes": null,
            "suspensions": [],
            "sweep": {
                "ended": 2,
                "running_since": null,
                "done": null,
                "total": null,
                "last_end": "2026-11-21T00:54:00Z",
                "last_success": "2026-11-21T00:54:00Z",
                "last_duration_seconds": 2.5,
                "shards": {"asked": 0, "spared": 0, "followed": 0},
            },
            "errors": [{"node": "couchdb@b", "reason": "connect", "count": 2}],
            "last_error": "could not ask couchdb@b",
            "problem": null,
            "missing_rights": [],
            "feeds": {
                "followed_since": null, "last_event": null, "pending_events": 0, "list": [],
            },
            "smoosh": [],
            "config": {
                "loaded_at": "2026-11-21T00:46:40Z",
                "last_reload_successful": false,
                "needs_restart": ["--log.format"],
                "web_problem": null,
            },
        })
    );
}
