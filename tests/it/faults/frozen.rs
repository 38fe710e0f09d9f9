//! A node whose process is stopped with open sockets delays nothing that other nodes can answer by
//! themselves.

use super::{facts_of, split, world};
use crate::support::{A, B, C, Rig, START, dbs_seen, dbs_there, small, targets, urls_of};
use couchdb_names::ShardName;
use couchdb_sim::{Config, Database, Design};
use recliner::{
    config::Flags,
    model::target::{TargetKind, TargetState},
    plan::Plan,
};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Longer than any test runs: connections to the node stay open.
const NEVER: Duration = Duration::from_secs(86_400);

/// Frequent sweeps, which are the only source of changes.
const OFTEN: &str = "scan: {interval: 30s}\nfollow: {enabled: false}\n\
    couchdb: {trust_node_hosts: [\"*.local\"]}\n";

/// Frequent sweeps without any node's own address.
const OFTEN_BY_ONE_URL: &str = "scan: {interval: 30s}\nfollow: {enabled: false}\n";

/// Only B has so many databases with views that waiting for each in turn would take an hour; and a split is running.
fn with_much_on_b() -> Config {
    let splits = Database { splitting: true, q: 2, ..Database::new("splits") };
    (0..200).fold(world().with(splits), |world, at| {
        let name = format!("there-{at}");
        let designs = vec![Design::new("w")];
        let placed_on = vec![B.to_owned()];
        world.with(Database { n: 1, q: 1, placed_on, designs, ..small(&name, 10) })
    })
}

fn flags(ways_in: &[usize]) -> Flags {
    let urls = urls_of(&world()).couchdb_urls;
    Flags {
        couchdb_urls: ways_in.iter().map(|at| urls[*at].clone()).collect(),
        couchdb_username: Some("admin".into()),
        env_password: Some("secret".into()),
        ..Flags::default()
    }
}

/// When a node was last read completely, in seconds since the start.
fn last_success(plan: &Plan, of: &str) -> Option<u64> {
    let nodes = plan.snapshot.nodes();
    let at = nodes.iter().find(|node| &*node.name == of)?.last_success?;
    Some(at.unix() - START.unix())
}

/// Observations of the healthy nodes over a while.
#[derive(Debug, Default)]
struct Watched {
    /// The maximum age, in seconds, of a healthy node's last complete reading.
    oldest: u64,
    /// When all healthy nodes had been read for the first time, in seconds since the start.
    first: Option<u64>,
    /// Shard files that were reported as unused or missing.
    amiss: Vec<String>,
}

async fn observe(rig: &mut Rig, start: Instant, healthy: [&str; 2], span: Duration) -> Watched {
    let mut watched = Watched::default();
    let end = Instant::now() + span;
    while Instant::now() < end {
        sleep(Duration::from_millis(500)).await;
        let plan = rig.planned().await;
        let now = start.elapsed().as_secs();
        let successes = healthy.map(|node| last_success(&plan, node));
        if successes.iter().all(Option::is_some) {
            watched.first.get_or_insert(now);
        }
        for at in successes {
            watched.oldest = watched.oldest.max(now - at.unwrap_or_default());
        }
        let amiss = targets(&plan, TargetKind::Db)
            .filter(|target| matches!(target.state(), TargetState::Orphan | TargetState::Missing));
        watched.amiss.extend(amiss.map(|target| target.id().to_string()));
    }
    watched
}

/// Healthy nodes are swept every 30 s and never more than a few seconds late: in the first sweep
/// and later, whether or not the cluster ever considers the frozen node down, whichever server is
/// the entry point, and whenever in a sweep the freeze happens.
#[tokio::test(start_paused = true)]
async fn frozen_node_does_not_delay_healthy_nodes() {
    let minute = Duration::from_secs(60);
    for (ways_in, ahead, given_up_after, late) in [
        (&[0][..], None, minute, 3),
        (&[0], None, NEVER, 3),
        (&[0], Some(0), minute, 3),
        (&[0], Some(1), NEVER, 3),
        (&[0, 1, 2], None, NEVER, 3),
        (&[0, 1, 2], Some(0), minute, 6),
        (&[0, 1, 2], Some(20), NEVER, 6),
        // The only entry point hangs; by now the other nodes' own addresses are known.
        (&[1], Some(1), NEVER, 6),
        (&[1], Some(20), minute, 6),
    ] {
        let case = format!(
            "ways in {ways_in:?}, frozen {ahead:?} s before a sweep, given up after {given_up_after:?}"
        );
        let start = Instant::now();
        let mut rig = Rig::with_flags(with_much_on_b(), OFTEN, flags(ways_in));
        if let Some(ahead) = ahead {
            // Sweeps begin at 0, 30, 60 ...
            sleep(Duration::from_secs(119 - ahead)).await;
            assert!(rig.status().progress.is_none(), "{case}");
        }
        let frozen_at = start.elapsed().as_secs();
        rig.cluster.faults().freeze(B, given_up_after);
        let span = Duration::from_secs(300);
        let watched = observe(&mut rig, start, [A, C], span).await;
        assert!(watched.oldest <= 30 + late, "{case}: {watched:?}");
        assert_eq!(watched.amiss, Vec::<String>::new(), "{case}");
        if ahead.is_none() {
            assert!(watched.first.is_some_and(|at| at <= 12), "{case}: {watched:?}");
        }
        let plan = rig.planned().await;
        assert!(last_success(&plan, B).unwrap_or_default() <= frozen_at, "{case}");
        let cluster = last_success(&plan, "_cluster").unwrap_or_default();
        assert!(cluster <= 120, "{case}: nobody can say that the whole cluster was read");
        for (node, reason) in rig.errors() {
            assert!([B, "_cluster"].contains(&&*node), "{case}: {node} {reason}");
        }
    }
}

/// All requests go through one server, which waits for the frozen node if asked about it.
#[tokio::test(start_paused = true)]
async fn healthy_nodes_are_read_in_time_through_one_url() {
    for (ahead, late) in [(0, 6), (1, 6), (20, 6)] {
        let start = Instant::now();
        let mut rig = Rig::with_flags(with_much_on_b(), OFTEN_BY_ONE_URL, flags(&[0]));
        sleep(Duration::from_secs(119 - ahead)).await;
        rig.cluster.faults().freeze(B, NEVER);
        let watched = observe(&mut rig, start, [A, C], Duration::from_secs(300)).await;
        assert!(watched.oldest <= 30 + late, "{ahead} s before a sweep: {watched:?}");
        assert_eq!(watched.amiss, Vec::<String>::new(), "{ahead} s before a sweep");
    }
}

#[tokio::test(start_paused = true)]
async fn node_freezing_during_a_sweep_delays_no_other() {
    let world = (0..100).fold(world(), |world, at| world.with(small(&format!("db-{at}"), 10)));
    let yaml = "couchdb: {cold_reads_per_second: 10, trust_node_hosts: [\"*.local\"]}\n\
        scan: {interval: 24h}\n";
    let start = Instant::now();
    let mut rig = Rig::with_flags(world, yaml, flags(&[0]));
    sleep(Duration::from_secs(5)).await;
    rig.cluster.faults().freeze(B, NEVER);
    let watched = observe(&mut rig, start, [A, C], Duration::from_secs(40)).await;
    // About 110 shards, ten per second.
    assert!(watched.first.is_some_and(|at| at <= 12), "{watched:?}");
    let plan = rig.planned().await;
    assert_eq!(last_success(&plan, B), None);
}

#[tokio::test(start_paused = true)]
async fn frozen_node_hides_only_its_own_changes() {
    let mut rig = Rig::with_flags(with_much_on_b(), OFTEN, flags(&[0, 1, 2]));
    rig.until(|status| status.sweeps > 1).await;
    let there = |rig: &Rig| {
        dbs_there(&rig.cluster, |_, file| match ShardName::split(file) {
            Some(shard) if shard.db == "splits" && shard.range.to <= u32::MAX / 2 => {
                TargetState::Resharding
            }
            _ => TargetState::Ok,
        })
    };
    let plan = rig.planned().await;
    assert_eq!(dbs_seen(&plan), there(&rig));
    let before = facts_of(&plan, B);
    rig.cluster.faults().freeze(B, Duration::from_secs(60));
    for _ in 0..5 {
        rig.cluster.world(|world| world.write("app", 100));
        sleep(Duration::from_secs(40)).await;
        let plan = rig.planned().await;
        let (_, healthy) = split(dbs_seen(&plan), B);
        assert_eq!(healthy, split(there(&rig), B).1);
        assert_eq!(facts_of(&plan, B), before, "the last facts about B stay");
    }
    rig.cluster.faults().thaw(B);
    sleep(Duration::from_secs(20)).await;
    let plan = rig.planned().await;
    assert_eq!(dbs_seen(&plan), there(&rig));
    assert_eq!(rig.status().last_success, rig.status().last_end);
}

/// B is read at once although no sweep is due for long and requests to B are paused for a minute by
/// then.
#[tokio::test(start_paused = true)]
async fn node_is_read_at_once_after_a_freeze() {
    for (given_up_after, within) in [(Duration::from_secs(60), 10), (NEVER, 10)] {
        let start = Instant::now();
        let yaml = "scan: {interval: 20m}\nfollow: {enabled: false}\n";
        let mut rig = Rig::with_flags(with_much_on_b(), yaml, flags(&[0]));
        sleep(Duration::from_secs(1_190)).await;
        rig.cluster.faults().freeze(B, given_up_after);
        sleep(Duration::from_secs(300)).await;
        let before = rig.status().sweeps;
        rig.cluster.faults().thaw(B);
        let back = start.elapsed().as_secs();
        let healed = |plan: &Plan| {
            ["_cluster", A, B, C].iter().all(|it| last_success(plan, it) >= Some(back))
        };
        rig.plan_where(healed).await;
        let took = start.elapsed().as_secs() - back;
        assert!(took <= within, "{took} s, given up after {given_up_after:?}");
        assert!(rig.status().sweeps <= before + 2);
    }
}
