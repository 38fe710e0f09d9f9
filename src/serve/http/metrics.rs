//! `/metrics`: the state that other tasks published last, as Prometheus scrapes it.
//!
//! Each file below has one subject: it declares its metric families and writes them. To add a
//! metric, add its row and the lines that write it to the file of its subject, then let
//! `RECLINER_WRITE=1 cargo test --test it docs::` write the book's table and `INSTA_UPDATE=always
//! cargo test --lib scrape` the recorded scrape. No sums are computed here: totals and the top
//! databases come with the snapshot.

mod advice;
mod advised;
mod builds;
mod couchdb;
mod databases;
mod decisions;
mod disks;
pub mod families;
mod feeds;
mod files;
pub(super) mod fleet;
mod jobs;
mod journal;
mod ledger;
mod nodes;
mod pressure;
pub(super) mod program;
mod queues;
mod reads;
mod scans;
pub(super) mod shared_limits;
mod sizes;
mod smoosh;

use super::{
    answer::in_pieces,
    concurrency_limit::ConcurrencyLimit,
    route::{Operation, Route},
    schemas::{Schemas, TEXT},
    state::{AppState, ConfigStatus, ProcessInfo},
    status,
};
use crate::{
    act::{job_state, takeover::Takeovers, warmer::IndexBuilds},
    advice::AdviceView,
    feeds::{feed_client, feed_server::FeedHandle},
    fleet::Fleet,
    ledger::Books,
    model::reads::Reads,
    plan::Plan,
    scan,
    serve::report::SharedLimits,
    store::journal::Journal,
    table::{Node, NodeIx},
    tasks::unwrap_join,
    what_if::scorecard::ScorecardView,
};
use axum::{
    Extension,
    body::Body,
    extract,
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use couchdb_client::{self, CertificateEnds};
use futures::stream;
use metrics_text::{
    self, Encoding, FamilyDescription, PieceSink, TextFormat, Writer, accepts_gzip, negotiate,
};
use serde_json::json;
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
use wall_clock::Moment;

/// The maximum number of concurrent scrapes, as in Prometheus's own exporters. A further scrape
/// displaces a client that has stopped reading, or gets 503.
const SCRAPES: usize = 40;

pub(super) fn routes() -> Vec<Route> {
    let scrapes = Extension(Scrapes::new(SCRAPES));
    let metrics = Route::plain(
        "/metrics",
        "metrics",
        get(metrics).layer(scrapes),
        "Metrics for Prometheus.",
        &[(503, "Too many scrapes.")],
    );
    let metrics = metrics.detail(
        "Prometheus text 0.0.4 or OpenMetrics 1.0, as the client accepts; gzip if the client accepts it.",
    );
    let answers = |_: &mut Schemas| {
        let text = json!({ "type": "string" });
        vec![(TEXT, text.clone()), ("application/openmetrics-text", text)]
    };
    vec![metrics.described(|operation| Operation { answer: "The metrics.", answers, ..operation })]
}

/// A scrape up to this size is sent in one piece, with its length in the header.
const MAX_UNCHUNKED_BYTES: usize = 256 << 10;

/// When all turns are taken, a client that has read nothing for this long loses its turn to the
/// next client, which waits no longer than this either.
const STALLED_CLIENT_TIMEOUT: Duration = Duration::from_secs(1);

/// The scrapes being served. Each is rendered on a thread, no faster than its client reads.
#[derive(Clone, Debug)]
pub(super) struct Scrapes {
    turns: ConcurrencyLimit,
    /// Notified when another client waits for a turn.
    turn_wanted: Arc<Notify>,
    /// A client that has not read for this long may lose its turn.
    stalled_after: Duration,
    max_wait: Duration,
}

impl Scrapes {
    pub(super) fn new(at_a_time: usize) -> Self {
        Self {
            turns: ConcurrencyLimit::new(at_a_time),
            turn_wanted: Arc::default(),
            stalled_after: STALLED_CLIENT_TIMEOUT,
            max_wait: STALLED_CLIENT_TIMEOUT,
        }
    }

    /// Takes a turn: a free one, or that of a client that has stalled.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        if let Some(turn) = self.turns.try_acquire() {
            return Some(turn);
        }
        self.turn_wanted.notify_waiters();
        time::timeout(self.max_wait, self.turns.clone().acquire()).await.ok().flatten()
    }
}

/// Answers a scrape. It is rendered on a thread of its own: a hundred thousand series take some
/// milliseconds, during which the runtime has to serve other requests.
pub(super) async fn metrics(
    extract::State(state): extract::State<AppState>,
    Extension(scrapes): Extension<Scrapes>,
    headers: HeaderMap,
) -> Response {
    let Some(turn) = scrapes.turn().await else { return too_many_scrapes() };
    let format = negotiate(list(&headers, header::ACCEPT).as_deref());
    let gzip = accepts_gzip(list(&headers, header::ACCEPT_ENCODING).as_deref());
    let coding = if gzip { Encoding::Gzip } else { Encoding::Identity };
    let (sender, pieces) = mpsc::channel(1);
    let rendering = tokio::task::spawn_blocking(move || {
        // The thread holds the turn until it has finished.
        let _turn = turn;
        Scrape::of(&state).render(format, coding, sink(sender, scrapes))
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

fn too_many_scrapes() -> Response {
    let why = "too many scrapes at a time\n";
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], why).into_response()
}

/// A scrape that is being rendered.
struct Rendered {
    pieces: mpsc::Receiver<Vec<u8>>,
    /// Returns whether the client read everything.
    rendering: JoinHandle<bool>,
}

impl Rendered {
    /// Returns the whole text if it is short, otherwise a body that is rendered while it is sent.
    async fn body(mut self) -> Result<Body, Response> {
        let mut first = Vec::new();
        while first.len() < MAX_UNCHUNKED_BYTES {
            match self.pieces.recv().await {
                Some(piece) if first.is_empty() => first = piece,
                Some(piece) => first.extend(piece),
                None => {
                    return match self.rendering.await {
                        Ok(true) => Ok(Body::from(first)),
                        Ok(false) => Err(too_many_scrapes()),
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
            // An error tells the client that the text is incomplete.
            match unwrap_join(rendered.rendering.await) {
                Some(true) => Ok(None),
                Some(false) | None => Err(io::Error::other("the scrape was aborted")),
            }
        });
        Ok(in_pieces(first, others))
    }
}

fn sink(sender: mpsc::Sender<Vec<u8>>, scrapes: Scrapes) -> PieceSink {
    Box::new(move |piece| send_piece(&sender, &scrapes, piece))
}

/// Waits until the client has read the previous piece, then sends this one. Returns whether to
/// continue: not if the client has disconnected, or has stalled while another client waits.
fn send_piece(sender: &mpsc::Sender<Vec<u8>>, scrapes: &Scrapes, piece: Vec<u8>) -> bool {
    let piece = match sender.try_send(piece) {
        Ok(()) => return true,
        Err(TrySendError::Closed(_)) => return false,
        Err(TrySendError::Full(piece)) => piece,
    };
    Handle::current().block_on(async {
        let slot = match time::timeout(scrapes.stalled_after, sender.reserve()).await {
            Ok(slot) => slot.ok(),
            Err(_) => tokio::select! {
                slot = sender.reserve() => slot.ok(),
                () = scrapes.turn_wanted.notified() => None,
            },
        };
        slot.map(|slot| slot.send(piece)).is_some()
    })
}

/// The value of a header that is a list: several lines form one list. Lines that are not text are
/// ignored.
pub(super) fn list(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let lines: Vec<&str> =
        headers.get_all(name).iter().filter_map(|line| line.to_str().ok()).collect();
    (!lines.is_empty()).then(|| lines.join(","))
}

/// The nodes whose targets this process serves, with their index, including the pseudo node.
fn served_nodes(plan: &Plan) -> impl Iterator<Item = (NodeIx, &Node)> {
    let nodes = plan.snapshot.nodes().iter().enumerate();
    nodes
        .filter_map(|(ix, node)| Some((NodeIx::from_usize(ix)?, &**node)))
        .filter(|(ix, node)| node.is_served && (*ix == NodeIx::CLUSTER || node.is_member))
}

/// The cluster's nodes, without the pseudo node.
fn members(plan: &Plan) -> impl Iterator<Item = &Node> {
    plan.snapshot.nodes().iter().skip(1).map(AsRef::as_ref).filter(|node| node.is_member)
}

/// The families of a subject, and what writes them.
type Subject = (&'static [FamilyDescription], fn(&mut Writer, &Scrape));

/// Every subject, in the order of the book and of a scrape.
fn subjects() -> [Subject; 22] {
    [
        (program::ALL, program::write),
        (couchdb::ALL, |writer, scrape| couchdb::write(writer, &scrape.couchdb)),
        (nodes::ALL, |writer, scrape| nodes::write(writer, &scrape.plan)),
        (scans::ALL, |writer, scrape| scans::write(writer, &scrape.plan, &scrape.status)),
        (sizes::ALL, |writer, scrape| sizes::write(writer, &scrape.plan)),
        (databases::ALL, |writer, scrape| databases::write(writer, &scrape.plan)),
        (files::ALL, |writer, scrape| files::write(writer, &scrape.plan)),
        (queues::ALL, |writer, scrape| queues::write(writer, &scrape.plan)),
        (decisions::ALL, |writer, scrape| decisions::write(writer, &scrape.plan)),
        (smoosh::ALL, |writer, scrape| smoosh::write(writer, &scrape.plan, &scrape.takeovers)),
        (builds::ALL, |writer, scrape| builds::write(writer, &scrape.builds)),
        (pressure::ALL, |writer, Scrape { plan, .. }| {
            pressure::write(writer, &plan.conditions.pressures, &plan.snapshot);
        }),
        (disks::ALL, |writer, Scrape { plan, advice, .. }| {
            let disks = &plan.conditions.disks;
            disks::write(writer, disks, &plan.conditions.jobs, &plan.snapshot);
            disks::write_forecasts(writer, disks, &advice.forecasts);
        }),
        (feeds::ALL, |writer, scrape| feeds::write(writer, &scrape.changes, scrape.feed.as_ref())),
        (journal::ALL, |writer, Scrape { plan, journal, .. }| {
            if let Some(journal) = journal {
                journal::write(writer, plan, journal);
            }
        }),
        (jobs::ALL, |writer, scrape| jobs::write(writer, &scrape.plan, &scrape.counts)),
        (ledger::ALL, |writer, scrape| ledger::write(writer, &scrape.ledger)),
        (reads::ALL, |writer, Scrape { plan, reads, now, .. }| {
            reads::write(writer, &plan.snapshot, reads, *now);
        }),
        (advised::ALL, |writer, scrape| advised::write(writer, &scrape.scorecard)),
        (advice::ALL, |writer, scrape| advice::write(writer, &scrape.advice, scrape.now)),
        (fleet::ALL, |writer, scrape| fleet::write(writer, &scrape.fleet, scrape.now)),
        (shared_limits::ALL, |writer, scrape| {
            shared_limits::write(writer, scrape.shared_limits.as_ref());
        }),
    ]
}

/// The state that other tasks published last, read once per scrape, so that the whole scrape shows
/// one plan even if the next one is published meanwhile.
pub(super) struct Scrape {
    plan: Arc<Plan>,
    status: Arc<scan::ScanStatus>,
    config: Arc<ConfigStatus>,
    about: Arc<ProcessInfo>,
    couchdb: Arc<[couchdb_client::EntryStatus]>,
    couchdb_certificates: CertificateEnds,
    web_certificates: CertificateEnds,
    counts: Arc<job_state::JobCounters>,
    takeovers: Arc<Takeovers>,
    builds: Arc<IndexBuilds>,
    scorecard: Arc<ScorecardView>,
    ledger: Arc<Books>,
    reads: Arc<Reads>,
    advice: Arc<AdviceView>,
    fleet: Arc<Fleet>,
    shared_limits: Option<SharedLimits>,
    now: Moment,
    changes: Arc<feed_client::FeedClientStatus>,
    feed: Option<FeedHandle>,
    journal: Option<Journal>,
    registry: prometheus::Registry,
}

impl Scrape {
    pub(super) fn of(state: &AppState) -> Self {
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
            scorecard: Arc::clone(&state.scorecard.borrow()),
            ledger: Arc::clone(&state.ledger.borrow()),
            reads: Arc::clone(&state.reads.borrow()),
            advice: Arc::clone(&state.advice.borrow()),
            fleet: Arc::clone(&state.fleet.borrow()),
            shared_limits: status::shared_limits(state),
            now: state.clock.now(),
            changes: Arc::clone(&state.changes.borrow()),
            feed: state.feed.clone(),
            journal: state.journal.clone(),
            registry: state.registry.clone(),
        }
    }

    /// Writes every family, in the order of [`families::all`].
    pub(super) fn write(&self, writer: &mut Writer) {
        for (_, write) in subjects() {
            write(writer, self);
        }
        metrics_text::write_gathered(writer, &self.registry.gather());
    }

    /// Renders the whole text in one format, piece by piece. Returns whether the client took all
    /// of it.
    pub(super) fn render(&self, format: TextFormat, coding: Encoding, sink: PieceSink) -> bool {
        let mut writer = Writer::to(format, coding, sink);
        self.write(&mut writer);
        writer.finish_to_sink()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::http::tests::Surface;
    use axum::body::HttpBody as _;
    use http_body_util::BodyExt as _;
    use std::io::Read as _;

    /// A surface whose metrics take some megabytes.
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

    async fn scrape(surface: &Surface, scrapes: &Scrapes, gzip: bool) -> Response {
        let mut headers = HeaderMap::new();
        if gzip {
            headers.insert(header::ACCEPT_ENCODING, "gzip".parse().unwrap());
        }
        metrics(extract::State(surface.state.clone()), Extension(scrapes.clone()), headers).await
    }

    #[tokio::test]
    async fn sends_large_scrape_while_rendering_it() {
        let (surface, scrapes) = (large(), Scrapes::new(1));
        let plain = scrape(&surface, &scrapes, false).await.into_body();
        assert_eq!(plain.size_hint().exact(), None);
        let plain = plain.collect().await.unwrap().to_bytes();
        let text = std::str::from_utf8(&plain).unwrap();
        assert!(text.len() > 2 << 20, "{}", text.len());
        let series = text.lines().filter(|line| line.starts_with("recliner_large{"));
        assert_eq!(series.count(), 50_000);
        let packed = scrape(&surface, &scrapes, true).await;
        assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
        let packed = packed.into_body().collect().await.unwrap().to_bytes();
        let mut back = String::new();
        flate2::read::GzDecoder::new(&*packed).read_to_string(&mut back).unwrap();
        let own = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.starts_with("process_"));
            lines.map(str::to_owned).collect()
        };
        assert!(own(&back) == own(text));
        // A short scrape is sent with its length.
        let short = scrape(&Surface::new(), &scrapes, false).await.into_body();
        assert!(short.size_hint().exact().is_some());
    }

    /// Two clients that take all turns, and have read only the first piece of their scrape.
    async fn two_paused_clients(surface: &Surface, scrapes: &Scrapes) -> [Body; 2] {
        let mut bodies = [Body::empty(), Body::empty()];
        for body in &mut bodies {
            *body = scrape(surface, scrapes, false).await.into_body();
            body.frame().await.unwrap().unwrap();
        }
        bodies
    }

    #[tokio::test]
    async fn client_that_paused_briefly_keeps_its_turn() {
        let max_wait = Duration::from_millis(10);
        let stalled_after = Duration::from_secs(3_600);
        let (surface, scrapes) = (large(), Scrapes { stalled_after, max_wait, ..Scrapes::new(2) });
        let _paused = two_paused_clients(&surface, &scrapes).await;
        assert_eq!(scrape(&surface, &scrapes, false).await.status(), 503);
    }

    #[tokio::test]
    async fn stalled_client_loses_turn_and_gets_error() {
        // With a timeout of zero, these clients count as stalled at once.
        let (stalled_after, max_wait) = (Duration::ZERO, Duration::from_millis(50));
        let (surface, scrapes) = (large(), Scrapes { stalled_after, max_wait, ..Scrapes::new(2) });
        let stalled = two_paused_clients(&surface, &scrapes).await;
        let served = async {
            loop {
                let answer = scrape(&surface, &scrapes, false).await;
                if answer.status() == 200 {
                    return answer.into_body().collect().await.unwrap().to_bytes();
                }
            }
        };
        let text = time::timeout(Duration::from_secs(60), served)
            .await
            .expect("the waiting client is served");
        assert!(text.len() > 2 << 20);
        let mut aborted = 0;
        for body in stalled {
            match body.collect().await {
                // The first frame was read above.
                Ok(rest) => assert!(rest.to_bytes().len() + 2 * MAX_UNCHUNKED_BYTES > text.len()),
                Err(_) => aborted += 1,
            }
        }
        assert!(aborted > 0, "no stalled client was cut off");
    }
}
