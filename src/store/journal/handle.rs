//! How others reach the journal.

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

/// How the journal is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The number of the newest entry that is on the disk.
    pub last_seq: u64,
    /// Since when it cannot be written, and why.
    pub trouble: Option<(Moment, Trouble)>,
    /// Bytes of its file, where that is known.
    pub bytes: Option<u64>,
}

/// Why a journal cannot be used for a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// It was written for another one.
    #[error(
        "{place} was written for {kept}, and CouchDB is {found}: give this cluster a --storage.path of its own, or move the file away to begin a new one"
    )]
    Another {
        /// The file.
        place: String,
        /// The cluster it was written for.
        kept: Box<Identity>,
        /// The cluster it was to be used for.
        found: Box<Identity>,
    },
    /// It cannot be read or written.
    #[error(transparent)]
    Trouble(#[from] Trouble),
}

/// A handle on the journal; cheap to clone.
#[derive(Clone, Debug)]
pub struct Journal {
    pub(super) requests: mpsc::Sender<Request>,
    pub(super) events: mpsc::Sender<What>,
    pub(super) health: watch::Receiver<Arc<Health>>,
    pub(super) dropped: Arc<AtomicU64>,
    pub(super) kept: broadcast::Sender<Kept>,
}

/// Events of one commit with their numbers, now that they are on the disk.
pub type Kept = Arc<[(u64, Event)]>;

impl Journal {
    /// Claims it for a cluster, and reads back what was kept. Nothing is kept before.
    ///
    /// # Errors
    /// Names both clusters where it was written for another, or says what is wrong with the
    /// file.
    pub async fn claim(&self, cluster: Identity) -> Result<Recovered, ClaimError> {
        self.asked(|answer| Request::Claim(Box::new(cluster), answer)).await?
    }

    /// Keeps that a setting of smoosh is taken over, before it is: the value that was kept
    /// first stays until it is given back.
    ///
    /// # Errors
    /// When it may not be on the disk.
    pub async fn take(&self, taken: Vec<Taken>) -> Result<(), Trouble> {
        let taken = taken.into_iter().map(|it| (it, true)).collect();
        self.asked(|answer| Request::Take(taken, answer)).await?
    }

    /// Keeps that settings of smoosh were given back.
    ///
    /// # Errors
    /// When it may not be on the disk.
    pub async fn give_back(&self, taken: Vec<Taken>) -> Result<(), Trouble> {
        let taken = taken.into_iter().map(|it| (it, false)).collect();
        self.asked(|answer| Request::Take(taken, answer)).await?
    }

    /// What was taken from smoosh and not given back.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn taken(&self) -> Result<Vec<Taken>, Trouble> {
        self.asked(Request::Taken).await?
    }

    /// Keeps what was measured, for the next start.
    ///
    /// # Errors
    /// When it may not be on the disk.
    pub async fn keep_measured(&self, measured: Measured) -> Result<(), Trouble> {
        self.asked(|answer| Request::Measured(Box::new(measured), answer)).await?
    }

    /// What was measured, as it was kept last.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn measured(&self) -> Result<Vec<Block>, Trouble> {
        self.read(measured::read).await
    }

    /// How databases stood when something of them was told, where that is newer.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn marks(&self) -> Result<Vec<Mark>, Trouble> {
        self.read(marks::read).await
    }

    /// Writes down what happened, soon and with others. Where there is no room for it, or
    /// nothing can be written, it is dropped and counted.
    pub fn note(&self, what: What) {
        if self.events.try_send(what).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes down a batch of what happened in one commit, at once. Where too much waits, or
    /// nothing can be written, it is dropped and counted.
    pub fn publish(&self, batch: Vec<What>) {
        self.publish_up_to(batch, Reached::default());
    }

    /// The same, and in the same commit how far whoever told of them had come.
    pub fn publish_up_to(&self, batch: Vec<What>, reached: Reached) {
        let count = batch.len() as u64;
        if self.requests.try_send(Request::Publish(batch, reached)).is_err() {
            self.dropped.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// How far `_db_updates` was followed by an earlier process, or by this one.
    ///
    /// # Errors
    /// When it cannot be read, or it is not known yet whose journal this is.
    pub async fn position(&self) -> Result<Option<Position>, Trouble> {
        self.asked(Request::Position).await?
    }

    /// Every event from now on, as soon as it is on the disk and in the order of the numbers.
    /// Whoever falls behind is told so, and finds what it missed with [`Self::events`].
    #[must_use]
    pub fn kept(&self) -> broadcast::Receiver<Kept> {
        self.kept.subscribe()
    }

    /// How it is: the newest value.
    #[must_use]
    pub fn health(&self) -> watch::Receiver<Arc<Health>> {
        self.health.clone()
    }

    /// Events that were dropped since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// How jobs ended, the newest first.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn history(&self, query: HistoryQuery) -> Result<Page<Outcome>, Trouble> {
        self.read(move |tx| query::history(tx, &query)).await
    }

    /// What happened, the oldest first.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn events(&self, query: EventsQuery) -> Result<Page<Event>, Trouble> {
        self.read(move |tx| query::events(tx, &query)).await
    }

    /// The number of the oldest of the newest events that are wanted, of as many as the query
    /// takes at most: from there on they can be read page by page. None where there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn newest_events_from(&self, query: EventsQuery) -> Result<Option<u64>, Trouble> {
        self.read(move |tx| query::newest_from(tx, &query)).await
    }

    /// The latest event of each type of each database.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn feed(&self, query: FeedQuery) -> Result<FeedPage, Trouble> {
        self.read(move |tx| feed::read(tx, &query)).await
    }

    /// Reads away from the journal's own thread, which goes on writing.
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
