//! Backups of a running service's journal: made while it writes, verified, and used to start a
//! service.

use super::{
    PATIENCE, Ran, Site, bloated_world, data_of, enforcing, recliner_beside, recliner_in,
    service::Running, written,
};
use couchdb_sim::Database;
use recliner::{
    serve::report::{Events, Outcomes, Planned, Status},
    store::journal::check_copy,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt as _,
    process::Stdio,
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpListener,
    process::Command,
    task::JoinSet,
    time,
};

/// The data of a successful response.
async fn get<T: DeserializeOwned>(address: &str, path: &str) -> T {
    let _again = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build().expect("the HTTP client is valid");
    let answer =
        http.get(format!("http://{address}{path}")).send().await.expect("a response arrives");
    data_of(&answer.text().await.expect("the body is text"))
}

async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let waits = async {
        while !done().await {
            time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(time::timeout(PATIENCE, waits).await.is_ok(), "never {what}");
}

/// All events and outcomes up to a sequence number.
async fn journal(address: &str, last: u64) -> Value {
    let events: Events = get(address, "/api/v1/events?since=0&limit=10000").await;
    let history: Outcomes = get(address, "/api/v1/history?limit=10000").await;
    assert!(!events.more, "all are on one page");
    let events: Vec<_> = events.events.into_iter().filter(|it| it.seq <= last).collect();
    let outcomes: Vec<_> = history.outcomes.into_iter().filter(|it| it.seq <= last).collect();
    assert!(!outcomes.is_empty() && events.len() > outcomes.len());
    json!({ "events": events, "outcomes": outcomes })
}

#[tokio::test]
async fn backup_made_during_writes_can_be_started_from() {
    let site = Site::open(bloated_world(4)).await;
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = written(dir.path(), "recliner.yml", &enforcing());
    let mut running = Running::start(&site, dir.path(), &["--config.file", &file]).await;
    let address = running.address.clone();
    let own = async |words: &[&str]| -> Ran { recliner_beside(dir.path(), words).await };
    until("a compaction ends", async || {
        get::<Outcomes>(&address, "/api/v1/history").await.outcomes.len() >= 3
    })
    .await;
    let ran = own(&["suspend", "channel:ratio_dbs", "--why", "a move"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");

    // Databases are created all the time.
    let (cluster, mut writer) = (site.cluster.clone(), JoinSet::new());
    writer.spawn(async move {
        for at in 0.. {
            let database = Database { q: 1, docs: 0, ..Database::new(&format!("new{at}")) };
            cluster.world(|world| world.create(database)).expect("the database is new");
            time::sleep(Duration::from_millis(10)).await;
        }
    });
    let created = async || {
        let events: Events = get(&address, "/api/v1/events?types=created").await;
        events.events.last().map_or(0, |event| event.seq)
    };
    until("a created database", async || created().await > 0).await;
    let before = created().await;
    let first = own(&["backup", "copy.redb", "--format", "json"]).await;
    assert_eq!((first.code, first.err.as_str()), (0, ""), "{first:?}");
    let first = first.json();
    assert!(first["last_seq"].as_u64().unwrap() >= before, "{first}");
    assert_eq!(first["file"], "copy.redb");
    until("a later event", async || created().await > first["last_seq"].as_u64().unwrap()).await;

    // A file is replaced only on request, and then as a whole.
    own(&["backup", "copy.redb"]).await.refuses(64, &["copy.redb already exists", "--force"]);
    let copy = dir.path().join("copy.redb");
    assert_eq!(fs::metadata(&copy).unwrap().len(), first["bytes"].as_u64().unwrap());
    let ran = own(&["backup", "copy.redb", "--force"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert!(ran.out.starts_with("Wrote copy.redb ("), "{ran:?}");
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    let summary = {
        let file = File::options().read(true).write(true).open(&copy).unwrap();
        check_copy(&file, "copy.redb").unwrap()
    };
    let last = summary.last_seq;
    assert!(last > first["last_seq"].as_u64().unwrap());
    let numbers = [
        format!("): {} event", summary.events),
        format!(" and {} outcome", summary.outcomes),
        format!(", through sequence {last} at 20"),
    ];
    assert!(numbers.iter().all(|says| ran.out.contains(says)), "{ran:?}");
    let live = own(&["backup", "data/journal.redb", "--force"]).await;
    live.refuses(64, &["data/journal.redb is the journal of a running recliner"]);
    let url = format!("http://{address}");
    let refused = own(&["backup", "other.redb", "--recliner.url", &url]).await;
    refused.refuses(1, &["backups over TCP are disabled", "--web.enable-admin-api"]);
    let mut names: Vec<_> = fs::read_dir(dir.path().join("data"))
        .unwrap()
        .chain(fs::read_dir(dir.path()).unwrap())
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["admin.sock", "copy.redb", "data", "journal.redb", "recliner.yml"]);

    writer.shutdown().await;
    let expected = journal(&address, last).await;
    let suspended = get::<Status>(&address, "/api/v1/status").await.suspensions;
    assert_eq!(suspended.len(), 1);
    running.stop().await;

    fs::create_dir(other.path().join("data")).unwrap();
    fs::copy(&copy, other.path().join("data/journal.redb")).unwrap();
    let mut restored = Running::start(&site, other.path(), &[]).await;
    let address = restored.address.clone();
    until("the state is loaded", async || {
        !get::<Planned>(&address, "/api/v1/plan").await.suspensions.is_empty()
    })
    .await;
    assert_eq!(get::<Status>(&address, "/api/v1/status").await.suspensions, suspended);
    assert_eq!(journal(&address, last).await, expected);
    restored.stop().await;
}

#[tokio::test]
async fn in_memory_journal_can_be_backed_up_to_stdout() {
    crate::watchdog::start();
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_recliner"));
    demo.args(["demo", "--faults", "--web.listen-address", "127.0.0.1:0"]);
    let mut demo = demo
        .env_clear()
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the process starts");
    let mut lines = BufReader::new(demo.stderr.take().expect("the stream is piped")).lines();
    let url = async {
        loop {
            let line =
                lines.next_line().await.expect("the output is readable").expect("it goes on");
            if let Some(rest) = line.strip_prefix("Open ") {
                return rest.split("/ ").next().unwrap_or_default().to_owned();
            }
        }
    };
    let url = time::timeout(PATIENCE, url).await.expect("it serves in time");
    let ran = recliner_in(dir.path(), &["backup", "demo.redb", "--recliner.url", &url], &[]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_recliner"));
    command.args(["backup", "-", "--recliner.url", &url]).env_clear().kill_on_drop(true);
    let piped = time::timeout(PATIENCE, command.stdin(Stdio::null()).output());
    let piped = piped.await.expect("it ends in time").expect("it runs");
    assert!(piped.status.success(), "{piped:?}");
    let message = String::from_utf8(piped.stderr).unwrap();
    assert!(
        message.contains("\nWrote ") && message.ends_with("to standard output.\n"),
        "{message}"
    );
    fs::write(dir.path().join("piped.redb"), &piped.stdout).unwrap();
    for name in ["demo.redb", "piped.redb"] {
        let file = File::options().read(true).write(true).open(dir.path().join(name)).unwrap();
        check_copy(&file, name).unwrap();
    }
    demo.kill().await.expect("it is killed");
}

/// A server that answers every request with these bytes and closes the connection.
async fn answering(bytes: Vec<u8>) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
    let mut server = JoinSet::new();
    server.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _read = stream.read(&mut request).await;
            let _sent = stream.write_all(&bytes).await;
        }
    });
    (url, server)
}

#[tokio::test]
async fn failed_backup_leaves_the_old_file_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let own = async |words: &[&str]| -> Ran { recliner_beside(dir.path(), words).await };
    written(dir.path(), "old", "the last backup");
    let names = || {
        let names = fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name());
        names.collect::<Vec<_>>()
    };
    let unchanged = || {
        assert_eq!(fs::read_to_string(dir.path().join("old")).unwrap(), "the last backup");
        assert_eq!(names(), ["old"]);
    };
    let none = ["--storage.path", "data"];
    let elsewhere = tempfile::tempdir().unwrap();
    let socket = elsewhere.path().join("socket");
    let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let socket = socket.to_str().unwrap();
    for (words, code, says) in [
        (&["backup", "new"][..], 1, "there is no Unix socket data/admin.sock"),
        (&["backup", "old", "--force"], 1, "there is no Unix socket data/admin.sock"),
        (&["backup", "old"], 64, "old already exists: choose another name, or use --force"),
        (&["backup", "."], 64, ". is a directory: name a file in it"),
        (&["backup", socket, "--force"], 64, "socket is not a file: choose another name"),
        (&["backup", "no/such/file"], 1, "cannot write no/such/file.part: "),
        (&["backup", "no/such/file"], 1, "create its directory"),
    ] {
        own(&[words, &none].concat()).await.refuses(code, &[says]);
        unchanged();
    }
    for (bytes, says) in [
        // The body ends too early.
        ("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nredb", "cannot ask recliner at "),
        ("HTTP/1.1 200 OK\r\n\r\nredb", "its response has no length; is it a recliner?"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nredb", "the received copy is unusable"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "it is not a journal"),
        ("HTTP/1.1 404 No\r\ncontent-length: 2\r\n\r\n{}", "is not a recliner's"),
    ] {
        let (url, _server) = answering(bytes.into()).await;
        let ran = own(&["backup", "old", "--force", "--recliner.url", &url]).await;
        ran.refuses(1, &[says]);
        unchanged();
    }

    // A leftover of an interrupted command does not matter; a file that another process is writing does.
    let part = dir.path().join("new.part");
    fs::write(&part, [7; 10_000]).unwrap();
    let held = File::open(&part).unwrap();
    held.lock().unwrap();
    let ran = own(&[&["backup", "new"][..], &none].concat()).await;
    ran.refuses(1, &["another backup is writing to new.part"]);
    assert!(part.exists());
    drop(held);
    own(&[&["backup", "new"][..], &none].concat()).await.refuses(1, &["admin.sock"]);
    unchanged();

    // The target of another user's link is not changed.
    let target = elsewhere.path().join("target");
    fs::write(&target, "of another user").unwrap();
    std::os::unix::fs::symlink(&target, &part).unwrap();
    own(&[&["backup", "new"][..], &none].concat()).await.refuses(1, &["cannot write new.part"]);
    assert_eq!(fs::read_to_string(&target).unwrap(), "of another user");
    fs::remove_file(&part).unwrap();
    fs::hard_link(&target, &part).unwrap();
    own(&[&["backup", "new"][..], &none].concat()).await.refuses(1, &["admin.sock"]);
    assert_eq!(fs::read_to_string(&target).unwrap(), "of another user");
    unchanged();
}
