//! The HTTP server: metrics, the JSON API, probes, the console and the book.
//!
//! Owns only routes. It reads the published plan and the published states of other tasks and does
//! not query CouchDB, so it responds at once whatever state CouchDB is in; only `preflight` makes a
//! task read one document. Orders go to the service, if the operator allowed them, and are answered
//! once they have been carried out.

mod admin;
mod advice;
mod answer;
mod backup;
mod changes;
mod compression;
mod concurrency_limit;
mod console;
mod databases;
mod docs;
mod error;
mod explain;
mod facts;
mod fleet;
mod forecasts;
mod guard;
mod journal;
mod kept_reasons;
mod mcp;
mod metrics;
mod openapi;
pub(crate) mod orders;
mod otlp;
mod peer;
mod preflight;
mod probes;
mod query;
mod queues;
mod reads;
mod route;
mod schemas;
mod scorecard;
mod sd;
mod server;
mod shared_limits;
mod socket;
mod state;
mod status;
mod summary;
mod targets;
mod turn;
mod updates;
mod web;
mod what_if;
mod xray;

pub(crate) use what_if::smoosh_channels;

pub use fleet::{FleetState, fleet_router};
pub use kept_reasons::KeptReasons;
pub use mcp::{AskApi, Assistant, Parameters, Question};
pub use metrics::families;
pub use orders::Command;
pub use otlp::{OtlpMetrics, OtlpPush};
pub use server::{ConnectionLimits, listen, serve, serve_socket};
pub use socket::{AdminSocket, SocketError};
pub use state::{Allow, AppState, ConfigStatus, ProcessInfo};
pub use web::WebAccess;

use crate::{serve::report, tasks::unwrap_join};
use axum::{
    Router,
    extract::{OriginalUri, State},
    http::{HeaderValue, StatusCode},
    middleware,
    response::{IntoResponse, Response},
    routing::{any, get},
};
pub use concurrency_limit::Limits;
use route::{Operation, Route};
use serde_json::Value;
use tokio::task::JoinError;

/// The prefix of the JSON API.
const API: &str = "/api/v1";

/// Every route that the OpenAPI document describes, with its handler.
fn routes() -> Vec<Route> {
    let mut all: Vec<Route> = [
        status::routes(),
        databases::routes(),
        targets::routes(),
        queues::routes(),
        explain::routes(),
        facts::routes(),
        what_if::routes(),
        scorecard::routes(),
        changes::routes(),
        reads::routes(),
        summary::routes(),
        forecasts::routes(),
        fleet::routes(),
        shared_limits::routes(),
        advice::routes(),
        preflight::routes(),
        xray::routes(),
        journal::routes(),
        backup::routes(),
        admin::routes(),
        console::first_page_route(),
        docs::routes(),
        metrics::routes(),
        sd::routes(),
        updates::routes(),
        probes::routes(),
    ]
    .into_iter()
    .flatten()
    .collect();
    all.push(openapi::route(all.iter().map(|route| route.operation.clone()).collect()));
    all
}

/// The OpenAPI document of a service with these channels.
pub fn openapi(channels: &[&str]) -> Value {
    let operations: Vec<Operation> = routes().into_iter().map(|route| route.operation).collect();
    openapi::document(&operations, channels)
}

/// The router of all routes.
pub fn router(state: AppState) -> Router {
    let (allow, web) = (state.allow.clone(), state.web.clone());
    let routes = routes();
    let operations: Vec<Operation> = routes.iter().map(|it| it.operation.clone()).collect();
    let route_names = route::known_routes(&operations);
    let (mut api, mut all) = (Router::new(), Router::new());
    for Route { handler, operation } in routes {
        match operation.path.strip_prefix(API) {
            Some(path) => api = api.route(path, handler),
            None => all = all.route(operation.path, handler),
        }
    }
    all = match state.allow.mcp {
        true => all.route_service(mcp::PATH, mcp::service(api.clone(), state.clone())),
        false => all.route(mcp::PATH, any(mcp::not_enabled)),
    };
    let no_route = async move |OriginalUri(uri): OriginalUri| route::no_route(&uri, &route_names);
    let api = api
        .fallback(no_route.clone())
        .method_not_allowed_fallback(route::wrong_method)
        .layer(middleware::map_response_with_state(state.clone(), name_cluster));
    let pages = console::routes().layer(middleware::from_fn(compression::compress));
    let all = all
        .merge(pages)
        .route("/docs", get(docs::with_slash))
        .fallback(console::not_found)
        .method_not_allowed_fallback(probes::wrong_method)
        .nest(API, api)
        // A nested router does not match its own path with a trailing slash.
        .route("/api/v1/", any(no_route))
        .with_state(state);
    guarded(all, allow, web)
}

/// The routes for those who may ask, with security headers on every response.
fn guarded(router: Router, allow: Allow, web: WebAccess) -> Router {
    let hosts = guard::HostCheck::new(allow);
    router
        .layer(middleware::from_fn_with_state(hosts, guard::refuse_unknown_host))
        .layer(middleware::from_fn_with_state(web, web::authenticate))
        .layer(middleware::map_response(guard::add_security_headers))
}

/// Names the answer's cluster, so that a client that asked the wrong recliner can tell.
async fn name_cluster(State(state): State<AppState>, mut response: Response) -> Response {
    let name = report::cluster_name(&state.plan.borrow().snapshot, state.about.simulated);
    if let Some(name) = name.and_then(|name| HeaderValue::from_str(&name).ok()) {
        response.headers_mut().insert(report::CLUSTER_HEADER, name);
    }
    response
}

/// The response when a request's task has ended without an answer. A panic of the task is resumed
/// here; if the runtime is shutting down, nobody reads the response.
fn lost(failed: JoinError) -> Response {
    let answered = unwrap_join::<Response>(Err(failed));
    answered.unwrap_or_else(|| {
        (StatusCode::SERVICE_UNAVAILABLE, "recliner is stopping\n").into_response()
    })
}

#[cfg(test)]
pub(crate) mod tests;
