//! Windows, days, and clock changes.

use super::*;

/// A channel with windows, in the notation of the configuration.
fn nightly(windows: &str, more: &str) -> String {
    format!(
        "channels:\n  - {{name: nightly, kind: db, priority: ratio, windows: [{windows}]{more}}}\n"
    )
}

/// Polls rarely, for scenarios of several days.
fn days(windows: &str) -> String {
    roomy().replace("poll: 5s", "poll: 5m") + SPACED + &nightly(windows, "")
}

fn moment(text: &str) -> Moment {
    Moment::parse(text).expect("the time is valid")
}

/// A database with constant writes, mostly updates.
fn busy(name: &str, mb: u64, writes_per_second: f64) -> Database {
    Database { writes_per_second, new_share: 0.02, delete_share: 0.01, ..bloated(name, mb) }
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_outside_the_window() {
    let yaml =
        unhurried() + &nightly(r#"{days: [mon-sun], from: "05:00", to: "06:00", zone: UTC}"#, "");
    let world =
        alone(Node::new(A)).with(on(A, bloated("orders", 500))).with(on(A, bloated("users", 400)));
    let report = run_scenario(world, &yaml, async |rig| {
        rig.run_for(HOUR).await;
        rig.note_refusals();
        rig.run_for(3 * HOUR).await;
    })
    .await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn growth_over_days_is_compacted_each_night() {
    let world = alone(Node::new(A))
        .with(on(A, busy("orders", 300, 20.0)))
        .with(on(A, busy("users", 200, 4.0)))
        .with(on(A, small("quiet", 5_000)));
    // A window past midnight in Berlin, an hour ahead of UTC, and closed in the night to Saturday.
    let yaml = days(r#"{days: [mon-thu], from: "22:00", to: "02:00", zone: Europe/Berlin}"#);
    let report = run_scenario_from(moment("2026-11-25T20:00:00Z"), world, &yaml, async |rig| {
        rig.run_for(50 * HOUR).await;
        rig.note_refusals();
    })
    .await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn a_window_in_the_repeated_hour_is_open_twice_as_long() {
    let world =
        alone(Node::new(A)).with(on(A, bloated("orders", 500))).with(on(A, small("logs", 5_000)));
    let yaml = days(r#"{days: [sat, sun], from: "02:00", to: "03:00", zone: Europe/Berlin}"#);
    let report = run_scenario_from(moment("2026-10-24T23:30:00Z"), world, &yaml, async |rig| {
        rig.run_for(HOUR).await;
        rig.note("it is half past two, and will be again: another database is bloated");
        rig.cluster.world(|world| world.create(bloated("late", 400)).unwrap());
        rig.run_for(HOUR).await;
        rig.note("it is half past two again: another one");
        rig.cluster.world(|world| world.create(bloated("later", 400)).unwrap());
        rig.run_for(HOUR).await;
    })
    .await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn a_window_that_begins_in_the_skipped_hour_opens_after_it() {
    let world = alone(Node::new(A)).with(on(A, bloated("orders", 500)));
    let yaml = days(r#"{days: [sat, sun], from: "02:30", to: "04:00", zone: Europe/Berlin}"#);
    let report = run_scenario_from(moment("2027-03-28T00:00:00Z"), world, &yaml, async |rig| {
        rig.run_for(3 * HOUR).await;
    })
    .await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn clock_changes_neither_lose_nor_delay_jobs() {
    let mut world = nodes();
    for (node, mb) in [(A, 20_000), (A, 3_000), (A, 2_000), (B, 10_000), (B, 2_500), (C, 1_000)] {
        let name = format!("db{mb}");
        world = world.with(on(node, bloated(&name, mb)));
    }
    let yaml = roomy() + "limits: {per_node: 1, wait: 30s, duty: 100%}\n";
    let report = run_scenario(world, &yaml, async |rig| {
        rig.run_for(2 * MINUTE).await;
        rig.note("recliner's clock is set forward by a day");
        rig.shift_clock(86_400);
        rig.run_for(2 * MINUTE).await;
        rig.note("and back by two");
        rig.shift_clock(-2 * 86_400);
        rig.run_for(HOUR).await;
        rig.note_outcomes();
    })
    .await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn a_job_too_long_for_its_window_waits_for_a_longer_one() {
    let mut world = alone(Node::new(A))
        .with(on(A, Database { bloat: 8.0, ..bloated("small", 300) }))
        .with(on(A, bloated("huge", 5_000)));
    world.compaction_rate = 1_000_000;
    let windows = |to: &str| {
        let window = format!(r#"{{days: [mon-sun], from: "04:00", to: "{to}", zone: UTC}}"#);
        unhurried() + "limits: {per_node: 1}\n" + &nightly(&window, ", strict_window: true")
    };
    let report = run_scenario(world, &windows("05:00"), async |rig| {
        rig.run_for(HOUR + 30 * MINUTE).await;
        rig.note_refusals();
        rig.note("the window is made longer");
        rig.reconfigure(&windows("08:00"));
        rig.run_for(3 * HOUR).await;
    })
    .await;
    insta::assert_snapshot!(report);
}
