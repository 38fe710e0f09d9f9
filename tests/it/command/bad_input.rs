//! Bad input is answered with one clear sentence that names the input and its location.

use super::{PASSWORD, Site, recliner, world, written};
use axum::{
    Router,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use tokio::{net::TcpListener, task::JoinSet};

#[tokio::test]
async fn bad_configuration_is_refused_with_its_location() {
    let dir = tempfile::tempdir().unwrap();
    for (text, says) in [
        ("scna: {interval: 5m}", ["scna", "1:1", "scan"]),
        ("scan: {interval: 5 parsecs}", ["parsecs", "1:18", "scan.interval"]),
        (
            "channels:\n  - {name: a, kind: db, priority: ratio, min_size: 20 GoB}",
            ["GoB", "2:", "min_size"],
        ),
        (
            "channels:\n  - {name: a, kind: db, priority: ratio, windows: [{from: '20:00', to: '06:00', zone: Mars/Base}]}",
            ["Mars/Base", "2:", "zone"],
        ),
        (
            "channels:\n  - {name: a, kind: db, priority: ratio, windows: [{from: '25:00', to: '06:00'}]}",
            ["25:00", "2:", "from"],
        ),
        ("channels:\n  - {name: 'a b\"', kind: db, priority: ratio}", ["a b", "2:", "name"]),
        (
            "couchdb: {urls: ['http://adm:s3kr3t-pa55@couch-a:5984']}",
            ["user or a password", "1:", "couchdb.urls"],
        ),
        ("couchdb: {urls: [couch-a]}", ["couch-a", "1:", "couchdb.urls"]),
        ("mode: destroy", ["destroy", "1:7", "mode"]),
        ("a: [", ["1:", "recliner.yml", "recliner.yml"]),
    ] {
        let file = written(dir.path(), "recliner.yml", text);
        for command in ["check-config", "scan", "serve"] {
            let words = [command, "--couchdb.url", "http://127.0.0.1:1", "--config.file", &file];
            let ran = recliner(&words, &[]).await;
            ran.refuses(64, &says);
            assert!(ran.err.contains("recliner.yml"), "{}", ran.err);
        }
    }
    let both = written(dir.path(), "recliner.yml", "scna: 1\nmode: destroy\n");
    let ran = recliner(&["check-config", "--config.file", &both], &[]).await;
    assert_eq!((ran.code, ran.err.lines().count() >= 2), (64, true), "all at once: {ran:?}");
    let none = dir.path().join("none.yml");
    for path in [none.to_str().unwrap(), dir.path().to_str().unwrap()] {
        let ran = recliner(&["scan", "--config.file", path], &[]).await;
        ran.refuses(64, &[path, "--config.file"]);
    }
}

#[tokio::test]
async fn bad_flags_are_refused_by_name() {
    for (words, says) in [
        (&["scan", "--couchdb.utl", "http://a:1"][..], ["--couchdb.utl", "--couchdb.url"]),
        (&["scam"], ["scam", "scan"]),
        (&["suspend", "all", "--why", " "], ["--why", "the reason is empty"]),
        (&["what-if", "--since", "7d", "--channels", "rent"], ["--since", "--channels"]),
        (&["what-if", "--since", "7d", "--config.file", "a.yml"], ["--since", "--config.file"]),
        (&["what-if", "--since", "7d", "--days", "3"], ["--since", "--days"]),
        (&["advise", "--fail-on", "severe"], ["--fail-on", "critical"]),
        (&["advise", "--for", "30d"], ["--mute", "--for"]),
        (&["advise", "--mute", "a", "--unmute", "a"], ["--mute", "--unmute"]),
        (&["scan", "--format", "xml", "--couchdb.url", "http://a:1"], ["xml", "json"]),
        (&["serve", "--web.listen-address", "nowhere"], ["nowhere", "--web.listen-address"]),
        (&["explain"], ["<TARGET>", "explain"]),
        (&["import", "cron"], ["cron", "smoosh"]),
    ] {
        let ran = recliner(words, &[]).await;
        assert_eq!((ran.code, ran.out.as_str()), (64, ""), "{ran:?}");
        assert!(says.iter().all(|part| ran.err.contains(part)), "{says:?}: {}", ran.err);
    }
    for (words, says) in [
        (&["scan"][..], &["--couchdb.url"][..]),
        (&["scan", "--couchdb.url", "couch-a:5984"], &["couch-a:5984", "http://"]),
        (&["scan", "--couchdb.url", "http://adm:s3kr3t-pa55@h:1"], &["h", "user or a password"]),
        (&["scan", "--couchdb.url", "ftp://a/"], &["ftp://a/", "http://"]),
        (&["serve", "--couchdb.url", "http://a:1", "--mode", "destroy"], &["destroy", "--mode"]),
        (
            &["serve", "--couchdb.url", "http://a:1", "--log.level", "loud"],
            &["loud", "--log.level"],
        ),
        (
            &[
                "scan",
                "--couchdb.url",
                "http://a:1",
                "--couchdb.password-file",
                "/none",
                "--couchdb.username",
                "a:b",
            ],
            &["a:b", "couchdb.username"],
        ),
    ] {
        recliner(words, &[]).await.refuses(64, says);
    }
    for words in [&["--version"][..], &["--help"], &["scan", "--help"]] {
        let ran = recliner(words, &[]).await;
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    }
}

#[tokio::test]
async fn unreachable_cluster_is_named() {
    let site = Site::open(world()).await;
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let refused = format!("http://{free}");
    for command in [&["scan"][..], &["explain", "x"], &["import", "smoosh"]] {
        let mut words = command.to_vec();
        words.extend(["--couchdb.url", &refused]);
        let login = [("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", PASSWORD)];
        recliner(&words, &login).await.refuses(1, &[&refused, "is CouchDB running there"]);
    }
    for command in [&["scan"][..], &["explain", "x"], &["import", "smoosh"]] {
        site.cluster.clear_exchanges();
        let wrong = [("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", "no")];
        site.run_with(command, &wrong).await.refuses(1, &[&site.urls[0], "adm", "password"]);
        assert_eq!(site.cluster.exchanges().len(), 1, "{command:?}");
    }
    let none = [("COUCHDB_USER", "adm")];
    let words = ["scan", "--couchdb.password-file", "/none/at/all"];
    site.run_with(&words, &none).await.refuses(1, &["/none/at/all"]);
}

#[tokio::test]
async fn bad_certificate_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let rubbish = written(dir.path(), "rubbish.pem", "not a certificate\n");
    let missing = dir.path().join("missing.pem");
    for (path, key) in [(rubbish.as_str(), "ca_file"), (missing.to_str().unwrap(), "ca_file")] {
        let text = format!("couchdb: {{urls: ['https://127.0.0.1:1'], tls: {{{key}: {path}}}}}\n");
        let file = written(dir.path(), "recliner.yml", &text);
        for command in ["scan", "serve"] {
            let ran = recliner(&[command, "--config.file", &file], &[]).await;
            ran.refuses(64, &[path, "couchdb.tls.ca_file"]);
        }
    }
    // A server without TLS.
    let site = Site::open(world()).await;
    let url = site.urls[0].replace("http:", "https:");
    let ran = recliner(&["scan", "--couchdb.url", &url], &[]).await;
    ran.refuses(1, &[&url]);
}

#[tokio::test]
async fn port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for command in [&["serve", "--couchdb.url", "http://127.0.0.1:1"][..], &["demo"]] {
        let mut words = command.to_vec();
        words.extend(["--web.listen-address", &address]);
        recliner(&words, &[]).await.refuses(1, &[&address, "--web.listen-address"]);
    }
}

#[tokio::test]
async fn unknown_target_is_named() {
    let site = Site::open(world()).await;
    for name in ["nothing/here", "db:node9@127.0.0.1/x", "view:_cluster/x/y", ""] {
        let ran = site.run(&["explain", name]).await;
        ran.refuses(1, &[&format!("{name:?}")]);
    }
}

#[tokio::test]
async fn usage_errors_never_repeat_a_url_password() {
    let url = format!("http://adm:{PASSWORD}@127.0.0.1:5984");
    let bare = format!("adm:{PASSWORD}@127.0.0.1:5984");
    let token = format!("http://127.0.0.1:5984/?token={PASSWORD}");
    let flag = |name: &str, url: &str| format!("{name}={url}");
    for url in [&url, &bare, &token] {
        let refused: [&[&str]; 7] = [
            &["scan", url],
            &["scan", "--couchdb.url", url],
            &["scan", "--couchdb.uri", url],
            &["scan", &flag("--couchdb.uri", url)],
            &["serve", "--log.level", url],
            &["plan", "--recliner.url", url],
            &["history", "--recliner.url", url],
        ];
        for words in refused {
            // `recliner` itself asserts that no output contains the password.
            let ran = recliner(words, &[]).await;
            assert_eq!((ran.code, ran.out.as_str()), (64, ""), "{words:?}: {ran:?}");
        }
    }
}

#[tokio::test]
async fn missing_user_is_reported_in_one_sentence() {
    let site = Site::open(world()).await;
    let expected = "recliner: no user was given: set COUCHDB_USER and COUCHDB_PASSWORD, or --couchdb.username and --couchdb.password-file\n";
    for words in [&["scan"][..], &["plan"], &["explain", "torn"], &["import", "smoosh"]] {
        let ran = site.run_with(words, &[]).await;
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (1, "", expected), "{words:?}");
    }
}

#[tokio::test]
async fn server_that_is_not_couchdb_is_reported() {
    let html = || ([("content-type", "text/html")], "<h1>It works</h1>").into_response();
    let other = || axum::Json(serde_json::json!({"status": "ok"})).into_response();
    let missing = || (StatusCode::NOT_FOUND, "").into_response();
    let login = [("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", PASSWORD)];
    for (answer, found) in [
        (html as fn() -> Response, "its answer to GET / is not JSON; is it a login page?"),
        (other, "its answer to GET / does not contain couchdb"),
        (missing, "it answers GET / with HTTP 404"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut servers = JoinSet::new();
        let router = Router::new().fallback(async move || answer());
        servers.spawn(async move { axum::serve(listener, router).await });
        let expected = format!(
            "recliner: {url} answered, but it is not a CouchDB ({found}): check the URL (--couchdb.url)\n"
        );
        for env in [&login[..], &[]] {
            for command in ["scan", "plan"] {
                let ran = recliner(&[command, "--couchdb.url", &url], env).await;
                assert_eq!((ran.code, ran.err), (1, expected.clone()), "{command} {env:?}");
            }
        }
    }
}
