//! An operator's orders, carried out by a fake service.
//!
//! Responses are compared as JSON: the fields of a refusal depend on its cause, and null means that
//! an order waits for nothing.

use super::{super::orders::*, *};
use crate::{
    model::{
        records::{AdviceKey, JournalFailure, Mute, SuspensionScope},
        score::{Miss, MissReason},
        target::TargetId,
    },
    plan::{Refusal, RefusalReason},
    serve::report::{
        AdviceMute, Failed, MissLine,
        orders::{
            Compacting, Flushed, Muted, OrderAnswer, Released, Rescanning, Resumed, Suspended,
            Waits,
        },
    },
};

const SHARD: &str = "db:couchdb@a/shards%2F00000000-ffffffff%2Forders.17";

/// Sends an order; `fake` carries it out if it reaches the service.
pub(super) async fn order(
    surface: &mut Surface,
    path: &str,
    body: &str,
    fake: impl FnOnce(Order),
) -> (StatusCode, Value) {
    let (_, status, body) = response(surface, path, body, fake).await;
    (status, body)
}

/// The whole response to an order.
async fn response(
    surface: &mut Surface,
    path: &str,
    body: &str,
    fake: impl FnOnce(Order),
) -> (HeaderMap, StatusCode, Value) {
    let request = Request::post(format!("/api/v1/{path}"))
        .header("host", "127.0.0.1:10984")
        .header("content-type", "application/json")
        .extension(HERE)
        .body(Body::from(body.to_owned()))
        .unwrap();
    let router = surface.router();
    let answer = async {
        let answer = router.oneshot(request).await.unwrap();
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.headers, parts.status, serde_json::from_slice(&body).unwrap())
    };
    tokio::pin!(answer);
    let within = time_limit(async {
        tokio::select! {
            biased;
            command = surface.orders.recv() => match command {
                Some(Command::Order(order)) => fake(order),
                other => panic!("{other:?}"),
            },
            answer = &mut answer => return answer,
        }
        answer.await
    });
    within.await
}

async fn time_limit<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(600), work).await.expect("no response in time")
}

/// For orders that must not reach the service.
pub(super) fn nobody(order: Order) {
    panic!("{order:?} came through");
}

pub(super) fn done(order: Order, answer: OrderAnswer) {
    order.reply.send(Ok(answer)).unwrap();
}

pub(super) fn deny(order: Order, why: Denied) {
    order.reply.send(Err(why)).unwrap();
}

pub(super) fn success(data: Value) -> (StatusCode, Value) {
    (StatusCode::OK, json!({ "status": "success", "data": data }))
}

#[tokio::test]
async fn suspends_and_resumes_a_scope() {
    let mut surface = Surface::new();
    for (body, scope, why) in [
        ("", SuspensionScope::All, None),
        ("{}", SuspensionScope::All, None),
        (r#"{"scope": "all", "why": "a\nmove"}"#, SuspensionScope::All, Some("a\nmove")),
        (
            r#"{"scope": "node:couchdb@a", "why": ""}"#,
            SuspensionScope::Node("couchdb@a".into()),
            None,
        ),
        (r#"{"scope": "channel:ratio_dbs"}"#, SuspensionScope::Channel("ratio_dbs".into()), None),
    ] {
        let answer = order(&mut surface, "suspend", body, |order| {
            assert_eq!(order.by, "127.0.0.1");
            assert_eq!(order.action, Action::Suspend { scope, why: why.map(str::to_owned) });
            let (since, by) = (NOW.rfc3339(), Some("ann".into()));
            let suspended = Suspended { since, by, why: None, already: true, running: Some(2) };
            done(order, OrderAnswer::Suspended(suspended));
        });
        let data = json!({
            "since": NOW.rfc3339(), "by": "ann", "why": null, "already": true, "running": 2,
        });
        assert_eq!(answer.await, success(data), "{body}");
    }
    for (body, status, says) in [
        (r#"{"scope": "node"}"#, 400, "all, node:<name> or channel:<name>"),
        (r#"{"scope": "node:"}"#, 400, "all, node:<name> or channel:<name>"),
        (r#"{"scope": "node:couchdb@z"}"#, 404, "couchdb@a"),
        (r#"{"scope": "channel:z"}"#, 404, "ratio_dbs"),
        (r#"{"scopes": "all"}"#, 400, "unknown field `scopes`"),
        ("all", 400, "the body is not valid"),
        ("[]", 400, "it is not a JSON object"),
        (" [null, null]", 400, "it is not a JSON object"),
    ] {
        let (found, body) = order(&mut surface, "suspend", body, nobody).await;
        assert_eq!(found.as_u16(), status, "{body}");
        assert!(body["error"].as_str().unwrap().contains(says), "{body}");
    }
    let long = json!({ "why": "x".repeat(1_001) }).to_string();
    assert_eq!(order(&mut surface, "suspend", &long, nobody).await.0, StatusCode::BAD_REQUEST);
    let larger = " ".repeat(1 << 17);
    assert_eq!(order(&mut surface, "suspend", &larger, nobody).await.0, StatusCode::BAD_REQUEST);

    // No part of the order was carried out, and it may succeed soon.
    for (body, fake) in [("{}", true), (r#"{"scope": "node:couchdb@a"}"#, false)] {
        let mut surface = Surface::new();
        if !fake {
            surface.plan.send_replace(Arc::default());
        }
        let answer = response(&mut surface, "suspend", body, |order| {
            assert!(fake, "{order:?} came through");
            let why = JournalFailure::NotLoaded("CouchDB is silent".to_owned());
            deny(order, Denied::NotLoaded(why));
        });
        let (headers, status, body) = answer.await;
        assert_eq!((status.as_u16(), &headers["retry-after"]), (503, &"2".parse().unwrap()));
        assert!(
            body["error"]
                .as_str()
                .unwrap()
                .starts_with("not ordered: nothing can start yet, because "),
            "{body}"
        );
    }

    // The suspended node may no longer exist.
    let body = r#"{"scope": "node:couchdb@z"}"#;
    let answer = order(&mut surface, "resume", body, |order| {
        assert_eq!(order.action, Action::Resume(SuspensionScope::Node("couchdb@z".into())));
        let (lifted, remaining) = (vec!["node:couchdb@z".to_owned()], vec!["all".to_owned()]);
        done(order, OrderAnswer::Resumed(Resumed { lifted, remaining }));
    });
    let data = json!({ "lifted": ["node:couchdb@z"], "remaining": ["all"] });
    assert_eq!(answer.await, success(data));
}

#[tokio::test]
async fn refusal_in_advise_mode_suggests_explain() {
    let mut surface = Surface::new();
    surface.state.allow.admin = false;
    for (name, says) in [("compact", true), ("rescan", false)] {
        let (status, body) = order(&mut surface, name, r#"{"target": "orders"}"#, nobody).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        let why = body["error"].as_str().unwrap();
        assert!(why.contains("--web.enable-admin-api"), "{why}");
        assert_eq!(why.contains("recliner explain prints the requests"), says, "{why}");
    }
}

#[tokio::test]
async fn compacts_target_by_unambiguous_name() {
    let mut surface = Surface::new();
    let id: TargetId = SHARD.parse().unwrap();
    for (target, force) in [(SHARD, false), (SHARD, true)] {
        let body = json!({ "target": target, "force": force }).to_string();
        let answer = order(&mut surface, "compact", &body, |order| {
            let Action::Compact { target, ix, force: forced } = &order.action else { panic!() };
            assert_eq!((target, *forced), (&id, force));
            assert_eq!(snapshot().target(*ix).unwrap().id(), id);
            let requests = vec!["POST /_node/couchdb@a/x/_compact".to_owned()];
            let refusal =
                Refusal { value: Some(1.0), ..Refusal::without_numbers(RefusalReason::NodeLimit) };
            let waits =
                force.then(|| Waits { refusal: refusal.into(), why: "it is full".to_owned() });
            let compacting = Compacting { requests, waits, until: NOW.rfc3339() };
            done(order, OrderAnswer::Compacting(compacting));
        });
        let refusal = json!({"reason": "node_limit", "class": "in_line", "value": 1.0, "limit": null, "since": null});
        let waits = force.then(|| json!({ "refusal": refusal, "why": "it is full" }));
        let data = json!({
            "requests": ["POST /_node/couchdb@a/x/_compact"], "waits": waits,
            "until": NOW.rfc3339(),
        });
        assert_eq!(answer.await, success(data));
    }
    let (status, body) = order(&mut surface, "compact", r#"{"target": "orders"}"#, nobody).await;
    assert_eq!((status, &body["errorType"]), (StatusCode::CONFLICT, &json!("conflict")));
    assert_eq!(body["error"], "\"orders\" matches 5 targets; give one target's id");
    let candidates = body["data"]["candidates"].as_array().unwrap();
    assert!(candidates.contains(&json!(SHARD)) && candidates.len() == 5, "{body}");
    for (body, status) in [
        (r#"{"target": "nothing"}"#, StatusCode::NOT_FOUND),
        (r#"{"target": "db:couchdb@a/nothing"}"#, StatusCode::NOT_FOUND),
        ("{}", StatusCode::BAD_REQUEST),
        (r#"{"target": "orders", "force": 1}"#, StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(order(&mut surface, "compact", body, nobody).await.0, status, "{body}");
    }

    let body = json!({ "target": SHARD }).to_string();
    let refusal = Refusal {
        value: Some(2.0),
        limit: Some(2.0),
        since: Some(NOW),
        ..Refusal::without_numbers(RefusalReason::NodeLimit)
    };
    let (status, body) = order(&mut surface, "compact", &body, |order| {
        let (why, request) = ("it is full".to_owned(), Some("POST /x".to_owned()));
        deny(order, Denied::Refused { target: id.clone(), refusal, why, request });
    })
    .await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(body["error"], format!("{SHARD} does not start (node_limit): it is full"));
    assert_eq!(
        body["data"],
        json!({
            "target": SHARD,
            "refusal": {"reason": "node_limit", "class": "in_line", "value": 2.0, "limit": 2.0, "since": NOW.rfc3339()},
            "request": "POST /x",
        })
    );
    let too_few = Miss {
        value: Some(1.0),
        limit: Some(2.0),
        ..Miss::without_numbers(MissReason::TooFewChanges)
    };
    let ignored = Miss::without_numbers(MissReason::Ignored);
    for (miss, limit, says) in [
        (
            too_few,
            json!(2.0),
            "(ratio_dbs: 1 change since the last compaction; the minimum is 2); --force compacts it anyway",
        ),
        (
            ignored,
            json!(null),
            "(ratio_dbs: named by ignore); --force overrides sizes and priorities only",
        ),
    ] {
        let body = json!({ "target": SHARD }).to_string();
        let id = id.clone();
        let (status, body) = order(&mut surface, "compact", &body, |order| {
            let channels = Channels::default();
            let (_, ratio) = channels.find("ratio_dbs").unwrap();
            let misses = vec![MissLine::new(ratio, miss)];
            deny(order, Denied::NotTaken { target: id, misses });
        })
        .await;
        assert_eq!(status, StatusCode::CONFLICT);
        assert_eq!(body["error"], format!("no channel takes {SHARD} {says}"));
        assert_eq!(body["data"]["misses"][0]["limit"], limit);
    }
}

#[tokio::test]
async fn rescans_flushes_and_releases_on_order() {
    let mut surface = Surface::new();
    let answer = order(&mut surface, "rescan", "", |order| {
        assert_eq!(order.action, Action::Rescan);
        done(order, OrderAnswer::Rescanning(Rescanning { begins: false }));
    });
    assert_eq!(answer.await, success(json!({ "begins": false })));

    let body = r#"{"node": "couchdb@a", "channel": "slack_dbs"}"#;
    let answer = order(&mut surface, "flush", body, |order| {
        let (node, channel) = (Some("couchdb@a".into()), Some("slack_dbs".into()));
        assert_eq!(order.action, Action::Flush { node, channel });
        done(order, OrderAnswer::Flushed(Flushed { targets: 7 }));
    });
    assert_eq!(answer.await, success(json!({ "targets": 7 })));
    let body = r#"{"channel": "slack"}"#;
    assert_eq!(order(&mut surface, "flush", body, nobody).await.0, StatusCode::NOT_FOUND);

    // A target that no longer exists may still be in quarantine.
    for target in [SHARD, "db:couchdb@z/gone"] {
        let id: TargetId = target.parse().unwrap();
        let body = json!({ "target": target }).to_string();
        let answer = order(&mut surface, "release", &body, |order| {
            let Action::Release { selector, .. } = &order.action else { panic!() };
            assert!(selector.selects(&id, None));
            done(order, OrderAnswer::Released(Released { targets: vec![id.to_string()] }));
        });
        assert_eq!(answer.await, success(json!({ "targets": [target] })));
    }
    let missing = order(&mut surface, "release", r#"{"target": "ordrs"}"#, nobody).await;
    assert_eq!(missing.0, StatusCode::NOT_FOUND);
    assert!(missing.1["error"].as_str().unwrap().contains("did you mean"), "{}", missing.1);
    let answer = order(&mut surface, "release", r#"{"all": true}"#, |order| {
        assert_eq!(order.action, Action::ReleaseAll);
        done(order, OrderAnswer::Released(Released { targets: vec![] }));
    });
    assert_eq!(answer.await, success(json!({ "targets": [] })));
    for body in ["", "{}", r#"{"target": "orders", "all": true}"#, r#"{"all": false}"#] {
        let (status, _) = order(&mut surface, "release", body, nobody).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
    }
}

#[tokio::test]
async fn failures_have_a_status_and_a_message() {
    let mut surface = Surface::new();
    for (denied, status, kind) in [
        (Denied::Unknown("a".into()), StatusCode::NOT_FOUND, "not_found"),
        (Denied::Failed("a".into()), StatusCode::INTERNAL_SERVER_ERROR, "execution"),
        (Denied::Unavailable("a".into()), StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
    ] {
        let (found, body) = order(&mut surface, "rescan", "", |order| deny(order, denied)).await;
        assert_eq!(found, status);
        assert_eq!(body, json!({ "status": "error", "errorType": kind, "error": "a" }));
    }
    let (status, body) = order(&mut surface, "rescan", "", drop).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(body["error"], "recliner is stopping");
    let get = surface.get("/api/v1/rescan").await;
    assert_eq!((get.status, get.header("allow")), (StatusCode::METHOD_NOT_ALLOWED, "POST"));
    assert!(get.text().contains("this route needs POST"), "{}", get.text());
}

#[tokio::test(start_paused = true)]
async fn order_that_never_finishes_times_out() {
    let mut surface = Surface::new();
    let mut pending_order = None;
    let (status, body) =
        order(&mut surface, "rescan", "", |order| pending_order = Some(order)).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body["error"].as_str().unwrap().contains("did not finish in time"), "{body}");
    drop(pending_order);
}

#[tokio::test(start_paused = true)]
async fn body_that_never_arrives_times_out() {
    let surface = Surface::new();
    let request = Request::post("/api/v1/suspend")
        .header("host", "127.0.0.1:10984")
        .header("content-type", "application/json")
        .extension(HERE)
        .body(Body::from_stream(futures::stream::pending::<Result<String, std::io::Error>>()))
        .unwrap();
    let begun = tokio::time::Instant::now();
    let answer = time_limit(surface.router().oneshot(request)).await.unwrap();
    assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(begun.elapsed(), Duration::from_secs(10));
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let failed: Failed = serde_json::from_slice(&body).unwrap();
    assert_eq!(failed.error, "the body did not arrive within 10 seconds");
}

#[tokio::test]
async fn mutes_and_unmutes_advice() {
    let mut surface = Surface::new();
    let body = r#"{"code": "orphan_shards", "subject": "old", "for": "90d", "why": "kept"}"#;
    let answer = order(&mut surface, "advice/mute", body, |order| {
        let Action::MuteAdvice { key, mute_for, why } = order.action.clone() else { panic!() };
        assert_eq!(key, AdviceKey::of("orphan_shards", "old".to_owned()));
        assert_eq!(mute_for, Some(Duration::from_secs(90 * 86_400)));
        let by = Some(order.by.clone());
        let mute = Mute { since: NOW, until: NOW.plus(mute_for.unwrap()), by, why };
        done(order, OrderAnswer::Muted(Muted { muted: Some(AdviceMute::of(&mute)) }));
    });
    let muted = json!({
        "since": NOW.rfc3339(), "until": "2027-02-19T00:54:00Z", "by": "127.0.0.1", "why": "kept",
    });
    assert_eq!(answer.await, success(json!({ "muted": muted })));
    let answer = order(&mut surface, "advice/unmute", r#"{"code": "orphan_shards"}"#, |order| {
        let key = AdviceKey::of_code("orphan_shards");
        assert_eq!(order.action, Action::MuteAdvice { key, mute_for: None, why: None });
        done(order, OrderAnswer::Muted(Muted { muted: None }));
    });
    assert_eq!(answer.await, success(json!({ "muted": null })));
}

#[tokio::test]
async fn refuses_mute_without_code_or_valid_duration() {
    let mut surface = Surface::new();
    for (body, says) in [
        (r#"{"code": "orphan_shards", "for": "forever"}"#, "such as 30d"),
        (r#"{"code": "orphan_shards", "for": "0s"}"#, "longer than 0s"),
        (r#"{"code": "orphan_shards", "for": "5000d"}"#, "at most"),
        (r#"{"subject": "old"}"#, "code"),
    ] {
        let (status, answer) = order(&mut surface, "advice/mute", body, nobody).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        assert!(answer["error"].as_str().unwrap().contains(says), "{body}: {answer}");
    }
}
