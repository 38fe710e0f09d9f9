//! The task that reads the journal for all readers, and its handle.

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

/// Maximum number of readers waiting for events.
pub const ROOM: usize = 2_000;

/// Number of events read, rendered and held at a time.
pub(super) const PAGE: usize = 1_000;

/// Number of pages a reader may lag behind and still share rows; beyond that it reads on its own.
const SHARED: usize = 16;

/// Maximum number of readers that read on their own at a time; others wait.
const BEHIND: usize = 2;

/// Minimum interval between two rounds, so that events in the meantime are sent together.
const GAP: Duration = Duration::from_millis(100);

/// Delay after the journal could not be read.
const RETRY: Duration = Duration::from_secs(1);

/// The maximum number of readers is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} readers wait for events, which is the limit: try again later")]
pub struct Full(pub usize);

/// Handle for reading the feed; cheap to clone.
#[derive(Clone, Debug)]
pub struct Feed {
    pub(super) journal: Journal,
    chunks: broadcast::Sender<Arc<Chunk>>,
    places: Arc<Semaphore>,
    room: usize,
    turns: Arc<Semaphore>,
    pub(super) stop: CancellationToken,
}

/// The task that sends new events to readers.
#[derive(Debug)]
pub struct Task {
    feed: Feed,
    health: watch::Receiver<Arc<Health>>,
    /// The journal's newest number at the last check.
    seen: u64,
    /// Number of the last event sent.
    told: u64,
}

impl Feed {
    /// Opens a feed if a reader slot is free, or none is needed.
    ///
    /// # Errors
    /// The journal's error if it cannot be read; [`Full`] if no slot is free.
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

    /// Number of readers waiting for events.
    #[must_use]
    pub fn subscribers(&self) -> usize {
        self.room.saturating_sub(self.places.available_permits())
    }

    /// Subscribes to new events.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Arc<Chunk>> {
        self.chunks.subscribe()
    }

    /// Reads a page of the journal's table once a catch-up slot is free.
    pub(super) async fn page(&self, query: FeedQuery) -> Result<FeedPage, Trouble> {
        let _turn: Option<OwnedSemaphorePermit> =
            Arc::clone(&self.turns).acquire_owned().await.ok();
        self.journal.feed(query).await
    }
}

/// Why a feed could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No reader slot is free.
    #[error(transparent)]
    Full(#[from] Full),
    /// The journal cannot be read.
    #[error(transparent)]
    Trouble(#[from] Trouble),
}

impl Task {
    /// Creates the feed of a journal for at most `room` waiting readers. All feeds end at `stop`.
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

    /// Sends new events until `stop`, or until the journal ends.
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
            // The journal ends after all other tasks; remaining readers get an error.
            () = telling => stop.cancelled().await,
        }
    }

    /// Sends new events page by page. Without subscribers only the position advances: new readers
    /// find the rest in the table.
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
                // Removals matter only to readers that have not seen the events; they check for
                // themselves.
                since: Since::Number { number: after, floor: u64::MAX },
                until: None,
                newest_first: false,
                limit: PAGE,
            };
            let page = self.feed.journal.feed(query).await.inspect_err(|_| {
                // Causes a retry even if no further event arrives.
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
                // Subscribers may have gone since.
                let _gone = self.feed.chunks.send(Arc::new(chunk));
            }
        }
    }
}
