//! Simulated clusters over hours and days: what was compacted and when, as a text, and a judge.
//! Each scenario runs twice, first in advise mode, where nothing may be sent.

mod catch_up;
mod duty;
pub(crate) mod judge;
mod learning;
mod rent;
mod runs;
mod scorecard;
mod smoosh;
mod space;
mod timeline;
mod times;
mod troubles;

use crate::support::{A, B, C, Rig, START, nodes, small};
use couchdb_sim::{Config, Database, Design, Node};
use recliner::{
    model::{channel::Mode, records::CompactionOrder, target::TargetKind},
    plan::{Decision, OrderAnswer},
    serve::report::why,
    text::Label,
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use timeline::timeline;
use wall_clock::Moment;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// A database of one range with about `mb` megabytes of live data and files four times as large.
fn bloated(name: &str, mb: u64) -> Database {
    Database { q: 1, n: 1, docs: mb * 1_000, bloat: 4.0, ..Database::new(name) }
}

fn on(node: &str, database: Database) -> Database {
    Database { placed_on: vec![node.to_owned()], ..database }
}

/// A cluster of one node, because simulating days of more is expensive.
fn alone(node: Node) -> Config {
    Config { nodes: vec![node], ..nodes() }
}

/// Realistic intervals, as an operator would set them.
const PACE: &str = "scan: {interval: 10m}\npoll: 5s\n";

/// Enough free space on every node.
fn roomy() -> String {
    format!("{PACE}{}", volumes(&[(&[A, B, C], "available: 100TB")]))
}

/// Starts are spaced by a fixed time and not by the work, so that a timeline shows the other rules.
const SPACED: &str = "limits: {wait: 30s, duty: 100%}\n";

/// As [`roomy`] but with less frequent polls, for hours in which little happens.
fn unhurried() -> String {
    roomy().replace("poll: 5s", "poll: 20s")
}

/// Volumes: the nodes on each, and the source of its free space.
fn volumes(all: &[(&[&str], &str)]) -> String {
    let each = all.iter().map(|(nodes, free)| {
        let nodes: Vec<String> = nodes.iter().map(|node| format!("\"{node}\"")).collect();
        format!("{{nodes: [{}], {free}}}", nodes.join(", "))
    });
    format!("headroom: {{volumes: [{}]}}\n", each.collect::<Vec<_>>().join(", "))
}

/// The free space of a node's own disk, as a Prometheus would report it.
fn measured(node: &str) -> String {
    format!("prometheus: {{url: \"http://prometheus:9090\", query: \"{node}\"}}")
}

/// Runs a scenario from the usual start time.
async fn run_scenario(world: Config, yaml: &str, scene: impl AsyncFn(&mut Rig)) -> String {
    run_scenario_from(START, world, yaml, scene).await
}

/// Runs a scenario in advise mode, then in enforce mode, and returns the timeline of the second.
async fn run_scenario_from(
    start: Moment,
    world: Config,
    yaml: &str,
    scene: impl AsyncFn(&mut Rig),
) -> String {
    let mut report = String::new();
    for mode in [Mode::Advise, Mode::Enforce] {
        let mut rig = Rig::in_mode(mode, start, world.clone(), yaml);
        scene(&mut rig).await;
        report = timeline(&rig.record());
    }
    report
}

#[tokio::test(start_paused = true)]
async fn waiting_targets_start_one_at_a_time() {
    let world = nodes()
        .with(on(A, bloated("orders", 2_000)))
        .with(on(A, bloated("users", 1_000)))
        .with(on(B, bloated("logs", 500)))
        .with(small("quiet", 5_000));
    let report = run_scenario(world, &roomy(), async |rig| rig.run_for(HOUR).await).await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn copies_of_a_range_are_compacted_one_after_another() {
    let world = nodes().with(Database { n: 3, ..bloated("orders", 1_000) });
    let report = run_scenario(world, &roomy(), async |rig| rig.run_for(HOUR).await).await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn a_busy_cluster_stays_within_its_limits() {
    let mut world = nodes();
    for (at, node) in [A, B, C, A, B, C, A, B, C].into_iter().enumerate() {
        world = world.with(on(node, bloated(&format!("db{at}"), 500 + 100 * at as u64)));
    }
    let yaml = roomy()
        + "limits: {per_node: 1, cluster: 2, wait: 10s, duty: 100%, bytes_per_hour: 20GB}\n";
    let report = run_scenario(world, &yaml, async |rig| {
        rig.run_for(5 * MINUTE).await;
        rig.note_refusals();
        rig.run_for(2 * HOUR).await;
    })
    .await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn views_are_compacted_copy_by_copy_and_not_during_builds() {
    let design = |name: &str| Design { bytes_per_doc: 2_000, bloat: 6.0, ..Design::new(name) };
    let behind = Design { built: 0.2, views: vec!["late".into()], ..design("late") };
    let database = |name: &str, q, designs| Database {
        q,
        n: 3,
        docs: 200_000,
        bloat: 1.1,
        designs,
        stale_index_bytes: 0,
        ..Database::new(name)
    };
    let world = nodes()
        .with(database("orders", 1, vec![design("by_date"), behind]))
        .with(database("users", 2, vec![design("by_name")]));
    let whole = unhurried() + "views: {enforce: all}\nlimits: {per_node: 3}\n";
    let report = run_scenario(world, &unhurried(), async |rig| {
        rig.run_for(20 * MINUTE).await;
        rig.note_refusals();
        rig.note("the index that is behind is built");
        rig.cluster.world(|world| world.build("orders", "late"));
        rig.run_for(40 * MINUTE).await;
        rig.note("whole design documents may be compacted");
        rig.reconfigure(&whole);
        rig.run_for(HOUR).await;
    })
    .await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn multi_node_view_is_not_starved_by_single_files() {
    let design = Design { bytes_per_doc: 2_000, bloat: 3.0, ..Design::new("by_name") };
    let placed_on = vec![A.to_owned(), B.to_owned()];
    let view = Database { q: 2, n: 1, docs: 200_000, bloat: 1.1, placed_on, ..small("users", 0) };
    let mut world = nodes().with(Database { designs: vec![design], docs: 200_000, ..view });
    for at in 0..16 {
        // Compactions of two lengths, so that the nodes are never idle at the same time.
        world = world.with(on(A, bloated(&format!("a{at}"), 2_000)));
        world = world.with(on(B, bloated(&format!("b{at}"), 3_100)));
    }
    let yaml = roomy()
        + "views: {enforce: all}\n\
           limits: {per_node: 1, wait: 10s, duty: 100%, bytes_per_hour: 100TB}\n";
    let report = run_scenario(world, &yaml, async |rig| {
        rig.run_for(Duration::from_secs(328)).await;
        let plan = Arc::clone(&rig.watch.planner.plan.borrow());
        let refused = plan.snapshot.targets().filter_map(|target| match plan.decision(target) {
            Decision::Refused(refusal) => Some((target.kind(), why(&plan, target, &refusal))),
            Decision::Start | Decision::NotTaken => None,
        });
        let reasons: BTreeSet<(TargetKind, String)> = refused.collect();
        for (kind, why) in reasons {
            rig.note(format!("{}: {why}", kind.label()));
        }
        rig.run_for(10 * MINUTE).await;
    })
    .await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn an_order_waits_for_its_limit_and_then_starts_first() {
    let best = Database { bloat: 6.0, ..bloated("orders", 10_000) };
    let lean = Database { bloat: 1.0, ..bloated("quiet", 300) };
    let world = nodes().with(on(A, best)).with(on(A, bloated("users", 500))).with(on(A, lean));
    let mut rig = Rig::in_mode(Mode::Enforce, START, world, &roomy());
    rig.run_for(2 * MINUTE).await;
    let plan = rig.watch.planner.plan.borrow().clone();
    let quiet =
        plan.snapshot.targets().find(|it| it.db_name().db == "quiet").expect("the target exists");
    let now = rig.cluster.wall();
    let ordered = CompactionOrder {
        at: now,
        until: now.plus(HOUR),
        by: "ann".into(),
        force: true,
        run: None,
    };
    let planned = rig
        .watch
        .planner
        .plan_if_ordered(quiet.ix(), ordered.clone())
        .await
        .expect("the planner answers");
    let answer =
        planned.order_answer(planned.snapshot.target(quiet.ix()).expect("the target exists"));
    let OrderAnswer::Waits(request, refusal) = answer else { panic!("{answer:?}") };
    assert_eq!(refusal.reason.label(), "channel_limit");
    rig.watch.job_state.order(quiet.id(), ordered).await.expect("the change is stored");
    rig.run_for(HOUR).await;
    insta::assert_snapshot!(timeline(&rig.record()));
    let sent = rig.cluster.write_requests();
    assert!(sent.iter().any(|it| it.path == request.path), "{request} and {sent:?}");
}
