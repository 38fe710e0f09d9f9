//! The JSON API, in Prometheus's envelope.

pub(super) mod journal;

use super::{
    answer::{self, StreamedData},
    guard::{ConcurrencyLimit, OrderRefused},
    probes,
    query::{ExplainQuery, NoQuery, PageRange, QueueQuery, TargetQuery, written},
    route::{self, Operation, Route},
    state::AppState,
};
use crate::{
    model::{records::JournalFailure, target::TargetId},
    plan::Plan,
    scan,
    serve::report::{
        self, ConfigLine, Configuration, Conflict, EntryLine, Explained, Explanations, Failed,
        Feeds, Found, Jobs, PeerLine, Planned, Queue, Queues, ReadErrors, RefusedLine, Space,
        Status, Success, SuspensionLine, Sweep, TakeoverLine, Target, Targets, Wanted, WholeViews,
    },
    table::TargetIx,
    tasks::unwrap_join,
    text::{Label, listed},
};
use axum::{
    Extension,
    extract::{self, FromRequestParts, Query, RawQuery, rejection::QueryRejection},
    http::{HeaderValue, Method, StatusCode, Uri, header, request::Parts},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::{Serialize, de::DeserializeOwned};
use std::{sync::Arc, time::Duration};
use tokio::sync::OwnedSemaphorePermit;

/// The routes to what is seen and decided now.
pub(in crate::serve::http) fn routes() -> Vec<Route> {
    vec![
        Route::read::<NoQuery, Status>(
            "/api/v1/status",
            "status",
            get(status),
            "What recliner is, sees, and cannot see.",
        )
        .detail("Version, mode, whether the cluster is `simulated` and what that means (`simulation`), the state of each URL of `couchdb.urls` (`couchdb`), nodes, the current and the last sweep, the state of the feeds, sidecars (`peers`), what could not be read, missing rights, why the journal cannot be used (`journal_problem`), and `suspensions`: `scope`, `since`, `by` whom, `why`, and all of it in a sentence (`says`)."),
        Route::read::<NoQuery, Space>(
            "/api/v1/space",
            "space",
            get(space),
            "Bytes of the whole cluster, and what each volume holds and has left.",
        )
        .detail("All copies count. What compactions would free is predicted; of a volume, live, reclaimable and unused bytes are null where a node has several volumes. `full_at` is when a volume is full as its files grow now if compaction keeps up, `full_uncompacted_at` if nothing is compacted. `nodes_without_space` are the nodes whose free space is unknown. `usage` says whose bytes they are."),
        Route::read::<TargetQuery, Targets>(
            "/api/v1/targets",
            "targets",
            get(targets),
            "Targets, filtered, sorted and paged.",
        ),
        Route::read::<QueueQuery, Queues>(
            "/api/v1/queue",
            "queue",
            get(queue),
            "Queues and what waits in them, the best first.",
        )
        .detail("Each queue with its size, capacity, reclaimable bytes and its targets. `limits` has each limit with what compactions use of it, whatever started them, each channel's `concurrency` included; `duty`, the nodes that work or rest by `limits.duty`; `windows`, for each channel, in which hours of the present week (UTC, from Monday on) it may start anything."),
        Route::read::<QueueQuery, Planned>(
            "/api/v1/plan",
            "plan",
            get(plan),
            "What would start now, with the exact requests, and why the rest would not.",
        )
        .detail("For each queue, how many targets are refused for which reason; closed gates; `suspensions` as in `status`; `orders` that wait; `builds` of indexes; and, page by page, the refused targets with their reasons in a sentence."),
        Route::read::<NoQuery, Jobs>(
            "/api/v1/jobs",
            "jobs",
            get(jobs),
            "Running compactions and index builds, whatever started them.",
        )
        .detail("Phase, progress, since when, when CouchDB last reported progress, bytes they may still need; and when each node was last asked."),
        Route::read::<ExplainQuery, Explanations>(
            "/api/v1/explain",
            "explain",
            get(explain),
            "Why targets are or are not candidates.",
        )
        .errors(&[route::BAD, route::ABSENT, route::BUSY])
        .detail("The targets of a name, each with `why`, a sentence; `fresh`, the rule by which its facts are fresh (`measured` or `followed`); `scores`, where it stands in each channel for its kind; `start`, what would be sent (`request`, and `url` if an address is known); `ordered`, the order that waits for it; and `part_of`, for a view's part, the view that is queued instead."),
        Route::read::<NoQuery, Configuration>(
            "/api/v1/config",
            "config",
            get(config),
            "The configuration in force; it holds no password.",
        ),
    ]
}

/// When to ask again for what is on its way, in seconds.
const SOON: HeaderValue = HeaderValue::from_static("2");

/// An error response: an invalid request, or something that does not exist.
pub(super) struct ApiError {
    pub(super) code: StatusCode,
    pub(super) kind: &'static str,
    pub(super) why: String,
    /// A conflict of an order.
    pub(super) data: Option<Box<Conflict>>,
    /// When the same request may succeed, if that is known.
    pub(super) retry_after: Option<HeaderValue>,
}

impl ApiError {
    fn new(code: StatusCode, kind: &'static str, why: impl ToString) -> Self {
        Self { code, kind, why: why.to_string(), data: None, retry_after: None }
    }

    pub(super) fn bad(why: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_data", why)
    }

    /// A query that cannot be read.
    pub(super) fn bad_query(why: QueryRejection) -> Self {
        // The library's message starts with the name of its own error.
        let text = why.body_text();
        Self::bad(text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text))
    }

    pub(super) fn absent(why: impl ToString) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", why)
    }

    pub(super) fn forbidden(refused: OrderRefused) -> Self {
        Self::new(refused.status(), "forbidden", refused)
    }

    pub(super) fn conflict(why: impl ToString, data: Conflict) -> Self {
        Self { data: Some(Box::new(data)), ..Self::new(StatusCode::CONFLICT, "conflict", why) }
    }

    pub(super) fn unavailable(why: impl ToString) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", why)
    }

    pub(super) fn failed(why: impl ToString) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "execution", why)
    }

    /// What the request needs is on its way.
    pub(super) fn not_yet(why: impl ToString) -> Self {
        Self { retry_after: Some(SOON), ..Self::unavailable(why) }
    }

    pub(super) fn late(patience: Duration) -> Self {
        let why = format!("the body did not arrive within {} seconds", patience.as_secs());
        Self::new(StatusCode::REQUEST_TIMEOUT, "timeout", why)
    }

    pub(super) fn stopping() -> Self {
        Self::unavailable("recliner is stopping")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = Failed {
            status: "error".into(),
            error_type: self.kind.into(),
            error: self.why,
            data: self.data,
        };
        let mut response = (self.code, answer::whole(&body)).into_response();
        if let Some(pause) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, pause);
        }
        response
    }
}

pub(super) fn success(data: &impl Serialize) -> Response {
    answer::whole(&Success::of(data))
}

/// Computes a response on a blocking thread: filtering a million targets takes tens of milliseconds.
pub(super) async fn worked_out(
    state: &AppState,
    turns: ConcurrencyLimit,
    work: impl FnOnce(Arc<Plan>) -> Result<StreamedData, ApiError> + Send + 'static,
) -> Response {
    match in_turn(state, &turns, |plan| work(plan).map(StreamedData::begin)).await {
        Ok(begun) => begun.sent(turns),
        Err(refused) => refused.into_response(),
    }
}

/// What `work` makes of the plan of the moment at which its turn comes, on a blocking thread.
pub(super) async fn in_turn<T: Send + 'static>(
    state: &AppState,
    turns: &ConcurrencyLimit,
    work: impl FnOnce(Arc<Plan>) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    Turn::of(turns).await?.work(state, work).await
}

/// A permit to work on one request. It is freed when the last work in it has ended, even if the client has left.
#[derive(Clone)]
pub(super) struct Turn {
    _permit: Arc<OwnedSemaphorePermit>,
}

impl Turn {
    pub(super) async fn of(turns: &ConcurrencyLimit) -> Result<Self, ApiError> {
        let permit = turns.clone().acquire().await.ok_or_else(ApiError::stopping)?;
        Ok(Self { _permit: Arc::new(permit) })
    }

    /// What `work` makes of the present plan, on a blocking thread.
    pub(super) async fn work<T: Send + 'static>(
        &self,
        state: &AppState,
        work: impl FnOnce(Arc<Plan>) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let (turn, plan) = (self.clone(), Arc::clone(&state.plan.borrow()));
        let work = move || {
            let _turn = turn;
            work(plan)
        };
        let done = tokio::task::spawn_blocking(work).await;
        unwrap_join(done).unwrap_or_else(|| Err(ApiError::stopping()))
    }
}

/// The query of a request. An invalid query is refused before the handler runs.
pub(super) struct ValidQuery<Q>(pub(super) Q);

impl<Q: DeserializeOwned> FromRequestParts<AppState> for ValidQuery<Q> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let query = Query::<Q>::from_request_parts(parts, state).await;
        query.map(|Query(query)| Self(query)).map_err(ApiError::bad_query)
    }
}

/// The routes of the API, as part of a sentence.
pub(super) fn known_routes(routes: &[Operation]) -> String {
    let (mut reads, mut questions, mut orders) = (Vec::new(), Vec::new(), Vec::new());
    for route in routes {
        let Some(name) = route.path.strip_prefix("/api/v1/") else { continue };
        let list = match (route.tag, route.method) {
            ("order", _) => &mut orders,
            (_, "post") => &mut questions,
            _ => &mut reads,
        };
        list.push(name.to_owned());
    }
    let [reads, questions, orders] = [reads, questions, orders].map(|names| listed(&names));
    format!("/api/v1/{reads}, the POST questions {questions}, and the POST orders {orders}")
}

/// The response to an unknown path of the API.
pub(super) fn no_route(uri: &Uri, known: &str) -> Response {
    // The router removed the API's prefix from most paths.
    let path = uri.path();
    let path = path.strip_prefix("/api/v1").unwrap_or(path);
    ApiError::absent(format!("there is no /api/v1{path}; there are {known}")).into_response()
}

/// The response to a wrong method: reads accept GET and HEAD, orders POST.
pub(super) async fn wrong_method(method: Method) -> Response {
    let why = if method == Method::GET || method == Method::HEAD {
        "this is an order or a question: send it by POST, with a JSON body".to_owned()
    } else {
        format!(
            "{method} is not supported: use GET or HEAD; only orders, what-if and preflight use POST"
        )
    };
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", why).into_response()
}

/// The state of recliner, and what it cannot read.
pub(super) async fn status(
    extract::State(state): extract::State<AppState>,
    ValidQuery(NoQuery {}): ValidQuery<NoQuery>,
) -> Response {
    success(&status_of(&state, &state.plan.borrow().clone()))
}

/// The state of recliner beside this plan.
pub(super) fn status_of(state: &AppState, plan: &Plan) -> Status {
    let status = Arc::clone(&state.status.borrow());
    let config = Arc::clone(&state.config.borrow());
    let journal_failure = probes::journal_failure(plan, state.journal.as_ref());
    let is_ours = !matches!(journal_failure, Some(JournalFailure::OtherCluster(_)));
    Status {
        version: state.about.version.to_owned(),
        revision: state.about.revision.to_owned(),
        date: state.about.date.to_owned(),
        book: "/docs/".to_owned(),
        simulated: state.about.simulated,
        simulation: state.about.simulation(config.mode).map(ToOwned::to_owned),
        mode: config.mode.label().into(),
        ready: status.is_ready(plan.snapshot.version()) && is_ours,
        generated_at: plan.snapshot.generated_at().rfc3339(),
        couchdb: state.couchdb.borrow().iter().map(EntryLine::from).collect(),
        nodes: report::nodes(plan).collect(),
        suspensions: SuspensionLine::all(plan),
        sweep: Sweep::from(&*status),
        errors: ReadErrors::all(&status),
        last_error: status.last_error.clone(),
        problem: status.problem.clone(),
        unread_shards: status.unread_shards.clone(),
        journal_problem: journal_failure.map(|why| why.to_string()),
        missing_rights: status.missing_rights.iter().cloned().collect(),
        feeds: Feeds::from(&**state.changes.borrow()),
        smoosh: TakeoverLine::all(&state.takeovers.borrow()),
        peers: PeerLine::all(&status),
        config: ConfigLine {
            loaded_at: config.loaded_at.rfc3339(),
            last_reload_successful: config.reload_successful,
            needs_restart: config.needs_restart.clone(),
            web_problem: state.web.problem().as_deref().map(ToOwned::to_owned),
        },
    }
}

/// Bytes of the cluster, and what its volumes have left.
pub(super) async fn space(
    extract::State(state): extract::State<AppState>,
    Extension(turns): Extension<ConcurrencyLimit>,
    ValidQuery(NoQuery {}): ValidQuery<NoQuery>,
) -> Response {
    let advice = Arc::clone(&state.advice.borrow());
    let space = in_turn(&state, &turns, move |plan| Ok(Space::of(&plan, &advice)));
    space.await.map_or_else(ApiError::into_response, |space| success(&space))
}

/// Running compactions and index builds, and when each node last reported its tasks.
pub(super) async fn jobs(
    extract::State(state): extract::State<AppState>,
    ValidQuery(NoQuery {}): ValidQuery<NoQuery>,
) -> Response {
    let plan = Arc::clone(&state.plan.borrow());
    success(&Jobs::of(&plan))
}

/// Targets, filtered, sorted and paged.
pub(super) async fn targets(
    extract::State(state): extract::State<AppState>,
    Extension(turns): Extension<ConcurrencyLimit>,
    ValidQuery(query): ValidQuery<TargetQuery>,
) -> Response {
    worked_out(&state, turns, move |plan| {
        let PageRange { offset, limit } = query.page().map_err(ApiError::bad)?;
        let (total, shown) = query.select(&plan).map_err(ApiError::bad)?;
        let head = Targets {
            generated_at: plan.snapshot.generated_at().rfc3339(),
            total,
            offset,
            limit,
            targets: Vec::new(),
        };
        let lines = shown.into_iter();
        let lines = lines.filter_map(move |ix| Some(Target::of(&plan, plan.snapshot.target(ix)?)));
        Ok(StreamedData::with_list(&head, lines))
    })
    .await
}

/// Queues with their targets, best first.
pub(super) async fn queue(
    extract::State(state): extract::State<AppState>,
    Extension(turns): Extension<ConcurrencyLimit>,
    ValidQuery(query): ValidQuery<QueueQuery>,
) -> Response {
    let now = state.clock.now();
    worked_out(&state, turns, move |plan| {
        let page = query.page().map_err(ApiError::bad)?;
        query.check(&plan).map_err(ApiError::bad)?;
        let head = Queues::head(&plan, page.offset, page.limit, now);
        let queues = (0..plan.queues.len())
            .filter_map(move |at| one_queue(Arc::clone(&plan), at, &query, page));
        Ok(StreamedData::with_lists(&head, queues))
    })
    .await
}

/// A queue and its targets; `None` if another queue was requested.
fn one_queue(
    plan: Arc<Plan>,
    at: usize,
    query: &QueueQuery,
    page: PageRange,
) -> Option<(Queue, impl Iterator<Item = Target> + use<>)> {
    let (queue, size) = plan.waiting_in(at)?;
    let node = plan.snapshot.node(queue.node)?;
    let channel = plan.channels.list.get(queue.channel_index)?;
    let wanted = query.node.as_deref().is_none_or(|wanted| wanted == &*node.name)
        && query.channel.as_deref().is_none_or(|wanted| wanted == &*channel.name);
    if !wanted {
        return None;
    }
    let head = Queue::of(&node.name, &channel.name, (queue, size));
    let waiting: Vec<TargetIx> = queue.queued().skip(page.offset).take(page.limit).collect();
    let waiting = waiting
        .into_iter()
        .filter_map(move |ix| Some(Target::of(&plan, plan.snapshot.target(ix)?)));
    Some((head, waiting))
}

/// The planned starts with their exact requests, and why other queued targets do not start.
pub(super) async fn plan(
    extract::State(state): extract::State<AppState>,
    Extension(turns): Extension<ConcurrencyLimit>,
    ValidQuery(query): ValidQuery<QueueQuery>,
) -> Response {
    let (builds, simulated) = (Arc::clone(&state.builds.borrow()), state.about.simulated);
    worked_out(&state, turns, move |plan| {
        let PageRange { offset, limit } = query.page().map_err(ApiError::bad)?;
        query.check(&plan).map_err(ApiError::bad)?;
        let (node, channel) = (query.node.as_deref(), query.channel.as_deref());
        let (outline, refused) = Planned::outline(&plan, Wanted { node, channel, offset, limit });
        let builds = Some(report::Builds::from(&*builds));
        let head = Planned { builds, simulated: Some(simulated), ..outline };
        let lines = refused
            .into_iter()
            .filter_map(move |ix| RefusedLine::of(&plan, plan.snapshot.target(ix)?));
        Ok(StreamedData::with_list(&head, lines))
    })
    .await
}

/// Why a target is or is not a candidate.
pub(super) async fn explain(
    extract::State(state): extract::State<AppState>,
    Extension(turns): Extension<ConcurrencyLimit>,
    RawQuery(raw): RawQuery,
    ValidQuery(query): ValidQuery<ExplainQuery>,
) -> Response {
    let status = Arc::clone(&state.status.borrow());
    worked_out(&state, turns, move |plan| {
        let page = query.page().map_err(ApiError::bad)?;
        let Some(text) = &query.target else {
            return Err(ApiError::bad(
                "give a target: ?target= with an id, a shard file, a database, or <db>/_design/<name>",
            ));
        };
        let (text, found) = meant(&plan, text, raw.as_deref());
        if found == Found::None {
            return Err(no_match(&plan, &status, text));
        }
        let found = found.all();
        let head = Explanations {
            generated_at: plan.snapshot.generated_at().rfc3339(),
            total: found.len(),
            offset: page.offset,
            limit: page.limit,
            targets: Vec::new(),
        };
        let views = WholeViews::of(&plan, page.of(&found));
        let shown = page.of(&found).to_vec().into_iter();
        let lines = shown
            .filter_map(move |ix| Some(Explained::of(&plan, plan.snapshot.target(ix)?, &views)));
        Ok(StreamedData::with_list(&head, lines))
    })
    .await
}

/// The targets that a text in a URL matches, and which of its two readings matched.
///
/// An id that was pasted into a URL as printed has lost one layer of encoding, and a plus sign was
/// decoded as a space; then the text as written in the URL is used.
pub(super) fn meant<'a>(plan: &Plan, text: &'a str, raw: Option<&'a str>) -> (&'a str, Found) {
    let found = report::find(plan, text);
    let Some(written) = raw.and_then(|raw| written(raw, "target")).filter(|_| found == Found::None)
    else {
        return (text, found);
    };
    let found = report::find(plan, written);
    // An id may belong to a deleted target.
    let is_meant = found != Found::None || written.parse::<TargetId>().is_ok();
    (if is_meant { written } else { text }, found)
}

/// No target has this name or id, as far as is known.
pub(super) fn no_match(plan: &Plan, status: &scan::ScanStatus, text: &str) -> ApiError {
    let known = status.is_ready(plan.snapshot.version());
    let yet =
        if known { "" } else { " (the first sweep has not ended yet; try again in a moment)" };
    ApiError::absent(report::no_match(plan, text) + yet)
}

/// The active configuration, with secrets replaced.
pub(super) async fn config(
    extract::State(state): extract::State<AppState>,
    ValidQuery(NoQuery {}): ValidQuery<NoQuery>,
) -> Response {
    let config = Arc::clone(&state.config.borrow());
    success(&config.shown)
}
