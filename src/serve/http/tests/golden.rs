//! Snapshots of the JSON of every route and of every type of event, which clients depend on.

use super::*;
use crate::{
    serve::report::EventLine,
    store::journal::{EventType, JournalEvent, one_of_each_type},
    text::Label as _,
};
use tokio::task::JoinSet;

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

#[tokio::test]
async fn json_of_every_route_is_unchanged() {
    let mut tasks = JoinSet::new();
    let mut surface = journal::surface(&mut tasks).await;
    surface.state.clock = STOPPED;
    for (name, path) in [
        ("status", "/api/v1/status"),
        ("space", "/api/v1/space"),
        ("targets", "/api/v1/targets"),
        ("targets_of_kind", "/api/v1/targets?kind=view&files=true"),
        ("facts", "/api/v1/facts"),
        ("queue", "/api/v1/queue"),
        ("plan", "/api/v1/plan"),
        ("jobs", "/api/v1/jobs"),
        (
            "explain_db",
            "/api/v1/explain?target=db:couchdb@a%2Fshards%2F00000000-ffffffff%2Forders.17",
        ),
        ("explain_names", "/api/v1/explain?target=orders"),
        ("scorecard", "/api/v1/scorecard"),
        ("advice", "/api/v1/advice"),
        ("usage", "/api/v1/usage"),
        ("databases", "/api/v1/databases"),
        ("history", "/api/v1/history"),
        ("hours", "/api/v1/history/hours?since=2h"),
        ("events", "/api/v1/events"),
        ("config", "/api/v1/config"),
        ("permissions", "/api/v1/permissions"),
        ("discovery", "/sd"),
        ("no_route", "/api/v1/nothing"),
        ("bad_query", "/api/v1/targets?kind=shard"),
    ] {
        let (status, body) = surface.json(path).await;
        insta::assert_snapshot!(format!("answer_{name}"), format!("{status}\n{}", pretty(&body)));
    }
}

#[tokio::test]
async fn json_of_every_event_type_is_unchanged() {
    let events = one_of_each_type()
        .into_iter()
        .zip(1..)
        .map(|(details, seq)| json!(EventLine::of(seq, &JournalEvent { at: NOW, details })));
    for (event, event_type) in events.zip(EventType::each()) {
        let read: EventLine = serde_json::from_value(event.clone()).unwrap();
        assert_eq!(json!(read), event, "clients read what the service writes");
        insta::assert_snapshot!(format!("event_{}", event_type.label()), pretty(&event));
    }
}
