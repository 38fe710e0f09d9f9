//! Compares `/_db_updates` with recorded responses of CouchDB.

use super::{journal::journal, *};
use crate::{feeds::feed_server, store::journal::EventDetails};
use std::{collections::BTreeSet, path::Path};
use tokio::{task::JoinSet, time};
use tokio_util::sync::CancellationToken;

const VERSIONS: [&str; 2] = ["3.5.0", "3.3.3"];

fn recorded(version: &str, case: &str) -> Value {
    let path = format!("crates/couchdb-client/tests/data/http/{version}/{case}.json");
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    text.parse().unwrap()
}

/// Keys and types of a recorded response. Rows of a continuous feed form a list; some recordings
/// have only one row.
fn recorded_shape(version: &str, case: &str) -> BTreeSet<String> {
    let body = &recorded(version, case)["body"];
    shape_of(&match body.as_str() {
        Some(text) => lines(text),
        None if case == "db_updates_continuous" => json!([body]),
        None => body.clone(),
    })
}

/// A surface whose feed has seven events.
async fn surface(tasks: &mut JoinSet<()>) -> Surface {
    let mut surface = Surface::new();
    let journal = journal(tasks).await;
    let (task, feed) =
        feed_server::FeedServerTask::new(journal.clone(), 2, CancellationToken::new());
    tasks.spawn(task.run());
    let mut events: Vec<EventDetails> = Vec::new();
    for number in 0..3 {
        events.push(EventDetails::Created { db: format!("d{number}") });
        events.push(EventDetails::Updated { db: format!("d{number}") });
    }
    events.push(EventDetails::Deleted { db: "d1".into() });
    journal.record_batch(events);
    journal.overridden_settings().await.unwrap();
    surface.state.feed = Some(feed);
    surface.state.journal = Some(journal);
    surface
}

/// Collects the keys and types of a value, at any depth.
fn shape(value: &Value, path: &str, out: &mut BTreeSet<String>) {
    if let Some(object) = value.as_object() {
        out.insert(format!("{path} object"));
        for (key, value) in object {
            shape(value, &format!("{path}/{key}"), out);
        }
    } else if let Some(list) = value.as_array() {
        out.insert(format!("{path} list"));
        for value in list {
            shape(value, &format!("{path}/*"), out);
        }
    } else {
        let kind = if value.is_string() { "string" } else { "other" };
        out.insert(format!("{path} {kind}"));
    }
}

fn shape_of(value: &Value) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    shape(value, "", &mut out);
    out
}

fn parsed(body: &str) -> Value {
    body.parse().unwrap()
}

/// Parses one JSON value per line.
fn lines(body: &str) -> Value {
    body.lines().filter(|it| !it.is_empty()).map(parsed).collect()
}

#[tokio::test(start_paused = true)]
async fn db_updates_responses_match_recorded_couchdb_responses() {
    let mut tasks = JoinSet::new();
    let surface = surface(&mut tasks).await;
    let journal = surface.state.journal.clone().unwrap();
    // Events arrive while requests wait for them.
    tasks.spawn(async move {
        loop {
            time::sleep(Duration::from_millis(300)).await;
            journal.record_batch(vec![EventDetails::Updated { db: "later".into() }]);
        }
    });
    for version in VERSIONS {
        for case in [
            "db_updates",
            "db_updates_bad_feed",
            "db_updates_bad_heartbeat",
            "db_updates_bad_limit",
            "db_updates_continuous",
            "db_updates_descending",
            "db_updates_since_now",
            "db_updates_timeout_longpoll",
        ] {
            let recorded = recorded(version, case);
            let path = recorded["request"]["path"].as_str().unwrap();
            // A heartbeat keeps the feed open for ever; the recording was cut off.
            let path = path.replace("heartbeat=400&", "");
            let answer = surface.get(&(path.clone() + "&limit=4").replace("x&limit=4", "x")).await;
            let name = format!("{version} {case} {path}");
            assert_eq!(answer.status.as_u16(), recorded["status"], "{name}");
            for header in ["cache-control", "content-type"] {
                assert_eq!(answer.header(header), recorded["headers"][header], "{name} {header}");
            }
            let tagged = recorded["headers"].get("etag").is_some();
            assert_eq!(!answer.header("etag").is_empty(), tagged, "{name}");
            if answer.status != StatusCode::OK {
                assert_eq!(parsed(answer.text()), recorded["body"], "{name}");
                continue;
            }
            let body = match case {
                "db_updates_continuous" => lines(answer.text()),
                _ => parsed(answer.text()),
            };
            let (own, theirs) = (shape_of(&body), recorded_shape(version, case));
            assert!(theirs.is_subset(&own) || case == "db_updates_since_now", "{name}: {own:?}");
            // Some recordings have no rows or were cut off, so the shapes of both versions count.
            let mut any = BTreeSet::from(["/*/last_seq string".to_owned()]);
            any.extend(VERSIONS.iter().flat_map(|version| recorded_shape(version, case)));
            assert!(own.is_subset(&any), "{name}: {own:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn event_source_resumes_after_last_event_id() {
    let mut tasks = JoinSet::new();
    let surface = surface(&mut tasks).await;
    for version in VERSIONS {
        let recorded = recorded(version, "db_updates_eventsource");
        let answer = surface.get("/_db_updates?feed=eventsource&timeout=0").await;
        for header in ["cache-control", "content-type"] {
            assert_eq!(answer.header(header), recorded["headers"][header], "{header}");
        }
        let first = answer.text().lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
        let back = [("last-event-id", first)];
        let path = "/_db_updates?feed=eventsource&since=now&timeout=0";
        let rest = surface.ask(Method::GET, path, &back).await;
        assert_eq!(rest.header("x-recliner-since"), "");
        let count = |text: &str| text.matches("\"db_name\"").count();
        assert_eq!((count(answer.text()), count(rest.text())), (7, 6));
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_method_and_missing_journal_respond_like_couchdb() {
    let mut tasks = JoinSet::new();
    let surface = surface(&mut tasks).await;
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
        let answer = surface.ask(method, "/_db_updates", &[]).await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(
            (answer.header("allow"), answer.header("content-type")),
            ("GET", "application/json")
        );
        let body = json!({"error": "method_not_allowed", "reason": "Only GET allowed"});
        assert_eq!(parsed(answer.text()), body);
    }
    for (path, tagged) in [("/_db_updates", true), ("/_db_updates?feed=continuous", false)] {
        let head = surface.ask(Method::HEAD, path, &[]).await;
        assert_eq!((head.status, head.body.as_slice()), (StatusCode::OK, &b""[..]), "{path}");
        assert_eq!(!head.header("etag").is_empty(), tagged, "{path}");
    }
    let without = Surface::new();
    for version in VERSIONS {
        let recorded = recorded(version, "db_updates_without_global_changes");
        let answer = without.get("/_db_updates").await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
        assert_eq!(shape_of(&parsed(answer.text())), shape_of(&recorded["body"]));
        assert_eq!(parsed(answer.text())["error"], recorded["body"]["error"]);
        assert_eq!(answer.header("cache-control"), recorded["headers"]["cache-control"]);
        // An invalid parameter is reported before the missing journal.
        assert_eq!(without.get("/_db_updates?feed=x").await.status, StatusCode::BAD_REQUEST);
    }
}

#[tokio::test(start_paused = true)]
async fn etag_changes_only_if_the_feed_has_a_new_event() {
    let mut tasks = JoinSet::new();
    let surface = surface(&mut tasks).await;
    let tag = surface.get("/_db_updates?limit=1").await.header("etag").to_owned();
    let weak = format!("\"other\", W/{tag}");
    for sent in [&tag, &weak] {
        let sent = [("if-none-match", sent.as_str())];
        let answer = surface.ask(Method::GET, "/_db_updates", &sent).await;
        assert_eq!((answer.status, answer.body.len()), (StatusCode::NOT_MODIFIED, 0));
        assert_eq!(answer.header("etag"), tag);
        // Only the normal feed uses the tag.
        let path = "/_db_updates?feed=longpoll";
        assert_eq!(surface.ask(Method::GET, path, &sent).await.status, StatusCode::OK);
    }
    let journal = surface.state.journal.as_ref().unwrap();
    let target = "cleanup:orders".parse().unwrap();
    journal.record_batch(vec![EventDetails::Released { target }]);
    journal.overridden_settings().await.unwrap();
    assert_eq!(surface.get("/_db_updates").await.header("etag"), tag);
    journal.record_batch(vec![EventDetails::Updated { db: "d0".into() }]);
    journal.overridden_settings().await.unwrap();
    let sent = [("if-none-match", tag.as_str())];
    let answer = surface.ask(Method::GET, "/_db_updates", &sent).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_ne!(answer.header("etag"), tag);
}

#[tokio::test(start_paused = true)]
async fn counts_readers_and_asks_excess_reader_to_retry() {
    let mut tasks = JoinSet::new();
    let surface = surface(&mut tasks).await;
    let line = |count: u64| format!("recliner_feed_subscribers {count}\n");
    assert!(surface.get("/metrics").await.text().contains(&line(0)));
    let open = || async {
        let request = Request::builder().uri("/_db_updates?feed=continuous&heartbeat=true");
        surface.router().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    };
    let (one, two) = (open().await, open().await);
    assert_eq!((one.status(), two.status()), (StatusCode::OK, StatusCode::OK));
    assert!(surface.get("/metrics").await.text().contains(&line(2)));
    let refused = surface.get("/_db_updates?feed=longpoll").await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(!refused.header("retry-after").is_empty());
    let body = parsed(refused.text());
    assert_eq!(body["error"], "service_unavailable");
    assert!(body["reason"].as_str().unwrap().starts_with("2 readers wait"), "{body}");
    drop(one);
    assert!(surface.get("/metrics").await.text().contains(&line(1)));
}

#[tokio::test(start_paused = true)]
async fn couchdb_sequence_restarts_feed_and_is_announced() {
    let mut tasks = JoinSet::new();
    let surface = surface(&mut tasks).await;
    for version in VERSIONS {
        let theirs = recorded(version, "db_updates_descending")["body"]["last_seq"].clone();
        let path = format!("/_db_updates?since={}", theirs.as_str().unwrap());
        let answer = surface.get(&path).await;
        assert_eq!(answer.header("x-recliner-since"), "foreign");
        assert_eq!(parsed(answer.text())["results"].as_array().unwrap().len(), 7);
    }
    let (status, body) = surface.json("/_db_updates?since=garbage").await;
    let reason = "Malformed sequence supplied in 'since' parameter.";
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(body, json!({"error": "bad_request", "reason": reason}));
}
