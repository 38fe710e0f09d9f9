//! A rehearsed deployment, carried out on a simulated cluster by a command that is killed.

use super::{
    NODES, PASSWORD, PATIENCE, Ran, Site, bloated_world, enforcing, recliner_in,
    service::{Running, http_client, wait_until_ready},
    written,
};
use couchdb_sim::{Config, Database, Design};
use serde_json::Value;
use std::{collections::BTreeMap, path::Path, process::Stdio, time::Duration};
use tokio::{process::Command, time};

const LOGIN: [(&str, &str); 2] = [("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", PASSWORD)];

/// A database with one index.
fn world() -> Config {
    let by_day = Design { views: vec!["by_day".to_owned()], ..Design::new("by_day") };
    let orders = Database { q: 1, docs: 5_000, designs: vec![by_day], ..Database::new("orders") };
    Config { databases: vec![orders], ..bloated_world(0) }
}

/// A configuration that compacts views as well.
fn with_views() -> String {
    let views = "concurrency: 3}, {name: ratio_views, kind: view, priority: ratio, min_priority: 1.1, concurrency: 3}]";
    enforcing().replace("concurrency: 3}]", views)
}

/// A deployment in a directory of its own, beside a service.
struct Deployment {
    site: Site,
    dir: tempfile::TempDir,
    service: Running,
    url: String,
}

impl Deployment {
    /// Rehearses a changed document and one without views.
    async fn rehearse(config: &str) -> Self {
        let site = Site::open(world()).await;
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path();
        let (service, url) = Self::serve(&site, at, config).await;
        std::fs::create_dir(at.join("designs")).expect("it is new");
        let by_day = r#"{"_id":"_design/by_day","views":{"by_day":{"map":"function(doc){emit(doc.day,1)}"}}}"#;
        let rules = r#"{"_id":"_design/rules","validate_doc_update":"function(){}"}"#;
        written(&at.join("designs"), "by_day.json", by_day);
        written(&at.join("designs"), "rules.json", rules);
        let deployment = Self { site, dir, service, url };
        let words = [
            "preflight",
            "--deploy",
            "designs",
            "--against",
            "orders",
            "--write-plan",
            "plan.json",
        ];
        let ran = deployment.run(&words, &["--sample", "0"]).await;
        assert_eq!(ran.code, 0, "{ran:?}");
        deployment
    }

    async fn serve(site: &Site, dir: &Path, config: &str) -> (Running, String) {
        written(dir, "recliner.yml", config);
        let flags = ["--config.file", "recliner.yml", "--web.enable-admin-api"];
        let service = Running::start(site, dir, &flags).await;
        let url = format!("http://{}", service.address);
        wait_until_ready(&http_client(), &url).await;
        (service, url)
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    async fn run(&self, words: &[&str], more: &[&str]) -> Ran {
        let urls = self.site.urls.iter().flat_map(|url| ["--couchdb.url", url]);
        let words: Vec<&str> =
            words.iter().copied().chain(more.iter().copied()).chain(urls).collect();
        recliner_in(self.dir(), &words, &LOGIN).await
    }

    async fn deploy(&self, flags: &[&str]) -> Ran {
        self.deploy_with(&self.url, flags).await
    }

    async fn deploy_with(&self, recliner: &str, flags: &[&str]) -> Ran {
        self.run(&["deploy-indexes", "--plan", "plan.json", "--recliner.url", recliner], flags)
            .await
    }

    /// Carries out the command that was printed with this flag.
    async fn paste(&self, printed: &Ran, flag: &str) -> Ran {
        let line = printed.out.lines().find(|line| line.trim_end().ends_with(flag));
        let line = line.unwrap_or_else(|| panic!("{flag} is printed: {printed:?}"));
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        recliner_in(self.dir(), &words, &LOGIN).await
    }

    /// Starts the command, and kills it as soon as this many requests changed something.
    async fn kill_after(&self, requests: usize) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_recliner"));
        command.args(["deploy-indexes", "--plan", "plan.json", "--recliner.url", &self.url]);
        command.args(self.site.urls.iter().flat_map(|url| ["--couchdb.url", url]));
        command.current_dir(self.dir()).env_clear().envs(LOGIN).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the process starts");
        let sent = async {
            while self.site.cluster.write_requests().len() < requests {
                time::sleep(Duration::from_millis(2)).await;
            }
        };
        time::timeout(PATIENCE, sent).await.expect("it sends requests");
        child.kill().await.expect("it is killed");
    }

    /// The design documents without their revisions.
    async fn designs(&self) -> BTreeMap<String, Value> {
        let url = format!("{}/orders/_design_docs?include_docs=true", self.site.urls[0]);
        let answer = http_client().get(url).basic_auth("adm", Some(PASSWORD)).send().await;
        let answer: Value = answer.expect("it answers").json().await.expect("it is JSON");
        let rows = answer["rows"].as_array().expect("it has rows").iter();
        let doc = |row: &Value| {
            let mut doc = row["doc"].clone();
            doc.as_object_mut().expect("it is a document").remove("_rev");
            (row["id"].as_str().expect("it has an id").to_owned(), doc)
        };
        rows.map(doc).collect()
    }

    /// The changes of documents that were requested.
    fn changes(&self) -> Vec<String> {
        let sent = self.site.cluster.write_requests().into_iter();
        let is_change = |it: &couchdb_sim::Exchange| {
            [http::Method::PUT, http::Method::DELETE].contains(&it.method)
        };
        sent.filter(is_change)
            .map(|it| {
                let path = it.path.split('?').next().unwrap_or_default();
                format!("{} {path} {}", it.method, it.status)
            })
            .collect()
    }
}

#[tokio::test]
async fn deployment_survives_a_kill_and_goes_live_and_back() {
    let mut deployment = Deployment::rehearse(&with_views()).await;
    let before = deployment.designs().await;
    deployment.kill_after(1).await;
    assert!(deployment.dir().join("plan.json.state").exists());

    let ready = deployment.deploy(&[]).await;
    assert_eq!((ready.code, &*ready.err), (0, ""), "{ready:?}");
    assert!(
        ready.out.contains("All indexes are built, and compacted where that frees space."),
        "{ready:?}"
    );
    let mut staged = deployment.designs().await;
    assert!(staged.remove("_design/by_day-next").is_some());
    assert_eq!(staged, before, "nothing is live");
    let compactions = deployment.site.cluster.world(|world| world.compactions());
    assert_eq!(compactions.len(), NODES.len(), "{compactions:?}");

    let done = deployment.paste(&ready, "--swap").await;
    assert_eq!((done.code, &*done.err), (0, ""), "{done:?}");
    let live = deployment.designs().await;
    assert_eq!(live.keys().collect::<Vec<_>>(), ["_design/by_day", "_design/rules"]);
    assert_eq!(live["_design/by_day"]["views"]["by_day"]["map"], "function(doc){emit(doc.day,1)}");
    let changes = [
        "PUT /orders/_design/by_day-next 201",
        "PUT /orders/_design/by_day 201",
        "PUT /orders/_design/rules 201",
        "DELETE /orders/_design/by_day-next 200",
    ];
    assert_eq!(deployment.changes(), changes);

    let back = deployment.paste(&done, "--back-out").await;
    assert_eq!((back.code, &*back.err), (0, ""), "{back:?}");
    assert_eq!(deployment.designs().await, before);
    assert!(!deployment.dir().join("plan.json.state").exists());
    let log = deployment.service.stop().await;
    assert!(!log.contains("panicked"), "{log}");
}

#[tokio::test]
async fn nothing_changes_unless_the_service_enforces() {
    let deployment = Deployment::rehearse("mode: advise\n").await;
    let ran = deployment.deploy(&["--may-not-fit"]).await;
    ran.refuses(1, &["runs in advise mode"]);
    let ran = deployment.deploy(&["--back-out"]).await;
    ran.refuses(64, &["plan.json.state does not exist"]);
    assert_eq!(deployment.changes(), [""; 0]);
}

#[tokio::test]
async fn recliner_of_another_cluster_does_not_permit_a_deployment() {
    let deployment = Deployment::rehearse(&with_views()).await;
    let mut later = world();
    for database in &mut later.databases {
        database.created = Some(wall_clock::Moment::from_unix(1_800_000_000));
    }
    let (other, dir) = (Site::open(later).await, tempfile::tempdir().expect("a directory"));
    let (_service, url) = Deployment::serve(&other, dir.path(), &with_views()).await;
    let ran = deployment.deploy_with(&url, &["--may-not-fit"]).await;
    ran.refuses(1, &["follows a different database orders (1800000000;", "--recliner.url"]);
    assert_eq!(deployment.changes(), [""; 0]);
}

#[tokio::test]
async fn deployment_refuses_a_plan_file_that_was_changed() {
    let deployment = Deployment::rehearse(&with_views()).await;
    deployment.kill_after(1).await;
    let plan = deployment.dir().join("plan.json");
    let text = std::fs::read_to_string(&plan).unwrap();
    std::fs::write(&plan, text.replace("doc.day", "doc.month")).unwrap();
    let ran = deployment.deploy(&[]).await;
    ran.refuses(64, &["plan.json was changed after", "--back-out"]);
    let ran = deployment.deploy(&["--back-out"]).await;
    assert_eq!((ran.code, &*ran.err), (0, ""), "{ran:?}");
    assert_eq!(deployment.designs().await.len(), 1);
}
