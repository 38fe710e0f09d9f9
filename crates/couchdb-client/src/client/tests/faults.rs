use super::fake::{Cluster, connect, drain, endless, json, settings, timed};
use crate::{Cache, Error, ErrorKind};
use axum::response::Response;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const A: &str = "http://a:5984";

/// The error of reading one shard if the server gives this answer, and how many requests were sent.
async fn read(answer: fn() -> Response) -> (Error, usize) {
    let (cluster, mut seen) = Cluster::new(move |seen| seen.path.ends_with("/shard").then(answer));
    let client = connect(&cluster, settings(&[A]));
    let (read, took) = timed(client.shard_info("couchdb@a", "shard", Cache::Warm)).await;
    assert!(took < Duration::from_secs(90), "{took:?}");
    let asked = drain(&mut seen).iter().filter(|seen| seen.path.ends_with("/shard")).count();
    (read.unwrap_err(), asked)
}

fn redirect() -> Response {
    let to = "http://adm:secret@elsewhere:5984/x?token=secret";
    Response::builder().status(302).header("location", to).body("".into()).unwrap()
}

fn large() -> Response {
    json(200, &format!(r#"{{"db_name":"shard","x":"{}"}}"#, "x".repeat(2 << 20)))
}

#[tokio::test(start_paused = true)]
async fn failures_have_their_kind_and_are_retried_if_useful() {
    type Case = (fn() -> Response, ErrorKind, usize, &'static str);
    let cases: [Case; 16] = [
        (endless, ErrorKind::Timeout, 2, "no complete answer within 30s"),
        (
            || json(412, r#"{"error":"nodedown","reason":"nodedown"}"#),
            ErrorKind::NodeDown,
            1,
            "the node couchdb@a is down",
        ),
        (|| json(412, "{}"), ErrorKind::Proxy, 1, "HTTP 412 without CouchDB's JSON: a proxy"),
        (|| json(404, "<html>"), ErrorKind::Proxy, 1, "HTTP 404 without CouchDB's JSON: a proxy"),
        (|| json(403, "<html>"), ErrorKind::Proxy, 1, "let it allow this path"),
        (
            || json(404, r#"{"error":"not_found","reason":"no_db_file"}"#),
            ErrorKind::NotFound,
            1,
            "not found, no_db_file",
        ),
        (
            || json(404, r#"{"error":"not_found","reason":"no such node: couchdb@a"}"#),
            ErrorKind::UnknownNode,
            1,
            "see /_membership",
        ),
        (|| json(500, r#"{"error":"timeout"}"#), ErrorKind::Status, 3, "HTTP 500, timeout"),
        (|| json(507, r#"{"reason":"disk full"}"#), ErrorKind::Status, 1, "HTTP 507, disk full"),
        (|| json(400, "[]"), ErrorKind::Proxy, 1, "HTTP 400"),
        (|| json(200, "<html>"), ErrorKind::Malformed, 1, "is malformed"),
        (|| json(200, r#"{"db_name":"shard","sizes":{"file":12"#), ErrorKind::Malformed, 1, "EOF"),
        (|| json(200, "{}"), ErrorKind::Malformed, 1, "neither sizes nor a sequence"),
        (
            || json(200, r#"{"db_name":"other","sizes":{"file":12}}"#),
            ErrorKind::Malformed,
            1,
            "it describes \"other\" instead",
        ),
        (redirect, ErrorKind::Redirect, 1, "a redirect to http://elsewhere:5984/x, which"),
        (large, ErrorKind::TooLarge, 1, "larger than 1048576 bytes"),
    ];
    for (answer, kind, times, says) in cases {
        let (error, asked) = read(answer).await;
        assert_eq!((error.kind(), asked), (kind, times), "{error}");
        let error = error.to_string();
        assert!(error.contains(says), "{error}");
        assert!(error.starts_with("GET http://a:5984/_node/couchdb@a/shard: "), "{error}");
        assert!(!error.contains("secret") && !error.contains("right"), "{error}");
    }
}

const MISSING: &str = r#"{"error":"not_found","reason":"no_db_file"}"#;

#[tokio::test(start_paused = true)]
async fn name_decoded_by_proxy_is_not_reported_missing() {
    for decodes in [true, false] {
        let (cluster, mut seen) = Cluster::new(move |seen| match seen.path.as_str() {
            "/_node%2F_local" if decodes => Some(json(200, r#"{"name":"couchdb@a"}"#)),
            path if path.contains("%2F") => Some(json(404, MISSING)),
            _ => None,
        });
        let client = connect(&cluster, settings(&[A]));
        let shard = "shards/00000000-ffffffff/app.1";
        let read = client.shard_info("couchdb@a", shard, Cache::Warm).await.unwrap_err();
        let kind = if decodes { ErrorKind::Proxy } else { ErrorKind::NotFound };
        assert_eq!(read.kind(), kind, "{read}");
        assert_eq!(client.database("app/orders").await.unwrap_err().kind(), kind);
        let checks = drain(&mut seen);
        assert_eq!(checks.iter().filter(|seen| seen.path == "/_node%2F_local").count(), 1);
        if decodes {
            assert!(read.to_string().starts_with("a proxy between here and CouchDB decodes %2F"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn errors_hide_login_that_server_repeats() {
    let (cluster, _seen) = Cluster::new(|seen| {
        let body =
            serde_json::json!({"error": "x", "reason": format!("you sent {:?}", seen.password)});
        seen.path.ends_with("/shard").then(|| json(418, &body.to_string()))
    });
    let mut settings = settings(&[A]);
    settings.login = crate::Login::password("adm", "right").unwrap();
    assert!(!format!("{settings:?}").contains("right"));
    let client = connect(&cluster, settings);
    let error = client.shard_info("couchdb@a", "shard", Cache::Warm).await.unwrap_err();
    assert!(error.to_string().contains("you sent Some(\"[hidden]\")"), "{error}");
    for shown in [format!("{error:?}"), format!("{:?}", client.client)] {
        assert!(!shown.contains("\"right\"") && !shown.contains("Basic YWRt"), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn unaddressable_names_are_never_sent() {
    let (cluster, mut seen) = Cluster::new(|_| None);
    let client = connect(&cluster, settings(&[A]));
    client.session().await.unwrap();
    drain(&mut seen);
    for error in [
        client.view_info("app", "_design/..").await.unwrap_err(),
        client.view_info("app", "_design/.").await.unwrap_err(),
        client.shard_view_info("couchdb@a", "s", "_design/..", Cache::Warm).await.unwrap_err(),
        client.database("..").await.unwrap_err(),
        client.shard_info("..", "s", Cache::Warm).await.unwrap_err(),
        client.db_shards("").await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unaddressable, "{error}");
    }
    assert_eq!(drain(&mut seen), []);
}

#[tokio::test(start_paused = true)]
async fn requests_fail_once_the_client_task_has_ended() {
    let (cluster, _seen) = Cluster::new(|_| None);
    let running = connect(&cluster, settings(&[A]));
    let client = running.client.clone();
    drop(running);
    assert_eq!(timed(client.session()).await.0.unwrap_err().kind(), ErrorKind::Stopped);
}

#[tokio::test(start_paused = true)]
async fn server_that_is_not_couchdb_is_reported_after_few_requests() {
    for login in [true, false] {
        let (cluster, mut seen) = Cluster::new(|_| Some(json(404, "not here")));
        let mut settings = settings(&[A, "http://b:5984"]);
        if !login {
            settings.login = crate::Login::None;
        }
        let client = connect(&cluster, settings);
        let (read, _) = timed(client.membership()).await;
        let error = read.unwrap_err().to_string();
        let expected = "answered, but it is not a CouchDB (it answers GET / with HTTP 404): check";
        assert!(error.contains(expected), "{error}");
        let log = drain(&mut seen);
        assert!(log.len() <= 6, "{log:?}");
        assert!(log.iter().all(|seen| seen.password.is_none() || seen.login), "{log:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn entry_is_up_only_after_usable_couchdb_answer() {
    type Case = (fn() -> Response, &'static str);
    let cases: [Case; 6] = [
        (|| json(401, super::fake::BAD_LOGIN), "incorrect"),
        (|| json(500, r#"{"error":"badmatch","reason":"x"}"#), "HTTP 500"),
        (|| json(502, "<html>Bad gateway</html>"), "HTTP 502"),
        (|| json(200, "<html>Sign in</html>"), "is malformed"),
        (|| json(403, "<html>Forbidden</html>"), "HTTP 403"),
        (redirect, "HTTP 302"),
    ];
    for (answer, why) in cases {
        let broken = Arc::new(AtomicBool::new(false));
        let is_broken = Arc::clone(&broken);
        let (cluster, _seen) = Cluster::new(move |_| is_broken.load(Ordering::SeqCst).then(answer));
        let client = connect(&cluster, settings(&[A]));
        let up = || {
            let entry = client.entries(ToString::to_string).remove(0);
            (entry.up, entry.why.unwrap_or_default())
        };
        assert_eq!(up().0, None);
        timed(client.membership()).await.0.unwrap();
        assert_eq!(up().0, Some(true));
        broken.store(true, Ordering::SeqCst);
        timed(client.membership()).await.0.unwrap_err();
        let (is_up, says) = up();
        assert!(is_up == Some(false) && says.contains(why), "{why}: {is_up:?} {says}");
        broken.store(false, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(400)).await;
        timed(client.membership()).await.0.unwrap();
        assert_eq!(up(), (Some(true), String::new()), "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn database_and_permission_errors_leave_the_entry_up() {
    let cases: [fn() -> Response; 4] = [
        || json(500, r#"{"error":"locked","reason":"shard splitting"}"#),
        || json(404, r#"{"error":"not_found","reason":"no_db_file"}"#),
        || json(412, r#"{"error":"nodedown","reason":"nodedown"}"#),
        || json(401, super::fake::NOT_ADMIN),
    ];
    for answer in cases {
        let (cluster, _seen) = Cluster::new(move |seen| seen.path.ends_with("/shard").then(answer));
        let client = connect(&cluster, settings(&[A]));
        timed(client.shard_info("couchdb@a", "shard", Cache::Warm)).await.0.unwrap_err();
        let entry = client.entries(ToString::to_string).remove(0);
        assert_eq!((entry.up, entry.why), (Some(true), None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_everything_with_an_error_of_couchdb_is_down_within_a_minute() {
    let error = || json(500, r#"{"error":"error","reason":"eio"}"#);
    for (broken_path, up) in [("", false), ("/_active_tasks", true), ("/shard", true)] {
        let broken = Arc::new(AtomicBool::new(false));
        let is_broken = Arc::clone(&broken);
        let (cluster, _seen) = Cluster::new(move |seen| {
            let hit = seen.path.ends_with(broken_path) && is_broken.load(Ordering::SeqCst);
            let tasks = seen.path.ends_with("/_active_tasks").then(|| json(200, "[]"));
            if hit { Some(error()) } else { tasks }
        });
        let client = connect(&cluster, settings(&[A]));
        timed(client.shard_info("couchdb@a", "shard", Cache::Warm)).await.0.unwrap();
        broken.store(true, Ordering::SeqCst);
        // Between two sweeps, only tasks, shards and the name are read.
        for _ in 0..8 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let (tasks, _) = timed(client.active_tasks("couchdb@a")).await;
            assert_eq!(tasks.is_ok(), broken_path == "/shard");
            let (shard, _) = timed(client.shard_info("couchdb@a", "shard", Cache::Warm)).await;
            assert_eq!(shard.is_ok(), broken_path == "/_active_tasks");
        }
        let entry = client.entries(ToString::to_string).remove(0);
        assert_eq!(entry.up, Some(up), "{broken_path}: {entry:?}");
        assert_eq!(entry.why.is_some_and(|why| why.contains("HTTP 500, eio")), !up);
        broken.store(false, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(70)).await;
        assert_eq!(client.entries(ToString::to_string).remove(0).up, Some(true), "{broken_path}");
    }
}

#[tokio::test(start_paused = true)]
async fn error_of_a_node_behind_an_entry_leaves_the_entry_up() {
    let (cluster, _seen) = Cluster::new(move |seen| {
        let about_b = seen.host == "b" || seen.path.contains("couchdb@b");
        about_b.then(|| json(500, r#"{"error":"error","reason":"eio"}"#))
    });
    let client = connect(&cluster, settings(&[A]));
    for _ in 0..8 {
        timed(client.node_welcome("couchdb@b")).await.0.unwrap_err();
        let entry = client.entries(ToString::to_string).remove(0);
        assert_eq!((entry.up, entry.why), (Some(true), None));
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}
