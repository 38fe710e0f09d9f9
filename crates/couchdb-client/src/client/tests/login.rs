use super::fake::{
    BAD_LOGIN, Cluster, NOT_ADMIN, Running, connect, drain, json, paths, settings, timed,
};
use crate::{Cache, Error, ErrorKind, Login};
use futures::future::join_all;
use std::{
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::sleep;

const A: &str = "http://a:5984";
const B: &str = "http://b:5984";
const NOT_ALLOWED: &str =
    r#"{"error":"forbidden","reason":"You are not allowed to access this db."}"#;

async fn sixteen(client: &Running, node: &str) -> Vec<Result<Option<u64>, ErrorKind>> {
    let shards: Vec<String> = (0..16).map(|number| format!("shard{number}")).collect();
    let reads = shards.iter().map(async |shard| {
        let read = client.shard_info(node, shard, Cache::Warm).await;
        read.map(|info| info.sizes.file).map_err(|error| error.kind())
    });
    timed(join_all(reads)).await.0
}

/// How many of the logged requests carried this password rather than a cookie.
fn with(log: &[super::fake::Seen], password: &str) -> usize {
    let carried = |seen: &&super::fake::Seen| {
        seen.secret.is_none() && seen.password.as_deref() == Some(password)
    };
    log.iter().filter(carried).count()
}

#[tokio::test(start_paused = true)]
async fn one_request_proves_the_login_before_others_follow() {
    let (mut cluster, mut seen) = Cluster::new(|_| None);
    cluster.delay = Duration::from_secs(2);
    let client = connect(&cluster, settings(&[A]));
    let reading = sixteen(&client, "couchdb@a");
    let looking = async {
        sleep(Duration::from_millis(1900)).await;
        paths(&mut seen)
    };
    let (read, first) = tokio::join!(reading, looking);
    assert_eq!(first, ["a POST /_session"]);
    assert_eq!(read, vec![Ok(Some(4096)); 16]);
    let after = paths(&mut seen);
    assert_eq!(after[..2], ["a /_session", "a /_node/_local"]);
    assert_eq!(after.len(), 18, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_costs_one_request_in_six_minutes() {
    let (cluster, mut seen) = Cluster::new(|_| None);
    cluster.passwords.send_replace(["other"; 3]);
    let client = connect(&cluster, settings(&[A, B]));
    assert_eq!(sixteen(&client, "couchdb@a").await, vec![Err(ErrorKind::Login); 16]);
    assert_eq!(paths(&mut seen), ["a POST /_session"]);
    sleep(Duration::from_secs(355)).await;
    assert_eq!(sixteen(&client, "couchdb@b").await, vec![Err(ErrorKind::Login); 16]);
    assert_eq!(drain(&mut seen), []);
    let error = client.session().await.unwrap_err().to_string();
    assert!(
        error.contains("http://a:5984 rejected the login of \"adm\" (HTTP 401, Name or password"),
        "{error}"
    );
    sleep(Duration::from_secs(11)).await;
    assert_eq!(paths(&mut seen).len(), 1);
    cluster.passwords.send_replace(["right"; 3]);
    sleep(Duration::from_secs(366)).await;
    assert_eq!(sixteen(&client, "couchdb@a").await, vec![Ok(Some(4096)); 16]);
}

#[tokio::test(start_paused = true)]
async fn a_password_that_stops_working_is_sent_once() {
    let (cluster, mut seen) = Cluster::new(|_| None);
    let mut settings = settings(&[A]);
    settings.requests_in_flight = 4;
    let client = connect(&cluster, settings);
    assert_eq!(sixteen(&client, "couchdb@a").await, vec![Ok(Some(4096)); 16]);
    drain(&mut seen);
    cluster.passwords.send_replace(["other"; 3]);
    assert_eq!(sixteen(&client, "couchdb@a").await, vec![Err(ErrorKind::Login); 16]);
    let log = drain(&mut seen);
    assert_eq!((log.len(), with(&log, "right")), (4 + 2, 1), "{log:?}");
    assert!(log[5].login, "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn another_server_is_asked_whether_a_refused_login_still_works() {
    let (cluster, mut seen) = Cluster::new(|_| None);
    let client = connect(&cluster, settings(&[A, B]));
    sixteen(&client, "couchdb@a").await.into_iter().for_each(|read| assert!(read.is_ok()));
    assert_eq!(sixteen(&client, "couchdb@b").await, vec![Ok(Some(4096)); 16]);
    drain(&mut seen);
    cluster.passwords.send_replace(["other", "right", "right"]);
    let read = sixteen(&client, "couchdb@a").await;
    assert_eq!(
        read,
        vec![Err(ErrorKind::Login); 16],
        "the node refuses, directly and behind the entry"
    );
    let log = drain(&mut seen);
    let tried_at_a = log
        .iter()
        .filter(|seen| seen.secret.is_none())
        .filter(|seen| seen.host == "a" || seen.path.contains("couchdb@a"));
    assert_eq!(tried_at_a.count(), 2, "directly and through the other entry: {log:?}");
    assert_eq!(sixteen(&client, "couchdb@b").await, vec![Ok(Some(4096)); 16]);
    drain(&mut seen);
    sixteen(&client, "couchdb@a").await;
    assert_eq!(drain(&mut seen), [], "nothing more is sent to the node that refused");
}

#[tokio::test(start_paused = true)]
async fn login_refused_by_a_node_behind_an_entry_works_elsewhere() {
    let (cluster, mut seen) =
        Cluster::new(|seen| (seen.host != "a").then(|| json(503, r#"{"error":"no server here"}"#)));
    cluster.passwords.send_replace(["right", "other", "right"]);
    let client = connect(&cluster, settings(&[A]));
    assert_eq!(sixteen(&client, "couchdb@b").await, vec![Err(ErrorKind::Login); 16]);
    let log = drain(&mut seen);
    let tried = log.iter().filter(|seen| seen.path.contains("_node/couchdb@b"));
    assert_eq!(tried.filter(|seen| seen.secret.is_none()).count(), 1, "{log:?}");
    assert_eq!(sixteen(&client, "couchdb@c").await, vec![Ok(Some(4096)); 16]);
    assert_eq!(sixteen(&client, "couchdb@a").await, vec![Ok(Some(4096)); 16]);
}

#[tokio::test(start_paused = true)]
async fn missing_privilege_is_forbidden_and_other_reads_continue() {
    let (cluster, mut seen) =
        Cluster::new(|seen| seen.path.contains("shard").then(|| json(403, NOT_ALLOWED)));
    let client = connect(&cluster, settings(&[A]));
    assert_eq!(sixteen(&client, "couchdb@a").await, vec![Err(ErrorKind::Forbidden); 16]);
    let log = paths(&mut seen);
    let canaries = log.iter().filter(|path| *path == "a /_session").count();
    assert_eq!(canaries, 2, "one at the start, one for all refused requests: {log:?}");
    assert_eq!(client.node_files("couchdb@a").await.unwrap().len(), 1);
    let error = client.shard_info("couchdb@a", "shard", Cache::Warm).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "GET http://a:5984/_node/couchdb@a/shard: HTTP 403, You are not allowed to access this db.; the login may not read this; use a server admin"
    );
    drain(&mut seen);
    sleep(Duration::from_secs(61)).await;
    drain(&mut seen);
    client.shard_info("couchdb@a", "shard", Cache::Warm).await.unwrap_err();
    assert_eq!(paths(&mut seen), ["a /_node/couchdb@a/shard", "a /_session"]);
}

#[tokio::test(start_paused = true)]
async fn sends_nothing_while_a_refusal_is_examined() {
    let (mut cluster, mut seen) =
        Cluster::new(|seen| seen.path.ends_with("shard0").then(|| json(403, NOT_ALLOWED)));
    cluster.delay = Duration::from_secs(1);
    let mut settings = settings(&[A]);
    settings.requests_in_flight = 1;
    let client = connect(&cluster, settings);
    client.shard_info("couchdb@a", "warm", Cache::Warm).await.unwrap();
    drain(&mut seen);
    let read = sixteen(&client, "couchdb@a").await;
    assert_eq!((read[0], read[1]), (Err(ErrorKind::Forbidden), Ok(Some(4096))));
    assert_eq!(
        paths(&mut seen)[..3],
        ["a /_node/couchdb@a/shard0", "a /_session", "a /_node/couchdb@a/shard1"]
    );
}

#[tokio::test(start_paused = true)]
async fn login_that_could_not_be_proved_is_tried_again() {
    let down = Arc::new(AtomicBool::new(true));
    let is_down = Arc::clone(&down);
    let (cluster, mut seen) = Cluster::new(move |_| {
        is_down.load(Ordering::SeqCst).then(|| json(503, r#"{"error":"starting"}"#))
    });
    let client = connect(&cluster, settings(&[A, B]));
    let read = sixteen(&client, "couchdb@a").await;
    assert_eq!(read, vec![Err(ErrorKind::Status); 16]);
    let log = paths(&mut seen);
    assert!(log.len() <= 8 && log.iter().all(|path| path.ends_with("/_session")), "{log:?}");
    down.store(false, Ordering::SeqCst);
    // A failed proof is not repeated at once.
    sleep(Duration::from_secs(10)).await;
    assert_eq!(sixteen(&client, "couchdb@a").await, vec![Ok(Some(4096)); 16]);
}

fn password_file(password: &str) -> (tempfile::NamedTempFile, Login) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{password}").unwrap();
    let login = Login::file("adm", file.path()).unwrap();
    (file, login)
}

#[tokio::test(start_paused = true)]
async fn password_rotation_during_sweep_loses_no_request() {
    let (cluster, mut seen) = Cluster::new(|_| None);
    let (file, login) = password_file("right");
    let mut settings = settings(&[A]);
    settings.login = login;
    settings.requests_in_flight = 4;
    let client = connect(&cluster, settings);
    assert_eq!(sixteen(&client, "couchdb@a").await, vec![Ok(Some(4096)); 16]);
    drain(&mut seen);
    std::fs::write(file.path(), "fresh\r\n").unwrap();
    cluster.passwords.send_replace(["fresh"; 3]);
    assert_eq!(sixteen(&client, "couchdb@a").await, vec![Ok(Some(4096)); 16]);
    let log = drain(&mut seen);
    assert_eq!((with(&log, "right"), with(&log, "fresh")), (0, 1), "{log:?}");
}

/// A pipe like that of the shell's `<(…)`: the password can be read once.
#[tokio::test(start_paused = true)]
async fn password_from_a_pipe_is_read_once() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let (cluster, mut seen) = Cluster::new(|_| None);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut settings = settings(&[A, B]);
    settings.login = Login::file("adm", &path).unwrap();
    let client = connect(&cluster, settings);
    let writer = std::thread::spawn(move || std::fs::write(path, "right\n"));
    assert_eq!(sixteen(&client, "couchdb@a").await, vec![Ok(Some(4096)); 16]);
    writer.join().unwrap().unwrap();
    // The password is no longer accepted, and later accepted again: the client does not wait for
    // the pipe.
    cluster.passwords.send_replace(["fresh"; 3]);
    sixteen(&client, "couchdb@a").await;
    drain(&mut seen);
    cluster.passwords.send_replace(["right"; 3]);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(sixteen(&client, "couchdb@b").await, vec![Ok(Some(4096)); 16]);
}

#[tokio::test(start_paused = true)]
async fn endless_password_file_is_refused() {
    let (cluster, _seen) = Cluster::new(|_| None);
    let mut settings = settings(&[A]);
    settings.login = Login::file("adm", "/dev/zero").unwrap();
    let client = connect(&cluster, settings);
    let why = client.shard_info("couchdb@a", "shard", Cache::Warm).await.unwrap_err().to_string();
    assert!(why.contains("/dev/zero cannot be used: it is larger than 64 KiB"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_closed_gate_opens_when_the_file_has_the_new_password() {
    let (cluster, mut seen) = Cluster::new(|_| None);
    let (file, login) = password_file("stale");
    let mut settings = settings(&[A]);
    settings.login = login;
    let client = connect(&cluster, settings);
    assert_eq!(sixteen(&client, "couchdb@a").await, vec![Err(ErrorKind::Login); 16]);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(with(&drain(&mut seen), "stale"), 1);
    std::fs::write(file.path(), "right").unwrap();
    sleep(Duration::from_secs(6)).await;
    assert_eq!(sixteen(&client, "couchdb@a").await, vec![Ok(Some(4096)); 16]);
}

#[tokio::test(start_paused = true)]
async fn failing_new_password_does_not_replace_the_old() {
    let (cluster, mut seen) = Cluster::new(|_| None);
    let (file, login) = password_file("right");
    let mut settings = settings(&[A]);
    settings.login = login;
    let client = connect(&cluster, settings);
    client.session().await.unwrap();
    std::fs::write(file.path(), "early").unwrap();
    sleep(Duration::from_secs(120)).await;
    assert_eq!(with(&drain(&mut seen), "early"), 1);
    client.session().await.unwrap();
    cluster.passwords.send_replace(["early"; 3]);
    assert!(client.session().await.is_ok(), "the file is read again when the old password fails");
}

#[tokio::test(start_paused = true)]
async fn error_names_the_missing_password_file() {
    let (cluster, mut seen) = Cluster::new(|_| None);
    let (file, login) = password_file("right");
    let mut settings = settings(&[A]);
    settings.login = login;
    let path = file.path().display().to_string();
    drop(file);
    let client = connect(&cluster, settings);
    let error = client.session().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Login);
    assert!(error.to_string().contains(&format!("the password file {path} cannot be used")));
    assert_eq!(drain(&mut seen), []);
}

#[tokio::test(start_paused = true)]
async fn client_without_a_login_sends_no_login_check() {
    let (cluster, mut seen) = Cluster::new(|seen| {
        Some(if seen.path == "/_up" { json(200, "{}") } else { json(401, BAD_LOGIN) })
    });
    let mut settings = settings(&[A]);
    settings.login = Login::None;
    let client = connect(&cluster, settings);
    let error = client.membership().await.unwrap_err();
    assert!(matches!(error, Error::NoUser { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Forbidden);
    let log = drain(&mut seen);
    assert_eq!((log.len(), log[0].path.as_str(), &log[0].password), (1, "/_membership", &None));
}

#[tokio::test(start_paused = true)]
async fn the_only_entry_that_refuses_the_login_is_skipped() {
    let (cluster, mut seen) = Cluster::new(|_| None);
    cluster.passwords.send_replace(["right", "other", "right"]);
    let client = connect(&cluster, settings(&[A, B, "http://c:5984"]));
    let reads = join_all((0..30).map(|_| client.membership()));
    timed(reads).await.0.into_iter().for_each(|read| drop(read.unwrap()));
    let log = drain(&mut seen);
    let at_b: Vec<_> = log.iter().filter(|seen| seen.host == "b").collect();
    assert_eq!((at_b.len(), at_b[0].login), (1, true));
}

#[tokio::test(start_paused = true)]
async fn cancelled_request_leaves_the_gate_open() {
    let (cluster, _seen) =
        Cluster::new(|seen| seen.path.ends_with("/given_up").then(|| json(401, NOT_ADMIN)));
    let client = connect(&cluster, settings(&[A]));
    client.session().await.unwrap();
    for limit in 5..25 {
        let read = client.shard_info("couchdb@a", "given_up", Cache::Warm);
        let _given_up = tokio::time::timeout(Duration::from_millis(limit), read).await;
        timed(client.session()).await.0.unwrap();
        sleep(Duration::from_secs(61)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn login_is_sent_once_though_requests_are_cancelled() {
    let (mut cluster, mut seen) = Cluster::new(|_| None);
    cluster.passwords.send_replace(["other"; 3]);
    cluster.delay = Duration::from_secs(2);
    let client = connect(&cluster, settings(&[A]));
    for _ in 0..20 {
        let given_up = tokio::time::timeout(Duration::from_millis(100), client.session()).await;
        assert!(!matches!(given_up, Ok(Ok(_))));
    }
    sleep(Duration::from_secs(60)).await;
    assert_eq!(paths(&mut seen), ["a POST /_session"]);
}

#[tokio::test(start_paused = true)]
async fn servers_that_refuse_a_password_at_the_same_time_get_it_once_each() {
    let (mut cluster, mut seen) = Cluster::new(|_| None);
    cluster.delay = Duration::from_millis(400);
    let client = connect(&cluster, settings(&[A, B]));
    for node in ["couchdb@a", "couchdb@b"] {
        assert_eq!(sixteen(&client, node).await, vec![Ok(Some(4096)); 16]);
    }
    sleep(Duration::from_secs(20)).await;
    drain(&mut seen);
    cluster.passwords.send_replace(["other"; 3]);
    let both = tokio::join!(sixteen(&client, "couchdb@a"), sixteen(&client, "couchdb@b"));
    assert_eq!(both, (vec![Err(ErrorKind::Login); 16], vec![Err(ErrorKind::Login); 16]));
    sleep(Duration::from_secs(60)).await;
    let log = drain(&mut seen);
    for host in ["a", "b"] {
        let there: Vec<_> = log.iter().filter(|seen| seen.host == host).cloned().collect();
        assert!(with(&there, "right") <= 1, "{host}: {there:?}");
    }
}
