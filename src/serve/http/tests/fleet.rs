//! The fleet: its answer, its page and its metrics; and what a recliner says for the fleet of another.

use super::{
    console::{assert_nested, outside_tags},
    *,
};
use crate::{
    fleet::{Fleet, Member, MemberState, Silence},
    serve::report::{FleetAnswer, Status},
};

const HOSTILE: &str = "<script>alert(1)</script>\u{202e}\u{7}\n`x`";

fn member(at: &str, name: Option<&str>, state: MemberState) -> Arc<Member> {
    let address = at.parse().unwrap();
    Arc::new(Member { address, name: name.map(str::to_owned), has_login: true, state })
}

fn answered(answer: Value) -> MemberState {
    MemberState::Answered(Arc::new(serde_json::from_value(answer).unwrap()))
}

fn fleet() -> Fleet {
    let silence = |is_refused, why: &str| {
        MemberState::Silent(Silence { since: NOW, is_refused, why: why.into() })
    };
    let fine = json!({"version": "0.9.0", "mode": "enforce", "suspensions": [], "overview": {
        "file_bytes": 9_u64 << 30, "waste_bytes": 2_u64 << 30, "reclaimable_bytes": 1_u64 << 30,
        "unmeasured": 0, "unread_directories": 0, "full_volume": null, "full_at": null,
        "not_full_until": "2026-12-21T00:54:00Z",
        "last_night": {"compactions": 3, "freed_bytes": 5, "rewritten_bytes": 9, "failed": 1},
        "advice": {"open": 0, "worst": null},
    }});
    let hostile = json!({"version": HOSTILE, "mode": HOSTILE, "problem": HOSTILE, "suspensions": [
        {"says": HOSTILE},
    ], "overview": {
        "file_bytes": u64::MAX, "waste_bytes": u64::MAX, "reclaimable_bytes": u64::MAX,
        "unmeasured": u64::MAX, "unread_directories": u64::MAX, "full_volume": HOSTILE,
        "full_at": "2026-11-22T00:54:00Z",
        "advice": {"open": u64::MAX, "worst": {"severity": HOSTILE, "code": HOSTILE, "says": HOSTILE}},
    }});
    let old = json!({"version": "0.0.9", "mode": "advise"});
    Fleet {
        is_configured: true,
        members: vec![
            member("http://a:1", Some("twice"), answered(fine)),
            member("http://b:1", Some("twice"), answered(old)),
            member("https://c:1/below", Some(HOSTILE), answered(hostile)),
            member("http://d:1", None, silence(false, HOSTILE)),
            member("http://e:1", None, silence(true, "it refuses the login")),
            member("http://f:1", None, MemberState::Unasked),
        ],
        problems: vec![format!("list.yml: {HOSTILE}")],
    }
}

fn surface() -> Surface {
    let mut surface = Surface::new();
    surface.state.clock = STOPPED;
    surface.state.fleet = watch::channel(Arc::new(fleet())).1;
    surface
}

#[tokio::test]
async fn fleet_lists_members_that_need_attention_first() {
    let surface = surface();
    let (status, body) = surface.json("/api/v1/fleet").await;
    let text = serde_json::to_string_pretty(&body).unwrap();
    insta::assert_snapshot!("answer_fleet", format!("{status}\n{text}"));
    let read: FleetAnswer = surface.answer("/api/v1/fleet").await;
    assert_eq!(read, FleetAnswer::of(&fleet(), NOW), "commands read what the service writes");
    let none: FleetAnswer = Surface::new().answer("/api/v1/fleet").await;
    assert!(none.members.is_empty() && none.says.contains("fleet.urls"), "{}", none.says);
}

#[tokio::test]
async fn fleet_page_shows_hostile_members_as_text() {
    let surface = surface();
    let page = surface.get("/fleet").await;
    assert_eq!(page.status, StatusCode::OK);
    assert_nested(page.text());
    let shown = outside_tags(page.text());
    assert!(!shown.contains('\u{202e}') && !shown.contains('\u{7}'), "{shown}");
    assert_eq!(page.text().matches("<script").count(), 1);
    for wanted in [r#"href="https://c:1/below""#, "twice (b:1)", "refused", "≥ "] {
        assert!(page.text().contains(wanted), "{wanted}: {}", page.text());
    }
    let link = r#"<a href="fleet""#;
    assert!(surface.get("/").await.text().contains(link));
    assert!(!Surface::new().get("/").await.text().contains(link));
}

#[tokio::test]
async fn fleet_metrics_leave_out_what_is_unknown() {
    let text = surface().get("/metrics").await.text().to_owned();
    for sample in [
        "recliner_fleet_member_up{member=\"http://a:1\"} 1\n",
        "recliner_fleet_member_up{member=\"http://d:1\"} 0\n",
        "recliner_fleet_members{attention=\"silent\"} 1\n",
        "recliner_fleet_members{attention=\"unknown\"} 2\n",
    ] {
        assert!(text.contains(sample), "{sample}");
    }
    assert!(!text.contains("http://f:1"), "it was not asked yet");
    let without = Surface::new().get("/metrics").await.text().to_owned();
    assert!(!without.contains("recliner_fleet_members{"));
}

#[tokio::test]
async fn overview_agrees_with_space_advice_and_history() {
    let mut tasks = tokio::task::JoinSet::new();
    let mut surface = journal::surface(&mut tasks).await;
    surface.state.clock = STOPPED;
    let status: Status = surface.answer("/api/v1/status").await;
    let overview = status.overview.unwrap();
    let space = surface.data("/api/v1/space").await;
    let advice = surface.data("/api/v1/advice").await;
    assert_eq!(json!(overview.file_bytes), space["file_bytes"]);
    assert_eq!(json!(overview.reclaimable_bytes), space["reclaimable_bytes"]);
    assert_eq!(json!(overview.waste_bytes), advice["waste_bytes"]);
    let open = overview.advice.unwrap();
    assert_eq!(open.open, 1, "one of two pieces is muted");
    let first = advice["advice"].as_array().unwrap().iter().find(|it| it["muted"].is_null());
    assert_eq!(json!(open.worst.unwrap().says), first.unwrap()["says"]);
    let hours = surface.data("/api/v1/history/hours?since=11h").await;
    let freed = |hour: &Value| hour["freed_bytes"].as_u64().unwrap();
    let freed: u64 = hours["hours"].as_array().unwrap().iter().map(freed).sum();
    assert_eq!(overview.last_night.unwrap().freed_bytes, freed);
    // Without a journal, last night is unknown.
    let status: Status = Surface::new().answer("/api/v1/status").await;
    assert_eq!(status.overview.unwrap().last_night, None);
}

#[tokio::test]
async fn fleet_is_served_without_a_cluster() {
    let state = FleetState { fleet: watch::channel(Arc::new(fleet())).1, clock: STOPPED };
    let router = fleet_router(state, Allow::default(), WebAccess::default());
    let get = async |path: &'static str, host: &'static str| {
        ask(router.clone(), Method::GET, path, &[("host", host)]).await
    };
    let here = "127.0.0.1:10984";
    for path in ["/", "/fleet"] {
        let page = get(path, here).await;
        assert_eq!((page.status, page.header("refresh")), (StatusCode::OK, "30"));
        assert_nested(page.text());
        for absent in ["\"databases\"", "docs/", "role=\"search\"", "data-live", "mode "] {
            let head = page.text().split("<h1>").next().unwrap();
            assert!(!head.contains(absent), "{absent}: {head}");
        }
    }
    let answer: Value = serde_json::from_slice(&get("/api/v1/fleet", here).await.body).unwrap();
    assert_eq!(answer, surface().json("/api/v1/fleet").await.1);
    let metrics = get("/metrics", here).await;
    assert!(metrics.text().contains("recliner_fleet_members{attention=\"silent\"} 1\n"));
    assert_eq!(get("/assets/console.css", here).await.status, StatusCode::OK);
    assert_eq!(get("/-/healthy", here).await.status, StatusCode::OK);
    assert_eq!(get("/api/v1/status", here).await.status, StatusCode::NOT_FOUND);
    assert_eq!(get("/", "evil.example").await.status, StatusCode::FORBIDDEN);
    let posted = ask(router.clone(), Method::POST, "/api/v1/fleet", &[("host", here)]).await;
    assert_eq!(posted.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(posted.header("x-content-type-options"), "nosniff");
}
