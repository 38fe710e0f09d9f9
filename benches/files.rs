//! A data directory of 100,000 real files: the walk and the whole `scan`, compared with `find` on
//! the same tree in the same run; a walk of changed files alone; memory and reads per file.
//!
//! `RECLINER_BENCH_FILES` sets the number of files. `RECLINER_BENCH_COLD=1` adds a round after
//! dropping the kernel's caches, which needs root.

use cap::Cap;
use recliner::{
    datadir::{NodeDirectories, WalkCache, walk},
    text::Label as _,
};
use serde_json::Value;
use std::{
    alloc::System,
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};
use tempfile::TempDir;
use tokio::time::Instant;
use wall_clock::Clock;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

type Failure = Box<dyn std::error::Error + Send + Sync>;

const ROUNDS: usize = 9;
const THREADS: usize = 2;

/// Sample files that are small enough to have a hundred thousand of them.
const DBS: [&str; 6] = [
    "deletes.couch",
    "comp_none.couch",
    "compacted_local.couch",
    "compacted_no_local.couch",
    "purged.couch",
    "empty.couch",
];
const VIEWS: [&str; 4] =
    ["view_multi.view", "comp_none.view", "mango.view", "view_big_header.view"];

fn say(line: &str) -> Result<(), Failure> {
    Ok(writeln!(std::io::stdout().lock(), "{line}")?)
}

fn set() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/couchdb-files/tests/data")
}

/// Creates the tree: half of the files are shards, half their indexes, each an independent copy.
fn tree(files: usize) -> Result<TempDir, Failure> {
    let all: Value = serde_json::from_slice(&fs::read(set().join("expected.json"))?)?;
    let read = |name: &&str| fs::read(set().join(name));
    let dbs = DBS.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let views = VIEWS.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let named: Vec<&str> = VIEWS
        .iter()
        .map(|name| all[name]["parsed"]["signature"].as_str().unwrap_or_default())
        .collect();
    let root = tempfile::tempdir()?;
    for at in 0..files / 2 {
        let range = format!("{:08x}-{:08x}", (at % 8) << 29, ((at % 8 + 1) << 29) - 1);
        let shard = format!("shards/{range}/customer-{:06}.1795222434", at / 8);
        let file = root.path().join(format!("{shard}.couch"));
        let index = root.path().join(format!(".{shard}_design/mrview"));
        if at < 8 {
            fs::create_dir_all(file.parent().ok_or("no parent")?)?;
        }
        fs::create_dir_all(&index)?;
        fs::write(file, &dbs[at % dbs.len()])?;
        let view = at % views.len();
        fs::write(index.join(format!("{}.view", named[view])), &views[view])?;
    }
    Ok(root)
}

fn find(root: &Path) -> Result<Duration, Failure> {
    let began = Instant::now();
    let ended = Command::new("find")
        .arg(root)
        .args(["-type", "f", "-printf", "%s\n"])
        .stdout(Stdio::null())
        .status()?;
    if ended.success() { Ok(began.elapsed()) } else { Err("find failed".into()) }
}

/// Runs one walk; returns its duration, its cache and the number of found files.
fn run_walk(
    roots: &NodeDirectories,
    before: &WalkCache,
) -> Result<(Duration, WalkCache, usize), Failure> {
    let found = AtomicUsize::new(0);
    let began = Instant::now();
    let walked = walk(roots, before, THREADS, Clock::System.now(), &|batch| {
        found.fetch_add(batch.len(), Ordering::Relaxed);
        true
    });
    let walked = walked.map_err(|why| why.problem.label())?;
    Ok((began.elapsed(), walked.cache, found.into_inner()))
}

fn scan(root: &Path) -> Result<Duration, Failure> {
    let began = Instant::now();
    let ended = Command::new(env!("CARGO_BIN_EXE_recliner"))
        .args(["scan", "--node", "couchdb@a", "--data-dir"])
        .arg(root)
        .stdout(Stdio::null())
        .status()?;
    if ended.success() { Ok(began.elapsed()) } else { Err("scan failed".into()) }
}

/// The read calls of this process so far.
fn reads() -> Result<u64, Failure> {
    let io = fs::read_to_string("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("syscr: ")).ok_or("no syscr")?;
    Ok(line.trim().parse()?)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn print_ratio(what: &str, times: Vec<Duration>, beside: &[Duration]) -> Result<(), Failure> {
    let ratios = times.iter().zip(beside).map(|(one, other)| one.div_duration_f64(*other));
    let mut ratios: Vec<f64> = ratios.collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let (least, most) = (ratios.first().copied(), ratios.last().copied());
    say(&format!(
        "{what}: median {:?}, {:.2} of find's in the same round ({:.2} to {:.2})",
        median(times),
        ratios.get(ratios.len() / 2).copied().unwrap_or_default(),
        least.unwrap_or_default(),
        most.unwrap_or_default(),
    ))
}

fn main() -> Result<(), Failure> {
    let files = env::var("RECLINER_BENCH_FILES").ok().and_then(|count| count.parse().ok());
    let files: usize = files.unwrap_or(100_000);
    let root = tree(files)?;
    let roots = NodeDirectories { data: root.path().to_owned(), views: None };
    // Warms the kernel's caches for the whole tree.
    find(root.path())?;
    run_walk(&roots, &WalkCache::default())?;

    let before = ALLOCATOR.allocated();
    let began = reads()?;
    let (_, known, found) = run_walk(&roots, &WalkCache::default())?;
    let read = reads()? - began;
    let kept = ALLOCATOR.allocated().saturating_sub(before);
    say(&format!(
        "{found} files found, {} kept in {:.1} bytes each, {:.2} reads each",
        known.len(),
        kept as f64 / known.len() as f64,
        read as f64 / found as f64,
    ))?;

    let (mut finds, mut first, mut again, mut whole) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        finds.push(find(root.path())?);
        first.push(run_walk(&roots, &WalkCache::default())?.0);
        again.push(run_walk(&roots, &known)?.0);
        whole.push(scan(root.path())?);
    }
    say(&format!("find: median {:?}", median(finds.clone())))?;
    print_ratio("walk that reads every file", first, &finds)?;
    print_ratio("walk in which nothing changed", again, &finds)?;
    print_ratio("recliner scan --data-dir, start and end included", whole, &finds)?;

    if env::var_os("RECLINER_BENCH_COLD").is_some() {
        let forget = || fs::write("/proc/sys/vm/drop_caches", "3");
        forget()?;
        let cold = find(root.path())?;
        forget()?;
        let walk = run_walk(&roots, &WalkCache::default())?.0;
        say(&format!("cold, once: find {cold:?}, walk {walk:?}"))?;
    }
    Ok(())
}
