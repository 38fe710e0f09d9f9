//! The binary itself, against a simulated cluster behind real sockets.

mod backup;
mod bad_input;
mod deploy_indexes;
mod document;
mod endless;
mod feeds;
pub(crate) mod files;
mod fleet;
mod follow;
mod hostile;
mod inspect;
mod killed;
mod lived;
mod manual;
mod mcp;
mod mixin;
mod orders;
mod preflight;
mod reads;
mod rent;
pub(crate) mod service;
mod shared_limits;
mod socket;
mod strangers;
mod tidy;
mod tombstones;
mod top;

use base64::Engine as _;
use couchdb_sim::{Cluster, Config, Database, Design, Effect, Exchange, Fault, Orphan, Role, User};
use recliner::serve::report::{Explained, Success};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::{net::TcpListener, process::Command, task::JoinSet, time};
use wall_clock::Clock;

pub(crate) const NODES: [&str; 3] = ["node1@127.0.0.1", "node2@127.0.0.1", "node3@127.0.0.1"];
pub(crate) const PASSWORD: &str = "s3kr3t-pa55";

/// Three nodes with bloated files that nobody writes to.
fn bloated_world(databases: usize) -> Config {
    let mut config = Config::new(&NODES);
    for at in 0..databases {
        let name = format!("db{at:02}");
        config =
            config.with(Database { q: 1, n: 3, docs: 2_000, bloat: 10.0, ..Database::new(&name) });
    }
    config.users =
        vec![User { name: "adm".into(), password: PASSWORD.into(), role: Role::ServerAdmin }];
    config
}

/// A configuration that starts the compactions of [`bloated_world`] at once.
fn enforcing() -> String {
    let nodes = NODES.map(|node| format!("\"{node}\"")).join(", ");
    format!(
        "mode: enforce
poll: 1s
limits: {{per_node: 3, cluster: 9, wait: 0s, duty: 100%}}
headroom: {{volumes: [{{nodes: [{nodes}], available: 1TB}}]}}
pressure: {{probe_latency: {{high: 1h, low: 30m}}}}
channels: [{{name: ratio_dbs, kind: db, priority: ratio, min_priority: 2.0, concurrency: 3}}]
"
    )
}

/// Timeout for a command that ends by itself.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// A simulated cluster behind sockets.
pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) urls: Vec<String>,
    _servers: JoinSet<std::io::Result<()>>,
}

pub(crate) fn world() -> Config {
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
    pub(crate) async fn open(config: Config) -> Self {
        crate::watchdog::start();
        let cluster = Cluster::new(config, 1, Clock::System).expect("the configuration is valid");
        let (mut urls, mut servers) = (Vec::new(), JoinSet::new());
        for (_, router) in cluster.routers() {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
            urls.push(format!("http://{}", listener.local_addr().expect("the listener is bound")));
            servers.spawn(async move { axum::serve(listener, router).await });
        }
        Self { cluster, urls, _servers: servers }
    }

    /// Runs a command with this cluster's addresses and its administrator's login.
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

/// The seed by which a test chooses when to interrupt a process: fixed, unless `RECLINER_TEST_SEED`
/// sets another. The machine's speed influences the outcome too.
#[expect(clippy::print_stdout, reason = "a failed test shows its seed")]
fn seed() -> u64 {
    let set = std::env::var("RECLINER_TEST_SEED").ok();
    let seed = set.map_or(1_795_222_434, |set| set.parse().expect("the seed is a number"));
    println!("RECLINER_TEST_SEED={seed}");
    seed
}

/// The exit code and the output of a command.
#[derive(Debug)]
struct Ran {
    code: i32,
    out: String,
    /// Standard error without the line that names the cluster.
    err: String,
    /// The line on standard error that names the cluster that answered.
    about: String,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).expect("valid JSON")
    }

    /// The output as one of the API's response types.
    fn answer<T: DeserializeOwned>(&self) -> T {
        serde_json::from_str(&self.out).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }

    /// Asserts that standard error is one sentence with all these parts, and that there is no other
    /// output.
    fn refuses(&self, code: i32, says: &[&str]) {
        assert_eq!((self.code, self.out.as_str()), (code, ""), "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        for part in says {
            assert!(self.err.contains(part), "{part:?} is not in {:?}", self.err);
        }
    }
}

/// The output of `explain --format json`.
#[derive(Debug, Deserialize)]
struct ExplainOutput {
    targets: Vec<Explained>,
    /// Whether a running service answered, which has a memory of past jobs.
    memory: bool,
}

/// The data of a successful API response.
fn data_of<T: DeserializeOwned>(body: &str) -> T {
    let answer: Success<T> =
        serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {body}"));
    assert_eq!(answer.status, "success");
    answer.data
}

/// Runs the binary and asserts that its output has no password and no panic.
async fn recliner(words: &[&str], env: &[(&str, &str)]) -> Ran {
    recliner_in(Path::new("."), words, env).await
}

/// Runs the binary in a directory.
async fn recliner_in(dir: &Path, words: &[&str], env: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recliner"));
    command.args(words).current_dir(dir).env_clear().envs(env.iter().copied()).stdin(Stdio::null());
    command.kill_on_drop(true);
    let output = time::timeout(PATIENCE, command.output()).await;
    let output = output.expect("it ends in time").expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints UTF-8");
    let code = output.status.code().expect("no signal ended it");
    let (lines, out) = (text(output.stderr), text(output.stdout));
    let (about, err) =
        lines.split_inclusive('\n').partition(|line| line.starts_with("recliner: answered for "));
    let ran = Ran { code, out, err, about };
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

/// Like [`recliner_in`], but without the note that the command asks the recliner behind the socket.
async fn recliner_beside(dir: &Path, words: &[&str]) -> Ran {
    const NOTE: &str = "recliner: asking the recliner of the Unix socket data/admin.sock\n";
    let ran = recliner_in(dir, words, &[]).await;
    let err = ran.err.strip_prefix(NOTE).unwrap_or(&ran.err).to_owned();
    Ran { err, ..ran }
}

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
async fn scan_tables_fit_the_terminal() {
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
        // A name with control characters neither breaks a line nor colours the terminal.
        assert!(!ran.out.contains('\u{1b}'), "{}", ran.out);
        assert!(columns == "80" || ran.out.contains("/_design/new\\…"), "{}", ran.out);
    }
}

#[tokio::test]
async fn scan_names_nodes_it_could_not_read() {
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
    let ran = site.run(&["explain", "torn"]).await;
    assert_eq!((ran.code, ran.out.is_empty()), (2, false), "{ran:?}");
    assert!(ran.err.contains("node2@127.0.0.1"), "{}", ran.err);
    let ran = site.run(&["import", "smoosh"]).await;
    ran.refuses(1, &["node2@127.0.0.1", "is down"]);
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
async fn scan_names_missing_rights() {
    let site = Site::open(world()).await;
    let login = [("COUCHDB_USER", "metrics"), ("COUCHDB_PASSWORD", PASSWORD)];
    site.run_with(&["scan"], &login)
        .await
        .refuses(1, &["may not read any database", "server admin"]);
}

#[tokio::test]
async fn explain_gives_the_decision_for_each_target() {
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
    assert!(ran.out.contains(&format!("  id          {id}\n")), "{}", ran.out);
    assert!(ran.out.contains("ratio_dbs, priority "), "{}", ran.out);
    let ran = site.run(&["explain", "orders/2024+x"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let blocks = |out: &str| out.lines().filter(|line| line.starts_with("  state ")).count();
    assert!(ran.out.starts_with("orders/2024+x: ") && ran.out.contains("reclaimable"), "{ran:?}");
    assert_eq!(blocks(&ran.out), 1, "{}", ran.out);
    let ran = site.run(&["explain", "--all", "orders/2024+x"]).await;
    assert_eq!(blocks(&ran.out), targets.len(), "{}", ran.out);
    let ran = site.run(&["explain", "app/_design/x/_design/x"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.starts_with("app/_design/x/_design/x\n"), "{}", ran.out);
}

#[tokio::test]
async fn plan_shows_requests_without_sending_them() {
    let site = Site::open(world()).await;
    let ran = site.run(&["plan", "--format", "json"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    let answer = ran.json();
    assert_eq!((&answer["memory"], &answer["mode"]), (&false.into(), &"advise".into()));
    let starts = answer["starts"].as_array().unwrap();
    assert!(!starts.is_empty(), "{answer}");
    let refused = answer["refused"].as_array().unwrap();
    assert!(refused.iter().all(|it| it["why"].as_str().is_some_and(|why| !why.is_empty())));

    let ran = site.run(&["plan"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    // A line that can be pasted, with the address of a node.
    let path = starts[0]["request"].as_str().unwrap().strip_prefix("POST ").unwrap();
    let paste = |url: &String| {
        format!(
            "curl -X POST -u \"$COUCHDB_USER\" -H 'Content-Type: application/json' -d '{{}}' '{url}{path}'"
        )
    };
    let pastes: Vec<String> = site.urls.iter().map(paste).collect();
    let pasted = ran.out.lines().any(|line| pastes.iter().any(|paste| paste == line));
    assert!(pasted, "{pastes:?}\n{}", ran.out);
    assert!(ran.out.contains("WOULD START"), "{}", ran.out);
    assert!(!ran.out.to_lowercase().contains("starts now"), "{}", ran.out);
    let long = |line: &&str| line.chars().count() > 80 && !line.starts_with("curl ");
    assert_eq!(ran.out.lines().find(long), None, "{}", ran.out);
    assert!(ran.out.contains("without a running recliner"), "{}", ran.out);
    assert_eq!(site.cluster.write_requests(), []);
}

/// Running jobs are read from the nodes' tasks before any target counts as startable.
#[tokio::test]
async fn plan_waits_for_the_running_jobs() {
    let mut config = bloated_world(2);
    config.compaction_rate = 10_000;
    let site = Site::open(config).await;
    let file = site.cluster.world(|world| {
        let mut files = world.files(NODES[0]).expect("the node is there");
        files.retain(|file| file.contains("db00"));
        files.pop().expect("it has a file there")
    });
    assert_eq!(site.cluster.world(|world| world.compact(NODES[0], &file)), Some(true));
    let late = Effect::Delay(Duration::from_secs(2));
    site.cluster.faults().plan(Fault::everywhere(late).at("_active_tasks"));
    let ran = site.run(&["plan", "--format", "json"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let answer = ran.json();
    let mut refused = answer["refused"].as_array().into_iter().flatten();
    let running = refused.find(|it| it["refusal"]["reason"] == "running").expect("one runs");
    assert!(running["refusal"]["since"].is_string(), "as its task says: {running}");
}

#[tokio::test]
async fn import_writes_settings_equivalent_to_smooshs() {
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
    assert!(site.cluster.exchanges().iter().all(Exchange::is_reading));
}

#[tokio::test]
async fn import_converts_couchdb_2_compaction_rules() {
    let rule = r#"[{db_fragmentation, "70%"}, {view_fragmentation, "60%"}]"#;
    let answer = async move |request: axum::extract::Request| {
        let (status, body) = match request.uri().path().trim_end_matches('/') {
            "" => (200, json!({"couchdb": "Welcome", "version": "2.3.1"})),
            "/_membership" => (200, json!({"all_nodes": ["a@b"], "cluster_nodes": ["a@b"]})),
            "/_node/a@b/_config" => (200, json!({"compactions": {"_default": rule}})),
            "/_node/a@b" => {
                (400, json!({"error": "bad_request", "reason": "Incomplete path to _node request"}))
            }
            _ => (404, json!({"error": "not_found", "reason": "Database does not exist."})),
        };
        (http::StatusCode::from_u16(status).unwrap(), axum::Json(body))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut servers = JoinSet::new();
    servers.spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
    let ran = recliner(&["import", "compaction-daemon", "--couchdb.url", &url], &[]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("a@b (CouchDB 2.3.1): 2 channels"), "{}", ran.out);
    assert!(ran.out.contains("# views: {enforce: all}\n"), "{}", ran.out);
}

/// A proxy that rejects paths beginning with `denied`, with a page of its own.
async fn denying(
    denied: &'static str,
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> axum::response::Response {
    if request.uri().path().starts_with(denied) {
        let page = (http::StatusCode::FORBIDDEN, "<html>403 Forbidden</html>");
        return axum::response::IntoResponse::into_response(page);
    }
    next.run(request).await
}

#[tokio::test]
async fn scan_shows_what_is_readable_if_a_proxy_denies_node_routes() {
    for denied in ["/_node/node", "/_node/"] {
        let cluster = Cluster::new(world(), 1, Clock::System).expect("the configuration is valid");
        let router = cluster
            .router(NODES[0])
            .layer(axum::middleware::from_fn(move |request, next| denying(denied, request, next)));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
        let mut servers = JoinSet::new();
        servers.spawn(async move { axum::serve(listener, router).await });
        let login = [("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", PASSWORD)];
        let ran = recliner(&["scan", "--couchdb.url", &url], &login).await;
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.out.contains("6 copies") && ran.out.contains("≥"), "{}", ran.out);
        assert!(ran.err.contains("HTTP 403 without CouchDB's JSON"), "{}", ran.err);
        assert!(ran.err.contains("not the sizes of shards and files"), "{}", ran.err);
        assert!(ran.err.lines().count() <= 4, "{}", ran.err);
    }
}

#[tokio::test]
async fn check_config_output_is_a_valid_configuration() {
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

#[tokio::test]
async fn refuses_takeover_of_unknown_smoosh_channel() {
    let site = Site::open(bloated_world(1)).await;
    let dir = tempfile::tempdir().unwrap();
    let check = async |url: &str, channel: &str| {
        let text = format!(
            "couchdb: {{urls: ['{url}']}}\nsmoosh: {{mode: takeover, takeover: [{channel}]}}\n"
        );
        let file = written(dir.path(), "recliner.yml", &text);
        let login = [("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", PASSWORD)];
        recliner(&["check-config", "--config.file", &file], &login).await
    };
    let refused = check(&site.urls[0], "dbs").await;
    assert_eq!(refused.code, 64, "{refused:?}");
    let expected = "no node's smoosh has a channel dbs; it has index_cleanup, ratio_dbs, ";
    assert!(refused.err.contains(expected), "{refused:?}");
    assert_eq!(check(&site.urls[0], "ratio_dbs").await.code, 0);
    assert_eq!(
        check("http://127.0.0.1:9", "dbs").await.code,
        0,
        "an unreachable cluster cannot be checked"
    );
    assert!(site.cluster.exchanges().iter().all(Exchange::is_reading));
}

#[tokio::test]
async fn check_config_prints_only_the_schema() {
    let ran = recliner(&["check-config", "--schema"], &[]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    let schema: Value = serde_json::from_str(&ran.out).expect("valid JSON");
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["properties"]["poll"]["default"], "5s");
    let both = recliner(&["check-config", "--schema", "--mode", "advise"], &[]).await;
    assert_eq!(both.code, 64, "{both:?}");
}

pub(crate) fn written(dir: &Path, name: &str, text: &str) -> String {
    let path: PathBuf = dir.join(name);
    std::fs::write(&path, text).expect("the file is writable");
    path.to_str().expect("it is UTF-8").to_owned()
}

#[tokio::test]
async fn trace_log_contains_no_password() {
    let site = Site::open(world()).await;
    let ran = site.run(&["scan", "--log.level", "trace"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let wrong = [("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", "wr0ng-pa55")];
    let ran = site.run_with(&["scan", "--log.level", "trace"], &wrong).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("level=error"), "it logs: {}", ran.err);
    assert!(!ran.err.contains("wr0ng-pa55"), "{}", ran.err);
}
