//! `/metrics`: what Prometheus scrapes, read from what other tasks published.

mod builds;
mod disks;
pub mod families;
mod feeds;
mod files;
mod jobs;
mod journal;
mod plan;
mod present;
mod pressures;
mod takeovers;
mod top;

use super::{About, ConfigStatus, State, answer::in_pieces, guard::Turns};
use crate::{
    act::{follower, takeover::Takeovers, warmer::Builds},
    feeds::{changes, feed::Feed},
    plan::Plan,
    scan,
    store::journal::Journal,
    table::{Node, NodeIx},
    tasks::joined,
};
use axum::{
    Extension,
    body::Body,
    extract,
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use couchdb_client::{self, CertificateEnds};
use futures::stream;
use metrics_text::{self, Coding, Family, Format, Sink, Writer, accepts_gzip, negotiate};
use std::{io, sync::Arc, time::Duration};
use tokio::{
    runtime::Handle,
    sync::{
        Notify, OwnedSemaphorePermit,
        mpsc::{self, error::TrySendError},
    },
    task::JoinHandle,
    time,
};

/// A scrape no longer than this is sent as a whole, with its length.
const WHOLE: usize = 256 << 10;

/// A client that takes nothing for so long makes room for another, where there is no other
/// room; and so long such a one waits for that.
const PAUSE: Duration = Duration::from_secs(1);

/// Scrapes under way: each is rendered on a thread, no faster than its client takes it.
#[derive(Clone, Debug)]
pub(super) struct Scrapes {
    turns: Turns,
    /// Somebody else wants to be served.
    crowded: Arc<Notify>,
}

impl Scrapes {
    pub(super) fn new(at_a_time: usize) -> Self {
        Self { turns: Turns::new(at_a_time), crowded: Arc::default() }
    }

    /// A turn: at once, or that of somebody who takes nothing.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        if let Some(turn) = self.turns.now() {
            return Some(turn);
        }
        self.crowded.notify_waiters();
        time::timeout(PAUSE, self.turns.clone().wait()).await.ok().flatten()
    }
}

/// Answers a scrape. Away from the runtime's threads: a hundred thousand series take some
/// milliseconds, and nothing else may wait for them.
pub(super) async fn metrics(
    extract::State(state): extract::State<State>,
    Extension(scrapes): Extension<Scrapes>,
    headers: HeaderMap,
) -> Response {
    let Some(turn) = scrapes.turn().await else { return too_many() };
    let format = negotiate(list(&headers, header::ACCEPT).as_deref());
    let gzip = accepts_gzip(list(&headers, header::ACCEPT_ENCODING).as_deref());
    let coding = if gzip { Coding::Gzip } else { Coding::Identity };
    let (sender, pieces) = mpsc::channel(1);
    let crowded = Arc::clone(&scrapes.crowded);
    let rendering = tokio::task::spawn_blocking(move || {
        // The turn ends with the work: until then it is a thread's.
        let _turn = turn;
        Scrape::of(&state).render(format, coding, sink(sender, crowded))
    });
    let body = match (Rendered { pieces, rendering }).body().await {
        Ok(body) => body,
        Err(answer) => return answer,
    };
    let vary = (header::VARY, "accept, accept-encoding");
    let kind = (header::CONTENT_TYPE, format.content_type());
    if gzip {
        ([kind, vary, (header::CONTENT_ENCODING, "gzip")], body).into_response()
    } else {
        ([kind, vary], body).into_response()
    }
}

fn too_many() -> Response {
    let why = "too many scrapes at a time\n";
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], why).into_response()
}

/// A scrape that is being rendered.
struct Rendered {
    pieces: mpsc::Receiver<Vec<u8>>,
    /// Whether it came to its end.
    rendering: JoinHandle<bool>,
}

impl Rendered {
    /// The whole text where it is short, else a body whose pieces are rendered as they are taken.
    async fn body(mut self) -> Result<Body, Response> {
        let mut first = Vec::new();
        while first.len() < WHOLE {
            match self.pieces.recv().await {
                Some(piece) if first.is_empty() => first = piece,
                Some(piece) => first.extend(piece),
                None => {
                    return match self.rendering.await {
                        Ok(true) => Ok(Body::from(first)),
                        Ok(false) => Err(too_many()),
                        Err(failed) => Err(super::lost(failed)),
                    };
                }
            }
        }
        let others = stream::try_unfold(Some(self), async |rendered| {
            let Some(mut rendered) = rendered else { return Ok(None) };
            if let Some(piece) = rendered.pieces.recv().await {
                return Ok(Some((piece, Some(rendered))));
            }
            // Without an end of its own a reader would take a part for the whole.
            match joined(rendered.rendering.await) {
                Some(true) => Ok(None),
                Some(false) | None => Err(io::Error::other("the scrape was broken off")),
            }
        });
        Ok(in_pieces(first, others))
    }
}

/// Where pieces go.
fn sink(sender: mpsc::Sender<Vec<u8>>, crowded: Arc<Notify>) -> Sink {
    Box::new(move |piece| given(&sender, &crowded, piece))
}

/// Hands a piece on as soon as the one before was taken; answers whether the rest is wanted.
fn given(sender: &mpsc::Sender<Vec<u8>>, crowded: &Notify, piece: Vec<u8>) -> bool {
    let piece = match sender.try_send(piece) {
        Ok(()) => return true,
        Err(TrySendError::Closed(_)) => return false,
        Err(TrySendError::Full(piece)) => piece,
    };
    Handle::current().block_on(async {
        let place = match time::timeout(PAUSE, sender.reserve()).await {
            Ok(place) => place.ok(),
            Err(_) => tokio::select! {
                place = sender.reserve() => place.ok(),
                () = crowded.notified() => None,
            },
        };
        place.map(|place| place.send(piece)).is_some()
    })
}

/// A header that is a list: several lines of it are one list. What is no text counts as
/// not sent.
fn list(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let lines: Vec<&str> =
        headers.get_all(name).iter().filter_map(|line| line.to_str().ok()).collect();
    (!lines.is_empty()).then(|| lines.join(","))
}

/// Families with the same labels, each with where its value comes from.
type Rows<S, V, const LABELS: usize, const ROWS: usize> =
    [(&'static Family<LABELS>, fn(S) -> V); ROWS];

/// Every node whose targets this process serves, with its place; the pseudo node included.
fn places(plan: &Plan) -> impl Iterator<Item = (NodeIx, &Node)> {
    let nodes = plan.snapshot.nodes().iter().enumerate();
    nodes
        .filter_map(|(at, node)| Some((NodeIx::from_usize(at)?, &**node)))
        .filter(|(at, node)| node.served && (*at == NodeIx::CLUSTER || node.member))
}

/// What was published last, each taken once for a whole scrape: its parts see this and not the
/// state, so that none of them shows another plan than the one before it.
pub(super) struct Scrape {
    plan: Arc<Plan>,
    status: Arc<scan::Status>,
    config: Arc<ConfigStatus>,
    about: Arc<About>,
    couchdb: Arc<[couchdb_client::Entry]>,
    couchdb_certificates: CertificateEnds,
    web_certificates: CertificateEnds,
    counts: Arc<follower::Counts>,
    takeovers: Arc<Takeovers>,
    builds: Arc<Builds>,
    changes: Arc<changes::Status>,
    feed: Option<Feed>,
    journal: Option<Journal>,
    registry: prometheus::Registry,
}

impl Scrape {
    pub(super) fn of(state: &State) -> Self {
        Self {
            plan: Arc::clone(&state.plan.borrow()),
            status: Arc::clone(&state.status.borrow()),
            config: Arc::clone(&state.config.borrow()),
            about: Arc::clone(&state.about),
            couchdb: Arc::clone(&state.couchdb.borrow()),
            couchdb_certificates: *state.certificates.borrow(),
            web_certificates: state.web.certificate_ends(),
            counts: Arc::clone(&state.counts.borrow()),
            takeovers: Arc::clone(&state.takeovers.borrow()),
            builds: Arc::clone(&state.builds.borrow()),
            changes: Arc::clone(&state.changes.borrow()),
            feed: state.feed.clone(),
            journal: state.journal.clone(),
            registry: state.registry.clone(),
        }
    }

    /// Writes the whole exposition.
    pub(super) fn write(&self, writer: &mut Writer) {
        let plan = &*self.plan;
        let now = &plan.conditions;
        present::write(writer, self);
        pressures::write(writer, &now.pressures, &plan.snapshot);
        takeovers::write(writer, &self.takeovers);
        builds::write(writer, &self.builds);
        disks::write(writer, &now.disks, &now.jobs, &plan.snapshot);
        files::write(writer, plan);
        feeds::write(writer, &self.changes, self.feed.as_ref());
        if let Some(journal) = &self.journal {
            journal::write(writer, journal);
        }
        jobs::write(writer, plan, &self.counts);
        metrics_text::write_gathered(writer, &self.registry.gather());
    }

    /// The whole exposition in one format, handed on piece by piece; answers whether all of it
    /// was wanted.
    fn render(&self, format: Format, coding: Coding, sink: Sink) -> bool {
        let mut writer = Writer::to(format, coding, sink);
        self.write(&mut writer);
        writer.hand_over()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::http::tests::Surface;
    use axum::body::HttpBody as _;
    use http_body_util::BodyExt as _;
    use std::io::Read as _;

    /// A surface with some megabytes of metrics.
    fn large() -> Surface {
        let surface = Surface::new();
        let options = prometheus::Opts::new("recliner_large", "Many series.");
        let many = prometheus::IntGaugeVec::new(options, &["number"]).unwrap();
        for number in 0..50_000 {
            many.with_label_values(&[&format!("{number:040}")]).set(number);
        }
        surface.state.registry.register(Box::new(many)).unwrap();
        surface
    }

    async fn scraped(surface: &Surface, scrapes: &Scrapes, gzip: bool) -> Response {
        let mut headers = HeaderMap::new();
        if gzip {
            headers.insert(header::ACCEPT_ENCODING, "gzip".parse().unwrap());
        }
        metrics(extract::State(surface.state.clone()), Extension(scrapes.clone()), headers).await
    }

    #[tokio::test]
    async fn a_large_scrape_is_sent_while_it_is_rendered() {
        let (surface, scrapes) = (large(), Scrapes::new(1));
        let plain = scraped(&surface, &scrapes, false).await.into_body();
        assert_eq!(plain.size_hint().exact(), None);
        let plain = plain.collect().await.unwrap().to_bytes();
        let text = std::str::from_utf8(&plain).unwrap();
        assert!(text.len() > 2 << 20, "{}", text.len());
        let series = text.lines().filter(|line| line.starts_with("recliner_large{"));
        assert_eq!(series.count(), 50_000);
        let packed = scraped(&surface, &scrapes, true).await;
        assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
        let packed = packed.into_body().collect().await.unwrap().to_bytes();
        let mut back = String::new();
        flate2::read::GzDecoder::new(&*packed).read_to_string(&mut back).unwrap();
        let own = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.starts_with("process_"));
            lines.map(str::to_owned).collect()
        };
        assert!(own(&back) == own(text));
        // A short one has its length.
        let short = scraped(&Surface::new(), &scrapes, false).await.into_body();
        assert!(short.size_hint().exact().is_some());
    }

    #[tokio::test]
    async fn who_takes_nothing_makes_room_and_is_told_no_end() {
        let (surface, scrapes) = (large(), Scrapes::new(2));
        let mut silent = Vec::new();
        for _ in 0..2 {
            let mut body = scraped(&surface, &scrapes, false).await.into_body();
            body.frame().await.unwrap().unwrap();
            silent.push(body);
        }
        // Nobody is sent away for one that has only just paused.
        assert_eq!(scraped(&surface, &scrapes, false).await.status(), 503);
        let served = async {
            loop {
                let answer = scraped(&surface, &scrapes, false).await;
                if answer.status() == 200 {
                    return answer.into_body().collect().await.unwrap().to_bytes();
                }
            }
        };
        let text = time::timeout(Duration::from_secs(60), served).await.expect("it is served");
        assert!(text.len() > 2 << 20);
        let mut broken_off = 0;
        for body in silent {
            match body.collect().await {
                // Without its first frame.
                Ok(rest) => assert!(rest.to_bytes().len() + 2 * WHOLE > text.len()),
                Err(_) => broken_off += 1,
            }
        }
        assert!(broken_off > 0, "a part is not the whole");
    }
}
