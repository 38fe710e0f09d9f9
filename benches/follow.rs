//! The cost of following a thousand events a second, and the time until a write shows in
//! `/metrics`, over a simulated cluster on a loopback port.
//!
//! ```text
//! cargo bench --bench follow
//! ```
//!
//! First: 1,000 databases, each written to once a second, so that the feed sends 1,000 events a
//! second; shards are reread only once an hour, so that mainly the feed, the listener and the
//! journal are measured. CPU time is that of the whole process. Then the same with 2,000 events a
//! second, two for each database, and a thousand readers of recliner's own `/_db_updates`, of which
//! 900 read everything. Then, with the defaults: 200 writes a second to random databases, for each
//! the time until `/metrics` shows its file's size after the write, and from the request log the
//! shortest time between two readings of one shard.

mod measured;
mod memory;
mod readers;

use couchdb_sim::{Cluster, Config, Database, Fleet};
use measured::{Failure, cpu, say};
use memory::resident;
use readers::{READERS, Readers, STALLED};
use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{self, Instant},
};
use wall_clock::Clock;

const NODE: &str = "couchdb@sim-1.local";
const DATABASES: usize = 1_000;
/// How long CPU time is measured while writes are made.
const MEASURED: Duration = Duration::from_secs(60);
/// How long writes are made before the measurement.
const SETTLED: Duration = Duration::from_secs(10);
/// The interval between two readings of `/metrics`.
const LOOK: Duration = Duration::from_millis(50);

fn name(number: usize) -> String {
    format!("tenant-{number:04}")
}

/// A process that ends when this value is dropped.
struct Recliner {
    child: Child,
    address: SocketAddr,
    client: reqwest::Client,
}

impl Recliner {
    async fn metrics(&self) -> Result<String, Failure> {
        let url = format!("http://{}/metrics", self.address);
        Ok(self.client.get(url).send().await?.error_for_status()?.text().await?)
    }

    /// The sum of a family's samples.
    async fn sum(&self, family: &str) -> Result<f64, Failure> {
        let text = self.metrics().await?;
        let of = |line: &&str| line.starts_with(family);
        let values = text.lines().filter(of).filter_map(|line| line.rsplit(' ').next());
        Ok(values.filter_map(|value| value.parse::<f64>().ok()).sum())
    }

    fn cpu(&self) -> Result<f64, Failure> {
        cpu(&format!("/proc/{}/stat", self.child.id()), 11)
    }
}

impl Drop for Recliner {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

struct Site {
    cluster: Cluster,
    url: String,
    _servers: JoinSet<std::io::Result<()>>,
}

impl Site {
    async fn open() -> Result<Self, Failure> {
        let like = Database { q: 1, n: 1, docs: 100, ..Database::new("tenant-") };
        let fleet = Fleet::named(like, u32::try_from(DATABASES)?, name(0).len());
        let mut config = Config::new(&[NODE]);
        config.fleets.push(fleet);
        let cluster = Cluster::new(config, 1, Clock::System)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let (router, mut servers) = (cluster.router(NODE), JoinSet::new());
        servers.spawn(async move { axum::serve(listener, router).await });
        Ok(Self { cluster, url, _servers: servers })
    }

    /// Starts recliner and waits until it follows both feeds and has reread everything since.
    async fn follow(&self, dir: &Path, settings: &str) -> Result<Recliner, Failure> {
        let file = dir.join("recliner.yml");
        let couchdb = format!(
            "couchdb: {{urls: [{:?}], username: admin, nodes: {{{NODE}: {:?}}}, cold_reads_per_second: off}}\n",
            self.url, self.url
        );
        fs::write(
            &file,
            couchdb + "scan: {interval: 20s, interval_followed: 6h, top: 2000}\n" + settings,
        )?;
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?;
        let child = Command::new(env!("CARGO_BIN_EXE_recliner"))
            .args(["serve", "--log.level", "error", "--web.listen-address"])
            .arg(address.to_string())
            .arg("--config.file")
            .arg(file)
            .arg("--storage.path")
            .arg(dir.join("data"))
            .env("COUCHDB_PASSWORD", "secret")
            .stderr(Stdio::inherit())
            .spawn()?;
        let recliner = Recliner { child, address, client: reqwest::Client::new() };
        let connected = async {
            while recliner.sum("recliner_feed_connected").await.unwrap_or_default() < 2.0 {
                time::sleep(Duration::from_millis(200)).await;
            }
        };
        time::timeout(Duration::from_secs(120), connected).await?;
        time::sleep(Duration::from_secs(45)).await;
        Ok(recliner)
    }

    fn size(&self, number: usize) -> Option<u64> {
        self.cluster.world(|world| {
            let files = world.files(NODE)?;
            let part = format!("/{}.", name(number));
            let file = files.into_iter().find(|file| file.contains(&part))?;
            Some(world.shard(NODE, &file)?.sizes.file)
        })
    }
}

/// The counters from which the cases about events are computed.
struct Heard {
    events: f64,
    kept: f64,
    cpu: f64,
    began: Instant,
}

impl Heard {
    async fn so_far(recliner: &Recliner) -> Result<Self, Failure> {
        let events = recliner.sum("recliner_feed_events_total").await?;
        let kept = recliner.sum("recliner_journal_last_seq").await?;
        Ok(Self { events, kept, cpu: recliner.cpu()?, began: Instant::now() })
    }

    /// The change since the earlier counters, as text.
    async fn since(&self, recliner: &Recliner) -> Result<String, Failure> {
        let now = Self::so_far(recliner).await?;
        let dropped = recliner.sum("recliner_journal_dropped_total").await?;
        let took = (now.began - self.began).as_secs_f64();
        Ok(format!(
            "{:.0} events/s heard, {:.0}/s kept, {dropped} dropped: {:.1} % of a core",
            (now.events - self.events) / took,
            (now.kept - self.kept) / took,
            100.0 * (now.cpu - self.cpu) / took
        ))
    }
}

/// Writes every half second to every `one_of`-th database, in turn.
async fn write(site: &Site, one_of: usize, span: Duration) {
    let mut tick = time::interval(Duration::from_millis(500));
    let ticks = usize::try_from(2 * span.as_secs()).unwrap_or_default();
    for at in 0..ticks {
        tick.tick().await;
        site.cluster.world(|world| {
            let names = (at % one_of..DATABASES).step_by(one_of);
            names.for_each(|number| world.write(&name(number), 1));
        });
    }
}

/// The CPU time at a thousand events a second.
async fn cost(site: &Site) -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let recliner = site.follow(dir.path(), "follow: {reread_after: 1h}\n").await?;
    // Each shard is read once for its first event.
    write(site, 2, SETTLED).await;
    let before = Heard::so_far(&recliner).await?;
    write(site, 2, MEASURED).await;
    say(&before.since(&recliner).await?)
}

/// The CPU time at two thousand events a second, with readers.
async fn cost_with_readers(site: &Site) -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let recliner = site.follow(dir.path(), "follow: {reread_after: 1h}\n").await?;
    let mut readers = Readers::connect(recliner.address).await?;
    write(site, 1, SETTLED).await;
    let (before, (bytes, rows)) = (Heard::so_far(&recliner).await?, readers.taken());
    let (written, still) = tokio::join!(write(site, 1, MEASURED), readers.still(MEASURED));
    let ((), ()) = (written, still?);
    let (now, took) = (readers.taken(), MEASURED.as_secs_f64());
    let (memory, peak) = resident(recliner.child.id())?;
    say(&format!(
        "{}, with {READERS} readers that take all and {STALLED} that take nothing; {memory:.0} MB resident and {peak:.0} MB at most; {:.0} MB a second sent, {:.0} rows a second to one reader",
        before.since(&recliner).await?,
        (now.0 - bytes) / took / 1e6,
        (now.1 - rows) / took,
    ))
}

/// The time until a write shows.
async fn latency(site: &Site) -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let recliner = site.follow(dir.path(), "").await?;
    site.cluster.clear_exchanges();
    let (began, used) = (Instant::now(), recliner.cpu()?);
    let mut waiting: Vec<(String, u64, Instant)> = Vec::new();
    let mut took: Vec<f64> = Vec::new();
    let (mut written, mut random) = (0_usize, 1_u64);
    while began.elapsed() < MEASURED || (!waiting.is_empty() && began.elapsed() < 2 * MEASURED) {
        let due = began.elapsed().min(MEASURED).as_millis() as usize / 5;
        while written < due {
            written += 1;
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (random >> 33) as usize % DATABASES;
            site.cluster.world(|world| world.write(&name(number), 20));
            let size = site.size(number).ok_or("the database is there")?;
            waiting.push((name(number), size, Instant::now()));
        }
        time::sleep(LOOK).await;
        let text = recliner.metrics().await?;
        let shown: BTreeMap<&str, u64> = text
            .lines()
            .filter_map(|line| line.strip_prefix("recliner_target_file_bytes{"))
            .filter_map(|line| {
                let db = line.split_once("db=\"")?.1.split_once('"')?.0;
                Some((db, line.rsplit(' ').next()?.parse().ok()?))
            })
            .collect();
        waiting.retain(|(db, size, since)| {
            let shows = shown.get(db.as_str()).is_some_and(|shown| shown >= size);
            took.extend(shows.then(|| since.elapsed().as_secs_f64()));
            !shows
        });
    }
    let used = (recliner.cpu()? - used) / began.elapsed().as_secs_f64();
    took.sort_by(f64::total_cmp);
    let of_hundred = |part: usize| took.get(took.len() * part / 100).copied().unwrap_or(f64::NAN);
    let mut reads: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    for read in site.cluster.exchanges().into_iter().filter(|read| read.path.contains("/shards%2F"))
    {
        reads.entry(read.path).or_default().push(read.at);
    }
    let gaps =
        reads.values().flat_map(|all| all.windows(2)).map(|two| two[1].saturating_sub(two[0]));
    say(&format!(
        "{written} writes: median {:.2} s, p99 {:.2} s, longest {:.2} s, {} never showed; shortest time between two readings of a shard {:?}; {:.1} % of a core, {} scrapes a second included",
        of_hundred(50),
        of_hundred(99),
        of_hundred(100).max(took.last().copied().unwrap_or(f64::NAN)),
        waiting.len(),
        gaps.min().unwrap_or_default(),
        100.0 * used,
        1_000 / LOOK.as_millis()
    ))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| "the TLS provider was installed twice")?;
    let site = Site::open().await?;
    cost(&site).await?;
    cost_with_readers(&site).await?;
    latency(&site).await
}
