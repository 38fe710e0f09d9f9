//! The task that reads the journal for all readers, and its handle.

use super::rows::{FeedChunk, PAGE_SIZE};
use crate::{
    model::records::StoreError,
    store::journal::{FeedPage, FeedQuery, FeedStart, Journal, JournalHealth},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch},
    time,
};
use tokio_util::sync::CancellationToken;

/// Maximum number of readers waiting for events.
pub const MAX_READERS: usize = 2_000;

/// Number of pages a reader may lag behind and still share rows; beyond that it reads on its own.
const SHARED_PAGES: usize = 16;

/// Maximum number of readers that read on their own at a time; others wait.
const MAX_CATCH_UP_READS: usize = 2;

/// Minimum interval between two rounds, so that events in the meantime are sent together.
const MIN_PUBLISH_INTERVAL: Duration = Duration::from_millis(100);

/// Delay after the journal could not be read.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The maximum number of readers is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} readers wait for events, which is the maximum: try again later")]
pub struct TooManyReaders(pub usize);

/// Handle for reading the feed; cheap to clone.
#[derive(Clone, Debug)]
pub struct FeedHandle {
    pub(super) journal: Journal,
    chunks: broadcast::Sender<Arc<FeedChunk>>,
    pub(super) reader_slots: Arc<Semaphore>,
    pub(super) max_readers: usize,
    catch_up_slots: Arc<Semaphore>,
    pub(super) stop: CancellationToken,
}

/// The task that sends new events to readers.
#[derive(Debug)]
pub struct FeedServerTask {
    feed: FeedHandle,
    health: watch::Receiver<Arc<JournalHealth>>,
    /// The journal's newest number at the last check.
    checked_seq: u64,
    /// Number of the last event sent.
    sent_seq: u64,
}

impl FeedHandle {
    /// Number of readers waiting for events.
    pub fn subscribers(&self) -> usize {
        self.max_readers.saturating_sub(self.reader_slots.available_permits())
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Arc<FeedChunk>> {
        self.chunks.subscribe()
    }

    /// Reads a page of the journal's table once a catch-up slot is free.
    pub(super) async fn read_page(&self, query: FeedQuery) -> Result<FeedPage, StoreError> {
        let _turn: Option<OwnedSemaphorePermit> =
            Arc::clone(&self.catch_up_slots).acquire_owned().await.ok();
        self.journal.feed(query).await
    }
}

/// Why a feed could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeedOpenError {
    /// No reader slot is free.
    #[error(transparent)]
    TooManyReaders(#[from] TooManyReaders),
    /// The journal cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl FeedServerTask {
    /// Creates the feed of a journal for at most `max_readers` waiting readers. All feeds end at `stop`.
    pub fn new(
        journal: Journal,
        max_readers: usize,
        stop: CancellationToken,
    ) -> (Self, FeedHandle) {
        let health = journal.health();
        let last_seq = health.borrow().last_seq;
        let feed = FeedHandle {
            journal,
            chunks: broadcast::channel(SHARED_PAGES).0,
            reader_slots: Arc::new(Semaphore::new(max_readers)),
            max_readers,
            catch_up_slots: Arc::new(Semaphore::new(MAX_CATCH_UP_READS)),
            stop,
        };
        (Self { feed: feed.clone(), health, checked_seq: last_seq, sent_seq: last_seq }, feed)
    }

    /// Sends new events until `stop`, or until the journal ends.
    pub async fn run(mut self) {
        let stop = self.feed.stop.clone();
        let publishing = async {
            while self.health.changed().await.is_ok() {
                let pause =
                    if self.publish().await.is_ok() { MIN_PUBLISH_INTERVAL } else { RETRY_DELAY };
                time::sleep(pause).await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            // The journal ends after all other tasks; remaining readers get an error.
            () = publishing => stop.cancelled().await,
        }
    }

    /// Sends new events page by page. Without subscribers only the position advances: new readers
    /// find the rest in the table.
    async fn publish(&mut self) -> Result<(), StoreError> {
        loop {
            let last_seq = self.health.borrow_and_update().last_seq;
            if self.feed.chunks.receiver_count() == 0 {
                (self.checked_seq, self.sent_seq) = (last_seq, last_seq);
            }
            if self.checked_seq >= last_seq {
                return Ok(());
            }
            let after = self.sent_seq;
            let query = FeedQuery {
                // Removals matter only to readers that have not seen the events; they check for
                // themselves.
                start: FeedStart::AfterNumber { number: after, removed_at_start: u64::MAX },
                until: None,
                newest_first: false,
                limit: PAGE_SIZE,
            };
            let page = self.feed.journal.feed(query).await.inspect_err(|_| {
                // Causes a retry even if no further event arrives.
                self.health.mark_changed();
            })?;
            if let Some(last) = page.entries.last() {
                self.sent_seq = last.seq;
            }
            if !page.more {
                self.checked_seq = last_seq;
            }
            if !page.entries.is_empty() {
                let chunk = FeedChunk::new((after, self.sent_seq), page);
                // Subscribers may have gone since.
                let _gone = self.feed.chunks.send(Arc::new(chunk));
            }
        }
    }
}
