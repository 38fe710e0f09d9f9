//! The cost of `recliner serve --mode=enforce` while it tracks many jobs, and the time until a free
//! slot is reused, over a simulated cluster on loopback ports.
//!
//! ```text
//! cargo bench --bench enforcer
//! ```
//!
//! First: 10,000 outcomes in the journal, 50 running compactions and ten waiting targets, with
//! every interval at its default; CPU time is that of the whole process, and requests for CouchDB's
//! tasks are counted. Then: one job per node, each over within seconds, and the time from the first
//! reading of a node's tasks after a job ended there to the node's next start. It has two parts:
//! until the next target is reread (the response with the tasks, the file whose job ended, the
//! plan), and that reading itself, with the journal's entry.

mod measured;

use couchdb_sim::{Cluster, Config, Database, Exchange};
use measured::{Failure, cpu, say};
use recliner::{
    model::{
        records::{JobOwner, JobResult, Outcome, StateChange, StateStore as _},
        target::{TargetId, TargetKind},
    },
    store::journal::{self, ClusterIdentity, DirectoryStorage},
};
use std::{
    fs,
    net::Ipv4Addr,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};
use tokio::{net::TcpListener, sync::watch, task::JoinSet, time};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

const NODES: [&str; 3] = ["couchdb@sim-1.local", "couchdb@sim-2.local", "couchdb@sim-3.local"];
const OUTCOMES: u64 = 10_000;
const JOBS: usize = 50;
/// recliner's default poll interval.
const POLL: Duration = Duration::from_secs(5);
/// How long CPU time is measured.
const MEASURED: Duration = Duration::from_secs(120);
/// How long slots are observed.
const WATCHED: Duration = Duration::from_secs(180);

/// A simulated cluster behind a socket, and the configuration to reach it.
struct Site {
    cluster: Cluster,
    couchdb: String,
    _servers: JoinSet<std::io::Result<()>>,
}

impl Site {
    async fn open(world: Config) -> Result<Self, Failure> {
        let cluster = Cluster::new(world, 1, Clock::System)?;
        let (mut servers, mut urls) = (JoinSet::new(), vec![]);
        for node in NODES {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let url = format!("http://{}", listener.local_addr()?);
            urls.push(format!("{node}: {url:?}"));
            let router = cluster.router(node);
            servers.spawn(async move { axum::serve(listener, router).await });
        }
        let first = urls[0].split_once(": ").map(|(_, url)| url).unwrap_or_default();
        let couchdb = format!("urls: [{first}], username: admin, nodes: {{{}}}", urls.join(", "));
        Ok(Self { cluster, couchdb, _servers: servers })
    }

    /// Starts recliner on this cluster, with its state in `dir`.
    fn enforce(&self, dir: &Path, settings: &str) -> Result<Recliner, Failure> {
        let file = dir.join("recliner.yml");
        fs::write(&file, format!("couchdb: {{{}}}\nmode: enforce\n{settings}", self.couchdb))?;
        let child = Command::new(env!("CARGO_BIN_EXE_recliner"))
            .args(["serve", "--log.level", "error", "--web.listen-address", "127.0.0.1:0"])
            .arg("--config.file")
            .arg(file)
            .arg("--storage.path")
            .arg(dir)
            .env("COUCHDB_PASSWORD", "secret")
            .stderr(Stdio::inherit())
            .spawn()?;
        Ok(Recliner(child))
    }

    fn running(&self) -> usize {
        self.cluster.world(|world| world.tasks().len())
    }
}

/// A process that ends when this value is dropped.
struct Recliner(Child);

impl Recliner {
    fn cpu(&self) -> Result<f64, Failure> {
        cpu(&format!("/proc/{}/stat", self.0.id()), 11)
    }
}

impl Drop for Recliner {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Databases of one copy each, placed on the three nodes in turn.
fn world(count: usize, rate: u64) -> Config {
    let config = Config::new(&NODES);
    (0..count).fold(Config { compaction_rate: rate, ..config }, |config, at| {
        config.with(Database {
            q: 1,
            n: 1,
            docs: 20_000 + 100 * at as u64,
            bloat: 5.0,
            placed_on: vec![NODES[at % NODES.len()].to_owned()],
            ..Database::new(&format!("tenant-{at:03}"))
        })
    })
}

/// Writes a day's outcomes of jobs into the journal.
async fn remember(dir: &Path) -> Result<(), Failure> {
    let (_settings, settings) = watch::channel(journal::JournalSettings::default());
    let (task, journal) =
        journal::JournalTask::open(DirectoryStorage::new(dir), Clock::System, settings)?;
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(task.run(stop.clone()));
    let nodes = NODES.map(ToOwned::to_owned).into();
    journal.claim(ClusterIdentity { uuids: [].into(), nodes }).await?;
    let now = Clock::System.now();
    let ended = |(at, node): (u64, &str)| {
        let node = node.to_owned();
        let shard = format!("shards/00000000-ffffffff/tenant-{:03}.1795225160", at % 60);
        let ended_at = Moment::from_unix(now.unix() - 86_400 * (OUTCOMES - at) / OUTCOMES);
        let outcome = Outcome {
            target: TargetId::Db { node: node.clone(), shard },
            kind: TargetKind::Db,
            node,
            design: None,
            channel: Some("ratio_dbs".into()),
            owner: JobOwner::Recliner,
            ordered_by: None,
            started_at: Moment::from_unix(ended_at.unix() - 30),
            ended_after: None,
            charged_bytes: None,
            ended_at,
            before_bytes: Some(100 << 20),
            after_bytes: Some(20 << 20),
            predicted_bytes: Some(20 << 20),
            ending: JobResult::Freed,
            why: None,
        };
        StateChange::JobEnded { outcome, closes: None }
    };
    let nodes = NODES.into_iter().cycle();
    journal.store((0..OUTCOMES).zip(nodes).map(ended).collect()).await?;
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// Whether a request reads a node's active tasks.
fn asks_for_tasks(exchange: &Exchange, node: &str) -> bool {
    exchange.path == format!("/_node/{node}/_active_tasks")
}

async fn cost() -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    remember(dir.path()).await?;
    // Each job would take almost an hour.
    let site = Site::open(world(JOBS + 10, 5_000)).await?;
    let channel = format!("{{name: ratio_dbs, kind: db, priority: ratio, concurrency: {JOBS}}}");
    let recliner = site.enforce(
        dir.path(),
        &format!(
            "channels: [{channel}]\nlimits: {{per_node: {JOBS}, cluster: {JOBS}, wait: 0s, duty: 100%}}\n"
        ),
    )?;
    let full = async {
        while site.running() < JOBS {
            time::sleep(Duration::from_millis(100)).await;
        }
    };
    time::timeout(Duration::from_secs(300), full).await?;
    time::sleep(2 * POLL).await;
    let (before, requests) = (recliner.cpu()?, site.cluster.requests());
    site.cluster.clear_exchanges();
    time::sleep(MEASURED).await;
    let used = recliner.cpu()? - before;
    let (wire, requests) = (site.cluster.exchanges(), site.cluster.requests() - requests);
    let asked = NODES.map(|node| wire.iter().filter(|it| asks_for_tasks(it, node)).count());
    let intervals = MEASURED.as_secs() / POLL.as_secs();
    say(&format!(
        "{JOBS} jobs, {OUTCOMES} outcomes: {:.2} % of a core over {MEASURED:?}; tasks asked for {asked:?} times in {intervals} intervals, of {requests} requests; {} run",
        used / MEASURED.as_secs_f64() * 100.0,
        site.running()
    ))
}

/// The time in which a slot was reused, in milliseconds.
struct Reused {
    /// From the first reading of the tasks after the node's job ended to the first request that
    /// rereads the next target.
    decides: f64,
    /// From that request to the request that starts the target.
    reads: f64,
}

fn reuse_times(cluster: &Cluster) -> Vec<Reused> {
    let ended = cluster.world(|world| world.compactions());
    let wire = cluster.exchanges();
    let mut took = Vec::new();
    for job in &ended {
        let Some(end) = job.end else { continue };
        let seen = wire.iter().find(|it| it.at >= end.at && asks_for_tasks(it, &job.node));
        let Some(seen) = seen else { continue };
        let prefix = format!("/_node/{}/", job.node);
        let starts = |it: &&Exchange| {
            it.method == http::Method::POST && it.at >= seen.at && it.path.starts_with(&prefix)
        };
        let Some(start) = wire.iter().find(starts) else { continue };
        let reads = |it: &&Exchange| {
            let file = start.path.strip_suffix("/_compact");
            it.at >= seen.at && it.at <= start.at && file == Some(it.path.as_str())
        };
        let Some(read) = wire.iter().find(reads) else { continue };
        let ms = |from: &Exchange, to: &Exchange| (to.at - from.at).as_secs_f64() * 1e3;
        took.push(Reused { decides: ms(seen, read), reads: ms(read, start) });
    }
    took
}

/// The median, the 95th percentile and the maximum.
fn spread(mut all: Vec<f64>) -> String {
    all.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        all.get(all.len().saturating_sub(1) * percent / 100).copied().unwrap_or(f64::NAN)
    };
    let (median, most, longest) = (at(50), at(95), at(100));
    format!("median {median:.1} ms, 95 of 100 within {most:.1} ms, longest {longest:.1} ms")
}

async fn slots() -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let site = Site::open(world(150, 8_000_000)).await?;
    let _recliner =
        site.enforce(dir.path(), "limits: {per_node: 1, cluster: 3, wait: 0s, duty: 100%}\n")?;
    time::sleep(WATCHED).await;
    let took = reuse_times(&site.cluster);
    if took.is_empty() {
        return Err("no slot was used again: is recliner running?".into());
    }
    let all = took.iter().map(|it| it.decides + it.reads).collect();
    let decides = took.iter().map(|it| it.decides).collect();
    let reads = took.iter().map(|it| it.reads).collect();
    say(&format!(
        "from a slot seen free to the next start, {} times: {}",
        took.len(),
        spread(all)
    ))?;
    say(&format!("  of that, until the next target is read again: {}", spread(decides)))?;
    say(&format!("  and from there, with what is read: {}", spread(reads)))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    cost().await?;
    slots().await
}
