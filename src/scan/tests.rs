//! The task on paused time, over a scripted cluster.

mod disk;
mod left;
mod restored;
mod spared;

use super::*;
use crate::{
    jobs,
    model::{
        facts::{Facts, Known, Measured, Source as MeasuredBy},
        target::{Kind, State},
    },
    sources::inventory::{
        CopyAt, Doing, IndexSeen, MapEntry, MapRead, Members, NodeSeen, TaskSeen, Unread, ViewSeen,
    },
    table::{Block, NodeIx, SmooshSeen},
};
use couchdb_names::{Range, Signature};
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use std::collections::BTreeSet;
use tokio::task::JoinSet;
use wall_clock::Moment;

const RANGE: Range = Range { from: 0, to: u32::MAX };

/// A cluster of two nodes as a table of answers; tests change it between sweeps.
#[derive(Clone, Debug)]
struct Cluster {
    dbs: Vec<&'static str>,
    files: [Vec<&'static str>; 2],
    down: [bool; 2],
    map_breaks: bool,
    active: u64,
    /// The update sequence of every file; absent where it is not told.
    seq: Option<u64>,
    /// The signature of the only view; zero where there is none.
    signature: u8,
    views_fail: bool,
    /// What CouchDB says the view has indexed.
    view_seq: Option<u64>,
    compacting: Vec<&'static str>,
    /// Whether the second node does not say what it runs.
    tasks_fail: bool,
    /// What is seen in directories.
    disk: Vec<Observation>,
    /// Every name that an index file may have.
    signatures: Option<Vec<Signature>>,
    /// Whether nobody answers but the directory.
    alone: bool,
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
            seq: None,
            signature: 1,
            views_fail: false,
            view_seq: None,
            compacting: vec![],
            tasks_fail: false,
            disk: vec![],
            signatures: None,
            alone: false,
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

    fn views(&self, copy: Option<Ix>) -> Result<Vec<ViewSeen>, Unread> {
        if self.views_fail {
            return Err(unread("timeout"));
        }
        let view = ViewSeen {
            designs: vec!["_design/x".into()],
            language: "javascript".into(),
            built_by: None,
            index: Ok(IndexSeen {
                signature: Signature([self.signature; 16]),
                facts: Facts { update_seq: self.view_seq.into(), ..facts(50, 5) },
                collators: vec![],
                copy,
            }),
            unaddressable: false,
        };
        Ok(if self.signature == 0 { vec![] } else { vec![view] })
    }

    fn answers(&self, stage: Stage) -> Vec<Observation> {
        let up =
            |node: &str| if self.down[Self::at(node)] { Err(unread("node_down")) } else { Ok(()) };
        match stage {
            Stage::Nodes if self.alone => {
                let expected = vec![NODES[0].to_owned()];
                vec![Observation::Members(Ok(Members { connected: vec![], expected }))]
            }
            Stage::Map if self.alone => vec![Observation::MapEnd(Ok(MapRead::None))],
            Stage::Splits | Stage::Away { .. } => vec![],
            Stage::Nodes => {
                let expected = NODES.map(ToOwned::to_owned).to_vec();
                let members = Members { connected: expected.clone(), expected };
                let nodes = NODES.map(|node| {
                    Observation::Node(NodeSeen {
                        node: node.into(),
                        up: up(node),
                        version: None,
                        own_address: Default::default(),
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
                .map(|ix| {
                    let update_seq = self.seq.into();
                    let facts = Facts { update_seq, ..facts(100, self.active) };
                    Observation::Shard { ix, facts: Ok(Some(facts)) }
                })
                .collect(),
            Stage::Disk => self.disk.clone(),
            Stage::Views { snapshot, dbs } => (0..dbs.len())
                .filter_map(|at| snapshot.target(*dbs.copies(at).first()?))
                .map(|target| Observation::Views {
                    searches: Vec::new(),
                    db: target.db_name().db.into(),
                    suffix: target.db_name().suffix.into(),
                    views: self.views(Some(target.ix())),
                    signatures: self.signatures.clone(),
                })
                .collect(),
            Stage::Poll { nodes } => nodes
                .into_iter()
                .map(|node| {
                    if self.tasks_fail && node == NODES[1] {
                        return Observation::Tasks { node, tasks: Err(unread("timeout")) };
                    }
                    let shards = if node == NODES[0] { &*self.compacting } else { &[] };
                    let tasks = shards
                        .iter()
                        .map(|shard| TaskSeen::bare(Doing::Compacts, (*shard).into()))
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
    source: watch::Sender<Arc<dyn Source>>,
}

impl Harness {
    async fn after_one_sweep(cluster: Cluster) -> Self {
        let mut harness = Self::starting(cluster, vec![], None);
        harness.sweep(1).await;
        harness
    }

    /// One with what an earlier process left, and perhaps another source.
    fn starting(cluster: Cluster, left: Vec<Block>, other: Option<Arc<dyn Source>>) -> Self {
        let (cluster, cluster_rx) = watch::channel(cluster);
        let source = other.unwrap_or_else(|| Arc::new(Scripted(cluster_rx)));
        let (source, source_rx) = watch::channel(source);
        let (settings, settings_rx) = watch::channel(Arc::new(Settings {
            interval: Duration::from_secs(300),
            interval_followed: Duration::from_secs(21_600),
            reread_after: Duration::from_secs(1),
            poll: Duration::from_secs(5),
            nodes: Nodes::All,
            views: true,
            parts: true,
            top: 10,
        }));
        let clock = Clock::anchored(Moment::from_unix(1_000));
        let (task, handle) = Task::new(clock, source_rx, settings_rx);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let before = Before { blocks: left, marks: Vec::new() };
        tasks.spawn(task.run_after(std::future::ready(before), stop.clone()));
        Self { cluster, handle, stop, tasks, settings, source }
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
            let file = target.on_disk(crate::model::facts::Fact::File);
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
        settings.nodes = Nodes::Named([NODES[0].into()].into());
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
async fn a_database_without_views_is_asked_for_them_again_only_when_it_has_moved() {
    let quiet = Cluster { seq: Some(5), signature: 0, ..Cluster::default() };
    let mut harness = Harness::after_one_sweep(quiet).await;
    let signature = |snapshot: &Snapshot| {
        snapshot.targets().find_map(|target| target.view().map(|view| view.signature.0[0]))
    };
    assert_eq!(signature(&*harness.sweep(1).await), None);
    // What no CouchDB does shows whether it was asked.
    harness.cluster.send_modify(|cluster| cluster.signature = 1);
    assert_eq!(signature(&*harness.sweep(2).await), None, "unmoved, not asked");
    harness.cluster.send_modify(|cluster| cluster.seq = Some(6));
    assert_eq!(signature(&*harness.sweep(3).await), Some(1));
    harness.cluster.send_modify(|cluster| cluster.signature = 2);
    assert_eq!(signature(&*harness.sweep(4).await), Some(2), "with views it always is");
    harness.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn design_documents_that_were_not_read_or_by_another_source_are_asked_for_again() {
    let failing = Cluster { seq: Some(5), views_fail: true, ..Cluster::default() };
    let mut harness = Harness::after_one_sweep(failing).await;
    let views = |snapshot: &Snapshot| {
        snapshot.targets().filter(|target| target.kind() == Kind::View).count()
    };
    harness.cluster.send_modify(|cluster| {
        cluster.views_fail = false;
        cluster.signature = 0;
    });
    assert_eq!(views(&*harness.sweep(2).await), 0);
    harness.cluster.send_modify(|cluster| cluster.signature = 1);
    assert_eq!(views(&*harness.sweep(3).await), 0, "it was asked in the second sweep");
    harness.source.send_replace(Arc::new(Scripted(harness.cluster.subscribe())));
    assert_eq!(views(&*harness.sweep(4).await), 1);
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

#[tokio::test(start_paused = true)]
async fn what_nodes_run_is_told_after_each_poll_and_silence_is_not_nothing() {
    let compacting = vec!["shards/00000000-ffffffff/orders.1"];
    let cluster = Cluster { compacting, tasks_fail: true, ..Cluster::default() };
    let mut harness = Harness::after_one_sweep(cluster).await;
    let tasks = |running: &Running, node: usize| {
        let node = NodeIx::from_usize(node).unwrap();
        running.nodes.get(&node).and_then(|polled| Some(polled.tasks.as_ref()?.len()))
    };
    let polled = harness.handle.running.wait_for(|running| tasks(running, 1) == Some(1));
    let running = time::timeout(Duration::from_secs(60), polled).await.unwrap().unwrap().clone();
    assert_eq!(tasks(&running, 2), None, "{running:?}");
    let [task] = running.nodes[&NodeIx::from_usize(1).unwrap()].tasks.as_deref().unwrap() else {
        panic!("{running:?}")
    };
    assert_eq!(
        (&*task.key.shard, &task.key.work),
        ("shards/00000000-ffffffff/orders.1", &jobs::Work::Db)
    );
    assert!(task.target.is_some());
    harness.cluster.send_modify(|cluster| cluster.tasks_fail = false);
    let polled = harness.handle.running.wait_for(|running| tasks(running, 2) == Some(0));
    drop(time::timeout(Duration::from_secs(60), polled).await.unwrap().unwrap());
    harness.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_target_is_read_again_when_asked_and_a_cleanup_that_was_asked_for_is_evidence_no_more() {
    let mut harness = Harness::after_one_sweep(Cluster::default()).await;
    harness.cluster.send_modify(|cluster| cluster.signature = 2);
    let snapshot = harness.sweep(2).await;
    let cleanup = snapshot.targets().find(|target| target.facts().flags.evidence).unwrap().ix();
    let db = snapshot.targets().find(|target| target.kind() == Kind::Db).unwrap().ix();
    assert_eq!(harness.handle.send(Command::Cleaned(cleanup)), None);
    harness.cluster.send_modify(|cluster| cluster.active = 77);
    assert_eq!(harness.handle.send(Command::Reread(vec![db])), None);
    harness
        .snapshot_where(|snapshot| {
            let facts = |ix| snapshot.target(ix).map(crate::table::TargetRef::facts).unwrap();
            !facts(cleanup).flags.evidence && facts(db).active.get() == Some(77)
        })
        .await;
    harness.shut_down().await;
}
