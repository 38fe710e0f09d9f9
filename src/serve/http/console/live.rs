//! Keeps open pages up to date: changed parts go over one stream of server-sent events per page.
//!
//! Runs one renderer for each distinct open page. It renders the page again after a publication, at
//! most once a second and with at most a small share of a core; all readers of the page share the
//! result. A slow reader gets the newest state, never a backlog.

use super::{gather, given};
use crate::{
    serve::{
        console::{self, Page},
        http::{error::ApiError, state::AppState},
    },
    tasks::unwrap_join,
    text::escape::escape_line,
};
use axum::{
    Extension,
    body::Body,
    extract,
    http::{HeaderValue, Uri, header},
    response::{IntoResponse as _, Response},
};
use futures::{Stream, StreamExt as _, future::ready, stream};
use hashbrown::HashMap;
use serde_json::{Map, Value};
use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
    time::{self, Instant},
};
use xxhash_rust::xxh3::xxh3_64;

/// The minimum time between two renderings of a page.
const PACE: Duration = Duration::from_secs(1);

/// Pause after a render, as a multiple of its duration, for each open page: all pages together use
/// a twentieth of a core. `MAX_REST` limits the pause, so that a page follows changes even while
/// many are open.
const REST: u32 = 20;
const MAX_REST: Duration = Duration::from_secs(10);

/// The maximum number of distinct pages kept up to date: with more, each would pause for too long.
const DISTINCT: usize = 64;

/// A stream without events sends a comment this often, so that a closed connection is noticed.
const BEAT: Duration = Duration::from_secs(15);

/// How long a stream lasts before the page opens another one, which checks the login again. Shorter
/// than the maximum duration of a response.
const LIFETIME: Duration = Duration::from_secs(300);

/// The parts of a page as last rendered.
type Rendered = Arc<LastRendering>;

#[derive(Debug, Default)]
struct LastRendering {
    parts: Vec<RenderedPart>,
    problem: Option<String>,
}

#[derive(Debug)]
struct RenderedPart {
    id: &'static str,
    hash: u64,
    html: String,
}

#[derive(Clone, Debug, Default)]
pub(super) struct LivePages(Arc<Mutex<OpenPages>>);

#[derive(Debug)]
struct OpenPages {
    /// The last rendering of each page, as long as it has readers.
    rendered: HashMap<String, Weak<watch::Sender<Rendered>>>,
    renderers: JoinSet<()>,
    /// Renderers take turns, so that none counts the time it waited for others. Each renderer holds
    /// one reference, so the reference count gives their number.
    turn: Arc<Semaphore>,
}

impl Default for OpenPages {
    fn default() -> Self {
        let turn = Arc::new(Semaphore::new(1));
        Self { rendered: HashMap::new(), renderers: JoinSet::new(), turn }
    }
}

impl LivePages {
    /// The last rendering of a page; the first reader starts its renderer.
    fn follow(
        &self,
        page: String,
        uri: Uri,
        state: &AppState,
    ) -> Result<(Arc<watch::Sender<Rendered>>, watch::Receiver<Rendered>), ApiError> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Resumes the panic of a renderer, if one panicked.
        while open.renderers.try_join_next().map(unwrap_join).is_some() {}
        if let Some(sender) = open.rendered.get(&page).and_then(Weak::upgrade) {
            let receiver = sender.subscribe();
            return Ok((sender, receiver));
        }
        open.rendered.retain(|_, sender| sender.strong_count() > 0);
        if open.rendered.len() >= DISTINCT {
            return Err(ApiError::unavailable(format!(
                "{DISTINCT} different pages are already open, so this one does not update itself"
            )));
        }
        let (sender, receiver) = watch::channel(Rendered::default());
        let sender = Arc::new(sender);
        open.rendered.insert(page, Arc::downgrade(&sender));
        let (followed, turn) = (Arc::downgrade(&sender), Arc::clone(&open.turn));
        open.renderers.spawn(render_while_followed(followed, uri, state.clone(), turn));
        Ok((sender, receiver))
    }
}

/// The stream of one open page: `?page=` is its path and query, relative to the console.
pub(super) async fn live(
    extract::State(state): extract::State<AppState>,
    Extension(pages): Extension<LivePages>,
    uri: Uri,
) -> Response {
    let asked = given(&uri).and_then(|given| {
        let page = ["/", given.get("page")].concat();
        let page_uri: Uri = page.parse().map_err(ApiError::bad)?;
        Ok((page, page_uri))
    });
    let (page, page_uri) = match asked {
        Ok(asked) => asked,
        Err(refused) => return refused.into_response(),
    };
    match pages.follow(page, page_uri, &state) {
        Ok((sender, receiver)) => events(sender, receiver, &state),
        // As an error response, the reason would not reach the page's script, so it is sent as an
        // event.
        Err(refused) => event_stream(stream::once(ready(problem_event(&refused.why)))),
    }
}

/// Renders a page repeatedly until it has no reader.
async fn render_while_followed(
    sender: Weak<watch::Sender<Rendered>>,
    uri: Uri,
    state: AppState,
    turn: Arc<Semaphore>,
) {
    let mut changes = state.clone();
    loop {
        let Ok(own) = turn.acquire().await else { return };
        let begun = Instant::now();
        let page = gather(&state, &uri).await;
        let took = begun.elapsed();
        drop(own);
        let Some(sender) = sender.upgrade() else { return };
        sender.send_if_modified(|before| match page {
            Ok(page) => {
                let rendered = rendering_of(page);
                let same = before.problem.is_none() && before.has_parts_of(&rendered);
                *before = Arc::new(rendered);
                !same
            }
            // The page may work again later: its target may come back.
            Err(why) => {
                let problem = Some(format!("not updating: {}", why.why));
                let same = before.problem == problem;
                if !same {
                    *before = Arc::new(LastRendering { parts: Vec::new(), problem });
                }
                !same
            }
        });
        drop(sender);
        let pages = u32::try_from(Arc::strong_count(&turn) - 1).unwrap_or(u32::MAX);
        let rest = took.saturating_mul(REST).saturating_mul(pages).clamp(PACE, MAX_REST);
        tokio::select! {
            () = state.stop.cancelled() => return,
            () = time::sleep_until(begun + rest) => {}
        }
        tokio::select! {
            () = state.stop.cancelled() => return,
            () = changed(&mut changes) => {}
            // Relative times on the page change even without events.
            () = time::sleep(BEAT) => {}
        }
    }
}

fn rendering_of(page: Page) -> LastRendering {
    let part = |part: console::Part| {
        let html = part.html.into_string();
        RenderedPart { id: part.id, hash: xxh3_64(html.as_bytes()), html }
    };
    LastRendering { parts: page.parts.into_iter().map(part).collect(), problem: None }
}

impl LastRendering {
    fn has_parts_of(&self, other: &Self) -> bool {
        self.parts.len() == other.parts.len()
            && self.parts.iter().zip(&other.parts).all(|(old, new)| old.hash == new.hash)
    }
}

/// Waits for the next publication of what may change a page. A task that has ended publishes nothing more.
async fn changed(state: &mut AppState) {
    tokio::select! {
        Ok(()) = state.plan.changed() => {}
        Ok(()) = state.status.changed() => {}
        Ok(()) = state.advice.changed() => {}
        Ok(()) = state.xrays.kept.changed() => {}
        Ok(()) = state.config.changed() => {}
        else => std::future::pending().await,
    }
}

/// An open stream, with the parts that its reader has.
struct Reader {
    /// Keeps the renderer running.
    _sender: Arc<watch::Sender<Rendered>>,
    receiver: watch::Receiver<Rendered>,
    sent: HashMap<&'static str, u64>,
    state: AppState,
    ends: Instant,
    has_ended: bool,
}

fn events(
    sender: Arc<watch::Sender<Rendered>>,
    mut receiver: watch::Receiver<Rendered>,
    state: &AppState,
) -> Response {
    // The last rendering is sent at once.
    receiver.mark_changed();
    let reader = Reader {
        _sender: sender,
        receiver,
        sent: HashMap::new(),
        state: state.clone(),
        ends: Instant::now() + LIFETIME,
        has_ended: false,
    };
    // The first bytes tell the browser that the stream is open, and which version of the script
    // this server has.
    let version = format!("retry: 5000\nevent: version\ndata: {}\n\n", console::assets_version());
    let parts = stream::unfold(reader, async |mut reader| {
        let text = reader.next().await?;
        Some((text, reader))
    });
    event_stream(stream::once(ready(version)).chain(parts))
}

fn event_stream(events: impl Stream<Item = String> + Send + 'static) -> Response {
    let mut response = Response::new(Body::from_stream(events.map(Ok::<_, Infallible>)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

/// An event with the reason why a page is not kept up to date, in one line.
fn problem_event(says: &str) -> String {
    format!("event: problem\ndata: {}\n\n", escape_line(says))
}

impl Reader {
    /// The next text to send; `None` at the end of the stream and when the server stops.
    async fn next(&mut self) -> Option<String> {
        if self.has_ended {
            return None;
        }
        loop {
            tokio::select! {
                () = self.state.stop.cancelled() => return None,
                () = time::sleep_until(self.ends) => {
                    self.has_ended = true;
                    return Some("event: again\ndata:\n\n".to_owned());
                }
                changed = self.receiver.changed() => changed.ok()?,
                () = time::sleep(BEAT) => return Some(": no news\n\n".to_owned()),
            }
            let newest = Arc::clone(&self.receiver.borrow_and_update());
            if let Some(text) = self.changed_parts(&newest) {
                return Some(text);
            }
        }
    }

    /// The parts that changed since this reader's last event, as an event.
    fn changed_parts(&mut self, newest: &Rendered) -> Option<String> {
        if let Some(says) = &newest.problem {
            // All parts are sent again once the page works again.
            self.sent.clear();
            return Some(problem_event(says));
        }
        let mut parts = Map::new();
        for part in &newest.parts {
            if self.sent.insert(part.id, part.hash) != Some(part.hash) {
                parts.insert(part.id.to_owned(), Value::String(part.html.clone()));
            }
        }
        (!parts.is_empty()).then(|| format!("event: parts\ndata: {}\n\n", Value::Object(parts)))
    }
}
