//! Restoring the measurements of an earlier process.

use super::*;
use crate::sources::inventory::SilentSource;
use couchdb_client::OwnAddress;

/// The stored measurements that a process leaves after one sweep.
pub(super) fn left(cluster: Cluster) -> Vec<TableBlock> {
    let mut harness = Harness::after_one_sweep(cluster);
    let snapshot = harness.sweep(1);
    let blocks = u32::try_from(snapshot.block_count()).unwrap();
    (0..blocks).map(|number| snapshot.build_block(number).compress()).collect()
}

#[test]
fn restored_facts_keep_their_age_and_do_not_make_the_scan_ready() {
    let blocks = left(Cluster::default());
    let mut harness = Harness::starting(Cluster::default(), blocks, Some(Arc::new(SilentSource)));
    let snapshot = harness.snapshot_where(|snapshot| snapshot.version() > 0);
    assert_eq!(shown(&snapshot).len(), 6);
    let facts = snapshot.targets().map(|target| target.facts());
    let ages: Vec<_> = facts.filter_map(|facts| facts.measured_at).map(|it| it.at).collect();
    assert!(ages.len() > 4 && ages.iter().all(|at| *at <= Moment::from_unix(1_000)), "{ages:?}");
    let mut nodes = snapshot.nodes().iter().skip(1);
    assert!(nodes.all(|node| node.oldest_fact == Some(Moment::from_unix(7)) && node.is_member));
    let end = harness.now.at + Duration::from_secs(3_600);
    harness.until(|it| it.now.at >= end);
    let status = harness.status.clone();
    assert!(!status.ready && status.sweeps == 0);
}

#[test]
fn first_sweep_result_does_not_depend_on_restored_facts() {
    let mut before = Cluster { dbs: vec!["orders", "gone"], signature: 2, ..Cluster::default() };
    before.files[0].push("shards/00000000-ffffffff/gone.1");
    let mut blocks = left(before);
    let mut fresh = Harness::after_one_sweep(Cluster::default());
    let snapshot = fresh.sweep(1);
    let expected = shown(&snapshot);
    for _ in 0..2 {
        let mut harness = Harness::starting(Cluster::default(), blocks.clone(), None);
        let snapshot = harness.sweep(1);
        assert_eq!(shown(&snapshot), expected);
        // Facts in damaged blocks are unknown until they are measured again.
        blocks.push(TableBlock { number: 9, at: Moment::from_unix(7), bytes: vec![1, 2, 3] });
        blocks[0].bytes.truncate(20);
    }
}

/// A source that cannot list the nodes, for this reason; the second node may answer for itself.
#[derive(Debug)]
struct Nobody(&'static str, bool);

impl Source for Nobody {
    fn read(&self, stage: Stage) -> BoxStream<'static, Observation> {
        let mut answers = Vec::new();
        if matches!(stage, Stage::Nodes) {
            answers.push(Observation::Members(Err(unread(self.0))));
            answers.extend(self.1.then(|| {
                Observation::Node(NodeAnswer {
                    node: NODES[1].into(),
                    up: Ok(()),
                    build: None,
                    own_address: OwnAddress::Unknown,
                    smoosh: NodeSmoosh::NoDirectAddress,
                })
            }));
        }
        answers.push(Observation::StageEnded);
        stream::iter(answers).boxed()
    }
}

fn up(snapshot: &Snapshot) -> Vec<Option<bool>> {
    snapshot.nodes().iter().skip(1).map(|node| node.is_up).collect()
}

#[test]
fn restored_nodes_are_down_if_nobody_answers() {
    let blocks = left(Cluster::default());
    for (source, expected) in [
        (Nobody("connect", false), [Some(false), Some(false)]),
        (Nobody("timeout", true), [Some(false), Some(true)]),
        // Nothing was sent, so it is unknown whether they are up.
        (Nobody("login", false), [None, None]),
    ] {
        let case = format!("{source:?}");
        let mut harness =
            Harness::starting(Cluster::default(), blocks.clone(), Some(Arc::new(source)));
        harness.until(|it| it.status.sweeps > 0);
        assert_eq!(up(&harness.snapshot), expected, "{case}");
    }
}

#[test]
fn nodes_are_down_while_the_whole_cluster_is_away() {
    let mut harness = Harness::after_one_sweep(Cluster::default());
    assert_eq!(up(&harness.sweep(1)), [Some(true); 2]);
    let answers = Arc::clone(&harness.source);
    harness.change_source(Arc::new(Nobody("connect", false)));
    assert_eq!(up(&harness.sweep(2)), [Some(false); 2]);
    harness.change_source(answers);
    let snapshot = harness.snapshot_where(|snapshot| up(snapshot) == [Some(true); 2]);
    assert_eq!(shown(&snapshot).len(), 6);
}
