//! Probes for supervisors, and the lifecycle orders.

use super::{
    guard::{self, Permission},
    orders::Command,
    route::{self, Operation, Route},
    state::AppState,
};
use crate::{model::records::JournalFailure, plan::Plan, store::journal::Journal};
use axum::{
    extract::{self, Request},
    http::{Method, StatusCode},
    routing::{get, post},
};
use std::sync::Arc;
use tokio::sync::{mpsc::error::TrySendError, oneshot};

pub(super) fn routes() -> Vec<Route> {
    const LIFECYCLE: &[(u16, &str)] = &[route::FORBIDDEN, route::WRONG_TYPE, route::NOT_TRIED];
    const RELOAD: &[(u16, &str)] = &[
        route::FORBIDDEN,
        route::WRONG_TYPE,
        (500, "The new configuration is invalid; the old one stays in force."),
        route::NOT_TRIED,
    ];
    const NOT_READY: &[(u16, &str)] = &[(503, "Not ready, with the reason.")];
    let open = |operation| Operation { is_open: true, ..operation };
    let of_order = |operation| Operation { method: "post", tag: "order", ..operation };
    let flag = "403 without `--web.enable-lifecycle`.";
    vec![
        Route::plain("/-/healthy", "healthy", get(healthy), "Whether the process answers.", &[])
            .described(open)
            .detail("200 while the process responds."),
        Route::plain("/-/ready", "ready", get(ready), "Whether the first sweep has ended.", NOT_READY)
            .described(open)
            .detail("200 after the first sweep over all nodes that answer, otherwise 503 with the reason; also 503 while the journal belongs to another cluster."),
        Route::plain("/-/reload", "reload", post(reload), "Read the configuration again.", RELOAD)
            .described(of_order)
            .detail(flag),
        Route::plain("/-/quit", "quit", post(quit), "Stop recliner.", LIFECYCLE).described(of_order).detail(flag),
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
async fn reload(
    extract::State(state): extract::State<AppState>,
    request: Request,
) -> Result<&'static str, TextResponse> {
    let (answer, answered) = oneshot::channel();
    order(&state, &request, Command::Reload(answer))?;
    match answered.await {
        Ok(Ok(())) => Ok("the new configuration is active\n"),
        Ok(Err(why)) => {
            let why = format!("{why}\nthe old configuration stays active\n");
            Err((StatusCode::INTERNAL_SERVER_ERROR, why))
        }
        Err(_) => Err(stopping()),
    }
}

/// Stops the program.
async fn quit(
    extract::State(state): extract::State<AppState>,
    request: Request,
) -> Result<&'static str, TextResponse> {
    order(&state, &request, Command::Quit)?;
    Ok("recliner is stopping\n")
}

/// The response to any other path.
pub(super) fn not_found() -> TextResponse {
    (StatusCode::NOT_FOUND, "no such page; / lists the pages\n".into())
}

/// The response to a wrong method; the router adds the supported ones.
pub(super) async fn wrong_method(method: Method) -> TextResponse {
    (StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not supported here\n"))
}

/// Passes a lifecycle order on, if it is allowed.
fn order(state: &AppState, request: &Request, order: Command) -> Result<(), TextResponse> {
    let by = guard::authorize_order(&state.allow, Permission::Lifecycle, request)
        .map_err(|why| (why.status(), format!("{why}\n")))?;
    tracing::info!(order = request.uri().path(), by, "received an order");
    state.orders.try_send(order).map_err(|why| match why {
        TrySendError::Full(_) => {
            let busy = "another order is being processed; try again\n";
            (StatusCode::SERVICE_UNAVAILABLE, busy.to_owned())
        }
        TrySendError::Closed(_) => stopping(),
    })
}

fn stopping() -> TextResponse {
    (StatusCode::SERVICE_UNAVAILABLE, "recliner is stopping\n".to_owned())
}
