//! Plans for a million waiting targets: with limits that allow a few starts, and with full disks, so that every target
//! is considered. Also comparisons with the previous plan, with nothing and with everything new; and plans and progress
//! during an open run.

mod numbers;

use couchdb_names::Range;
use criterion::{BatchSize, BenchmarkId, Criterion, SamplingMode, criterion_group, criterion_main};
use numbers::mixed;
use recliner::{
    model::{
        channel::{Channels, Mode},
        facts::{FactSource, Facts, Measurement, OptionalU64},
        records::{Run, RunScope, Runs},
        settings::limits::Limits,
    },
    plan::{
        Conditions, Plan, Queues, RefusalReason, Rules,
        disk::{Disks, Volume, VolumeSpace},
    },
    store::queue_recorder::{PlanHistory, Waiting},
    table::{DbName, Draft, NodeIx, Snapshot, TargetIx},
};
use std::{hint::black_box, sync::Arc, time::Duration};
use wall_clock::Moment;

const TARGETS: u32 = 1_000_000;
const NOW: Moment = Moment::from_unix(1_795_222_434);

/// A million copies on this many nodes, all of which the first channel takes.
fn million(nodes: u32) -> Arc<Snapshot> {
    let mut draft = Draft::new(100);
    let nodes: Vec<_> = (0..nodes)
        .map(|at| {
            let node = draft.get_or_add_node(&format!("couchdb@{at}"));
            draft.update_node(node, |node| node.is_member = true);
            node
        })
        .collect();
    for at in 0..TARGETS {
        let name = format!("{:040}", at / 8);
        let db = draft.get_or_add_db(DbName { db: &name, suffix: ".1795222434" });
        let from = (at % 8) << 29;
        let node = nodes[at as usize / 8 % nodes.len()];
        let ix = draft.get_or_add_shard(node, db, Some(Range { from, to: from + ((1 << 29) - 1) }));
        let active = (1 << 20) + mixed(u64::from(at)) % (1 << 30);
        let facts = Facts {
            file_bytes: OptionalU64::new(active * 3 + mixed(u64::from(at) + 1) % (1 << 31)),
            active_bytes: OptionalU64::new(active),
            measured_at: Some(Measurement { at: NOW, source: FactSource::Http }),
            ..Facts::default()
        };
        draft.set_facts(ix, facts);
    }
    draft.publish(NOW)
}

/// Conditions in which every node has a volume with this many free bytes.
fn conditions(snapshot: &Snapshot, available: u64) -> Conditions {
    let volumes = snapshot.nodes().iter().skip(1).map(|node| Volume {
        name: Arc::clone(&node.name),
        nodes: vec![Arc::clone(&node.name)],
        space: Some(VolumeSpace { available, size: None, held: None, measured_at: NOW }),
        is_stated: false,
        falling_since: None,
        problem: None,
    });
    let disks = Arc::new(Disks { volumes: volumes.collect() });
    Conditions { disks, ..Conditions::default() }
}

fn waiting_count(plan: &Plan) -> usize {
    plan.queues.iter().map(|queue| queue.queued().len()).sum()
}

fn waiting(
    (node, ix, channel, refused): (NodeIx, TargetIx, usize, Option<RefusalReason>),
) -> Waiting {
    Waiting { ix, node, channel, refused }
}

fn bench(criterion: &mut Criterion) {
    let mut channels = Channels::default();
    for channel in &mut channels.list {
        channel.capacity = TARGETS as usize;
    }
    let channels = Arc::new(channels);
    let few = Limits::default();
    let many = Limits { per_node: 1_000, cluster: 1_000, bytes_per_hour: u64::MAX, ..few };
    let mut group = criterion.benchmark_group("plan");
    group.sample_size(20);
    for nodes in [1, 100] {
        let snapshot = million(nodes);
        let mut queues = Queues::new(Arc::clone(&channels));
        queues.apply_snapshot(&snapshot, NOW);
        for (name, available, limits) in [
            ("space for all", u64::MAX, few),
            ("space for all, limits of a thousand jobs", u64::MAX, many),
            ("space for none", 1 << 20, few),
        ] {
            let conditions = conditions(&snapshot, available);
            let rules = Rules { mode: Mode::Enforce, limits, ..Rules::default() };
            let rules = Arc::new(rules);
            let plan = queues.make_plan(&snapshot, &conditions, &rules, NOW);
            let count = waiting_count(&plan);
            assert!(count * 10 > TARGETS as usize * 9, "{count} wait");
            assert_eq!(plan.starts.is_empty(), available < 1 << 30);
            if limits.per_node == few.per_node && available > 1 << 30 {
                let compare = |history: &mut PlanHistory, now: Moment| {
                    let waiting = black_box(&plan).queued_targets().map(waiting);
                    let there = |ix| plan.snapshot.target(ix).is_some();
                    history.compare(now, waiting, there, 200)
                };
                let (mut history, mut now) = (PlanHistory::default(), NOW);
                let first = compare(&mut history, now).entries;
                let queued = first.iter().map(|entry| entry.targets).sum::<u64>();
                assert_eq!(queued, waiting_count(&plan) as u64);
                group.bench_function(format!("1M on {nodes} nodes/recorder's look"), |bencher| {
                    bencher.iter(|| {
                        now = now.plus(Duration::from_secs(5));
                        compare(&mut history, now)
                    });
                });
                let first = |mut history: PlanHistory| {
                    compare(&mut history, NOW);
                    history
                };
                group.bench_function(
                    format!("1M on {nodes} nodes/recorder's first look"),
                    |bencher| {
                        bencher.iter_batched(PlanHistory::default, first, BatchSize::PerIteration);
                    },
                );
            }
            group.bench_function(
                BenchmarkId::new(format!("1M on {nodes} nodes"), name),
                |bencher| {
                    bencher.iter(|| {
                        black_box(queues.make_plan(black_box(&snapshot), &conditions, &rules, NOW))
                    });
                },
            );
        }
    }
    group.finish();
}

/// Plans and progress during an open run, compared with plans without a run.
fn bench_runs(criterion: &mut Criterion) {
    let snapshot = million(100);
    let mut group = criterion.benchmark_group("runs");
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    let db = RunScope::Database(format!("{:040}", TARGETS / 16));
    let node = RunScope::Node("couchdb@50".to_owned());
    for capacity in [9_999, 999] {
        let mut channels = Channels::default();
        channels.list.iter_mut().for_each(|channel| channel.capacity = capacity);
        let mut queues = Queues::new(Arc::new(channels));
        queues.apply_snapshot(&snapshot, NOW);
        for (name, scope, force) in [
            ("none", None, false),
            ("a database", Some(&db), false),
            ("a database, forced", Some(&db), true),
            ("a node", Some(&node), false),
            ("everything", Some(&RunScope::All), false),
            ("everything, forced", Some(&RunScope::All), true),
        ] {
            let run = scope.map(|scope| Run::beginning(scope.clone(), force, "x".into(), NOW));
            let mut conditions = conditions(&snapshot, u64::MAX);
            let runs = Runs(run.iter().map(|run| (1, run.clone())).collect());
            Arc::make_mut(&mut conditions.constraints).runs = runs;
            let rules = Arc::new(Rules { mode: Mode::Enforce, ..Rules::default() });
            let mut make = || queues.make_plan(&snapshot, &conditions, &rules, NOW);
            let plan = make();
            group.bench_function(format!("{name}, capacity {capacity}/plan"), |bencher| {
                bencher.iter(&mut make);
            });
            if let Some(run) = run {
                let progress = || plan.run_progress(1, &run, |_, _| None);
                assert!(progress().remaining() > 0);
                group.bench_function(format!("{name}, capacity {capacity}/progress"), |bencher| {
                    bencher.iter(progress);
                });
                // The cost of progress if each member were decided.
                group.bench_function(format!("{name}, capacity {capacity}/members"), |bencher| {
                    bencher.iter(|| plan.run_members(1, &run).count());
                });
                group.bench_function(format!("{name}, capacity {capacity}/end"), |bencher| {
                    bencher.iter(|| plan.run_end(1, &run, NOW));
                });
            }
        }
    }
    group.finish();
}

criterion_group!(benches, bench, bench_runs);
criterion_main!(benches);
