//! The scanner over a scripted cluster, event by event; at the end the task that drives it.

mod departed_nodes;
mod disk;
mod header_coverage;
mod moved_copies;
mod restore;
mod transitions;

use super::*;
use crate::{
    jobs,
    model::{
        facts::{FactSource as MeasuredBy, Facts, Measurement, OptionalU64},
        settings::ServedNodes,
        target::TargetState,
    },
    scan::ScanTask,
    sources::inventory::{
        ActiveTask, CopyAt, IndexAnswer, MapEntry, MapRead, Members, NodeAnswer, Source, TaskKind,
        ViewAnswer,
    },
    table::{NodeSmoosh, TableBlock},
    text::Label,
};
use couchdb_names::{Range, Signature};
use futures::{
    FutureExt as _, StreamExt as _,
    stream::{self, BoxStream},
};
use std::collections::BTreeSet;
use tokio::{sync::watch, task::JoinSet, time};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Wall-clock time at which the scanner starts.
const START: Moment = Moment::from_unix(1_000);

const RANGE: Range = Range { from: 0, to: u32::MAX };

/// A cluster of two nodes as a table of answers; tests change it between sweeps.
#[derive(Clone, Debug)]
struct Cluster {
    dbs: Vec<&'static str>,
    files: [Vec<&'static str>; 2],
    down: [bool; 2],
    map_breaks: bool,
    /// The map that each node reports, if it differs from `dbs`.
    maps: [Option<Vec<MapEntry>>; 2],
    active: u64,
    /// The update sequence of every file; `None` if CouchDB does not report it.
    seq: Option<u64>,
    /// The signature of the only view; zero for none.
    signature: u8,
    views_fail: bool,
    /// The sequence that the view has indexed, according to CouchDB.
    view_seq: Option<u64>,
    compacting: Vec<&'static str>,
    /// How often each node flushed a file to disk.
    flushes: Option<u64>,
    /// Whether the second node fails to report its tasks.
    tasks_fail: bool,
    /// Observations of the directories.
    disk: Vec<Observation>,
    /// Every signature that an index file may have.
    signatures: Option<Vec<Signature>>,
    /// Whether only the directory can be read, and CouchDB does not answer.
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
            maps: [None, None],
            active: 10,
            seq: None,
            signature: 1,
            views_fail: false,
            view_seq: None,
            compacting: vec![],
            flushes: Some(1),
            tasks_fail: false,
            disk: vec![],
            signatures: None,
            alone: false,
        }
    }
}

fn unread(reason: &'static str) -> ReadError {
    ReadError { reason, message: format!("could not ask: {reason}"), right: None }
}

fn facts(file: u64, active: u64) -> Facts {
    Facts {
        measured_at: Some(Measurement { at: Moment::from_unix(7), source: MeasuredBy::Http }),
        ..Facts::sized(file, active)
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

    /// The map of a node; of the second one where any may answer.
    fn map(&self, node: Option<&str>) -> Vec<MapEntry> {
        let at = node.map_or(1, Self::at);
        self.maps[at].clone().unwrap_or_else(|| self.dbs.iter().map(|db| Self::entry(db)).collect())
    }

    fn at(node: &str) -> usize {
        usize::from(node == NODES[1])
    }

    fn views(&self, copy: Option<TargetIx>) -> Result<Vec<ViewAnswer>, ReadError> {
        if self.views_fail {
            return Err(unread("timeout"));
        }
        let view = ViewAnswer {
            designs: vec!["_design/x".into()],
            language: "javascript".into(),
            built_by: None,
            functions: vec![],
            index: Ok(IndexAnswer {
                copies: Vec::new(),
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
        let node_answer = |node: &str| {
            Observation::Node(NodeAnswer {
                node: node.into(),
                up: up(node),
                build: None,
                own_address: Default::default(),
                smoosh: NodeSmoosh::NoDirectAddress,
            })
        };
        match stage {
            Stage::Nodes if self.alone => {
                let expected = vec![NODES[0].to_owned()];
                vec![Observation::Members(Ok(Members { connected: vec![], expected }))]
            }
            Stage::Map { .. } if self.alone => vec![Observation::MapEnd(Ok(MapRead::None))],
            Stage::Splits => vec![],
            Stage::Away { nodes } => {
                let back = nodes.into_iter().filter(|node| up(node).is_ok());
                back.map(|node| Observation::Back { node }).collect()
            }
            Stage::Nodes => {
                let expected = NODES.map(ToOwned::to_owned).to_vec();
                let members = Members { connected: expected.clone(), expected };
                let nodes = NODES.map(node_answer);
                std::iter::once(Observation::Members(Ok(members))).chain(nodes).collect()
            }
            Stage::Map { map_node } => vec![
                Observation::MapPage(self.map(map_node.as_deref())),
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
            Stage::Strays { dbs, map_node, nodes } => {
                let stray = |db: String| {
                    let of = |node| self.map(node).into_iter().find(|entry| entry.db == db);
                    let entry = of(map_node.as_deref());
                    let is_agreed =
                        entry.is_some() || nodes.iter().all(|node| of(Some(node)).is_none());
                    Observation::Stray { db, entry: Ok(entry), is_agreed }
                };
                dbs.into_iter().map(stray).collect()
            }
            Stage::Shards { node_reads, .. } => node_reads
                .into_iter()
                .flat_map(|reads| reads.targets)
                .map(|ix| {
                    let update_seq = self.seq.into();
                    let facts = Facts { update_seq, ..facts(100, self.active) };
                    Observation::Shard { ix, facts: Ok(Some(facts)), designs: None }
                })
                .collect(),
            Stage::Disk => self.disk.clone(),
            Stage::Views { snapshot, dbs, .. } => (0..dbs.len())
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
                        return Observation::Tasks {
                            node,
                            tasks: Err(unread("timeout")),
                            flushes: None,
                            is_silent: self.down[1],
                        };
                    }
                    let shards = if node == NODES[0] { &*self.compacting } else { &[] };
                    let tasks = shards
                        .iter()
                        .map(|shard| ActiveTask::bare(TaskKind::Compacts, (*shard).into()))
                        .collect();
                    Observation::Tasks {
                        node,
                        tasks: Ok(tasks),
                        flushes: self.flushes,
                        is_silent: false,
                    }
                })
                .collect(),
        }
    }
}

#[derive(Debug)]
struct Scripted(watch::Receiver<Cluster>);

impl Source for Scripted {
    fn read(&self, stage: Stage) -> BoxStream<'static, Observation> {
        let mut answers = self.0.borrow().answers(stage);
        answers.push(Observation::StageEnded);
        stream::iter(answers).boxed()
    }
}

/// A scanner without its task: carries out the effects of each event at once, and lets time pass
/// when nothing is left to do.
struct Harness {
    cluster: watch::Sender<Cluster>,
    scanner: Scanner,
    settings: ScanSettings,
    source: Arc<dyn Source>,
    now: Now,
    elapsed: Duration,
    readings: BTreeMap<Slot, BoxStream<'static, Observation>>,
    /// The values published last.
    snapshot: Arc<Snapshot>,
    status: Arc<ScanStatus>,
    running: Arc<Running>,
}

impl Harness {
    fn after_one_sweep(cluster: Cluster) -> Self {
        let mut harness = Self::starting(cluster, vec![], None);
        harness.sweep(1);
        harness
    }

    /// A harness with the measurements of an earlier process and, optionally, another source.
    fn starting(cluster: Cluster, left: Vec<TableBlock>, other: Option<Arc<dyn Source>>) -> Self {
        let (cluster, cluster_rx) = watch::channel(cluster);
        let settings = ScanSettings::example();
        let now = Now { wall: START, at: Instant::now() };
        let mut harness = Self {
            cluster,
            scanner: Scanner::new(Arc::new(settings.clone()), now),
            settings,
            source: other.unwrap_or_else(|| Arc::new(Scripted(cluster_rx))),
            now,
            elapsed: Duration::ZERO,
            readings: BTreeMap::new(),
            snapshot: Arc::default(),
            status: Arc::default(),
            running: Arc::default(),
        };
        if !left.is_empty() {
            harness.handle(Event::Restored(EarlierProcess { blocks: left, marks: Vec::new() }));
        }
        harness.handle(Event::Started);
        harness
    }

    fn handle(&mut self, event: Event) {
        for effect in self.scanner.handle(event, self.now) {
            match effect {
                Effect::Start(slot, stage) => {
                    self.readings.insert(slot, self.source.read(stage));
                }
                Effect::Stop(slot) => drop(self.readings.remove(&slot)),
                Effect::Rename { from, to } => {
                    let reading =
                        self.readings.remove(&from).expect("only a running read is renamed");
                    self.readings.insert(to, reading);
                }
                Effect::Publish(snapshot, status) => {
                    (self.snapshot, self.status) = (snapshot, status);
                }
                Effect::PublishRunning(running) => self.running = running,
                Effect::Emit(_) | Effect::WarnDamaged(_) => {}
            }
        }
        let reads: Vec<Slot> = self.readings.keys().copied().collect();
        let expects: Vec<Slot> = self.scanner.readings.keys().copied().collect();
        assert_eq!(reads, expects, "the scanner knows what is being read");
    }

    /// Handles the next event: a due wake, a batch of observations, or the next wake.
    fn step(&mut self) {
        let wake = self.scanner.next_wake();
        let is_due = wake.is_some_and(|at| at <= self.now.at);
        if !is_due && let Some((slot, batch)) = self.ready() {
            return self.handle(Event::Observed(slot, batch));
        }
        // Nothing may be due while no answer arrives.
        let at = wake.unwrap_or(self.now.at + Duration::from_secs(60));
        self.pass(at.saturating_duration_since(self.now.at));
        self.handle(Event::Wake);
    }

    /// All available observations of the first read that has any.
    fn ready(&mut self) -> Option<(Slot, Vec<Observation>)> {
        self.readings.iter_mut().find_map(|(slot, reading)| {
            let next = || reading.next().now_or_never().flatten();
            let batch: Vec<Observation> = std::iter::from_fn(next).collect();
            (!batch.is_empty()).then_some((*slot, batch))
        })
    }

    fn pass(&mut self, time: Duration) {
        self.now.at += time;
        self.elapsed += time;
        self.now.wall = START.plus(self.elapsed);
    }

    /// Handles events until `reached`, for two hours at most.
    fn until(&mut self, mut reached: impl FnMut(&Self) -> bool) {
        let end = self.now.at + Duration::from_secs(7_200);
        while !reached(self) {
            self.step();
            assert!(self.now.at < end, "the condition is reached within two hours");
        }
    }

    fn sweep(&mut self, number: u64) -> Arc<Snapshot> {
        self.until(|it| it.status.sweeps >= number);
        assert!(self.status.ready);
        Arc::clone(&self.snapshot)
    }

    fn snapshot_where(&mut self, mut wanted: impl FnMut(&Arc<Snapshot>) -> bool) -> Arc<Snapshot> {
        self.until(|it| wanted(&it.snapshot));
        Arc::clone(&self.snapshot)
    }

    fn send(&mut self, command: ScanCommand) {
        self.handle(Event::Command(command));
    }

    fn change_settings(&mut self, change: impl FnOnce(&mut ScanSettings)) {
        change(&mut self.settings);
        self.handle(Event::Settings(Arc::new(self.settings.clone())));
    }

    fn change_source(&mut self, source: Arc<dyn Source>) {
        self.source = source;
        self.handle(Event::SourceChanged);
    }
}

/// Every target as `id state file`.
fn shown(snapshot: &Snapshot) -> Vec<String> {
    let mut lines: Vec<String> = snapshot
        .targets()
        .map(|target| {
            let file = target.file_bytes();
            let file = file.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
            format!("{} {} {file}", target.id(), target.state().label())
        })
        .collect();
    lines.sort_unstable();
    lines
}

fn state_of(snapshot: &Snapshot, id: &str) -> Option<TargetState> {
    snapshot.targets().find(|target| target.id().to_string() == id).map(|target| target.state())
}

#[test]
fn one_sweep_finds_every_copy_view_and_cleanup() {
    let mut harness = Harness::after_one_sweep(Cluster::default());
    let snapshot = harness.sweep(1);
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
}

#[test]
fn unmapped_files_are_orphans_and_absent_files_are_missing() {
    let mut cluster = Cluster::default();
    cluster.files[0].push("shards/00000000-ffffffff/deleted.9");
    cluster.files[1].pop();
    let mut harness = Harness::after_one_sweep(cluster);
    let snapshot = harness.sweep(1);
    let orders = "shards%2F00000000-ffffffff%2Forders.1";
    assert_eq!(
        state_of(&snapshot, "db:couchdb@a/shards%2F00000000-ffffffff%2Fdeleted.9"),
        Some(TargetState::Orphan)
    );
    assert_eq!(state_of(&snapshot, &format!("db:couchdb@b/{orders}")), Some(TargetState::Missing));

    // The stray is deleted by hand, the missing copy comes back.
    harness.cluster.send_replace(Cluster::default());
    let snapshot = harness.sweep(2);
    assert_eq!(state_of(&snapshot, "db:couchdb@a/shards%2F00000000-ffffffff%2Fdeleted.9"), None);
    assert_eq!(state_of(&snapshot, &format!("db:couchdb@b/{orders}")), Some(TargetState::Ok));
}

#[test]
fn down_node_or_broken_map_removes_no_target() {
    let mut harness = Harness::after_one_sweep(Cluster::default());
    let before = shown(&harness.sweep(1));
    harness.cluster.send_modify(|cluster| cluster.down[1] = true);
    let snapshot = harness.sweep(2);
    assert_eq!(shown(&snapshot), before);
    let up: Vec<_> = snapshot.nodes().iter().skip(1).map(|node| node.is_up).collect();
    assert_eq!(up, [Some(true), Some(false)]);
    let success: Vec<_> = snapshot.nodes().iter().skip(1).map(|node| node.last_success).collect();
    assert!(success[0] > success[1], "{success:?}");
    let errors = harness.status.errors.clone();
    assert_eq!(errors.get(&("couchdb@b".into(), "node_down")), Some(&1));

    harness.cluster.send_modify(|cluster| {
        cluster.down[1] = false;
        cluster.map_breaks = true;
        cluster.dbs.clear();
    });
    assert_eq!(shown(&harness.sweep(3)), before);

    harness.cluster.send_modify(|cluster| cluster.map_breaks = false);
    let gone = shown(&harness.sweep(4));
    assert_eq!(gone.len(), 4, "two orphans and two node-local databases: {gone:?}");
}

#[test]
fn omits_targets_served_by_other_processes() {
    let mut harness = Harness::after_one_sweep(Cluster::default());
    harness.change_settings(|settings| {
        settings.nodes = ServedNodes::Named([NODES[0].into()].into());
        settings.views = false;
    });
    let snapshot = harness.sweep(2);
    let served: Vec<_> =
        snapshot.nodes().iter().map(|node| (&*node.name, node.is_served)).collect();
    assert_eq!(served, [("_cluster", false), (NODES[0], true), (NODES[1], false)]);
    assert_eq!(
        shown(&snapshot),
        ["db:couchdb@a/_dbs ok 100", "db:couchdb@a/shards%2F00000000-ffffffff%2Forders.1 ok 100",]
    );
}

#[test]
fn changed_signature_is_evidence_for_a_cleanup() {
    let mut harness = Harness::after_one_sweep(Cluster::default());
    let evidence = |snapshot: &Snapshot| {
        let cleanup = snapshot.targets().find(|target| target.kind() == TargetKind::Cleanup);
        cleanup.map(|target| target.facts().flags.evidence)
    };
    assert_eq!(evidence(&harness.sweep(1)), Some(false));
    harness.cluster.send_modify(|cluster| cluster.signature = 2);
    let snapshot = harness.sweep(2);
    assert_eq!(evidence(&snapshot), Some(true));
    let views = snapshot.targets().filter(|target| target.kind() == TargetKind::View).count();
    assert_eq!(views, 1, "the old index is no longer a target");
}

#[test]
fn asks_database_without_views_only_after_a_write() {
    let quiet = Cluster { seq: Some(5), signature: 0, ..Cluster::default() };
    let mut harness = Harness::after_one_sweep(quiet);
    let signature = |snapshot: &Snapshot| {
        snapshot.targets().find_map(|target| target.view().map(|view| view.signature.0[0]))
    };
    assert_eq!(signature(&harness.sweep(1)), None);
    // A signature that changes without a write, which CouchDB never causes, shows whether CouchDB
    // was asked.
    harness.cluster.send_modify(|cluster| cluster.signature = 1);
    assert_eq!(signature(&harness.sweep(2)), None, "unchanged, so not asked");
    harness.cluster.send_modify(|cluster| cluster.seq = Some(6));
    assert_eq!(signature(&harness.sweep(3)), Some(1));
    harness.cluster.send_modify(|cluster| cluster.signature = 2);
    assert_eq!(signature(&harness.sweep(4)), Some(2), "a database with views is always asked");
}

#[test]
fn rereads_design_documents_after_failure_or_source_change() {
    let failing = Cluster { seq: Some(5), views_fail: true, ..Cluster::default() };
    let mut harness = Harness::after_one_sweep(failing);
    let views = |snapshot: &Snapshot| {
        snapshot.targets().filter(|target| target.kind() == TargetKind::View).count()
    };
    harness.cluster.send_modify(|cluster| {
        cluster.views_fail = false;
        cluster.signature = 0;
    });
    assert_eq!(views(&harness.sweep(2)), 0);
    harness.cluster.send_modify(|cluster| cluster.signature = 1);
    assert_eq!(views(&harness.sweep(3)), 0, "it was asked in the second sweep");
    harness.change_source(Arc::new(Scripted(harness.cluster.subscribe())));
    assert_eq!(views(&harness.sweep(4)), 1);
}

#[test]
fn a_target_is_read_again_when_a_job_on_it_ends() {
    let mut harness = Harness::after_one_sweep(Cluster::default());
    let id = "db:couchdb@a/shards%2F00000000-ffffffff%2Forders.1";
    let of = |snapshot: &Arc<Snapshot>| {
        let target = snapshot.targets().find(|target| target.id().to_string() == id);
        target
            .map(|target| (target.facts().flags.compact_running, target.facts().active_bytes.get()))
    };
    harness.cluster.send_modify(|cluster| {
        cluster.compacting = vec!["shards/00000000-ffffffff/orders.1"];
    });
    harness.snapshot_where(|snapshot| of(snapshot) == Some((true, Some(10))));
    harness.cluster.send_modify(|cluster| {
        cluster.compacting.clear();
        cluster.active = 99;
    });
    let sweeps = harness.status.sweeps;
    harness.snapshot_where(|snapshot| of(snapshot) == Some((false, Some(99))));
    assert_eq!(harness.status.sweeps, sweeps, "no sweep was needed");
}

#[test]
fn a_shard_is_read_again_when_its_node_flushed_files() {
    let mut harness = Harness::after_one_sweep(Cluster::default());
    let all = |snapshot: &Arc<Snapshot>, active| {
        let shards = snapshot.targets().filter(|target| target.kind() == TargetKind::Db);
        shards.map(|target| target.facts().active_bytes.get()).all(|bytes| bytes == Some(active))
    };
    let polls = harness.running.poll_count;
    harness.cluster.send_modify(|cluster| cluster.active = 99);
    harness.until(|it| it.running.poll_count >= polls + 5);
    assert!(all(&harness.snapshot, 10), "nothing says that it changed");
    harness.cluster.send_modify(|cluster| cluster.flushes = Some(11));
    let (sweeps, polls) = (harness.status.sweeps, harness.running.poll_count);
    harness.snapshot_where(|snapshot| all(snapshot, 99));
    assert_eq!(harness.status.sweeps, sweeps, "no sweep was needed");
    assert!(harness.running.poll_count <= polls + 1, "the next poll told");
}

#[test]
fn poll_publishes_running_jobs_and_leaves_silent_nodes_unknown() {
    let compacting = vec!["shards/00000000-ffffffff/orders.1"];
    let cluster = Cluster { compacting, tasks_fail: true, ..Cluster::default() };
    let mut harness = Harness::after_one_sweep(cluster);
    let tasks = |running: &Running, node: usize| {
        let node = NodeIx::from_usize(node).unwrap();
        running.nodes.get(&node).and_then(|polled| Some(polled.tasks.as_ref()?.len()))
    };
    harness.until(|it| tasks(&it.running, 1) == Some(1));
    let running = Arc::clone(&harness.running);
    assert_eq!(tasks(&running, 2), None, "{running:?}");
    let [task] = running.nodes[&NodeIx::from_usize(1).unwrap()].tasks.as_deref().unwrap() else {
        panic!("{running:?}")
    };
    assert_eq!(
        (&*task.key.shard, &task.key.kind),
        ("shards/00000000-ffffffff/orders.1", &jobs::JobKind::CompactDb)
    );
    assert!(task.target.is_some());
    harness.cluster.send_modify(|cluster| cluster.tasks_fail = false);
    harness.until(|it| tasks(&it.running, 2) == Some(0));
}

#[test]
fn node_that_answers_no_poll_is_down_before_the_next_sweep() {
    let mut harness = Harness::after_one_sweep(Cluster::default());
    let is_up = |snapshot: &Arc<Snapshot>| snapshot.nodes()[2].is_up;
    let sweeps = harness.status.sweeps;
    // Only its list of tasks hangs.
    harness.cluster.send_modify(|cluster| cluster.tasks_fail = true);
    let polls = harness.running.poll_count;
    harness.until(|it| it.running.poll_count >= polls + 4);
    assert_eq!(is_up(&harness.snapshot), Some(true));
    harness.cluster.send_modify(|cluster| cluster.down[1] = true);
    let polls = harness.running.poll_count;
    harness.snapshot_where(|snapshot| is_up(snapshot) == Some(false));
    assert_eq!((harness.status.sweeps, harness.running.poll_count - polls), (sweeps, 2));
    harness.cluster.send_modify(|cluster| (cluster.tasks_fail, cluster.down[1]) = (false, false));
    harness.snapshot_where(|snapshot| is_up(snapshot) == Some(true));
}

#[test]
fn commands_reread_targets_and_clear_cleanup_evidence() {
    let mut harness = Harness::after_one_sweep(Cluster::default());
    harness.cluster.send_modify(|cluster| cluster.signature = 2);
    let snapshot = harness.sweep(2);
    let cleanup = snapshot.targets().find(|target| target.facts().flags.evidence).unwrap().ix();
    let db = snapshot.targets().find(|target| target.kind() == TargetKind::Db).unwrap().ix();
    harness.send(ScanCommand::CleanupRequested(cleanup));
    harness.cluster.send_modify(|cluster| cluster.active = 77);
    harness.send(ScanCommand::Reread(vec![db]));
    harness.snapshot_where(|snapshot| {
        let facts = |ix| snapshot.target(ix).map(crate::table::TargetRef::facts).unwrap();
        !facts(cleanup).flags.evidence && facts(db).active_bytes.get() == Some(77)
    });
}

#[tokio::test(start_paused = true)]
async fn the_task_sweeps_publishes_obeys_commands_and_stops() {
    let (cluster, cluster_rx) = watch::channel(Cluster::default());
    let source: Arc<dyn Source> = Arc::new(Scripted(cluster_rx));
    let (_source, source_rx) = watch::channel(source);
    let (settings, settings_rx) = watch::channel(Arc::new(ScanSettings::example()));
    let (task, mut handle) = ScanTask::new(Clock::anchored(START), source_rx, settings_rx);
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let before = EarlierProcess { blocks: restore::left(Cluster::default()), marks: Vec::new() };
    tasks.spawn(task.run_after(std::future::ready(before), stop.clone()));
    let long = Duration::from_secs(7_200);
    let first = handle.snapshots.wait_for(|snapshot| snapshot.version() > 0);
    let first = Arc::clone(&time::timeout(long, first).await.unwrap().unwrap());
    assert_eq!(shown(&first).len(), 6, "measurements of an earlier process");
    let swept = handle.status.wait_for(|status| status.sweeps >= 1);
    assert!(time::timeout(long, swept).await.unwrap().unwrap().ready);
    let polled = handle.running.wait_for(|running| running.poll_count > 0);
    drop(time::timeout(long, polled).await.unwrap().unwrap());

    // Settings and commands reach the scanner, and time wakes it.
    settings.send_modify(|settings| Arc::make_mut(settings).views = false);
    cluster.send_modify(|cluster| cluster.active = 11);
    assert_eq!(handle.send(ScanCommand::Sweep), None);
    let requested_at = Instant::now();
    let swept = handle.status.wait_for(|status| status.sweeps >= 2);
    drop(time::timeout(long, swept).await.unwrap().unwrap());
    assert!(requested_at.elapsed() < Duration::from_secs(2), "{:?}", requested_at.elapsed());
    assert_eq!(shown(&handle.snapshots.borrow()).len(), 4, "no view and no cleanup");
    let swept = handle.status.wait_for(|status| status.sweeps >= 3);
    drop(time::timeout(long, swept).await.unwrap().unwrap());
    assert!(requested_at.elapsed() >= Duration::from_secs(300), "{:?}", requested_at.elapsed());

    stop.cancel();
    let ended = time::timeout(Duration::from_secs(60), tasks.join_next()).await;
    assert!(ended.expect("the task ends").expect("the set holds the task").is_ok());
}
