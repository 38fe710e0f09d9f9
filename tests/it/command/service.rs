//! A service from its start to its end.

use super::{
    ExplainOutput, NODES, PASSWORD, PATIENCE, Ran, Site, bloated_world, data_of, recliner, world,
    written,
};
use couchdb_sim::{Effect, Exchange, Fault};
use recliner::serve::report::{
    Advice, Events, Explained, OutcomeLine, Outcomes, Planned, Space, Status, Usage, UsageBytes,
};
use std::{collections::BTreeSet, path::Path, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, ChildStderr, Command},
    time,
};

/// The address that a service prints when it starts to serve.
async fn address_of(stderr: &mut (impl AsyncBufReadExt + Unpin)) -> String {
    let mut lines = stderr.lines();
    let found = async {
        while let Some(line) = lines.next_line().await.expect("the output is readable") {
            if let Some((_, rest)) = line.split_once("address=") {
                return rest.split_whitespace().next().unwrap_or_default().to_owned();
            }
        }
        panic!("it ended without serving");
    };
    time::timeout(PATIENCE, found).await.expect("it serves in time")
}

/// A service in a process of its own.
pub(crate) struct Running {
    pub(crate) address: String,
    process: Child,
    stderr: BufReader<ChildStderr>,
}

impl Running {
    /// Starts `recliner serve` on a cluster, in a directory, with additional flags.
    pub(crate) async fn start(site: &Site, dir: &Path, flags: &[&str]) -> Self {
        let mut words = vec!["serve"];
        words.extend(flags);
        if !flags.contains(&"--web.listen-address") {
            words.extend(["--web.listen-address", "127.0.0.1:0"]);
        }
        words.extend(site.urls.iter().flat_map(|url| ["--couchdb.url", url]));
        let login = [("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", PASSWORD)];
        Self::start_with(dir, &words, &login).await
    }

    /// Starts the program with these words, in a directory, with only these environment variables.
    pub(crate) async fn start_with(dir: &Path, words: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_recliner"));
        command.args(words).env_clear().envs(env.iter().copied());
        command.current_dir(dir).stderr(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("the process starts");
        let mut stderr = BufReader::new(process.stderr.take().expect("the stream is piped"));
        let address = address_of(&mut stderr).await;
        Self { address, process, stderr }
    }

    /// Sends SIGKILL.
    pub(crate) async fn kill(mut self) {
        assert_eq!(
            self.process.try_wait().expect("the status is known"),
            None,
            "the process is still running"
        );
        let killed = time::timeout(PATIENCE, self.process.kill()).await;
        killed.expect("in time").expect("it is killed");
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id().expect("the process is running")
    }

    /// Stops it, and returns what it logged.
    pub(super) async fn stop(&mut self) -> String {
        let pid = self.pid().to_string();
        let kill = std::process::Command::new("kill").args(["-TERM", &pid]).status();
        assert!(kill.expect("kill runs").success());
        let ended = time::timeout(PATIENCE, self.process.wait()).await;
        let ended = ended.expect("it ends in time").expect("it ends");
        assert_eq!(ended.code(), Some(0));
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).await.expect("it logs text");
        rest
    }
}

pub(super) fn http_client() -> reqwest::Client {
    let _again = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().expect("the HTTP client is valid")
}

/// The status and the text of a response.
pub(super) async fn get(http: &reqwest::Client, base: &str, path: &str) -> (u16, String) {
    let answer = http.get(format!("{base}{path}")).send().await.expect("a response arrives");
    (answer.status().as_u16(), answer.text().await.expect("the body is text"))
}

pub(super) async fn wait_until_ready(http: &reqwest::Client, base: &str) {
    let ready = async {
        while get(http, base, "/-/ready").await.0 != 200 {
            time::sleep(Duration::from_millis(20)).await;
        }
    };
    time::timeout(PATIENCE, ready).await.expect("it is ready in time");
}

#[tokio::test]
async fn service_answers_until_stopped() {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(&site, dir.path(), &[]).await;
    let base = format!("http://{}", running.address);

    let http = http_client();
    let get = async |path: &str| get(&http, &base, path).await;
    wait_until_ready(&http, &base).await;
    let (_, metrics) = get("/metrics").await;
    for node in NODES {
        assert!(metrics.contains(&format!("recliner_node_up{{node=\"{node}\"}} 1")), "{metrics}");
    }
    for path in [
        "/metrics",
        "/",
        "/api/v1/status",
        "/api/v1/config",
        "/api/v1/targets",
        "/api/v1/queue",
        "/api/v1/plan",
    ] {
        let (status, body) = get(path).await;
        assert_eq!(status, 200, "{path}");
        assert!(!body.contains(PASSWORD), "{path}");
    }

    let words = ["explain", "orders/2024+x", "--recliner.url", &base, "--format", "json"];
    let asked = recliner(&words, &[]).await;
    assert_eq!((asked.code, asked.err.as_str()), (0, ""), "{asked:?}");
    assert!(asked.answer::<ExplainOutput>().memory);
    let read = site.run(&["explain", "orders/2024+x", "--format", "json"]).await;
    let ids = |ran: &Ran| -> BTreeSet<String> {
        let output: ExplainOutput = ran.answer();
        output.targets.into_iter().map(|it| it.target.id).collect()
    };
    assert_eq!(ids(&asked), ids(&read));
    assert!(!ids(&asked).is_empty());
    recliner(&["explain", "nothing", "--recliner.url", &base], &[]).await.refuses(1, &["nothing"]);

    let rest = running.stop().await;
    assert!(!rest.contains("panicked") && !rest.contains(PASSWORD), "{rest}");
    assert!(site.cluster.exchanges().iter().all(Exchange::is_reading));
    let words = ["explain", "nothing", "--recliner.url", &base];
    recliner(&words, &[]).await.refuses(1, &[&base]);
}

#[tokio::test]
async fn demo_states_its_mode_and_that_it_is_simulated() {
    let help = recliner(&["demo", "--help"], &[]).await;
    let help = help.out.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = "touches nothing outside the process";
    assert!(help.contains("[default: enforce]") && help.contains(expected), "{help}");
    for (mode, expected) in [("enforce", "It enforces"), ("advise", "It advises")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_recliner"));
        command.args(["demo", "--faults", "--web.listen-address", "127.0.0.1:0"]);
        if mode == "advise" {
            command.args(["--mode", mode]);
        }
        command.env_clear().stderr(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("the process starts");
        let mut lines = BufReader::new(process.stderr.take().expect("the stream is piped")).lines();
        let read = async {
            let mut printed = Vec::new();
            while let Some(line) = lines.next_line().await.expect("the output is readable") {
                let last = line.starts_with("Stop it");
                printed.push(line);
                if last {
                    break;
                }
            }
            printed
        };
        let printed = time::timeout(PATIENCE, read).await.expect("it serves in time");
        assert!(printed.iter().any(|line| line.starts_with(expected)), "{printed:?}");
        let next = |line: &String| Some(line.strip_prefix("Open ")?.split(' ').next()?.to_owned());
        let base = printed.iter().find_map(next).expect("it says which page to open");
        let base = base.trim_end_matches('/');
        let http = http_client();
        let get = async |path: &str| {
            http.get(format!("{base}{path}")).send().await.unwrap().text().await.unwrap()
        };
        let status: Status = data_of(&get("/api/v1/status").await);
        let simulation = status.simulation.unwrap_or_default();
        assert_eq!(status.mode, mode);
        assert!(simulation.contains(&format!("Mode {mode}")), "{simulation}");
        assert!(get("/").await.contains(&simulation));
        let ran = recliner(&["plan", "--recliner.url", base], &[]).await;
        let head = format!("mode {mode} in the simulated cluster");
        assert!(ran.out.lines().next().is_some_and(|line| line.ends_with(&head)), "{ran:?}");
    }
}

/// The targets that `explain` prints.
fn explained(ran: &Ran) -> Vec<Explained> {
    ran.answer::<ExplainOutput>().targets
}

/// The id of a file that no channel takes, once the service has seen it.
async fn lean_target(base: &str) -> String {
    let words = ["explain", "app/_design/x", "--recliner.url", base, "--format", "json"];
    let found = async {
        loop {
            let ran = recliner(&words, &[]).await;
            let targets = if ran.code == 0 { explained(&ran) } else { Vec::new() };
            let wanted = |it: &Explained| it.target.kind == "db" && it.target.file_bytes.is_some();
            if let Some(Explained { target, .. }) = targets.into_iter().find(wanted) {
                assert_eq!(target.channel, None, "no channel takes it: {target:?}");
                return target.id;
            }
            time::sleep(Duration::from_millis(50)).await;
        }
    };
    time::timeout(PATIENCE, found).await.expect("it is seen in time")
}

#[tokio::test]
async fn ordered_target_is_compacted_or_refused_with_reason() {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().unwrap();
    let config = "poll: 1s\nlimits: {wait: 0s, duty: 100%}\nheadroom: {blind_limit: 1TiB}\n";
    let file = written(dir.path(), "recliner.yml", config);
    let flags = ["--web.enable-admin-api", "--config.file", &file];
    let advising = dir.path().join("advising");
    std::fs::create_dir(&advising).unwrap();
    let mut advises = Running::start(&site, &advising, &flags).await;
    let base = format!("http://{}", advises.address);
    let id = lean_target(&base).await;
    let ran = recliner(&["compact", &id, "--force", "--recliner.url", &base], &[]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("(mode): recliner runs in advise mode"), "{ran:?}");
    let request = ran.out.trim_end().to_owned();
    assert!(request.starts_with("POST /_node/") && request.ends_with("/_compact"), "{ran:?}");
    advises.stop().await;
    assert!(site.cluster.write_requests().is_empty());

    let flags = [&flags[..], &["--mode=enforce"]].concat();
    let mut running = Running::start(&site, dir.path(), &flags).await;
    let base = format!("http://{}", running.address);
    assert_eq!(lean_target(&base).await, id);
    let service = ["--recliner.url", base.as_str()];
    let ask = async |words: &[&str]| recliner(&[words, &service].concat(), &[]).await;
    ask(&["compact", &id]).await.refuses(1, &["no channel takes", "ratio_dbs: ", "--force"]);
    let ran = ask(&["compact", &id, "--force"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert!(ran.out.contains(&request) && ran.out.starts_with("Ordered: "), "{ran:?}");
    let ended = async {
        loop {
            let ran = ask(&["history", &id, "--format", "json"]).await;
            let outcome: Option<OutcomeLine> = ran.answer::<Outcomes>().outcomes.into_iter().next();
            if let Some(outcome) = outcome {
                return outcome;
            }
            time::sleep(Duration::from_millis(50)).await;
        }
    };
    let outcome = time::timeout(PATIENCE, ended).await.expect("it ends in time");
    assert_eq!(outcome.ordered_by.as_deref(), Some("127.0.0.1"));
    let sent = site.cluster.write_requests();
    let path = request.strip_prefix("POST ").unwrap();
    assert_eq!(sent.iter().filter(|it| it.path == path).count(), 1, "{sent:?}");
    let ran = ask(&["events", "--type", "ordered", "--format", "json"]).await;
    let ordered = &ran.answer::<Events>().events[0];
    assert_eq!(ordered.target.as_deref(), Some(id.as_str()));
    assert_eq!(ordered.by.as_deref(), Some("127.0.0.1"));
    running.stop().await;
}

#[tokio::test]
async fn stored_measurements_show_after_restart_before_any_read() {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().unwrap();
    let mut first = Running::start(&site, dir.path(), &["--log.level", "debug"]).await;
    let kept = async {
        let mut lines = (&mut first.stderr).lines();
        while let Some(line) = lines.next_line().await.expect("the output is readable") {
            if line.contains("measurements saved") {
                return;
            }
        }
        panic!("it ended without keeping anything");
    };
    time::timeout(PATIENCE, kept).await.expect("it is kept in time");
    first.stop().await;

    // The shard map gets no response from now on, so that no sweep ends.
    site.cluster.faults().plan(Fault::everywhere(Effect::Hang).at("/_dbs"));
    let mut second = Running::start(&site, dir.path(), &[]).await;
    let base = format!("http://{}", second.address);
    let words = ["explain", "orders/2024+x", "--recliner.url", &base, "--format", "json"];
    let shown = async {
        loop {
            let ran = recliner(&words, &[]).await;
            if ran.code == 0 {
                return explained(&ran);
            }
            time::sleep(Duration::from_millis(50)).await;
        }
    };
    let targets = time::timeout(PATIENCE, shown).await.expect("it shows in time");
    let dbs = targets.iter().map(|it| &it.target).filter(|it| it.kind == "db");
    assert!(dbs.clone().count() > 1, "{targets:?}");
    assert!(dbs.clone().all(|it| it.file_bytes.is_some() && it.measured_at.is_some()));
    let http = http_client();
    let ready = http.get(format!("{base}/-/ready")).send().await.unwrap();
    assert_eq!(ready.status().as_u16(), 503, "stored measurements do not make the service ready");
    second.stop().await;
}

/// Limits the size of the files that a process may write, in bytes; `None`: unlimited.
fn limit_files(pid: u32, bytes: Option<u64>) {
    let limit = bytes.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string());
    let set = std::process::Command::new("prlimit")
        .args([&format!("--pid={pid}"), &format!("--fsize={limit}:unlimited")])
        .status();
    assert!(set.expect("prlimit runs; it is part of util-linux").success());
}

#[tokio::test]
async fn file_size_limit_acts_like_a_full_disk() {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(&site, dir.path(), &["--web.enable-admin-api"]).await;
    let base = format!("http://{}", running.address);
    lean_target(&base).await;
    let pid = running.process.id().expect("the process is running");
    let suspend = ["suspend", "--why", "a test", "--recliner.url", &base];

    limit_files(pid, Some(1024));
    let refused = recliner(&suspend, &[]).await;
    refused.refuses(1, &["journal.redb", "file size limit"]);
    assert_eq!(
        running.process.try_wait().expect("the status is known"),
        None,
        "the process is still running"
    );

    limit_files(pid, None);
    let goes_on = async {
        while recliner(&suspend, &[]).await.code != 0 {
            time::sleep(Duration::from_millis(100)).await;
        }
    };
    time::timeout(PATIENCE, goes_on).await.expect("it recovers by itself");
    running.stop().await;
}

#[tokio::test]
async fn health_reports_by_exit_status() {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().unwrap();
    let web = dir.path().join("web.yml");
    // The hash of an unknown password: the probe needs no user.
    let hash = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG";
    std::fs::write(&web, format!("basic_auth_users: {{prometheus: {hash}}}\n")).unwrap();
    let flags = ["--web.config.file", web.to_str().expect("a plain path")];
    let mut running = Running::start(&site, dir.path(), &flags).await;
    let base = format!("http://{}", running.address);
    let healthy = recliner(&["health", "--recliner.url", &base], &[]).await;
    assert_eq!((healthy.code, &*healthy.out, &*healthy.err), (0, "", ""), "{healthy:?}");
    // A server that is not recliner is not healthy, and neither is a closed port.
    let other = &site.urls[0];
    recliner(&["health", "--recliner.url", other], &[])
        .await
        .refuses(1, &[other, "it answered 400"]);
    running.stop().await;
    recliner(&["health", "--recliner.url", &base], &[]).await.refuses(1, &[&base]);
}

/// A request that `plan` prints is sent by hand and completes before the next poll: the file
/// reveals it.
#[tokio::test]
async fn compaction_shorter_than_a_poll_appears_in_history() {
    let site = Site::open(bloated_world(1)).await;
    let dir = tempfile::tempdir().unwrap();
    let slow = written(dir.path(), "recliner.yml", "scan: {interval: 1h}\npoll: 10m\n");
    let mut running = Running::start(&site, dir.path(), &["--config.file", &slow]).await;
    let base = format!("http://{}", running.address);
    let ask = async |words: &[&str]| {
        recliner(&[words, &["--recliner.url", &base, "--format", "json"]].concat(), &[]).await
    };
    let printed = async {
        loop {
            let plan: Planned = ask(&["plan"]).await.answer();
            if let Some(start) = plan.starts.into_iter().next() {
                return start;
            }
        }
    };
    let start = time::timeout(PATIENCE, printed).await.expect("something would start");
    let (node, shard) = (start.node.as_str(), start.name.as_deref().unwrap());
    // A reading before the journal opened may already be recorded there: only the next one counts.
    time::sleep(Duration::from_secs(12)).await;
    assert_eq!(site.cluster.world(|world| world.compact(node, shard)), Some(true));
    let seen = async {
        loop {
            let found: Outcomes = ask(&["history"]).await.answer();
            if let Some(outcome) = found.outcomes.into_iter().next() {
                return outcome;
            }
            time::sleep(Duration::from_millis(500)).await;
        }
    };
    let outcome = time::timeout(PATIENCE, seen).await.expect("it is found in time");
    assert_eq!((&outcome.target, &*outcome.owner, &*outcome.result), (&start.id, "other", "freed"));
    assert!(outcome.before_bytes > outcome.after_bytes, "{outcome:?}");
    assert_eq!(outcome.duration_seconds, None, "nobody saw it run");
    running.stop().await;
    assert!(site.cluster.exchanges().iter().all(Exchange::is_reading));
}

/// The sums in commands that read the cluster once equal those in a service's pages, responses and
/// metrics.
#[tokio::test]
async fn tables_pages_and_metrics_show_the_same_sums() {
    let mut config = world();
    // A view whose name no request can carry has no size.
    config.databases[0].designs.retain(|design| design.name != "..");
    let site = Site::open(config).await;
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(&site, dir.path(), &[]).await;
    let base = format!("http://{}", running.address);
    let http = http_client();
    let get = async |path: &str| get(&http, &base, path).await;
    wait_until_ready(&http, &base).await;
    let space: Space = data_of(&get("/api/v1/space").await.1);
    let (_, metrics) = get("/metrics").await;
    let metric = |family: &str| -> f64 {
        let samples = metrics.lines().filter(|line| line.starts_with(&format!("{family}{{")));
        samples.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    };
    let login = [("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", PASSWORD), ("COLUMNS", "160")];
    let usage: Usage = site.run(&["advise", "--by", "database", "--format", "json"]).await.answer();
    let used = |bytes: fn(&UsageBytes) -> u64| {
        usage.largest.iter().map(|line| bytes(&line.bytes)).sum::<u64>()
    };
    let (_, page) = get("/").await;
    let scan = site.run_with(&["scan"], &login).await;
    let total = scan.out.lines().find(|line| line.starts_with("total")).unwrap();
    for (said, family, used, card) in [
        (space.file_bytes, "recliner_file_bytes", used(|it| it.file_bytes), "on disk"),
        (
            space.reclaimable_bytes,
            "recliner_reclaimable_bytes",
            used(|it| it.reclaimable_bytes),
            "reclaimable by compaction",
        ),
    ] {
        assert_eq!((said, said.unwrap() as f64), (Some(used), metric(family)), "{card}");
        let (before, _) = page.split_once(&format!("</span></b><span>{card}")).unwrap();
        let size = before.rsplit('>').next().unwrap();
        assert!(total.contains(&format!("≈ {size}")), "{card}, {size}: {total}");
    }
    let sizes = |text: &str| text.split_once(" on disk").map(|(sizes, _)| sizes.to_owned());
    let advised: Advice = site.run(&["advise", "--format", "json"]).await.answer();
    assert!(sizes(&advised.says).is_some_and(|sizes| sizes.starts_with("About ")), "{advised:?}");
    let answered = async {
        loop {
            let answered: Advice = data_of(&get("/api/v1/advice").await.1);
            if answered.checked_at.is_some() {
                return sizes(&answered.says);
            }
            time::sleep(Duration::from_millis(100)).await;
        }
    };
    let answered = time::timeout(PATIENCE, answered).await.expect("it is checked in time");
    assert_eq!(sizes(&advised.says), answered);
    running.stop().await;
}
