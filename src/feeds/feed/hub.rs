//! The task that reads the journal for all readers, and the handle on it.

use super::{
    ask::{Ask, Kind},
    reader::{Begun, Reader},
    rows::Chunk,
};
use crate::{
    model::memory::Trouble,
    store::journal::{FeedPage, FeedQuery, Health, Journal, Since},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch},
    time,
};
use tokio_util::sync::CancellationToken;

/// Readers that may wait for events at a time.
pub const ROOM: usize = 2_000;

/// Events that are read, rendered and held at a time.
pub(super) const PAGE: usize = 1_000;

/// Pages that a reader may be behind and still shares; further behind, it reads for itself.
const SHARED: usize = 16;

/// Readers that read for themselves at a time; others wait.
const BEHIND: usize = 2;

/// The shortest time from one round to the next: what comes meanwhile is told together.
const GAP: Duration = Duration::from_millis(100);

/// The pause after the journal could not be read.
const RETRY: Duration = Duration::from_secs(1);

/// There are as many readers as there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} readers wait for events, and more are not served: try again later")]
pub struct Full(pub usize);

/// The way to read the feed; cheap to clone.
#[derive(Clone, Debug)]
pub struct Feed {
    pub(super) journal: Journal,
    chunks: broadcast::Sender<Arc<Chunk>>,
    places: Arc<Semaphore>,
    room: usize,
    turns: Arc<Semaphore>,
    pub(super) stop: CancellationToken,
}

/// Tells readers what is new.
#[derive(Debug)]
pub struct Task {
    feed: Feed,
    health: watch::Receiver<Arc<Health>>,
    /// The journal's newest number when it was last looked at.
    seen: u64,
    /// The number of an event up to which everything was told.
    told: u64,
}

impl Feed {
    /// Opens a feed, if there is a place for one more that waits.
    ///
    /// # Errors
    /// The journal's trouble, where it cannot be read; [`Full`] where there is no place.
    pub async fn open(&self, ask: Ask) -> Result<Begun, Refused> {
        let place = match ask.kind {
            Kind::Normal => None,
            Kind::Longpoll | Kind::Continuous | Kind::EventSource => {
                let place = Arc::clone(&self.places).try_acquire_owned();
                Some(place.map_err(|_| Full(self.room))?)
            }
        };
        Ok(Reader::begin(self.clone(), ask, place).await?)
    }

    /// Readers that wait for events.
    #[must_use]
    pub fn subscribers(&self) -> usize {
        self.room.saturating_sub(self.places.available_permits())
    }

    /// What is new from now on.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Arc<Chunk>> {
        self.chunks.subscribe()
    }

    /// A page of the journal's table, in turn.
    pub(super) async fn page(&self, query: FeedQuery) -> Result<FeedPage, Trouble> {
        let _turn: Option<OwnedSemaphorePermit> =
            Arc::clone(&self.turns).acquire_owned().await.ok();
        self.journal.feed(query).await
    }
}

/// Why a feed was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No place is free.
    #[error(transparent)]
    Full(#[from] Full),
    /// The journal cannot be read.
    #[error(transparent)]
    Trouble(#[from] Trouble),
}

impl Task {
    /// A feed of this journal for at most so many that wait. All end when `stop` comes.
    #[must_use]
    pub fn new(journal: Journal, room: usize, stop: CancellationToken) -> (Self, Feed) {
        let health = journal.health();
        let seen = health.borrow().last_seq;
        let feed = Feed {
            journal,
            chunks: broadcast::channel(SHARED).0,
            places: Arc::new(Semaphore::new(room)),
            room,
            turns: Arc::new(Semaphore::new(BEHIND)),
            stop,
        };
        (Self { feed: feed.clone(), health, seen, told: seen }, feed)
    }

    /// Tells what is new until the feed's `stop`, or until the journal has ended.
    pub async fn run(mut self) {
        let stop = self.feed.stop.clone();
        let telling = async {
            while self.health.changed().await.is_ok() {
                let pause = if self.tell().await.is_ok() { GAP } else { RETRY };
                time::sleep(pause).await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            // The journal ends after all others; whoever still reads finds out.
            () = telling => stop.cancelled().await,
        }
    }

    /// Tells what is new, page by page. Where nobody listens, it is only noted how far
    /// everything was told: whoever comes finds the rest in the table.
    async fn tell(&mut self) -> Result<(), Trouble> {
        loop {
            let last_seq = self.health.borrow_and_update().last_seq;
            if self.feed.chunks.receiver_count() == 0 {
                (self.seen, self.told) = (last_seq, last_seq);
            }
            if self.seen >= last_seq {
                return Ok(());
            }
            let after = self.told;
            let query = FeedQuery {
                // What was removed concerns those who have not seen it: they look themselves.
                since: Since::Number { number: after, floor: u64::MAX },
                until: None,
                newest_first: false,
                limit: PAGE,
            };
            let page = self.feed.journal.feed(query).await.inspect_err(|_| {
                // It is looked at again though nothing else comes.
                self.health.mark_changed();
            })?;
            if let Some(last) = page.updates.last() {
                self.told = last.seq;
            }
            if !page.more {
                self.seen = last_seq;
            }
            if !page.updates.is_empty() {
                let chunk = Chunk::new((after, self.told), page);
                // Whoever listened may have gone.
                let _gone = self.feed.chunks.send(Arc::new(chunk));
            }
        }
    }
}
