//! Scoring and queueing a million targets from scratch, removing them in order, and rescoring a
//! thousand changed ones; and publishing a million targets of which a thousand changed.

mod numbers;

use couchdb_names::Range;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use numbers::mixed;
use recliner::{
    model::{
        channel::Channels,
        facts::{FactSource, Facts, Measurement, OptionalU64},
    },
    plan::Queues,
    table::{DbName, Draft, NodeIx, Snapshot, TargetIx},
};
use std::{hint::black_box, sync::Arc, time::Duration};
use wall_clock::Moment;

/// The allocator of the packages.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const TARGETS: u32 = 1_000_000;
const NOW: Moment = Moment::from_unix(1_795_222_434);

fn facts(seed: u64) -> Facts {
    let active = (1 << 20) + mixed(seed) % (1 << 30);
    Facts {
        file_bytes: OptionalU64::new(active * 2 + mixed(seed + 1) % (1 << 31)),
        active_bytes: OptionalU64::new(active),
        external_bytes: OptionalU64::new(active),
        update_seq: OptionalU64::new(mixed(seed + 2) % 1_000_000),
        compacted_seq: OptionalU64::new(0),
        docs: OptionalU64::new(mixed(seed + 3) % 1_000_000),
        deleted_docs: OptionalU64::new(0),
        measured_at: Some(Measurement { at: NOW, source: FactSource::Http }),
        ..Facts::default()
    }
}

/// A million copies on one node, nearly all of which some channel takes.
fn million() -> (Draft, Vec<TargetIx>) {
    let mut draft = Draft::new(100);
    let node = draft.get_or_add_node("couchdb@a");
    let ids = (0..TARGETS)
        .map(|at| {
            let name = format!("{:040}", at / 8);
            let db = draft.get_or_add_db(DbName { db: &name, suffix: ".1795222434" });
            let from = (at % 8) << 29;
            let ix =
                draft.get_or_add_shard(node, db, Some(Range { from, to: from + ((1 << 29) - 1) }));
            draft.set_facts(ix, facts(u64::from(at)));
            ix
        })
        .collect();
    (draft, ids)
}

fn channels(capacity: usize) -> Arc<Channels> {
    let mut channels = Channels::default();
    for channel in &mut channels.list {
        channel.capacity = capacity;
    }
    Arc::new(channels)
}

fn in_and_out(channels: &Arc<Channels>, snapshot: &Snapshot) -> usize {
    let mut queues = Queues::new(Arc::clone(channels));
    queues.apply_snapshot(snapshot, NOW);
    let node = NodeIx::from_usize(1).unwrap_or_default();
    let mut taken = 0;
    for channel in 0..channels.list.len() {
        while queues.pop(node, channel) {
            taken += 1;
        }
    }
    taken
}

fn bench(criterion: &mut Criterion) {
    let (mut draft, ids) = million();
    let snapshot = draft.publish(NOW);
    let mut group = criterion.benchmark_group("queues");
    group.sample_size(10);
    for (name, capacity) in [("whole", TARGETS as usize), ("default", 9_999)] {
        let channels = channels(capacity);
        group.bench_function(format!("1M scored, in and out, capacity {name}"), |bencher| {
            bencher.iter(|| black_box(in_and_out(&channels, &snapshot)));
        });
    }
    for (name, capacity) in [("whole", TARGETS as usize), ("default", 9_999)] {
        let mut queues = Queues::new(channels(capacity));
        queues.apply_snapshot(&draft.publish(NOW), NOW);
        let mut round = 0_u64;
        group.bench_function(format!("1,000 of 1M changed, capacity {name}"), |bencher| {
            bencher.iter_batched(
                || {
                    round += 1;
                    for each in 0..1_000 {
                        let at = mixed(round * 1_000 + each) % u64::from(TARGETS);
                        let ix = ids[usize::try_from(at).unwrap_or_default()];
                        draft.set_facts(ix, facts(mixed(round * 7 + each)));
                    }
                    draft.publish(NOW)
                },
                |snapshot| queues.apply_snapshot(black_box(&snapshot), NOW),
                BatchSize::PerIteration,
            );
        });
    }
    // Includes the totals and the choice of exported databases.
    let mut round = 0_u64;
    group.bench_function("1,000 of 1M changed and published", |bencher| {
        bencher.iter(|| {
            round += 1;
            for each in 0..1_000 {
                let at = mixed(round * 1_000 + each) % u64::from(TARGETS);
                let ix = ids[usize::try_from(at).unwrap_or_default()];
                draft.set_facts(ix, facts(mixed(round * 7 + each)));
            }
            black_box(draft.publish(NOW.plus(Duration::from_secs(round))))
        });
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
