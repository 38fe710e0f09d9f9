//! Sessions: begun once per server, renewed, and replaced by the password on servers without
//! sessions.

use super::fake::{Cluster, Running, Seen, connect, drain, json, settings, timed};
use crate::{Cache, ErrorKind};
use futures::future::join_all;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::time::sleep;

const A: &str = "http://a:5984";
const B: &str = "http://b:5984";

async fn many(client: &Running, nodes: &[&str]) -> Vec<Result<(), ErrorKind>> {
    let reads = (0..40).map(|number| {
        let node = nodes[number % nodes.len()];
        async move {
            let read = client.shard_info(node, "shard", Cache::Warm).await;
            read.map(drop).map_err(|error| error.kind())
        }
    });
    timed(join_all(reads)).await.0
}

fn logins(log: &[Seen]) -> Vec<&str> {
    log.iter().filter(|seen| seen.login).map(|seen| seen.host.as_str()).collect()
}

/// Requests other than logins that carried the password rather than a cookie.
fn with_password(log: &[Seen]) -> usize {
    let sent = |seen: &&Seen| seen.password.is_some() && seen.secret.is_none() && !seen.login;
    log.iter().filter(sent).count()
}

#[tokio::test(start_paused = true)]
async fn logs_in_once_per_server_and_sends_its_cookie() {
    let (cluster, mut seen) = Cluster::new(|_| None);
    cluster.sessions.send_replace([Some("x"), Some("y"), Some("z")]);
    let client = connect(&cluster, settings(&[A, B]));
    let all = ["couchdb@a", "couchdb@b", "couchdb@c"];
    assert_eq!(many(&client, &all).await, vec![Ok(()); 40]);
    let log = drain(&mut seen);
    let mut hosts = logins(&log);
    hosts.sort_unstable();
    assert_eq!((hosts, with_password(&log)), (vec!["a", "b", "c"], 0));
    let own = [("a", "x"), ("b", "y"), ("c", "z")];
    for seen in log.iter().filter(|seen| !seen.login && seen.path != "/") {
        assert!(own.contains(&(&seen.host, seen.secret.as_deref().unwrap())), "{seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn logs_in_again_before_an_old_session_is_refused() {
    let (cluster, mut seen) = Cluster::new(|_| None);
    let client = connect(&cluster, settings(&[A]));
    client.membership().await.unwrap();
    drain(&mut seen);
    sleep(Duration::from_secs(530)).await;
    client.membership().await.unwrap();
    assert_eq!(logins(&drain(&mut seen)), [""; 0]);
    sleep(Duration::from_secs(20)).await;
    timed(join_all((0..20).map(|_| client.membership()))).await.0.into_iter().for_each(|read| {
        read.unwrap();
    });
    assert_eq!(logins(&drain(&mut seen)), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn session_continues_with_cookie_from_an_answer() {
    let (cluster, mut seen) = Cluster::new(|seen| {
        let mut answer = json(200, r#"{"all_nodes":[],"cluster_nodes":[]}"#);
        let cookie = "AuthSession=renewed.right; Max-Age=600".parse().unwrap();
        answer.headers_mut().insert("set-cookie", cookie);
        (seen.path == "/_membership").then_some(answer)
    });
    let client = connect(&cluster, settings(&[A]));
    for _ in 0..5 {
        client.membership().await.unwrap();
        sleep(Duration::from_secs(400)).await;
    }
    let log = drain(&mut seen);
    assert_eq!(logins(&log), ["a"]);
    assert_eq!(log.last().unwrap().secret.as_deref(), Some("renewed"));
}

#[tokio::test(start_paused = true)]
async fn ended_session_costs_one_login_and_loses_no_response() {
    let (cluster, mut seen) = Cluster::new(|_| None);
    let client = connect(&cluster, settings(&[A]));
    assert_eq!(many(&client, &["couchdb@a"]).await, vec![Ok(()); 40]);
    for secret in ["s2", "s3", "s4"] {
        sleep(Duration::from_secs(90)).await;
        drain(&mut seen);
        cluster.sessions.send_replace([Some(secret); 3]);
        assert_eq!(many(&client, &["couchdb@a"]).await, vec![Ok(()); 40]);
        let log = drain(&mut seen);
        assert_eq!((logins(&log), with_password(&log)), (vec!["a"], 0), "{secret}");
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_ended_together_cost_at_most_two_logins_per_server() {
    let (cluster, mut seen) = Cluster::new(|_| None);
    let client = connect(&cluster, settings(&[A, B, "http://c:5984"]));
    let all = ["couchdb@a", "couchdb@b", "couchdb@c"];
    assert_eq!(many(&client, &all).await, vec![Ok(()); 40]);
    sleep(Duration::from_secs(90)).await;
    drain(&mut seen);
    cluster.sessions.send_replace([Some("t"); 3]);
    assert_eq!(many(&client, &all).await, vec![Ok(()); 40]);
    let log = drain(&mut seen);
    for host in ["a", "b", "c"] {
        let at = logins(&log).iter().filter(|at| **at == host).count();
        assert!((1..=2).contains(&at), "{host}: {at}");
    }
    assert_eq!(with_password(&log), 0);
}

#[tokio::test(start_paused = true)]
async fn without_sessions_three_requests_at_a_time_carry_the_password() {
    let (cluster, mut seen) = Cluster::new(|_| None);
    cluster.sessions.send_replace([None; 3]);
    let client = connect(&cluster, settings(&[A]));
    assert_eq!(many(&client, &["couchdb@a"]).await, vec![Ok(()); 40]);
    assert_eq!(cluster.most_in_flight.load(Ordering::SeqCst), 3);
    let log = drain(&mut seen);
    assert_eq!(logins(&log), ["a"]);
    cluster.passwords.send_replace(["other"; 3]);
    assert_eq!(many(&client, &["couchdb@a"]).await, vec![Err(ErrorKind::Login); 40]);
    let log = drain(&mut seen);
    assert!(log.len() <= 4, "{log:?}");
    assert!(log.iter().all(|seen| seen.secret.is_none()), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn works_without_sessions_if_a_proxy_blocks_login() {
    for status in [403, 404, 405, 501] {
        let (cluster, mut seen) =
            Cluster::new(move |seen| seen.login.then(|| json(status, "not here")));
        let client = connect(&cluster, settings(&[A]));
        assert_eq!(many(&client, &["couchdb@a"]).await, vec![Ok(()); 40], "{status}");
        assert_eq!(logins(&drain(&mut seen)), ["a"], "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn node_that_rejects_entrys_session_gets_the_password() {
    let (cluster, mut seen) =
        Cluster::new(|seen| (seen.host != "a").then(|| json(503, r#"{"error":"no server here"}"#)));
    cluster.sessions.send_replace([Some("x"), Some("y"), Some("x")]);
    let client = connect(&cluster, settings(&[A]));
    assert_eq!(many(&client, &["couchdb@b", "couchdb@c"]).await, vec![Ok(()); 40]);
    let log = drain(&mut seen);
    let behind = |seen: &&Seen| seen.host == "a" && seen.path.starts_with("/_node/couchdb@b/");
    let to_b: Vec<_> = log.iter().filter(behind).collect();
    assert_eq!(to_b.len(), 1 + 1 + 20);
    assert_eq!(to_b.iter().filter(|seen| seen.secret.is_some()).count(), 1);
    assert!(with_password(&log) <= 1 + 20, "c recognises the session");
}

#[tokio::test(start_paused = true)]
async fn recognises_wrong_password_behind_entry_by_its_error() {
    let (cluster, mut seen) = Cluster::new(|seen| {
        let behind = seen.path.starts_with("/_node/couchdb@b/") && seen.secret.is_none();
        let error = r#"{"error":"unknown_error","reason":"function_clause"}"#;
        match &*seen.host {
            "a" if behind => Some(json(500, error)),
            "a" => None,
            _ => Some(json(503, r#"{"error":"no server here"}"#)),
        }
    });
    cluster.sessions.send_replace([Some("x"), Some("y"), Some("x")]);
    let client = connect(&cluster, settings(&[A]));
    assert_eq!(many(&client, &["couchdb@b"]).await, vec![Err(ErrorKind::Login); 40]);
    let log = drain(&mut seen);
    let tried = log.iter().filter(|seen| seen.path.starts_with("/_node/couchdb@b/")).count();
    assert_eq!(tried, 2, "{log:?}");
    assert_eq!(many(&client, &["couchdb@c"]).await, vec![Ok(()); 40]);
}

#[tokio::test(start_paused = true)]
async fn uses_password_if_servers_behind_address_share_no_sessions() {
    // Every other request meets a server that did not make the cookie.
    let turn = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (cluster, mut seen) = Cluster::new(move |seen| {
        let other = seen.secret.is_some() && seen.path != "/_session";
        let odd = other && turn.fetch_add(1, Ordering::SeqCst) % 2 == 1;
        odd.then(|| json(401, super::fake::NOT_ADMIN))
    });
    let client = connect(&cluster, settings(&[A]));
    assert_eq!(many(&client, &["couchdb@a"]).await, vec![Ok(()); 40]);
    let log = drain(&mut seen);
    assert_eq!(logins(&log), ["a"]);
    assert!(with_password(&log) >= 30);
}

#[tokio::test(start_paused = true)]
async fn errors_hide_cookie_that_server_repeats() {
    let (cluster, _seen) = Cluster::new(|seen| {
        let (secret, password) = (seen.secret.as_deref()?, seen.password.as_deref()?);
        let reason = format!("you sent {secret}.{password}");
        let body = serde_json::json!({"error": "x", "reason": reason}).to_string();
        seen.path.ends_with("/shard").then(|| json(418, &body))
    });
    let client = connect(&cluster, settings(&[A]));
    let error = client.shard_info("couchdb@a", "shard", Cache::Warm).await.unwrap_err();
    assert!(error.to_string().contains("you sent"), "{error}");
    for shown in [error.to_string(), format!("{error:?}"), format!("{:?}", client.client)] {
        assert!(!shown.contains("s.right") && !shown.contains("\"right\""), "{shown}");
    }
}
