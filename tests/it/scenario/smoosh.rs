//! CouchDB's own compactor, running beside this program and taken over by it.

use super::*;

/// Two nodes with an active smoosh and some databases each, and one with an inactive smoosh.
fn world() -> Config {
    let mut world = nodes()
        .with(on(A, bloated("orders", 2_000)))
        .with(on(A, bloated("users", 1_500)))
        .with(on(A, bloated("logs", 1_000)))
        .with(on(B, bloated("mail", 2_000)))
        .with(on(B, bloated("files", 1_500)))
        .with(on(C, bloated("app", 1_000)));
    for node in &mut world.nodes[..2] {
        node.smoosh = true;
        node.settings.push(("smoosh.ratio_dbs".into(), "concurrency".into(), "2".into()));
    }
    world
}

/// Writes to each database, because smoosh ignores the others.
fn write_to_each(rig: &Rig) {
    rig.cluster.world(|world| {
        for db in ["orders", "users", "logs", "mail", "files", "app"] {
            world.write(db, 1);
        }
    });
}

/// Notes a node's settings of a channel of smoosh, and whether recliner marked it.
fn note_setting(rig: &mut Rig, node: &str) {
    let state = rig.cluster.world(|world| {
        let value = world.setting(node, "smoosh.ratio_dbs", "concurrency").unwrap_or("unset");
        let mark = world.section(node, recliner::act::takeover::MARK_SECTION).is_some();
        let mark = if mark { ", marked as taken over" } else { "" };
        format!("smoosh.ratio_dbs has a concurrency of {value} on {node}{mark}")
    });
    rig.note(state);
}

#[tokio::test(start_paused = true)]
async fn smoosh_jobs_count_and_double_enforcement_is_reported() {
    let yaml = roomy() + "limits: {per_node: 2, cluster: 3}\n";
    let report = run_scenario(world(), &yaml, async |rig| {
        write_to_each(rig);
        rig.run_for(20 * MINUTE).await;
        let takeovers = rig.smoosh.as_ref().expect("it runs").takeovers.borrow().clone();
        let first = takeovers.nodes.get(A).and_then(|node| node.findings.first().cloned());
        rig.note(format!("found: {}", first.unwrap_or_else(|| "nothing".into())));
        rig.run_for(20 * MINUTE).await;
    })
    .await;
    insta::assert_snapshot!(report);
}

#[tokio::test(start_paused = true)]
async fn takeover_is_repeated_after_restart_and_undone_at_the_end() {
    let yaml = roomy() + SPACED + "smoosh: {mode: takeover, takeover: [ratio_dbs, slack_dbs]}\n";
    let report = run_scenario(world(), &yaml, async |rig| {
        write_to_each(rig);
        rig.run_for(45 * MINUTE / 60).await;
        note_setting(rig, A);
        rig.note("sim-1 restarts");
        rig.cluster.faults().restart(A);
        note_setting(rig, A);
        rig.run_for(MINUTE).await;
        note_setting(rig, A);
        rig.run_for(HOUR).await;
        rig.note("recliner is told to stop");
        rig.stop().await;
        note_setting(rig, A);
        note_setting(rig, B);
        note_setting(rig, C);
    })
    .await;
    insta::assert_snapshot!(report);
}
