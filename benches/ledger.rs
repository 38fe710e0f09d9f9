//! The ledger's cost at 1,000,000 shards, of which one in a hundred changes between two sweeps, an hour apart.
//!
//! ```text
//! cargo bench --bench ledger
//! ```
//!
//! It prints the CPU time that a sweep spends on the books, beside that of writing all changed facts into the tables;
//! the bytes that the books take in memory; and the bytes that are stored for a year: 360 hours and 400 days.

#[path = "../tests/seeded/mod.rs"]
mod seeded;

use couchdb_names::Range;
use recliner::{
    ledger::{Books, Bucket},
    model::facts::{Facts, OptionalU64},
    table::{DbName, Draft, NodeIx, ShardMapEntry, TargetIx},
};
use seeded::random_numbers;
use std::{
    collections::BTreeMap,
    error::Error,
    io::{self, Write as _},
    time::Duration,
};
use tokio::time::Instant;
use wall_clock::Moment;

const TARGETS: usize = 1_000_000;
const CHANGED: usize = TARGETS / 100;
const NODES: usize = 100;
/// Hourly sweeps: more than the books keep by the hour, so that days are summed up too.
const SWEEPS: u64 = 40 * 24;
const HOUR: Duration = Duration::from_secs(3_600);
const WHOLE: Range = Range { from: 0, to: u32::MAX };
const KEPT_HOURS: f64 = 360.0;
const KEPT_DAYS: f64 = 400.0;

fn facts(file: u64, active: u64, seq: u64) -> Facts {
    Facts {
        file_bytes: OptionalU64::new(file),
        active_bytes: OptionalU64::new(active),
        update_seq: OptionalU64::new(seq),
        ..Facts::default()
    }
}

/// One shard in each database, on nodes in turn.
fn cluster() -> (Draft, Vec<TargetIx>) {
    let mut draft = Draft::new(100);
    let nodes: Vec<NodeIx> =
        (0..NODES).map(|at| draft.get_or_add_node(&format!("couchdb@node-{at}"))).collect();
    let targets = (0..TARGETS).map(|at| {
        let db = draft.get_or_add_db(DbName { db: &format!("database-{at:031}"), suffix: ".1" });
        draft.set_shard_map(db, ShardMapEntry { copies: 1, ranges: 1 }, &[]);
        let ix = draft.get_or_add_shard(nodes[at % NODES], db, Some(WHOLE));
        draft.set_facts(ix, facts(100_000, 50_000, 1));
        ix
    });
    let targets = targets.collect();
    (draft, targets)
}

#[derive(Default)]
struct Spent {
    facts: Duration,
    books: Duration,
    storing: Duration,
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut draft, targets) = cluster();
    let mut now = Moment::from_unix(1_800_000_000);
    let mut books = Books::resume(None, HOUR, now);
    let mut random = random_numbers(1);
    let mut below = move |limit: u64| random() % limit;
    let mut stored: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut spent = Spent::default();
    for sweep in 0..SWEEPS {
        now = now.plus(HOUR);
        let begin = Instant::now();
        for _ in 0..CHANGED {
            let ix = targets[usize::try_from(below(TARGETS as u64))?];
            let grown = below(1 << 20);
            let file = 100_000 + (sweep << 20) + grown;
            draft.set_facts(ix, facts(file, 50_000 + grown / 3, sweep + 2));
        }
        for node in 0..=NODES {
            let node = NodeIx::from_usize(node).ok_or("too many nodes")?;
            draft.update_node(node, |node| {
                (node.is_member, node.is_served) = (true, true);
                node.last_success = Some(now);
            });
        }
        draft.set_sweep_duration(HOUR);
        let read = Instant::now();
        books.receive(draft.take_movements(), now);
        let booked = Instant::now();
        store(&mut books, &mut stored)?;
        spent.facts += read - begin;
        spent.books += booked - read;
        spent.storing += booked.elapsed();
    }
    let each = |all: Duration| all.as_secs_f64() * 1_000.0 / SWEEPS as f64;
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "a sweep, in ms: {:.1} for {CHANGED} changed facts, {:.1} for the books, {:.1} to store them",
        each(spent.facts),
        each(spent.books),
        each(spent.storing)
    )?;
    let is_daily = |bytes: &Vec<u8>| Bucket::decode(bytes).is_some_and(|bucket| bucket.is_daily);
    let (days, hours): (Vec<_>, Vec<_>) = stored.values().partition(|bytes| is_daily(bytes));
    let mean = |all: &[&Vec<u8>]| {
        all.iter().map(|bytes| bytes.len()).sum::<usize>() as f64 / all.len().max(1) as f64
    };
    let (hour, day) = (mean(&hours), mean(&days));
    writeln!(
        out,
        "stored: {hour:.0} bytes an hour ({}), {day:.0} a day ({}); {:.1} MB for a year",
        hours.len(),
        days.len(),
        KEPT_HOURS.mul_add(hour, KEPT_DAYS * day) / 1e6
    )?;
    let held = books.encode().ok_or("the books cannot be encoded")?.len();
    writeln!(
        out,
        "the books themselves: {held} bytes, {:.3} a target",
        held as f64 / TARGETS as f64
    )?;
    Ok(())
}

/// Stores buckets, as the task does.
fn store(books: &mut Books, stored: &mut BTreeMap<u32, Vec<u8>>) -> Result<(), Box<dyn Error>> {
    if let Some(numbers) = books.due_merge() {
        let buckets = numbers.iter().filter_map(|number| Bucket::decode(stored.get(number)?));
        let buckets = buckets.collect();
        books.merge(&numbers, buckets);
    }
    let (buckets, removed) = books.to_save();
    for bucket in buckets {
        stored.insert(bucket.number, bucket.encode().ok_or("a bucket cannot be encoded")?);
    }
    for number in removed {
        stored.remove(number);
    }
    books.saved();
    Ok(())
}
