//! Channels by rent over horizons: what starts when, despite kills and clock changes.

use super::*;
use couchdb_sim::Compaction;

/// A quarter of the default: rent is counted in horizons, and every simulated hour costs time.
const HORIZON_SECONDS: i64 = 6 * 3_600;

/// A 24th of the horizon.
const PART: Duration = Duration::from_secs(HORIZON_SECONDS.unsigned_abs() / 24);

/// Databases without writes: garbage is three times the live data, as much as it, and a tenth of
/// it.
fn idle() -> Config {
    let with = |name: &str, bloat: f64| on(A, Database { bloat, ..bloated(name, 1_000) });
    alone(Node::new(A)).with(with("three", 4.0)).with(with("half", 2.0)).with(with("tenth", 1.1))
}

/// When they are due, in parts: nominally at 8 and 24 parts, but earlier because a compaction also shrinks the live
/// data, which is then cheaper to write and frees more.
const AS_DUE: [(&str, f64); 2] = [("three", 7.1), ("half", 21.3)];

fn by_rent() -> String {
    // Polls only see how jobs end.
    let pace = unhurried().replace("poll: 20s", "poll: 30s");
    let pace = pace.replace("scan: {interval: 10m}", "scan: {interval: 150s}");
    pace + "channels: [{name: dbs, kind: db, priority: rent, horizon: 6h, concurrency: 1}]\n"
}

/// When each database was compacted, in parts from the start.
fn compaction_times(rig: &Rig) -> Vec<(String, f64)> {
    let all: Vec<Compaction> = rig.cluster.world(|world| world.compactions());
    let name =
        |file: &str| file.rsplit('/').next().unwrap_or(file).split('.').next().map(String::from);
    let at = |one: &Compaction| one.began.as_secs_f64() / PART.as_secs_f64();
    all.iter().map(|one| (name(&one.shard).unwrap_or_default(), at(one))).collect()
}

/// Asserts that databases were compacted in this order, each at about this time.
fn assert_compacted(rig: &Rig, expected: &[(&str, f64)]) {
    let times = compaction_times(rig);
    let alike = |(name, at): &(String, f64), (wanted, when): &(&str, f64)| {
        name == wanted && (at - when).abs() < 0.05 * when + 0.2
    };
    let all = times.len() == expected.len()
        && times.iter().zip(expected).all(|(times, expected)| alike(times, expected));
    assert!(all, "{times:?}, and not {expected:?}");
}

#[tokio::test(start_paused = true)]
async fn target_starts_when_its_rent_equals_the_rewrite_cost() {
    let mut rig = Rig::in_mode(Mode::Enforce, START, idle(), &by_rent());
    rig.run_for(30 * PART).await;
    assert_compacted(&rig, &AS_DUE);
}

#[tokio::test(start_paused = true)]
async fn advise_mode_starts_nothing() {
    let mut rig = Rig::in_mode(Mode::Advise, START, idle(), &by_rent());
    rig.run_for(30 * PART).await;
    assert_compacted(&rig, &[]);
    let plan = rig.planned().await;
    let names: Vec<&str> = plan
        .queues
        .iter()
        .flat_map(|queue| queue.queued())
        .filter_map(|ix| Some(plan.snapshot.target(ix)?.db_name().db))
        .collect();
    assert_eq!(names, ["three", "half"], "it advises both starts, the most overdue first");
    assert_eq!(plan.starts.len(), 1, "it would start one first");
}

#[tokio::test(start_paused = true)]
async fn clock_changes_do_not_shift_any_start() {
    let mut rig = Rig::in_mode(Mode::Enforce, START, idle(), &by_rent());
    rig.run_for(3 * PART).await;
    rig.shift_clock(HORIZON_SECONDS);
    rig.run_for(2 * PART).await;
    assert_compacted(&rig, &[]);
    rig.shift_clock(-2 * HORIZON_SECONDS);
    rig.run_for(25 * PART).await;
    assert_compacted(&rig, &AS_DUE);
}

#[tokio::test(start_paused = true)]
async fn killing_the_process_does_not_delay_starts() {
    let mut rig = Rig::in_mode(Mode::Enforce, START, idle(), &by_rent());
    rig.run_for(4 * PART).await;
    rig.kill_with_archive_for(PART, 0).await;
    rig.run_for(PART).await;
    assert_compacted(&rig, &[]);
    rig.kill_with_archive_for(PART / 60, 0).await;
    rig.run_for(24 * PART).await;
    assert_compacted(&rig, &AS_DUE);
}

/// A horizon without a process and a clock set forward by one cannot be distinguished: it counts as one.
#[tokio::test(start_paused = true)]
async fn clock_set_forward_while_stopped_counts_as_elapsed_time() {
    let mut rig = Rig::in_mode(Mode::Enforce, START, idle(), &by_rent());
    rig.run_for(4 * PART).await;
    rig.kill_with_archive_for(PART, HORIZON_SECONDS).await;
    rig.run_for(48 * PART).await;
    assert_compacted(&rig, &[("three", 5.1), ("half", 5.1)]);
}

#[tokio::test(start_paused = true)]
async fn clock_set_back_while_stopped_loses_only_the_downtime() {
    let mut rig = Rig::in_mode(Mode::Enforce, START, idle(), &by_rent());
    rig.run_for(4 * PART).await;
    rig.kill_with_archive_for(PART, -2 * HORIZON_SECONDS).await;
    rig.run_for(25 * PART).await;
    let a_part_later = AS_DUE.map(|(name, at)| (name, at + 1.0));
    assert_compacted(&rig, &a_part_later);
}
