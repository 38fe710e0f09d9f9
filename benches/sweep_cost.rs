//! Whether readers feel a sweep: how long reads of hot databases take on a real CouchDB, with and without a
//! `recliner scan` beside them, in alternating rounds of the same length.
//!
//! ```text
//! RECLINER_TEST_COUCHDB_URL=http://admin:password@127.0.0.1:5984 cargo bench --bench sweep_cost
//! ```
//!
//! It creates 375 databases of four ranges, 1,500 shards, of which a fifth is read all the time by four readers,
//! each a random document after the other, and deletes them at the end. CouchDB keeps 500 shards open by default,
//! so the sweep, which opens all, can close hot ones; it is counted how many, by the time of their last opening on the
//! first node. With CouchDB's default `[couchdb] update_lru_on_read = false` it closes the shards that were opened or
//! written the longest ago, however often they are read. `RECLINER_BENCH_DATABASES` sets another number. Each reader
//! rests for `RECLINER_BENCH_PAUSE_MS`, 10 by default, after each read: readers that never rest take all of a server
//! with one scheduler, where whatever else is asked shows. `RECLINER_BENCH_OTHER_NODES` has the URLs of the cluster's
//! other nodes, separated by commas: the readers go to all nodes, and the sweep asks each. With
//! `RECLINER_BENCH_DATA_DIR` the sweep reads the files of a server of one node, as a sidecar does. Without the first
//! variable the bench says so and does nothing.

mod couch;
mod measured;
mod numbers;

use couch::{Couch, median};
use measured::{Failure, cpu, say};
use numbers::mixed;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    task::{self, JoinSet},
    time::{self, Instant},
};

const ROUNDS: usize = 5;
const READERS: u64 = 4;
const DOCS: u64 = 100;
/// Enough `_local` documents per database for every shard to have some, as replicated shards do. A header without any
/// is not conclusive, so a sidecar could not spare CouchDB a request.
const CHECKPOINTS: u64 = 40;
/// One in this many databases is read.
const HOT: u64 = 5;
/// Minimum duration of a round without a sweep.
const SHORTEST: Duration = Duration::from_secs(10);
/// Maximum slowdown of reads.
const LIMIT: f64 = 1.1;

#[derive(Clone)]
struct Server {
    http: reqwest::Client,
    /// The nodes' URLs; the first gets all requests that are not reads.
    nodes: Arc<[String]>,
    login: Arc<(String, String)>,
    databases: u64,
    pause: Duration,
}

/// When CouchDB opened a shard, in microseconds.
#[derive(Deserialize)]
struct Opened {
    instance_start_time: String,
}

impl Server {
    async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Result<(), Failure> {
        self.ask_node(0, method, path, body).await
    }

    async fn ask_node(
        &self,
        node: u64,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> Result<(), Failure> {
        let method = reqwest::Method::from_bytes(method.as_bytes())?;
        let at = usize::try_from(node)? % self.nodes.len();
        let base = self.nodes.get(at).ok_or("there is no node")?;
        let mut request = self.http.request(method, format!("{base}{path}"));
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let request = request.basic_auth(&self.login.0, Some(&self.login.1));
        request.send().await?.error_for_status()?.bytes().await?;
        Ok(())
    }

    fn name(at: u64) -> String {
        format!("/recliner-bench-sweep-{at}")
    }

    async fn create(&self) -> Result<(), Failure> {
        let docs: Vec<Value> = (0..DOCS)
            .map(|at| json!({ "_id": at.to_string(), "pad": mixed(at).to_string().repeat(20) }))
            .chain((0..CHECKPOINTS).map(|at| json!({ "_id": format!("_local/{at}") })))
            .collect();
        for at in 0..self.databases {
            let name = Self::name(at);
            // An interrupted run may have left it.
            let _absent = self.ask("DELETE", &name, None).await;
            self.ask("PUT", &format!("{name}?q=4"), None).await?;
            let docs = json!({ "docs": docs });
            self.ask("POST", &format!("{name}/_bulk_docs"), Some(docs)).await?;
        }
        Ok(())
    }

    async fn delete(&self) -> Result<(), Failure> {
        for at in 0..self.databases {
            self.ask("DELETE", &Self::name(at), None).await?;
        }
        Ok(())
    }

    /// When the first node last opened each hot shard. Asking opens those that are closed.
    async fn hot_openings(&self) -> Result<BTreeMap<String, String>, Failure> {
        let files: Vec<String> = self.get("/_node/_local/_all_dbs").await?;
        let hot: BTreeSet<String> = (0..self.hot()).map(Self::name).collect();
        let mut opened = BTreeMap::new();
        for file in files {
            let name = file.rsplit('/').next().and_then(|name| name.split('.').next());
            if name.is_some_and(|name| hot.contains(&format!("/{name}"))) {
                let path = format!("/_node/_local/{}", file.replace('/', "%2F"));
                let info: Opened = self.get(&path).await?;
                opened.insert(file, info.instance_start_time);
            }
        }
        Ok(opened)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let base = self.nodes.first().ok_or("there is no node")?;
        let request = self.http.get(format!("{base}{path}"));
        let request = request.basic_auth(&self.login.0, Some(&self.login.1));
        Ok(serde_json::from_slice(&request.send().await?.error_for_status()?.bytes().await?)?)
    }

    /// Number of databases that are read.
    fn hot(&self) -> u64 {
        (self.databases / HOT).max(1)
    }

    /// Milliseconds of each successive read, until `end`.
    async fn read(self, reader: u64, end: Arc<AtomicBool>) -> Result<Vec<f64>, Failure> {
        let (mut took, mut seed) = (vec![], reader);
        while !end.load(Ordering::Relaxed) {
            seed = mixed(seed);
            let (db, doc) = (seed % self.hot(), mixed(seed) % DOCS);
            let start = Instant::now();
            self.ask_node(reader, "GET", &format!("{}/{doc}", Self::name(db)), None).await?;
            took.push(start.elapsed().as_secs_f64() * 1e3);
            time::sleep(self.pause).await;
        }
        Ok(took)
    }

    /// The median and the 99th percentile of reads during some work, in milliseconds, and the share of the hot
    /// shards that were closed meanwhile.
    async fn beside(
        &self,
        work: impl Future<Output = Result<(), Failure>>,
    ) -> Result<[f64; 3], Failure> {
        let before = self.hot_openings().await?;
        let end = Arc::new(AtomicBool::new(false));
        let mut readers = JoinSet::new();
        for reader in 0..READERS {
            readers.spawn(self.clone().read(reader, Arc::clone(&end)));
        }
        let worked = work.await;
        end.store(true, Ordering::Relaxed);
        let mut took = vec![];
        for read in readers.join_all().await {
            took.extend(read?);
        }
        worked?;
        took.sort_by(f64::total_cmp);
        let at = |percent: usize| took.get(took.len().saturating_sub(1) * percent / 100).copied();
        let after = self.hot_openings().await?;
        let closed = before.iter().filter(|(shard, opened)| after.get(*shard) != Some(opened));
        let closed = closed.count() as f64 / before.len() as f64;
        Ok([at(50).unwrap_or(f64::NAN), at(99).unwrap_or(f64::NAN), closed])
    }

    async fn rounds(&self, config: PathBuf) -> Result<(), Failure> {
        let data_dir = env::var("RECLINER_BENCH_DATA_DIR").ok();
        let (mut medians, mut tails) = (vec![], vec![]);
        for round in 1..=ROUNDS {
            let (config, data_dir) = (config.clone(), data_dir.clone());
            let mut took = Duration::ZERO;
            let scan = async {
                let start = Instant::now();
                let scanned = task::spawn_blocking(move || {
                    let args: Vec<&str> =
                        data_dir.iter().flat_map(|dir| ["--data-dir", dir]).collect();
                    couch::scan(&config, &args).map(drop)
                });
                scanned.await??;
                took = start.elapsed();
                Ok(())
            };
            let with = self.beside(scan).await?;
            let rest = async {
                time::sleep(took.max(SHORTEST)).await;
                Ok(())
            };
            let without = self.beside(rest).await?;
            say(&format!(
                "round {round}: reads beside a sweep of {:.1} s: median {:.2} ms, 99 % {:.2} ms, {:.0} % of hot shards closed; without: {:.2} ms, {:.2} ms, {:.0} %",
                took.as_secs_f64(),
                with[0],
                with[1],
                with[2] * 100.0,
                without[0],
                without[1],
                without[2] * 100.0,
            ))?;
            medians.push(with[0] / without[0]);
            tails.push(with[1] / without[1]);
        }
        let (medians, tails) = (median(medians), median(tails));
        let verdict = if tails <= LIMIT { "within" } else { "above" };
        // The sweeps are the only children of this process.
        let used = cpu("/proc/self/stat", 13)?;
        say(&format!(
            "medians of the ratios with to without: median {medians:.2}, 99 % {tails:.2}, {verdict} {LIMIT}; the sweeps took {used:.1} s of CPU"
        ))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let Some(couch) = Couch::named("sweep_cost")? else { return Ok(()) };
    let number = |name, default| env::var(name).map_or(Ok(default), |text| text.parse());
    let databases = number("RECLINER_BENCH_DATABASES", 375)?;
    let pause = Duration::from_millis(number("RECLINER_BENCH_PAUSE_MS", 10)?);
    let server = Server {
        http: reqwest::Client::new(),
        nodes: std::iter::once(&couch.base).chain(&couch.others).cloned().collect(),
        login: Arc::new((couch.user.clone(), couch.password.clone())),
        databases,
        pause,
    };
    let config = couch.config("", "")?;
    server.create().await?;
    let measured = server.rounds(config).await;
    server.delete().await?;
    measured
}
