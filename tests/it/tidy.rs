//! `tidy` to its end in one process over a simulated cluster, on paused time: it makes room step by step, and stops
//! when it should.

use crate::support::{A, Rig};
use couchdb_sim::{Config, Database, Node};
use recliner::{
    model::target::TargetId,
    plan::{Plan, RefusalReason},
    service::{TidyEnd, TidyReport, TidyScope},
};
use std::{collections::BTreeSet, future::pending, time::Duration};
use tokio::time::{self, Instant};

const GB: u64 = 1_000_000_000;

/// One database of this many megabytes of live data, in a file four times as large.
fn bloated(name: &str, mb: u64) -> Database {
    Database { q: 1, n: 1, docs: mb * 1_000, bloat: 4.0, ..Database::new(name) }
}

/// A single node with a disk of this size.
fn alone(disk: u64, databases: &[(&str, u64)]) -> Config {
    let mut config = Config::new(&[A]);
    config.nodes = vec![Node { disk: Some(disk), ..Node::new(A) }];
    databases.iter().fold(config, |config, (name, mb)| config.with(bloated(name, *mb)))
}

/// Free space as a Prometheus reports it; nothing is kept free.
fn yaml(mode: &str) -> String {
    format!(
        "mode: {mode}
poll: 1s
limits: {{duty: 100%}}
headroom: {{keep_free: 0%, volumes: [{{nodes: [\"{A}\"], prometheus: {{url: \"http://prometheus:9090\", query: \"{A}\"}}}}]}}
"
    )
}

fn queued(plan: &Plan) -> BTreeSet<TargetId> {
    let ids = plan.queued_targets().filter_map(|(_, ix, ..)| Some(plan.snapshot.target(ix)?.id()));
    ids.collect()
}

/// Runs over everything that waits after the first sweep.
async fn run(
    world: Config,
    scope: TidyScope,
    interrupted: impl Future<Output = ()>,
) -> (TidyReport, Vec<String>) {
    let mut rig = Rig::new(world, &yaml("enforce"));
    rig.until(|status| status.sweeps > 0).await;
    let plan = rig.planned().await;
    let scope = TidyScope { targets: queued(&plan), ..scope };
    let store = rig.store.clone();
    let running = rig.watch.run_to_end(|| store.kept(), &scope, interrupted, |_, _| {});
    let report = time::timeout(Duration::from_secs(86_400), running).await.expect("it ends");
    let report = report.expect("it runs");
    let done = report.outcomes.iter().map(|it| it.target.database().to_owned()).collect();
    (report, done)
}

fn left(report: &TidyReport) -> Vec<(String, RefusalReason)> {
    let done: Vec<&TargetId> = report.outcomes.iter().map(|it| &it.target).collect();
    let left = report.plan.left(|_, id| done.contains(&id));
    let name = |ix| report.plan.snapshot.target(ix).expect("it is there").db_name().db.to_owned();
    left.into_iter().map(|(ix, refusal)| (name(ix), refusal.reason)).collect()
}

#[tokio::test(start_paused = true)]
async fn makes_room_step_by_step_on_a_nearly_full_volume() {
    // 9.3 GB of files on a disk of 10 GB. `large` needs 4.4 GB for a while, `middle` 0.7.
    let databases = [("large", 2_000), ("middle", 300), ("small", 20)];
    let (report, done) = run(alone(10 * GB, &databases), TidyScope::default(), pending()).await;
    assert_eq!(report.end, TidyEnd::Finished);
    assert_eq!(done, ["small", "middle"]);
    assert_eq!(left(&report), [("large".to_owned(), RefusalReason::Headroom)]);

    // With more room to gain, the large one fits in the end.
    let databases = [("large", 700), ("middle", 300), ("small", 200)];
    let (report, done) =
        run(alone(5_420_000_000, &databases), TidyScope::default(), pending()).await;
    assert_eq!(
        (report.end, &*done),
        (TidyEnd::Finished, &["small", "middle", "large"].map(str::to_owned)[..])
    );
    assert_eq!(left(&report), []);
}

#[tokio::test(start_paused = true)]
async fn stops_when_enough_is_free() {
    let world = Config {
        compaction_rate: 10_000_000,
        ..alone(12 * GB, &[("a", 700), ("b", 700), ("c", 700)])
    };
    let scope = TidyScope { until_free: Some(5 * GB), ..TidyScope::default() };
    let (report, done) = run(world, scope, pending()).await;
    assert_eq!(report.end, TidyEnd::EnoughFree);
    assert!((1..3).contains(&done.len()), "{done:?}");
    assert!(report.plan.least_free_bytes() >= Some(5 * GB));
    assert!(report.still_running.is_empty());
}

#[tokio::test(start_paused = true)]
async fn timeout_or_interrupt_leaves_running_compactions_to_couchdb() {
    let world =
        || Config { compaction_rate: 1_000_000, ..alone(12 * GB, &[("a", 700), ("b", 700)]) };
    let minute = Duration::from_secs(60);
    let scope = TidyScope { until: Some(Instant::now() + minute), ..TidyScope::default() };
    let (report, done) = run(world(), scope, pending()).await;
    assert_eq!((report.end, done.len()), (TidyEnd::TimeUp, 0));
    assert!(!report.still_running.is_empty());

    let (report, done) = run(world(), TidyScope::default(), time::sleep(minute)).await;
    assert_eq!((report.end, done.len()), (TidyEnd::Interrupted, 0));
    assert!(!report.still_running.is_empty());
}

#[tokio::test(start_paused = true)]
async fn waits_for_smoosh_and_compacts_each_file_once() {
    let mut world = alone(12 * GB, &[("a", 700), ("b", 20)]);
    world.nodes[0].smoosh = true;
    let (report, done) = run(world, TidyScope::default(), pending()).await;
    assert_eq!(report.end, TidyEnd::Finished);
    let compacted: BTreeSet<&String> = done.iter().collect();
    assert_eq!(compacted.len(), done.len(), "each file once: {done:?}");
    assert_eq!(left(&report), []);
    assert_eq!(report.plan.conditions.jobs.compactions().count(), 0);
}
