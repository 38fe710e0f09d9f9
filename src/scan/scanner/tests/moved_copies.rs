//! Databases that are created, deleted or split while sweeps run, and nodes whose map is old.

use super::*;
use crate::scan::feed_update::{FeedUpdate, NamedDb, Stale};

const WHOLE: &str = "shards/00000000-ffffffff/orders.1";
const HALVES: [&str; 2] =
    ["shards/00000000-7fffffff/orders.1", "shards/80000000-ffffffff/orders.1"];

fn ids(node: &str, files: &[&str]) -> Vec<String> {
    files.iter().map(|file| format!("db:{node}/{}", file.replace('/', "%2F"))).collect()
}

/// The entry of `orders` after its only range was split.
fn split_entry() -> MapEntry {
    let ranges =
        [Range { from: 0, to: u32::MAX / 2 }, Range { from: u32::MAX / 2 + 1, to: u32::MAX }];
    let at = |range| NODES.map(|node| CopyAt { range, node: node.into() });
    MapEntry {
        copies: ranges.into_iter().flat_map(at).collect(),
        leaving: Cluster::entry("orders").copies,
        ..Cluster::entry("orders")
    }
}

fn event(named: &[&str]) -> ScanCommand {
    let named = named.iter().map(|db| NamedDb { db: (*db).into(), stale: Stale::Entry });
    ScanCommand::FeedUpdate(FeedUpdate {
        named: named.collect(),
        followed_since: Some(START.plus(Duration::from_secs(1))),
        map_node: Some(NODES[0].into()),
    })
}

/// A scanner whose listing is valid for hours, because a feed follows the first node's map.
fn followed(cluster: Cluster) -> Harness {
    let mut harness = Harness::after_one_sweep(cluster);
    harness.change_settings(|settings| {
        settings.interval_followed = Duration::from_secs(6 * 3_600);
    });
    harness.send(event(&[]));
    harness.sweep(3);
    harness
}

fn states(snapshot: &Snapshot, files: &[&str]) -> Vec<Option<TargetState>> {
    let ids = NODES.into_iter().flat_map(|node| ids(node, files));
    ids.map(|id| state_of(snapshot, &id)).collect()
}

fn files_of_split(cluster: &mut Cluster) {
    cluster.files = [0, 1].map(|_| vec!["_dbs", HALVES[0], HALVES[1]]);
}

#[test]
fn completed_split_is_seen_although_another_node_has_the_old_map() {
    let mut cluster = Cluster::default();
    cluster.files.iter_mut().for_each(|files| files.extend(HALVES));
    let mut harness = followed(cluster);
    harness.cluster.send_modify(|cluster| {
        files_of_split(cluster);
        cluster.maps[0] = Some(vec![split_entry()]);
    });
    harness.send(event(&["orders"]));
    let end = harness.now.at + Duration::from_secs(60);
    harness.until(|it| it.now.at >= end);
    let snapshot = harness.snapshot.clone();
    assert_eq!(states(&snapshot, &[WHOLE]), [None, None]);
    assert_eq!(states(&snapshot, &HALVES), [Some(TargetState::Ok); 4]);
}

#[test]
fn event_after_the_map_was_read_for_a_listing_is_not_lost() {
    let mut cluster = Cluster::default();
    cluster.files.iter_mut().for_each(|files| files.extend(HALVES));
    let mut harness = followed(cluster);
    let sweeps = harness.status.sweeps;
    harness.send(ScanCommand::Sweep);
    harness.until(|it| it.scanner.sweep.state() == crate::scan::sweep::SweepPhase::Files);
    harness.cluster.send_modify(|cluster| {
        files_of_split(cluster);
        cluster.maps[0] = Some(vec![split_entry()]);
    });
    harness.send(event(&["orders"]));
    let snapshot = harness.sweep(sweeps + 2);
    assert_eq!(states(&snapshot, &[WHOLE]), [None, None]);
    assert_eq!(states(&snapshot, &HALVES), [Some(TargetState::Ok); 4]);
}

#[test]
fn outdated_map_of_a_restarted_node_reports_no_missing_copies() {
    let mut harness = followed(Cluster::default());
    harness.cluster.send_modify(|cluster| {
        cluster.maps[0] = Some(vec![]);
        cluster.files[0].pop();
        cluster.down[1] = true;
    });
    harness.send(event(&["orders"]));
    let sweeps = harness.sweep(harness.status.sweeps + 1);
    assert_eq!(state_of(&sweeps, &ids(NODES[0], &[WHOLE])[0]), None);

    harness.cluster.send_modify(|cluster| cluster.down[1] = false);
    harness.sweep(harness.status.sweeps + 1);
    harness.send(ScanCommand::Sweep);
    let snapshot = harness.sweep(harness.status.sweeps + 2);
    let expected = [None, Some(TargetState::Unknown)];
    assert_eq!(states(&snapshot, &[WHOLE]), expected, "only the old map needs the file");

    harness.cluster.send_modify(|cluster| cluster.maps[1] = Some(vec![]));
    let snapshot = harness.sweep(harness.status.sweeps + 2);
    assert_eq!(states(&snapshot, &[WHOLE]), [None, Some(TargetState::Orphan)]);
}

#[test]
fn orphans_become_targets_once_the_map_names_their_database() {
    let mut cluster = Cluster { dbs: vec![], ..Cluster::default() };
    cluster.maps = [Some(vec![]), Some(vec![])];
    let mut harness = followed(cluster);
    assert_eq!(states(&harness.snapshot, &[WHOLE]), [Some(TargetState::Orphan); 2]);
    let entry = vec![Cluster::entry("orders")];
    harness.cluster.send_modify(|cluster| cluster.maps = [Some(entry.clone()), Some(entry)]);
    harness.send(event(&["orders"]));
    let end = harness.now.at + Duration::from_secs(60);
    harness.until(|it| it.now.at >= end);
    assert_eq!(states(&harness.snapshot, &[WHOLE]), [Some(TargetState::Ok); 2]);
}
