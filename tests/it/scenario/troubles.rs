//! Nodes that go down, return, are in maintenance or stall, and jobs that fail.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_job_lost_in_a_node_restart_is_started_again() {
    let world = nodes().with(on(A, bloated("orders", 10_000)));
    let report = run_scenario(world, &roomy(), async |rig| {
        rig.run_for(2 * MINUTE).await;
        rig.note("sim-1 restarts");
        rig.cluster.faults().restart(A);
        rig.run_for(11 * MINUTE).await;
        rig.note("and once more");
        rig.cluster.faults().restart(A);
        rig.run_for(15 * MINUTE).await;
        rig.note_refusals();
        rig.run_for(HOUR).await;
        rig.note_outcomes();
    })
    .await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn other_nodes_continue_while_one_is_down() {
    let world = nodes()
        .with(Database { n: 3, ..bloated("orders", 5_000) })
        .with(on(B, bloated("users", 1_000)));
    let report = run_scenario(world, &(unhurried() + SPACED), async |rig| {
        rig.run_for(MINUTE / 2).await;
        rig.note("sim-2 is gone");
        rig.cluster.faults().down(B);
        rig.run_for(3 * HOUR).await;
        rig.note_refusals();
        rig.note("sim-2 is back");
        rig.cluster.faults().up(B);
        rig.run_for(HOUR).await;
        rig.note_outcomes();
    })
    .await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_on_a_node_in_maintenance() {
    let world = nodes()
        .with(on(A, bloated("orders", 1_000)))
        .with(on(A, bloated("users", 500)))
        .with(on(B, bloated("logs", 500)));
    let report = run_scenario(world, &unhurried(), async |rig| {
        rig.note("sim-1 goes into maintenance");
        rig.cluster.faults().maintenance(A, true);
        rig.run_for(HOUR).await;
        rig.note_refusals();
        rig.note("and comes out of it");
        rig.cluster.faults().maintenance(A, false);
        rig.run_for(HOUR).await;
    })
    .await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn a_shard_being_split_is_not_compacted() {
    let world = nodes()
        .with(on(A, Database { splitting: true, ..bloated("orders", 1_000) }))
        .with(on(A, bloated("users", 500)));
    let report = run_scenario(world, &unhurried(), async |rig| {
        rig.run_for(HOUR).await;
        rig.note_refusals();
        rig.note("the split is given up");
        rig.cluster.world(|world| world.end_split("orders"));
        rig.run_for(HOUR).await;
    })
    .await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn a_shard_whose_split_begins_between_two_sweeps_is_not_compacted() {
    let world = nodes()
        .with(on(A, Database { bloat: 6.0, ..bloated("users", 4_000) }))
        .with(on(A, bloated("orders", 1_000)))
        .with(on(A, Database { bloat: 3.0, ..bloated("logs", 1_000) }));
    let yaml = roomy() + "limits: {per_node: 1, wait: 30s, duty: 100%}\n";
    let report = run_scenario(world, &yaml, async |rig| {
        rig.run_for(MINUTE).await;
        rig.note("orders begins to be split");
        rig.cluster.world(|world| world.begin_split("orders"));
        rig.run_for(5 * MINUTE).await;
        rig.note_refusals();
        rig.note("the split is given up");
        rig.cluster.world(|world| world.end_split("orders"));
        rig.run_for(10 * MINUTE).await;
        let asked = rig.asked("/_reshard/jobs").len();
        rig.note(format!("what is split was asked {} times", asked));
    })
    .await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_job_keeps_its_slot_until_its_node_restarts() {
    let world = nodes()
        .with(on(A, bloated("orders", 10_000)))
        .with(on(A, bloated("users", 500)))
        .with(on(B, bloated("logs", 500)));
    let yaml = unhurried() + "limits: {per_node: 1, wait: 30s, duty: 100%}\n";
    let report = run_scenario(world, &yaml, async |rig| {
        rig.run_for(MINUTE / 12).await;
        rig.note("what runs on sim-1 stands still");
        rig.cluster.world(|world| world.stall(A));
        rig.run_for(2 * HOUR).await;
        rig.note_refusals();
        rig.note("sim-1 restarts");
        rig.cluster.faults().restart(A);
        rig.run_for(HOUR).await;
        rig.note_outcomes();
    })
    .await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn repeated_failures_back_off_and_then_quarantine() {
    let world = alone(Node::new(A)).with(on(A, bloated("orders", 200)));
    let pace = PACE.replace("poll: 5s", "poll: 20s");
    let yaml = format!("{pace}failure: {{cool_down: 10m, quarantine_after: 4}}\n");
    let report = run_scenario(world, &yaml, async |rig| {
        rig.note("the disk of sim-1 is full, and recliner does not know it");
        rig.cluster.faults().full_disk(A, true);
        rig.run_for(5 * HOUR).await;
        rig.note_refusals();
        rig.note("there is room again");
        rig.cluster.faults().full_disk(A, false);
        rig.run_for(2 * HOUR).await;
        rig.note("an operator releases it");
        rig.release_all().await;
        rig.run_for(10 * MINUTE).await;
    })
    .await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn restarted_process_tracks_running_jobs() {
    let world = nodes()
        .with(on(A, bloated("orders", 10_000)))
        .with(on(A, bloated("users", 3_000)))
        .with(on(B, bloated("logs", 500)))
        .with(on(C, bloated("mail", 20_000)));
    let yaml = roomy() + "limits: {per_node: 1, wait: 30s, duty: 100%}\n";
    let report = run_scenario(world, &yaml, async |rig| {
        rig.run_for(90 * MINUTE / 60).await;
        rig.note("recliner is killed");
        rig.kill_for(MINUTE).await;
        rig.note("it is back");
        rig.run_for(2 * MINUTE).await;
        rig.note("it is killed again, for longer than anything runs");
        rig.kill_for(HOUR).await;
        rig.note("it is back");
        rig.run_for(HOUR).await;
        rig.note_outcomes();
    })
    .await;
    insta::assert_snapshot!(report);
}
