//! The time that all rules of advice take, for 10,000 and for 1,000,000 targets.
//!
//! ```text
//! cargo bench --bench advice
//! ```

#[path = "../tests/seeded/mod.rs"]
mod seeded;

use couchdb_names::{Range, Signature};
use recliner::{
    advice::{AdviceInputs, AdviceView, check},
    model::{
        channel::Channels,
        facts::{FactSource, Facts, Measurement, OptionalU64},
        settings::advice::{AdviceSettings, RemedySettings},
    },
    plan::{Conditions, Queues, Rules},
    scan::ScanStatus,
    table::{DbName, Draft, NodeIx, ShardMapEntry, View},
};
use seeded::random_numbers;
use std::{io::Write as _, sync::Arc};
use tokio::time::Instant;
use wall_clock::Moment;

const NOW: Moment = Moment::from_unix(1_795_222_434);
const NODES: u64 = 12;
const ROUNDS: usize = 7;

/// Shards of each database: two ranges in three copies. Each database also has one index.
const SHARDS: u64 = 6;

type Failure = Box<dyn std::error::Error>;

fn facts(file: u64, active: u64, docs: (u64, u64), at: Moment) -> Facts {
    Facts {
        file_bytes: OptionalU64::new(file),
        active_bytes: OptionalU64::new(active),
        docs: OptionalU64::new(docs.0),
        deleted_docs: OptionalU64::new(docs.1),
        update_seq: OptionalU64::new(file / 1_000),
        compacted_seq: OptionalU64::new(0),
        measured_at: Some(Measurement { at, source: FactSource::Http }),
        ..Facts::default()
    }
}

/// A cluster with this many targets, watched for two days. Of a hundred databases one is skewed, one is
/// mostly deleted, and one has an index larger than itself.
fn inputs(targets: u64) -> AdviceInputs {
    let mut draft = Draft::new(100);
    let nodes: Vec<NodeIx> = (0..NODES)
        .map(|at| {
            let node = draft.get_or_add_node(&format!("couchdb@node{at}"));
            draft.update_node(node, |node| (node.is_member, node.is_served) = (true, true));
            node
        })
        .collect();
    let mut homes = nodes.iter().cycle();
    let mut random = random_numbers(42);
    let earlier = Moment::from_unix(NOW.unix() - 2 * 86_400);
    for number in 0..targets / (SHARDS + 1) {
        let db = draft.get_or_add_db(DbName { db: &format!("db{number}"), suffix: ".17" });
        let active = 1_000_000 + random() % 400_000_000;
        let waste = random() % active;
        let docs = if number % 100 == 1 { (10, 2_000_000) } else { (active / 1_000, 100) };
        for (at, node) in (0..SHARDS).zip(&mut homes) {
            let half = u32::MAX / 2;
            let range = if at % 2 == 0 {
                Range { from: 0, to: half }
            } else {
                Range { from: half + 1, to: u32::MAX }
            };
            let ix = draft.get_or_add_shard(*node, db, Some(range));
            let times = if number % 100 == 2 && at % 2 == 0 { 50 } else { 1 };
            let file = (active + waste) * times;
            draft.set_facts(ix, facts(file - waste / 2, active * times, docs, earlier));
            draft.set_facts(ix, facts(file, active * times, docs, NOW));
        }
        let mut signature = [0; 16];
        signature[..8].copy_from_slice(&number.to_le_bytes());
        let view = View {
            signature: Signature(signature),
            designs: Arc::new(["_design/all".into()]),
            functions: Arc::new([number]),
            ..View::default()
        };
        let ix = draft.add_view(db, view);
        let times = if number % 100 == 3 { 5 } else { 1 };
        draft.set_facts(ix, facts(active * times, active * times, docs, NOW));
        draft.set_shard_map(db, ShardMapEntry { copies: 6, ranges: 2 }, &[ix]);
    }
    let snapshot = draft.publish(NOW);
    let mut queues = Queues::new(Arc::new(Channels::default()));
    queues.apply_snapshot(&snapshot, NOW);
    let rules = Arc::new(Rules::default());
    let plan = queues.make_plan(&snapshot, &Conditions::default(), &rules, NOW);
    AdviceInputs {
        plan: Arc::new(plan),
        status: Arc::new(ScanStatus::default()),
        node_settings: Arc::default(),
        forecasts: Arc::default(),
        lags: Arc::default(),
        copies: Arc::default(),
        reads: Arc::default(),
        failed_builds: Arc::default(),
        settings: AdviceSettings::default(),
        remedy_settings: RemedySettings::default(),
    }
}

fn main() -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    for targets in [10_000, 1_000_000] {
        let inputs = inputs(targets);
        let mut times: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let began = Instant::now();
                std::hint::black_box(check(&inputs, NOW));
                began.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let view = AdviceView::found(check(&inputs, NOW), NOW);
        let codes: Vec<&str> = view.results.iter().map(|result| result.rule.code).collect();
        writeln!(
            out,
            "{targets} targets: all rules take {:.1} ms (median of {ROUNDS}, {:.1} to {:.1}); {} pieces of {}",
            times.get(ROUNDS / 2).copied().unwrap_or_default(),
            times.first().copied().unwrap_or_default(),
            times.last().copied().unwrap_or_default(),
            view.pieces(NOW).len(),
            codes.join(", ")
        )?;
    }
    Ok(())
}
