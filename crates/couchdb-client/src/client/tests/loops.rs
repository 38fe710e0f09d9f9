//! How often a password is sent where answers make no sense: at most one login a server in ten
//! seconds, whatever is answered.

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

/// A password that arrived.
#[derive(Clone, Debug)]
struct Shown {
    after: Duration,
    /// The server, or the node behind it.
    host: String,
    /// Whether it was to begin a session.
    post: bool,
    /// Whether it was to prove the login.
    login: bool,
}

/// Asks eight things at a time, again and again, for so long; what passwords arrived.
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
            // A node that is asked through another one checks the login by itself.
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

/// Logins, each with its time: the question who the password is, asked behind a login that
/// gave no session, belongs to it.
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
async fn a_session_that_claims_to_be_over_at_once_is_used_until_it_is_refused() {
    let shown = passwords(&[A], MINUTES, |seen| {
        let over = "AuthSession=s.right; Path=/; Max-Age=0";
        seen.login.then(|| with_cookie(r#"{"ok":true}"#, over))
    })
    .await;
    assert_eq!((logins(&shown, "a").len(), shown.len()), (1, 2), "one a server: {shown:?}");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_refused_at_once_is_begun_twice_and_then_done_without() {
    let turn = AtomicU64::new(0);
    let shown = passwords(&[A], MINUTES, move |seen| {
        // Known when it was just begun, and not any more when it is used.
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
async fn a_password_that_is_accepted_and_refused_in_turn_is_given_up_for_six_minutes() {
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
        // Two logins, and what was in flight behind each when the first was refused.
        assert!((2..=10).contains(&at_a.len()), "{sessions}: {} {at_a:?}", at_a.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_login_that_meets_a_servers_fault_is_not_repeated_sooner() {
    let shown = passwords(&[A, "http://b:5984"], MINUTES, |seen| {
        seen.login.then(|| json(500, r#"{"error":"internal"}"#))
    })
    .await;
    assert_rare(&shown, "fault");
    let count = logins(&shown, "a").len();
    assert!((10..=90).contains(&count), "it is tried again: {count}");
}

#[tokio::test(start_paused = true)]
async fn whatever_is_answered_a_server_sees_one_login_in_ten_seconds() {
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

/// Lets the sessions of all these URLs end while the first answers each login so, and sends forty
/// requests at once; how many were answered, and how long the last one took.
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
async fn one_login_that_fails_is_waited_for_once_and_not_by_each_in_turn() {
    for status in [500, 503, 507] {
        let (answered, took) = once_sessions_ended(&[A], status).await;
        assert_eq!(answered, 0);
        assert!(took < Duration::from_secs(40), "HTTP {status}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_where_no_login_succeeds_holds_up_nobody_who_can_ask_another() {
    let (answered, took) = once_sessions_ended(&[A, "http://b:5984"], 503).await;
    assert_eq!(answered, 40);
    assert!(took < Duration::from_secs(3), "{took:?}");
}
