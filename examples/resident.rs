//! The memory of the tables over many sweeps of a cluster that is generated while it is read.
//!
//! ```text
//! cargo run --release --example resident -- --databases 1000000 --sweeps 100
//! cargo run --release --example resident -- --databases 41667 --q 8 --n 3
//! ```
//!
//! Scanner and planner run on separate threads, as in `recliner serve`; nothing is requested over
//! HTTP, so that a sweep takes seconds. With `--archive DIR` the measurements are also stored in a
//! journal there, and a later run first restores them from it. Linux only: it prints values from
//! `/proc`.

use clap::Parser;
use couchdb_names::Range;
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use recliner::{
    model::{
        channel::Channels,
        facts::{FactSource as MeasuredBy, Facts, Measurement, OptionalU64},
        settings::{self, work},
    },
    plan::{Rules, planner},
    scan,
    service::TaskSet,
    sources::inventory::{
        CopyAt, MapEntry, MapRead, Members, NodeAnswer, Observation, Reshard, Source, Stage,
    },
    store::{
        journal::{self, ClusterIdentity, DirectoryStorage, Journal},
        measurement_archive,
    },
    table::{NodeSmoosh, TableBlock},
};
use std::{
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// The allocator of the packages.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Sweep a made-up cluster again and again; it has as many nodes as copies of a range.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Databases, of one shard each
    #[arg(long, default_value_t = 1_000_000)]
    databases: usize,
    /// Ranges of each, at most 256
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    q: u32,
    /// Copies of each range
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    n: u32,
    /// Sweeps
    #[arg(long, default_value_t = 100)]
    sweeps: u64,
    /// Databases in a thousand whose sizes change between two sweeps
    #[arg(long, default_value_t = 0)]
    changing: u64,
    /// Pause after each sweep, before memory is read and the next sweep begins
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    rest: Duration,
    /// Keep the measurements in a journal in this directory
    #[arg(long)]
    archive: Option<PathBuf>,
}

impl Args {
    fn nodes(&self) -> impl Iterator<Item = String> + use<> {
        (1..=self.n).map(|node| format!("couchdb@node-{node}.example.org"))
    }

    fn ranges(&self) -> Vec<Range> {
        let ends = |part: u64| part * (1_u64 << 32) / u64::from(self.q);
        let end = |at| u32::try_from(at).unwrap_or(u32::MAX);
        let parts = 0..u64::from(self.q);
        parts.map(|part| Range { from: end(ends(part)), to: end(ends(part + 1) - 1) }).collect()
    }

    fn targets(&self) -> usize {
        self.databases * self.q as usize * self.n as usize
    }
}

/// A source that answers every stage immediately; it counts the sweeps to generate facts that
/// change.
#[derive(Debug)]
struct MadeUp {
    args: Args,
    sweeps: watch::Sender<u64>,
}

impl MadeUp {
    fn facts(&self, at: usize, now: Clock) -> Facts {
        let mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
        let changed = if mixed % 1_000 < self.args.changing { *self.sweeps.borrow() } else { 0 };
        let active = (1 << 20) + mixed % (1 << 30);
        Facts {
            file_bytes: OptionalU64::new(active * 2 + changed.wrapping_mul(mixed | 1) % (1 << 28)),
            active_bytes: OptionalU64::new(active),
            external_bytes: OptionalU64::new(active),
            update_seq: OptionalU64::new(1_000_000 + changed),
            compacted_seq: OptionalU64::new(0),
            docs: OptionalU64::new(mixed),
            deleted_docs: OptionalU64::new(0),
            measured_at: Some(Measurement { at: now.now(), source: MeasuredBy::Http }),
            ..Facts::default()
        }
    }
}

fn db(at: usize) -> String {
    format!("tenant-{at:033}")
}

impl Source for MadeUp {
    fn read(&self, stage: Stage) -> BoxStream<'static, Observation> {
        let this = Self { args: self.args.clone(), sweeps: self.sweeps.clone() };
        let databases = self.args.databases;
        let ranges = self.args.ranges();
        let seen = match stage {
            Stage::Splits => stream::iter([Observation::Reshard(Ok(Reshard::default()))]).boxed(),
            Stage::Nodes => {
                self.sweeps.send_modify(|sweeps| *sweeps += 1);
                let expected: Vec<String> = self.args.nodes().collect();
                let members = Members { connected: expected.clone(), expected };
                let nodes = self.args.nodes().map(|node| {
                    Observation::Node(NodeAnswer {
                        node,
                        up: Ok(()),
                        build: None,
                        own_address: couchdb_client::OwnAddress::Unknown,
                        smoosh: NodeSmoosh::NoDirectAddress,
                    })
                });
                let first = [
                    Observation::Members(Ok(members)),
                    Observation::Reshard(Ok(Reshard::default())),
                ];
                stream::iter(first.into_iter().chain(nodes)).boxed()
            }
            Stage::Map { .. } => {
                let nodes: Vec<String> = self.args.nodes().collect();
                let entry = move |at| MapEntry {
                    db: db(at),
                    suffix: ".1795222434".to_owned(),
                    copies: (ranges.iter())
                        .flat_map(|range| nodes.iter().map(|node| (*range, node.clone())))
                        .map(|(range, node)| CopyAt { range, node })
                        .collect(),
                    ..MapEntry::default()
                };
                let pages = (0..databases.div_ceil(500)).map(move |page| {
                    let places = page * 500..databases.min((page + 1) * 500);
                    Observation::MapPage(places.map(&entry).collect())
                });
                let end = Observation::MapEnd(Ok(MapRead::Whole));
                stream::iter(pages.chain([end])).boxed()
            }
            Stage::Files { nodes } => stream::iter(nodes)
                .map(move |node| {
                    let mut answer = String::new();
                    for at in 0..databases {
                        for range in &ranges {
                            let range = range.text();
                            let parts = ["shards/", range.as_str(), "/", &db(at), ".1795222434\n"];
                            answer.extend(parts);
                        }
                    }
                    Observation::Files { node, names: Ok(answer.lines().collect()) }
                })
                .boxed(),
            Stage::Shards { node_reads, .. } => {
                let targets = node_reads.into_iter().flat_map(|lane| lane.targets);
                stream::iter(targets.map(move |ix| Observation::Shard {
                    ix,
                    facts: Ok(Some(this.facts(ix.as_usize(), Clock::System))),
                    designs: None,
                }))
                .boxed()
            }
            Stage::Strays { .. }
            | Stage::Disk
            | Stage::Views { .. }
            | Stage::Poll { .. }
            | Stage::Away { .. } => stream::empty().boxed(),
        };
        seen.chain(stream::once(std::future::ready(Observation::StageEnded))).boxed()
    }
}

/// A line of `/proc/self/status`, in bytes.
fn memory(line: &str) -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|it| it.strip_prefix(line)?.split_whitespace().next());
    Some(kib?.parse::<usize>().ok()? << 10)
}

/// Opens the journal, on a separate thread, and reads the measurements of an earlier run.
async fn open_journal(
    args: &Args,
    directory: &Path,
    tasks: &mut TaskSet,
    stop: &CancellationToken,
) -> std::io::Result<(Journal, Vec<TableBlock>)> {
    let began = Instant::now();
    let (_settings, settings) = watch::channel(work::JournalRetention::default());
    let opened =
        journal::JournalTask::open(DirectoryStorage::new(directory), Clock::System, settings);
    let (task, journal) = opened.map_err(std::io::Error::other)?;
    let stopped = stop.clone();
    tasks.spawn_on_own_thread("journal", task.run(stopped));
    let identity = ClusterIdentity { nodes: args.nodes().collect(), ..ClusterIdentity::default() };
    journal.claim(identity).await.map_err(std::io::Error::other)?;
    let blocks = journal.load_measurements().await.map_err(std::io::Error::other)?;
    let bytes: usize = blocks.iter().map(|block| block.bytes.len()).sum();
    writeln!(
        std::io::stdout().lock(),
        "opened and read in {:?}: {} blocks, {bytes} bytes",
        began.elapsed(),
        blocks.len()
    )?;
    Ok((journal, blocks))
}

#[tokio::main(worker_threads = 1)]
async fn main() -> std::io::Result<()> {
    let args = Args::parse();
    let per_target = |bytes: Option<usize>| bytes.unwrap_or_default() / args.targets().max(1);
    let (sweeps, _) = watch::channel(0);
    let source: Arc<dyn Source> = Arc::new(MadeUp { args: args.clone(), sweeps });
    let (_source, source) = watch::channel(source);
    let (_scan, scan) = watch::channel(Arc::new(scan::ScanSettings {
        // Long enough that no sweep starts by itself: the next one is requested after the last one
        // was evaluated.
        interval: Duration::from_secs(86_400),
        interval_followed: Duration::from_secs(86_400),
        reread_after: Duration::from_secs(1),
        poll: Duration::from_secs(5),
        nodes: settings::ServedNodes::All,
        views: true,
        parts: true,
        top: 100,
    }));
    let (_plan, plan) = watch::channel(Arc::new(planner::Policy {
        channels: Arc::new(Channels::default()),
        rules: Rules::default(),
    }));
    let (scanner, handle) = scan::ScanTask::new(Clock::System, source, scan);
    let (planner, planned) = planner::PlannerTask::new(
        Clock::System,
        planner::Inputs::facts_only(handle.snapshots.clone()),
        plan,
    );
    let (mut tasks, stop) = (TaskSet::new(), CancellationToken::new());
    let mut before = Vec::new();
    if let Some(directory) = &args.archive {
        // The archive logs what it wrote and how long that took.
        tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).init();
        let (journal, blocks) = open_journal(&args, directory, &mut tasks, &stop).await?;
        before = blocks;
        let (status, snapshots) = (handle.status.clone(), handle.snapshots.clone());
        // No task here has events to store that the archive would have to wait for.
        let settled = watch::channel(u64::MAX).1;
        let (task, stopped) = (
            measurement_archive::ArchiveTask::new(status, snapshots, settled, journal),
            stop.clone(),
        );
        tasks.spawn_on_own_thread("archive", task.run(stopped));
    }
    let (restored, began) = (!before.is_empty(), Instant::now());
    let stopped = stop.clone();
    let before = scan::EarlierProcess { blocks: before, marks: Vec::new() };
    let before = std::future::ready(before);
    tasks.spawn_on_own_thread("scanner", scanner.run_after(before, stopped));
    if restored && handle.snapshots.clone().changed().await.is_ok() {
        writeln!(std::io::stdout().lock(), "shown after {:?}", began.elapsed())?;
    }
    let stopped = stop.clone();
    tasks.spawn_on_own_thread("planner", planner.run(stopped));
    let mut status = handle.status.clone();
    for sweep in 1..=args.sweeps {
        if status.wait_for(|status| status.sweeps >= sweep).await.is_err() {
            return Ok(());
        }
        let version = handle.snapshots.borrow().version();
        let mut plan = planned.plan.clone();
        if plan.wait_for(|plan| plan.snapshot.version() >= version).await.is_err() {
            return Ok(());
        }
        drop(plan);
        tokio::time::sleep(args.rest).await;
        let (now, most) = (per_target(memory("VmRSS:")), per_target(memory("VmHWM:")));
        writeln!(std::io::stdout().lock(), "sweep {sweep}: {now} bytes a target, at most {most}")?;
        if handle.send(scan::ScanCommand::Sweep).is_some() {
            return Ok(());
        }
    }
    stop.cancel();
    while tasks.next_ended().await.is_some() {}
    Ok(())
}
