//! Nodes that go, come back, rest or stand still, and jobs that fail.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_node_that_restarts_loses_its_job_and_gets_it_again() {
    let world = nodes().with(on(A, bloated("orders", 10_000)));
    let told = played(world, &roomy(), async |rig| {
        rig.pass(2 * MINUTE).await;
        rig.note("sim-1 restarts");
        rig.cluster.faults().restart(A);
        rig.pass(11 * MINUTE).await;
        rig.note("and once more");
        rig.cluster.faults().restart(A);
        rig.pass(15 * MINUTE).await;
        rig.note_refusals();
        rig.pass(HOUR).await;
        rig.note_outcomes();
    })
    .await;
    insta::assert_snapshot!(told);
}

#[tokio::test(start_paused = true)]
async fn while_a_node_is_gone_the_others_go_on_and_it_is_served_when_it_is_back() {
    let world = nodes()
        .with(Database { n: 3, ..bloated("orders", 5_000) })
        .with(on(B, bloated("users", 1_000)));
    let told = played(world, &roomy(), async |rig| {
        rig.pass(MINUTE / 2).await;
        rig.note("sim-2 is gone");
        rig.cluster.faults().down(B);
        rig.pass(3 * HOUR).await;
        rig.note_refusals();
        rig.note("sim-2 is back");
        rig.cluster.faults().up(B);
        rig.pass(HOUR).await;
        rig.note_outcomes();
    })
    .await;
    insta::assert_snapshot!(told);
}

#[tokio::test(start_paused = true)]
async fn a_node_in_maintenance_is_left_alone() {
    let world = nodes()
        .with(on(A, bloated("orders", 1_000)))
        .with(on(A, bloated("users", 500)))
        .with(on(B, bloated("logs", 500)));
    let told = played(world, &roomy(), async |rig| {
        rig.note("sim-1 goes into maintenance");
        rig.cluster.faults().maintenance(A, true);
        rig.pass(HOUR).await;
        rig.note_refusals();
        rig.note("and comes out of it");
        rig.cluster.faults().maintenance(A, false);
        rig.pass(HOUR).await;
    })
    .await;
    insta::assert_snapshot!(told);
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_split_is_left_alone() {
    let world = nodes()
        .with(on(A, Database { splitting: true, ..bloated("orders", 1_000) }))
        .with(on(A, bloated("users", 500)));
    let told = played(world, &roomy(), async |rig| {
        rig.pass(HOUR).await;
        rig.note_refusals();
        rig.note("the split is given up");
        rig.cluster.world(|world| world.end_split("orders"));
        rig.pass(HOUR).await;
    })
    .await;
    insta::assert_snapshot!(told);
}

#[tokio::test(start_paused = true)]
async fn a_shard_whose_split_begins_between_two_sweeps_is_left_alone() {
    let world = nodes()
        .with(on(A, Database { bloat: 6.0, ..bloated("users", 4_000) }))
        .with(on(A, bloated("orders", 1_000)))
        .with(on(A, Database { bloat: 3.0, ..bloated("logs", 1_000) }));
    let yaml = roomy() + "limits: {per_node: 1}\n";
    let told = played(world, &yaml, async |rig| {
        rig.pass(MINUTE).await;
        rig.note("orders begins to be split");
        rig.cluster.world(|world| world.begin_split("orders"));
        rig.pass(5 * MINUTE).await;
        rig.note_refusals();
        rig.note("the split is given up");
        rig.cluster.world(|world| world.end_split("orders"));
        rig.pass(10 * MINUTE).await;
        let asked = rig.asked("/_reshard/jobs").len();
        rig.note(format!("what is split was asked {} times", asked));
    })
    .await;
    insta::assert_snapshot!(told);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_stands_still_keeps_its_place_until_its_node_restarts() {
    let world = nodes()
        .with(on(A, bloated("orders", 10_000)))
        .with(on(A, bloated("users", 500)))
        .with(on(B, bloated("logs", 500)));
    let yaml = roomy() + "limits: {per_node: 1}\n";
    let told = played(world, &yaml, async |rig| {
        rig.pass(MINUTE / 12).await;
        rig.note("what runs on sim-1 stands still");
        rig.cluster.world(|world| world.stall(A));
        rig.pass(2 * HOUR).await;
        rig.note_refusals();
        rig.note("sim-1 restarts");
        rig.cluster.faults().restart(A);
        rig.pass(HOUR).await;
        rig.note_outcomes();
    })
    .await;
    insta::assert_snapshot!(told);
}

#[tokio::test(start_paused = true)]
async fn what_fails_again_and_again_rests_longer_and_then_waits_for_an_operator() {
    let world = alone(Node::new(A)).with(on(A, bloated("orders", 200)));
    let yaml = format!("{PACE}failure: {{cool_down: 10m, quarantine_after: 4}}\n");
    let told = played(world, &yaml, async |rig| {
        rig.note("the disk of sim-1 is full, and recliner does not know it");
        rig.cluster.faults().full_disk(A, true);
        rig.pass(5 * HOUR).await;
        rig.note_refusals();
        rig.note("there is room again");
        rig.cluster.faults().full_disk(A, false);
        rig.pass(2 * HOUR).await;
        rig.note("an operator releases it");
        rig.releases().await;
        rig.pass(10 * MINUTE).await;
    })
    .await;
    insta::assert_snapshot!(told);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_killed_takes_up_what_runs_when_it_is_back() {
    let world = nodes()
        .with(on(A, bloated("orders", 10_000)))
        .with(on(A, bloated("users", 3_000)))
        .with(on(B, bloated("logs", 500)))
        .with(on(C, bloated("mail", 20_000)));
    let yaml = roomy() + "limits: {per_node: 1}\n";
    let told = played(world, &yaml, async |rig| {
        rig.pass(90 * MINUTE / 60).await;
        rig.note("recliner is killed");
        rig.dies_for(MINUTE).await;
        rig.note("it is back");
        rig.pass(2 * MINUTE).await;
        rig.note("it is killed again, for longer than anything runs");
        rig.dies_for(HOUR).await;
        rig.note("it is back");
        rig.pass(HOUR).await;
        rig.note_outcomes();
    })
    .await;
    insta::assert_snapshot!(told);
}
