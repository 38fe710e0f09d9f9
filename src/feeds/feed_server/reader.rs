//! One reader: its position in the feed, and the pieces of its response body.

use super::{
    hub::{FeedHandle, FeedOpenError, TooManyReaders},
    request::{FeedRequest, Kind},
    rows::{FeedChunk, PAGE_SIZE, RenderedRows, RowFormat, RowSlice, SEPARATOR},
    sequence::FeedSeq,
};
use crate::{
    model::records::StoreError,
    store::journal::{FeedPage, FeedQuery, FeedStart, ResetReason},
};
use bytes::Bytes;
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, broadcast},
    time::{self, Instant},
};

/// An opened feed.
#[derive(Debug)]
pub struct OpenedFeed {
    /// Entity tag: unchanged while the feed has no new events.
    pub tag: String,
    /// Why the feed does not start at the requested position, if it does not.
    pub reset: Option<ResetReason>,
    /// The response body.
    pub body: Body,
}

/// The response body, produced piece by piece on demand.
#[derive(Debug)]
pub struct Body(FeedReader);

impl Body {
    /// The pieces. The body always ends in a valid state unless its consumer stops.
    pub fn into_stream(self) -> BoxStream<'static, Result<Bytes, Infallible>> {
        stream::unfold(self.0, |mut reader| async move {
            let piece = reader.next_piece().await?;
            Some((Ok(piece), reader))
        })
        .boxed()
    }
}

impl FeedHandle {
    /// Opens a feed if a reader slot is free, or none is needed.
    ///
    /// # Errors
    /// The journal's error if it cannot be read; [`TooManyReaders`] if no slot is free.
    pub async fn open(&self, request: FeedRequest) -> Result<OpenedFeed, FeedOpenError> {
        let slot = match request.kind {
            Kind::Normal => None,
            Kind::Longpoll | Kind::Continuous | Kind::EventSource => {
                let slot = Arc::clone(&self.reader_slots).try_acquire_owned();
                Some(slot.map_err(|_| TooManyReaders(self.max_readers))?)
            }
        };
        Ok(FeedReader::open(self.clone(), request, slot).await?)
    }
}

/// What the reader sends next.
#[derive(Debug)]
enum ReaderStage {
    /// The first page, already read.
    FirstPage(Box<FeedPage>),
    /// Events in the table after the reader's position.
    CatchUp,
    /// New events, shared with other readers.
    Live,
    /// The end of the body.
    Closing,
    /// The body has ended.
    Done,
}

/// What happened while the reader waited for new events.
#[derive(Debug)]
enum LiveEvent {
    /// All feeds end.
    Stopped,
    /// New events arrived, or could not be received.
    Received(Result<Arc<FeedChunk>, broadcast::error::RecvError>),
    /// Nothing was sent for the longest time allowed.
    Silence,
}

#[derive(Debug)]
pub(super) struct FeedReader {
    feed: FeedHandle,
    feed_type: Kind,
    descending: bool,
    /// Maximum time without output, and whether a heartbeat or the end of the feed follows.
    max_silence: Duration,
    has_heartbeats: bool,
    /// All events up to this number were sent; in descending order, all from this number on.
    position: u64,
    /// Removals up to this number happened before the reader started.
    removed_at_start: u64,
    era: String,
    /// Number of events that may still be sent.
    remaining: u64,
    /// Whether any event was sent.
    has_sent: bool,
    /// Whether the body starts with the reader's position.
    starts_with_position: bool,
    /// Number of the last event of a finite response.
    until: Option<u64>,
    stage: ReaderStage,
    chunks: Option<broadcast::Receiver<Arc<FeedChunk>>>,
    last_sent_at: Instant,
    /// The reader's slot, released when the reader is dropped.
    _slot: Option<OwnedSemaphorePermit>,
}

impl FeedReader {
    pub(super) async fn open(
        feed: FeedHandle,
        request: FeedRequest,
        slot: Option<OwnedSemaphorePermit>,
    ) -> Result<OpenedFeed, StoreError> {
        // Subscribe before the first read of the table, so that later events are not missed.
        let chunks = slot.is_some().then(|| feed.subscribe());
        let starts_with_position =
            request.kind == Kind::EventSource && request.start == FeedStart::End;
        let query = FeedQuery {
            start: request.start,
            until: None,
            newest_first: request.descending,
            limit: page_limit(request.limit),
        };
        let page = feed.read_page(query).await?;
        let tag = format!("{}-{}-{}", page.newest_seq, page.highest_removed_seq, page.era);
        let reset = page.reset.filter(|_| !request.descending);
        let until =
            matches!(request.kind, Kind::Normal | Kind::Longpoll).then_some(page.newest_seq);
        let reader = Self {
            feed_type: request.kind,
            descending: request.descending,
            max_silence: request.heartbeat.unwrap_or(request.timeout),
            has_heartbeats: request.heartbeat.is_some(),
            position: if request.descending { page.newest_seq } else { page.after },
            removed_at_start: page.removed_at_start,
            era: page.era.clone(),
            remaining: request.limit,
            has_sent: false,
            starts_with_position,
            until,
            stage: ReaderStage::FirstPage(Box::new(page)),
            chunks,
            last_sent_at: Instant::now(),
            feed,
            _slot: slot,
        };
        Ok(OpenedFeed { tag, reset, body: Body(reader) })
    }

    async fn next_piece(&mut self) -> Option<Bytes> {
        loop {
            let piece = match std::mem::replace(&mut self.stage, ReaderStage::Done) {
                ReaderStage::Done => return None,
                ReaderStage::FirstPage(page) => {
                    let opening = self.opening();
                    concat(opening, self.render_page(&page))
                }
                ReaderStage::CatchUp => self.catch_up().await,
                ReaderStage::Live => self.wait_for_events().await,
                ReaderStage::Closing => self.closing(),
            };
            if !piece.is_empty() {
                self.last_sent_at = Instant::now();
                return Some(piece);
            }
        }
    }

    const fn row_format(&self) -> RowFormat {
        match self.feed_type {
            Kind::Normal | Kind::Longpoll => RowFormat::Element,
            Kind::Continuous => RowFormat::Line,
            Kind::EventSource => RowFormat::Event,
        }
    }

    fn seq(&self) -> FeedSeq<'_> {
        FeedSeq { number: self.position, era: &self.era, removed_at_start: self.removed_at_start }
    }

    fn opening(&self) -> Bytes {
        match self.feed_type {
            Kind::Normal | Kind::Longpoll => Bytes::from_static(b"{\"results\":[\n"),
            // A browser that received no id would restart at a later `now` when it reconnects.
            Kind::EventSource if self.starts_with_position => {
                format!("id: \"{}\"\n\n", self.seq()).into()
            }
            Kind::Continuous | Kind::EventSource => Bytes::new(),
        }
    }

    fn closing(&self) -> Bytes {
        match self.feed_type {
            Kind::Normal | Kind::Longpoll => {
                format!("\n],\n\"last_seq\":\"{}\"}}\n", self.seq()).into()
            }
            Kind::Continuous => format!("{{\"last_seq\":\"{}\"}}\n", self.seq()).into(),
            Kind::EventSource => Bytes::new(),
        }
    }

    /// Converts a page of the table, and sets the next stage.
    fn render_page(&mut self, page: &FeedPage) -> Bytes {
        self.era.clone_from(&page.era);
        let part = RenderedRows::render(
            &page.entries,
            &page.era,
            self.removed_at_start,
            self.row_format(),
        )
        .all();
        let piece = part.map_or_else(Bytes::new, |part| self.send_rows(part));
        let finite =
            self.feed_type == Kind::Normal || (self.feed_type == Kind::Longpoll && self.has_sent);
        if finite {
            self.until.get_or_insert(page.newest_seq);
        }
        self.stage = match () {
            () if self.remaining == 0 => ReaderStage::Closing,
            () if page.more => ReaderStage::CatchUp,
            () if self.descending => ReaderStage::Closing,
            () => {
                self.position = self.position.max(self.until.unwrap_or(page.newest_seq));
                if finite {
                    ReaderStage::Closing
                } else {
                    // Later events have no known end yet.
                    self.until = None;
                    ReaderStage::Live
                }
            }
        };
        piece
    }

    /// Reads the table after the reader's position.
    async fn catch_up(&mut self) -> Bytes {
        if self.feed.stop.is_cancelled() {
            self.stage = ReaderStage::Closing;
            return Bytes::new();
        }
        let query = FeedQuery {
            start: FeedStart::AfterNumber {
                number: self.position,
                removed_at_start: self.removed_at_start,
            },
            until: if self.descending { Some(self.position) } else { self.until },
            newest_first: self.descending,
            limit: page_limit(self.remaining),
        };
        match self.feed.read_page(query).await {
            // Events removed in the meantime would be missed. The reader learns this when it
            // reconnects.
            Ok(page) if page.reset.is_some() && !self.descending => {
                self.stage = ReaderStage::Closing
            }
            Ok(page) => return self.render_page(&page),
            // The error is reported to the next reader that opens a feed.
            Err(_) => self.stage = ReaderStage::Closing,
        }
        Bytes::new()
    }

    /// Waits for new events shared with other readers, and sets the next stage.
    async fn wait_for_events(&mut self) -> Bytes {
        let Some(chunks) = &mut self.chunks else {
            self.stage = ReaderStage::Closing;
            return Bytes::new();
        };
        // Every arm is cancel-safe, and no arm's body awaits.
        let event = tokio::select! {
            biased;
            () = self.feed.stop.cancelled() => LiveEvent::Stopped,
            chunk = chunks.recv() => LiveEvent::Received(chunk),
            () = time::sleep_until(self.last_sent_at + self.max_silence) => LiveEvent::Silence,
        };
        let (piece, stage) = self.handle_live(event);
        self.stage = stage;
        piece
    }

    /// The next piece, empty if there is nothing to send, and the stage after it.
    fn handle_live(&mut self, event: LiveEvent) -> (Bytes, ReaderStage) {
        let chunk = match event {
            LiveEvent::Silence if self.has_heartbeats => {
                return (self.heartbeat(), ReaderStage::Live);
            }
            LiveEvent::Received(Ok(chunk)) => chunk,
            LiveEvent::Received(Err(broadcast::error::RecvError::Lagged(_))) => {
                return (Bytes::new(), ReaderStage::CatchUp);
            }
            LiveEvent::Stopped
            | LiveEvent::Silence
            | LiveEvent::Received(Err(broadcast::error::RecvError::Closed)) => {
                return (Bytes::new(), ReaderStage::Closing);
            }
        };
        if chunk.after_seq > self.position
            || chunk.highest_removed_seq > self.position.max(self.removed_at_start)
        {
            return (Bytes::new(), ReaderStage::CatchUp);
        }
        let rows = chunk.rendered(self.row_format()).slice_after(self.position, self.remaining);
        let Some(rows) = rows else {
            self.position = self.position.max(chunk.up_to_seq);
            return (Bytes::new(), ReaderStage::Live);
        };
        self.era.clone_from(&chunk.era);
        let piece = self.send_rows(rows);
        if self.remaining > 0 {
            self.position = chunk.up_to_seq;
        }
        if self.remaining == 0 || self.feed_type == Kind::Longpoll {
            (piece, ReaderStage::Closing)
        } else {
            (piece, ReaderStage::Live)
        }
    }

    const fn heartbeat(&self) -> Bytes {
        Bytes::from_static(match self.feed_type {
            Kind::Normal | Kind::Longpoll | Kind::Continuous => b"\n",
            Kind::EventSource => b"event: heartbeat\ndata: \n\n",
        })
    }

    /// Updates the position for events about to be sent, and joins them to the previous ones.
    fn send_rows(&mut self, part: RowSlice) -> Bytes {
        self.position = part.last_seq;
        self.remaining = self.remaining.saturating_sub(part.count);
        let before = std::mem::replace(&mut self.has_sent, true);
        if self.row_format() != RowFormat::Element {
            return part.bytes;
        }
        let elements = part.bytes.slice(..part.bytes.len().saturating_sub(SEPARATOR.len()));
        if before { concat(Bytes::from_static(SEPARATOR.as_bytes()), elements) } else { elements }
    }
}

fn page_limit(left: u64) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(PAGE_SIZE)
}

fn concat(one: Bytes, two: Bytes) -> Bytes {
    if one.is_empty() {
        return two;
    }
    if two.is_empty() {
        return one;
    }
    [one, two].concat().into()
}

#[cfg(test)]
mod tests;
