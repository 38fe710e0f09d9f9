//! A CouchDB read by plain requests, and what recliner sees of it.

use crate::support::{Db, ViewLine, db_id, dbs_seen, targets};
use couchdb_client::Transport;
use couchdb_names::ShardName;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use recliner::{
    config::{self, Flags},
    model::target::{TargetKind, TargetState},
    plan::Plan,
    service::{ClusterMonitor, Dependencies, TaskSet},
};
use reqwest::Method;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};
use tokio::time;
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Timeout for everything here.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A CouchDB for plain requests, without any of recliner's client.
#[derive(Clone)]
pub(super) struct Couch {
    http: reqwest::Client,
    pub(super) urls: Vec<String>,
    user: String,
    password: String,
}

pub(super) fn encoded(part: &str) -> String {
    utf8_percent_encode(part, NON_ALPHANUMERIC).to_string()
}

impl Couch {
    pub(super) fn new(urls: Vec<String>, user: &str, password: &str) -> Self {
        // Another test of this process may have installed it already.
        let _again = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build();
        let http = http.expect("the HTTP library is sound");
        Self { http, urls, user: user.to_owned(), password: password.to_owned() }
    }

    pub(super) fn login(&self) -> (&str, &str) {
        (&self.user, &self.password)
    }

    /// The CouchDB that the environment names.
    pub(super) fn named() -> Self {
        let read = |name: &str| {
            std::env::var(name).unwrap_or_else(|_| panic!("{name} has to be set for this test"))
        };
        let urls = read("RECLINER_TEST_COUCHDB_URL");
        Self::new(
            urls.split(',').map(|url| url.trim_end_matches('/').to_owned()).collect(),
            &read("RECLINER_TEST_COUCHDB_USER"),
            &read("RECLINER_TEST_COUCHDB_PASSWORD"),
        )
    }

    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let mut request = self
            .http
            .request(method.clone(), format!("{}{path}", self.urls[0]))
            .basic_auth(&self.user, Some(&self.password));
        if let Some(body) = body {
            request = request
                .header("Content-Type", "application/json")
                .body(serde_json::to_vec(&body).expect("valid JSON"));
        }
        let answer = request.send().await.unwrap_or_else(|why| panic!("{method} {path}: {why}"));
        let status = answer.status().as_u16();
        let text = answer.text().await.expect("the body is whole");
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    pub(super) async fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask(Method::GET, path, None).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Sends a change and asserts that it succeeds.
    pub(super) async fn change(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let (status, answer) = self.ask(method.clone(), path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    pub(super) async fn nodes(&self) -> Vec<String> {
        let members = self.get("/_membership").await;
        let names = members["cluster_nodes"].as_array().expect("it lists nodes").iter();
        names.map(|name| name.as_str().expect("it is a name").to_owned()).collect()
    }

    /// The files on a node of the databases with this prefix, and the node's own.
    pub(super) async fn files(&self, node: &str, prefix: &str) -> Vec<String> {
        let all = self.get(&format!("/_node/{node}/_all_dbs")).await;
        let names = all.as_array().expect("it lists files").iter().filter_map(Value::as_str);
        names
            .filter(|name| ShardName::split(name).is_some_and(|shard| shard.db.starts_with(prefix)))
            .map(ToOwned::to_owned)
            .collect()
    }

    /// One file of a node, as CouchDB describes it.
    pub(super) async fn shard(&self, node: &str, file: &str) -> Db {
        let info = self.get(&format!("/_node/{node}/{}", encoded(file))).await;
        let number = |at: &str| info.pointer(at).and_then(Value::as_u64).expect("it is a number");
        Db {
            state: TargetState::Ok,
            sizes: Some(["/sizes/file", "/sizes/active", "/sizes/external"].map(number)),
            seqs: Some(["/update_seq", "/compacted_seq"].map(number)),
            docs: Some(["/doc_count", "/doc_del_count"].map(number)),
            compact_running: info["compact_running"] == true,
        }
    }

    /// A view index as CouchDB reports it on the range of its first design document, on the first
    /// node by name.
    pub(super) async fn view(&self, db: &str, designs: &[&str]) -> ViewLine {
        let name = designs[0].strip_prefix("_design/").expect("the id begins with _design/");
        let place = self.get(&format!("/{}/_shards/{}", encoded(db), encoded(designs[0]))).await;
        let range = place["range"].as_str().expect("it names a range").to_owned();
        let all = self.get(&format!("/{}/_shards", encoded(db))).await;
        let shards = all["shards"].as_object().expect("it lists ranges");
        let copies =
            shards.values().map(|nodes| nodes.as_array().map_or(0, Vec::len)).sum::<usize>();
        let mut holders: Vec<&str> = shards[&range]
            .as_array()
            .expect("it lists nodes")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        holders.sort_unstable();
        let files = self.files(holders[0], db).await;
        let file = files
            .iter()
            .find(|file| {
                ShardName::split(file)
                    .is_some_and(|shard| shard.db == db && shard.range.to_string() == range)
            })
            .expect("the node has the file");
        let path =
            format!("/_node/{}/{}/_design/{}/_info", holders[0], encoded(file), encoded(name));
        let info = self.get(&path).await;
        let number = |at: &str| info.pointer(at).and_then(Value::as_u64).expect("it is a number");
        ViewLine {
            state: TargetState::Ok,
            designs: designs.iter().map(|id| (*id).to_owned()).collect(),
            exact: true,
            copies: u32::try_from(copies).expect("they are few"),
            sizes: Some(
                [
                    "/view_index/sizes/file",
                    "/view_index/sizes/active",
                    "/view_index/sizes/external",
                ]
                .map(number),
            ),
            pending: Some(number("/view_index/pending_updates")),
        }
    }

    /// Reads the cluster once with recliner itself.
    pub(super) async fn sweep(&self, yaml: &str) -> (Arc<Plan>, Arc<recliner::scan::ScanStatus>) {
        let flags = Flags {
            couchdb_urls: self.urls.clone(),
            couchdb_username: Some(self.user.clone()),
            env_password: Some(self.password.as_str().into()),
            ..Flags::default()
        };
        let file = config::File { name: Path::new("recliner.yml"), bytes: yaml.as_bytes() };
        let settings = config::load(&flags, Some(file)).expect("the settings are valid").settings;
        let transport =
            Transport::http(&settings.couchdb, "recliner-tests").expect("the settings are valid");
        let (mut tasks, stop) = (TaskSet::new(), CancellationToken::new());
        let registry = prometheus::Registry::new();
        let mut watch = ClusterMonitor::start(
            &settings,
            transport,
            Clock::System,
            &registry,
            &mut tasks,
            &stop,
            |_| Dependencies::none(),
        )
        .expect("the settings are valid");
        let looked = async {
            let status = watch
                .scanner
                .status
                .wait_for(|status| status.sweeps > 0)
                .await
                .map(|it| Arc::clone(&it));
            let version = watch.scanner.snapshots.borrow().version();
            let plan = watch.planner.plan.wait_for(|plan| plan.snapshot.version() >= version).await;
            (Arc::clone(&plan.expect("the planner lives")), status.expect("the scanner lives"))
        };
        let seen = time::timeout(PATIENCE, looked).await.expect("a sweep ends in time");
        stop.cancel();
        seen
    }

    /// Every file of the databases whose names begin with `prefix`, by target id.
    pub(super) async fn there(&self, prefix: &str) -> BTreeMap<String, Db> {
        let mut there = BTreeMap::new();
        for node in self.nodes().await {
            for file in self.files(&node, prefix).await {
                there.insert(db_id(&node, &file), self.shard(&node, &file).await);
            }
        }
        there
    }

    /// A sweep, and what `look` saw both before and after it: CouchDB writes its own checkpoints at
    /// any time, and only an unchanged state can be compared with the sweep.
    pub(super) async fn still_sweep<T: PartialEq>(
        &self,
        yaml: &str,
        look: impl AsyncFn() -> T,
    ) -> (Arc<Plan>, Arc<recliner::scan::ScanStatus>, T) {
        let still = async {
            loop {
                let before = look().await;
                let (plan, status) = self.sweep(yaml).await;
                if look().await == before {
                    return (plan, status, before);
                }
                time::sleep(Duration::from_secs(1)).await;
            }
        };
        time::timeout(PATIENCE, still).await.expect("the cluster becomes idle")
    }
}

/// Asserts that recliner sees the databases with this prefix as CouchDB reports them: every file on
/// every node with its numbers.
pub(super) fn agrees(plan: &Plan, prefix: &str, there: &BTreeMap<String, Db>) {
    assert!(!there.is_empty(), "there is something to see");
    let mut seen = dbs_seen(plan);
    let of_prefix: BTreeSet<String> = targets(plan, TargetKind::Db)
        .filter(|target| target.db_name().db.starts_with(prefix))
        .map(|target| target.id().to_string())
        .collect();
    seen.retain(|id, _| of_prefix.contains(id));
    assert_eq!(&seen, there);
}
