//! The task that holds the database.

use super::{
    ClaimError, ClusterIdentity, EventDetails, EventProgress, FeedPosition, FileId, Journal,
    JournalHealth, JournalOpenError, MeasuredBlocks, OverriddenSetting, Storage, StoredEvents,
    storage::remedy,
    store::{JournalStore, WriteBatch},
};
use crate::model::{
    records::{RecoveredState, StateChange, StoreError},
    settings::work,
};
use redb::{Error, ReadTransaction};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{broadcast, mpsc, oneshot, watch},
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// Maximum number of waiting requests; further senders wait.
const REQUEST_QUEUE_LEN: usize = 1024;

/// Maximum number of events waiting to be written together; further ones are dropped.
const EVENT_QUEUE_LEN: usize = 4096;

/// Number of commits that a subscriber may lag behind.
const MAX_SUBSCRIBER_LAG: usize = 64;

/// Maximum number of requests in one commit.
const MAX_REQUESTS_PER_COMMIT: usize = 256;

/// How long an event may wait for others, because each commit waits for the disk.
const MAX_EVENT_DELAY: Duration = Duration::from_millis(500);

/// Interval between trims while nothing is written.
const TRIM_INTERVAL: Duration = Duration::from_secs(600);

/// Interval between checks that the open file still has its name, while nothing is written.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// First and longest delay before the file is tried again after a failure.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Retention time and size limits.
pub type JournalSettings = work::Journal;

/// A request to the task.
#[derive(Debug)]
pub(super) enum JournalRequest {
    Claim(Box<ClusterIdentity>, oneshot::Sender<Result<RecoveredState, ClaimError>>),
    ApplyChanges(Vec<StateChange>, oneshot::Sender<Result<(), StoreError>>),
    RecordEvents(Vec<EventDetails>, EventProgress),
    FeedPosition(oneshot::Sender<Result<Option<FeedPosition>, StoreError>>),
    SetOverridden(Vec<(OverriddenSetting, bool)>, oneshot::Sender<Result<(), StoreError>>),
    OverriddenSettings(oneshot::Sender<Result<Vec<OverriddenSetting>, StoreError>>),
    BeginRead(oneshot::Sender<Result<ReadTransaction, StoreError>>),
    SaveMeasurements(Box<MeasuredBlocks>, oneshot::Sender<Result<(), StoreError>>),
}

/// The current write failure.
#[derive(Debug)]
struct WriteFailure {
    since: Moment,
    why: StoreError,
    retry_at: Instant,
    retry_delay: Duration,
}

/// Holds the database. It blocks on disk I/O, so it needs its own thread.
#[derive(Debug)]
pub struct JournalTask {
    place: Box<dyn Storage>,
    clock: Clock,
    settings: watch::Receiver<JournalSettings>,
    store: Option<JournalStore>,
    /// The file opened at start; another file with the same name is not accepted.
    opened_file: Option<FileId>,
    claimed: bool,
    write_failure: Option<WriteFailure>,
    requests: mpsc::Receiver<JournalRequest>,
    events: mpsc::Receiver<EventDetails>,
    pending_events: Vec<EventDetails>,
    health: watch::Sender<Arc<JournalHealth>>,
    dropped: Arc<AtomicU64>,
    stored_events: broadcast::Sender<StoredEvents>,
}

impl JournalTask {
    /// Opens the journal, or creates it if it does not exist, and locks it for this process. The
    /// whole file is read and verified, which takes about one second per few hundred MiB.
    ///
    /// # Errors
    /// Why the journal cannot be opened and what to do about it.
    pub fn open(
        place: impl Storage + 'static,
        clock: Clock,
        settings: watch::Receiver<JournalSettings>,
    ) -> Result<(Self, Journal), JournalOpenError> {
        let store = JournalStore::open(&place, true)?;
        let opened = place.file_id().ok().flatten();
        let (requests_tx, requests) = mpsc::channel(REQUEST_QUEUE_LEN);
        let (events_tx, events) = mpsc::channel(EVENT_QUEUE_LEN);
        let health =
            JournalHealth { last_seq: store.last_seq(), failure: None, file_bytes: place.bytes() };
        let (health, health_rx) = watch::channel(Arc::new(health));
        let dropped = Arc::new(AtomicU64::new(0));
        let (kept, _) = broadcast::channel(MAX_SUBSCRIBER_LAG);
        let journal = Journal {
            requests: requests_tx,
            events: events_tx,
            health: health_rx,
            dropped: Arc::clone(&dropped),
            stored_events: kept.clone(),
        };
        let task = Self {
            place: Box::new(place),
            clock,
            settings,
            store: Some(store),
            opened_file: opened,
            claimed: false,
            write_failure: None,
            requests,
            events,
            pending_events: Vec::new(),
            health,
            dropped,
            stored_events: kept,
        };
        Ok((task, journal))
    }

    /// Serves requests until `stop`, then those already sent, and closes the file. Tasks that still
    /// have something to store must end before `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut trim_at = Instant::now() + TRIM_INTERVAL;
        let mut look_at = Instant::now() + FILE_CHECK_INTERVAL;
        let mut write_at = None;
        loop {
            let wake =
                [self.write_failure.as_ref().map(|stuck| stuck.retry_at), write_at, Some(trim_at)];
            let wake = wake.into_iter().flatten().min().unwrap_or(trim_at).min(look_at);
            // Every arm is cancel-safe, and no arm's body awaits.
            tokio::select! {
                biased;
                () = stop.cancelled(), if !self.requests.is_closed() => self.requests.close(),
                request = self.requests.recv() => {
                    let Some(request) = request else { break };
                    self.handle_request(request);
                }
                Some(event) = self.events.recv(), if self.pending_events.len() < EVENT_QUEUE_LEN => {
                    self.pending_events.push(event);
                    write_at.get_or_insert_with(|| Instant::now() + MAX_EVENT_DELAY);
                }
                () = time::sleep_until(wake) => {
                    let now = Instant::now();
                    if self.write_failure.as_ref().is_some_and(|stuck| stuck.retry_at <= now) {
                        self.retry();
                    }
                    if look_at <= now {
                        self.check_file();
                        look_at = now + FILE_CHECK_INTERVAL;
                    }
                    if trim_at <= now || write_at.is_some_and(|at| at <= now) {
                        trim_at = now + if self.write(WriteBatch::default()) == Ok(true) {
                            // More entries must be removed than fit in one commit. Continue soon,
                            // after waiting requests.
                            Duration::ZERO
                        } else {
                            TRIM_INTERVAL
                        };
                    }
                }
            }
            if self.pending_events.is_empty() {
                write_at = None;
            }
        }
        while let Ok(event) = self.events.try_recv() {
            self.pending_events.push(event);
        }
        if !self.pending_events.is_empty() {
            // A failed write was already counted and logged.
            let _refused = self.write(WriteBatch::default());
        }
        if let Some(Err(why)) = self.store.take().map(JournalStore::close) {
            tracing::warn!(%why, place = self.place.name(), "the journal was not closed cleanly");
        }
    }

    /// Serves a request, and includes other waiting requests in the same commit.
    fn handle_request(&mut self, request: JournalRequest) {
        let mut waiting = Vec::new();
        let mut batch = WriteBatch::default();
        let mut next = Some(request);
        while let Some(request) = next.take() {
            match request {
                JournalRequest::ApplyChanges(changes, answer) => {
                    batch.changes.extend(changes);
                    waiting.push(answer);
                }
                JournalRequest::SetOverridden(taken, answer) => {
                    batch.setting_overrides.extend(taken);
                    waiting.push(answer);
                }
                JournalRequest::RecordEvents(events, reached) => {
                    batch.events.extend(events);
                    batch.progress.join(reached);
                }
                other @ (JournalRequest::Claim(..)
                | JournalRequest::OverriddenSettings(_)
                | JournalRequest::FeedPosition(_)
                | JournalRequest::BeginRead(_)
                | JournalRequest::SaveMeasurements(..)) => {
                    // Requests see everything stored before them.
                    self.commit_batch(&mut batch, &mut waiting);
                    self.answer_query(other);
                }
            }
            if waiting.len() < MAX_REQUESTS_PER_COMMIT && batch.events.len() < EVENT_QUEUE_LEN {
                next = self.requests.try_recv().ok();
            }
        }
        self.commit_batch(&mut batch, &mut waiting);
    }

    fn commit_batch(
        &mut self,
        batch: &mut WriteBatch,
        waiting: &mut Vec<oneshot::Sender<Result<(), StoreError>>>,
    ) {
        if waiting.is_empty() && batch.events.is_empty() && batch.progress.is_empty() {
            return;
        }
        let kept = self.write(std::mem::take(batch)).map(|_more| ());
        for answer in waiting.drain(..) {
            // The requester may be gone; the data is stored anyway.
            let _gone = answer.send(kept.clone());
        }
    }

    fn answer_query(&mut self, request: JournalRequest) {
        match request {
            JournalRequest::Claim(cluster, answer) => {
                let _gone = answer.send(self.claim(&cluster));
            }
            JournalRequest::OverriddenSettings(answer) => {
                let _gone = answer.send(self.with_store(JournalStore::overridden_settings));
            }
            JournalRequest::FeedPosition(answer) => {
                let kept = self
                    .ensure_claimed()
                    .and_then(|()| self.with_store(JournalStore::feed_position));
                let _gone = answer.send(kept);
            }
            JournalRequest::BeginRead(answer) => {
                let _gone = answer.send(self.with_store(JournalStore::begin_read));
            }
            JournalRequest::SaveMeasurements(measured, answer) => {
                let _gone = answer.send(self.save_measurements(&measured));
            }
            JournalRequest::ApplyChanges(..)
            | JournalRequest::SetOverridden(..)
            | JournalRequest::RecordEvents(..) => {}
        }
    }

    fn save_measurements(&mut self, measured: &MeasuredBlocks) -> Result<(), StoreError> {
        self.check_file();
        self.ensure_writable()?;
        let Some(store) = &mut self.store else { return Err(self.current_error()) };
        store.save_measurements(measured).map_err(|why| {
            self.handle_failure("write", &why);
            self.current_error()
        })
    }

    /// Fails if the journal is not claimed for a cluster yet.
    fn ensure_claimed(&self) -> Result<(), StoreError> {
        let why = "the journal is not claimed for a cluster yet: CouchDB has not been reached";
        if self.claimed { Ok(()) } else { Err(StoreError(why.to_owned())) }
    }

    /// Fails if nothing may be written now.
    fn ensure_writable(&self) -> Result<(), StoreError> {
        self.ensure_claimed()?;
        if self.write_failure.is_some() { Err(self.current_error()) } else { Ok(()) }
    }

    /// Reads; after a read error the file is opened again.
    fn with_store<T>(
        &mut self,
        read: impl FnOnce(&JournalStore) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        let Some(store) = &self.store else { return Err(self.current_error()) };
        read(store).map_err(|why| {
            self.handle_failure("read", &why);
            self.current_error()
        })
    }

    fn claim(&mut self, cluster: &ClusterIdentity) -> Result<RecoveredState, ClaimError> {
        let kept = self.with_store(JournalStore::cluster)?;
        if let Some(kept) = &kept
            && !kept.is_same_cluster(cluster)
        {
            return Err(ClaimError::OtherCluster {
                place: self.place.name(),
                kept: Box::new(kept.clone()),
                found: Box::new(cluster.clone()),
            });
        }
        let now = self.clock.now();
        let recovered = self.with_store(|store| store.load_state(now))?;
        let stamp = kept.as_ref().map_or_else(|| cluster.clone(), |kept| kept.merged_with(cluster));
        if kept.as_ref() != Some(&stamp) {
            self.with_store(|store| store.claim(&stamp))?;
        }
        self.claimed = true;
        Ok(recovered)
    }

    /// Writes a batch together with pending events. Returns whether more entries exceed their
    /// budgets.
    fn write(&mut self, mut batch: WriteBatch) -> Result<bool, StoreError> {
        batch.events.append(&mut self.pending_events);
        let lost = batch.events.len() as u64;
        batch.has_subscribers = self.stored_events.receiver_count() > 0;
        self.check_file();
        let result = self.ensure_writable().and_then(|()| self.commit(&batch));
        if result.is_err() {
            self.dropped.fetch_add(lost, Ordering::Relaxed);
        }
        result
    }

    fn commit(&mut self, batch: &WriteBatch) -> Result<bool, StoreError> {
        let Some(store) = &mut self.store else { return Err(self.current_error()) };
        let (budgets, now) = (*self.settings.borrow(), self.clock.now());
        match store.write(batch, &budgets, now) {
            Ok(more) => {
                let told = store.take_new_events();
                // Subscribers must find the received number in the published health.
                self.publish_health();
                if !told.is_empty() {
                    // Subscribers may have gone since.
                    let _gone = self.stored_events.send(told.into());
                }
                Ok(more)
            }
            Err(why) => {
                self.handle_failure("write", &why);
                Err(self.current_error())
            }
        }
    }

    fn current_error(&self) -> StoreError {
        self.write_failure.as_ref().map_or_else(
            || StoreError(format!("{} is not open", self.place.name())),
            |stuck| stuck.why.clone(),
        )
    }

    /// After a failure the library's state cannot be trusted. The file is reopened at once for
    /// reading, and tried for writing after a delay.
    fn handle_failure(&mut self, what: &str, why: &Error) {
        let place = self.place.name();
        let why = StoreError(if let Error::Io(why) = why {
            format!(
                "cannot {what} {place}: {why}; {}: recliner then continues automatically",
                remedy(why)
            )
        } else if let Error::Corrupted(why) = why {
            format!("{place} is damaged: {why}; stop recliner and restore a backup")
        } else {
            format!("cannot {what} {place}: {why}; reopening the file")
        });
        tracing::error!(%why, "the journal cannot be used");
        self.set_failure(why);
        self.store = None;
        self.reopen();
        self.publish_health();
    }

    fn set_failure(&mut self, why: StoreError) {
        let pause = self
            .write_failure
            .as_ref()
            .map_or(MIN_RETRY_DELAY, |stuck| (stuck.retry_delay * 2).min(MAX_RETRY_DELAY));
        let since =
            self.write_failure.as_ref().map_or_else(|| self.clock.now(), |stuck| stuck.since);
        self.write_failure =
            Some(WriteFailure { since, why, retry_at: Instant::now() + pause, retry_delay: pause });
    }

    /// Detects that the open file lost its name: data written to it would be lost when this process
    /// ends.
    fn check_file(&mut self) {
        if self.write_failure.is_none()
            && let Some(why) = self.file_replaced_error()
        {
            tracing::error!(%why, "the journal cannot be used");
            self.set_failure(why);
            self.publish_health();
        }
    }

    /// Why the opened file is no longer the one with its name, if so.
    fn file_replaced_error(&self) -> Option<StoreError> {
        let opened = self.opened_file?;
        let (what, remedy) = match self.place.file_id() {
            Ok(Some(found)) if found != opened => (
                "it was replaced by another file",
                "restart recliner to use the new file, or put the old one back",
            ),
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                ("it was deleted or moved away", "put it back, or restart to create a new one")
            }
            // Any other error appears when the file is written.
            Ok(_) | Err(_) => return None,
        };
        let place = self.place.name();
        Some(StoreError(format!("{place} is gone: {what} while it was open; {remedy}")))
    }

    fn reopen(&mut self) {
        if let (Some(why), Some(stuck)) = (self.file_replaced_error(), &mut self.write_failure) {
            stuck.why = why;
            return;
        }
        match JournalStore::open(&*self.place, false) {
            Ok(store) => self.store = Some(store),
            Err(why) => {
                tracing::warn!(%why, "the journal cannot be reopened yet");
                if let Some(stuck) = &mut self.write_failure {
                    stuck.why = StoreError(why.to_string());
                }
            }
        }
    }

    /// Tries whether the file can be written again.
    fn retry(&mut self) {
        if let Some(why) = self.file_replaced_error() {
            self.set_failure(why);
            self.publish_health();
            return;
        }
        if self.store.is_none() {
            let why = self.current_error();
            self.set_failure(why);
            self.reopen();
        }
        match self.store.as_ref().map(JournalStore::probe_write) {
            None => self.publish_health(),
            Some(Err(why)) => self.handle_failure("write", &why),
            Some(Ok(())) => {
                self.write_failure = None;
                self.publish_health();
                tracing::info!(place = self.place.name(), "the journal is writable again");
            }
        }
    }

    fn publish_health(&self) {
        let known = self.health.borrow().last_seq;
        let health = JournalHealth {
            last_seq: self.store.as_ref().map_or(known, JournalStore::last_seq),
            failure: self.write_failure.as_ref().map(|stuck| (stuck.since, stuck.why.clone())),
            file_bytes: self.place.bytes(),
        };
        self.health.send_if_modified(|shown| {
            let changed = **shown != health;
            *shown = Arc::new(health);
            changed
        });
    }
}
