//! Backups of the journal over HTTP.

use super::{journal::journal, *};
use crate::{
    model::records::{StateChange, StateStore as _, Suspension, SuspensionScope},
    serve::report::Failed,
    store::journal::{EventDetails, check_copy},
};
use std::io::Write as _;
use tokio::task::JoinSet;

const PATH: &str = "/api/v1/backup";
const HOST: (&str, &str) = ("host", "127.0.0.1:10984");

async fn surface(tasks: &mut JoinSet<()>) -> Surface {
    let mut surface = Surface::new();
    let journal = journal(tasks).await;
    let suspension = Suspension { since: NOW, by: None, why: None };
    journal.store(vec![StateChange::Suspend(SuspensionScope::All, suspension)]).await.unwrap();
    surface.state.journal = Some(journal);
    surface
}

/// The status and the error of a refused request.
async fn refused(surface: &Surface, headers: &[(&str, &str)]) -> (StatusCode, String) {
    let answer = surface.ask(Method::GET, PATH, headers).await;
    let failed: Failed = serde_json::from_slice(&answer.body).unwrap();
    (answer.status, failed.error)
}

#[tokio::test]
async fn sends_journal_as_a_file_with_its_length() {
    let mut tasks = JoinSet::new();
    let surface = surface(&mut tasks).await;
    for _ in 0..2 {
        let answer = surface.ask(Method::GET, PATH, &[HOST]).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.header("content-type"), "application/octet-stream");
        assert_eq!(answer.header("content-length"), answer.body.len().to_string());
        assert_eq!(answer.header("cache-control"), "no-store");
        let name = answer.header("content-disposition");
        assert!(name.starts_with("attachment; filename=\"journal-20261121T0"), "{name}");
        assert!(name.ends_with("Z.redb\""), "{name}");
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&answer.body).unwrap();
        let summary = check_copy(&file, "copy").unwrap();
        assert_eq!((summary.events, summary.outcomes, summary.last_seq), (1, 0, 1));
    }
}

#[tokio::test]
async fn exports_backup_time_only_after_complete_transfer() {
    let mut tasks = JoinSet::new();
    let surface = surface(&mut tasks).await;
    let metric = async || {
        let text = surface.get("/metrics").await.text().to_owned();
        let name = "recliner_journal_last_backup_timestamp_seconds ";
        text.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned))
    };
    assert_eq!(metric().await, None);
    // A client that disconnects after the first of several chunks.
    let journal = surface.state.journal.as_ref().unwrap();
    let names = (0..2_000).map(|at| EventDetails::Updated { db: format!("a-long-name-{at}") });
    journal.record_batch(names.collect());
    let request = Request::get(PATH).header(HOST.0, HOST.1).extension(HERE);
    let answer = surface.router().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let length: u64 = answer.headers()["content-length"].to_str().unwrap().parse().unwrap();
    let mut body = answer.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!((first.len() as u64) < length);
    drop(body);
    // This request is served after all earlier ones.
    journal.feed_position().await.unwrap();
    assert_eq!(metric().await, None);

    assert_eq!(surface.ask(Method::GET, PATH, &[HOST]).await.status, StatusCode::OK);
    journal.feed_position().await.unwrap();
    // The clock advances while the test runs.
    let at: u64 = metric().await.unwrap().parse().unwrap();
    assert!((NOW.unix()..NOW.unix() + 120).contains(&at), "{at}");
}

#[tokio::test]
async fn head_makes_no_copy_and_sends_no_length() {
    let mut tasks = JoinSet::new();
    let surface = surface(&mut tasks).await;
    // A second copy would be refused while this one is in progress.
    let _copy = surface.state.journal.as_ref().unwrap().copy().await.unwrap();
    let answer = surface.ask(Method::HEAD, PATH, &[HOST]).await;
    assert_eq!((answer.status, answer.body.len()), (StatusCode::OK, 0));
    assert_eq!(answer.header("content-type"), "application/octet-stream");
    assert!(!answer.headers.contains_key("content-length"));
}

#[tokio::test]
async fn backup_is_refused_like_an_order() {
    let mut tasks = JoinSet::new();
    let mut surface = surface(&mut tasks).await;
    for headers in [
        &[("host", "evil.example")][..],
        &[HOST, ("origin", "http://evil.example")],
        &[HOST, ("sec-fetch-site", "cross-site")],
        &[HOST, ("x-forwarded-for", "10.0.0.7")],
    ] {
        let (status, why) = refused(&surface, headers).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{headers:?}: {why}");
    }
    surface.state.allow.admin = false;
    let (status, why) = refused(&surface, &[HOST]).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(why.contains("without --recliner.url, or start recliner with --web.enable-admin-api"));
    let answer = surface.ask(Method::HEAD, PATH, &[HOST]).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);

    surface.state.allow.admin = true;
    let copy = surface.state.journal.as_ref().unwrap().copy().await.unwrap();
    let (status, why) = refused(&surface, &[HOST]).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(why.starts_with("another backup is in progress"), "{why}");
    drop(copy);
    assert_eq!(surface.ask(Method::GET, PATH, &[HOST]).await.status, StatusCode::OK);

    surface.state.journal = None;
    let (status, why) = refused(&surface, &[HOST]).await;
    assert_eq!((status, why.as_str()), (StatusCode::NOT_FOUND, "this recliner keeps no journal"));
}
