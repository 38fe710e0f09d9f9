//! Answers on their way: what is held of them in memory, and when they are over.
//!
//! Owns the bound on bytes of all answers that were rendered and not yet taken. An answer in
//! pieces holds one piece at a time, and the next is rendered when this one was taken; one that
//! was rendered as a whole is held as a whole, and handed on piece by piece.

use super::life::Life;
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

/// Bytes of all answers together that were rendered and not taken.
const IN_FLIGHT: usize = 256 << 20;

/// With less than this left, no other answer is begun.
const LEAST: usize = 1 << 20;

/// What is handed on at a time.
const PIECE: usize = 64 << 10;

/// How long an answer that has an end may take to be received.
const ANSWER: Duration = Duration::from_secs(600);

/// The unit in which bytes are counted.
const UNIT: usize = 1 << 10;

/// Room for answers on their way; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    room: Arc<Semaphore>,
    /// The whole room, in units.
    all: usize,
}

impl Default for Flight {
    fn default() -> Self {
        Self::new(IN_FLIGHT)
    }
}

impl Flight {
    pub(super) fn new(bytes: usize) -> Self {
        let all = bytes / UNIT;
        Self { room: Arc::new(Semaphore::new(all)), all }
    }

    /// Whether another answer may begin.
    pub(super) fn has_room(&self) -> bool {
        self.room.available_permits() >= (LEAST / UNIT).min(self.all)
    }
}

/// What a request is for, as far as it decides who goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A probe or a scrape: answered when nothing else is, and not counted. Scrapes have a
    /// bound of their own.
    Watch,
    /// Readers of events, who stay; their number is bounded.
    Feed,
    /// Everything else.
    Other,
}

impl Class {
    pub(super) fn of(path: &str) -> Self {
        match path {
            "/metrics" | "/-/healthy" | "/-/ready" => Self::Watch,
            "/_db_updates" => Self::Feed,
            _ => Self::Other,
        }
    }
}

/// A body whose bytes are counted while they are held.
pub(super) struct Sent {
    body: Body,
    life: Arc<Life>,
    flight: Option<PollSemaphore>,
    /// The most that it can ask for at once, in units.
    most: usize,
    until: Option<Instant>,
    /// What was rendered and not handed on, and the room that it takes.
    rest: Bytes,
    held: Option<OwnedSemaphorePermit>,
}

impl Sent {
    pub(super) fn new(body: Body, class: Class, life: Arc<Life>, flight: &Flight) -> Self {
        let most = flight.all;
        let counted = class != Class::Watch;
        let flight = counted.then(|| PollSemaphore::new(Arc::clone(&flight.room)));
        let until = (class != Class::Feed).then(|| Instant::now() + ANSWER);
        Self { body, life, flight, most, until, rest: Bytes::new(), held: None }
    }

    /// Room for what was rendered; where there is none, it is waited for.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(flight) = self.flight.as_mut().filter(|_| self.held.is_none()) else {
            return Poll::Ready(());
        };
        // More than all there is would be waited for in vain.
        let units = self.rest.len().div_ceil(UNIT).min(self.most);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        // Nothing closes the semaphore.
        self.held = ready!(flight.poll_acquire_many(cx, units));
        Poll::Ready(())
    }
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        if this.until.is_some_and(|until| Instant::now() > until) {
            let late = io::Error::new(io::ErrorKind::TimedOut, "the answer was not taken in time");
            return Poll::Ready(Some(Err(Error::new(late))));
        }
        if this.rest.is_empty() {
            // A client that asks for more took what was handed on.
            this.held = None;
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end => return Poll::Ready(end),
            }
        }
        ready!(this.poll_room(cx));
        let piece = this.rest.split_to(PIECE.min(this.rest.len()));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(rest));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.life.answered();
    }
}
