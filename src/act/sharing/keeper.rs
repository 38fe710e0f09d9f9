//! The task that owns what the keeper granted.

use crate::{
    model::{records::StoreError, settings::shared::KeeperSettings},
    shared_limits::{
        Lease, LeaseRequest,
        keeper::{Keeper, Refused, StoredKeeper},
    },
    store::journal::{Journal, SharedRecord},
};
use std::sync::Arc;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// Requests that may wait. A member asks a few times a minute.
const MAX_WAITING: usize = 64;

/// Why a request gets no lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotGranted {
    /// The configuration says nothing about members.
    #[error(
        "this recliner shares no limits; set shared_limits.keeper here, or correct shared_limits.url of the recliner that asked"
    )]
    NoKeeper,
    /// The rules refuse the request.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// What was granted cannot be read or stored, so a grant could be forgotten at a restart.
    #[error("no lease is granted: {0}")]
    NotStored(StoreError),
    /// Too many requests wait, or the program is stopping.
    #[error("the keeper is stopping or has too many requests; try again")]
    Busy,
}

/// The keeper's grants, with the settings under which they were made.
pub(crate) type KeeperView = Option<Arc<(KeeperSettings, Keeper)>>;

/// Passes requests to the task.
#[derive(Clone, Debug)]
pub(crate) struct KeeperHandle {
    /// What was granted; `None` before the first grant.
    pub(crate) view: watch::Receiver<KeeperView>,
    settings: watch::Sender<Option<KeeperSettings>>,
    requests: mpsc::Sender<Ask>,
}

#[derive(Debug)]
struct Ask {
    request: LeaseRequest,
    reply: oneshot::Sender<Result<Lease, NotGranted>>,
}

impl KeeperHandle {
    /// A handle to a task that has ended.
    pub(super) fn without_task() -> Self {
        let settings = watch::channel(None).0;
        Self { view: watch::channel(None).1, settings, requests: mpsc::channel(1).0 }
    }

    pub(super) fn reconfigure(&self, settings: Option<KeeperSettings>) {
        self.settings.send_replace(settings);
    }

    /// A lease for a member, once it is stored.
    pub(crate) async fn grant(&self, request: LeaseRequest) -> Result<Lease, NotGranted> {
        let (reply, answered) = oneshot::channel();
        self.requests.try_send(Ask { request, reply }).map_err(|_| NotGranted::Busy)?;
        answered.await.map_err(|_| NotGranted::Busy)?
    }
}

/// Stores what was granted.
trait KeeperStore: Send + Sync {
    fn load(&self) -> impl Future<Output = Result<Option<Vec<u8>>, StoreError>> + Send;
    fn save(&self, bytes: Vec<u8>) -> impl Future<Output = Result<(), StoreError>> + Send;
}

impl KeeperStore for Journal {
    async fn load(&self) -> Result<Option<Vec<u8>>, StoreError> {
        self.shared_record(SharedRecord::Keeper).await
    }

    async fn save(&self, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.save_shared_record(SharedRecord::Keeper, bytes).await
    }
}

#[derive(Debug)]
pub(crate) struct KeeperTask<S = Journal> {
    store: S,
    settings: watch::Receiver<Option<KeeperSettings>>,
    requests: mpsc::Receiver<Ask>,
    view: watch::Sender<KeeperView>,
    state: Option<State>,
}

/// What was granted, and what of it is stored.
#[derive(Debug)]
struct State {
    keeper: Keeper,
    stored: StoredKeeper,
}

impl KeeperTask {
    /// The task and its handle.
    pub(crate) fn new(journal: Journal, settings: Option<KeeperSettings>) -> (Self, KeeperHandle) {
        Self::with_store(journal, settings)
    }
}

#[expect(private_bounds, reason = "tests replace the journal")]
impl<S: KeeperStore> KeeperTask<S> {
    fn with_store(store: S, settings: Option<KeeperSettings>) -> (Self, KeeperHandle) {
        let (asks, requests) = mpsc::channel(MAX_WAITING);
        let (view, view_rx) = watch::channel(None);
        let (settings, settings_rx) = watch::channel(settings);
        let handle = KeeperHandle { view: view_rx, settings, requests: asks };
        (Self { store, settings: settings_rx, requests, view, state: None }, handle)
    }

    /// Answers requests until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        while let Some(Some(ask)) = stop.run_until_cancelled(self.requests.recv()).await {
            let lease = self.grant(&ask.request).await;
            // The member may have stopped waiting. Its grant counts as if it had received the answer.
            let _gone = ask.reply.send(lease);
        }
    }

    async fn grant(&mut self, request: &LeaseRequest) -> Result<Lease, NotGranted> {
        let settings = self.settings.borrow().clone().ok_or(NotGranted::NoKeeper)?;
        let State { keeper, stored } = match self.state.take() {
            Some(state) => state,
            None => self.load(&settings).await.map_err(NotGranted::NotStored)?,
        };
        let (after, lease) = match keeper.grant(&settings, request, Instant::now()) {
            Ok(granted) => granted,
            Err(refused) => {
                self.state = Some(State { keeper, stored });
                return Err(refused.into());
            }
        };
        let stored = if stored.covers(&after) {
            stored
        } else {
            let new = after.to_store();
            if let Err(why) = self.save(&new).await {
                tracing::warn!(%why, "cannot grant a lease of shared limits: it cannot be stored");
                // It may have reached the disk anyway; then it only counts for more.
                self.state = Some(State { keeper, stored });
                return Err(NotGranted::NotStored(why));
            }
            new
        };
        self.view.send_replace(Some(Arc::new((settings, after.clone()))));
        self.state = Some(State { keeper: after, stored });
        Ok(lease)
    }

    async fn load(&self, settings: &KeeperSettings) -> Result<State, StoreError> {
        let now = Instant::now();
        let fresh = || {
            let keeper = Keeper::fresh(settings, random_id()?, now);
            Ok(State { keeper, stored: StoredKeeper::default() })
        };
        let Some(bytes) = self.store.load().await? else {
            tracing::info!(
                "the journal has no leases of shared limits: if the journal was lost, run this recliner with --mode advise for an hour, because it no longer knows what its own cluster started"
            );
            return fresh();
        };
        match postcard::from_bytes::<StoredKeeper>(&bytes) {
            Ok(stored) => Ok(State { keeper: Keeper::restored(stored.clone(), now), stored }),
            Err(why) => {
                tracing::warn!(%why, "cannot read the stored leases of shared limits: until every member has asked, or for an hour, each gets only its own share");
                fresh()
            }
        }
    }

    async fn save(&self, keeper: &StoredKeeper) -> Result<(), StoreError> {
        self.store.save(super::encode(keeper)?).await
    }
}

/// A first number of leases that no earlier keeper came near, small enough for every reader of JSON.
fn random_id() -> Result<u64, StoreError> {
    let [a, b, c, d, e, f] = super::random_bytes()?;
    // 0 is the number of no lease.
    Ok(u64::from_be_bytes([0, 0, a, b, c, d, e, f]).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::share::Share;
    use std::{
        sync::{
            Mutex,
            atomic::{AtomicBool, Ordering},
        },
        time::Duration,
    };
    use tokio::{task::JoinSet, time};

    #[derive(Clone, Default)]
    struct Disk {
        bytes: Arc<Mutex<Option<Vec<u8>>>>,
        writes: Arc<Mutex<u32>>,
        is_full: Arc<AtomicBool>,
    }

    impl KeeperStore for Disk {
        async fn load(&self) -> Result<Option<Vec<u8>>, StoreError> {
            Ok(self.bytes.lock().unwrap().clone())
        }

        async fn save(&self, bytes: Vec<u8>) -> Result<(), StoreError> {
            if self.is_full.load(Ordering::Relaxed) {
                return Err(StoreError("the disk is full".into()));
            }
            *self.bytes.lock().unwrap() = Some(bytes);
            *self.writes.lock().unwrap() += 1;
            Ok(())
        }
    }

    const ALL: Share = Share { jobs: 8, bytes_per_hour: 800 };

    fn settings() -> KeeperSettings {
        let own = Share { jobs: 1, bytes_per_hour: 100 };
        let members = [("a".to_owned(), own), ("b".to_owned(), own)].into();
        KeeperSettings { jobs: 8, bytes_per_hour: 800, members, ..KeeperSettings::default() }
    }

    fn request(name: &str, acts_on: u64) -> LeaseRequest {
        let (name, instance) = (name.to_owned(), name.to_owned());
        LeaseRequest { name, instance, acts_on, used: Share::NONE, wanted: ALL }
    }

    fn start(
        disk: &Disk,
        settings: Option<KeeperSettings>,
        tasks: &mut JoinSet<()>,
    ) -> (KeeperHandle, CancellationToken) {
        let (task, handle) = KeeperTask::with_store(disk.clone(), settings);
        let stop = CancellationToken::new();
        tasks.spawn(task.run(stop.clone()));
        (handle, stop)
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_is_stored_before_the_answer_and_counts_after_a_restart() {
        let (disk, mut tasks) = (Disk::default(), JoinSet::new());
        let (keeper, stop) = start(&disk, Some(settings()), &mut tasks);
        let own = keeper.grant(request("a", 0)).await.unwrap();
        assert_eq!(
            own.lease,
            Share { jobs: 1, bytes_per_hour: 100 },
            "an earlier keeper may have granted more"
        );
        time::sleep(Duration::from_secs(4_000)).await;
        let all = keeper.grant(request("a", own.id)).await.unwrap();
        assert_eq!(all.lease, Share { jobs: 7, bytes_per_hour: 700 });
        stop.cancel();

        let (keeper, _stop) = start(&disk, Some(settings()), &mut tasks);
        let rest = keeper.grant(request("b", 0)).await.unwrap();
        assert_eq!(rest.lease, Share { jobs: 1, bytes_per_hour: 100 });
        assert!(rest.id > all.id);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_granted_that_cannot_be_stored() {
        let (disk, mut tasks) = (Disk::default(), JoinSet::new());
        let (keeper, _stop) = start(&disk, Some(settings()), &mut tasks);
        disk.is_full.store(true, Ordering::Relaxed);
        let refused = keeper.grant(request("a", 0)).await;
        assert_eq!(refused, Err(NotGranted::NotStored(StoreError("the disk is full".into()))));
        disk.is_full.store(false, Ordering::Relaxed);
        assert!(keeper.grant(request("a", 0)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn renewals_that_do_not_raise_a_lease_are_rarely_stored() {
        let (disk, mut tasks) = (Disk::default(), JoinSet::new());
        let (keeper, _stop) = start(&disk, Some(settings()), &mut tasks);
        let mut id = 0;
        for _ in 0..100 {
            id = keeper.grant(request("a", id)).await.unwrap().id;
            time::sleep(Duration::from_secs(30)).await;
        }
        assert!(*disk.writes.lock().unwrap() <= 3, "{:?}", disk.writes);
    }

    #[tokio::test(start_paused = true)]
    async fn recliner_without_member_settings_refuses_leases() {
        let (disk, mut tasks) = (Disk::default(), JoinSet::new());
        let (keeper, _stop) = start(&disk, None, &mut tasks);
        assert_eq!(keeper.grant(request("a", 0)).await, Err(NotGranted::NoKeeper));
    }
}
