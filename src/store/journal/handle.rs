//! The handle by which other tasks use the journal.

use super::{
    Event, EventsQuery, FeedPage, FeedQuery, HistoryQuery, Identity, Measured, Page, Position,
    Reached, Taken, What, feed, marks, measured,
    query::{self, Unread},
    task::Request,
};
use crate::{
    model::memory::{Change, Keeper, Outcome, Recovered, Trouble},
    table::{Block, Mark},
    tasks::joined,
};
use futures::{FutureExt as _, future::BoxFuture};
use redb::ReadTransaction;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use wall_clock::Moment;

/// State of the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Number of the newest stored entry.
    pub last_seq: u64,
    /// Since when the journal cannot be written, and why.
    pub trouble: Option<(Moment, Trouble)>,
    /// Size of the file in bytes, if known.
    pub bytes: Option<u64>,
}

/// Why a journal cannot be claimed for a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// The journal belongs to another cluster.
    #[error(
        "{place} belongs to {kept}, but CouchDB is {found}: use a separate --storage.path for this cluster, or move the file away to start a new journal"
    )]
    Another {
        /// The file.
        place: String,
        /// The cluster the journal belongs to.
        kept: Box<Identity>,
        /// The cluster to claim it for.
        found: Box<Identity>,
    },
    /// The journal cannot be read or written.
    #[error(transparent)]
    Trouble(#[from] Trouble),
}

/// Handle to the journal; cheap to clone.
#[derive(Clone, Debug)]
pub struct Journal {
    pub(super) requests: mpsc::Sender<Request>,
    pub(super) events: mpsc::Sender<What>,
    pub(super) health: watch::Receiver<Arc<Health>>,
    pub(super) dropped: Arc<AtomicU64>,
    pub(super) kept: broadcast::Sender<Kept>,
}

/// The events of one commit with their numbers, sent after the commit is durable.
pub type Kept = Arc<[(u64, Event)]>;

impl Journal {
    /// Claims the journal for a cluster and loads its state. Nothing is stored before the claim.
    ///
    /// # Errors
    /// Names both clusters if the journal belongs to another one; otherwise says what is wrong
    /// with the file.
    pub async fn claim(&self, cluster: Identity) -> Result<Recovered, ClaimError> {
        self.asked(|answer| Request::Claim(Box::new(cluster), answer)).await?
    }

    /// Records that smoosh settings are about to be overridden. A value recorded first stays until
    /// the setting is restored.
    ///
    /// # Errors
    /// If the record may not be on the disk.
    pub async fn take(&self, taken: Vec<Taken>) -> Result<(), Trouble> {
        let taken = taken.into_iter().map(|it| (it, true)).collect();
        self.asked(|answer| Request::Take(taken, answer)).await?
    }

    /// Records that smoosh settings were restored.
    ///
    /// # Errors
    /// If the record may not be on the disk.
    pub async fn give_back(&self, taken: Vec<Taken>) -> Result<(), Trouble> {
        let taken = taken.into_iter().map(|it| (it, false)).collect();
        self.asked(|answer| Request::Take(taken, answer)).await?
    }

    /// The smoosh settings that are overridden and not restored yet.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn taken(&self) -> Result<Vec<Taken>, Trouble> {
        self.asked(Request::Taken).await?
    }

    /// Saves measured facts for the next start.
    ///
    /// # Errors
    /// If they may not be on the disk.
    pub async fn keep_measured(&self, measured: Measured) -> Result<(), Trouble> {
        self.asked(|answer| Request::Measured(Box::new(measured), answer)).await?
    }

    /// The measured facts as last saved.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn measured(&self) -> Result<Vec<Block>, Trouble> {
        self.read(measured::read).await
    }

    /// The state of databases at their last event, where it is newer than the saved facts.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn marks(&self) -> Result<Vec<Mark>, Trouble> {
        self.read(marks::read).await
    }

    /// Records an event soon, together with others. If the queue is full or the journal cannot be
    /// written, the event is dropped and counted.
    pub fn note(&self, what: What) {
        if self.events.try_send(what).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records a batch of events at once, in one commit. If the queue is full or the journal cannot
    /// be written, the batch is dropped and counted.
    pub fn publish(&self, batch: Vec<What>) {
        self.publish_up_to(batch, Reached::default());
    }

    /// Like [`Self::publish`], and stores in the same commit how far the source of the events had
    /// been read.
    pub fn publish_up_to(&self, batch: Vec<What>, reached: Reached) {
        let count = batch.len() as u64;
        if self.requests.try_send(Request::Publish(batch, reached)).is_err() {
            self.dropped.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// How far `_db_updates` was read by this process or an earlier one.
    ///
    /// # Errors
    /// If it cannot be read, or the journal is not claimed yet.
    pub async fn position(&self) -> Result<Option<Position>, Trouble> {
        self.asked(Request::Position).await?
    }

    /// Subscribes to all events from now on, in the order of their numbers and after they are
    /// stored. A subscriber that falls behind receives an error and can read the missed events with
    /// [`Self::events`].
    #[must_use]
    pub fn kept(&self) -> broadcast::Receiver<Kept> {
        self.kept.subscribe()
    }

    /// The current state of the journal.
    #[must_use]
    pub fn health(&self) -> watch::Receiver<Arc<Health>> {
        self.health.clone()
    }

    /// Number of events dropped since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Outcomes of jobs, newest first.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn history(&self, query: HistoryQuery) -> Result<Page<Outcome>, Trouble> {
        self.read(move |tx| query::history(tx, &query)).await
    }

    /// Events, oldest first.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn events(&self, query: EventsQuery) -> Result<Page<Event>, Trouble> {
        self.read(move |tx| query::events(tx, &query)).await
    }

    /// Of the newest `query.limit` matching events, the number of the oldest. Reading page by page
    /// can start there. `None` if no event matches.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn newest_events_from(&self, query: EventsQuery) -> Result<Option<u64>, Trouble> {
        self.read(move |tx| query::newest_from(tx, &query)).await
    }

    /// The latest event of each type of each database.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn feed(&self, query: FeedQuery) -> Result<FeedPage, Trouble> {
        self.read(move |tx| feed::read(tx, &query)).await
    }

    /// Reads on a blocking thread while the journal's own thread goes on writing.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ReadTransaction) -> Result<T, Unread> + Send + 'static,
    ) -> Result<T, Trouble> {
        let tx = self.asked(Request::Read).await??;
        match joined(tokio::task::spawn_blocking(move || read(&tx)).await) {
            Some(Ok(found)) => Ok(found),
            Some(Err(why)) => Err(Trouble(format!("cannot read the journal: {why}"))),
            None => Err(gone()),
        }
    }

    async fn asked<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, Trouble> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(request(answer)).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())
    }
}

fn gone() -> Trouble {
    Trouble("the journal is closed: recliner is stopping".to_owned())
}

impl Keeper for Journal {
    fn keep(&self, changes: Vec<Change>) -> BoxFuture<'static, Result<(), Trouble>> {
        let journal = self.clone();
        async move { journal.asked(|answer| Request::Keep(changes, answer)).await? }.boxed()
    }
}
