//! One stream of writes to a real CouchDB, and its cost with different compactors.
//!
//! The program creates databases, writes to them at a fixed rate, and reads the state of every file
//! all the while: its size, its active bytes, and when it was compacted. It starts no compaction.
//! So the same stream can be run with smoosh, with recliner and without a compactor, and the tables
//! can be compared. Give each run a cluster with fresh data:
//!
//! ```text
//! export RECLINER_TEST_COUCHDB_URL=http://127.0.0.1:5984
//! export RECLINER_TEST_COUCHDB_USER=admin RECLINER_TEST_COUCHDB_PASSWORD=...
//!
//! # 1. smoosh as it comes
//! cargo run --release --example smoosh_bench -- --label smoosh
//!
//! # 2. recliner in its place: in the file mode: enforce, and
//! #    smoosh: {mode: takeover, takeover: [ratio_dbs, slack_dbs, upgrade_dbs, ratio_views,
//! #    slack_views, upgrade_views, index_cleanup]}
//! recliner serve --config.file bench.yml &
//! cargo run --release --example smoosh_bench -- --label recliner
//!
//! # 3. nobody: every channel of smoosh with concurrency 0
//! cargo run --release --example smoosh_bench -- --label nobody
//! ```
//!
//! The URL may be a list separated by commas; writes go to the URLs in turn. The login has to be a
//! server admin's. Only databases with the prefix `--prefix` are touched; they must not exist
//! before, and are deleted at the end unless `--keep` is given.
//!
//! The writes depend only on `--seed`, `--seconds` and `--rate`, not on how fast CouchDB responds:
//! if CouchDB falls behind, the same writes come later, and the table says by how much. There are
//! ten databases of different shapes: orders (new and changed documents), sessions (which are
//! deleted again), counters (few documents that change all the time), an archive (which only
//! grows), one with a view, and small tenants.
//!
//! Sizes are those that CouchDB reports for each file on each node. A shard copy was compacted when
//! its `compacted_seq` changed, a copy of a view when its file shrank. Bytes freed and rewritten
//! are the differences between the readings just before and just after, so that writes between two
//! readings blur them equally for every compactor. A compaction's own temporary files do not show
//! over HTTP: give the nodes' data directories by `--du` to count the blocks of all their files.
//! Bytes wasted are file size minus active size, over all copies, averaged over all readings from
//! the first write to the last.

mod couch;
mod shapes;
mod tally;
mod writer;

use clap::Parser;
use couch::{Couch, Failure};
use std::{io::Write as _, path::PathBuf, sync::Arc, time::Duration};
use tally::Tally;
use tokio::{
    task::JoinSet,
    time::{self, Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

/// Write a reproducible stream to a CouchDB and report what compacting it cost
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Name of this run in the table
    #[arg(long, default_value = "run")]
    label: String,
    /// Seconds of writing
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Documents written a second, to all databases together
    #[arg(long, default_value_t = 200)]
    rate: u64,
    /// Seed; another one writes other documents
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds between two readings of all files
    #[arg(long, default_value_t = 2)]
    every: u64,
    /// Seconds to go on looking after the last write; they count for freed and rewritten
    /// bytes and for the peaks, not for the mean
    #[arg(long, default_value_t = 60)]
    settle: u64,
    /// A node's data directory, to count every block in it; repeat it for each node
    #[arg(long, value_name = "DIR")]
    du: Vec<PathBuf>,
    /// Prefix of the databases' names
    #[arg(long, default_value = "recliner-bench-")]
    prefix: String,
    /// Keep the databases
    #[arg(long)]
    keep: bool,
}

/// Reads the sizes of all files repeatedly until `stop`.
async fn look(
    couch: Arc<Couch>,
    args: Args,
    mut tally: Tally,
    written: CancellationToken,
    stop: CancellationToken,
) -> Result<Tally, Failure> {
    let mut tick = time::interval(Duration::from_secs(args.every));
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while !stop.is_cancelled() {
        tick.tick().await;
        let sizes = couch.sizes(tally.files()).await?;
        let dirs = args.du.clone();
        let blocks = tokio::task::spawn_blocking(move || tally::blocks(&dirs)).await?;
        tally.add(sizes, blocks, !written.is_cancelled());
    }
    Ok(tally)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args = Args::parse();
    let couch = Arc::new(Couch::named()?);
    let shapes = shapes::all(&args.prefix);
    for shape in &shapes {
        couch.create(shape).await?;
    }
    let files = couch.files(&args.prefix, &shapes).await?;
    writeln!(std::io::stderr(), "{} files on {} nodes", files.len(), couch.nodes().await?.len())?;

    let (written, stop) = (CancellationToken::new(), CancellationToken::new());
    let mut looks = JoinSet::new();
    looks.spawn(look(
        Arc::clone(&couch),
        args.clone(),
        Tally::new(files),
        written.clone(),
        stop.clone(),
    ));
    let mut writers = JoinSet::new();
    let whole: u64 = shapes.iter().map(|shape| shape.weight).sum();
    for (at, shape) in shapes.iter().enumerate() {
        let plan = writer::Plan {
            start: Instant::now(),
            seconds: args.seconds,
            per_second: args.rate as f64 * shape.weight as f64 / whole as f64,
            seed: args.seed.wrapping_mul(1_000).wrapping_add(at as u64),
        };
        writers.spawn(writer::write(Arc::clone(&couch), shape.clone(), plan));
    }
    let mut stream = writer::Written::default();
    while let Some(ended) = writers.join_next().await {
        stream.add(ended??);
    }
    written.cancel();
    time::sleep(Duration::from_secs(args.settle)).await;
    stop.cancel();
    let tally = looks.join_next().await.ok_or("nobody looked")???;
    if !args.keep {
        for shape in &shapes {
            couch.delete(shape).await?;
        }
    }
    let table = tally.table(&args.label, &stream);
    Ok(writeln!(std::io::stdout().lock(), "{table}")?)
}
