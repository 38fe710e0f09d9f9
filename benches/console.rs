//! The cost of the console: of each page and of the search over 1,000,000 targets, of 50 open pages for scanner
//! and planner there, and of 200 open pages for a service.
//!
//! ```text
//! cargo bench --bench console
//! cargo bench --bench console -- pages
//! cargo bench --bench console -- beside
//! cargo bench --bench console -- open
//! ```
//!
//! The last one runs `recliner demo`, whose numbers change every second. Linux only: it reads `/proc`.

mod memory;
mod surface;

use axum::{
    Router,
    body::Body,
    http::{Request, header},
};
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _, stdout},
    process::{Child, Command, Stdio},
    time::Duration,
};
use surface::db_name;
use tokio::{
    runtime::Runtime,
    task::JoinSet,
    time::{self, Instant},
};
use tower::ServiceExt as _;

/// The allocator of the packages.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A million targets, at nine per database.
const DATABASES: usize = 111_112;

/// How often each page is requested.
const TIMES: usize = 21;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let wanted = |name: &str| {
        let named: Vec<String> = env::args().skip(1).filter(|it| !it.starts_with("--")).collect();
        named.is_empty() || named.iter().any(|it| it == name)
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    if wanted("pages") || wanted("beside") {
        let (router, sweep) = surface::over(DATABASES, 100, true);
        if wanted("pages") {
            runtime.block_on(pages(&router))?;
        }
        if wanted("beside") {
            beside(&runtime, &router, sweep)?;
        }
    }
    if wanted("open") {
        runtime.block_on(open_pages())?;
    }
    Ok(())
}

fn paths() -> Vec<String> {
    let db = db_name(77_777).replace('/', "%2F");
    let shard = format!("shards%252F00000000-1fffffff%252F{}.1521590400", db.replace('%', "%25"));
    let mut paths: Vec<String> = [
        "/",
        "/databases",
        "/databases?sort=growth_week_bytes",
        "/databases?sort=db&offset=50000",
        "/databases?search=0077777",
        "/targets",
        "/targets?sort=db",
        "/targets?sort=priority&offset=500000",
        "/targets?search=0077777",
        "/targets?search=BY-DAY&sort=file_bytes",
        "/targets?search=no-such-name",
        "/targets?reason=mode&channel=ratio_dbs",
        "/queue",
        "/jobs",
        "/nodes",
        "/advice",
        "/what-if",
        "/configuration",
        "/status",
        "/act?order=rescan",
    ]
    .map(str::to_owned)
    .into();
    paths.push(format!("/database?name={db}"));
    paths.push(format!("/target?id=db%3Acouchdb%40node-2.example.org%2F{shard}"));
    paths
}

/// The times to the first and the last byte, and the number of bytes.
async fn ask(router: &Router, path: &str) -> Result<(Duration, Duration, usize), Failure> {
    let request = Request::get(path).header(header::ACCEPT_ENCODING, "gzip").body(Body::empty())?;
    let begun = Instant::now();
    let Ok(answer) = router.clone().oneshot(request).await;
    if !answer.status().is_success() {
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        return Err(format!("{path}: {status}: {} bytes", body.len()).into());
    }
    let (mut body, mut first, mut bytes) = (answer.into_body(), None, 0);
    while let Some(frame) = body.frame().await {
        first.get_or_insert_with(|| begun.elapsed());
        bytes += frame?.data_ref().map_or(0, |data| data.len());
    }
    let whole = begun.elapsed();
    Ok((first.unwrap_or(whole), whole, bytes))
}

async fn pages(router: &Router) -> Result<(), Failure> {
    let mut out = stdout().lock();
    writeln!(
        out,
        "{:<48}{:>12}{:>12}{:>12}{:>10}",
        "page", "first byte", "median", "most", "gzip"
    )?;
    for path in paths() {
        let (mut firsts, mut wholes, mut size) = (Vec::new(), Vec::new(), 0);
        for _ in 0..TIMES {
            let (first, whole, bytes) = ask(router, &path).await?;
            firsts.push(first);
            wholes.push(whole);
            size = bytes;
        }
        firsts.sort_unstable();
        wholes.sort_unstable();
        let shown: String = path.chars().take(46).collect();
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        let middle = TIMES / 2;
        let kb = format!("{:.1} kB", size as f64 / 1e3);
        let [first, median] = [&firsts, &wholes].map(|times| ms(times[middle]));
        writeln!(out, "{shown:<48}{first:>12}{median:>12}{:>12}{kb:>10}", ms(wholes[TIMES - 1]))?;
    }
    Ok(())
}

/// This many distinct pages: first those with the most content, then targets and databases.
fn distinct(count: usize) -> Vec<String> {
    let fixed = ["", "targets", "queue", "jobs", "nodes", "advice", "status", "targets?sort=db"];
    let searched = (0..count).map(|at| match at % 2 {
        0 => format!("targets?search={:05}", at * 131),
        _ => format!("database?name={}", db_name(at * 97).replace('/', "%2F")),
    });
    fixed.map(str::to_owned).into_iter().chain(searched).take(count).collect()
}

/// Reads the live streams of these pages to their ends.
async fn follow(router: Router, pages: Vec<String>) {
    let mut readers = JoinSet::new();
    for page in pages {
        let page = page.replace('%', "%25").replace('&', "%26").replace('?', "%3F");
        let router = router.clone();
        readers.spawn(async move {
            let request = Request::get(format!("/live?page={page}")).body(Body::empty());
            let Ok(request) = request else { return };
            let Ok(answer) = router.oneshot(request).await;
            let mut body = answer.into_body();
            while body.frame().await.is_some() {}
        });
    }
    while readers.join_next().await.is_some() {}
}

/// The CPU time of this thread, which excludes other programs.
fn on_cpu() -> Result<Duration, Failure> {
    let stat = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = stat.split_whitespace().next().ok_or("schedstat is empty")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

/// The CPU time of scanner and planner for a sweep that finds one shard in a hundred changed, with and without 50 open
/// pages.
fn beside(
    runtime: &Runtime,
    router: &Router,
    mut sweep: impl FnMut(usize, u64),
) -> Result<(), Failure> {
    const ROUNDS: usize = 10;
    const BLOCKS: usize = 6;
    let rest = |span| runtime.block_on(async move { time::sleep(span).await });
    let (mut alone, mut beside, mut number) = (Vec::new(), Vec::new(), 0);
    let mut round = |times: &mut Vec<Duration>| -> Result<(), Failure> {
        number += 1;
        let begun = on_cpu()?;
        sweep(100, number);
        times.push(on_cpu()?.saturating_sub(begun));
        // Pages get this much time to show the sweep, as between two sweeps.
        rest(Duration::from_millis(500));
        Ok(())
    };
    for _ in 0..BLOCKS {
        (0..ROUNDS).try_for_each(|_| round(&mut alone))?;
        let pages = runtime.spawn(follow(router.clone(), distinct(50)));
        rest(Duration::from_secs(10));
        (0..ROUNDS).try_for_each(|_| round(&mut beside))?;
        pages.abort();
        rest(Duration::from_secs(3));
    }
    let mut out = stdout().lock();
    for (name, mut times) in [("alone", alone), ("beside 50 open pages", beside)] {
        times.sort_unstable();
        let [least, median] = [0, times.len() / 2].map(|at| times[at].as_secs_f64() * 1e3);
        writeln!(
            out,
            "CPU of a sweep and its plan {name}: median {median:.1} ms, least {least:.1} ms"
        )?;
    }
    Ok(())
}

/// A process that ends when this value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Seconds of CPU time that a process has used.
fn cpu(process: u32) -> Result<f64, Failure> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let after_name = stat.rsplit(')').next().ok_or("stat has no name")?;
    let ticks = after_name.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    // Linux counts 100 ticks per second here, whatever its own clock rate.
    Ok(ticks.sum::<Result<f64, _>>()? / 100.0)
}

/// A demo's usage over a time: the share of a core, and its memory at the end.
async fn cpu_and_memory(process: u32, over: Duration) -> Result<(f64, f64), Failure> {
    let before = cpu(process)?;
    time::sleep(over).await;
    let share = (cpu(process)? - before) / over.as_secs_f64();
    Ok((share, memory::resident(process)?.0))
}

/// The cost of 200 open pages for a demo: 200 readers of the same ten pages, and 200 readers of 200
/// pages.
async fn open_pages() -> Result<(), Failure> {
    const OVER: Duration = Duration::from_secs(30);
    let mut command = Command::new(env!("CARGO_BIN_EXE_recliner"));
    command
        .args(["demo", "--faults", "--web.listen-address", "127.0.0.1:0"])
        .stderr(Stdio::piped());
    let mut demo = Running(command.spawn()?);
    let (process, stderr) = (demo.0.id(), demo.0.stderr.take().ok_or("it is not piped")?);
    let mut lines = BufReader::new(stderr).lines();
    let base = loop {
        let line = lines.next().ok_or("the demo ended")??;
        if let Some(rest) = line.strip_prefix("Open ") {
            break rest.split(' ').next().unwrap_or_default().trim_end_matches('/').to_owned();
        }
    };
    // The output is read to the end, so that the demo never blocks on it.
    std::thread::spawn(move || lines.for_each(drop));
    rustls::crypto::ring::default_provider().install_default().map_err(|_| "a provider twice")?;
    time::sleep(Duration::from_secs(60)).await;
    let (mut before, _) = cpu_and_memory(process, OVER).await?;
    let (_, mut resident) = cpu_and_memory(process, Duration::from_millis(100)).await?;
    say("no page", before, resident, 0.0, 0.0)?;
    let shared = |at: usize| {
        let pages = ["", "targets", "queue", "jobs", "events", "nodes", "advice", "status"];
        pages[at % pages.len()].to_owned()
    };
    let own = |at: usize| format!("targets?search={at}");
    let kinds: [(&str, &dyn Fn(usize) -> String); 2] =
        [("200 pages, 8 of them distinct", &shared), ("200 distinct pages", &own)];
    for (name, page) in kinds {
        let http = reqwest::Client::builder().no_proxy().build()?;
        let mut readers = JoinSet::new();
        for at in 0..200 {
            let page = page(at).replace('?', "%3F").replace('&', "%26");
            let request = http.get(format!("{base}/live?page={page}"));
            readers.spawn(async move {
                let Ok(answer) = request.send().await else { return 0 };
                let mut stream = answer.bytes_stream();
                let mut bytes = 0;
                while let Some(Ok(piece)) = stream.next().await {
                    bytes += piece.len();
                }
                bytes
            });
        }
        time::sleep(Duration::from_secs(20)).await;
        let (share, now) = cpu_and_memory(process, OVER).await?;
        say(name, share, now, share - before, now - resident)?;
        readers.abort_all();
        while readers.join_next().await.is_some() {}
        time::sleep(Duration::from_secs(10)).await;
        (before, resident) = cpu_and_memory(process, OVER).await?;
        say("no page", before, resident, 0.0, 0.0)?;
    }
    Ok(())
}

fn say(name: &str, share: f64, resident: f64, more: f64, grown: f64) -> std::io::Result<()> {
    writeln!(
        stdout().lock(),
        "{name}: {:.2} % of a core ({:+.2}), {resident:.1} MB ({grown:+.1})",
        share * 100.0,
        more * 100.0
    )
}
