//! Enforcing over a simulated cluster on paused time, judged by the requests on the wire and by the
//! world's true state.

mod no_wait;

use crate::support::{A, B, C, NODES, Rig, START, nodes};
use couchdb_sim::{Config, Database, Design, Effect, Fault, TaskKind};
use recliner::model::{
    channel::Mode,
    records::{CompactionOrder, JobOwner, JobResult, StoreError, SuspensionScope, TargetRecord},
    target::{TargetId, TargetKind},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const SECOND: Duration = Duration::from_secs(1);

/// No pause between starts, and enough free space.
const YAML: &str = "poll: 5s\nlimits: {wait: 0s, duty: 100%}\n";

fn enforcing(world: Config) -> Rig {
    Rig::in_mode(Mode::Enforce, START, slow(world), YAML)
}

/// Two ranges, two copies of each; nine tenths of every file are garbage: 20 MB active per file.
fn bloated(name: &str) -> Database {
    Database { q: 2, n: 2, docs: 40_000, doc_bytes: 1_000, bloat: 10.0, ..Database::new(name) }
}

/// Makes compactions take some tens of seconds.
fn slow(world: Config) -> Config {
    Config { compaction_rate: 1_000_000, ..world }
}

impl Rig {
    /// The paths of POST requests except logins, with their counts.
    fn posts(&self) -> BTreeMap<String, usize> {
        let mut posts = BTreeMap::new();
        for exchange in self.cluster.write_requests() {
            *posts.entry(exchange.path).or_default() += 1;
        }
        posts
    }

    /// The recorded ends of this program's jobs and of others' jobs.
    fn endings(&self) -> Vec<(TargetKind, JobOwner, JobResult)> {
        let kept = self.store.kept();
        kept.recent_outcomes
            .iter()
            .map(|outcome| (outcome.kind, outcome.owner, outcome.ending))
            .collect()
    }

    /// Orders the first file of a database by force, valid for ten minutes; returns its target.
    async fn order(&self, db: &str) -> TargetId {
        let plan = Arc::clone(&self.watch.planner.plan.borrow());
        let mut targets = plan.snapshot.targets();
        let found = targets.find(|it| it.kind() == TargetKind::Db && it.db_name().db == db);
        let id = found.expect("the database was seen").id();
        let at = self.cluster.wall();
        let ordered = CompactionOrder {
            at,
            until: at.plus(600 * SECOND),
            by: "ann".into(),
            force: true,
            run: None,
        };
        self.watch.job_state.order(id.clone(), ordered).await.expect("the change is stored");
        id
    }

    /// Lets this many seconds pass.
    async fn wait(&mut self, seconds: u32) {
        self.run_for(seconds * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn bloated_targets_are_compacted_once_and_recorded() {
    let mut rig = enforcing(nodes().with(bloated("orders")).with(bloated("users")));
    let mut most = (0, 0);
    for _ in 0..1_200 {
        rig.wait(1).await;
        let tasks = rig.cluster.world(|world| world.tasks());
        let compacts = tasks.iter().filter(|it| !matches!(it.kind, TaskKind::Indexer { .. }));
        let mut on: BTreeMap<&str, usize> = BTreeMap::new();
        compacts.for_each(|task| *on.entry(&task.node).or_default() += 1);
        most.0 = most.0.max(on.values().copied().max().unwrap_or_default());
        most.1 = most.1.max(on.values().sum());
    }

    let posts = rig.posts();
    let compacts = posts.keys().filter(|path| path.ends_with("/_compact")).count();
    assert_eq!(
        (compacts, posts.len()),
        (8, 8),
        "each copy and nothing else was compacted: {posts:#?}"
    );
    assert!(posts.values().all(|count| *count == 1), "each path once: {posts:#?}");
    assert!(posts.keys().all(|path| path.starts_with("/_node/couchdb@sim")), "{posts:#?}");
    assert!(most.0 <= 2 && most.1 <= 8, "{most:?}");
    assert_eq!(rig.endings(), vec![(TargetKind::Db, JobOwner::Recliner, JobResult::Freed); 8]);
    let kept = rig.store.kept();
    assert_eq!(kept.intents, []);
    let lean = |it: &TargetRecord| {
        let futile = it.futile.is_some_and(|futile| futile.caught_up.is_none());
        *it == TargetRecord { futile: it.futile.filter(|_| futile), ..TargetRecord::default() }
    };
    assert!(kept.remembered.values().all(lean), "{:?}", kept.remembered);
    let rate = kept.calibration.rate;
    assert!(rate.is_some_and(|rate| (5e5..2e6).contains(&rate)), "{:?}", kept.calibration);
    for outcome in &kept.recent_outcomes {
        let after = outcome.after_bytes.unwrap();
        let promised = outcome.predicted_bytes.unwrap();
        assert!(after.abs_diff(promised) * 4 < promised, "{after} and not {promised}");
    }
    let counts = rig.watch.job_state.counters.borrow().clone();
    assert_eq!(counts.started.values().sum::<u64>(), 8);
    assert_eq!(counts.finished.values().sum::<u64>(), 8);
    assert!(counts.reclaimed_bytes.values().sum::<u64>() > 8 * 100_000_000);
    assert_eq!(rig.watch.job_state.jobs.borrow().list, []);
}

#[tokio::test(start_paused = true)]
async fn process_killed_at_any_moment_starts_nothing_twice() {
    for lives in [[11, 13, 17], [40, 3, 29], [7, 60, 5]] {
        let mut rig = enforcing(nodes().with(bloated("orders")));
        for seconds in lives {
            rig.wait(seconds).await;
            rig.kill_for(Duration::ZERO).await;
        }
        rig.wait(1_200).await;
        let posts = rig.posts();
        assert_eq!(posts.len(), 4, "{posts:#?}");
        assert!(posts.values().all(|count| *count == 1), "{lives:?}: {posts:#?}");
        assert_eq!(rig.store.kept().intents, [], "every start has its outcome");
        let endings = rig.endings();
        assert_eq!(
            endings,
            vec![(TargetKind::Db, JobOwner::Recliner, JobResult::Freed); 4],
            "{lives:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_while_the_journal_cannot_be_written() {
    let mut rig = enforcing(nodes().with(bloated("orders")));
    rig.store.fails(Some(StoreError("the disk is full".into())));
    rig.wait(300).await;
    assert_eq!(rig.posts(), BTreeMap::new());
    let trouble = rig.watch.job_state.constraints.borrow().journal_failure.clone();
    assert!(trouble.is_some_and(|(_, why)| why.to_string().contains("full")));
    rig.store.fails(None);
    rig.wait(900).await;
    assert_eq!(rig.posts().len(), 4, "it recovers by itself");
    assert_eq!(rig.watch.job_state.constraints.borrow().journal_failure, None);
}

#[tokio::test(start_paused = true)]
async fn request_with_lost_response_is_not_resent() {
    let database = Database { q: 1, n: 1, placed_on: vec![A.into()], ..bloated("orders") };
    let mut rig = enforcing(nodes().with(database));
    let post = Fault { method: Some(http::Method::POST), ..Fault::everywhere(Effect::HalfBody) };
    rig.cluster.faults().plan(post.at("/_compact").times(1));
    rig.wait(300).await;
    assert_eq!(rig.posts().values().sum::<usize>(), 1, "{:#?}", rig.posts());
    assert_eq!(rig.endings(), [(TargetKind::Db, JobOwner::Recliner, JobResult::Freed)]);
}

#[tokio::test(start_paused = true)]
async fn jobs_on_a_lost_node_do_not_count_as_done() {
    let database =
        Database { q: 1, n: 1, placed_on: vec![B.into()], docs: 80_000, ..bloated("orders") };
    let mut rig = enforcing(nodes().with(database));
    rig.wait(30).await;
    assert_eq!(rig.watch.job_state.jobs.borrow().list.len(), 1);
    rig.cluster.faults().down(B);
    rig.wait(60).await;
    assert_eq!(rig.endings(), [], "an unreachable node ends no job");
    rig.cluster.faults().up(B);
    rig.wait(120).await;
    assert_eq!(rig.endings(), [(TargetKind::Db, JobOwner::Recliner, JobResult::Failed)]);
}

#[tokio::test(start_paused = true)]
async fn foreign_jobs_are_tracked() {
    let world = slow(nodes().with(bloated("orders")));
    let mut rig = Rig::in_mode(Mode::Advise, START, world, YAML);
    rig.wait(10).await;
    let snapshot = Arc::clone(&rig.watch.planner.plan.borrow().snapshot);
    let mut targets = snapshot.targets().filter(|it| it.node() == C && it.db_name().db == "orders");
    let file = targets.find_map(|target| target.shard_name()).expect("node C has a shard");
    rig.cluster.world(|world| world.compact(C, &file)).unwrap();
    rig.wait(10).await;
    let jobs = rig.watch.job_state.jobs.borrow().clone();
    let [job] = jobs.list.as_slice() else { panic!("{jobs:?}") };
    assert_eq!((&*job.key.shard, job.owner), (file.as_str(), JobOwner::Other));
    assert!(job.progress.is_some_and(|share| share > 0.0) && job.reserved_bytes > 0);
    rig.wait(120).await;
    assert_eq!(rig.endings(), [(TargetKind::Db, JobOwner::Other, JobResult::Freed)]);
    assert_eq!(
        rig.watch.job_state.counters.borrow().finished.len(),
        0,
        "it was another client's job"
    );
}

fn indexed(q: u32, n: u32) -> Config {
    let design = Design { bytes_per_doc: 1_000, bloat: 8.0, ..Design::new("by_date") };
    let designs = vec![design];
    nodes().with(Database { q, n, docs: 20_000, bloat: 1.0, designs, ..Database::new("orders") })
}

#[tokio::test(start_paused = true)]
async fn single_range_view_is_compacted_copy_by_copy() {
    let mut rig = enforcing(indexed(1, 3));
    rig.wait(600).await;
    let posts = rig.posts();
    assert_eq!(posts.len(), 3, "{posts:#?}");
    for node in NODES {
        let one = posts.keys().filter(|path| path.starts_with(&format!("/_node/{node}/")));
        assert!(one.clone().all(|path| path.ends_with("/_compact/by_date")), "{posts:#?}");
        assert_eq!(one.count(), 1, "{posts:#?}");
    }
    let recent = rig.store.kept().recent_outcomes;
    let known = recent.iter().filter(|outcome| outcome.after_bytes.is_some()).count();
    assert_eq!(known, 3, "each copy shows its size");
    assert!(
        rig.watch.job_state.constraints.borrow().partly_compacted_views.is_empty(),
        "the round is over"
    );
}

#[tokio::test(start_paused = true)]
async fn whole_view_is_one_request_and_one_outcome() {
    let yaml = format!("{YAML}views: {{enforce: all}}\n");
    let mut rig = Rig::in_mode(Mode::Enforce, START, slow(indexed(2, 2)), &yaml);
    rig.wait(600).await;
    let posts = rig.posts();
    assert_eq!(posts.into_iter().collect::<Vec<_>>(), [("/orders/_compact/by_date".to_owned(), 1)]);
    assert_eq!(rig.endings(), [(TargetKind::View, JobOwner::Recliner, JobResult::Freed)]);
    assert_eq!(rig.watch.job_state.jobs.borrow().list, []);
}

#[tokio::test(start_paused = true)]
async fn suspension_survives_restart_until_resumed() {
    let mut rig = enforcing(nodes().with(bloated("orders")));
    rig.watch.job_state.suspend(SuspensionScope::All, None, Some("backup".into())).await.unwrap();
    rig.wait(300).await;
    rig.kill_for(Duration::ZERO).await;
    assert_eq!(rig.posts(), BTreeMap::new());
    rig.wait(300).await;
    assert_eq!(rig.posts(), BTreeMap::new(), "it survives a restart");
    rig.watch.job_state.resume(SuspensionScope::All, None).await.unwrap();
    rig.wait(600).await;
    assert_eq!(rig.posts().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn active_tasks_are_read_once_per_poll_and_start() {
    let mut rig = enforcing(nodes().with(bloated("orders")));
    rig.wait(300).await;
    let wire = rig.cluster.exchanges();
    let reads = wire.iter().filter(|it| it.path.ends_with("/_active_tasks")).count();
    let starts: usize = rig.posts().values().sum();
    assert!(reads <= 3 * 61 + starts, "{reads} reads for {starts} starts");
}

#[tokio::test(start_paused = true)]
async fn jobs_running_before_the_start_count_against_limits() {
    // Not bloated, so that no queue has it: only the node's tasks show that it is being compacted.
    let created = Some(START);
    let one = |name: &str, at: &str| Database {
        q: 1,
        n: 1,
        placed_on: vec![at.to_owned()],
        created,
        ..bloated(name)
    };
    let lean = Database { bloat: 1.0, docs: 80_000, ..one("lean", A) };
    let yaml = "poll: 5s\nlimits: {wait: 0s, duty: 100%, cluster: 1}\n";
    let world = slow(nodes().with(lean).with(one("orders", B)));
    let mut rig = Rig::in_mode(Mode::Enforce, START, world, yaml);
    let file = format!("shards/00000000-ffffffff/lean.{}", START.unix());
    assert_eq!(rig.cluster.world(|world| world.compact(A, &file)), Some(true));
    rig.wait(30).await;
    assert_eq!(rig.posts(), BTreeMap::new(), "only one job may run in the cluster");
    rig.wait(300).await;
    assert_eq!(rig.posts().len(), 1);
}

/// A database that is not worth compacting.
fn lean(name: &str) -> Database {
    Database { bloat: 1.0, ..bloated(name) }
}

#[tokio::test(start_paused = true)]
async fn ordered_target_is_compacted_without_a_channel() {
    let mut rig = enforcing(nodes().with(lean("orders")));
    rig.wait(60).await;
    assert_eq!(rig.posts(), BTreeMap::new());
    let id = rig.order("orders").await;
    rig.wait(300).await;
    let posts = rig.posts();
    assert_eq!(posts.values().copied().collect::<Vec<_>>(), [1], "{posts:#?}");
    let kept = rig.store.kept();
    let [outcome] = kept.recent_outcomes.as_slice() else { panic!("{kept:?}") };
    assert_eq!((&outcome.target, outcome.ordered_by.as_deref()), (&id, Some("ann")));
    assert!(rig.watch.job_state.constraints.borrow().orders.is_empty(), "it is done");
    assert!(kept.remembered.values().all(|it| it.ordered.is_none()), "{kept:?}");
}

#[tokio::test(start_paused = true)]
async fn order_survives_restart_and_expires() {
    let mut rig = enforcing(nodes().with(lean("orders")));
    rig.wait(60).await;
    rig.watch.job_state.suspend(SuspensionScope::All, None, None).await.unwrap();
    let id = rig.order("orders").await;
    rig.wait(60).await;
    rig.kill_for(Duration::ZERO).await;
    rig.wait(60).await;
    let orders = rig.watch.job_state.constraints.borrow().orders.clone();
    assert_eq!(orders.values().map(|it| it.by.as_str()).collect::<Vec<_>>(), ["ann"]);
    assert!(rig.store.kept().remembered.contains_key(&id));
    rig.wait(600).await;
    assert!(rig.store.kept().remembered.is_empty(), "the order has expired");
    rig.watch.job_state.resume(SuspensionScope::All, None).await.unwrap();
    rig.wait(300).await;
    assert_eq!(rig.posts(), BTreeMap::new());
}
