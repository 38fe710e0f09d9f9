//! How often a password is sent when answers are invalid: at most one login per server in ten
//! seconds, whatever the answers.

use super::fake::{BAD_LOGIN, Cluster, NOT_ADMIN, Seen, connect, json, settings};
use crate::Cache;
use axum::{
    http::header::SET_COOKIE,
    response::{IntoResponse as _, Response},
};
use futures::future::join_all;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep},
};

const A: &str = "http://a:5984";
const KNOWN: &str = r#"{"ok":true,"userCtx":{"name":"adm","roles":["_admin"]}}"#;
const UNKNOWN: &str = r#"{"ok":true,"userCtx":{"name":null,"roles":[]}}"#;

/// A request that carried the password.
#[derive(Clone, Debug)]
struct Shown {
    after: Duration,
    /// The server, or the node behind it.
    host: String,
    /// Whether the request begins a session.
    post: bool,
    /// Whether the request proves the login.
    login: bool,
}

/// Sends eight reads at a time, again and again, for `span`. Returns the passwords that arrived.
async fn passwords(
    urls: &[&str],
    span: Duration,
    rule: impl Fn(&Seen) -> Option<Response> + Send + Sync + 'static,
) -> Vec<Shown> {
    let (log, mut shown) = mpsc::channel(100_000);
    let start = Instant::now();
    let (cluster, _seen) = Cluster::new(move |seen| {
        if seen.password.is_some() && seen.secret.is_none() {
            let login = seen.login || seen.path.ends_with("/_session");
            // A node that is asked through another one checks the login itself.
            let behind = seen.path.strip_prefix("/_node/").filter(|_| login);
            let host = behind.map_or(&*seen.host, |path| path.trim_end_matches("/_session"));
            let (host, post) = (host.to_owned(), seen.login);
            log.try_send(Shown { after: start.elapsed(), host, post, login }).unwrap();
        }
        rule(seen)
    });
    let client = connect(&cluster, settings(urls));
    let work = async {
        loop {
            let reads = (0..8).map(|at| {
                let client = &client;
                async move {
                    let node = ["couchdb@a", "couchdb@b"][at % 2];
                    let read = client.shard_info(node, "shard", Cache::Warm).await.is_ok();
                    (read, client.membership().await.is_ok())
                }
            });
            let _whatever = join_all(reads).await;
            sleep(Duration::from_secs(1)).await;
        }
    };
    let _over = tokio::time::timeout(span, work).await;
    std::iter::from_fn(|| shown.try_recv().ok()).collect()
}

/// Times of the logins at `host`. A `GET /_session` with the password, sent after a login that gave
/// no session, counts as part of that login.
fn logins(shown: &[Shown], host: &str) -> Vec<Duration> {
    let mut found: Vec<Duration> = Vec::new();
    for one in shown.iter().filter(|one| one.host == host && one.login) {
        let belongs = |last: &Duration| !one.post && one.after - *last < Duration::from_secs(1);
        if !found.last().is_some_and(belongs) {
            found.push(one.after);
        }
    }
    found
}

fn assert_rare(shown: &[Shown], what: &str) {
    for host in ["a", "b", "c", "couchdb@a", "couchdb@b"] {
        let logins = logins(shown, host);
        let close = logins.windows(2).find(|two| two[1] - two[0] < Duration::from_secs(10));
        assert_eq!(close, None, "{what}, {host}: {logins:?}");
    }
}

fn with_cookie(body: &str, cookie: &str) -> Response {
    let mut answer = json(200, body);
    answer.headers_mut().insert(SET_COOKIE, cookie.parse().unwrap());
    answer
}

const MINUTES: Duration = Duration::from_secs(15 * 60);

#[tokio::test(start_paused = true)]
async fn session_with_zero_lifetime_is_used_until_refused() {
    let shown = passwords(&[A], MINUTES, |seen| {
        let over = "AuthSession=s.right; Path=/; Max-Age=0";
        seen.login.then(|| with_cookie(r#"{"ok":true}"#, over))
    })
    .await;
    assert_eq!((logins(&shown, "a").len(), shown.len()), (1, 2), "one per server: {shown:?}");
}

#[tokio::test(start_paused = true)]
async fn sessions_refused_at_once_are_tried_only_twice() {
    let turn = AtomicU64::new(0);
    let shown = passwords(&[A], MINUTES, move |seen| {
        // Sessions are recognised right after the login, but not when they are used.
        let known =
            seen.path == "/_session" && turn.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        let body = if known { KNOWN } else { UNKNOWN };
        match (seen.login, &seen.secret) {
            (true, _) => Some(with_cookie("{}", "AuthSession=s.right; Max-Age=0")),
            (false, Some(_)) if seen.path == "/_session" => Some(json(200, body)),
            (false, Some(_)) => Some(json(401, NOT_ADMIN)),
            _ => None,
        }
    })
    .await;
    assert_rare(&shown, "refused");
    assert!(shown.iter().filter(|one| one.post && one.host == "a").count() <= 2, "{shown:?}");
}

#[tokio::test(start_paused = true)]
async fn password_accepted_and_refused_in_turn_pauses_six_minutes() {
    for sessions in [true, false] {
        let shown = passwords(&[A], Duration::from_secs(350), move |seen| match &*seen.path {
            "/" => None,
            "/_session" if seen.login && !sessions => Some(json(200, "{}")),
            "/_session" if seen.login => {
                Some(with_cookie("{}", "AuthSession=s.right; Max-Age=600"))
            }
            "/_session" => Some(json(200, KNOWN)),
            _ => Some(json(401, BAD_LOGIN)),
        })
        .await;
        assert_rare(&shown, "in turn");
        let at_a: Vec<_> = shown.iter().filter(|one| one.host == "a").collect();
        // Two logins, and the requests in flight after each when the first of them was refused.
        assert!((2..=10).contains(&at_a.len()), "{sessions}: {} {at_a:?}", at_a.len());
    }
}

#[tokio::test(start_paused = true)]
async fn login_that_meets_server_error_keeps_its_interval() {
    let shown = passwords(&[A, "http://b:5984"], MINUTES, |seen| {
        seen.login.then(|| json(500, r#"{"error":"internal"}"#))
    })
    .await;
    assert_rare(&shown, "fault");
    let count = logins(&shown, "a").len();
    assert!((10..=90).contains(&count), "it is tried again: {count}");
}

#[tokio::test(start_paused = true)]
async fn server_gets_one_login_in_ten_seconds_whatever_it_answers() {
    for seed in 0..60_u64 {
        let turn = Arc::new(AtomicU64::new(0));
        let shown = passwords(&[A, "http://b:5984"], Duration::from_secs(200), move |seen| {
            let turn = turn.fetch_add(1, Ordering::SeqCst);
            // A cheap mixer: splitmix64.
            let mut random = (seed << 32 | turn).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            random = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            random ^= random >> 27;
            let age = [0, 1, 600][(random >> 8) as usize % 3];
            let cookie = format!("AuthSession=s.{}; Max-Age={age}", random % 7);
            let known = [KNOWN, UNKNOWN][(random >> 16) as usize % 2];
            match random % 11 {
                0 => Some(json(401, BAD_LOGIN)),
                1 | 2 => Some(json(401, NOT_ADMIN)),
                3 => Some(json(403, &format!(r#"{{"reason":"you may not, {turn}"}}"#))),
                4 => Some(json(500, r#"{"error":"internal"}"#)),
                5 | 6 => Some(with_cookie(known, &cookie)),
                7 if seen.path.ends_with("/_session") => Some(json(200, known)),
                8 if seen.login => Some("no JSON at all".into_response()),
                _ => None,
            }
        })
        .await;
        assert_rare(&shown, &format!("seed {seed}"));
        assert!(!shown.is_empty(), "seed {seed}");
    }
}

/// Lets the sessions at `urls` end while the first server answers logins with `status`, then sends
/// forty requests at once. Returns how many were answered, and how long the last one took.
async fn once_sessions_ended(urls: &[&str], status: u16) -> (usize, Duration) {
    let broken = watch::Sender::new(false);
    let fails = broken.subscribe();
    let (cluster, _seen) = Cluster::new(move |seen| {
        (*fails.borrow() && seen.login && seen.host == "a").then(|| json(status, "{}"))
    });
    let client = connect(&cluster, settings(urls));
    client.membership().await.unwrap();
    sleep(Duration::from_secs(700)).await;
    broken.send_replace(true);
    let begun = Instant::now();
    let reads = (0..40).map(|_| async { client.membership().await.is_ok() });
    let answered = join_all(reads).await.into_iter().filter(|answered| *answered).count();
    (answered, begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn requests_share_the_wait_for_a_failing_login() {
    for status in [500, 503, 507] {
        let (answered, took) = once_sessions_ended(&[A], status).await;
        assert_eq!(answered, 0);
        assert!(took < Duration::from_secs(40), "HTTP {status}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn failing_login_at_one_server_delays_no_request() {
    let (answered, took) = once_sessions_ended(&[A, "http://b:5984"], 503).await;
    assert_eq!(answered, 40);
    assert!(took < Duration::from_secs(3), "{took:?}");
}
