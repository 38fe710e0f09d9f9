//! The share of a node's time that compactions take, measured from the simulator's own record.

use super::*;
use couchdb_sim::Compaction;
use recliner::{model::records::SuspensionScope, text::Label};

const SECOND: Duration = Duration::from_secs(1);

/// A node that compacts one megabyte per second.
fn slow() -> Config {
    Config { compaction_rate: 1_000_000, ..alone(Node::new(A)) }
}

/// Adds `count` databases whose compactions take `seconds` each.
fn backlog(world: Config, count: u64, seconds: u64) -> Config {
    (0..count).fold(world, |world, at| world.with(on(A, bloated(&format!("db{at}"), seconds))))
}

fn compactions(rig: &Rig) -> Vec<Compaction> {
    rig.cluster.world(|world| world.compactions())
}

fn end(one: &Compaction) -> Duration {
    one.end.expect("it ended").at
}

/// The time in which any of these compactions ran, as a share of the time from the first start to
/// the last.
fn busy_share(all: &[Compaction]) -> f64 {
    let [first, .., last] = all else { panic!("{all:?}") };
    let (mut busy, mut counted) = (Duration::ZERO, first.began);
    for one in all {
        busy += end(one).min(last.began).saturating_sub(one.began.max(counted));
        counted = counted.max(end(one));
    }
    busy.as_secs_f64() / (last.began - first.began).as_secs_f64()
}

/// The busy share of the time, and the number of compactions that began within ten minutes.
async fn measured_backlog(seconds: u64, limits: &str) -> (f64, usize) {
    let mut rig =
        Rig::in_mode(Mode::Enforce, START, backlog(slow(), 120, seconds), &(roomy() + limits));
    rig.run_for(10 * MINUTE).await;
    let all = compactions(&rig);
    let ended: Vec<Compaction> = all.iter().filter(|one| one.end.is_some()).cloned().collect();
    (busy_share(&ended), all.len())
}

#[tokio::test(start_paused = true)]
async fn small_jobs_use_the_share_of_time_that_duty_allows() {
    let (spaced, spaced_count) = measured_backlog(2, "limits: {wait: 30s, duty: 100%}\n").await;
    let (share, count) = measured_backlog(2, "").await;
    let found =
        format!("{share} and {count} jobs, {spaced} and {spaced_count} with pauses of 30 s");
    assert!(share <= 0.5, "{found}");
    assert!(share > 2.0 * spaced && count > 2 * spaced_count, "{found}");
    for (duty, seconds) in [(50, 12), (25, 2), (25, 12), (80, 12)] {
        let (share, _) = measured_backlog(seconds, &format!("limits: {{duty: {duty}%}}\n")).await;
        let most = f64::from(duty) / 100.0;
        assert!(share <= most, "{share} of the time at {duty}% with jobs of {seconds} s");
        if seconds == 12 {
            // Each end is noticed up to one poll late.
            assert!(share > 0.6 * most, "{share} of the time at {duty}%");
        }
    }
}

/// A node that has read everything and begins with one long job of ten minutes: more jobs may join
/// it than fit into that time.
async fn long_and_small() -> Rig {
    let long = Database { bloat: 6.0, ..bloated("long", 600) };
    let yaml = roomy() + "channels: [{name: dbs, kind: db, priority: ratio, concurrency: 2}]\n";
    let world = backlog(slow().with(on(A, long)), 60, 20);
    let mut rig = Rig::in_mode(Mode::Enforce, START, world, &yaml);
    rig.watch
        .job_state
        .suspend(SuspensionScope::All, None, None)
        .await
        .expect("the change is stored");
    rig.run_for(MINUTE).await;
    rig.watch.job_state.resume(SuspensionScope::All, None).await.expect("the change is stored");
    rig
}

#[tokio::test(start_paused = true)]
async fn small_jobs_run_beside_a_long_one_and_then_the_node_rests() {
    let mut rig = long_and_small().await;
    rig.run_for(15 * MINUTE).await;
    let all = compactions(&rig);
    let long = &all[0];
    assert!(long.shard.contains("/long."), "{long:?}");
    let joined = all.iter().filter(|one| one.began < end(long)).count();
    assert!(joined > 20, "{joined} joined");
    // A job that began just before the end of the long one was noticed counts as joined.
    let last = all.iter().map(end).max().expect("some ended");
    assert!(last < end(long) + 30 * SECOND, "nothing joins after the long job: {last:?}");
    let busy = last - long.began;

    let plan = rig.planned().await;
    let mut waits = plan.queued_targets();
    let (_, ix, ..) = waits.next().expect("some wait");
    let target = plan.snapshot.target(ix).expect("the target exists");
    let Decision::Refused(refusal) = plan.decision(target) else {
        panic!("the target does not wait")
    };
    assert_eq!(refusal.reason.label(), "duty");
    let explanation = why(&plan, target, &refusal);
    assert!(explanation.starts_with("compactions ran on the node for 10m"), "{explanation}");
    assert!(
        explanation
            .contains(" and may use 50% of its time (limits.duty): the next one may start in "),
        "{explanation}"
    );

    rig.run_for(20 * MINUTE).await;
    let next = compactions(&rig).into_iter().map(|one| one.began).find(|began| *began > last);
    let rested = next.expect("it goes on by itself") - last;
    assert!(rested >= busy && rested < busy + 20 * SECOND, "{rested:?} after {busy:?}");
    assert_eq!(judge::breaches(&rig.record()), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn order_starts_while_the_node_rests() {
    let mut rig = long_and_small().await;
    rig.run_for(15 * MINUTE).await;
    let before = compactions(&rig).len();
    let plan = rig.planned().await;
    let (_, ix, ..) = plan.queued_targets().last().expect("some wait");
    let target = plan.snapshot.target(ix).expect("the target exists");
    let now = rig.cluster.wall();
    let order = CompactionOrder {
        at: now,
        until: now.plus(HOUR),
        by: "ann".into(),
        force: false,
        run: None,
    };
    let planned =
        rig.watch.planner.plan_if_ordered(ix, order.clone()).await.expect("the planner answers");
    let answer = planned.order_answer(planned.snapshot.target(ix).expect("the target exists"));
    assert!(matches!(answer, OrderAnswer::Starts(_)), "{answer:?}");
    rig.watch.job_state.order(target.id(), order).await.expect("the change is stored");
    rig.run_for(5 * SECOND).await;
    let all = compactions(&rig);
    assert_eq!(all.len(), before + 1, "only the ordered target starts");
    assert!(all[before].shard.contains(&format!("/{}.", target.db_name().db)), "{:?}", all[before]);
    rig.run_for(MINUTE).await;
    assert_eq!(compactions(&rig).len(), before + 1, "the node keeps resting");
}

/// Kills the process `at` after the first compaction's start; returns that compaction and the time of the next start.
async fn killed(at: Duration, limits: &str) -> (Compaction, Duration) {
    let world = backlog(slow(), 3, 60);
    let mut rig = Rig::in_mode(Mode::Enforce, START, world, &(roomy() + limits));
    let begun = async |rig: &mut Rig, count: usize| {
        while compactions(rig).len() < count {
            rig.run_for(SECOND).await;
        }
    };
    begun(&mut rig, 1).await;
    rig.run_for(at).await;
    rig.kill_for(Duration::ZERO).await;
    begun(&mut rig, 2).await;
    let all = compactions(&rig);
    assert_eq!(judge::breaches(&rig.record()), Vec::<String>::new());
    (all[0].clone(), all[1].began)
}

#[tokio::test(start_paused = true)]
async fn killed_process_still_lets_a_node_rest_fully() {
    // During a compaction, and in the pause after it.
    for at in [30, 61, 90] {
        let (first, next) = killed(at * SECOND, "limits: {duty: 25%}\n").await;
        let (busy, rested) = (end(&first) - first.began, next - end(&first));
        assert!(rested >= 3 * busy && rested < 4 * busy, "{rested:?} after {busy:?}, at {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn killed_process_still_waits_between_starts() {
    for at in [1, 70] {
        let (first, next) = killed(at * SECOND, "limits: {wait: 10m, duty: 100%}\n").await;
        let waited = next - first.began;
        // Moments have a resolution of one second.
        assert!(
            waited + SECOND > 10 * MINUTE && waited < 11 * MINUTE,
            "{waited:?}, killed at {at}"
        );
    }
}
