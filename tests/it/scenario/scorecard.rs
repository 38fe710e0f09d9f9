//! The scorecard of advice: what recliner says it would have done, compared with what it does in the same
//! cluster when it enforces.

use super::*;
use recliner::{
    model::records::{ScorecardHour, ScorecardSide},
    what_if::scorecard::ScorecardState,
};

/// Uses documents of 20 kB, because simulated compactions then leave the predicted size.
fn large(database: Database) -> Database {
    Database { docs: database.docs / 20, doc_bytes: 20_000, ..database }
}

fn idle(name: &str, mb: u64) -> Database {
    large(bloated(name, mb))
}

/// A database with constant writes, mostly updates.
fn busy(name: &str, mb: u64, writes_per_second: f64) -> Database {
    Database { writes_per_second, new_share: 0.02, delete_share: 0.01, ..idle(name, mb) }
}

/// Two nodes, one with many small databases, both with some databases that get writes.
fn world() -> Config {
    let both = vec![Node::new(A), Node::new(B)];
    let mut world = Config { compaction_rate: 20_000_000, nodes: both, ..nodes() };
    for at in 0..12 {
        world = world.with(on(A, idle(&format!("idle{at}"), 40 + 30 * at)));
    }
    world
        .with(on(A, busy("orders", 300, 6.0)))
        .with(on(B, busy("users", 200, 2.0)))
        .with(on(B, busy("logs", 800, 9.0)))
        .with(on(B, idle("archive", 4_000)))
}

/// Channels by rent with a horizon suited to hours.
const BY_RENT: &str =
    "channels: [{name: dbs, kind: db, priority: rent, horizon: 1h, concurrency: 1}]\n";

/// The sums of all hours in the scorecard.
fn sums(rig: &Rig) -> ScorecardHour {
    let view = rig.watch.scorecard.borrow().clone();
    view.sum(START, rig.cluster.wall()).sums
}

/// What compactions really did: their number, bytes freed and bytes written.
fn actual_totals(rig: &Rig) -> (u64, u64, u64) {
    let all = rig.cluster.world(|world| world.compactions());
    let ended = || all.iter().filter_map(|one| Some((one.before, one.end?.after)));
    let freed = ended().map(|(before, after)| before.saturating_sub(after)).sum();
    (ended().count() as u64, freed, ended().map(|(_, after)| after).sum())
}

fn assert_near(found: u64, expected: u64, tolerance: f64, what: &str) {
    let ratio = found as f64 / expected as f64;
    assert!((ratio - 1.0).abs() <= tolerance, "{what}: {found} advised and {expected} done");
}

#[tokio::test(start_paused = true)]
async fn advised_work_matches_enforced_work() {
    for channels in ["channels: smoosh\n", BY_RENT] {
        let yaml = unhurried().replace("poll: 20s", "poll: 1m") + channels;
        let mut advising = Rig::in_mode(Mode::Advise, START, world(), &yaml);
        advising.run_for(5 * HOUR).await;
        assert_eq!(actual_totals(&advising), (0, 0, 0));
        let advised = sums(&advising);
        let mut enforcing = Rig::in_mode(Mode::Enforce, START, world(), &yaml);
        enforcing.run_for(5 * HOUR).await;
        assert_eq!(enforcing.watch.scorecard.borrow().state, ScorecardState::Enforcing);
        let (count, freed, written) = actual_totals(&enforcing);
        assert!(count > 15, "{channels}: {count}");
        let ScorecardSide { compactions, freed_bytes, rewritten_bytes, .. } = advised.advised;
        let found = format!("{channels}{advised:?}, and really {count} {freed} {written}");
        assert_near(compactions, count, 0.1, &found);
        assert_near(freed_bytes, freed, 0.1, &found);
        assert_near(rewritten_bytes, written, 0.1, &found);
        assert_eq!((advised.conflicts, advised.real.compactions), (0, 0));
        assert!(advised.advised_seconds > 4 * 3_600 + 3_300);
    }
}

#[tokio::test(start_paused = true)]
async fn scorecard_survives_a_kill_and_reports_the_gap() {
    let mut rig = Rig::in_mode(Mode::Advise, START, world(), &unhurried());
    rig.run_for(3 * HOUR).await;
    let before = sums(&rig);
    assert!(before.advised.compactions > 12, "{before:?}");
    rig.kill_for(2 * HOUR).await;
    rig.run_for(HOUR).await;
    let after = sums(&rig);
    let view = rig.watch.scorecard.borrow().clone();
    let missing = view.sum(START, rig.cluster.wall()).missing_seconds;
    assert!(missing.abs_diff(2 * 3_600) < 300, "{missing}");
    assert!(after.advised_seconds.abs_diff(before.advised_seconds + 3_600) < 300, "{after:?}");
    // The databases without writes are not counted a second time.
    assert!(after.advised.compactions <= before.advised.compactions + 6, "{before:?} {after:?}");
    assert!(after.advised.freed_bytes >= before.advised.freed_bytes);
}

#[tokio::test(start_paused = true)]
async fn scorecard_counts_smooshs_compactions_separately() {
    let mut world = Config { compaction_rate: 2_000_000, ..world() };
    for node in &mut world.nodes {
        node.smoosh = true;
    }
    let mut rig = Rig::in_mode(Mode::Advise, START, world, &unhurried());
    rig.run_for(6 * HOUR).await;
    let sums = sums(&rig);
    let (count, freed, _) = actual_totals(&rig);
    assert!(count > 3, "smoosh compacts");
    assert!(sums.real.compactions <= count && sums.real.compactions > 0, "{sums:?} of {count}");
    // Bytes written while a job runs are freed too, and the world records sizes at the start.
    assert!(sums.real.freed_bytes <= freed + freed / 10, "{sums:?} of {freed}");
    assert!(sums.advised.waste_byte_seconds <= sums.real.waste_byte_seconds);
}
