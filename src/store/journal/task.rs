//! The task that holds the database: receives requests and events, passes them to [`JournalState`],
//! and performs the effects it returns.

use super::{
    EventDetails, Journal, JournalHealth, JournalOpenError, Storage, StoredEvents, copy,
    file::{FileFailure, JournalFile},
    handle::MAX_QUEUED_EVENTS,
    request::{JournalRequest, Query, Reply},
    state::{EVENT_QUEUE_LEN, Effect, Event, JournalState},
    store::JournalStore,
};
use crate::{
    model::{
        records::{JournalFailure, StoreError},
        settings::work,
    },
    tasks::{Now, publish_if_changed},
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::{
    sync::{Semaphore, broadcast, mpsc, oneshot, watch},
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// Maximum number of waiting requests; further senders wait.
const REQUEST_QUEUE_LEN: usize = 1024;

/// Number of commits that a subscriber may lag behind.
const MAX_SUBSCRIBER_LAG: usize = 64;

/// Retention time and size limits.
pub type JournalSettings = work::JournalRetention;

/// Holds the database. It blocks on disk I/O, so it needs its own thread.
#[derive(Debug)]
pub struct JournalTask {
    clock: Clock,
    settings: watch::Receiver<JournalSettings>,
    state: JournalState,
    file: JournalFile,
    requests: mpsc::Receiver<JournalRequest>,
    events: mpsc::Receiver<EventDetails>,
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
        storage: impl Storage + 'static,
        clock: Clock,
        settings: watch::Receiver<JournalSettings>,
    ) -> Result<(Self, Journal), JournalOpenError> {
        let copy_path = storage.copy_path();
        let (file, failure) = JournalFile::open(Box::new(storage))?;
        let state = JournalState::new(failure, Now { wall: clock.now(), at: Instant::now() });
        // No other process has the journal open, so none is writing a copy of it.
        if let Err(why) = copy::remove_leftover(&copy_path) {
            tracing::warn!(%why, path = %copy_path.display(), "cannot remove an unfinished copy of the journal");
        }
        let (requests_tx, requests) = mpsc::channel(REQUEST_QUEUE_LEN);
        let (events_tx, events) = mpsc::channel(EVENT_QUEUE_LEN);
        let (health, health_rx) = watch::channel(Arc::new(JournalHealth {
            last_seq: file.last_seq().unwrap_or_default(),
            failure: state.current_failure(),
            file_bytes: file.bytes(),
            last_backup: file.last_backup(),
        }));
        let dropped = Arc::new(AtomicU64::new(0));
        let (stored_events, _) = broadcast::channel(MAX_SUBSCRIBER_LAG);
        let journal = Journal {
            requests: requests_tx,
            events: events_tx,
            health: health_rx,
            dropped: Arc::clone(&dropped),
            event_room: Arc::new(Semaphore::new(MAX_QUEUED_EVENTS)),
            stored_events: stored_events.clone(),
            copy_path: copy_path.into(),
            copy_permit: Arc::new(Semaphore::new(1)),
        };
        let task =
            Self { clock, settings, state, file, requests, events, health, dropped, stored_events };
        Ok((task, journal))
    }

    /// Serves requests until `stop`, then those already sent, and closes the file. Tasks that still
    /// have something to store must end before `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let mut requests = Vec::new();
            // Every arm is cancel-safe, and no arm's body awaits.
            let event = tokio::select! {
                biased;
                () = stop.cancelled(), if !self.requests.is_closed() => {
                    self.requests.close();
                    continue;
                }
                count = self.requests.recv_many(&mut requests, REQUEST_QUEUE_LEN) => {
                    if count == 0 {
                        break;
                    }
                    Event::Requests(requests)
                }
                Some(event) = self.events.recv(), if self.state.accepts_events() => {
                    Event::Recorded(event)
                }
                () = time::sleep_until(self.state.next_wake()) => Event::Wake,
            };
            self.handle(event);
        }
        while let Ok(event) = self.events.try_recv() {
            self.handle(Event::Recorded(event));
        }
        self.handle(Event::Stopping);
        self.file.close();
    }

    /// Handles an event, and the results of the operations that follow from it.
    fn handle(&mut self, event: Event) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let now = Now { wall: self.clock.now(), at: Instant::now() };
            for effect in self.state.handle(event, now) {
                next = self.perform(effect);
            }
        }
    }

    /// Performs an effect. Returns the result of an operation on the file.
    fn perform(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Write(mut batch) => {
                batch.has_subscribers = self.stored_events.receiver_count() > 0;
                let budgets = *self.settings.borrow();
                let written = self.file.write(&batch, &budgets, self.clock.now());
                return Some(Event::Written(written));
            }
            Effect::Serve(query) => return Some(self.serve(query)),
            Effect::CheckFile => return Some(Event::FileChecked(self.file.check())),
            Effect::Retry => return Some(Event::Retried(self.file.retry())),
            Effect::PublishHealth(failure) => self.publish_health(failure),
            Effect::SendStored(events) => {
                // Subscribers may have gone since.
                let _gone = self.stored_events.send(events.into());
            }
            Effect::CountDropped(events) => {
                self.dropped.fetch_add(events as u64, Ordering::Relaxed);
            }
            Effect::Reply(reply) => reply.send(),
        }
        None
    }

    fn serve(&mut self, query: Query) -> Event {
        match query {
            Query::Claim(cluster, answer) => match self.file.claim(&cluster, self.clock.now()) {
                Ok(Ok(recovered)) => Event::Claimed(Reply::new(answer, Ok(recovered))),
                Ok(Err(why)) => {
                    let reason = StoreError(why.to_string());
                    Event::ClaimRefused(reason, Reply::new(answer, Err(why)))
                }
                Err(failure) => served(Err(failure), answer),
            },
            Query::FeedPosition(answer) => {
                served(self.file.read(JournalStore::feed_position), answer)
            }
            Query::OverriddenSettings(answer) => {
                served(self.file.read(JournalStore::overridden_settings), answer)
            }
            Query::BeginRead(answer) => served(self.file.read(JournalStore::begin_read), answer),
            Query::SaveMeasurements(measured, answer) => {
                served(self.file.write_alone(|store| store.save_measurements(&measured)), answer)
            }
            Query::Value(name, answer) => served(self.file.read(|store| store.value(name)), answer),
            Query::SaveValues(values, answer) => {
                served(self.file.write_alone(|store| store.save_values(&values)), answer)
            }
        }
    }

    fn publish_health(&self, failure: Option<(Moment, JournalFailure)>) {
        let (known, last_backup) = {
            let health = self.health.borrow();
            (health.last_seq, health.last_backup)
        };
        let health = JournalHealth {
            last_seq: self.file.last_seq().unwrap_or(known),
            failure,
            file_bytes: self.file.bytes(),
            last_backup: self.file.last_backup().or(last_backup),
        };
        publish_if_changed(&self.health, health);
    }
}

/// The event for a query that was served, with its answer.
fn served<T: Send + 'static, E: From<StoreError> + Send + 'static>(
    result: Result<T, FileFailure>,
    answer: oneshot::Sender<Result<T, E>>,
) -> Event {
    match result {
        Ok(value) => Event::Served(Ok(()), Reply::new(answer, Ok(value))),
        Err(failure) => {
            let why = failure.why.clone();
            Event::Served(Err(failure), Reply::new(answer, Err(why.into())))
        }
    }
}
