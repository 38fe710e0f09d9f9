//! One reader: its position in the feed, and the pieces of its response body.

use super::{
    ask::{Ask, Kind},
    hub::{Feed, PAGE},
    rows::{BETWEEN, Chunk, Form, Part, Text},
    seq::Seq,
};
use crate::{
    model::memory::Trouble,
    store::journal::{Anew, FeedPage, FeedQuery, Since},
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
pub struct Begun {
    /// Entity tag: unchanged while the feed has no new events.
    pub tag: String,
    /// Why the feed does not start where requested, if so.
    pub anew: Option<Anew>,
    /// The response body.
    pub body: Body,
}

/// The response body, produced piece by piece on demand.
#[derive(Debug)]
pub struct Body(Reader);

impl Body {
    /// The pieces. The body always ends in a valid state unless its consumer stops.
    #[must_use]
    pub fn pieces(self) -> BoxStream<'static, Result<Bytes, Infallible>> {
        stream::unfold(self.0, |mut reader| async move {
            let piece = reader.next().await?;
            Some((Ok(piece), reader))
        })
        .boxed()
    }
}

/// What comes next.
#[derive(Debug)]
enum Stage {
    /// The first page, already read.
    Begins(Box<FeedPage>),
    /// Events in the table after the reader's position.
    Behind,
    /// New events, shared with other readers.
    Live,
    /// The end of the body.
    Ends,
    /// Nothing.
    Done,
}

#[derive(Debug)]
pub(super) struct Reader {
    feed: Feed,
    kind: Kind,
    descending: bool,
    /// Maximum time without output, and whether a heartbeat or the end of the feed follows.
    quiet: Duration,
    beats: bool,
    /// All events up to this number were sent; in descending order, all from this number on.
    at: u64,
    /// Removals up to this number happened before the reader started.
    floor: u64,
    era: String,
    /// Number of events that may still be sent.
    left: u64,
    /// Whether any event was sent.
    any: bool,
    /// Whether the body starts with the reader's position.
    announced: bool,
    /// Number of the last event of a finite response.
    until: Option<u64>,
    stage: Stage,
    chunks: Option<broadcast::Receiver<Arc<Chunk>>>,
    told_at: Instant,
    /// The reader's slot, released when the reader is dropped.
    _place: Option<OwnedSemaphorePermit>,
}

impl Reader {
    pub(super) async fn begin(
        feed: Feed,
        ask: Ask,
        place: Option<OwnedSemaphorePermit>,
    ) -> Result<Begun, Trouble> {
        // Subscribe before the first read of the table, so that later events are not missed.
        let chunks = place.is_some().then(|| feed.subscribe());
        let announced = ask.kind == Kind::EventSource && ask.since == Since::Now;
        let query = FeedQuery {
            since: ask.since,
            until: None,
            newest_first: ask.descending,
            limit: at_most(ask.limit),
        };
        let page = feed.page(query).await?;
        let tag = format!("{}-{}-{}", page.newest, page.removed, page.era);
        let anew = page.anew.filter(|_| !ask.descending);
        let until = matches!(ask.kind, Kind::Normal | Kind::Longpoll).then_some(page.newest);
        let reader = Self {
            kind: ask.kind,
            descending: ask.descending,
            quiet: ask.heartbeat.unwrap_or(ask.timeout),
            beats: ask.heartbeat.is_some(),
            at: if ask.descending { page.newest } else { page.after },
            floor: page.floor,
            era: page.era.clone(),
            left: ask.limit,
            any: false,
            announced,
            until,
            stage: Stage::Begins(Box::new(page)),
            chunks,
            told_at: Instant::now(),
            feed,
            _place: place,
        };
        Ok(Begun { tag, anew, body: Body(reader) })
    }

    /// The next piece.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let piece = match std::mem::replace(&mut self.stage, Stage::Done) {
                Stage::Done => return None,
                Stage::Begins(page) => {
                    let opening = self.opening();
                    join(opening, self.page(&page))
                }
                Stage::Behind => self.behind().await,
                Stage::Live => self.live().await,
                Stage::Ends => self.closing(),
            };
            if !piece.is_empty() {
                self.told_at = Instant::now();
                return Some(piece);
            }
        }
    }

    const fn form(&self) -> Form {
        match self.kind {
            Kind::Normal | Kind::Longpoll => Form::Element,
            Kind::Continuous => Form::Line,
            Kind::EventSource => Form::Event,
        }
    }

    fn seq(&self) -> Seq<'_> {
        Seq { number: self.at, era: &self.era, floor: self.floor }
    }

    fn opening(&self) -> Bytes {
        match self.kind {
            Kind::Normal | Kind::Longpoll => Bytes::from_static(b"{\"results\":[\n"),
            // A browser that received no id would restart at a later `now` when it reconnects.
            Kind::EventSource if self.announced => format!("id: \"{}\"\n\n", self.seq()).into(),
            Kind::Continuous | Kind::EventSource => Bytes::new(),
        }
    }

    fn closing(&self) -> Bytes {
        match self.kind {
            Kind::Normal | Kind::Longpoll => {
                format!("\n],\n\"last_seq\":\"{}\"}}\n", self.seq()).into()
            }
            Kind::Continuous => format!("{{\"last_seq\":\"{}\"}}\n", self.seq()).into(),
            Kind::EventSource => Bytes::new(),
        }
    }

    /// Converts a page of the table, and sets the next stage.
    fn page(&mut self, page: &FeedPage) -> Bytes {
        self.era.clone_from(&page.era);
        let part = Text::of(&page.updates, &page.era, self.floor, self.form()).all();
        let piece = part.map_or_else(Bytes::new, |part| self.told(part));
        let finite = self.kind == Kind::Normal || (self.kind == Kind::Longpoll && self.any);
        if finite {
            self.until.get_or_insert(page.newest);
        }
        self.stage = match () {
            () if self.left == 0 => Stage::Ends,
            () if page.more => Stage::Behind,
            () if self.descending => Stage::Ends,
            () => {
                self.at = self.at.max(self.until.unwrap_or(page.newest));
                if finite {
                    Stage::Ends
                } else {
                    // Later events have no known end yet.
                    self.until = None;
                    Stage::Live
                }
            }
        };
        piece
    }

    /// Reads the table after the reader's position.
    async fn behind(&mut self) -> Bytes {
        if self.feed.stop.is_cancelled() {
            self.stage = Stage::Ends;
            return Bytes::new();
        }
        let query = FeedQuery {
            since: Since::Number { number: self.at, floor: self.floor },
            until: if self.descending { Some(self.at) } else { self.until },
            newest_first: self.descending,
            limit: at_most(self.left),
        };
        match self.feed.page(query).await {
            // Events removed in the meantime would be missed. The reader learns this when it
            // reconnects.
            Ok(page) if page.anew.is_some() && !self.descending => self.stage = Stage::Ends,
            Ok(page) => return self.page(&page),
            // The error is reported to the next reader that opens a feed.
            Err(_) => self.stage = Stage::Ends,
        }
        Bytes::new()
    }

    /// Waits for new events shared with other readers.
    async fn live(&mut self) -> Bytes {
        let Some(mut chunks) = self.chunks.take() else {
            self.stage = Stage::Ends;
            return Bytes::new();
        };
        let end = self.told_at + self.quiet;
        let mut piece = Bytes::new();
        self.stage = loop {
            // Every arm is cancel-safe, and no arm's body awaits.
            let chunk = tokio::select! {
                biased;
                () = self.feed.stop.cancelled() => break Stage::Ends,
                chunk = chunks.recv() => chunk,
                () = time::sleep_until(end) => {
                    if self.beats {
                        piece = self.beat();
                        break Stage::Live;
                    }
                    break Stage::Ends;
                }
            };
            match chunk {
                Ok(chunk) if chunk.after > self.at || chunk.removed > self.at.max(self.floor) => {
                    break Stage::Behind;
                }
                Ok(chunk) => {
                    let Some(part) = chunk.text(self.form()).behind(self.at, self.left) else {
                        self.at = self.at.max(chunk.upto);
                        continue;
                    };
                    self.era.clone_from(&chunk.era);
                    piece = self.told(part);
                    if self.left > 0 {
                        self.at = chunk.upto;
                    }
                    break if self.left == 0 || self.kind == Kind::Longpoll {
                        Stage::Ends
                    } else {
                        Stage::Live
                    };
                }
                Err(broadcast::error::RecvError::Lagged(_)) => break Stage::Behind,
                Err(broadcast::error::RecvError::Closed) => break Stage::Ends,
            }
        };
        self.chunks = Some(chunks);
        piece
    }

    const fn beat(&self) -> Bytes {
        Bytes::from_static(match self.kind {
            Kind::Normal | Kind::Longpoll | Kind::Continuous => b"\n",
            Kind::EventSource => b"event: heartbeat\ndata: \n\n",
        })
    }

    /// Updates the position for events to be sent, and joins them to the previous ones.
    fn told(&mut self, part: Part) -> Bytes {
        self.at = part.last;
        self.left = self.left.saturating_sub(part.count);
        let before = std::mem::replace(&mut self.any, true);
        if self.form() != Form::Element {
            return part.bytes;
        }
        let elements = part.bytes.slice(..part.bytes.len().saturating_sub(BETWEEN.len()));
        if before { join(Bytes::from_static(BETWEEN.as_bytes()), elements) } else { elements }
    }
}

fn at_most(left: u64) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(PAGE)
}

fn join(one: Bytes, two: Bytes) -> Bytes {
    if one.is_empty() {
        return two;
    }
    if two.is_empty() {
        return one;
    }
    [one, two].concat().into()
}
