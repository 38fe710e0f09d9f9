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

/// Requests that wait; whoever has more waits itself.
const REQUESTS: usize = 1024;

/// Events that wait to be written with others; more are dropped.
const EVENTS: usize = 4096;

/// Commits that whoever hears of kept events may be behind.
const BEHIND: usize = 64;

/// Requests that one commit takes in.
const GROUP: usize = 256;

/// How long an event may wait for others: each commit waits for the disk.
const LINGER: Duration = Duration::from_millis(500);

/// From one look at what is too old to the next, where nothing is written meanwhile.
const TRIM: Duration = Duration::from_secs(600);

/// From one look whether the open file still has its name to the next, where nothing is written
/// meanwhile.
const LOOK: Duration = Duration::from_secs(5);

/// The first pause before the file is tried again, and the longest.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// How long everything is kept, and in how many bytes.
pub type Settings = work::Journal;

/// Something asked of the task.
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

/// Why nothing is written just now.
#[derive(Debug)]
struct Stuck {
    since: Moment,
    why: Trouble,
    again: Instant,
    pause: Duration,
}

/// Holds the database. It waits for the disk within its turns: run it on a thread of its own.
#[derive(Debug)]
pub struct Task {
    place: Box<dyn Place>,
    clock: Clock,
    settings: watch::Receiver<Settings>,
    store: Option<Store>,
    /// The file that was opened at first; no other one is taken for it.
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
    /// Opens the journal, a new one where none is there. From now on this process holds it.
    /// All of the file is read and verified, which takes a second for some hundred MiB.
    ///
    /// # Errors
    /// Says what is in the way and what to do.
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

    /// Serves until `stop`, then what was asked before it, and lets the file go. Whoever
    /// still has something to keep has to end before `stop`.
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
                            // More than one commit should remove: the rest in a moment,
                            // after whoever waits.
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
            // What could not be written was counted and shown.
            let _refused = self.write(Batch::default());
        }
        if let Some(Err(why)) = self.store.take().map(Store::close) {
            tracing::warn!(%why, place = self.place.name(), "the journal was not closed whole");
        }
    }

    /// Serves a request, and in the same commit what else waits to be kept.
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
                    // Whoever asks sees what was kept before.
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
            // Whoever asked may have gone; it is kept all the same.
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

    /// Whether it is known for which cluster it is.
    fn claimed(&self) -> Result<(), Trouble> {
        let why = "the journal is not claimed for a cluster yet: CouchDB has not been reached";
        if self.claimed { Ok(()) } else { Err(Trouble(why.to_owned())) }
    }

    /// Whether anything may be written now.
    fn writable(&self) -> Result<(), Trouble> {
        self.claimed()?;
        if self.stuck.is_some() { Err(self.trouble()) } else { Ok(()) }
    }

    /// Reads; a file that cannot be read is opened again.
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

    /// Writes a batch with the events that wait. Answers whether more is over the budgets.
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
                // Whoever hears of a number finds that it is the newest.
                self.publish();
                if !told.is_empty() {
                    // Whoever heard may have gone since.
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

    /// After a failure the library trusts nothing it holds: the file is opened again at once,
    /// so that it can be read, and tried for writing after a pause.
    fn fail(&mut self, what: &str, why: &Error) {
        let place = self.place.name();
        let why = Trouble(if let Error::Io(why) = why {
            format!("cannot {what} {place}: {why}; {}: it then goes on by itself", remedy(why))
        } else if let Error::Corrupted(why) = why {
            format!("{place} is damaged: {why}; stop, and put a copy of it back")
        } else {
            format!("cannot {what} {place}: {why}; it is opened again")
        });
        tracing::error!(%why, "the journal is in trouble");
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

    /// Notices that the open file lost its name: what is written to it would be gone with this
    /// process.
    fn look_for_file(&mut self) {
        if self.stuck.is_none()
            && let Some(why) = self.misplaced()
        {
            tracing::error!(%why, "the journal is in trouble");
            self.stick(why);
            self.publish();
        }
    }

    /// Why the file that was opened is not the one that has its name now, if it is not.
    fn misplaced(&self) -> Option<Trouble> {
        let opened = self.opened?;
        let (what, remedy) = match self.place.file_id() {
            Ok(Some(found)) if found != opened => (
                "another file was put in its place",
                "restart recliner to use that one, or put the old one back",
            ),
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                ("it was deleted or moved away", "put it back, or restart to begin a new one")
            }
            // What the system does not tell for another reason shows when it is written.
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
                tracing::warn!(%why, "the journal cannot be opened again yet");
                if let Some(stuck) = &mut self.stuck {
                    stuck.why = Trouble(why.to_string());
                }
            }
        }
    }

    /// Looks whether the file can be written again.
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
                tracing::info!(place = self.place.name(), "the journal is written again");
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
