//! What it costs to tell a thousand readers ten thousand events a second.
//!
//! ```text
//! cargo bench --bench feed
//! ```
//!
//! A process of its own keeps the journal, on the disk, with 10,000 events a second of 1,000
//! databases in two commits a second, and tells them over sockets; CPU time and memory are
//! that process's alone. 900 readers take everything, 100 never take a byte. Of what happens
//! to a database between two commits the latest is told, so that a reader gets up to 2,000
//! rows a second; one of them looks into each.

mod measured;

use axum::{Router, body::Body, extract::Query, routing::get};
use measured::{Failure, cpu, say};
use recliner::{
    clock::Clock,
    feed::{self, Ask, Feed},
    http,
    journal::{Directory, Identity, Journal, What},
    settings::work,
};
use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, SocketAddr},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time,
};
use tokio_util::sync::CancellationToken;

/// As in the program itself.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const SERVES: &str = "RECLINER_BENCH_FEED_SERVES";

const DATABASES: u64 = 1_000;
const EVENTS_PER_SECOND: u64 = 10_000;
const COMMITS_PER_SECOND: u64 = 2;
const READERS: u64 = 900;
const STALLED: u64 = 100;

/// How long the readers settle, and how long is measured.
const SETTLED: Duration = Duration::from_secs(10);
const MEASURED: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    match env::var_os(SERVES) {
        Some(dir) => serve(Directory::new(dir)).await,
        None => measure().await,
    }
}

/// The process that is measured: the journal, the feed and sockets.
async fn serve(place: Directory) -> Result<(), Failure> {
    let (_keep, settings) = watch::channel(work::Journal::default());
    let (task, journal) = recliner::journal::Task::open(place, Clock::System, settings)?;
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(task.run(stop.clone()));
    journal.claim(Identity::default()).await?;
    let (task, feed) = feed::Task::new(journal.clone(), feed::ROOM, stop.clone());
    tasks.spawn(task.run());
    tasks.spawn(publish(journal));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    say(&listener.local_addr()?.to_string())?;
    let router = Router::new().route("/_db_updates", get(updates)).with_state(feed);
    http::serve(listener, router, http::Web::default(), stop).await;
    Ok(())
}

async fn updates(
    axum::extract::State(feed): axum::extract::State<Feed>,
    Query(parameters): Query<Vec<(String, String)>>,
) -> Result<Body, String> {
    let pairs = parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let ask = Ask::read(pairs, None).map_err(|bad| bad.to_string())?;
    let begun = feed.open(ask).await.map_err(|refused| refused.to_string())?;
    Ok(Body::from_stream(begun.body.pieces()))
}

async fn publish(journal: Journal) {
    let mut ticks = time::interval(Duration::from_millis(1_000 / COMMITS_PER_SECOND));
    let mut next = 0_u64;
    loop {
        ticks.tick().await;
        let batch = next..next + EVENTS_PER_SECOND / COMMITS_PER_SECOND;
        next = batch.end;
        let what = |number| What::Updated { db: format!("tenant-{:04}", number % DATABASES) };
        journal.publish(batch.map(what).collect());
    }
}

/// A process that ends with this.
struct Serving {
    child: Child,
    address: SocketAddr,
}

impl Serving {
    fn cpu(&self) -> Result<f64, Failure> {
        cpu(&format!("/proc/{}/stat", self.child.id()), 11)
    }

    /// Resident memory now and at most, in MB.
    fn memory(&self) -> Result<(f64, f64), Failure> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let of = |name: &str| -> Option<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.split_whitespace().next()?.parse::<f64>().ok()? * 1024.0 / 1e6)
        };
        of("VmRSS:").zip(of("VmHWM:")).ok_or_else(|| "no resident memory in status".into())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// What all readers took.
#[derive(Debug, Default)]
struct Taken {
    bytes: AtomicU64,
    /// Of the one that looks into them.
    rows: AtomicU64,
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
    let taken = Arc::new(Taken::default());
    let mut readers = JoinSet::new();
    readers.spawn(look(connect(serving.address).await?, Arc::clone(&taken)));
    for _ in 1..READERS {
        let stream = connect(serving.address).await?;
        readers.spawn(take(stream, Arc::clone(&taken)));
    }
    let mut stalled = Vec::new();
    for _ in 0..STALLED {
        stalled.push(connect(serving.address).await?);
    }
    still(&mut readers, SETTLED).await?;
    let before =
        (serving.cpu()?, taken.bytes.load(Ordering::Relaxed), taken.rows.load(Ordering::Relaxed));
    still(&mut readers, MEASURED).await?;
    let seconds = MEASURED.as_secs_f64();
    let cpu = (serving.cpu()? - before.0) / seconds;
    let bytes = (taken.bytes.load(Ordering::Relaxed) - before.1) as f64 / seconds;
    let rows = (taken.rows.load(Ordering::Relaxed) - before.2) as f64 / seconds;
    let (memory, peak) = serving.memory()?;
    say(&format!(
        "feed: {EVENTS_PER_SECOND} events a second of {DATABASES} databases, {READERS} readers that take all and {STALLED} that take nothing: {:.0} % of a core, {memory:.0} MB resident and {peak:.0} MB at most; {:.0} MB a second sent, {rows:.0} rows a second to one reader",
        cpu * 100.0,
        bytes / 1e6,
    ))
}

/// Waits, unless a reader ends.
async fn still(readers: &mut JoinSet<Result<(), Failure>>, span: Duration) -> Result<(), Failure> {
    match time::timeout(span, readers.join_next()).await {
        Err(_) => Ok(()),
        Ok(Some(Ok(Err(why)))) => Err(why),
        Ok(_) => Err("a reader ended".into()),
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream, Failure> {
    let mut stream = TcpStream::connect(address).await?;
    let head = "GET /_db_updates?feed=continuous&heartbeat=10000 HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    Ok(stream)
}

async fn take(mut stream: TcpStream, taken: Arc<Taken>) -> Result<(), Failure> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        taken.bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Reads every row, and sees that numbers rise.
async fn look(mut stream: TcpStream, taken: Arc<Taken>) -> Result<(), Failure> {
    let (mut buffer, mut text, mut last) = (vec![0; 64 << 10], Vec::new(), 0_u64);
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        taken.bytes.fetch_add(count as u64, Ordering::Relaxed);
        text.extend_from_slice(buffer.get(..count).unwrap_or_default());
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            // Others are heartbeats, and the sizes of chunks.
            let line = String::from_utf8_lossy(&line);
            let Some((_, seq)) = line.split_once("\"seq\":\"") else { continue };
            let number: u64 = seq.split('-').next().unwrap_or_default().parse()?;
            if number <= last {
                return Err(format!("{number} came behind {last}").into());
            }
            last = number;
            taken.rows.fetch_add(1, Ordering::Relaxed);
        }
    }
}
