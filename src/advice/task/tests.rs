//! The task on paused time, with a store that fails on request.

use super::*;
use crate::{
    advice::test_cluster::{Shard, TestCluster},
    model::{channel::Channels, forecast::GrowthHistory, records::InMemoryStore},
};
use futures::{FutureExt as _, future::BoxFuture};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::JoinSet;
use wall_clock::Moment;

const MIB: u64 = 1 << 20;

/// A store that can be broken.
#[derive(Debug, Default)]
struct Store {
    kept: InMemoryStore,
    is_broken: AtomicBool,
}

impl StateStore for Store {
    fn store(&self, changes: Vec<StateChange>) -> BoxFuture<'static, Result<(), StoreError>> {
        if self.is_broken.load(Ordering::Relaxed) {
            let why = StoreError("the disk is full".to_owned());
            return futures::future::ready(Err(why)).boxed();
        }
        self.kept.store(changes)
    }
}

/// A running task over a cluster with an orphan.
struct Rig {
    handle: AdviceHandle,
    store: Arc<Store>,
    plans: watch::Sender<Arc<Plan>>,
    _settings: watch::Sender<AdviceSettings>,
    status: watch::Sender<Arc<ScanStatus>>,
    _tasks: JoinSet<()>,
    histories: watch::Sender<Arc<GrowthHistories>>,
    _stop: tokio_util::sync::DropGuard,
}

fn plan(dbs: &[&'static str]) -> Arc<Plan> {
    let shards: Vec<Shard> =
        dbs.iter().map(|db| Shard::new(db, "a", 0, 100 * MIB).orphan()).collect();
    TestCluster::with_shards(&shards).inputs().plan
}

impl Rig {
    fn start(records: BTreeMap<AdviceKey, AdviceRecord>) -> Self {
        let (plans, plans_rx) = watch::channel(plan(&["old"]));
        let (status, status_rx) = watch::channel(Arc::new(ScanStatus::default()));
        let (settings, settings_rx) = watch::channel(AdviceSettings::default());
        let (histories, histories_rx) = watch::channel(Arc::default());
        let node_settings = watch::channel(Arc::default()).1;
        let sources = AdviceSources {
            plans: plans_rx,
            status: status_rx,
            node_settings,
            smoosh_channels: |_| Channels::default(),
            settings: settings_rx,
            remedy_settings: watch::channel(RemedySettings::default()).1,
            histories: histories_rx,
            reads: watch::channel(Arc::default()).1,
            failed_builds: watch::channel(Arc::default()).1,
        };
        let store = Arc::new(Store::default());
        let clock = Clock::anchored(Moment::from_unix(1_795_222_434));
        let (task, handle) =
            AdviceTask::new(clock, sources, Arc::<Store>::clone(&store) as Arc<dyn StateStore>);
        let (left, recovering) = oneshot::channel();
        left.send(AdviceLeft { advice: records, ..AdviceLeft::default() }).unwrap();
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run(recovering, stop.clone()));
        Self {
            handle,
            store,
            plans,
            _settings: settings,
            histories,
            status,
            _tasks: tasks,
            _stop: stop.drop_guard(),
        }
    }

    /// Marks the first sweep as ended.
    fn ready(&self) {
        self.status.send_replace(Arc::new(ScanStatus { ready: true, ..ScanStatus::default() }));
    }

    fn subjects(&self) -> Vec<String> {
        let view = self.handle.view.borrow();
        let pieces = view.pieces(view.checked_at.unwrap_or_default());
        pieces.iter().map(|piece| piece.finding.subject.to_string()).collect()
    }

    async fn mute(&self, mute_for: Option<Duration>) -> Result<Option<Mute>, MuteError> {
        let key = AdviceKey::of("orphan_shards", "old".to_owned());
        self.handle.mute(MuteChange { key, mute_for, why: None, by: None }).await
    }
}

#[tokio::test(start_paused = true)]
async fn rules_run_when_the_cluster_is_read_and_then_every_minute() {
    let rig = Rig::start(BTreeMap::new());
    time::sleep(Duration::from_secs(5)).await;
    assert_eq!(rig.handle.view.borrow().checked_at, None);
    rig.ready();
    time::sleep(Duration::from_secs(2)).await;
    assert_eq!(rig.subjects(), ["old"]);
    rig.plans.send_replace(plan(&["old", "older"]));
    time::sleep(Duration::from_secs(55)).await;
    assert_eq!(rig.subjects(), ["old"]);
    time::sleep(Duration::from_secs(5)).await;
    assert_eq!(rig.subjects(), ["old", "older"]);
    assert_eq!(rig.store.kept.kept().advice.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn rules_rerun_once_when_restored_growth_histories_arrive() {
    let rig = Rig::start(BTreeMap::new());
    rig.ready();
    time::sleep(Duration::from_secs(2)).await;
    let books = |volume: &str| [(volume.to_owned(), GrowthHistory::default())].into();
    for (volume, expected) in [("a", &["old", "older"][..]), ("b", &["old", "older"])] {
        rig.plans.send_replace(plan(if volume == "a" { &["old", "older"] } else { &["new"] }));
        rig.histories.send_replace(Arc::new(books(volume)));
        time::sleep(Duration::from_millis(1)).await;
        assert_eq!(rig.subjects(), expected, "{volume}");
    }
}

#[tokio::test(start_paused = true)]
async fn mute_takes_effect_only_if_it_is_stored() {
    let rig = Rig::start(BTreeMap::new());
    rig.ready();
    time::sleep(Duration::from_secs(2)).await;
    rig.store.is_broken.store(true, Ordering::Relaxed);
    let day = Some(Duration::from_secs(86_400));
    assert!(matches!(rig.mute(day).await, Err(MuteError::Store(_))));
    let open = || {
        let view = rig.handle.view.borrow();
        view.open_of("orphan_shards", view.checked_at.unwrap()).0[0]
    };
    assert_eq!(open(), 1);
    rig.store.is_broken.store(false, Ordering::Relaxed);
    assert!(rig.mute(day).await.unwrap().is_some());
    assert_eq!(open(), 0);
    assert!(rig.store.kept.kept().advice.values().any(|record| record.mute.is_some()));
    assert_eq!(rig.mute(None).await, Ok(None));
    assert_eq!(open(), 1);
    assert!(matches!(rig.mute(None).await, Err(MuteError::Unknown(_))), "it is not muted");
}

#[tokio::test(start_paused = true)]
async fn continues_from_records_of_an_earlier_process() {
    let since = Moment::from_unix(1_795_000_000);
    let key = AdviceKey::of("orphan_shards", "old".to_owned());
    let record = AdviceRecord { first_seen: Some(since), ..AdviceRecord::default() };
    let rig = Rig::start(BTreeMap::from([(key, record)]));
    rig.ready();
    time::sleep(Duration::from_secs(2)).await;
    let view = rig.handle.view.borrow();
    assert_eq!(view.pieces(view.checked_at.unwrap())[0].since, Some(since));
}
