//! The HTTP server: metrics, the JSON API, probes, the console and the book.
//!
//! Owns only routes: it reads the published plan and the published states of other tasks and does not
//! ask CouchDB, so it responds at once whatever CouchDB does; only `preflight` has one document read for it. Orders go to the service, if the
//! operator allowed them, and are answered when they have been carried out.

mod admin;
mod advice;
mod answer;
mod api;
mod backup;
mod compression;
mod console;
mod docs;
mod facts;
mod guard;
mod metrics;
mod openapi;
pub(crate) mod orders;
mod peer;
mod preflight;
mod probes;
mod query;
mod scorecard;
mod sd;
mod serve;
mod socket;
mod state;
mod updates;
mod web;
mod what_if;

pub(crate) use what_if::smoosh_channels;

pub use metrics::families;
pub use openapi::document as openapi;
pub use orders::Command;
pub use serve::{ConnectionLimits, listen, serve, serve_socket};
pub use socket::{AdminSocket, SocketError};
pub use state::{Allow, AppState, ConfigStatus, ProcessInfo};
pub use web::WebAccess;

use crate::{serve::report::orders::OrderName, tasks::unwrap_join, text::Label as _};
use axum::{
    Extension, Router,
    http::StatusCode,
    middleware,
    response::{IntoResponse, Response},
    routing::{any, get, post},
};
use guard::ConcurrencyLimit;
use tokio::task::JoinError;

/// The maximum number of concurrent scrapes, as in Prometheus's own exporters. An additional one
/// displaces a client that does not read, or gets 503.
const SCRAPES: usize = 40;

/// The maximum number of API responses computed at a time: each may sort a million targets.
const ANSWERS: usize = 4;

/// The routes.
pub fn router(state: AppState) -> Router {
    let web = state.web.clone();
    let turns = ConcurrencyLimit::new(ANSWERS);
    let forecasts = what_if::Turns::default();
    let orders = OrderName::each().fold(Router::new(), |router, order| {
        router.route(&["/", order.label()].concat(), admin::route(order))
    });
    let api = orders
        .route("/status", get(api::status))
        .route("/space", get(api::space))
        .route("/targets", get(api::targets))
        .route("/facts", get(facts::facts))
        .route("/queue", get(api::queue))
        .route("/plan", get(api::plan))
        .route("/jobs", get(api::jobs))
        .route("/explain", get(api::explain))
        .route("/what-if", post(what_if::what_if).layer(Extension(forecasts.clone())))
        .route("/scorecard", get(scorecard::scorecard))
        .route("/advice", get(advice::advice))
        .route("/usage", get(advice::usage))
        .route("/preflight", preflight::route())
        .route("/history", get(api::history))
        .route("/history/hours", get(api::hours))
        .route("/events", get(api::events))
        .route("/config", get(api::config))
        .route("/permissions", get(admin::permissions))
        .route("/backup", get(backup::backup))
        .route("/openapi.json", openapi::route())
        .layer(Extension(turns.clone()))
        .fallback(api::not_found)
        .method_not_allowed_fallback(api::wrong_method);
    let pages = console::routes(turns, forecasts, console::LivePages::default())
        .route("/docs", get(docs::with_slash))
        .route("/docs/", get(docs::first_page))
        .route("/docs/{page}", get(docs::one_page))
        .layer(middleware::from_fn(compression::compress));
    Router::new()
        .merge(pages)
        .route("/docs/images/{image}", get(docs::image))
        .route("/metrics", get(metrics::metrics).layer(Extension(metrics::Scrapes::new(SCRAPES))))
        .route("/sd", get(sd::discovery))
        .route("/_db_updates", any(updates::updates))
        .route("/-/healthy", get(probes::healthy))
        .route("/-/ready", get(probes::ready))
        .route("/-/reload", post(probes::reload))
        .route("/-/quit", post(probes::quit))
        .fallback(console::not_found)
        .method_not_allowed_fallback(probes::wrong_method)
        .nest("/api/v1", api)
        // A nested router does not match its own path with a slash at the end.
        .route("/api/v1/", any(api::not_found))
        .layer(middleware::from_fn_with_state(state.allow.clone(), guard::refuse_unknown_host))
        .layer(middleware::map_response(guard::add_security_headers))
        .layer(middleware::from_fn_with_state(web, web::authenticate))
        .with_state(state)
}

/// The response for a task that was lost. Its panic is resumed here; if the runtime is shutting
/// down, no client is left.
fn lost(failed: JoinError) -> Response {
    let answered = unwrap_join::<Response>(Err(failed));
    answered.unwrap_or_else(|| {
        (StatusCode::SERVICE_UNAVAILABLE, "recliner is stopping\n").into_response()
    })
}

#[cfg(test)]
mod tests;
