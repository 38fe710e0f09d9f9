//! The time to simulate the next seven days, the memory that this takes beside the tables, and the time of one
//! step of the advice scorecard, for 10,000 and for 1,000,000 targets, with their results.
//!
//! ```text
//! cargo bench --bench what_if
//! ```

mod memory;
#[path = "../tests/seeded/mod.rs"]
mod seeded;

use memory::resident;
use recliner::{
    model::{
        channel::{ChannelPreset, Channels},
        facts::{FactSource, Facts, Measurement, OptionalU64},
    },
    plan::{Conditions, Plan, Queues, Rules},
    table::{DbName, Draft, NodeIx},
    what_if::{
        Outlooks, Policy, Present, Proposal,
        scorecard::{CompactionTotals, Scorecard},
    },
};
use seeded::random_numbers;
use std::{fs, io::Write as _, process, sync::Arc, time::Duration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wall_clock::Moment;

const NOW: u64 = 1_795_222_434;
const HOUR: u64 = 3_600;
const WEEK: Duration = Duration::from_secs(7 * 86_400);
const NODES: u64 = 12;

type Failure = Box<dyn std::error::Error>;

/// A log-normal number around `median`, from numbers between zero and one.
fn log_normal(mut next: impl FnMut() -> f64, median: f64, spread: f64) -> f64 {
    let normal: f64 = (0..12).map(|_| next()).sum::<f64>() - 6.0;
    median * (spread * normal).exp()
}

fn facts(file: f64, active: f64, seq: u64, read: u64) -> Facts {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    let bytes = |bytes: f64| OptionalU64::new(bytes as u64);
    Facts {
        file_bytes: bytes(file),
        active_bytes: bytes(active),
        docs: OptionalU64::new(1_000),
        deleted_docs: OptionalU64::new(0),
        update_seq: OptionalU64::new(seq),
        compacted_seq: OptionalU64::new(0),
        measured_at: Some(Measurement { at: Moment::from_unix(read), source: FactSource::Http }),
        ..Facts::default()
    }
}

/// A cluster with this many shards, watched for a day; sizes and write rates are log-normal, and
/// four fifths of the shards are idle.
fn present(targets: u64) -> Present {
    let mut draft = Draft::new(100);
    let nodes: Vec<NodeIx> = (0..NODES)
        .map(|at| {
            let node = draft.get_or_add_node(&format!("couchdb@node{at}"));
            draft.update_node(node, |node| node.is_member = true);
            node
        })
        .collect();
    let mut words = random_numbers(42);
    let mut next = || (words() >> 11) as f64 / (1_u64 << 53) as f64;
    for (at, node) in (0..targets).zip(nodes.iter().cycle()) {
        let name = format!("db{at}");
        let db = draft.get_or_add_db(DbName { db: &name, suffix: ".17" });
        let ix = draft.get_or_add_shard(*node, db, None);
        let active = log_normal(&mut next, 50e6, 1.5);
        let garbage = if next() < 0.8 { 0.0 } else { log_normal(&mut next, 100.0, 1.5) };
        let waste = active * next();
        for hours in [24, 12, 0] {
            let grown = garbage * ((24 - hours) * HOUR) as f64;
            let seq = 1_000 + (24 - hours);
            draft.set_facts(ix, facts(active + waste + grown, active, seq, NOW - hours * HOUR));
        }
    }
    let now = Moment::from_unix(NOW);
    Present { snapshot: draft.publish(now), conditions: Conditions::default(), now }
}

fn proposals() -> Vec<Proposal> {
    let smoosh = Policy::smoosh(&Channels::default());
    let rent = Channels { list: ChannelPreset::Rent.channels(), ..Channels::default() };
    let rent = Policy { channels: Arc::new(rent), ..smoosh.clone() };
    let in_force = Policy { rules: Rules::default(), ..smoosh.clone() };
    [
        ("nothing", None),
        ("smoosh", Some(smoosh)),
        ("in force", Some(in_force)),
        ("rent", Some(rent)),
    ]
    .map(|(name, policy)| Proposal { name: name.to_owned(), policy })
    .into()
}

fn say(text: &str) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}

/// The plan of a service in advise mode.
fn advise_plan(present: &Present) -> Plan {
    let rules = Arc::new(Rules { fresh_for: WEEK, ..Policy::smoosh(&Channels::default()).rules });
    let mut queues = Queues::new(Arc::default());
    queues.apply_snapshot(&present.snapshot, present.now);
    queues.make_plan(&present.snapshot, &present.conditions, &rules, present.now)
}

/// Runs steps of the scorecard over this many minutes: their mean and maximum duration, and the
/// compactions found.
fn steps(present: &Present, minutes: u32) -> String {
    let minute = Duration::from_secs(60);
    let (plan, mut scorecard) = (advise_plan(present), Scorecard::default());
    let (mut longest, mut all) = (Duration::ZERO, Duration::ZERO);
    for at in 0..minutes {
        let now = present.now.plus(minute * at);
        let began = Instant::now();
        scorecard.step(&plan, CompactionTotals::default(), now, Some(minute));
        let took = began.elapsed();
        longest = longest.max(took);
        all += took;
    }
    let view = scorecard.view(present.now);
    format!(
        "a step of the scorecard: {:.3} s, at most {:.3} s; {} compactions in {minutes} minutes",
        (all / minutes).as_secs_f64(),
        longest.as_secs_f64(),
        view.counters.compactions,
    )
}

fn main() -> Result<(), Failure> {
    for targets in [10_000, 1_000_000] {
        say(&format!("{targets} targets, {}", steps(&present(targets), 240)))?;
    }
    for targets in [10_000, 1_000_000] {
        let present = present(targets);
        for proposal in proposals() {
            let name = proposal.name.clone();
            // Resets the peak memory.
            fs::write("/proc/self/clear_refs", "5")?;
            let (before, _) = resident(process::id())?;
            let began = Instant::now();
            let stop = CancellationToken::new();
            let outlook = Outlooks::new(&present, WEEK, &stop)?.outlook(&proposal);
            let took = began.elapsed();
            let (_, peak) = resident(process::id())?;
            say(&format!(
                "{targets} targets, {name}: {:.2} s, {:.0} MB more than {before:.0}; mean waste {:.0} GB, {:.0} GB written, {} compactions{}",
                took.as_secs_f64(),
                peak - before,
                outlook.mean_waste() as f64 / 1e9,
                outlook.rewritten_bytes as f64 / 1e9,
                outlook.compactions,
                if outlook.is_coarse { ", in batches" } else { "" },
            ))?;
        }
    }
    Ok(())
}
