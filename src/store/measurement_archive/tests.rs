use super::*;
use crate::{
    model::{
        facts::{self, FactSource, Facts},
        settings::work,
    },
    store::journal::{self, ClusterIdentity, InMemory},
    table::{DbName, Draft, TableBlock, TargetIx},
};
use tokio::{task::JoinSet, time};
use wall_clock::Clock;

const NOW: u64 = 1_795_222_434;

/// A draft, its published snapshots, and the journal that stores them.
struct Fixture {
    draft: Draft,
    snapshots: watch::Sender<Arc<Snapshot>>,
    status: watch::Sender<Arc<ScanStatus>>,
    settled: watch::Sender<u64>,
    journal: Journal,
    stop: CancellationToken,
    _tasks: JoinSet<()>,
}

fn measured(file: u64, at: u64) -> Facts {
    Facts {
        file_bytes: facts::OptionalU64::new(file),
        measured_at: Some(facts::Measurement {
            at: Moment::from_unix(at),
            source: FactSource::Http,
        }),
        ..Facts::default()
    }
}

impl Fixture {
    async fn of(databases: usize) -> Self {
        let clock = Clock::anchored(Moment::from_unix(NOW));
        let settings = watch::channel(work::JournalRetention::default()).1;
        let (task, journal) =
            journal::JournalTask::open(InMemory::default(), clock, settings).unwrap();
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        tasks.spawn(task.run(stop.clone()));
        let nodes = ["couchdb@a".to_owned()].into();
        let identity = ClusterIdentity { nodes, ..ClusterIdentity::default() };
        journal.claim(identity).await.unwrap();
        let mut draft = Draft::new(5);
        let node = draft.get_or_add_node("couchdb@a");
        for at in 0..databases {
            let db = draft.get_or_add_db(DbName { db: &format!("db-{at}"), suffix: "" });
            let ix = draft.get_or_add_shard(node, db, None);
            draft.set_facts(ix, measured(1_000, NOW));
        }
        let snapshots = watch::channel(draft.publish(clock.now())).0;
        let status = watch::channel(Arc::default()).0;
        let settled = watch::channel(0).0;
        Self { draft, snapshots, status, settled, journal, stop, _tasks: tasks }
    }

    fn task(&self) -> ArchiveTask {
        let (status, snapshots) = (self.status.subscribe(), self.snapshots.subscribe());
        ArchiveTask::new(status, snapshots, self.settled.subscribe(), self.journal.clone())
    }

    fn set(&mut self, at: usize, facts: Facts) {
        self.draft.set_facts(TargetIx::from_usize(at).unwrap(), facts);
    }

    fn publish(&mut self) {
        self.snapshots.send_replace(self.draft.publish(Moment::from_unix(NOW)));
    }

    async fn saved(&self) -> Vec<TableBlock> {
        self.journal.load_measurements().await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn measurements_are_saved_after_each_sweep_and_not_before() {
    let mut scene = Fixture::of(700).await;
    let mut running = JoinSet::new();
    running.spawn(scene.task().run(scene.stop.clone()));
    time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.saved().await, []);
    scene.status.send_replace(Arc::new(ScanStatus { sweeps: 1, ..ScanStatus::default() }));
    time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.saved().await, [], "nothing answered");
    for (sweeps, file) in (2..).zip([5, 6]) {
        scene.set(300, measured(file, NOW));
        scene.publish();
        let status = ScanStatus { sweeps, ready: true, ..ScanStatus::default() };
        scene.status.send_replace(Arc::new(status));
        let until = async {
            loop {
                let mut draft = Draft::new(5);
                for block in scene.saved().await {
                    draft.restore(&block).unwrap();
                }
                let ix = TargetIx::from_usize(300).unwrap();
                let found = draft.current().target(ix).map(|it| it.facts());
                if found == Some(measured(file, NOW)) {
                    return draft.current().targets().count();
                }
                time::sleep(Duration::from_secs(1)).await;
            }
        };
        let count = time::timeout(Duration::from_secs(600), until).await;
        assert_eq!(count.expect("it is saved"), 700);
    }
    scene.stop.cancel();
    running.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_changed_blocks_are_written_again() {
    let mut scene = Fixture::of(700).await;
    let mut task = scene.task();
    task.save().await;
    let first = scene.saved().await;
    assert_eq!(first.len(), 3);
    for at in 0..700 {
        let file = if at == 300 { 7 } else { 1_000 };
        scene.set(at, measured(file, NOW + 60));
    }
    scene.publish();
    let (_, news) = task.next_batch(0);
    assert_eq!(news.changed.iter().map(|it| it.number).collect::<Vec<_>>(), [1]);
    let later = Moment::from_unix(NOW + 60);
    assert_eq!((news.measured_at, news.total), (vec![(0, later), (2, later)], Some(3)));
    task.save().await;
    let second = scene.saved().await;
    assert_eq!(second[0].bytes, first[0].bytes);
    assert_ne!(second[1].bytes, first[1].bytes);
    assert!(second.iter().all(|block| block.at == later));
    let (_, news) = task.next_batch(0);
    assert!(news.changed.is_empty() && news.measured_at.is_empty(), "{news:?}");
    // Removed targets and removed table positions are not saved.
    for at in 512..700 {
        scene.draft.remove(TargetIx::from_usize(at).unwrap());
    }
    scene.publish();
    task.save().await;
    assert_eq!(scene.saved().await.len(), 2);
    let small = Fixture::of(10).await;
    scene.snapshots.send_replace(Arc::clone(&small.snapshots.borrow()));
    scene.task().save().await;
    assert_eq!(scene.saved().await.len(), 1);
    scene.stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_write_the_task_pauses() {
    let scene = Fixture::of(10).await;
    let mut task = scene.task();
    scene.stop.cancel();
    time::sleep(Duration::from_secs(1)).await;
    task.save().await;
    assert!(task.paused_until.is_some());
    assert_eq!(task.next_batch(0).1.changed.len(), 1, "it is still unsaved");
}
