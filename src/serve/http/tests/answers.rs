//! The read routes of the JSON API.

use super::*;
use crate::serve::report::{
    Advice, CandidatesLine, Explanations, Failed, Planned, Queue, Queues, RefusedLine, Scorecard,
    Space, Target, Targets, Usage,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// The ids of the targets on a page.
fn ids(targets: &[Target]) -> Vec<&str> {
    targets.iter().map(|target| target.id.as_str()).collect()
}

/// The ids of the explained targets.
fn explained_ids(page: &Explanations) -> Vec<&str> {
    page.targets.iter().map(|explained| explained.target.id.as_str()).collect()
}

/// The status and the error of a request that fails.
pub(super) async fn failure(surface: &Surface, path: &str) -> (StatusCode, Failed) {
    let (status, body) = surface.json(path).await;
    let failed: Failed = serde_json::from_value(body).unwrap();
    assert_eq!(failed.status, "error", "{path}");
    (status, failed)
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
async fn filters_sorts_and_pages_targets() {
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
        ("kind=db&sort=reclaimable_bytes&limit=2", 5, &[SHARD, ODD]),
        ("kind=db&sort=ratio&limit=3", 5, &[ORPHAN, SHARD, ODD]),
        ("sort=priority&limit=1", 8, &[VIEW]),
        ("limit=2&offset=1", 8, &[MISSING, ORPHAN]),
        ("limit=0", 8, &[]),
        ("offset=8", 8, &[]),
        ("offset=18446744073709551615", 8, &[]),
        ("limit=10000&offset=7", 8, &[CLEANUP]),
    ] {
        let page: Targets = surface.answer(&format!("/api/v1/targets?{query}")).await;
        assert_eq!((page.total, ids(&page.targets)), (total, expected.to_vec()), "{query}");
    }
    let page: Targets = surface.answer("/api/v1/targets").await;
    assert_eq!(
        (page.generated_at.as_str(), page.offset, page.limit),
        ("2026-11-21T00:54:00Z", 0, 100)
    );
}

#[tokio::test]
async fn names_the_invalid_parameter() {
    let surface = Surface::new();
    for (path, named) in [
        ("targets?colour=red", "colour"),
        ("targets?kind=shard", "kind: \"shard\" is not one of db, view, cleanup, search"),
        ("targets?state=gone", "state: \"gone\" is not one of ok, "),
        (
            "targets?channel=nope",
            "no channel is called \"nope\"; channels: ratio_dbs, slack_dbs, upgrade_dbs, ratio_views, slack_views, upgrade_views, index_cleanup",
        ),
        ("targets?sort=name", "sort: \"name\" is not one of reclaimable_bytes, "),
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
        let (status, failed) = failure(&surface, &format!("/api/v1/{path}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
        assert_eq!(failed.error_type, "bad_data");
        assert!(failed.error.contains(named), "{path}: {failed:?}");
        assert!(!failed.error.contains("deserialize"), "{path}: {failed:?}");
        // The JSON itself has no further fields.
        let (_, body) = surface.json(&format!("/api/v1/{path}")).await;
        assert_eq!(body.as_object().unwrap().len(), 3);
    }
}

#[tokio::test]
async fn plan_lists_starts_and_reasons_for_waiting() {
    let surface = Surface::new();
    let plan: Planned = surface.answer("/api/v1/plan").await;
    assert_eq!(plan.mode, "advise");
    let [start] = &*plan.starts else { panic!("{plan:?}") };
    assert_eq!((start.id.as_str(), start.node.as_str()), (VIEW, "couchdb@a"));
    assert_eq!(
        start.request,
        "POST /_node/couchdb@a/shards%2F00000000-ffffffff%2Forders.17/_compact/clients"
    );
    assert_eq!(start.caveats, ["unknown_disk", "estimated", "unknown_rate"]);
    assert_eq!(start.duration_seconds, None);
    let refused = |id: &str| {
        let found = plan.refused.iter().find(|it| it.id == id).unwrap();
        let RefusedLine { refusal, why, .. } = found;
        (refusal.reason.as_ref(), why.as_str())
    };
    let why = "another compaction on the node is first in line; the next one starts 1s later (limits.wait)";
    assert_eq!(refused(SHARD), ("ramp", why));
    let why = "another compaction of ratio_views on the node is first in line, and the channel's concurrency is 1";
    assert_eq!(refused(ODD_VIEW), ("channel_limit", why));
    let waiting = CandidatesLine {
        node: "couchdb@a".to_owned(),
        channel: "ratio_dbs".to_owned(),
        starts: 0,
        refused: [("ramp".into(), 2)].into(),
    };
    assert!(plan.candidates.contains(&waiting), "{plan:?}");
    let page: Planned = surface.answer("/api/v1/plan?node=couchdb@a&limit=1&offset=1").await;
    assert_eq!((page.starts.len(), page.total, page.refused.len()), (1, 2, 1));
    let page: Explanations =
        surface.answer(&format!("/api/v1/explain?target={}", encoded(VIEW))).await;
    let [explained] = &*page.targets else { panic!("{page:?}") };
    assert_eq!(explained.start.as_ref().map(|it| &it.request), Some(&start.request));
    assert_eq!(explained.why, None);
}

#[tokio::test]
async fn unknown_paths_and_targets_return_enveloped_404() {
    let surface = Surface::new();
    let odd = format!("explain?target={}", encoded("<b>\n\"'%"));
    for path in ["nothing", "targets/x", "", "explain?target=nothing", "explain?target=", &odd] {
        let (status, failed) = failure(&surface, &format!("/api/v1/{path}")).await;
        assert_eq!((status, failed.error_type.as_ref()), (StatusCode::NOT_FOUND, "not_found"));
    }
}

#[tokio::test]
async fn explain_accepts_every_name_of_a_target() {
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
        // Encoded like a form field, and pasted as printed.
        let mut written = vec![encoded(text)];
        if !text.contains(['$', '(']) {
            written.push(text.to_owned());
        }
        for target in written {
            let page: Explanations =
                surface.answer(&format!("/api/v1/explain?limit=9&target={target}")).await;
            assert_eq!(explained_ids(&page), expected, "{target}");
            assert_eq!(page.total, expected.len(), "{target}");
        }
    }
    let (status, _) =
        surface.json(&format!("/api/v1/explain?target={}", encoded(&odd_design))).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "the design document belongs to another database");
    let page: Explanations = surface.answer("/api/v1/explain?target=orders&offset=4&limit=1").await;
    assert_eq!((explained_ids(&page), page.total), (vec![CLEANUP], 5));
}

#[tokio::test]
async fn queue_lists_waiting_targets_best_first() {
    let surface = Surface::new();
    let page: Queues = surface.answer("/api/v1/queue?node=couchdb@a&channel=ratio_dbs").await;
    let [queue] = &*page.queues else { panic!("{page:?}") };
    assert_eq!(ids(&queue.targets), [SHARD, ODD]);
    let reclaimable = queue.reclaimable_bytes;
    assert!(reclaimable > 100 * MIB && reclaimable < 140 * MIB, "{reclaimable}");
    let expected = Queue {
        node: "couchdb@a".to_owned(),
        channel: "ratio_dbs".to_owned(),
        size: 2,
        capacity: 9_999,
        overflow: 0,
        active: 0,
        reclaimable_bytes: reclaimable,
        priority_max: Some(10.0),
        priority_min: Some(3.0),
        oldest: Some("2026-11-21T00:54:00Z".to_owned()),
        targets: queue.targets.clone(),
    };
    assert_eq!(*queue, expected);
    let page: Queues = surface.answer("/api/v1/queue?channel=ratio_dbs&limit=1").await;
    let sizes = page.queues.iter().map(|it| (it.node.as_str(), it.size, it.targets.len()));
    assert_eq!(sizes.collect::<Vec<_>>(), [("couchdb@a", 2, 1), ("couchdb@b", 0, 0)]);
    let all: Queues = surface.answer("/api/v1/queue").await;
    assert_eq!(all.queues.len(), 2 * 3 + 4);
    let none: Queues = surface.answer("/api/v1/queue?node=nobody").await;
    assert_eq!(none.queues, []);
    let limits = all.limits.iter().map(|limit| (&*limit.key, limit.node.as_deref(), limit.used));
    let expected = [
        ("limits.cluster", None, 0),
        ("limits.bytes_per_hour", None, 0),
        ("limits.per_node", Some("couchdb@a"), 0),
        ("limits.per_node", Some("couchdb@b"), 0),
    ];
    let (channels, limits): (Vec<_>, Vec<_>) =
        limits.partition(|(key, ..)| key.starts_with("channels."));
    assert_eq!(limits, expected);
    assert_eq!(channels.len(), 2 * 7);
    assert_eq!(channels[1], ("channels.ratio_dbs.concurrency", Some("couchdb@b"), 0));
    assert!(all.windows.iter().all(|week| week.open_now && week.open.len() == 168));
    assert_eq!(all.windows.len(), 7);
}

#[tokio::test]
async fn space_sums_the_whole_cluster() {
    let surface = Surface::new();
    let space: Space = surface.answer("/api/v1/space").await;
    assert_eq!((space.targets, space.waiting, space.volumes.len()), (8, 4, 0));
    let file = space.file_bytes.unwrap();
    assert!(space.reclaimable_bytes.is_some_and(|bytes| bytes > 100 * MIB && bytes < file));
    surface.plan.send_replace(Arc::default());
    // Nothing was read yet, so the sizes are unknown.
    let space: Space = surface.answer("/api/v1/space").await;
    assert_eq!((space.file_bytes, space.reclaimable_bytes), (None, None));
}

#[tokio::test]
async fn explain_shows_score_in_every_channel_of_the_kind() {
    let surface = Surface::new();
    let data: Explanations = surface.answer(&format!("/api/v1/explain?target={SHARD}")).await;
    let [explained] = &*data.targets else { panic!("{data:?}") };
    let scores = explained.scores.iter().map(|it| (&*it.channel, it.in_bytes, it.miss.is_some()));
    let expected =
        [("ratio_dbs", false, false), ("slack_dbs", true, true), ("upgrade_dbs", false, true)];
    assert_eq!(scores.collect::<Vec<_>>(), expected);
    assert!(explained.scores[0].score.is_some_and(|score| (score - 10.0).abs() < 1e-9));
}

/// Compares the JSON itself: unknown values are null, and never absent.
#[tokio::test]
async fn status_and_config_show_the_active_configuration() {
    let surface = Surface::new();
    assert_eq!(surface.data("/api/v1/config").await, json!({"scan": {"interval": "5m"}}));
    surface.config.send_modify(|config| {
        let config = Arc::make_mut(config);
        config.reload_successful = false;
        config.needs_restart = vec!["--log.format".to_owned()];
    });
    let mut data = surface.data("/api/v1/status").await;
    let nodes = data["nodes"].take();
    assert!(data["overview"].take().is_object());
    assert_eq!(nodes.as_array().unwrap().len(), 2);
    assert_eq!(
        nodes[1],
        json!({
            "node": "couchdb@b", "up": false, "member": true, "version": null,
            "own_address": false, "findings": [], "served": true, "last_success": null, "smoosh": "not_read",
            "smoosh_channels": [], "pressure": [], "disk": null,
            "source_disagreements": null,
        })
    );
    assert_eq!(
        data,
        json!({
            "version": "0.1.0",
            "overview": null,
            "couchdb": [
                {"url": "http://a:5984", "up": true, "problem": null},
                {"url": "http://b:5984", "up": false, "problem": "no answer"},
                {"url": "http://c:5984/couch", "up": null, "problem": null},
            ],
            "shared_limits": null,
            "revision": "unknown", "date": "unknown", "book": "/docs/",
            "simulated": false, "simulation": null, "simulated_weeks": [],
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
            "last_error_at": "2026-11-21T00:53:00Z",
            "problem": null,
            "unread_shards": null,
            "absent_shards": null,
            "journal_problem": null,
            "peers": [], "missing_rights": [],
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

#[tokio::test]
async fn scorecard_compares_both_modes_and_recommends() {
    let surface = Surface::new();
    let data = surface.data("/api/v1/scorecard?since=7d").await;
    assert_eq!(data, surface.data("/api/v1/scorecard").await, "the default is a week");
    let scorecard: Scorecard = serde_json::from_value(data).unwrap();
    let (real, advised) = (scorecard.real.unwrap(), scorecard.advised.unwrap());
    assert_eq!((real.mean_waste_bytes, advised.mean_waste_bytes), (90 * MIB, 30 * MIB));
    assert_eq!((real.freed_bytes, advised.freed_bytes), (0, 65 * MIB));
    assert_eq!((scorecard.conflicts, scorecard.running), (Some(2), 1));
    assert!(scorecard.says.starts_with("It is too early to decide; so far"), "{}", scorecard.says);
    let page = surface.get("/").await;
    assert!(page.text().contains(&scorecard.says), "{}", page.text());
    // A `since` before the first hour adds no hours, and one in the future gives none.
    let older = surface.data("/api/v1/scorecard?since=2020-01-01").await;
    assert_eq!(older["advised_seconds"], json!(scorecard.advised_seconds));
    let future = surface.data("/api/v1/scorecard?since=2100-01-01").await;
    assert_eq!((&future["real"], &future["conflicts"]), (&Value::Null, &Value::Null));
    let (status, failed) = failure(&surface, "/api/v1/scorecard?since=soon").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(failed.error.contains("\"soon\" is not a valid time"), "{}", failed.error);
    let (status, _) = failure(&surface, "/api/v1/scorecard?days=3").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn advice_lists_muted_findings_but_excludes_them_from_sums() {
    let found: Advice = Surface::new().answer("/api/v1/advice").await;
    assert_eq!(
        (found.says.as_str(), found.gain_bytes),
        (
            "About 276 MiB reclaimable and at least 500 MiB in unused files, of at least 810 MiB on disk. 1 recommendation. 1 muted. The directories of 2 nodes are not read: leftovers, trash and the sizes of stale indexes are unknown there. No answer from couchdb@b: sizes there are those last read, or unknown.",
            70 << 20
        )
    );
    let names: Vec<(&str, bool)> =
        found.advice.iter().map(|it| (it.subject.name.as_str(), it.muted.is_some())).collect();
    assert_eq!(names, [("old", false), ("older", true)]);
    let line = &found.advice[0];
    assert_eq!(line.evidence["files"], 2);
    assert_eq!(line.learn, "/docs/advice.html#orphan_shards");
    assert_eq!(line.remedy[0].text.as_deref(), Some("recliner explain old"));
}

#[tokio::test]
async fn usage_attributes_bytes_to_databases_and_designs() {
    let surface = Surface::new();
    let found: Usage = surface.answer("/api/v1/usage?limit=1").await;
    assert_eq!((found.by.as_ref(), found.largest.len()), ("database", 1));
    assert!(found.others > 0 && found.largest[0].bytes.file_bytes > found.other_bytes.file_bytes);
    let found: Usage = surface.answer("/api/v1/usage?by=design").await;
    assert!(found.largest.iter().all(|line| !line.designs.is_empty()), "{found:?}");
    for query in ["by=node", "limit=0", "limit=99999", "bye=design"] {
        let (status, failed) = failure(&surface, &format!("/api/v1/usage?{query}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query}: {}", failed.error);
    }
}
