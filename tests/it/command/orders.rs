//! Orders to a running recliner: what is sent and printed, and how the order ends; and a service
//! protected by users and certificates.

use super::{PASSWORD, PATIENCE, Ran, Site, recliner, service, world, written};
use axum::{
    Router,
    body::to_bytes,
    extract::Request,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use recliner::model::records::{LeftOut, LeftOutMember};
use recliner::serve::report::{
    AdviceMute, RefusalLine, RunLine, RunList,
    orders::{Compacting, Flushed, Muted, Released, Rescanning, Resumed, Suspended, Waits},
};
use serde_json::{Value, json};
use std::path::Path;
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet, time};

/// A request that a fake recliner received.
#[derive(Debug, PartialEq)]
struct Asked {
    path: String,
    kind: Option<String>,
    login: Option<String>,
    body: Value,
}

/// A fake recliner that gives the same response to everything.
struct Fake {
    url: String,
    asked: mpsc::Receiver<Asked>,
    _server: JoinSet<std::io::Result<()>>,
}

impl Fake {
    async fn answering(status: StatusCode, body: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
        let (sender, asked) = mpsc::channel(8);
        let body = body.to_owned();
        let answer = move |request: Request| {
            let (sender, body) = (sender.clone(), body.clone());
            async move { remember(request, &sender).await.map(|()| (status, body)).into_response() }
        };
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
        Self { url, asked, _server: server }
    }

    async fn of(data: Value) -> Self {
        let body = json!({ "status": "success", "data": data }).to_string();
        Self::answering(StatusCode::OK, &body).await
    }
}

async fn remember(request: Request, sender: &mpsc::Sender<Asked>) -> Result<(), Response> {
    let (parts, body) = request.into_parts();
    let header = |name: &str| {
        parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let (kind, login) = (header("content-type"), header("authorization"));
    let path = format!("{} {}", parts.method, parts.uri);
    let bytes = to_bytes(body, 1 << 20).await;
    let bytes = bytes.map_err(|_| StatusCode::BAD_REQUEST.into_response())?;
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let asked = Asked { path, kind, login, body };
    sender.send(asked).await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

#[tokio::test]
async fn each_order_sends_an_api_request_and_prints_a_sentence() {
    const SHARD: &str = "db:node1@127.0.0.1/shards%2Fa.1";
    let since = "2026-11-21T00:54:00Z";
    let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect();
    let requests = || vec!["POST /_node/a/b/_compact".to_owned()];
    let refusal = RefusalLine {
        reason: "node_limit".into(),
        class: "in_line".into(),
        value: None,
        limit: None,
        since: None,
    };
    for (words, data, body, says) in [
        (
            &["suspend"][..],
            json!(Suspended {
                since: since.to_owned(),
                by: None,
                why: None,
                already: false,
                running: Some(2),
            }),
            json!({ "scope": "all", "why": null }),
            "Everything is suspended since 2026-11-21T00:54:00Z: recliner starts nothing new.\n2 compactions are still running: CouchDB offers no way to stop a running compaction.\n",
        ),
        (
            &["suspend", "node:node1@127.0.0.1", "--why", "disks are moved"],
            json!(Suspended {
                since: since.to_owned(),
                by: Some("unix socket, uid 7".to_owned()),
                why: Some("disks are moved".to_owned()),
                already: true,
                running: None,
            }),
            json!({ "scope": "node:node1@127.0.0.1", "why": "disks are moved" }),
            "Node node1@127.0.0.1 was already suspended, since 2026-11-21T00:54:00Z by unix socket, uid 7 (disks are moved).\nRunning jobs continue: CouchDB offers no way to stop a running compaction.\n",
        ),
        (
            &["resume"],
            json!(Resumed { lifted: words(&["all", "channel:big"]), remaining: Vec::new() }),
            json!({ "scope": "all" }),
            "Resumed: all, channel:big.\n",
        ),
        (
            &["resume", "channel:big"],
            json!(Resumed { lifted: Vec::new(), remaining: words(&["all"]) }),
            json!({ "scope": "channel:big" }),
            "Channel big is not suspended.\nStill suspended: all.\n",
        ),
        (
            &["compact", SHARD, "--force"],
            json!(Compacting { requests: requests(), waits: None, until: since.to_owned() }),
            json!({ "target": SHARD, "force": true }),
            "Ordered: db:node1@127.0.0.1/shards%2Fa.1 starts now.\n  POST /_node/a/b/_compact\n",
        ),
        (
            &["compact", SHARD],
            json!(Compacting {
                requests: requests(),
                waits: Some(Waits { refusal, why: "it is full".to_owned() }),
                until: since.to_owned(),
            }),
            json!({ "target": SHARD, "force": false }),
            "Ordered: db:node1@127.0.0.1/shards%2Fa.1 waits ahead of all others, until 2026-11-21T00:54:00Z at most: it is full.\n  POST /_node/a/b/_compact\n",
        ),
        (
            &["release", "--all"],
            json!(Released { targets: Vec::new() }),
            json!({ "target": null, "all": true }),
            "Nothing was quarantined.\n",
        ),
        (
            &["release", SHARD],
            json!(Released { targets: words(&[SHARD]) }),
            json!({ "target": SHARD, "all": false }),
            "Released:\n  db:node1@127.0.0.1/shards%2Fa.1\n",
        ),
        (&["rescan"], json!(Rescanning { begins: true }), json!({}), "A sweep starts now.\n"),
        (
            &["flush", "--channel", "big"],
            json!(Flushed { targets: 7 }),
            json!({ "node": null, "channel": "big" }),
            "Removed 7 targets from their queues.\n",
        ),
    ] {
        let mut fake = Fake::of(data.clone()).await;
        let all = [words, &["--recliner.url", &fake.url]].concat();
        let login = [("RECLINER_USER", "ann"), ("RECLINER_PASSWORD", PASSWORD)];
        let ran = recliner(&all, &login).await;
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, says, ""), "{words:?}");
        let asked = fake.asked.recv().await.unwrap();
        assert_eq!(asked.path, format!("POST /api/v1/{}", words[0]));
        assert_eq!(asked.kind.as_deref(), Some("application/json"));
        assert!(asked.login.is_some_and(|login| login.starts_with("Basic ")));
        assert_eq!(asked.body, body, "{words:?}");
        let ran = recliner(&[&all[..], &["--format", "json"]].concat(), &[]).await;
        assert_eq!((ran.code, ran.json()), (0, data));
        assert_eq!(fake.asked.recv().await.unwrap().login, None);
    }
}

#[tokio::test]
async fn refused_order_is_explained_in_a_sentence() {
    let error = |kind: &str, data: Value| {
        json!({ "status": "error", "errorType": kind, "error": "no: \u{1b}x", "data": data })
            .to_string()
    };
    for (status, body, code, says) in [
        (403, error("forbidden", Value::Null), 1, "recliner: no: \\u{1b}x\n"),
        (400, error("bad_data", Value::Null), 64, "recliner: no: \\u{1b}x\n"),
        (
            409,
            error("conflict", json!({ "candidates": ["db:a/b", "db:a/c"] })),
            1,
            "recliner: no: \\u{1b}x\n  db:a/b\n  db:a/c\n",
        ),
        (401, "go away".to_owned(), 1, "it requires a user; give --recliner.username"),
        (200, "<html>".to_owned(), 1, "is not a recliner's; check the address"),
        (
            500,
            "{}".to_owned(),
            1,
            "its answer to /api/v1/compact (status 500 Internal Server Error) is not a recliner's",
        ),
        (
            302,
            String::new(),
            1,
            "its answer to /api/v1/compact (status 302 Found) is not a recliner's",
        ),
    ] {
        let fake = Fake::answering(StatusCode::from_u16(status).unwrap(), &body).await;
        let words = ["compact", "db:a/orders", "--recliner.url", &fake.url];
        let ran = recliner(&words, &[]).await;
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{ran:?}");
        assert!(ran.err.contains(says), "{status}: {}", ran.err);
    }
    let none = "http://127.0.0.1:1";
    recliner(&["rescan", "--recliner.url", none], &[]).await.refuses(1, &[none, "refused"]);
    let dir = tempfile::tempdir().unwrap();
    let empty = written(dir.path(), "empty", "");
    for (words, says) in [
        (
            &["rescan", "--recliner.url", "http://ann:s3kr3t-pa55@a"][..],
            "without user and password",
        ),
        (&["rescan", "--recliner.url", "a"], "--recliner.url"),
        (&["history", "--recliner.username", "ann"], "--recliner.password-file"),
        (&["history", "--recliner.password-file", &empty], "cannot be read: it is empty"),
        (&["history", "--recliner.ca-file", &empty], "it contains no PEM certificate"),
        (
            &["history", "--recliner.ca-file", "/nowhere"],
            "--recliner.ca-file=/nowhere cannot be read",
        ),
    ] {
        recliner(words, &[]).await.refuses(64, &[says]);
    }
    for words in [
        &["compact"][..],
        &["compact", "orders", "--all"],
        &["compact", "orders", "--node", "a@b"],
        &["compact", "--all", "--force"],
        &["runs", "--pause", "1", "--cancel", "1"],
        &["release"],
        &["release", "a", "--all"],
        &["suspend", "a:b"],
    ] {
        assert_eq!(recliner(words, &[]).await.code, 64, "{words:?}");
    }
    let help = recliner(&["suspend", "--help"], &[]).await;
    let help_words: Vec<&str> = help.out.split_whitespace().collect();
    assert!(
        help_words
            .join(" ")
            .contains("CouchDB offers no way to stop a running compaction over HTTP")
    );
}

/// Files with a certificate authority, a certificate for localhost and one for a client.
fn certificates(dir: &Path) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
    written(dir, "ca.pem", &issuer.pem());
    for (name, file) in [("localhost", "own"), ("prometheus", "client")] {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let signed = params.signed_by(&key, &issuer).expect("a certificate");
        written(dir, &format!("{file}.pem"), &signed.pem());
        written(dir, &format!("{file}.key"), &key.serialize_pem());
    }
}

#[tokio::test]
async fn users_and_certificates_protect_a_service() {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    let hash = bcrypt::hash_with_salt(PASSWORD, 4, [7; 16]).unwrap();
    let hash = hash.format_for_version(bcrypt::Version::TwoY);
    let web = written(
        dir.path(),
        "web.yml",
        &format!(
            "tls_server_config: {{cert_file: own.pem, key_file: own.key, client_ca_file: ca.pem,\n  client_auth_type: RequireAndVerifyClientCert}}\nbasic_auth_users: {{ann: {hash}}}\n"
        ),
    );
    let mut running =
        service::Running::start(&site, dir.path(), &["--web.config.file", &web]).await;
    let url = format!("https://localhost:{}", running.address.rsplit(':').next().unwrap());
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (ca, cert, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
    let password = written(dir.path(), "password", &format!("{PASSWORD}\n"));
    let certified = [
        "--recliner.url",
        &url,
        "--recliner.ca-file",
        &ca,
        "--recliner.cert-file",
        &cert,
        "--recliner.key-file",
        &key,
    ];
    let ask = async |words: &[&str], more: &[&str]| -> Ran {
        recliner(&[words, more].concat(), &[]).await
    };
    let user = ["--recliner.username", "ann", "--recliner.password-file", &password];

    // Access needs the authority, the client certificate and the password.
    let ready = async {
        loop {
            let ran = ask(&["explain", "torn"], &[&certified[..], &user].concat()).await;
            if ran.code == 0 {
                break;
            }
            assert!(ran.err.contains("no database, view or shard matches"), "{ran:?}");
        }
    };
    time::timeout(PATIENCE, ready).await.expect("it looks at the cluster");
    let plain = ["--recliner.url", &format!("http://{}", running.address)];
    for (with, says) in [
        (&certified[..], "it requires a user"),
        (&[&certified[..4], &user].concat(), "CertificateRequired"),
        (&[&certified[..2], &certified[4..], &user].concat(), "invalid peer certificate"),
        (&[&plain[..], &user].concat(), "cannot ask recliner"),
    ] {
        let ran = ask(&["explain", "torn"], with).await;
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
        assert!(ran.err.contains(says), "{says}: {ran:?}");
    }
    let wrong = written(dir.path(), "wrong", "other\n");
    let other = ["--recliner.username", "ann", "--recliner.password-file", &wrong];
    ask(&["explain", "torn"], &[&certified[..], &other].concat())
        .await
        .refuses(1, &["it refused the user or the password"]);

    // A user who may read may still not give orders.
    ask(&["resume"], &[&certified[..], &user].concat())
        .await
        .refuses(1, &["--web.enable-admin-api"]);

    let log = running.stop().await;
    assert!(!log.contains(PASSWORD) && !log.contains(&hash), "{log}");
}

#[tokio::test]
async fn bad_users_file_is_refused_with_its_location() {
    let dir = tempfile::tempdir().unwrap();
    let url = ["--couchdb.url", "http://127.0.0.1:1"];
    let web = written(dir.path(), "web.yml", &format!("basic_auth_users:\n  ann: {PASSWORD}\n"));
    for command in ["check-config", "serve"] {
        let ran = recliner(&[command, url[0], url[1], "--web.config.file", &web], &[]).await;
        ran.refuses(64, &["web.yml:2:8", "ann", "bcrypt"]);
    }
    let file = written(dir.path(), "recliner.yml", "scna: 1\n");
    let words = ["check-config", "--config.file", &file, "--web.config.file", &web, url[0], url[1]];
    let ran = recliner(&words, &[]).await;
    assert_eq!(ran.code, 64, "{ran:?}");
    assert!(
        ran.err.contains("scna") && ran.err.contains("ann"),
        "problems of both files are reported: {ran:?}"
    );

    let open = written(dir.path(), "open.yml", "http_server_config: {http2: false}\n");
    for command in ["check-config", "serve"] {
        let words = [
            &[command, url[0], url[1], "--mode=enforce", "--web.enable-admin-api"][..],
            &["--web.listen-address", "0.0.0.0:0", "--web.config.file", &open],
        ];
        let ran = recliner(&words.concat(), &[]).await;
        assert_eq!((ran.code, ran.out.as_str()), (64, ""), "{ran:?}");
        let expected = "anyone who can reach 0.0.0.0:0 could start compactions";
        assert!(ran.err.contains(expected), "{}", ran.err);
    }
}

#[tokio::test]
async fn order_that_can_never_start_is_refused_at_once() {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("recliner.yml");
    std::fs::write(&config, "mode: enforce\n").unwrap();
    let flags = ["--web.enable-admin-api", "--config.file", config.to_str().unwrap()];
    let mut running = service::Running::start(&site, dir.path(), &flags).await;
    let target = "orders/2024+x/_design/by_day";
    let address = format!("http://{}", running.address);
    service::wait_until_ready(&service::http_client(), &address).await;
    let url = ["--recliner.url", &*address];
    let ran = recliner(&[&["compact", target, "--force"], &url[..]].concat(), &[]).await;
    ran.refuses(1, &["does not start (excluded)"]);
    let plan = recliner(&[&["plan", "--format", "json"], &url[..]].concat(), &[]).await;
    let plan: Value = serde_json::from_str(&plan.out).unwrap();
    assert_eq!(plan["orders"], json!([]), "no order is left to wait");
    running.stop().await;
}

/// A run of which five members are done.
fn run_line(state: &str) -> RunLine {
    RunLine {
        run: 7,
        db: Some("orders".to_owned()),
        node: None,
        force: false,
        by: "ann".to_owned(),
        since: "2026-11-21T00:54:00Z".to_owned(),
        state: state.to_owned().into(),
        changed_by: None,
        ended_at: (state == "cancelled").then(|| "2026-11-21T01:54:00Z".to_owned()),
        members: 24,
        done: 5,
        running: 1,
        results: [("freed".to_owned(), 5)].into(),
        freed_bytes: 41 << 30,
        reclaimable_bytes: 100 << 30,
        seconds_left: Some(10_800.0),
        waits: None,
        left_out: vec![LeftOut {
            reason: "futile".into(),
            members: 1,
            examples: vec![LeftOutMember {
                id: "db:a/b".to_owned(),
                name: "b on a".to_owned(),
                why: Some("it would free 1%".to_owned()),
            }],
        }],
        says: "5 of 24, 41 GiB freed, about 3 hours left".to_owned(),
    }
}

#[tokio::test]
async fn run_is_begun_changed_and_listed() {
    let left = "Left out: 1 (futile): a compaction would free too little of the file; this ends when the file has enough new waste\n  b on a: it would free 1%\n";
    let new = RunLine { done: 0, ..run_line("running") };
    let body = |db: Option<&str>, node: Option<&str>, all: bool, force: bool| json!({ "db": db, "node": node, "all": all, "force": force });
    let begun = "Run 7 over database orders compacts 24 targets, which frees about 100 GiB.\n";
    let change = |to: &str| json!({ "run": 7, "to": to });
    for (words, answer, path, body, says) in [
        (&["compact", "orders"][..], &new, "runs", body(Some("orders"), None, false, false), begun),
        (&["compact", "a/b", "--force"], &new, "runs", body(Some("a/b"), None, false, true), begun),
        (&["compact", "--node", "n@a"], &new, "runs", body(None, Some("n@a"), false, false), begun),
        (&["compact", "--all"], &new, "runs", body(None, None, true, false), begun),
        (
            &["runs", "--pause", "7"],
            &run_line("paused"),
            "runs/change",
            change("paused"),
            "Run 7 over database orders is paused (5 of 24, 41 GiB freed, about 3 hours left): its targets no longer go first. Running compactions continue; recliner suspend stops all starts.\n",
        ),
        (
            &["runs", "--resume", "7"],
            &run_line("running"),
            "runs/change",
            change("running"),
            "Run 7 over database orders continues: 5 of 24, 41 GiB freed, about 3 hours left.\n",
        ),
        (
            &["runs", "--cancel", "7"],
            &run_line("cancelled"),
            "runs/change",
            change("cancelled"),
            "Run 7 over database orders has ended: 5 of 24, 41 GiB freed, about 3 hours left. Running compactions continue.\n",
        ),
    ] {
        let mut fake = Fake::of(json!(answer)).await;
        let ran = recliner(&[words, &["--recliner.url", &fake.url]].concat(), &[]).await;
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{words:?}");
        assert_eq!(ran.out, [says, left].concat(), "{words:?}");
        let asked = fake.asked.recv().await.unwrap();
        assert_eq!((asked.path, asked.body), (format!("POST /api/v1/{path}"), body), "{words:?}");
    }
    let runs = RunList { runs: vec![run_line("running"), run_line("cancelled")] };
    let fake = Fake::of(json!(runs)).await;
    let ran = recliner(&["runs", "--recliner.url", &fake.url], &[]).await;
    let says = "5 of 24, 41 GiB freed, about 3 hours left";
    assert!(
        ran.out.contains("database orders") && ran.out.matches(says).count() == 2,
        "{}",
        ran.out
    );
    assert!(ran.out.ends_with("Run 7:   b on a: it would free 1%\n"), "{}", ran.out);
    let none = Fake::of(json!(RunList { runs: Vec::new() })).await;
    let ran = recliner(&["runs", "--recliner.url", &none.url], &[]).await;
    assert_eq!(ran.out, "No runs. Start one with recliner compact DATABASE.\n");
}

/// A run that can never start anything is refused at once, with the reason; in advise mode, with the requests to send.
#[tokio::test]
async fn run_that_cannot_start_anything_is_refused_at_once() {
    let too_small =
        "channels: [{name: dbs, kind: db, priority: ratio, min_priority: 1000, min_size: 0}]\n";
    let excluded = "channels: [{name: views, kind: view, priority: ratio, min_priority: 1.01, min_size: 0}]\nviews: {enforce: none}\n";
    for (mode, more, words, says, out) in [
        (
            "enforce",
            "ignore: [orders/*]\n",
            &["compact", "orders/2024+x"][..],
            "no channel takes anything in database orders/2024+x (ignore names it)\n",
            "",
        ),
        (
            "enforce",
            too_small,
            &["compact", "orders/2024+x"],
            "no channel takes anything in database orders/2024+x (the file has too little waste for every channel); --force compacts it anyway",
            "",
        ),
        (
            "enforce",
            excluded,
            &["compact", "orders/2024+x"],
            "(excluded): it can never start: views.enforce, the limits or its name exclude it",
            "",
        ),
        (
            "enforce",
            excluded,
            &["compact", "--node", "node1@127.0.0.1"],
            "no channel takes anything in node node1@127.0.0.1",
            "",
        ),
        (
            "advise",
            "",
            &["compact", "orders/2024+x"],
            "recliner runs in advise mode and sends nothing; set mode: enforce",
            "/_compact\n",
        ),
        (
            "advise",
            "",
            &["compact", "--all"],
            "recliner runs in advise mode and sends nothing",
            "/_compact\n",
        ),
        ("enforce", "", &["compact", "ordrs"], "no database is called \"ordrs\"", ""),
        (
            "enforce",
            "",
            &["runs", "--cancel", "9"],
            "no open run has the number 9; recliner runs lists the open ones",
            "",
        ),
    ] {
        let site = Site::open(world()).await;
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("recliner.yml");
        std::fs::write(&config, format!("mode: {mode}\n{more}")).unwrap();
        let flags = ["--web.enable-admin-api", "--config.file", config.to_str().unwrap()];
        let mut running = service::Running::start(&site, dir.path(), &flags).await;
        let address = format!("http://{}", running.address);
        service::wait_until_ready(&service::http_client(), &address).await;
        let ran = recliner(&[words, &["--recliner.url", &address]].concat(), &[]).await;
        assert_eq!(ran.code, 1, "{words:?}: {ran:?}");
        assert!(ran.err.contains(says), "{words:?}: {}", ran.err);
        assert!(
            ran.out.ends_with(out) && ran.out.is_empty() == out.is_empty(),
            "{words:?}: {}",
            ran.out
        );
        let runs = recliner(&["runs", "--recliner.url", &address], &[]).await;
        assert!(runs.out.starts_with("No runs."), "no run is left: {}", runs.out);
        running.stop().await;
    }
}

#[tokio::test]
async fn advice_is_muted_and_unmuted_by_code_and_subject() {
    let mute = AdviceMute {
        since: "2026-11-21T00:54:00Z".to_owned(),
        until: "2027-02-19T00:54:00Z".to_owned(),
        by: None,
        why: Some("kept".to_owned()),
    };
    let muted = json!(Muted { muted: Some(mute) });
    for (words, data, path, body, says) in [
        (
            &["--mute", "orphan_shards", "old", "--for", "90d", "--why", "kept"][..],
            muted,
            "mute",
            json!({ "code": "orphan_shards", "subject": "old", "for": "90d", "why": "kept" }),
            "Muted orphan_shards about old until 2027-02-19T00:54:00Z.\n",
        ),
        (
            &["--unmute", "orphan_shards"],
            json!(Muted { muted: None }),
            "unmute",
            json!({ "code": "orphan_shards", "subject": null }),
            "Unmuted orphan_shards.\n",
        ),
    ] {
        let mut fake = Fake::of(data).await;
        let all = [&["advise"], words, &["--recliner.url", &fake.url]].concat();
        let ran = recliner(&all, &[]).await;
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, says, ""), "{words:?}");
        let asked = fake.asked.recv().await.unwrap();
        assert_eq!(asked.path, format!("POST /api/v1/advice/{path}"));
        assert_eq!(asked.body, body);
    }
}

#[tokio::test]
async fn older_service_is_reported_with_its_missing_route() {
    let dir = tempfile::tempdir().unwrap();
    let design = dir.path().join("by_day.json").display().to_string();
    std::fs::write(&design, r#"{"views":{"by_day":{"map":"function(doc) {}"}}}"#).unwrap();
    for (words, route) in [
        (&["advise"][..], "advice"),
        (&["advise", "--by", "database"], "usage"),
        (&["advise", "--mute", "orphan_shards", "--for", "1d"], "advice/mute"),
        (&["what-if"], "what-if"),
        (&["what-if", "--since", "1d"], "scorecard"),
        (&["preflight", "orders", &design], "preflight"),
        (&["compact", "orders"], "runs"),
        (&["runs"], "runs"),
    ] {
        let error = format!("it has no /api/v1/{route}; there are /api/v1/status and plan");
        let body = json!({ "status": "error", "errorType": "not_found", "error": error });
        let fake = Fake::answering(StatusCode::NOT_FOUND, &body.to_string()).await;
        let ran = recliner(&[words, &["--recliner.url", &fake.url]].concat(), &[]).await;
        let expected = format!(
            "the recliner at {} is older than this command and has no /api/v1/{route}; upgrade it",
            fake.url
        );
        assert!(
            ran.code == 1 && ran.err.contains(&expected),
            "{words:?}: {} {}",
            ran.code,
            ran.err
        );
    }
}
