//! Probes for supervisors, and the lifecycle orders.

use super::{
    guard::{self, OrderRefused, Permission},
    orders::Command,
    route::{self, Operation, Route},
    state::AppState,
};
use crate::{model::records::JournalFailure, plan::Plan, store::journal::Journal};
use axum::{
    extract::{self, Request},
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use std::sync::Arc;
use tokio::sync::{
    mpsc::{Sender, error::TrySendError},
    oneshot,
};

pub(super) fn routes() -> Vec<Route> {
    const LIFECYCLE: &[(u16, &str)] = &[route::FORBIDDEN, route::WRONG_TYPE, route::NOT_TRIED];
    const RELOAD: &[(u16, &str)] = &[
        route::FORBIDDEN,
        route::WRONG_TYPE,
        (500, "The new configuration is invalid; the old one stays in force."),
        route::NOT_TRIED,
    ];
    const NOT_READY: &[(u16, &str)] = &[(503, "Not ready, and why.")];
    let open = |operation| Operation { is_open: true, ..operation };
    let order = |operation| Operation { method: "post", tag: "order", ..operation };
    let flag = "403 without `--web.enable-lifecycle`.";
    vec![
        Route::plain("/-/healthy", "healthy", get(healthy), "Whether the process answers.", &[])
            .described(open)
            .detail("200 while the process responds."),
        Route::plain("/-/ready", "ready", get(ready), "Whether the first sweep has ended.", NOT_READY)
            .described(open)
            .detail("200 after the first sweep over the nodes that answer, otherwise 503 with the reason; also 503 while the journal belongs to another cluster."),
        Route::plain("/-/reload", "reload", post(reload), "Read the configuration again.", RELOAD)
            .described(order)
            .detail(flag),
        Route::plain("/-/quit", "quit", post(quit), "Stop recliner.", LIFECYCLE).described(order).detail(flag),
    ]
}

type TextResponse = (StatusCode, String);

/// Succeeds while the process responds.
pub(super) async fn healthy() -> &'static str {
    "recliner is healthy\n"
}

/// Succeeds after the first sweep over the nodes that answer, unless the journal belongs to another
/// cluster: then this process watches a cluster that it was not set up for.
pub(super) async fn ready(extract::State(state): extract::State<AppState>) -> TextResponse {
    let failure = journal_failure(&state.plan.borrow(), state.journal.as_ref());
    if let Some(why @ JournalFailure::OtherCluster(_)) = failure {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"));
    }
    unready(&state).unwrap_or_else(|| (StatusCode::OK, "recliner is ready\n".into()))
}

/// Why the journal cannot be used, if it cannot. The plan only knows about failures of its own
/// writes, which in advise mode may be days apart; the journal knows the rest.
pub(super) fn journal_failure(plan: &Plan, journal: Option<&Journal>) -> Option<JournalFailure> {
    let own_failure = journal.and_then(|journal| journal.health().borrow().failure.clone());
    let (_, why) = own_failure.or_else(|| plan.conditions.constraints.journal_failure.clone())?;
    Some(why)
}

/// The response of routes that need a complete first sweep, until it has ended.
pub(super) fn unready(state: &AppState) -> Option<TextResponse> {
    let status = Arc::clone(&state.status.borrow());
    if status.is_ready(state.plan.borrow().snapshot.version()) {
        return None;
    }
    let why = status.problem.clone().or_else(|| status.last_error.clone());
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    Some((StatusCode::SERVICE_UNAVAILABLE, format!("the first sweep has not ended{why}\n")))
}

/// Reads the configuration again; if it is invalid, the old one stays active.
pub(super) async fn reload(
    extract::State(state): extract::State<AppState>,
    request: Request,
) -> Response {
    let orders = match allowed(&state, &request) {
        Ok(orders) => orders,
        Err(refused) => return refused.into_response(),
    };
    let (answer, answered) = oneshot::channel();
    if let Err(why) = orders.try_send(Command::Reload(answer)) {
        return LifecycleRefused::from(why).into_response();
    }
    match answered.await {
        Ok(Ok(())) => "the new configuration is active\n".into_response(),
        Ok(Err(why)) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{why}\nthe old configuration stays active\n"),
        )
            .into_response(),
        Err(_) => LifecycleRefused::Stopping.into_response(),
    }
}

/// Stops the program.
pub(super) async fn quit(
    extract::State(state): extract::State<AppState>,
    request: Request,
) -> Response {
    let sent = allowed(&state, &request)
        .and_then(|orders| orders.try_send(Command::Quit).map_err(LifecycleRefused::from));
    match sent {
        Ok(()) => "recliner is stopping\n".into_response(),
        Err(refused) => refused.into_response(),
    }
}

/// The response to any other path.
pub(super) fn not_found() -> TextResponse {
    (StatusCode::NOT_FOUND, "no such page; / lists the pages\n".into())
}

/// The response to a wrong method; the router adds the supported ones.
pub(super) async fn wrong_method(method: Method) -> TextResponse {
    (StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not supported here\n"))
}

/// Why a lifecycle order is refused.
enum LifecycleRefused {
    NotTaken(OrderRefused),
    Busy,
    Stopping,
}

impl From<OrderRefused> for LifecycleRefused {
    fn from(why: OrderRefused) -> Self {
        Self::NotTaken(why)
    }
}

impl<T> From<TrySendError<T>> for LifecycleRefused {
    fn from(why: TrySendError<T>) -> Self {
        match why {
            TrySendError::Full(_) => Self::Busy,
            TrySendError::Closed(_) => Self::Stopping,
        }
    }
}

impl IntoResponse for LifecycleRefused {
    fn into_response(self) -> Response {
        let (code, why) = match self {
            Self::NotTaken(why) => (why.status(), why.to_string()),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "another order is being processed; try again".to_owned(),
            ),
            Self::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "recliner is stopping".to_owned()),
        };
        (code, why + "\n").into_response()
    }
}

/// The channel for commands, if this order is allowed.
fn allowed<'a>(
    state: &'a AppState,
    request: &Request,
) -> Result<&'a Sender<Command>, LifecycleRefused> {
    let by = guard::authorize_order(&state.allow, Permission::Lifecycle, request)?;
    tracing::info!(order = request.uri().path(), by, "received an order");
    Ok(&state.orders)
}
