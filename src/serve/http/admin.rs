//! An operator's orders under `/api/v1/`: authorises, parses, forwards and answers them.
//!
//! The guard decides whether an order is allowed. Names in an order are resolved here against the
//! plan, so that the task that carries it out gets identities instead of text.

use super::{
    answer::Answer,
    error::ApiError,
    guard::{self, OrderRefused, Permission},
    orders::{Action, Command, Denied, Order},
    query::{NoQuery, ValidQuery},
    queues::check_channel,
    route::Route,
    state::AppState,
    turn::{in_turn, read_body},
};
use crate::{
    model::{
        channel::Mode,
        records::{AdviceKey, RunScope, SuspensionScope},
        target::{TargetId, TargetKind, TargetSelector},
    },
    plan::Plan,
    serve::report::{
        self, Conflict, Found, RunLine,
        orders::{
            ChangeRunOrder, CompactOrder, Compacting, FlushOrder, Flushed, MuteOrder, Muted,
            OrderAnswer, OrderName, OrderPermission, OrderRequest, Permissions, ReleaseOrder,
            Released, RescanOrder, Rescanning, ResumeOrder, Resumed, RunOrder, SuspendOrder,
            Suspended, UnmuteOrder,
        },
    },
    table::TargetIx,
    text::{Label as _, duration},
};
use axum::{
    body::Bytes,
    extract::{Request, State},
    routing::{MethodRouter, get, post},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::{fmt::Display, time::Duration};
use tokio::{
    sync::{mpsc::error::TrySendError, oneshot},
    time,
};

/// The routes of orders.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::order::<SuspendOrder, Suspended>(
            "/api/v1/suspend",
            "suspend",
            order_route(OrderName::Suspend),
            "Start nothing in a scope until it is resumed.",
            json!({ "scope": "node:couchdb@couch-a", "why": "its disk is being replaced" }),
        )
        .detail("Returns `since`, `by`, `why`, whether it was suspended `already`, and how many compactions are still `running` there."),
        Route::order::<ResumeOrder, Resumed>(
            "/api/v1/resume",
            "resume",
            order_route(OrderName::Resume),
            "End suspensions.",
            json!({ "scope": "all" }),
        )
        .detail("Returns the suspensions that were `lifted` and those `remaining`."),
        Route::order::<CompactOrder, Compacting>(
            "/api/v1/compact",
            "compact",
            order_route(OrderName::Compact),
            "Compact one target now, before all others.",
            json!({ "target": "orders/_design/reports", "force": false }),
        )
        .detail("Returns the `requests` that will be sent, what it `waits` for if it does not start at once (`refusal`, `why`), and when the order expires (`until`)."),
        Route::order::<RunOrder, RunLine>(
            "/api/v1/runs",
            "beginRun",
            order_route(OrderName::Run),
            "Compact everything worth compacting in a database, on a node, or everywhere.",
            json!({ "db": "orders" }),
        )
        .detail("Returns the run, with what is `left_out`; refused if nothing may start."),
        Route::order::<ChangeRunOrder, RunLine>(
            "/api/v1/runs/change",
            "changeRun",
            order_route(OrderName::ChangeRun),
            "Pause, resume or cancel a run.",
            json!({ "run": 7, "to": "paused" }),
        ),
        Route::order::<ReleaseOrder, Released>(
            "/api/v1/release",
            "release",
            order_route(OrderName::Release),
            "Take targets out of quarantine.",
            json!({ "all": true }),
        )
        .detail("Returns the released `targets`."),
        Route::order::<RescanOrder, Rescanning>(
            "/api/v1/rescan",
            "rescan",
            order_route(OrderName::Rescan),
            "Begin a sweep now.",
            json!({}),
        )
        .detail("Returns whether the sweep `begins` at once, or after the running one."),
        Route::order::<FlushOrder, Flushed>(
            "/api/v1/flush",
            "flush",
            order_route(OrderName::Flush),
            "Clear the queues.",
            json!({ "channel": "ratio_dbs" }),
        )
        .detail("Returns how many `targets` were removed."),
        Route::order::<MuteOrder, Muted>(
            "/api/v1/advice/mute",
            "muteAdvice",
            order_route(OrderName::Mute),
            "Mute advice for a time.",
            json!({ "code": "orphan_shards", "for": "30d", "why": "archived in December" }),
        )
        .detail("Returns the mute. Without `subject`, all advice of the code is muted."),
        Route::order::<UnmuteOrder, Muted>(
            "/api/v1/advice/unmute",
            "unmuteAdvice",
            order_route(OrderName::Unmute),
            "End the mute of advice.",
            json!({ "code": "orphan_shards" }),
        )
        .detail("Returns `muted`, which is null."),
        Route::api::<NoQuery, Permissions>(
            "/api/v1/permissions",
            "permissions",
            get(permissions),
            "Which orders the sender of this request may give.",
        )
        .detail("For each order, why it would be refused and what to set (`refused`); null if it is allowed."),
    ]
}

/// The maximum size of an order's body, in bytes.
const MAX_BODY: usize = 1 << 16;

/// The maximum length of a reason, in characters.
const MAX_WHY: usize = 1_000;

/// How long an order may take, including another read of a target and a request to CouchDB.
const PATIENCE: Duration = Duration::from_secs(90);

/// The maximum number of candidates listed in the response to an ambiguous name.
const CANDIDATES: usize = 100;

/// How long advice is muted, unless the order says otherwise.
const MUTE_FOR: Duration = Duration::from_secs(30 * 86_400);

/// The maximum time for a mute: advice that is unwanted for longer calls for another threshold.
const MAX_MUTE: Duration = Duration::from_secs(2 * 365 * 86_400);

fn order_route(name: OrderName) -> MethodRouter<AppState> {
    post(async move |State(state): State<AppState>, request: Request| {
        order(&state, name, request).await.map(|answer| Answer::of(&answer))
    })
}

async fn order(
    state: &AppState,
    name: OrderName,
    request: Request,
) -> Result<OrderAnswer, ApiError> {
    let by = guard::authorize_order(&state.allow, permission(name), &request)
        .map_err(|refused| forbidden(state, name, refused))?;
    let body = read_body(request, MAX_BODY).await?;
    let body = if body.is_empty() { Bytes::from_static(b"{}") } else { body };
    carry_out(state, by, read_order(name, &body)?).await
}

/// Parses the body of an order.
pub(super) fn read_order(name: OrderName, body: &[u8]) -> Result<OrderRequest, ApiError> {
    name.read_request(json_object(body)?).map_err(invalid_body)
}

/// The sender of this request and the address it came from, if the sender may give this order.
pub(super) fn authorize(
    state: &AppState,
    name: OrderName,
    request: &Request,
) -> Result<String, ApiError> {
    guard::may_order(&state.allow, permission(name), request)
        .map_err(|refused| forbidden(state, name, refused))
}

const fn permission(name: OrderName) -> Permission {
    match name {
        OrderName::Suspend | OrderName::Resume => Permission::Suspend,
        OrderName::Compact
        | OrderName::Run
        | OrderName::ChangeRun
        | OrderName::Release
        | OrderName::Rescan
        | OrderName::Flush
        | OrderName::Mute
        | OrderName::Unmute => Permission::Admin,
    }
}

fn forbidden(state: &AppState, name: OrderName, refused: OrderRefused) -> ApiError {
    let advises = state.plan.borrow().rules.mode == Mode::Advise;
    match (name, &refused) {
        (OrderName::Compact | OrderName::Run, OrderRefused::AdminOff) if advises => ApiError {
            why: format!(
                "{refused}; in advise mode it then still compacts nothing: recliner explain prints the requests for a target"
            ),
            ..ApiError::from(refused)
        },
        _ => ApiError::from(refused),
    }
}

/// Lists the orders that the sender of this request may give, for programs that offer them.
pub(super) async fn permissions(
    State(state): State<AppState>,
    ValidQuery(NoQuery {}): ValidQuery<NoQuery>,
    request: Request,
) -> Answer<Permissions> {
    let permission = |name: OrderName| OrderPermission {
        order: name.label().into(),
        refused: authorize(&state, name, &request).err().map(|refused| refused.why),
    };
    Answer::of(&Permissions { orders: OrderName::each().map(permission).collect() })
}

/// Passes an order on and waits for its result.
pub(super) async fn carry_out(
    state: &AppState,
    by: String,
    order: OrderRequest,
) -> Result<OrderAnswer, ApiError> {
    let name = order.name().label();
    let action = in_turn(state, move |plan| resolve(&plan, order)).await?;
    tracing::info!(order = format!("/api/v1/{name}"), by, "received an order");
    let (reply, answered) = oneshot::channel();
    state.orders.try_send(Command::Order(Order { action, by, reply })).map_err(
        |why| match why {
            TrySendError::Full(_) => {
                ApiError::unavailable("too many orders are being processed; try again")
            }
            TrySendError::Closed(_) => ApiError::stopping(),
        },
    )?;
    match time::timeout(PATIENCE, answered).await {
        Ok(answered) => Ok(answered.map_err(|_| ApiError::stopping())??),
        Err(_) => Err(ApiError::unavailable(
            "the order was passed on, but did not finish in time; its result will be in /api/v1/status",
        )),
    }
}

/// Resolves an order: looks up its names in the plan.
fn resolve(plan: &Plan, order: OrderRequest) -> Result<Action, ApiError> {
    Ok(match order {
        OrderRequest::Suspend(SuspendOrder { scope, why }) => {
            let scope = read_scope(scope.as_deref())?;
            match &scope {
                SuspensionScope::All => {}
                SuspensionScope::Node(name) => known_node(plan, name)?,
                SuspensionScope::Channel(name) => known_channel(plan, name)?,
            }
            Action::Suspend { scope, why: reason(why)? }
        }
        OrderRequest::Resume(ResumeOrder { scope }) => {
            Action::Resume(read_scope(scope.as_deref())?)
        }
        OrderRequest::Compact(CompactOrder { target, force }) => {
            let (ix, target) = one_target(plan, &target)?;
            Action::Compact { target, ix, force }
        }
        OrderRequest::Run(order) => {
            let scope = order.scope().map_err(ApiError::bad)?;
            known_scope(plan, &scope)?;
            Action::BeginRun { scope, force: order.force }
        }
        OrderRequest::ChangeRun(order) => Action::ChangeRun(order),
        OrderRequest::Release(ReleaseOrder { target, all }) => match (target, all) {
            (None, true) => Action::ReleaseAll,
            (Some(text), false) => Action::Release { selector: several(plan, &text)?, text },
            _ => return Err(ApiError::bad("name a target, or give all: true")),
        },
        OrderRequest::Rescan(RescanOrder {}) => Action::Rescan,
        OrderRequest::Flush(FlushOrder { node, channel }) => {
            node.iter().try_for_each(|name| known_node(plan, name))?;
            channel.iter().try_for_each(|name| known_channel(plan, name))?;
            Action::Flush { node, channel }
        }
        OrderRequest::Mute(MuteOrder { code, subject, span, why }) => Action::MuteAdvice {
            key: AdviceKey { code, subject },
            mute_for: Some(read_mute_span(span.as_deref())?),
            why: reason(why)?,
        },
        OrderRequest::Unmute(UnmuteOrder { code, subject }) => {
            let key = AdviceKey { code, subject };
            Action::MuteAdvice { key, mute_for: None, why: None }
        }
    })
}

fn read_mute_span(text: Option<&str>) -> Result<Duration, ApiError> {
    let Some(text) = text else { return Ok(MUTE_FOR) };
    let span = duration::parse(text)
        .ok_or_else(|| ApiError::bad(format!("for is {text:?}; write a duration such as 30d")))?;
    if span.is_zero() || span > MAX_MUTE {
        let most = duration::format_exact(MAX_MUTE);
        return Err(ApiError::bad(format!(
            "for is {text:?}; it must be longer than 0s and at most {most}"
        )));
    }
    Ok(span)
}

/// Parses a body as a JSON object.
pub(super) fn parse_object<B: DeserializeOwned>(body: &[u8]) -> Result<B, ApiError> {
    serde_json::from_slice(json_object(body)?).map_err(invalid_body)
}

/// The body, if it is an object: serde would also accept a list, as the fields in order.
fn json_object(body: &[u8]) -> Result<&[u8], ApiError> {
    match body.trim_ascii_start().first() {
        Some(b'{') => Ok(body),
        _ => Err(invalid_body("it is not a JSON object")),
    }
}

fn invalid_body(why: impl Display) -> ApiError {
    ApiError::bad(format!("the body is not valid: {why}"))
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
            Denied::Run { requests, left_out, .. } => {
                Self::conflict(why, Conflict::Run { requests, left_out })
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

/// An operator's reason; an empty text counts as no reason.
fn reason(why: Option<String>) -> Result<Option<String>, ApiError> {
    let why = why.filter(|why| !why.is_empty());
    match &why {
        Some(why) if why.chars().count() > MAX_WHY => {
            Err(ApiError::bad(format!("why is longer than {MAX_WHY} characters")))
        }
        _ => Ok(why),
    }
}

/// Parses a scope; without a text, it is everything.
fn read_scope(text: Option<&str>) -> Result<SuspensionScope, ApiError> {
    text.unwrap_or("all").parse().map_err(ApiError::bad)
}

fn known_node(plan: &Plan, name: &str) -> Result<(), ApiError> {
    let names = || plan.snapshot.nodes().iter().map(|node| &*node.name);
    if names().any(|known| known == name) {
        return Ok(());
    }
    let names: Vec<&str> = names().collect();
    if names.is_empty() {
        let why = "not ordered: nothing can start yet, because CouchDB has not named any node";
        return Err(ApiError::not_yet(why));
    }
    Err(ApiError::absent(format!("no node is called {name:?}; nodes: {}", names.join(", "))))
}

/// Checks that the database or the node of a run exists.
pub(super) fn known_scope(plan: &Plan, scope: &RunScope) -> Result<(), ApiError> {
    match scope {
        RunScope::All => Ok(()),
        RunScope::Node(name) => known_node(plan, name),
        RunScope::Database(name) => known_database(plan, name),
    }
}

/// Checks that there is a database of this name.
pub(super) fn known_database(plan: &Plan, name: &str) -> Result<(), ApiError> {
    let is_known = plan.snapshot.databases().any(|(_, db)| db.db == name);
    is_known.then_some(()).ok_or_else(|| ApiError::absent(report::no_database(plan, name)))
}

fn known_channel(plan: &Plan, name: &str) -> Result<(), ApiError> {
    check_channel(plan, Some(name)).map_err(ApiError::absent)
}

/// All targets that a text matches. A deleted target may still be in quarantine, so any id is
/// accepted.
fn several(plan: &Plan, text: &str) -> Result<TargetSelector, ApiError> {
    if text.parse::<TargetId>().is_err() && report::find(plan, text) == Found::None {
        return Err(ApiError::absent(report::no_match(plan, text)));
    }
    Ok(report::selector(plan, text))
}

/// The only compactable target that a text matches. If several match and only one of them is a
/// database file, returns that file.
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
            let why = format!("{text:?} matches {} targets; give one target's id", all.len());
            Err(ApiError::conflict(why, Conflict::Ambiguous { candidates }))
        }
    }
}
