//! The JSON API, in Prometheus's envelope.

mod journal;

pub(super) use journal::{events, history};

use super::{
    State,
    answer::{self, Answer, text},
    guard::Turns,
    query::{ExplainQuery, NoQuery, Page, QueueQuery, TargetQuery, written},
};
use crate::{
    model::target::TargetId,
    plan::Plan,
    scan::Status,
    serve::report::{
        self, Explained, Found, Planned, RefusedLine, SuspensionLine, Target, Wanted, WholeViews,
    },
    table::{Ix, TargetRef},
};
use axum::{
    Extension,
    extract::{self, Query, RawQuery, rejection::QueryRejection},
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use couchdb_client::Entry;
use serde::Serialize;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use wall_clock::Moment;

/// A refusal: a bad question, or something that is not there.
pub(super) struct Refused {
    pub(super) code: StatusCode,
    pub(super) kind: &'static str,
    pub(super) why: String,
    /// What goes with it, such as targets to choose from.
    pub(super) data: Option<Value>,
}

impl Refused {
    fn new(code: StatusCode, kind: &'static str, why: impl ToString) -> Self {
        Self { code, kind, why: why.to_string(), data: None }
    }

    pub(super) fn bad(why: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_data", why)
    }

    pub(super) fn absent(why: impl ToString) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", why)
    }

    pub(super) fn conflict(why: impl ToString, data: Value) -> Self {
        Self { data: Some(data), ..Self::new(StatusCode::CONFLICT, "conflict", why) }
    }

    pub(super) fn unavailable(why: impl ToString) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", why)
    }

    pub(super) fn late(patience: Duration) -> Self {
        let why = format!("the body did not come within {} seconds", patience.as_secs());
        Self::new(StatusCode::REQUEST_TIMEOUT, "timeout", why)
    }

    pub(super) fn stopping() -> Self {
        Self::unavailable("recliner is stopping")
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut body = json!({ "status": "error", "errorType": self.kind, "error": self.why });
        if let Some(data) = self.data {
            body["data"] = data;
        }
        (self.code, answer::whole(&body)).into_response()
    }
}

pub(super) fn success(data: &Value) -> Response {
    answer::whole(&json!({ "status": "success", "data": data }))
}

/// Works an answer out away from the runtime's threads: filtering a million targets takes
/// tens of milliseconds.
pub(super) async fn worked_out(
    state: &State,
    turns: Turns,
    work: impl FnOnce(Arc<Plan>) -> Result<Answer, Refused> + Send + 'static,
) -> Response {
    let Some(turn) = turns.clone().wait().await else {
        return Refused::stopping().into_response();
    };
    let plan = Arc::clone(&state.plan.borrow());
    let work = move || {
        // The turn ends with the work, not with the client's patience.
        let _turn = turn;
        work(plan).map(Answer::begin)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(begun)) => begun.sent(turns),
        Ok(Err(refused)) => refused.into_response(),
        Err(failed) => super::lost(failed),
    }
}

pub(super) type Asked<Q> = Result<Query<Q>, QueryRejection>;

/// What was asked, or the first thing in the question that means nothing.
pub(super) fn asked<Q>(query: Asked<Q>) -> Result<Q, Refused> {
    query.map(|Query(query)| query).map_err(|why| {
        // The library's text names its own error first; the reader wants the rest.
        let text = why.body_text();
        let text = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
        Refused::bad(text)
    })
}

/// No such path under the API.
pub(super) async fn not_found(uri: Uri) -> Response {
    // The router took the API's own part off most paths.
    let path = uri.path();
    let path = path.strip_prefix("/api/v1").unwrap_or(path);
    Refused::absent(format!(
        "there is no /api/v1{path}: ask /api/v1/status, targets, facts, queue, plan, jobs, explain, history, events or config; orders are POST to suspend, resume, compact, release, rescan or flush"
    ))
    .into_response()
}

/// The path is there, but not for this method: what reads takes GET and HEAD, orders POST.
pub(super) async fn wrong_method(method: Method) -> Response {
    let why = if method == Method::GET || method == Method::HEAD {
        "this is an order: it is given by POST, with a body in JSON".to_owned()
    } else {
        format!("{method} changes nothing here: use GET or HEAD, and POST for orders alone")
    };
    Refused::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", why).into_response()
}

/// What recliner is, sees, and cannot see.
pub(super) async fn status(
    extract::State(state): extract::State<State>,
    query: Asked<NoQuery>,
) -> Response {
    if let Err(refused) = asked(query) {
        return refused.into_response();
    }
    let plan = Arc::clone(&state.plan.borrow());
    let status = Arc::clone(&state.status.borrow());
    let config = Arc::clone(&state.config.borrow());
    let moment = |moment: Option<Moment>| moment.map(Moment::rfc3339);
    let errors: Vec<Value> = status
        .errors
        .iter()
        .map(|((node, reason), count)| json!({ "node": **node, "reason": reason, "count": count }))
        .collect();
    let entries = Arc::clone(&state.couchdb.borrow());
    let url = |it: &Entry| json!({"url": it.url.as_str(), "up": it.up, "problem": it.why});
    let couchdb: Vec<Value> = entries.iter().map(url).collect();
    success(&json!({
        "version": state.about.version,
        "revision": state.about.revision,
        "simulated": state.about.simulated,
        "simulation": state.about.simulation(config.mode),
        "mode": config.mode.label(),
        "ready": status.is_ready(plan.snapshot.version()),
        "generated_at": plan.snapshot.generated_at().rfc3339(),
        "couchdb": couchdb,
        "nodes": report::nodes(&plan).collect::<Vec<_>>(),
        "suspensions": SuspensionLine::all(&plan),
        "sweep": {
            "ended": status.sweeps,
            "running_since": moment(status.progress.map(|progress| progress.since)),
            "done": status.progress.map(|progress| progress.done),
            "total": status.progress.and_then(|progress| progress.total),
            "shards": {
                "asked": status.shards.asked,
                "spared": status.shards.spared,
                "followed": status.shards.followed,
            },
            "last_end": moment(status.last_end),
            "last_success": moment(status.last_success),
            "last_duration_seconds": status.last_duration.map(|took| took.as_secs_f64()),
        },
        "errors": errors,
        "last_error": status.last_error,
        "problem": status.problem,
        "missing_rights": status.missing_rights,
        "feeds": super::feeds::shown(&state.changes.borrow()),
        "smoosh": super::smoosh::shown(&state.takeovers.borrow()),
        "config": {
            "loaded_at": config.loaded_at.rfc3339(),
            "last_reload_successful": config.reload_successful,
            "needs_restart": config.needs_restart,
            "web_problem": state.web.problem().as_deref(),
        },
    }))
}

/// Targets, filtered, ordered and paged.
pub(super) async fn targets(
    extract::State(state): extract::State<State>,
    Extension(turns): Extension<Turns>,
    query: Asked<TargetQuery>,
) -> Response {
    let query = match asked(query) {
        Ok(query) => query,
        Err(refused) => return refused.into_response(),
    };
    worked_out(&state, turns, move |plan| {
        let page = query.page().map_err(Refused::bad)?;
        let found = query.select(&plan).map_err(Refused::bad)?;
        Ok(listed(plan, page, &found, Target::of))
    })
    .await
}

/// One page of the targets that were found.
fn listed<T: Serialize>(
    plan: Arc<Plan>,
    page: Page,
    found: &[Ix],
    line: impl Fn(&Plan, TargetRef<'_>) -> T + Send + 'static,
) -> Answer {
    let head = json!({
        "generated_at": plan.snapshot.generated_at().rfc3339(),
        "total": found.len(),
        "offset": page.offset,
        "limit": page.limit,
    });
    let shown = page.of(found).to_vec().into_iter();
    let lines = shown.filter_map(move |ix| Some(text(&line(&plan, plan.snapshot.target(ix)?))));
    Answer::with_list(&head, "targets", lines)
}

/// Queues with what waits in them, best first.
pub(super) async fn queue(
    extract::State(state): extract::State<State>,
    Extension(turns): Extension<Turns>,
    query: Asked<QueueQuery>,
) -> Response {
    let query = match asked(query) {
        Ok(query) => query,
        Err(refused) => return refused.into_response(),
    };
    worked_out(&state, turns, move |plan| {
        let page = query.page().map_err(Refused::bad)?;
        query.check(&plan).map_err(Refused::bad)?;
        let head = json!({
            "generated_at": plan.snapshot.generated_at().rfc3339(),
            "offset": page.offset,
            "limit": page.limit,
        });
        let queues = (0..plan.queues.len())
            .filter_map(move |at| one_queue(Arc::clone(&plan), at, &query, page));
        Ok(Answer::with_lists(&head, "queues", queues))
    })
    .await
}

/// A queue with what waits in it; none where another is asked for.
fn one_queue(
    plan: Arc<Plan>,
    at: usize,
    query: &QueueQuery,
    page: Page,
) -> Option<impl Iterator<Item = Vec<u8>> + use<>> {
    let queue = plan.queues.get(at)?;
    let node = plan.snapshot.node(queue.node)?;
    let channel = plan.channels.list.get(queue.channel)?;
    let wanted = query.node.as_deref().is_none_or(|wanted| wanted == &*node.name)
        && query.channel.as_deref().is_none_or(|wanted| wanted == &*channel.name);
    if !wanted {
        return None;
    }
    let head = json!({
        "node": &*node.name,
        "channel": &*channel.name,
        "size": queue.waiting().len(),
        "capacity": queue.capacity,
        "overflow": queue.overflow,
        "active": queue.active,
        "reclaimable_bytes": queue.reclaimable,
        "priority_max": queue.priority.map(|(best, _)| best),
        "priority_min": queue.priority.map(|(_, worst)| worst),
        "oldest": queue.oldest.map(Moment::rfc3339),
    });
    let waiting: Vec<Ix> = queue.waiting().skip(page.offset).take(page.limit).collect();
    let lines = waiting
        .into_iter()
        .filter_map(move |ix| Some(text(&Target::of(&plan, plan.snapshot.target(ix)?))));
    Some(answer::listed(&head, "targets", lines))
}

/// What starts, with the exact requests, and why the rest of what waits does not.
pub(super) async fn plan(
    extract::State(state): extract::State<State>,
    Extension(turns): Extension<Turns>,
    query: Asked<QueueQuery>,
) -> Response {
    let query = match asked(query) {
        Ok(query) => query,
        Err(refused) => return refused.into_response(),
    };
    let (builds, simulated) = (Arc::clone(&state.builds.borrow()), state.about.simulated);
    worked_out(&state, turns, move |plan| {
        let Page { offset, limit } = query.page().map_err(Refused::bad)?;
        query.check(&plan).map_err(Refused::bad)?;
        let (node, channel) = (query.node.as_deref(), query.channel.as_deref());
        let (outline, refused) = Planned::outline(&plan, Wanted { node, channel, offset, limit });
        let mut head = json!(outline);
        head["builds"] = super::builds::shown(&builds);
        head["simulated"] = simulated.into();
        if let Some(fields) = head.as_object_mut() {
            fields.remove("refused");
        }
        let lines = refused
            .into_iter()
            .filter_map(move |ix| Some(text(&RefusedLine::of(&plan, plan.snapshot.target(ix)?)?)));
        Ok(Answer::with_list(&head, "refused", lines))
    })
    .await
}

/// Why a target is or is not a candidate.
pub(super) async fn explain(
    extract::State(state): extract::State<State>,
    Extension(turns): Extension<Turns>,
    RawQuery(raw): RawQuery,
    query: Asked<ExplainQuery>,
) -> Response {
    let query = match asked(query) {
        Ok(query) => query,
        Err(refused) => return refused.into_response(),
    };
    let status = Arc::clone(&state.status.borrow());
    worked_out(&state, turns, move |plan| {
        let page = query.page().map_err(Refused::bad)?;
        let Some(text) = &query.target else {
            return Err(Refused::bad(
                "name a target: ?target= an id, a shard file, a database, or <db>/_design/<name>",
            ));
        };
        let (text, found) = meant(&plan, text, raw.as_deref());
        if found == Found::None {
            return Err(no_match(&plan, &status, text));
        }
        let found = found.all();
        let views = WholeViews::of(&plan, page.of(&found));
        Ok(listed(plan, page, &found, move |plan, target| Explained::of(plan, target, &views)))
    })
    .await
}

/// What a text in an address names, and which of the two ways to read it that was.
///
/// An id pasted into an address as it is printed has lost one layer of encoding, and a plus sign
/// reads as a space: then what was written is meant.
fn meant<'a>(plan: &Plan, text: &'a str, raw: Option<&'a str>) -> (&'a str, Found) {
    let found = report::find(plan, text);
    let Some(written) = raw.and_then(|raw| written(raw, "target")).filter(|_| found == Found::None)
    else {
        return (text, found);
    };
    let found = report::find(plan, written);
    // An id may be of a target that is gone.
    let is_meant = found != Found::None || written.parse::<TargetId>().is_ok();
    (if is_meant { written } else { text }, found)
}

/// Nothing has this name or id, as far as is known.
pub(super) fn no_match(plan: &Plan, status: &Status, text: &str) -> Refused {
    let known = status.is_ready(plan.snapshot.version());
    let yet = if known { "" } else { " (the first sweep has not ended: try again in a moment)" };
    Refused::absent(report::no_match(plan, text) + yet)
}

/// The configuration in force, secrets replaced.
pub(super) async fn config(
    extract::State(state): extract::State<State>,
    query: Asked<NoQuery>,
) -> Response {
    if let Err(refused) = asked(query) {
        return refused.into_response();
    }
    let config = Arc::clone(&state.config.borrow());
    success(&config.shown)
}
