//! The task on paused time, over a scripted cluster.

use super::*;
use crate::{
    clock::Moment,
    facts::{Facts, Known, Measured, Source as MeasuredBy},
    inventory::{
        CopyAt, IndexSeen, MapEntry, MapRead, Members, NodeSeen, TaskSeen, Unread, ViewSeen,
    },
    snapshot::SmooshSeen,
    target::{Range, Signature, State},
};
use futures::stream;
use std::collections::BTreeSet;
use tokio::task::JoinSet;

const RANGE: Range = Range { from: 0, to: u32::MAX };

/// A cluster of two nodes as a table of answers; tests change it between sweeps.
#[derive(Clone, Debug)]
struct Cluster {
    dbs: Vec<&'static str>,
    files: [Vec<&'static str>; 2],
    down: [bool; 2],
    map_breaks: bool,
    active: u64,
    signature: u8,
    compacting: Vec<&'static str>,
}

const NODES: [&str; 2] = ["couchdb@a", "couchdb@b"];

impl Default for Cluster {
    fn default() -> Self {
        let files = vec!["_dbs", "shards/00000000-ffffffff/orders.1"];
        Self {
            dbs: vec!["orders"],
            files: [files.clone(), files],
            down: [false; 2],
            map_breaks: false,
            active: 10,
            signature: 1,
            compacting: vec![],
        }
    }
}

fn unread(reason: &'static str) -> Unread {
    Unread { reason, message: format!("could not ask: {reason}"), right: None }
}

fn facts(file: u64, active: u64) -> Facts {
    Facts {
        file: Known::new(file),
        active: Known::new(active),
        measured_at: Some(Measured { at: Moment::from_unix(7), by: MeasuredBy::Http }),
        ..Facts::default()
    }
}

impl Cluster {
    fn entry(db: &str) -> MapEntry {
        let copies = NODES.map(|node| CopyAt { range: RANGE, node: node.into() });
        MapEntry {
            db: db.into(),
            suffix: ".1".into(),
            copies: BTreeSet::from(copies),
            ..MapEntry::default()
        }
    }

    fn at(node: &str) -> usize {
        usize::from(node == NODES[1])
    }

    fn answers(&self, stage: Stage) -> Vec<Observation> {
        let up =
            |node: &str| if self.down[Self::at(node)] { Err(unread("node_down")) } else { Ok(()) };
        match stage {
            Stage::Nodes => {
                let expected = NODES.map(ToOwned::to_owned).to_vec();
                let members = Members { connected: expected.clone(), expected };
                let nodes = NODES.map(|node| {
                    Observation::Node(NodeSeen {
                        node: node.into(),
                        up: up(node),
                        version: None,
                        own_address: true,
                        smoosh: SmooshSeen::Unasked,
                    })
                });
                std::iter::once(Observation::Members(Ok(members))).chain(nodes).collect()
            }
            Stage::Map => vec![
                Observation::MapPage(self.dbs.iter().map(|db| Self::entry(db)).collect()),
                Observation::MapEnd(if self.map_breaks {
                    Err(unread("timeout"))
                } else {
                    Ok(MapRead::Whole)
                }),
            ],
            Stage::Files { nodes } => nodes
                .into_iter()
                .map(|node| {
                    let names = self.files[Self::at(&node)].iter().copied().collect();
                    Observation::Files { names: up(&node).map(|()| names), node }
                })
                .collect(),
            Stage::Strays { dbs } => {
                dbs.into_iter().map(|db| Observation::Stray { db, entry: Ok(None) }).collect()
            }
            Stage::Shards { lanes, .. } => lanes
                .into_iter()
                .flat_map(|lane| lane.targets)
                .map(|ix| Observation::Shard { ix, facts: Ok(Some(facts(100, self.active))) })
                .collect(),
            Stage::Views { snapshot, dbs } => (0..dbs.len())
                .filter_map(|at| snapshot.target(*dbs.copies(at).first()?))
                .map(|target| Observation::Views {
                    db: target.db_name().db.into(),
                    suffix: target.db_name().suffix.into(),
                    views: Ok(vec![ViewSeen {
                        designs: vec!["_design/x".into()],
                        language: "javascript".into(),
                        index: Ok(IndexSeen {
                            signature: Signature([self.signature; 16]),
                            facts: facts(50, 5),
                            collators: vec![],
                            exact_range: true,
                        }),
                        unaddressable: false,
                    }]),
                })
                .collect(),
            Stage::Poll { nodes } => nodes
                .into_iter()
                .map(|node| {
                    let shards = if node == NODES[0] { &*self.compacting } else { &[] };
                    let tasks = shards
                        .iter()
                        .map(|shard| TaskSeen::Compaction { shard: (*shard).into() })
                        .collect();
                    Observation::Tasks { node, tasks: Ok(tasks) }
                })
                .collect(),
        }
    }
}

#[derive(Debug)]
struct Scripted(watch::Receiver<Cluster>);

impl Source for Scripted {
    fn read(&self, stage: Stage) -> BoxStream<'static, Observation> {
        let mut seen = self.0.borrow().answers(stage);
        seen.push(Observation::StageEnded);
        stream::iter(seen).boxed()
    }
}

struct Harness {
    cluster: watch::Sender<Cluster>,
    handle: Handle,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    settings: watch::Sender<Arc<Settings>>,
    _source: watch::Sender<Arc<dyn Source>>,
}

impl Harness {
    async fn after_one_sweep(cluster: Cluster) -> Self {
        let (cluster, cluster_rx) = watch::channel(cluster);
        let source: Arc<dyn Source> = Arc::new(Scripted(cluster_rx));
        let (source, source_rx) = watch::channel(source);
        let (settings, settings_rx) = watch::channel(Arc::new(Settings {
            interval: Duration::from_secs(300),
            poll: Duration::from_secs(5),
            share: Share::All,
            views: true,
            top: 10,
        }));
        let clock = Clock::anchored(Moment::from_unix(1_000));
        let (task, handle) = Task::new(clock, source_rx, settings_rx);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run(stop.clone()));
        let mut harness = Self { cluster, handle, stop, tasks, settings, _source: source };
        harness.sweep(1).await;
        harness
    }

    async fn sweep(&mut self, number: u64) -> Arc<Snapshot> {
        let waited = self.handle.status.wait_for(|status| status.sweeps >= number);
        let status = time::timeout(Duration::from_secs(7_200), waited).await;
        assert!(status.expect("the sweep ends").expect("the task lives").ready);
        Arc::clone(&self.handle.snapshots.borrow())
    }

    async fn snapshot_where(
        &mut self,
        wanted: impl FnMut(&Arc<Snapshot>) -> bool,
    ) -> Arc<Snapshot> {
        let waited = self.handle.snapshots.wait_for(wanted);
        let found = time::timeout(Duration::from_secs(7_200), waited).await;
        Arc::clone(&found.expect("it comes within two hours").expect("the task lives"))
    }

    async fn shut_down(mut self) {
        self.stop.cancel();
        let ended = time::timeout(Duration::from_secs(60), self.tasks.join_next()).await;
        assert!(ended.expect("the task ends").expect("there is one").is_ok());
    }
}

/// Every target as `id state file`.
fn shown(snapshot: &Snapshot) -> Vec<String> {
    let mut lines: Vec<String> = snapshot
        .targets()
        .map(|target| {
            let file = target.on_disk(target.facts().file.get());
            let file = file.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
            format!("{} {} {file}", target.id(), target.state().label())
        })
        .collect();
    lines.sort_unstable();
    lines
}

fn state_of(snapshot: &Snapshot, id: &str) -> Option<State> {
    snapshot.targets().find(|target| target.id().to_string() == id).map(|target| target.state())
}

#[tokio::test(start_paused = true)]
async fn one_sweep_sees_every_copy_view_and_cleanup() {
    let mut harness = Harness::after_one_sweep(Cluster::default()).await;
    let snapshot = harness.sweep(1).await;
    assert_eq!(
        shown(&snapshot),
        [
            "cleanup:orders ok -".to_owned(),
            "db:couchdb@a/_dbs ok 100".into(),
            "db:couchdb@a/shards%2F00000000-ffffffff%2Forders.1 ok 100".into(),
            "db:couchdb@b/_dbs ok 100".into(),
            "db:couchdb@b/shards%2F00000000-ffffffff%2Forders.1 ok 100".into(),
            format!("view:_cluster/orders.1/{} ok 100", "01".repeat(16)),
        ]
    );
    harness.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn files_without_an_entry_are_stray_and_entries_without_a_file_missing() {
    let mut cluster = Cluster::default();
    cluster.files[0].push("shards/00000000-ffffffff/deleted.9");
    cluster.files[1].pop();
    let mut harness = Harness::after_one_sweep(cluster).await;
    let snapshot = harness.sweep(1).await;
    let orders = "shards%2F00000000-ffffffff%2Forders.1";
    assert_eq!(
        state_of(&snapshot, "db:couchdb@a/shards%2F00000000-ffffffff%2Fdeleted.9"),
        Some(State::Orphan)
    );
    assert_eq!(state_of(&snapshot, &format!("db:couchdb@b/{orders}")), Some(State::Missing));

    // The stray is deleted by hand, the missing copy comes back.
    harness.cluster.send_replace(Cluster::default());
    let snapshot = harness.sweep(2).await;
    assert_eq!(state_of(&snapshot, "db:couchdb@a/shards%2F00000000-ffffffff%2Fdeleted.9"), None);
    assert_eq!(state_of(&snapshot, &format!("db:couchdb@b/{orders}")), Some(State::Ok));
    harness.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_down_and_a_map_that_breaks_take_nothing_away() {
    let mut harness = Harness::after_one_sweep(Cluster::default()).await;
    let before = shown(&*harness.sweep(1).await);
    harness.cluster.send_modify(|cluster| cluster.down[1] = true);
    let snapshot = harness.sweep(2).await;
    assert_eq!(shown(&snapshot), before);
    let up: Vec<_> = snapshot.nodes().iter().skip(1).map(|node| node.up).collect();
    assert_eq!(up, [Some(true), Some(false)]);
    let success: Vec<_> = snapshot.nodes().iter().skip(1).map(|node| node.last_success).collect();
    assert!(success[0] > success[1], "{success:?}");
    let errors = harness.handle.status.borrow().errors.clone();
    assert_eq!(errors.get(&("couchdb@b".into(), "node_down")), Some(&1));

    harness.cluster.send_modify(|cluster| {
        cluster.down[1] = false;
        cluster.map_breaks = true;
        cluster.dbs.clear();
    });
    assert_eq!(shown(&*harness.sweep(3).await), before);

    harness.cluster.send_modify(|cluster| cluster.map_breaks = false);
    let gone = shown(&*harness.sweep(4).await);
    assert_eq!(gone.len(), 4, "two orphans and two node-local databases: {gone:?}");
    harness.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn of_what_other_processes_serve_nothing_is_said() {
    let mut harness = Harness::after_one_sweep(Cluster::default()).await;
    harness.settings.send_modify(|settings| {
        let settings = Arc::make_mut(settings);
        settings.share = Share::Nodes(vec![NODES[0].into()]);
        settings.views = false;
    });
    let snapshot = harness.sweep(2).await;
    let served: Vec<_> = snapshot.nodes().iter().map(|node| (&*node.name, node.served)).collect();
    assert_eq!(served, [("_cluster", false), (NODES[0], true), (NODES[1], false)]);
    assert_eq!(
        shown(&snapshot),
        ["db:couchdb@a/_dbs ok 100", "db:couchdb@a/shards%2F00000000-ffffffff%2Forders.1 ok 100",]
    );
    harness.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_signature_that_changed_is_evidence_for_a_cleanup() {
    let mut harness = Harness::after_one_sweep(Cluster::default()).await;
    let evidence = |snapshot: &Snapshot| {
        let cleanup = snapshot.targets().find(|target| target.kind() == Kind::Cleanup);
        cleanup.map(|target| target.facts().flags.evidence)
    };
    assert_eq!(evidence(&*harness.sweep(1).await), Some(false));
    harness.cluster.send_modify(|cluster| cluster.signature = 2);
    let snapshot = harness.sweep(2).await;
    assert_eq!(evidence(&snapshot), Some(true));
    let views = snapshot.targets().filter(|target| target.kind() == Kind::View).count();
    assert_eq!(views, 1, "the old index is no target any more");
    harness.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_target_is_read_again_when_a_job_on_it_ends() {
    let mut harness = Harness::after_one_sweep(Cluster::default()).await;
    let id = "db:couchdb@a/shards%2F00000000-ffffffff%2Forders.1";
    let of = |snapshot: &Arc<Snapshot>| {
        let target = snapshot.targets().find(|target| target.id().to_string() == id);
        target.map(|target| (target.facts().flags.compact_running, target.facts().active.get()))
    };
    harness.cluster.send_modify(|cluster| {
        cluster.compacting = vec!["shards/00000000-ffffffff/orders.1"];
    });
    harness.snapshot_where(|snapshot| of(snapshot) == Some((true, Some(10)))).await;
    harness.cluster.send_modify(|cluster| {
        cluster.compacting.clear();
        cluster.active = 99;
    });
    let sweeps = harness.handle.status.borrow().sweeps;
    harness.snapshot_where(|snapshot| of(snapshot) == Some((false, Some(99)))).await;
    assert_eq!(harness.handle.status.borrow().sweeps, sweeps, "no sweep was needed");
    harness.shut_down().await;
}
