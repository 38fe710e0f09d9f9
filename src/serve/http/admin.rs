//! An operator's orders under `/api/v1/`: authorised, parsed, passed on, answered.
//!
//! The guard decides whether an order is allowed. Names in it are resolved here, in the plan, so
//! that the task that carries out the order gets identities instead of text.

use super::{
    api::{ApiError, success},
    guard::{self, ConcurrencyLimit, OrderRefused, Permission},
    orders::Order,
    orders::{
        Compact, CompactResult, Denied, FlushResult, FlushScope, Release, ReleaseResult, Reply,
        RescanResult, Resume, ResumeResult, Suspend, SuspendResult,
    },
    state::AppState,
};
use crate::{
    model::{
        channel::Mode,
        records::SuspensionScope,
        target::{TargetId, TargetKind, TargetSelector},
    },
    plan::Plan,
    serve::report::{self, Conflict, Found, orders as answers},
    table::TargetIx,
};
use axum::{
    Extension,
    body::{Bytes, to_bytes},
    extract::{self, Request},
    response::{IntoResponse as _, Response},
};
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt::Display, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc::error::TrySendError, oneshot},
    time,
};

/// The maximum size of an order's body, in bytes.
const MAX_BODY: usize = 1 << 16;

/// How long the body of an order may take to arrive.
const BODY: Duration = Duration::from_secs(10);

/// The maximum length of a reason, in characters.
const MAX_WHY: usize = 1_000;

/// How long an order may take, including another read of a target and a request to CouchDB.
const PATIENCE: Duration = Duration::from_secs(90);

/// The maximum number of candidates in the response to an ambiguous name.
const CANDIDATES: usize = 100;

/// Suspends starts in a scope.
pub(super) async fn suspend(
    extract::State(state): extract::State<AppState>,
    Extension(turns): Extension<ConcurrencyLimit>,
    request: Request,
) -> Response {
    let make = |body: answers::SuspendOrder, plan: &Plan, by, reply| {
        let scope = scope(body.scope.as_deref())?;
        match &scope {
            SuspensionScope::All => {}
            SuspensionScope::Node(name) => known_node(plan, name)?,
            SuspensionScope::Channel(name) => known_channel(plan, name)?,
        }
        let why = reason(body.why)?;
        Ok(Order::Suspend(Suspend { scope, why, by }, reply))
    };
    let tell = |done: SuspendResult| answers::Suspended {
        since: done.suspension.since.rfc3339(),
        by: done.suspension.by,
        why: done.suspension.why,
        already: done.already,
        running: done.running,
    };
    ordered(&state, turns, Permission::Suspend, request, make, tell).await
}

/// Ends suspensions.
pub(super) async fn resume(
    extract::State(state): extract::State<AppState>,
    Extension(turns): Extension<ConcurrencyLimit>,
    request: Request,
) -> Response {
    let make = |body: answers::ResumeOrder, _: &Plan, by, reply| {
        Ok(Order::Resume(Resume { scope: scope(body.scope.as_deref())?, by }, reply))
    };
    let words = |scopes: &[SuspensionScope]| scopes.iter().map(ToString::to_string).collect();
    let tell = move |done: ResumeResult| answers::Resumed {
        lifted: words(&done.lifted),
        remaining: words(&done.remaining),
    };
    ordered(&state, turns, Permission::Suspend, request, make, tell).await
}

/// Compacts one target now.
pub(super) async fn compact(
    extract::State(state): extract::State<AppState>,
    Extension(turns): Extension<ConcurrencyLimit>,
    request: Request,
) -> Response {
    let mode = state.plan.borrow().rules.mode;
    let refused = guard::may_order(&state.allow, Permission::Admin, &request).err();
    if let (Mode::Advise, Some(refused @ OrderRefused::AdminOff)) = (mode, refused) {
        let why = format!(
            "{refused}; but in advise mode it compacts nothing: recliner explain prints the requests for a target"
        );
        return ApiError { why, ..ApiError::forbidden(refused) }.into_response();
    }
    let make = |body: answers::CompactOrder, plan: &Plan, by, reply| {
        let (ix, target) = one_target(plan, &body.target)?;
        Ok(Order::Compact(Compact { target, ix, force: body.force, by }, reply))
    };
    let tell = |done: CompactResult| answers::Compacting {
        requests: done.requests,
        waits: done.waits.map(|(refusal, why)| answers::Waits { refusal: refusal.into(), why }),
        until: done.until.rfc3339(),
    };
    ordered(&state, turns, Permission::Admin, request, make, tell).await
}

/// Begins a sweep now.
pub(super) async fn rescan(
    extract::State(state): extract::State<AppState>,
    Extension(turns): Extension<ConcurrencyLimit>,
    request: Request,
) -> Response {
    let make = |_: answers::RescanOrder, _: &Plan, _: String, reply| Ok(Order::Rescan(reply));
    let tell = |done: RescanResult| answers::Rescanning { begins: done.begins };
    ordered(&state, turns, Permission::Admin, request, make, tell).await
}

/// Empties queues.
pub(super) async fn flush(
    extract::State(state): extract::State<AppState>,
    Extension(turns): Extension<ConcurrencyLimit>,
    request: Request,
) -> Response {
    let make = |body: answers::FlushOrder, plan: &Plan, _: String, reply| {
        if let Some(name) = &body.node {
            known_node(plan, name)?;
        }
        if let Some(name) = &body.channel {
            known_channel(plan, name)?;
        }
        Ok(Order::Flush(FlushScope { node: body.node, channel: body.channel }, reply))
    };
    let tell = |done: FlushResult| answers::Flushed { targets: done.targets };
    ordered(&state, turns, Permission::Admin, request, make, tell).await
}

/// Takes targets out of quarantine.
pub(super) async fn release(
    extract::State(state): extract::State<AppState>,
    Extension(turns): Extension<ConcurrencyLimit>,
    request: Request,
) -> Response {
    let make = |body: answers::ReleaseOrder, plan: &Plan, _: String, reply| {
        let wanted = match (body.target, body.all) {
            (None, true) => Release::All,
            (Some(text), false) => Release::Named { selector: several(plan, &text)?, text },
            _ => return Err(ApiError::bad("name a target, or give all: true")),
        };
        Ok(Order::Release(wanted, reply))
    };
    let tell = |done: ReleaseResult| answers::Released {
        targets: done.targets.iter().map(ToString::to_string).collect(),
    };
    ordered(&state, turns, Permission::Admin, request, make, tell).await
}

/// The body of a request, as long as it arrives in time.
pub(super) async fn read_body(request: Request, max: usize) -> Result<Bytes, ApiError> {
    match time::timeout(BODY, to_bytes(request.into_body(), max)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(why)) => Err(ApiError::bad(format!("the body cannot be read: {why}"))),
        Err(_) => Err(ApiError::late(BODY)),
    }
}

/// What a body says.
pub(super) fn parse_object<B: DeserializeOwned>(body: &[u8]) -> Result<B, ApiError> {
    let wrong = |why: &dyn Display| ApiError::bad(format!("the body is not valid: {why}"));
    // A list would be accepted as the fields in order.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(wrong(&"it is not a JSON object"));
    }
    serde_json::from_slice(body).map_err(|why| wrong(&why))
}

/// Handles an order: authorises it, passes it on, and responds with its result.
pub(super) async fn ordered<B, T, A>(
    state: &AppState,
    turns: ConcurrencyLimit,
    permit: Permission,
    request: Request,
    make: impl FnOnce(B, &Plan, String, Reply<T>) -> Result<Order, ApiError> + Send + 'static,
    tell: impl FnOnce(T) -> A,
) -> Response
where
    B: DeserializeOwned + Send + 'static,
    T: Send + 'static,
    A: Serialize,
{
    let by = match guard::authorize_order(&state.allow, permit, &request) {
        Ok(by) => by,
        Err(refused) => return ApiError::forbidden(refused).into_response(),
    };
    let path = request.uri().path().to_owned();
    let body = match read_body(request, MAX_BODY).await {
        Ok(body) => body,
        Err(refused) => return refused.into_response(),
    };
    let Some(turn) = turns.acquire().await else {
        return ApiError::stopping().into_response();
    };
    let plan = Arc::clone(&state.plan.borrow());
    let (who, (reply, answered)) = (by.clone(), oneshot::channel());
    // On a blocking thread, because resolving a name searches a million targets.
    let made = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let body = if body.is_empty() { &b"{}"[..] } else { &body };
        make(parse_object(body)?, &plan, who, reply)
    });
    let order = match made.await {
        Ok(Ok(order)) => order,
        Ok(Err(refused)) => return refused.into_response(),
        Err(failed) => return super::lost(failed),
    };
    tracing::info!(order = path, by, "received an order");
    match state.orders.try_send(order) {
        Ok(()) => {}
        Err(TrySendError::Full(_)) => {
            return ApiError::unavailable("too many orders are being processed; try again")
                .into_response();
        }
        Err(TrySendError::Closed(_)) => return ApiError::stopping().into_response(),
    }
    match time::timeout(PATIENCE, answered).await {
        Ok(Ok(Ok(done))) => success(&tell(done)),
        Ok(Ok(Err(denied))) => ApiError::from(denied).into_response(),
        Ok(Err(_)) => ApiError::stopping().into_response(),
        Err(_) => {
            let why = "the order was passed on, but did not finish in time; its result will be in /api/v1/status";
            ApiError::unavailable(why).into_response()
        }
    }
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> Self {
        let why = denied.to_string();
        match denied {
            Denied::Unknown(_) => Self::absent(why),
            Denied::Refused { target, refusal, request, .. } => {
                let (target, refusal) = (target.to_string(), refusal.into());
                Self::conflict(why, Conflict::Refused { target, refusal, request })
            }
            Denied::NotTaken { target, misses } => {
                Self::conflict(why, Conflict::NotTaken { target: target.to_string(), misses })
            }
            Denied::Failed(_) => Self::failed(why),
            Denied::NotLoaded(_) => Self::not_yet(why),
            Denied::Unavailable(_) => Self::unavailable(why),
        }
    }
}

/// An operator's reason; an empty one is none.
pub(super) fn reason(why: Option<String>) -> Result<Option<String>, ApiError> {
    let why = why.filter(|why| !why.is_empty());
    match &why {
        Some(why) if why.chars().count() > MAX_WHY => {
            Err(ApiError::bad(format!("why is longer than {MAX_WHY} characters")))
        }
        _ => Ok(why),
    }
}

/// The scope of a text; everything if there is none.
fn scope(text: Option<&str>) -> Result<SuspensionScope, ApiError> {
    text.unwrap_or("all").parse().map_err(ApiError::bad)
}

fn known_node(plan: &Plan, name: &str) -> Result<(), ApiError> {
    let names = || plan.snapshot.nodes().iter().map(|node| &*node.name);
    if names().any(|known| known == name) {
        return Ok(());
    }
    let names: Vec<&str> = names().collect();
    if names.is_empty() {
        let why = "not ordered, and nothing starts yet: CouchDB has not named any node";
        return Err(ApiError::not_yet(why));
    }
    Err(ApiError::absent(format!("no node is called {name:?}; nodes: {}", names.join(", "))))
}

fn known_channel(plan: &Plan, name: &str) -> Result<(), ApiError> {
    if plan.channels.find(name).is_some() {
        return Ok(());
    }
    let names: Vec<&str> = plan.channels.list.iter().map(|channel| &*channel.name).collect();
    Err(ApiError::absent(format!("no channel is called {name:?}; channels: {}", names.join(", "))))
}

/// All targets that a text matches. A deleted one may still be in quarantine.
fn several(plan: &Plan, text: &str) -> Result<TargetSelector, ApiError> {
    if text.parse::<TargetId>().is_err() && report::find(plan, text) == Found::None {
        return Err(ApiError::absent(report::no_match(plan, text)));
    }
    Ok(report::selector(plan, text))
}

/// The only target that a text matches, among those that can be compacted. For a database with one
/// file, that file.
pub(super) fn one_target(plan: &Plan, text: &str) -> Result<(TargetIx, TargetId), ApiError> {
    let named = |ix| plan.snapshot.target(ix).map(|target| (ix, target.id()));
    let nothing = || ApiError::absent(report::no_match(plan, text));
    let is_search = |(_, id): &(TargetIx, TargetId)| id.kind() == TargetKind::Search;
    let no_compaction = || {
        let why = format!(
            "{text:?} is a search index, which is never compacted: Lucene merges its files"
        );
        ApiError::conflict(why, Conflict::Plain {})
    };
    match report::find(plan, text) {
        Found::One(ix) => match named(ix).ok_or_else(nothing)? {
            search if is_search(&search) => Err(no_compaction()),
            one => Ok(one),
        },
        Found::None => Err(nothing()),
        Found::Several(all) => {
            let mut all: Vec<(TargetIx, TargetId)> = all.into_iter().filter_map(named).collect();
            all.retain(|one| !is_search(one));
            if all.is_empty() {
                return Err(no_compaction());
            }
            if let [only] = &all[..] {
                return Ok(only.clone());
            }
            let mut files = all.iter().filter(|(_, id)| id.kind() == TargetKind::Db);
            if let (Some(only), None) = (files.next(), files.next()) {
                return Ok(only.clone());
            }
            let ids = all.iter().take(CANDIDATES);
            let candidates = ids.map(|(_, id)| id.to_string()).collect();
            let why = format!("{text:?} matches {} targets; give the id of one", all.len());
            Err(ApiError::conflict(why, Conflict::Ambiguous { candidates }))
        }
    }
}
