//! Notifications and commands that arrive at the same moment.

use super::*;
use crate::{
    jobs::{Polled, Task as Shown},
    model::{
        facts::{Facts, Known, Measured, Source as Measurer},
        memory::Fleeting,
        settings::Nodes,
    },
    sources::inventory::{Doing, Observation, Source, Stage, TaskSeen},
    table::{DbName, Draft, Ix, NodeIx},
};
use couchdb_names::Range;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio::task::JoinSet;
use wall_clock::Moment;

const NODE: &str = "couchdb@a";
const SHARD: &str = "shards/00000000-ffffffff/orders.1";

/// A source that never answers.
#[derive(Debug)]
struct Silent;

impl Source for Silent {
    fn read(&self, _stage: Stage) -> BoxStream<'static, Observation> {
        stream::pending().boxed()
    }
}

/// A node with one database, and a job state task that receives everything from the test.
struct Site {
    draft: Draft,
    node: NodeIx,
    db: Ix,
    snapshots: watch::Sender<Arc<Snapshot>>,
    running: watch::Sender<Arc<Running>>,
    follower: Handle,
    clock: Clock,
    _open: (scan::Task, watch::Sender<Arc<Settings>>, JoinSet<()>),
}

impl Site {
    fn new() -> Self {
        let clock = Clock::anchored(Moment::from_unix(1_000));
        let mut draft = Draft::new(5);
        let node = draft.node(NODE);
        let db = draft.db(DbName { db: "orders", suffix: ".1" });
        let db = draft.db_target(node, db, Some(Range { from: 0, to: u32::MAX }));
        let (snapshots, snapshots_rx) = watch::channel(draft.publish(clock.now()));
        let (running, running_rx) = watch::channel(Arc::default());
        let source = watch::channel(Arc::new(Silent) as Arc<dyn Source>).1;
        let asks = watch::channel(Arc::new(scan::Settings {
            interval: PERIOD,
            interval_followed: PERIOD,
            reread_after: PERIOD,
            poll: PERIOD,
            nodes: Nodes::default(),
            views: false,
            parts: false,
            top: 0,
        }));
        let (scanner, mut told) = scan::Task::new(clock, source, asks.1);
        (told.snapshots, told.running) = (snapshots_rx, running_rx);
        let (settings, settings_rx) = watch::channel(Arc::new(Settings {
            failure: Failure::default(),
            headroom_factor: 2.0,
            channels: Arc::default(),
            acting: true,
        }));
        let keeper = Arc::new(Fleeting::default());
        let (task, follower) = Task::new(clock, told, settings_rx, keeper);
        let mut tasks = JoinSet::new();
        let recovered = std::future::ready(Some(Recovered::default()));
        tasks.spawn(task.run(recovered, CancellationToken::new()));
        let open = (scanner, settings, tasks);
        Self { draft, node, db, snapshots, running, follower, clock, _open: open }
    }

    /// The database's file is read; its last compaction was at this sequence.
    fn reads(&mut self, compacted_seq: u64) {
        let now = self.clock.now();
        let facts = Facts {
            file: Known::new(900),
            active: Known::new(100),
            update_seq: Known::new(50),
            compacted_seq: Known::new(compacted_seq),
            measured_at: Some(Measured { at: now, by: Measurer::Http }),
            ..Facts::default()
        };
        self.draft.set_facts(self.db, facts);
        self.snapshots.send_replace(self.draft.publish(now));
    }

    /// The node shows this many compactions of the database.
    async fn shows(&mut self, count: usize) {
        let seen = TaskSeen::bare(Doing::Compacts, SHARD.into());
        let tasks = vec![Shown::new(self.node, Some(self.db), seen); count];
        let polled = Polled { asked_at: self.clock.now(), tasks: Some(tasks) };
        let polls = self.running.borrow().polls + 1;
        let running = Running { polls, nodes: [(self.node, polled)].into() };
        self.running.send_replace(Arc::new(running));
        let polled = |jobs: &Arc<Jobs>| jobs.polled.iter().any(|(_, at)| *at == self.clock.now());
        let heard = time::timeout(PERIOD, self.follower.jobs.wait_for(polled));
        heard.await.expect("it reacts within a tick").expect("it runs");
    }
}

impl Site {
    fn intent(&self) -> Intent {
        let target = self.draft.now().target(self.db).expect("it exists");
        Intent {
            target: target.id(),
            node: NODE.into(),
            shard: Some(SHARD.into()),
            design: None,
            channel: "ratio_dbs".into(),
            ordered_by: None,
            at: self.clock.now(),
            file_bytes: Some(900),
            active_bytes: Some(100),
            update_seq: Some(50),
            compacted_seq: Some(10),
            predicted_bytes: Some(100),
            peak_bytes: 0,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_is_checked_by_its_targets_id_not_by_its_position_in_the_plan() {
    let mut site = Site::new();
    site.reads(10);
    let (intent, now) = (site.intent(), site.clock.now());
    let until = now.plus(Duration::from_secs(600));
    let ordered = Ordered { at: now, until, by: "ann".into(), force: true };
    let follower = site.follower.clone();

    // When the plan was made, another target with an order had this position.
    let refused = follower.starting(intent.clone(), Some(ordered.clone())).await;
    assert_eq!(refused, Err(NotStarted::NotOrdered));
    follower.order(intent.target.clone(), ordered.clone()).await.expect("it is stored");
    let started = follower.starting(intent.clone(), Some(ordered.clone())).await;
    assert_eq!(started, Ok(1), "by its own order");
    follower.sent(intent.key(), Sent::Refused("HTTP 500".into())).await;

    // It failed. A plan that does not know that yet starts nothing, and the old order does not
    // apply.
    let refused = follower.starting(intent.clone(), None).await;
    assert_eq!(refused, Err(NotStarted::Rests("failed recently")));
    let refused = follower.starting(intent, Some(ordered)).await;
    assert_eq!(refused, Err(NotStarted::NotOrdered), "the order was already used");
}

#[tokio::test(start_paused = true)]
async fn a_reading_that_arrives_with_an_order_ends_a_job_at_once() {
    let mut site = Site::new();
    site.reads(10);
    site.shows(1).await;
    time::sleep(Duration::from_secs(5)).await;
    site.shows(0).await;
    assert_eq!(site.follower.jobs.borrow().list.len(), 1, "the file will show how it ended");

    site.reads(50);
    site.follower.suspend(Scope::All, None, None).await.unwrap();
    let ended = site.follower.jobs.wait_for(|jobs| jobs.list.is_empty());
    let ended = time::timeout(Duration::from_millis(1), ended).await;
    assert!(ended.is_ok_and(|jobs| jobs.is_ok()), "it must not wait for the next tick");
}
