//! The memory that tables and queues take per target, which further sweeps do not increase.
//!
//! A separate test binary with a single test, because it counts every allocation of the process.

use cap::Cap;
use couchdb_names::Range;
use recliner::{
    model::{
        channel::Channels,
        facts::{FactSource, Facts, Measurement, OptionalU64},
    },
    plan::{Conditions, Plan, Queues},
    table::{DbName, Draft, NodeIx, TargetIx},
};
use std::{alloc::System, sync::Arc};
use wall_clock::Moment;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const TARGETS: usize = 20_000;
const WHOLE: Range = Range { from: 0, to: u32::MAX };

/// Tables, queues, and the plan that readers hold.
struct Cluster {
    draft: Draft,
    node: NodeIx,
    queues: Queues,
    plan: Plan,
    targets: Vec<TargetIx>,
    /// The number of databases created so far, used in names.
    made: usize,
}

impl Cluster {
    fn new() -> Self {
        let mut draft = Draft::new(100);
        let node = draft.get_or_add_node("couchdb@a");
        draft.update_node(node, |node| node.is_member = true);
        let queues = Queues::new(Arc::new(Channels::default()));
        let targets = Vec::with_capacity(TARGETS);
        Self { draft, node, queues, plan: Plan::default(), targets, made: 0 }
    }

    fn make(&mut self) -> TargetIx {
        self.made += 1;
        let name = format!("tenant-{:033}", self.made);
        let db = self.draft.get_or_add_db(DbName { db: &name, suffix: ".1795222434" });
        self.draft.get_or_add_shard(self.node, db, Some(WHOLE))
    }

    /// Measures every target, and publishes at intervals as the scanner does; some targets change,
    /// and some databases are deleted and others created.
    fn sweep(&mut self, number: u64) {
        let now = Moment::from_unix(1_795_222_434 + number * 300);
        for at in 0..TARGETS {
            let mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 30;
            if mixed % 200 == number % 200 {
                if let Some(gone) = self.targets.get(at) {
                    self.draft.remove(*gone);
                }
                let new = self.make();
                if let Some(place) = self.targets.get_mut(at) {
                    *place = new;
                }
            }
            let changed = if mixed % 50 == number % 50 { number + 1 } else { 0 };
            let facts = Facts {
                file_bytes: OptionalU64::new(mixed * (3 + changed)),
                active_bytes: OptionalU64::new(mixed),
                external_bytes: OptionalU64::new(mixed),
                measured_at: Some(Measurement { at: now, source: FactSource::Http }),
                ..Facts::default()
            };
            self.draft.set_facts(self.targets[at], facts);
            if at % 2_000 == 0 {
                self.publish(now);
            }
        }
        self.publish(now);
    }

    fn publish(&mut self, now: Moment) {
        let _taken = self.draft.take_movements();
        let snapshot = self.draft.publish(now);
        self.queues.apply_snapshot(&snapshot, now);
        let conditions = Conditions::default();
        self.plan = self.queues.make_plan(&snapshot, &conditions, &Arc::default(), now);
    }
}

#[test]
fn memory_per_target_is_small_and_constant() {
    let before = ALLOCATOR.allocated();
    let mut cluster = Cluster::new();
    for _ in 0..TARGETS {
        let ix = cluster.make();
        cluster.targets.push(ix);
    }
    // The memory of the test's own list, which is not the tables'.
    let own = cluster.targets.capacity() * size_of::<TargetIx>();
    let bytes = || (ALLOCATOR.allocated() - before - own) / TARGETS;
    // Enough sweeps to fill the bounded list of the latest replaced files.
    for sweep in 0..6 {
        cluster.sweep(sweep);
    }
    let few = bytes();
    for sweep in 6..30 {
        cluster.sweep(sweep);
    }
    let many = bytes();
    // Per target, about thirty bytes are its identity, thirty-two are for rent and growth, and fifteen are the share of
    // the list of replaced files, whose size is fixed.
    assert!(few <= 318, "{few} bytes a target after six sweeps");
    assert!(many <= few + 4, "{few} bytes a target after six sweeps, {many} after thirty");
    assert_eq!(cluster.plan.snapshot.targets().count(), TARGETS);
}
