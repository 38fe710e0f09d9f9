//! Tests the task on paused time, with scripted nodes.

use super::*;
use crate::{
    jobs::{Job, JobKey, JobKind, JobPhase},
    model::{records::JobOwner, target::TargetKind},
    table::Draft,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::{task::JoinSet, time::Instant};

const START: u64 = 1_000_000;
const NODES: [&str; 2] = ["couchdb@a", "couchdb@b"];

/// Each node's probe result; a node without a result never answers.
#[derive(Debug, Default)]
struct Nodes {
    readings: watch::Sender<BTreeMap<&'static str, NodeReading>>,
    probes_sent: AtomicUsize,
}

impl Probe for Nodes {
    fn probe(&self, node: &str) -> BoxFuture<'static, NodeReading> {
        self.probes_sent.fetch_add(1, Ordering::SeqCst);
        match self.readings.borrow().get(node) {
            Some(reading) => std::future::ready(*reading).boxed(),
            None => std::future::pending().boxed(),
        }
    }
}

struct Running {
    nodes: Arc<Nodes>,
    draft: Draft,
    snapshots: watch::Sender<Arc<Snapshot>>,
    jobs: watch::Sender<Arc<Jobs>>,
    pressures: watch::Receiver<Arc<Pressures>>,
    _held: (watch::Sender<Arc<limits::Pressure>>, watch::Sender<Arc<dyn Probe>>),
    _tasks: JoinSet<()>,
}

impl Running {
    fn start() -> Self {
        let clock = Clock::anchored(Moment::from_unix(START));
        let mut draft = Draft::new(5);
        for name in NODES {
            let ix = draft.get_or_add_node(name);
            draft.update_node(ix, |node| {
                (node.is_up, node.is_member, node.is_served) = (Some(true), true, true);
            });
        }
        let nodes = Arc::new(Nodes::default());
        let pressure = limits::Pressure {
            hold_at_most: Duration::from_secs(600),
            ..limits::Pressure::default()
        };
        let dyn_nodes: Arc<dyn Probe> = Arc::<Nodes>::clone(&nodes);
        let (probe, probe_rx) = watch::channel(dyn_nodes);
        let (settings, settings_rx) = watch::channel(Arc::new(pressure));
        let (snapshots, snapshots_rx) = watch::channel(draft.publish(clock.now()));
        let (jobs, jobs_rx) = watch::channel(Arc::default());
        let (task, pressures) =
            PressureTask::new(clock, probe_rx, settings_rx, snapshots_rx, jobs_rx);
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run(CancellationToken::new()));
        Self { nodes, draft, snapshots, jobs, pressures, _held: (settings, probe), _tasks: tasks }
    }

    fn show(&self, node: &'static str, reading: NodeReading) {
        self.nodes.readings.send_modify(|readings| {
            readings.insert(node, reading);
        });
    }

    /// The published state of a node `seconds` later.
    async fn after(&self, seconds: u64, node: u8) -> Option<NodePressure> {
        time::sleep(Duration::from_secs(seconds) + Duration::from_millis(1)).await;
        let ix = NodeIx::from_usize(usize::from(node) + 1).unwrap();
        self.pressures.borrow().nodes.get(&ix).cloned()
    }
}

fn quiet() -> NodeReading {
    NodeReading {
        latency: Some(Duration::from_millis(4)),
        run_queue: Some(1),
        replication_backlog: Some(0),
        maintenance: Some(false),
        upgrade: Some(false),
    }
}

#[tokio::test(start_paused = true)]
async fn pressure_on_one_node_does_not_hold_back_the_other() {
    let running = Running::start();
    running.show(NODES[0], quiet());
    running.show(NODES[1], NodeReading { run_queue: Some(100), ..quiet() });
    let a = running.after(30, 0).await.unwrap();
    assert_eq!((a.hold, a.maintenance_since), (None, None));
    let signals =
        [(Signal::ProbeLatency, 0.004), (Signal::RunQueue, 1.0), (Signal::ReplicationBacklog, 0.0)];
    assert_eq!(a.signals, BTreeMap::from(signals), "the number of indexers is not known yet");
    let b = running.after(0, 1).await.unwrap();
    let held = b.hold.unwrap();
    assert_eq!((held.signal, held.since.unix()), (Signal::RunQueue, START + 10));
    assert_eq!((held.value, held.low), (100.0, 16.0));

    running.show(NODES[1], quiet());
    assert_eq!(running.after(30, 1).await.unwrap().hold, None);
    assert_eq!(running.nodes.probes_sent.load(Ordering::SeqCst), 14, "each node every ten seconds");
}

#[tokio::test(start_paused = true)]
async fn pressure_hold_ends_after_the_maximum() {
    let running = Running::start();
    running.show(
        NODES[0],
        NodeReading { latency: Some(Duration::from_secs(10)), ..NodeReading::default() },
    );
    let signal = |node: Option<NodePressure>| node.and_then(|it| it.hold).map(|held| held.signal);
    assert_eq!(signal(running.after(600, 0).await), Some(Signal::ProbeLatency));
    assert_eq!(signal(running.after(20, 0).await), None);
    assert_eq!(signal(running.after(3_600, 0).await), None, "no second hold until it has fallen");
}

#[tokio::test(start_paused = true)]
async fn maintenance_and_upgrade_last_until_the_node_reports_their_end() {
    let running = Running::start();
    let (yes, unknown) = (Some(true), NodeReading::default());
    running.show(NODES[0], NodeReading { maintenance: yes, ..quiet() });
    let since = |node: Option<NodePressure>| {
        let node = node.unwrap();
        [node.maintenance_since, node.upgrade_since].map(|since| since.map(Moment::unix))
    };
    assert_eq!(since(running.after(35, 0).await), [Some(START), None]);
    running.show(NODES[0], unknown);
    let after = running.after(20, 0).await;
    assert_eq!(since(after), [Some(START), None], "a missing answer changes nothing");
    running.show(NODES[0], NodeReading { upgrade: yes, ..quiet() });
    assert_eq!(since(running.after(20, 0).await), [None, Some(START + 60)]);
    running.show(NODES[0], quiet());
    assert_eq!(since(running.after(20, 0).await), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn probes_hanging_node_once_and_down_node_never() {
    let mut running = Running::start();
    assert_eq!(running.after(300, 0).await, None);
    assert_eq!(running.nodes.probes_sent.load(Ordering::SeqCst), 2);
    let ix = NodeIx::from_usize(1).unwrap();
    running.draft.update_node(ix, |node| node.is_up = Some(false));
    running.snapshots.send_replace(running.draft.publish(Moment::from_unix(START)));
    running.show(NODES[0], quiet());
    assert_eq!(running.after(30, 0).await, None);
    assert_eq!(running.nodes.probes_sent.load(Ordering::SeqCst), 2);
    running.draft.update_node(ix, |node| node.is_up = Some(true));
    running.snapshots.send_replace(running.draft.publish(Moment::from_unix(START)));
    assert!(running.after(10, 0).await.is_some(), "its state was reset");
}

#[tokio::test(start_paused = true)]
async fn counts_indexers_among_the_jobs() {
    let running = Running::start();
    running.show(NODES[0], quiet());
    let node = NodeIx::from_usize(1).unwrap();
    let build = |name: String| Job {
        key: JobKey { node, shard: name.into(), kind: JobKind::BuildView("_design/x".into()) },
        target: None,
        target_kind: TargetKind::View,
        owner: JobOwner::Other,
        channel: None,
        started_at: Moment::from_unix(START),
        phase: JobPhase::Running,
        progress: None,
        last_progress_at: Moment::from_unix(START),
        reserved_bytes: 0,
        file_bytes: None,
        predicted_bytes: None,
    };
    let list = (0..9).map(|at| build(format!("shards/{at}"))).collect();
    let polled = vec![(node, Moment::from_unix(START))];
    running.jobs.send_replace(Arc::new(Jobs { list, polled_nodes: polled, ..Jobs::default() }));
    let start = Instant::now();
    let a = running.after(20, 0).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(30));
    assert_eq!(a.signals.get(&Signal::Indexers), Some(&9.0));
    assert_eq!(a.hold.map(|held| held.signal), Some(Signal::Indexers));
}
