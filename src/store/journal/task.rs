//! The task that holds the database.

use super::{
    ClaimError, FileId, Health, Identity, Journal, Kept, Measured, OpenError, Place, Position,
    Reached, Taken, What,
    place::remedy,
    store::{Batch, Store},
};
use crate::model::{
    memory::{Change, Recovered, Trouble},
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
const REQUESTS: usize = 1024;

/// Maximum number of events waiting to be written together; further ones are dropped.
const EVENTS: usize = 4096;

/// Number of commits that a subscriber may lag behind.
const BEHIND: usize = 64;

/// Maximum number of requests in one commit.
const GROUP: usize = 256;

/// How long an event may wait for others, because each commit waits for the disk.
const LINGER: Duration = Duration::from_millis(500);

/// Interval between trims while nothing is written.
const TRIM: Duration = Duration::from_secs(600);

/// Interval between checks that the open file still has its name, while nothing is written.
const LOOK: Duration = Duration::from_secs(5);

/// First and longest delay before the file is tried again after a failure.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Retention time and size limits.
pub type Settings = work::Journal;

/// A request to the task.
#[derive(Debug)]
pub(super) enum Request {
    Claim(Box<Identity>, oneshot::Sender<Result<Recovered, ClaimError>>),
    Keep(Vec<Change>, oneshot::Sender<Result<(), Trouble>>),
    Publish(Vec<What>, Reached),
    Position(oneshot::Sender<Result<Option<Position>, Trouble>>),
    Take(Vec<(Taken, bool)>, oneshot::Sender<Result<(), Trouble>>),
    Taken(oneshot::Sender<Result<Vec<Taken>, Trouble>>),
    Read(oneshot::Sender<Result<ReadTransaction, Trouble>>),
    Measured(Box<Measured>, oneshot::Sender<Result<(), Trouble>>),
}

/// The current write failure.
#[derive(Debug)]
struct Stuck {
    since: Moment,
    why: Trouble,
    again: Instant,
    pause: Duration,
}

/// Holds the database. It blocks on disk I/O, so it needs its own thread.
#[derive(Debug)]
pub struct Task {
    place: Box<dyn Place>,
    clock: Clock,
    settings: watch::Receiver<Settings>,
    store: Option<Store>,
    /// The file opened at start; another file with the same name is not accepted.
    opened: Option<FileId>,
    claimed: bool,
    stuck: Option<Stuck>,
    requests: mpsc::Receiver<Request>,
    events: mpsc::Receiver<What>,
    noted: Vec<What>,
    health: watch::Sender<Arc<Health>>,
    dropped: Arc<AtomicU64>,
    kept: broadcast::Sender<Kept>,
}

impl Task {
    /// Opens the journal, or creates it if it does not exist, and locks it for this process. The
    /// whole file is read and verified, which takes about one second per few hundred MiB.
    ///
    /// # Errors
    /// Why the journal cannot be opened and what to do about it.
    pub fn open(
        place: impl Place + 'static,
        clock: Clock,
        settings: watch::Receiver<Settings>,
    ) -> Result<(Self, Journal), OpenError> {
        let store = Store::open(&place, true)?;
        let opened = place.file_id().ok().flatten();
        let (requests_tx, requests) = mpsc::channel(REQUESTS);
        let (events_tx, events) = mpsc::channel(EVENTS);
        let health = Health { last_seq: store.last_seq(), trouble: None, bytes: place.bytes() };
        let (health, health_rx) = watch::channel(Arc::new(health));
        let dropped = Arc::new(AtomicU64::new(0));
        let (kept, _) = broadcast::channel(BEHIND);
        let journal = Journal {
            requests: requests_tx,
            events: events_tx,
            health: health_rx,
            dropped: Arc::clone(&dropped),
            kept: kept.clone(),
        };
        let task = Self {
            place: Box::new(place),
            clock,
            settings,
            store: Some(store),
            opened,
            claimed: false,
            stuck: None,
            requests,
            events,
            noted: Vec::new(),
            health,
            dropped,
            kept,
        };
        Ok((task, journal))
    }

    /// Serves requests until `stop`, then those already sent, and closes the file. Tasks that still
    /// have something to store must end before `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut trim_at = Instant::now() + TRIM;
        let mut look_at = Instant::now() + LOOK;
        let mut write_at = None;
        loop {
            let wake = [self.stuck.as_ref().map(|stuck| stuck.again), write_at, Some(trim_at)];
            let wake = wake.into_iter().flatten().min().unwrap_or(trim_at).min(look_at);
            // Every arm is cancel-safe, and no arm's body awaits.
            tokio::select! {
                biased;
                () = stop.cancelled(), if !self.requests.is_closed() => self.requests.close(),
                request = self.requests.recv() => {
                    let Some(request) = request else { break };
                    self.serve(request);
                }
                Some(event) = self.events.recv(), if self.noted.len() < EVENTS => {
                    self.noted.push(event);
                    write_at.get_or_insert_with(|| Instant::now() + LINGER);
                }
                () = time::sleep_until(wake) => {
                    let now = Instant::now();
                    if self.stuck.as_ref().is_some_and(|stuck| stuck.again <= now) {
                        self.try_again();
                    }
                    if look_at <= now {
                        self.look_for_file();
                        look_at = now + LOOK;
                    }
                    if trim_at <= now || write_at.is_some_and(|at| at <= now) {
                        trim_at = now + if self.write(Batch::default()) == Ok(true) {
                            // More entries must be removed than fit in one commit. Continue soon,
                            // after waiting requests.
                            Duration::ZERO
                        } else {
                            TRIM
                        };
                    }
                }
            }
            if self.noted.is_empty() {
                write_at = None;
            }
        }
        while let Ok(event) = self.events.try_recv() {
            self.noted.push(event);
        }
        if !self.noted.is_empty() {
            // A failed write was already counted and logged.
            let _refused = self.write(Batch::default());
        }
        if let Some(Err(why)) = self.store.take().map(Store::close) {
            tracing::warn!(%why, place = self.place.name(), "the journal was not closed cleanly");
        }
    }

    /// Serves a request, and includes other waiting requests in the same commit.
    fn serve(&mut self, request: Request) {
        let mut waiting = Vec::new();
        let mut batch = Batch::default();
        let mut next = Some(request);
        while let Some(request) = next.take() {
            match request {
                Request::Keep(changes, answer) => {
                    batch.changes.extend(changes);
                    waiting.push(answer);
                }
                Request::Take(taken, answer) => {
                    batch.taken.extend(taken);
                    waiting.push(answer);
                }
                Request::Publish(events, reached) => {
                    batch.events.extend(events);
                    batch.reached.join(reached);
                }
                other @ (Request::Claim(..)
                | Request::Taken(_)
                | Request::Position(_)
                | Request::Read(_)
                | Request::Measured(..)) => {
                    // Requests see everything stored before them.
                    self.settle(&mut batch, &mut waiting);
                    self.answer(other);
                }
            }
            if waiting.len() < GROUP && batch.events.len() < EVENTS {
                next = self.requests.try_recv().ok();
            }
        }
        self.settle(&mut batch, &mut waiting);
    }

    fn settle(
        &mut self,
        batch: &mut Batch,
        waiting: &mut Vec<oneshot::Sender<Result<(), Trouble>>>,
    ) {
        if waiting.is_empty() && batch.events.is_empty() && batch.reached.is_blank() {
            return;
        }
        let kept = self.write(std::mem::take(batch)).map(|_more| ());
        for answer in waiting.drain(..) {
            // The requester may be gone; the data is stored anyway.
            let _gone = answer.send(kept.clone());
        }
    }

    fn answer(&mut self, request: Request) {
        match request {
            Request::Claim(cluster, answer) => {
                let _gone = answer.send(self.claim(&cluster));
            }
            Request::Taken(answer) => {
                let _gone = answer.send(self.with(Store::taken));
            }
            Request::Position(answer) => {
                let kept = self.claimed().and_then(|()| self.with(Store::position));
                let _gone = answer.send(kept);
            }
            Request::Read(answer) => {
                let _gone = answer.send(self.with(Store::read));
            }
            Request::Measured(measured, answer) => {
                let _gone = answer.send(self.keep_measured(&measured));
            }
            Request::Keep(..) | Request::Take(..) | Request::Publish(..) => {}
        }
    }

    fn keep_measured(&mut self, measured: &Measured) -> Result<(), Trouble> {
        self.look_for_file();
        self.writable()?;
        let Some(store) = &mut self.store else { return Err(self.trouble()) };
        store.keep_measured(measured).map_err(|why| {
            self.fail("write", &why);
            self.trouble()
        })
    }

    /// Fails if the journal is not claimed for a cluster yet.
    fn claimed(&self) -> Result<(), Trouble> {
        let why = "the journal is not claimed for a cluster yet: CouchDB has not been reached";
        if self.claimed { Ok(()) } else { Err(Trouble(why.to_owned())) }
    }

    /// Fails if nothing may be written now.
    fn writable(&self) -> Result<(), Trouble> {
        self.claimed()?;
        if self.stuck.is_some() { Err(self.trouble()) } else { Ok(()) }
    }

    /// Reads; after a read error the file is opened again.
    fn with<T>(&mut self, read: impl FnOnce(&Store) -> Result<T, Error>) -> Result<T, Trouble> {
        let Some(store) = &self.store else { return Err(self.trouble()) };
        read(store).map_err(|why| {
            self.fail("read", &why);
            self.trouble()
        })
    }

    fn claim(&mut self, cluster: &Identity) -> Result<Recovered, ClaimError> {
        let kept = self.with(Store::cluster)?;
        if let Some(kept) = &kept
            && !kept.is(cluster)
        {
            return Err(ClaimError::Another {
                place: self.place.name(),
                kept: Box::new(kept.clone()),
                found: Box::new(cluster.clone()),
            });
        }
        let now = self.clock.now();
        let recovered = self.with(|store| store.recovered(now))?;
        let stamp = kept.as_ref().map_or_else(|| cluster.clone(), |kept| kept.followed_by(cluster));
        if kept.as_ref() != Some(&stamp) {
            self.with(|store| store.claim(&stamp))?;
        }
        self.claimed = true;
        Ok(recovered)
    }

    /// Writes a batch together with pending events. Returns whether more entries exceed their
    /// budgets.
    fn write(&mut self, mut batch: Batch) -> Result<bool, Trouble> {
        batch.events.append(&mut self.noted);
        let lost = batch.events.len() as u64;
        batch.hears = self.kept.receiver_count() > 0;
        self.look_for_file();
        let result = self.writable().and_then(|()| self.commit(&batch));
        if result.is_err() {
            self.dropped.fetch_add(lost, Ordering::Relaxed);
        }
        result
    }

    fn commit(&mut self, batch: &Batch) -> Result<bool, Trouble> {
        let Some(store) = &mut self.store else { return Err(self.trouble()) };
        let (budgets, now) = (*self.settings.borrow(), self.clock.now());
        match store.write(batch, &budgets, now) {
            Ok(more) => {
                let told = store.told();
                // Subscribers must find the received number in the published health.
                self.publish();
                if !told.is_empty() {
                    // Subscribers may have gone since.
                    let _gone = self.kept.send(told.into());
                }
                Ok(more)
            }
            Err(why) => {
                self.fail("write", &why);
                Err(self.trouble())
            }
        }
    }

    fn trouble(&self) -> Trouble {
        self.stuck.as_ref().map_or_else(
            || Trouble(format!("{} is not open", self.place.name())),
            |stuck| stuck.why.clone(),
        )
    }

    /// After a failure the library's state cannot be trusted. The file is reopened at once for
    /// reading, and tried for writing after a delay.
    fn fail(&mut self, what: &str, why: &Error) {
        let place = self.place.name();
        let why = Trouble(if let Error::Io(why) = why {
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
        self.stick(why);
        self.store = None;
        self.reopen();
        self.publish();
    }

    fn stick(&mut self, why: Trouble) {
        let pause = self.stuck.as_ref().map_or(RETRY, |stuck| (stuck.pause * 2).min(RETRY_MAX));
        let since = self.stuck.as_ref().map_or_else(|| self.clock.now(), |stuck| stuck.since);
        self.stuck = Some(Stuck { since, why, again: Instant::now() + pause, pause });
    }

    /// Detects that the open file lost its name: data written to it would be lost when this process
    /// ends.
    fn look_for_file(&mut self) {
        if self.stuck.is_none()
            && let Some(why) = self.misplaced()
        {
            tracing::error!(%why, "the journal cannot be used");
            self.stick(why);
            self.publish();
        }
    }

    /// Why the opened file is no longer the one with its name, if so.
    fn misplaced(&self) -> Option<Trouble> {
        let opened = self.opened?;
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
        Some(Trouble(format!("{place} is gone: {what} while it was open; {remedy}")))
    }

    fn reopen(&mut self) {
        if let (Some(why), Some(stuck)) = (self.misplaced(), &mut self.stuck) {
            stuck.why = why;
            return;
        }
        match Store::open(&*self.place, false) {
            Ok(store) => self.store = Some(store),
            Err(why) => {
                tracing::warn!(%why, "the journal cannot be reopened yet");
                if let Some(stuck) = &mut self.stuck {
                    stuck.why = Trouble(why.to_string());
                }
            }
        }
    }

    /// Tries whether the file can be written again.
    fn try_again(&mut self) {
        if let Some(why) = self.misplaced() {
            self.stick(why);
            self.publish();
            return;
        }
        if self.store.is_none() {
            let why = self.trouble();
            self.stick(why);
            self.reopen();
        }
        match self.store.as_ref().map(Store::try_out) {
            None => self.publish(),
            Some(Err(why)) => self.fail("write", &why),
            Some(Ok(())) => {
                self.stuck = None;
                self.publish();
                tracing::info!(place = self.place.name(), "the journal is writable again");
            }
        }
    }

    fn publish(&self) {
        let known = self.health.borrow().last_seq;
        let health = Health {
            last_seq: self.store.as_ref().map_or(known, Store::last_seq),
            trouble: self.stuck.as_ref().map(|stuck| (stuck.since, stuck.why.clone())),
            bytes: self.place.bytes(),
        };
        self.health.send_if_modified(|shown| {
            let changed = **shown != health;
            *shown = Arc::new(health);
            changed
        });
    }
}
