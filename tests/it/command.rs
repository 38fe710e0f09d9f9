//! The binary itself, against a simulated cluster behind sockets of its own.

use base64::Engine as _;
use recliner::{
    clock::Clock,
    sim::{Cluster, Config, Database, Design, Effect, Fault, Orphan, Role, User},
};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::TcpListener,
    process::Command,
    task::JoinSet,
    time,
};

const NODES: [&str; 3] = ["node1@127.0.0.1", "node2@127.0.0.1", "node3@127.0.0.1"];
const PASSWORD: &str = "s3kr3t-pa55";

/// Longer than any command may take that ends by itself.
const PATIENCE: Duration = Duration::from_secs(40);

/// A simulated cluster behind sockets.
struct Site {
    cluster: Cluster,
    urls: Vec<String>,
    _servers: JoinSet<std::io::Result<()>>,
}

fn world() -> Config {
    let design = |name: &str| Design { views: vec![name.to_owned()], ..Design::new(name) };
    let long = format!("customers/{}", "n".repeat(190));
    let mut config = Config::new(&NODES)
        .with(Database {
            bloat: 6.0,
            docs: 30_000,
            designs: vec![design("by_day"), design("new\nline \u{1b}[31m"), design("..")],
            ..Database::new("orders/2024+x")
        })
        .with(Database { designs: vec![design("x")], ..Database::new("app/_design/x") })
        .with(Database { bloat: 4.0, docs: 50_000, ..Database::new(&long) })
        .with(Database { missing: vec![(0, NODES[1].to_owned())], ..Database::new("torn") });
    config.users = vec![
        User { name: "adm".into(), password: PASSWORD.into(), role: Role::ServerAdmin },
        User { name: "metrics".into(), password: PASSWORD.into(), role: Role::Metrics },
    ];
    config.orphans.push(Orphan {
        node: NODES[2].to_owned(),
        file: "shards/00000000-ffffffff/gone.1700000000".to_owned(),
        bytes: 3 << 20,
    });
    config
}

impl Site {
    async fn open(config: Config) -> Self {
        let cluster = Cluster::new(config, 1, Clock::System).expect("the cluster is sound");
        let (mut urls, mut servers) = (Vec::new(), JoinSet::new());
        for (_, router) in cluster.routers() {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
            urls.push(format!("http://{}", listener.local_addr().expect("it is bound")));
            servers.spawn(async move { axum::serve(listener, router).await });
        }
        Self { cluster, urls, _servers: servers }
    }

    /// Runs a command with the addresses of this cluster and its administrator's login.
    async fn run(&self, words: &[&str]) -> Ran {
        self.run_with(words, &[("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", PASSWORD)]).await
    }

    async fn run_with(&self, words: &[&str], env: &[(&str, &str)]) -> Ran {
        let mut all: Vec<&str> = words.to_vec();
        for url in &self.urls {
            all.extend(["--couchdb.url", url]);
        }
        recliner(&all, env).await
    }
}

/// How a command ended.
#[derive(Debug)]
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).expect("it is JSON")
    }

    /// One sentence on standard error that holds all of this, and nothing else anywhere.
    fn refuses(&self, code: i32, says: &[&str]) {
        assert_eq!((self.code, self.out.as_str()), (code, ""), "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        for part in says {
            assert!(self.err.contains(part), "{part:?} is not in {:?}", self.err);
        }
    }
}

/// Runs the binary. Whatever it does, it tells no password and does not panic.
async fn recliner(words: &[&str], env: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recliner"));
    command.args(words).env_clear().envs(env.iter().copied()).stdin(Stdio::null());
    command.kill_on_drop(true);
    let output = time::timeout(PATIENCE, command.output()).await;
    let output = output.expect("it ends in time").expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints UTF-8");
    let code = output.status.code().expect("no signal ended it");
    let ran = Ran { code, out: text(output.stdout), err: text(output.stderr) };
    for printed in [&ran.out, &ran.err] {
        assert!(!printed.contains("panicked"), "{words:?}: {printed}");
        let login = base64::prelude::BASE64_STANDARD.encode(format!("adm:{PASSWORD}"));
        for secret in [PASSWORD, &login] {
            assert!(!printed.contains(secret), "{words:?}: {printed}");
        }
        let tears = |letter: char| letter.is_control() && letter != '\n';
        assert!(!printed.contains(tears), "{words:?}: {printed:?}");
    }
    ran
}

/// What the design promises of a target in JSON.
const FIELDS: [&str; 29] = [
    "id",
    "kind",
    "node",
    "db",
    "range",
    "name",
    "ddoc",
    "signature",
    "state",
    "copies",
    "estimated",
    "file_bytes",
    "active_bytes",
    "external_bytes",
    "predicted_bytes",
    "reclaimable_bytes",
    "confidence",
    "ratio",
    "update_seq",
    "compacted_seq",
    "updates_pending",
    "collator_versions",
    "compact_running",
    "sources",
    "measured_at",
    "channel",
    "priority",
    "misses",
    "refusal",
];

#[tokio::test]
async fn scan_prints_every_target_as_json() {
    let site = Site::open(world()).await;
    let ran = site.run(&["scan", "--format", "json"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    let answer = ran.json();
    let nodes = answer["nodes"].as_array().unwrap();
    let up: Vec<_> = nodes.iter().map(|node| (node["node"].as_str(), &node["up"])).collect();
    assert_eq!(up, NODES.map(|name| (Some(name), &Value::Bool(true))));
    let targets = answer["targets"].as_array().unwrap();
    for target in targets {
        for field in FIELDS {
            assert!(target.get(field).is_some(), "{field} is missing in {target}");
        }
    }
    let files: usize =
        NODES.iter().map(|node| site.cluster.world(|world| world.files(node)).unwrap().len()).sum();
    let of_kind = |kind: &str| targets.iter().filter(|it| it["kind"] == kind).count();
    assert_eq!((of_kind("db"), of_kind("view"), of_kind("cleanup")), (files + 1, 4, 2));
    let of_state = |state: &str| targets.iter().filter(|it| it["state"] == state).count();
    assert_eq!((of_state("orphan"), of_state("missing"), of_state("unaddressable")), (1, 1, 1));
    let dots = targets.iter().find(|it| it["state"] == "unaddressable").unwrap();
    let named = (&dots["ddoc"], &dots["signature"], &dots["file_bytes"], &dots["measured_at"]);
    assert_eq!(named, (&"_design/..".into(), &Value::Null, &Value::Null, &Value::Null));
    let missing = targets.iter().find(|it| it["state"] == "missing").unwrap();
    assert_eq!(
        (&missing["file_bytes"], &missing["reclaimable_bytes"]),
        (&Value::Null, &Value::Null)
    );
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or_default()
}

#[tokio::test]
async fn scan_prints_tables_that_fit() {
    let site = Site::open(world()).await;
    let login = [("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", PASSWORD)];
    for columns in ["80", "160"] {
        let env = [login[0], login[1], ("COLUMNS", columns)];
        let ran = site.run_with(&["scan"], &env).await;
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
        assert!(widest(&ran.out) <= columns.parse().unwrap(), "{}:\n{}", widest(&ran.out), ran.out);
        assert!(ran.out.starts_with("a CouchDB cluster of 3 nodes, read at "), "{}", ran.out);
        for part in ["node1@127.0.0.1", "ratio_dbs", "3.5.0", "orphan", "missing", "unaddressable"]
        {
            assert!(ran.out.contains(part), "{part}:\n{}", ran.out);
        }
        // A name that could tear a line or colour a terminal does neither.
        assert!(!ran.out.contains('\u{1b}'), "{}", ran.out);
        assert!(columns == "80" || ran.out.contains("/_design/new\\…"), "{}", ran.out);
    }
}

#[tokio::test]
async fn scan_says_what_it_could_not_see() {
    let site = Site::open(world()).await;
    site.cluster.faults().down(NODES[1]);
    let ran = site.run(&["scan", "--format", "json"]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert_eq!(ran.json()["nodes"][1]["up"], false);
    assert!(ran.err.contains("node2@127.0.0.1"), "{}", ran.err);
    assert!(ran.err.contains("is down"), "{}", ran.err);
    let ran = site.run(&["scan"]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.out.starts_with("a CouchDB cluster of 3 nodes, 1 of them down, read at "));
}

#[tokio::test]
async fn scan_ends_when_a_node_hangs() {
    let site = Site::open(world()).await;
    site.cluster.faults().plan(Fault::on(NODES[1], Effect::Hang));
    let dir = tempfile::tempdir().unwrap();
    let config = written(dir.path(), "recliner.yml", "couchdb: {timeout: 1s}\n");
    let ran = site.run(&["scan", "--format", "json", "--config.file", &config]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    let answer = ran.json();
    assert_eq!(answer["nodes"][1]["up"], false);
    let read = answer["targets"].as_array().unwrap().iter().filter(|it| it["node"] == NODES[0]);
    assert!(read.clone().count() > 3 && read.clone().all(|it| it["file_bytes"].is_u64()));
}

#[tokio::test]
async fn scan_tells_a_login_without_rights_what_it_lacks() {
    let site = Site::open(world()).await;
    let login = [("COUCHDB_USER", "metrics"), ("COUCHDB_PASSWORD", PASSWORD)];
    site.run_with(&["scan"], &login).await.refuses(1, &["may read no database", "server admin"]);
}

#[tokio::test]
async fn explain_says_why() {
    let site = Site::open(world()).await;
    let ran = site.run(&["explain", "orders/2024+x", "--format", "json"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    let answer = ran.json();
    assert_eq!(answer["memory"], false);
    let targets = answer["targets"].as_array().unwrap();
    assert!(targets.len() > 6 && targets.iter().all(|it| it["db"] == "orders/2024+x"));
    let shard = targets.iter().find(|it| it["kind"] == "db").unwrap();
    assert_eq!(shard["channel"], "ratio_dbs");

    let id = shard["id"].as_str().unwrap();
    let ran = site.run(&["explain", id]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.starts_with(&format!("{id}\n")), "{}", ran.out);
    assert!(ran.out.contains("ratio_dbs, priority "), "{}", ran.out);
    let ran = site.run(&["explain", "app/_design/x/_design/x"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.starts_with("view:_cluster/app%2F_design%2Fx"), "{}", ran.out);
}

#[tokio::test]
async fn a_target_that_is_not_there_is_named() {
    let site = Site::open(world()).await;
    for name in ["nothing/here", "db:node9@127.0.0.1/x", "view:_cluster/x/y", ""] {
        let ran = site.run(&["explain", name]).await;
        ran.refuses(1, &[&format!("{name:?}")]);
    }
}

#[tokio::test]
async fn import_writes_the_settings_that_equal_smooshs() {
    let mut config = world();
    for node in &mut config.nodes {
        for (section, key, value) in [
            ("smoosh", "db_channels", "upgrade_dbs,big_dbs,slack_dbs"),
            ("smoosh.big_dbs", "priority", "ratio"),
            ("smoosh.big_dbs", "min_size", "2000000"),
        ] {
            node.settings.push((section.to_owned(), key.to_owned(), value.to_owned()));
        }
    }
    let site = Site::open(config).await;
    let ran = site.run(&["import", "smoosh"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("big_dbs"), "{}", ran.out);
    let dir = tempfile::tempdir().unwrap();
    let file = written(
        dir.path(),
        "recliner.yml",
        &format!("couchdb: {{urls: ['{}']}}\n{}", site.urls[0], ran.out),
    );
    let checked = recliner(&["check-config", "--config.file", &file], &[]).await;
    assert_eq!((checked.code, checked.err.as_str()), (0, ""), "{checked:?}");
    assert!(checked.out.contains("big_dbs"), "{}", checked.out);
    assert!(site.cluster.wire().iter().all(|it| it.method == http::Method::GET));
}

#[tokio::test]
async fn check_config_prints_what_is_in_force_and_reads_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let url = ["--couchdb.url", "http://couch-a:5984"];
    let login = [("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", PASSWORD)];
    let ran = recliner(&["check-config", url[0], url[1]], &login).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    let file = written(dir.path(), "recliner.yml", &ran.out);
    let again = recliner(&["check-config", "--config.file", &file], &login).await;
    assert_eq!(again.code, 0, "{again:?}");
    let sound = |text: &str| -> String {
        text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(sound(&again.out), sound(&ran.out));
}

fn written(dir: &Path, name: &str, text: &str) -> String {
    let path: PathBuf = dir.join(name);
    std::fs::write(&path, text).expect("it can be written");
    path.to_str().expect("it is UTF-8").to_owned()
}

#[tokio::test]
async fn a_bad_configuration_is_refused_with_its_place() {
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
async fn a_cluster_that_cannot_be_reached_is_named() {
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
        site.cluster.clear_wire();
        let wrong = [("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", "no")];
        site.run_with(command, &wrong).await.refuses(1, &[&site.urls[0], "adm", "password"]);
        assert_eq!(site.cluster.wire().len(), 1, "{command:?}");
    }
    let none = [("COUCHDB_USER", "adm")];
    let words = ["scan", "--couchdb.password-file", "/none/at/all"];
    site.run_with(&words, &none).await.refuses(1, &["/none/at/all"]);
}

#[tokio::test]
async fn a_bad_certificate_is_named() {
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
async fn a_taken_port_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for command in [&["serve", "--couchdb.url", "http://127.0.0.1:1"][..], &["demo"]] {
        let mut words = command.to_vec();
        words.extend(["--web.listen-address", &address]);
        recliner(&words, &[]).await.refuses(1, &[&address, "--web.listen-address"]);
    }
}

#[tokio::test]
async fn the_finest_log_tells_no_password() {
    let site = Site::open(world()).await;
    let ran = site.run(&["scan", "--log.level", "trace"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let wrong = [("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", "wr0ng-pa55")];
    let ran = site.run_with(&["scan", "--log.level", "trace"], &wrong).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("level=error"), "it logs: {}", ran.err);
    assert!(!ran.err.contains("wr0ng-pa55"), "{}", ran.err);
}

/// The address that a service says it serves on.
async fn address_of(stderr: &mut (impl AsyncBufReadExt + Unpin)) -> String {
    let mut lines = stderr.lines();
    let found = async {
        while let Some(line) = lines.next_line().await.expect("it can be read") {
            if let Some((_, rest)) = line.split_once("address=") {
                return rest.split_whitespace().next().unwrap_or_default().to_owned();
            }
        }
        panic!("it ended without serving");
    };
    time::timeout(PATIENCE, found).await.expect("it serves in time")
}

#[tokio::test]
async fn a_service_answers_for_the_cluster_until_it_is_told_to_stop() {
    let site = Site::open(world()).await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_recliner"));
    command.args(["serve", "--web.listen-address", "127.0.0.1:0"]);
    command.args(site.urls.iter().flat_map(|url| ["--couchdb.url", url]));
    command.env_clear().env("COUCHDB_USER", "adm").env("COUCHDB_PASSWORD", PASSWORD);
    let dir = tempfile::tempdir().unwrap();
    command.current_dir(dir.path()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut service = command.spawn().unwrap();
    let mut stderr = BufReader::new(service.stderr.take().unwrap());
    let base = format!("http://{}", address_of(&mut stderr).await);

    let _again = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = async |path: &str| {
        let answer = http.get(format!("{base}{path}")).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let ready = async {
        while get("/-/ready").await.0 != 200 {
            time::sleep(Duration::from_millis(20)).await;
        }
    };
    time::timeout(PATIENCE, ready).await.unwrap();
    let (_, metrics) = get("/metrics").await;
    for node in NODES {
        assert!(metrics.contains(&format!("recliner_node_up{{node=\"{node}\"}} 1")), "{metrics}");
    }
    for path in
        ["/metrics", "/", "/api/v1/status", "/api/v1/config", "/api/v1/targets", "/api/v1/queue"]
    {
        let (status, body) = get(path).await;
        assert_eq!(status, 200, "{path}");
        assert!(!body.contains(PASSWORD), "{path}");
    }

    let words = ["explain", "orders/2024+x", "--recliner.url", &base, "--format", "json"];
    let asked = recliner(&words, &[]).await;
    assert_eq!((asked.code, asked.err.as_str()), (0, ""), "{asked:?}");
    assert_eq!(asked.json()["memory"], true);
    let read = site.run(&["explain", "orders/2024+x", "--format", "json"]).await;
    let ids = |answer: Value| -> BTreeSet<String> {
        let targets = answer["targets"].as_array().cloned().unwrap_or_default();
        targets.iter().filter_map(|it| it["id"].as_str().map(ToOwned::to_owned)).collect()
    };
    assert_eq!(ids(asked.json()), ids(read.json()));
    assert!(!ids(asked.json()).is_empty());
    recliner(&["explain", "nothing", "--recliner.url", &base], &[]).await.refuses(1, &["nothing"]);

    let pid = service.id().unwrap().to_string();
    let told = std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(told.success());
    let ended = time::timeout(PATIENCE, service.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(0));
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).await.unwrap();
    assert!(!rest.contains("panicked") && !rest.contains(PASSWORD), "{rest}");
    assert!(site.cluster.wire().iter().all(|it| it.method == http::Method::GET));
    let words = ["explain", "nothing", "--recliner.url", &base];
    recliner(&words, &[]).await.refuses(1, &[&base]);
}
