//! Response bodies: the memory they hold, and when they time out.
//!
//! Owns the limit on the bytes of all responses that were rendered but not yet sent. A streamed
//! response holds one chunk at a time: the next is rendered when the previous one was sent. A
//! response that was rendered completely is held completely, and passed on in chunks.

use super::connection_state::ConnectionState;
use axum::{
    Error,
    body::{Body, Bytes, HttpBody},
};
use hyper::body::{Frame, SizeHint};
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tokio_util::sync::PollSemaphore;

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
pub(super) struct CountedBody {
    body: Body,
    connection: Arc<ConnectionState>,
    memory: Option<PollSemaphore>,
    /// The maximum number of units it can acquire at once.
    max_units: usize,
    deadline: Option<Instant>,
    /// Rendered bytes that were not passed on, and the memory permit for them.
    buffered: Bytes,
    permit: Option<OwnedSemaphorePermit>,
}

impl CountedBody {
    pub(super) fn new(
        body: Body,
        class: RequestClass,
        connection: Arc<ConnectionState>,
        memory: &ResponseMemory,
    ) -> Self {
        let max_units = memory.total;
        let counted = class != RequestClass::Monitoring;
        let memory = counted.then(|| PollSemaphore::new(Arc::clone(&memory.free)));
        let deadline = (class != RequestClass::Feed).then(|| Instant::now() + ANSWER_TIMEOUT);
        Self { body, connection, memory, max_units, deadline, buffered: Bytes::new(), permit: None }
    }

    /// Acquires memory for the rendered bytes, and waits if there is not enough.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(memory) = self.memory.as_mut().filter(|_| self.permit.is_none()) else {
            return Poll::Ready(());
        };
        // Waiting for more than the total would never end.
        let units = self.buffered.len().div_ceil(UNIT).min(self.max_units);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        // Nothing closes the semaphore.
        self.permit = ready!(memory.poll_acquire_many(cx, units));
        Poll::Ready(())
    }
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        if this.deadline.is_some_and(|deadline| Instant::now() > deadline) {
            let late = io::Error::new(io::ErrorKind::TimedOut, "the answer was not taken in time");
            return Poll::Ready(Some(Err(Error::new(late))));
        }
        if this.buffered.is_empty() {
            // When the client asks for more, it has received what was passed on.
            this.permit = None;
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.buffered = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end => return Poll::Ready(end),
            }
        }
        ready!(this.poll_room(cx));
        let piece = this.buffered.split_to(CHUNK.min(this.buffered.len()));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.buffered.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.buffered.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(rest));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        self.connection.response_finished();
    }
}
