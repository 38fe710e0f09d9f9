//! Simulated clusters enforced over hours and days: what was compacted and when, as one
//! text, and a judge that reads the wire and the world's own record alone.

pub(crate) mod judge;

use crate::support::{A, B, Rig, nodes, small};
use judge::timeline;
use recliner::{
    memory::Ordered,
    plan::Answer,
    sim::{Config, Database, Node},
};
use std::time::Duration;
use tokio::time::sleep;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// A database of one range whose files are several times what is live, of about `mb`
/// megabytes live.
fn bloated(name: &str, mb: u64) -> Database {
    Database { q: 1, n: 1, docs: mb * 1_000, bloat: 4.0, ..Database::new(name) }
}

fn on(database: Database, node: &str) -> Database {
    Database { placed_on: vec![node.to_owned()], ..database }
}

const ENFORCE: &str = "mode: enforce\nscan: {interval: 10m}\npoll: 5s\n";

/// Space enough on every node.
const ROOM: &str = "headroom: {volumes: [{nodes: [couchdb@sim-1.local], available: 1TB}, {nodes: [couchdb@sim-2.local], available: 1TB}, {nodes: [couchdb@sim-3.local], available: 1TB}]}\n";

fn roomy() -> String {
    format!("{ENFORCE}{ROOM}")
}

#[tokio::test(start_paused = true)]
async fn in_advise_nothing_is_sent_however_much_waits() {
    let world = nodes().with(bloated("orders", 500)).with(bloated("users", 300));
    let mut rig = Rig::new(world, "scan: {interval: 10m}\n");
    rig.sweep().await;
    sleep(6 * HOUR).await;
    assert_eq!(rig.cluster.orders(), []);
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_compacted_one_careful_start_at_a_time() {
    let world = nodes()
        .with(on(bloated("orders", 2_000), A))
        .with(on(bloated("users", 1_000), A))
        .with(on(bloated("logs", 500), B))
        .with(small("quiet", 5_000));
    let rig = Rig::new(world, &roomy());
    sleep(HOUR).await;
    insta::assert_snapshot!(timeline(&rig.cluster));
}

#[tokio::test(start_paused = true)]
async fn copies_of_a_range_are_compacted_one_after_the_other() {
    let world = nodes().with(Database { n: 3, ..bloated("orders", 1_000) });
    let rig = Rig::new(world, &roomy());
    sleep(2 * HOUR).await;
    insta::assert_snapshot!(timeline(&rig.cluster));
}

#[tokio::test(start_paused = true)]
async fn a_start_that_does_not_fit_waits_and_one_that_does_goes() {
    let disk = |name: &str| Node { disk: Some(13_000_000_000), ..Node::new(name) };
    let world = Config { nodes: vec![disk(A)], ..nodes() }
        .with(on(bloated("huge", 2_000), A))
        .with(on(bloated("small", 200), A));
    // 13 GB hold 8.8 GB of files; the huge one's peak of 4.4 GB does not fit above a tenth.
    let yaml = format!("{ENFORCE}headroom: {{volumes: [{{nodes: [\"{A}\"], available: 4GB}}]}}\n");
    let rig = Rig::new(world, &yaml);
    sleep(2 * HOUR).await;
    insta::assert_snapshot!(timeline(&rig.cluster));
}

#[tokio::test(start_paused = true)]
async fn outside_its_window_nothing_starts() {
    // The test begins at 03:00 UTC on a Saturday.
    let yaml = format!(
        "{ENFORCE}{ROOM}channels:\n  - {{name: nightly, kind: db, priority: ratio, windows: [{{days: [mon-sun], from: \"05:00\", to: \"06:00\", zone: UTC}}]}}\n"
    );
    let world = nodes().with(on(bloated("orders", 500), A)).with(on(bloated("users", 400), A));
    let rig = Rig::new(world, &yaml);
    sleep(24 * HOUR).await;
    insta::assert_snapshot!(timeline(&rig.cluster));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_restarts_loses_its_job_and_gets_it_again() {
    let world = nodes().with(on(bloated("orders", 10_000), A));
    let rig = Rig::new(world, &roomy());
    sleep(2 * MINUTE).await;
    rig.cluster.faults().restart(A);
    sleep(2 * HOUR).await;
    insta::assert_snapshot!(timeline(&rig.cluster));
}

#[tokio::test(start_paused = true)]
async fn what_was_ordered_waits_for_its_limit_and_then_goes_first() {
    let best = Database { bloat: 6.0, ..bloated("orders", 10_000) };
    let lean = Database { bloat: 1.0, ..bloated("quiet", 300) };
    let world = nodes().with(on(best, A)).with(on(bloated("users", 500), A)).with(on(lean, A));
    let rig = Rig::new(world, &roomy());
    sleep(2 * MINUTE).await;
    let plan = rig.watch.planner.plan.borrow().clone();
    let quiet = plan.snapshot.targets().find(|it| it.db_name().db == "quiet").expect("it is there");
    let now = rig.cluster.wall();
    let ordered = Ordered { at: now, until: now.plus(HOUR), by: "ann".into(), force: true };
    let planned = rig.watch.planner.what_if(quiet.ix(), ordered.clone()).await.expect("it plans");
    let answer = planned.answer(planned.snapshot.target(quiet.ix()).expect("it is there"));
    let Answer::Waits(request, refusal) = answer else { panic!("{answer:?}") };
    assert_eq!(refusal.reason.label(), "channel_limit");
    rig.watch.follower.order(quiet.id(), ordered).await.expect("it is kept");
    sleep(2 * HOUR).await;
    let timeline = timeline(&rig.cluster);
    let order: Vec<&str> = timeline.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(order, ["orders", "quiet", "users"], "{timeline}");
    let sent = rig.cluster.orders();
    assert!(sent.iter().any(|it| it.path == request.path), "{request} and {sent:?}");
}
