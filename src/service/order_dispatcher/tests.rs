//! Orders that arrive before the state of the previous process.

use super::*;
use crate::{
    act::job_state::{JobStateHandle, JobStateSettings, JobStateTask, Recovery},
    model::{
        records::{InMemoryStore, RecoveredState},
        settings::{ServedNodes, limits::FailureSettings},
    },
    sources::inventory::{SilentSource, Source},
};
use futures::FutureExt as _;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use wall_clock::Moment;

/// A job state task that waits until the test sends its state.
struct Loading {
    follower: JobStateHandle,
    state: oneshot::Sender<RecoveredState>,
    obstacle: watch::Sender<JournalFailure>,
    _open: (scan::ScanTask, watch::Sender<Arc<JobStateSettings>>, JoinSet<()>),
}

fn not_loaded(why: &str) -> JournalFailure {
    JournalFailure::NotLoaded(why.to_owned())
}

impl Loading {
    fn new() -> Self {
        let clock = Clock::anchored(Moment::from_unix(1_000));
        let source = watch::channel(Arc::new(SilentSource) as Arc<dyn Source>).1;
        let hour = Duration::from_secs(3_600);
        let asks = watch::channel(Arc::new(scan::ScanSettings {
            interval: hour,
            interval_followed: hour,
            reread_after: hour,
            poll: hour,
            nodes: ServedNodes::default(),
            views: false,
            parts: false,
            top: 0,
        }));
        let (scanner, scans) = scan::ScanTask::new(clock, source, asks.1);
        let (settings, settings_rx) = watch::channel(Arc::new(JobStateSettings {
            failure: FailureSettings::default(),
            headroom_factor: 2.0,
            channels: Arc::default(),
            acting: true,
        }));
        let keeper = Arc::new(InMemoryStore::default());
        let (task, follower) = JobStateTask::new(clock, scans, settings_rx, keeper);
        let (state, arrival) = oneshot::channel();
        let (obstacle, obstacle_rx) = watch::channel(not_loaded("recliner has just started"));
        let arrival = arrival.map(|state| state.expect("the test sends the state"));
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run(Recovery::new(arrival, obstacle_rx), CancellationToken::new()));
        Self { follower, state, obstacle, _open: (scanner, settings, tasks) }
    }

    async fn suspend(&self) -> Result<Suspended, Denied> {
        state_loaded(&self.follower).await?;
        suspend(&self.follower, &Plan::default(), SuspensionScope::All, ("ann".to_owned(), None))
            .await
    }
}

#[tokio::test(start_paused = true)]
async fn order_refused_before_loading_never_takes_effect() {
    let loading = Loading::new();
    loading.obstacle.send_replace(not_loaded("CouchDB does not answer"));
    let began = time::Instant::now();
    let refused = loading.suspend().await.unwrap_err();
    assert_eq!(refused, Denied::NotLoaded(not_loaded("CouchDB does not answer")));
    assert_eq!(began.elapsed(), LOADING_TIMEOUT);
    assert_eq!(
        refused.to_string(),
        "not ordered: nothing can start yet, because the state of the previous process is not loaded yet: CouchDB does not answer"
    );

    loading.state.send(RecoveredState::default()).unwrap();
    let mut constraints = loading.follower.constraints.clone();
    let is_loaded = |known: &Arc<TargetConstraints>| known.journal_failure.is_none();
    let loaded = constraints.wait_for(is_loaded).await.unwrap().clone();
    assert!(loaded.suspensions.0.is_empty(), "the refused order came through");
}

#[tokio::test(start_paused = true)]
async fn resume_refuses_unknown_scope_that_is_not_suspended() {
    let loading = Loading::new();
    let node = || SuspensionScope::Node("couchdb@gone".into());
    let resumed =
        async || resume(&loading.follower, &Plan::default(), node(), "ann".to_owned()).await;
    let (follower, state) = (loading.follower.clone(), RecoveredState::default());
    loading.state.send(state).unwrap();
    state_loaded(&follower).await.unwrap();
    let refused = resumed().await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "node:couchdb@gone is not suspended, and is not the name of a node or channel"
    );
    // A suspended node may no longer exist.
    follower.suspend(node(), None, None).await.unwrap();
    assert_eq!(resumed().await.unwrap().lifted, ["node:couchdb@gone"]);
}

#[tokio::test(start_paused = true)]
async fn order_waits_for_state_that_loads_soon() {
    let loading = Loading::new();
    let began = time::Instant::now();
    let follower = loading.follower.clone();
    let arrival = async {
        time::sleep(LOADING_TIMEOUT / 2).await;
        loading.state.send(RecoveredState::default()).unwrap();
    };
    let (loaded, ()) = tokio::join!(state_loaded(&follower), arrival);
    assert_eq!(loaded, Ok(()));
    assert!(began.elapsed() < LOADING_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn journal_of_another_cluster_refuses_orders_at_once() {
    let loading = Loading::new();
    let why = "journal.redb belongs to the cluster of b".to_owned();
    loading.obstacle.send_replace(JournalFailure::OtherCluster(why.clone()));
    let began = time::Instant::now();
    let refused = loading.suspend().await.unwrap_err();
    assert_eq!(refused, Denied::Unavailable(format!("not ordered: {why}")));
    assert_eq!(began.elapsed(), Duration::ZERO);

    // The address of CouchDB is corrected in the meantime.
    loading.state.send(RecoveredState::default()).unwrap();
    let mut constraints = loading.follower.constraints.clone();
    constraints.wait_for(|known| known.journal_failure.is_none()).await.unwrap();
    assert_eq!(state_loaded(&loading.follower).await, Ok(()));
}
