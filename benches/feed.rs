//! The cost of sending ten thousand events a second to a thousand readers.
//!
//! ```text
//! cargo bench --bench feed
//! ```
//!
//! A separate process keeps the journal on disk, with 10,000 events a second of 1,000 databases in
//! two commits a second, and sends them over sockets; CPU time and memory are only that process's.
//! 900 readers read everything, 100 never read a byte. Of several events of a database between two
//! commits only the latest is sent, so that a reader gets up to 2,000 rows a second; one reader
//! parses each row.

mod measured;
mod memory;
mod readers;

use axum::{Router, body::Body, extract::Query, routing::get};
use measured::{Failure, cpu, say};
use memory::resident;
use readers::{READERS, Readers, STALLED};
use recliner::{
    feeds::feed_server::{self, FeedHandle, FeedRequest},
    model::settings::work,
    serve::http,
    store::journal::{ClusterIdentity, DirectoryStorage, EventDetails, Journal},
};
use std::{
    env,
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, SocketAddr},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tokio::{net::TcpListener, sync::watch, task::JoinSet, time};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// The allocator of the packages.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const SERVES: &str = "RECLINER_BENCH_FEED_SERVES";

const DATABASES: u64 = 1_000;
const EVENTS_PER_SECOND: u64 = 10_000;
const COMMITS_PER_SECOND: u64 = 2;

/// How long the readers warm up, and how long is measured.
const SETTLED: Duration = Duration::from_secs(10);
const MEASURED: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    match env::var_os(SERVES) {
        Some(dir) => serve(DirectoryStorage::new(dir)).await,
        None => measure().await,
    }
}

/// The measured process: the journal, the feed and the sockets.
async fn serve(place: DirectoryStorage) -> Result<(), Failure> {
    let (_keep, settings) = watch::channel(work::JournalRetention::default());
    let (task, journal) =
        recliner::store::journal::JournalTask::open(place, Clock::System, settings)?;
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(task.run(stop.clone()));
    journal.claim(ClusterIdentity::default()).await?;
    let (task, feed) =
        feed_server::FeedServerTask::new(journal.clone(), feed_server::MAX_READERS, stop.clone());
    tasks.spawn(task.run());
    tasks.spawn(publish(journal));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    say(&listener.local_addr()?.to_string())?;
    let router = Router::new().route("/_db_updates", get(updates)).with_state(feed);
    http::serve(
        listener,
        router,
        http::WebAccess::default(),
        http::ConnectionLimits::default(),
        stop,
    )
    .await;
    Ok(())
}

async fn updates(
    axum::extract::State(feed): axum::extract::State<FeedHandle>,
    Query(parameters): Query<Vec<(String, String)>>,
) -> Result<Body, String> {
    let pairs = parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let ask = FeedRequest::parse(pairs, None).map_err(|bad| bad.to_string())?;
    let begun = feed.open(ask).await.map_err(|refused| refused.to_string())?;
    Ok(Body::from_stream(begun.body.into_stream()))
}

async fn publish(journal: Journal) {
    let mut ticks = time::interval(Duration::from_millis(1_000 / COMMITS_PER_SECOND));
    let mut next = 0_u64;
    loop {
        ticks.tick().await;
        let batch = next..next + EVENTS_PER_SECOND / COMMITS_PER_SECOND;
        next = batch.end;
        let what =
            |number| EventDetails::Updated { db: format!("tenant-{:04}", number % DATABASES) };
        journal.record_batch(batch.map(what).collect());
    }
}

/// A process that ends when this value is dropped.
struct Serving {
    child: Child,
    address: SocketAddr,
}

impl Serving {
    fn cpu(&self) -> Result<f64, Failure> {
        cpu(&format!("/proc/{}/stat", self.child.id()), 11)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

async fn measure() -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let mut child = Command::new(env::current_exe()?)
        .env(SERVES, dir.path().join("data"))
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()?;
    let mut line = String::new();
    let out = child.stdout.take().ok_or("the process has no standard output")?;
    BufReader::new(out).read_line(&mut line)?;
    let serving = Serving { child, address: line.trim().parse()? };
    let mut readers = Readers::connect(serving.address).await?;
    readers.still(SETTLED).await?;
    let (cpu, (bytes, rows)) = (serving.cpu()?, readers.taken());
    readers.still(MEASURED).await?;
    let seconds = MEASURED.as_secs_f64();
    let cpu = (serving.cpu()? - cpu) / seconds;
    let (bytes, rows) =
        ((readers.taken().0 - bytes) / seconds, (readers.taken().1 - rows) / seconds);
    let (memory, peak) = resident(serving.child.id())?;
    say(&format!(
        "feed: {EVENTS_PER_SECOND} events a second of {DATABASES} databases, {READERS} readers that take all and {STALLED} that take nothing: {:.0} % of a core, {memory:.0} MB resident and {peak:.0} MB at most; {:.0} MB a second sent, {rows:.0} rows a second to one reader",
        cpu * 100.0,
        bytes / 1e6,
    ))
}
