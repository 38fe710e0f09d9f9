//! Directories read in addition to CouchDB, and without it.

use super::*;
use crate::{
    datadir::{DirectoryContent, DirectoryVolume, FileSystemSpace, OtherFileSums},
    model::facts::FactKind,
    sources::inventory::{CompactionFile, DbFile, DiskWalk, FoundFile, PartFile},
    table::{DiskUsage, VolumeUsage, Waste},
};
use couchdb_files::ReportMatch;

const SHARD: &str = "shards/00000000-ffffffff/orders.1";
const ID: &str = "shards%2F00000000-ffffffff%2Forders.1";

fn header(at: u64, file: u64, active: u64, seq: u64) -> Facts {
    let facts = Facts {
        update_seq: OptionalU64::new(seq),
        measured_at: Some(Measurement { at: Moment::from_unix(at), source: MeasuredBy::Files }),
        ..facts(file, active)
    };
    facts.marked_from_files()
}

fn db(shard: &str, facts: Facts) -> FoundFile {
    let (shard, reported) = (shard.into(), ReportMatch::Different);
    FoundFile::Db(DbFile { shard, facts, reported, same: true, problem: None })
}

fn part(shard: &str, signature: u8, facts: Facts) -> PartFile {
    let signature = Signature([signature; 16]);
    let (shard, collators) = (shard.into(), Arc::new([]));
    PartFile { shard, signature, facts, collators, problem: None }
}

fn view(shard: &str, signature: u8, file: u64) -> FoundFile {
    FoundFile::View(part(shard, signature, header(900, file, file / 2, 3)))
}

fn walked(node: &str, files: Vec<FoundFile>, whole: bool) -> Vec<Observation> {
    let sums = OtherFileSums {
        files: files.len() as u64,
        trash: 5,
        trash_of_views: 2,
        recent_trash: 1,
        recoverable: 3,
        ..OtherFileSums::default()
    };
    let disk = Ok(DiskWalk { sums, whole, took: Duration::from_millis(30), volumes: volumes() });
    vec![
        Observation::Disk { node: node.into(), files },
        Observation::DiskEnd { node: node.into(), disk },
    ]
}

/// Two file systems, one of which reports no free space.
fn volumes() -> Vec<DirectoryVolume> {
    let space = FileSystemSpace { available: 1_000, size: 9_000, device: 1 };
    vec![
        DirectoryVolume {
            directory: "/data".into(),
            content: DirectoryContent::Databases,
            space: Some(space),
        },
        DirectoryVolume {
            directory: "/views".into(),
            content: DirectoryContent::Views,
            space: None,
        },
    ]
}

/// Unused bytes on each volume of a node: stale indexes, leftovers, trash.
fn useless(snapshot: &Snapshot, node: &str) -> Vec<(String, [u64; 3])> {
    let node = snapshot.nodes().iter().find(|it| &*it.name == node).unwrap();
    let of = |on: &VolumeUsage| {
        (on.volume.directory.to_string(), [on.stale_index_bytes, on.leftover_bytes, on.trash_bytes])
    };
    node.volume_usage.iter().map(of).collect()
}

fn on_disk(snapshot: &Snapshot, node: &str) -> Option<DiskUsage> {
    snapshot.nodes().iter().find(|it| &*it.name == node)?.disk_usage
}

fn disagreements(snapshot: &Snapshot, node: &str) -> Option<u64> {
    snapshot.nodes().iter().find(|it| &*it.name == node)?.disagreements
}

fn target<'a>(snapshot: &'a Snapshot, id: &str) -> crate::table::TargetRef<'a> {
    snapshot.targets().find(|target| target.id().to_string() == id).unwrap()
}

#[test]
fn directory_without_couchdb_is_shown_as_a_node() {
    let files = vec![
        db("_dbs", header(900, 50, 20, 3)),
        db(SHARD, header(900, 100, 10, 9)),
        view(SHARD, 1, 40),
    ];
    let cluster =
        Cluster { alone: true, disk: walked(NODES[0], files, true), ..Cluster::default() };
    let mut harness = Harness::starting(cluster.clone(), vec![], None);
    let snapshot = harness.sweep(1);
    let part = format!("view:couchdb@a/{ID}/{}", "01".repeat(16));
    assert_eq!(
        shown(&snapshot),
        [
            "db:couchdb@a/_dbs ok 50".to_owned(),
            format!("db:couchdb@a/{ID} ok 100"),
            format!("{part} ok 40")
        ]
    );
    let node = &snapshot.nodes()[1];
    assert_eq!((node.is_up, node.last_success, node.is_member), (None, None, true));
    let disk = node.disk_usage.unwrap();
    assert_eq!((disk.trash_bytes, disk.stale_index_bytes, disk.designs_known), (5, 0, false));
    assert_eq!((disk.recent_trash_bytes, disk.recoverable_bytes), (1, 3));
    assert_eq!(disk.oldest_fact, Some(Moment::from_unix(900)));
    assert_eq!(disagreements(&snapshot, NODES[0]), None);

    // The shard is deleted; its index file stays, unused.
    let files = vec![db("_dbs", header(1_200, 50, 20, 3)), view(SHARD, 1, 40)];
    harness.cluster.send_modify(|cluster| cluster.disk = walked(NODES[0], files, true));
    let snapshot = harness.sweep(2);
    assert_eq!(
        shown(&snapshot),
        ["db:couchdb@a/_dbs ok 50".to_owned(), format!("{part} orphan 40")]
    );
    assert_eq!(on_disk(&snapshot, NODES[0]).map(|disk| disk.stale_index_bytes), Some(40));

    // If a directory could not be read, nothing is removed.
    harness.cluster.send_modify(|cluster| cluster.disk = walked(NODES[0], vec![], false));
    let snapshot = harness.sweep(3);
    assert_eq!(snapshot.targets().count(), 2);
    harness.cluster.send_modify(|cluster| cluster.disk = walked(NODES[0], vec![], true));
    assert_eq!(harness.sweep(4).targets().count(), 0);
}

#[test]
fn better_source_wins_for_each_fact_and_disagreements_count() {
    let walk = |active, seq| walked(NODES[0], vec![db(SHARD, header(900, 100, active, seq))], true);
    // CouchDB reports 100 bytes, 10 of them active, sequence 4.
    let cluster = Cluster { seq: Some(4), disk: walk(10, 4), ..Cluster::default() };
    let mut harness = Harness::after_one_sweep(cluster);
    let snapshot = harness.sweep(1);
    let facts = target(&snapshot, &format!("db:couchdb@a/{ID}")).facts();
    assert_eq!(facts.source_of(FactKind::File), Some(MeasuredBy::Http), "CouchDB was asked last");
    assert_eq!(disagreements(&snapshot, NODES[0]), Some(0));
    assert_eq!(disagreements(&snapshot, NODES[1]), None);
    assert_eq!(on_disk(&snapshot, NODES[1]), None);

    harness.cluster.send_modify(|cluster| cluster.disk = walk(11, 4));
    let snapshot = harness.sweep(2);
    assert_eq!(disagreements(&snapshot, NODES[0]), Some(1));

    // The node does not answer, but its files can still be read.
    harness.cluster.send_modify(|cluster| {
        cluster.down = [true, false];
        cluster.disk = walk(60, 9);
    });
    let snapshot = harness.sweep(3);
    let facts = target(&snapshot, &format!("db:couchdb@a/{ID}")).facts();
    assert_eq!(
        (facts.active_bytes.get(), facts.source_of(FactKind::Active)),
        (Some(60), Some(MeasuredBy::Files))
    );
}

#[test]
fn compares_index_reported_by_couchdb_with_its_header() {
    // CouchDB reports 50 bytes for the index, 5 of them active, and sequence 3. The node whose copy
    // comes first in the tables is asked.
    let walk = |active| {
        let files = |node| {
            let part = FoundFile::View(part(SHARD, 1, header(900, 50, active, 3)));
            walked(node, vec![db(SHARD, header(900, 100, 10, 9)), part], true)
        };
        NODES.into_iter().flat_map(files).collect()
    };
    let mut harness = Harness::after_one_sweep(Cluster {
        view_seq: Some(3),
        disk: walk(5),
        ..Cluster::default()
    });
    let counted = |snapshot: &Snapshot| {
        let mut counts = NODES.map(|node| disagreements(snapshot, node));
        counts.sort_unstable();
        counts
    };
    assert_eq!(counted(&harness.sweep(1)), [None, Some(0)]);
    harness.cluster.send_modify(|cluster| cluster.disk = walk(6));
    assert_eq!(counted(&harness.sweep(2)), [None, Some(1)]);
    harness.cluster.send_modify(|cluster| cluster.view_seq = Some(4));
    assert_eq!(
        counted(&harness.sweep(3)),
        [None, Some(1)],
        "not comparable, so the last result stays"
    );
    harness.cluster.send_modify(|cluster| {
        cluster.view_seq = Some(3);
        cluster.disk = walk(5);
    });
    assert_eq!(counted(&harness.sweep(4)), [None, Some(0)]);
}

#[test]
fn index_files_without_design_document_are_stale() {
    let files = vec![
        db(SHARD, header(900, 100, 10, 9)),
        view(SHARD, 1, 40),
        view(SHARD, 2, 70),
        // Named by a design document in an unsupported language.
        view(SHARD, 3, 80),
        // The shard is gone.
        view("shards/00000000-ffffffff/gone.1", 1, 90),
    ];
    let signatures = vec![Signature([1; 16]), Signature([3; 16])];
    let cluster = Cluster {
        disk: walked(NODES[0], files.clone(), true),
        signatures: Some(signatures.clone()),
        ..Cluster::default()
    };
    let mut harness = Harness::after_one_sweep(cluster);
    let snapshot = harness.sweep(1);
    let state = |snapshot: &Snapshot, shard: &str, signature: &str| {
        let id = format!("view:couchdb@a/{shard}/{}", signature.repeat(16));
        target(snapshot, &id).state()
    };
    assert_eq!(state(&snapshot, ID, "01"), TargetState::Ok);
    assert_eq!(state(&snapshot, ID, "02"), TargetState::Orphan);
    assert_eq!(state(&snapshot, ID, "03"), TargetState::Ok);
    assert_eq!(state(&snapshot, "shards%2F00000000-ffffffff%2Fgone.1", "01"), TargetState::Orphan);
    let disk = on_disk(&snapshot, NODES[0]).unwrap();
    assert_eq!(
        (disk.stale_index_bytes, disk.stale_index_files, disk.designs_known),
        (160, 2, true)
    );
    assert_eq!(disk.ownerless_index_bytes, 90);
    assert_eq!(
        useless(&snapshot, NODES[0]),
        [("/data".to_owned(), [0, 0, 3]), ("/views".to_owned(), [160, 0, 2])]
    );
    let cleanup = target(&snapshot, "cleanup:orders").facts();
    assert_eq!((cleanup.flags.evidence, cleanup.file_bytes.get()), (true, Some(70)));
    let part_target = target(&snapshot, &format!("view:couchdb@a/{ID}/{}", "01".repeat(16)));
    assert_eq!(part_target.view().unwrap().designs.first().map(|id| &**id), Some("_design/x"));

    // After another program's cleanup, nothing is left to clean up.
    let without = |signature: u8| {
        files.iter().filter(move |file| {
        !matches!(file, FoundFile::View(part) if part.signature == Signature([signature; 16]))
    })
    };
    for whole in [false, true] {
        let cleaned = without(2).cloned().collect();
        harness.cluster.send_modify(|cluster| cluster.disk = walked(NODES[0], cleaned, whole));
        let snapshot = harness.sweep(if whole { 3 } else { 2 });
        let cleanup = target(&snapshot, "cleanup:orders").facts();
        let expected = if whole { (false, Some(0)) } else { (true, Some(70)) };
        assert_eq!((cleanup.flags.evidence, cleanup.file_bytes.get()), expected);
    }
    harness.cluster.send_modify(|cluster| cluster.disk = walked(NODES[0], files, true));

    // If not all design documents could be read, no signature is judged.
    harness.cluster.send_modify(|cluster| cluster.signatures = None);
    let snapshot = harness.sweep(4);
    assert_eq!(on_disk(&snapshot, NODES[0]).map(|disk| disk.stale_index_bytes), Some(90));
}

#[test]
fn reads_design_documents_after_finding_index_files() {
    // Feeds confirm the view, and its design documents were read before any directory was. A
    // database whose documents have no views is not asked again either.
    for signature in [1, 0] {
        let cluster = Cluster {
            seq: Some(4),
            signature,
            signatures: Some(vec![Signature([1; 16])]),
            ..Cluster::default()
        };
        let mut harness = Harness::after_one_sweep(cluster);
        let news = FeedUpdate {
            named: vec![],
            followed_since: Some(Moment::from_unix(1)),
            map_node: None,
        };
        harness.send(ScanCommand::FeedUpdate(news));
        harness.sweep(2);
        let files =
            vec![db(SHARD, header(900, 100, 10, 4)), view(SHARD, 1, 40), view(SHARD, 2, 70)];
        harness.cluster.send_modify(|cluster| cluster.disk = walked(NODES[0], files, true));
        let snapshot = harness.sweep(3);
        let state = |signature: &str| {
            let id = format!("view:couchdb@a/{ID}/{}", signature.repeat(16));
            target(&snapshot, &id).state()
        };
        assert_eq!(
            (state("01"), state("02")),
            (TargetState::Ok, TargetState::Orphan),
            "{signature}"
        );
        assert_eq!(on_disk(&snapshot, NODES[0]).map(|disk| disk.stale_index_bytes), Some(70));
    }
}

#[test]
fn sidecar_makes_the_cluster_sum_of_a_view_exact() {
    let parts = |node: &str, file| Observation::PeerFiles {
        node: node.into(),
        dbs: vec![],
        parts: vec![
            part(SHARD, 1, header(900, file, file / 2, 3)),
            part(SHARD, 9, header(900, 7, 7, 3)),
        ],
    };
    let end = |nodes: &[&str]| Observation::PeerEnd {
        peer: "http://a:10984".into(),
        nodes: Ok(nodes.iter().map(|node| Arc::from(*node)).collect()),
    };
    let view = format!("view:_cluster/orders.1/{}", "01".repeat(16));
    let cluster =
        Cluster { disk: vec![parts(NODES[0], 400), end(&NODES[..1])], ..Cluster::default() };
    let mut harness = Harness::after_one_sweep(cluster);
    let snapshot = harness.sweep(1);
    // CouchDB reports 50 bytes per file; one of the two copies is known exactly.
    assert_eq!(target(&snapshot, &view).file_bytes(), Some(450));
    let total = |snapshot: &Snapshot, at| {
        let node = NodeIx::from_usize(at).unwrap();
        snapshot.totals().sums_of(node, TargetKind::View).file_bytes.get()
    };
    // The cluster's sum counts all copies of its views. The node's sum counts its files, one of
    // which belongs to no known view.
    assert_eq!((total(&snapshot, 0), total(&snapshot, 1)), (Some(450.0), Some(407.0)));

    harness.cluster.send_modify(|cluster| {
        cluster.disk =
            vec![parts(NODES[0], 400), parts(NODES[1], 300), parts("stranger", 9), end(&NODES)];
    });
    let snapshot = harness.sweep(2);
    assert_eq!(
        (target(&snapshot, &view).file_bytes(), total(&snapshot, 0)),
        (Some(700), Some(700.0))
    );
    assert!(!target(&snapshot, &view).is_estimated());
    let waste = Waste::of(&snapshot);
    assert_eq!((waste.unread_directories(), waste.measured_by_sidecars()), (2, 2));
    assert_eq!(snapshot.nodes().len(), 3, "a node outside the cluster is not added");

    // The sidecar is gone: CouchDB's own numbers count again.
    let gone = Observation::PeerEnd { peer: "http://a:10984".into(), nodes: Err(unread("peer")) };
    harness.cluster.send_modify(|cluster| cluster.disk = vec![gone]);
    let snapshot = harness.sweep(3);
    assert_eq!(
        (target(&snapshot, &view).file_bytes(), total(&snapshot, 0), total(&snapshot, 1)),
        (Some(100), Some(100.0), Some(0.0))
    );
    assert_eq!(Waste::of(&snapshot).measured_by_sidecars(), 0);
    let status = harness.status.clone();
    assert_eq!(status.errors[&(Arc::from("_cluster"), "peer")], 1);
}

#[test]
fn unchanged_compaction_file_without_job_is_leftover() {
    // The second sweep begins 300 seconds after the clock's 1,000.
    let compaction = |shard: &str, age: u64| {
        let changed = Moment::from_unix(1_300_u64.saturating_sub(age));
        FoundFile::Compaction(CompactionFile {
            shard: shard.into(),
            of_view: age > 9_999,
            bytes: age,
            changed,
        })
    };
    let files = vec![
        db(SHARD, header(900, 100, 10, 9)),
        compaction(SHARD, 700),
        compaction("_dbs", 601),
        compaction("_nodes", 599),
        compaction("_users", 90_000),
    ];
    let cluster = Cluster { compacting: vec![SHARD], ..Cluster::default() };
    let listed = |snapshot: &Snapshot| -> Vec<(String, bool, u64, Option<u64>)> {
        let node = snapshot.nodes().iter().find(|it| &*it.name == NODES[0]).unwrap();
        let files = node.compactions.iter();
        files.map(|it| (it.shard.to_string(), it.is_leftover, it.bytes, it.shard_bytes)).collect()
    };
    let left = |disk: Vec<Observation>, alone: bool| {
        let cluster = Cluster { disk, alone, ..cluster.clone() };
        let mut harness = Harness::starting(cluster, vec![], None);
        harness.sweep(1);
        // By now the running jobs are known.
        let snapshot = harness.sweep(2);
        let left = on_disk(&snapshot, NODES[0]).map(|disk| disk.leftover_bytes);
        let by_volume = useless(&snapshot, NODES[0]).into_iter().map(|(_, [_, left, _])| left);
        assert!(by_volume.clone().all(|bytes| bytes == 0) || by_volume.eq([601, 90_000]));
        (left, listed(&snapshot))
    };
    let (bytes, listed) = left(walked(NODES[0], files.clone(), true), false);
    assert_eq!(bytes, Some(601 + 90_000));
    assert_eq!(
        listed,
        [
            ("_users".to_owned(), true, 90_000, None),
            (SHARD.to_owned(), false, 700, Some(100)),
            ("_dbs".to_owned(), true, 601, Some(100)),
            ("_nodes".to_owned(), false, 599, None),
        ]
    );
    let (bytes, _) = left(walked(NODES[0], files, true), true);
    assert_eq!(bytes, Some(0), "running jobs are unknown");
}
