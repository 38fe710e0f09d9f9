//! Response bodies: the memory they hold, and when they time out.
//!
//! Owns the limit on the bytes of all responses that were rendered but not yet sent. A streamed
//! response holds one chunk at a time: the next is rendered when the previous one was sent. A
//! response that was rendered completely is held completely, and passed on in chunks.

use super::connection_table::ConnectionState;
use axum::{
    Error,
    body::{Body, BodyDataStream, Bytes},
};
use futures::{TryStreamExt as _, stream};
use std::{io, sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// The limit on rendered, unsent bytes of all responses together.
const MAX_UNSENT: usize = 256 << 20;

/// If less than this is free, no further response begins.
const MIN_FREE: usize = 1 << 20;

/// How many bytes are passed on at a time.
const CHUNK: usize = 64 << 10;

/// How long a finite response may take to be received.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

/// The unit in which bytes are counted.
const UNIT: usize = 1 << 10;

/// Free memory for responses; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct ResponseMemory {
    free: Arc<Semaphore>,
    /// The total, in units.
    total: usize,
}

impl Default for ResponseMemory {
    fn default() -> Self {
        Self::new(MAX_UNSENT)
    }
}

impl ResponseMemory {
    pub(super) fn new(bytes: usize) -> Self {
        let total = bytes / UNIT;
        Self { free: Arc::new(Semaphore::new(total)), total }
    }

    /// Whether another response may begin.
    pub(super) fn has_room(&self) -> bool {
        self.free.available_permits() >= (MIN_FREE / UNIT).min(self.total)
    }

    /// Waits until there is memory for `bytes` bytes. `None` never occurs, because nothing closes
    /// the semaphore.
    async fn acquire(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        // Waiting for more than the total would never end.
        let units = u32::try_from(bytes.div_ceil(UNIT).min(self.total)).unwrap_or(u32::MAX);
        Arc::clone(&self.free).acquire_many_owned(units).await.ok()
    }
}

/// The class of a request, which decides its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestClass {
    /// A probe or scrape: always answered and not counted. Scrapes have their own limit.
    Monitoring,
    /// An event reader, which stays connected; the number of readers is limited.
    Feed,
    /// Any other request.
    Other,
}

impl RequestClass {
    pub(super) fn of(path: &str) -> Self {
        match path {
            "/metrics" | "/-/healthy" | "/-/ready" => Self::Monitoring,
            "/_db_updates" => Self::Feed,
            _ => Self::Other,
        }
    }
}

/// A response body whose bytes are counted while they are held.
struct CountedBody {
    body: BodyDataStream,
    connection: Arc<ConnectionState>,
    memory: Option<ResponseMemory>,
    deadline: Option<Instant>,
    /// Rendered bytes that were not passed on, and the memory permit for them.
    buffered: Bytes,
    permit: Option<OwnedSemaphorePermit>,
}

/// Counts the bytes of a body while they are held; at its end, the connection is idle again.
pub(super) fn counted(
    body: Body,
    class: RequestClass,
    connection: Arc<ConnectionState>,
    memory: &ResponseMemory,
) -> Body {
    let body = CountedBody {
        body: body.into_data_stream(),
        connection,
        memory: (class != RequestClass::Monitoring).then(|| memory.clone()),
        deadline: (class != RequestClass::Feed).then(|| Instant::now() + ANSWER_TIMEOUT),
        buffered: Bytes::new(),
        permit: None,
    };
    Body::from_stream(stream::try_unfold(body, CountedBody::next))
}

impl CountedBody {
    /// The next chunk, when there is memory for what it is a part of.
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, Error> {
        if self.deadline.is_some_and(|deadline| Instant::now() > deadline) {
            let late = io::Error::new(
                io::ErrorKind::TimedOut,
                "the client did not read the answer in time",
            );
            return Err(Error::new(late));
        }
        if self.buffered.is_empty() {
            // When the client asks for more, it has received what was passed on.
            self.permit = None;
            let Some(data) = self.body.try_next().await? else { return Ok(None) };
            if let Some(memory) = &self.memory {
                self.permit = memory.acquire(data.len()).await;
            }
            self.buffered = data;
        }
        let piece = self.buffered.split_to(CHUNK.min(self.buffered.len()));
        Ok(Some((piece, self)))
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        self.connection.set_idle();
    }
}
