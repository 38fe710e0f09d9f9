//! Disk space: compactions that fit, that do not fit, and nodes that share a disk.

use super::*;

const GB: u64 = 1_000_000_000;

#[tokio::test(start_paused = true)]
async fn a_start_that_does_not_fit_waits_for_space() {
    // The 13 GB disk holds 8.8 GB of files; the largest one's peak of 4.4 GB does not fit above the
    // reserved tenth.
    let world = alone(Node { disk: Some(13 * GB), ..Node::new(A) })
        .with(on(A, bloated("huge", 2_000)))
        .with(on(A, bloated("small", 200)));
    let yaml = format!("{PACE}{}", volumes(&[(&[A], "available: 4GB")]));
    let report = run_scenario(world, &yaml, async |rig| {
        rig.run_for(HOUR).await;
        rig.note_refusals();
    })
    .await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_on_a_full_disk_until_there_is_space_again() {
    let world = nodes();
    let mut world = world
        .with(on(A, bloated("orders", 2_000)))
        .with(on(A, bloated("users", 1_000)))
        .with(on(B, bloated("logs", 500)));
    for node in &mut world.nodes {
        node.disk = Some(20 * GB);
    }
    let each = [A, B, C].map(measured);
    let yaml = volumes(&[(&[A], &each[0]), (&[B], &each[1]), (&[C], &each[2])]);
    let report = run_scenario(world, &format!("{PACE}{yaml}"), async |rig| {
        rig.note("somebody fills the disk of sim-1");
        rig.cluster.faults().full_disk(A, true);
        rig.run_for(HOUR).await;
        rig.note_refusals();
        rig.note("and makes room again");
        rig.cluster.faults().full_disk(A, false);
        rig.run_for(HOUR).await;
    })
    .await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn two_nodes_on_one_volume_share_its_free_space() {
    // Each is 8.1 GB and may need up to 4.4 GB; above the reserved tenth, both share 5.3 GB of free
    // space.
    let mut world = nodes()
        .with(on(A, bloated("orders", 2_000)))
        .with(on(B, bloated("users", 2_000)))
        .with(on(C, bloated("logs", 2_000)));
    for node in &mut world.nodes[..2] {
        (node.disk, node.volume) = (Some(24 * GB), Some("san".into()));
    }
    let yaml = volumes(&[(&[A, B], &measured(A)), (&[C], "available: 100GB")]);
    let report = run_scenario(world, &format!("{PACE}{yaml}limits: {{wait: 0s}}\n"), async |rig| {
        rig.run_for(MINUTE / 3).await;
        rig.note_refusals();
        rig.run_for(HOUR).await;
    })
    .await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn only_small_targets_start_where_free_space_is_unknown() {
    let world =
        alone(Node::new(A)).with(on(A, bloated("huge", 2_000))).with(on(A, bloated("small", 200)));
    let report = run_scenario(world, PACE, async |rig| {
        rig.run_for(HOUR).await;
        rig.note_refusals();
    })
    .await;
    insta::assert_snapshot!(report);
}
