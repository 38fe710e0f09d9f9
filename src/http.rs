//! The web surface: metrics, the JSON API, probes and a page for people.
//!
//! Owns nothing but routes: it reads the plan and the statuses other tasks published and
//! never asks CouchDB, so that it answers at once whatever CouchDB does. Orders (reload,
//! quit) go to the service, and only where the operator allowed them.

mod api;
mod metrics;
mod page;
mod probes;
mod query;

use crate::{plan::Plan, scanner};
use axum::{
    Router,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{any, get},
};
use std::sync::Arc;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinError,
};

/// What the program says of itself.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Its version.
    pub version: &'static str,
    /// The commit it was built from, where that was known.
    pub revision: &'static str,
    /// Whether the cluster is a simulation.
    pub simulated: bool,
}

/// The configuration in force, as far as others may see it.
#[derive(Clone, Debug, Default)]
pub struct ConfigStatus {
    /// The effective configuration, secrets replaced.
    pub shown: serde_json::Value,
    /// The mode in force.
    pub mode: crate::channel::Mode,
    /// Whether the last reload took effect.
    pub reload_successful: bool,
    /// When a configuration last took effect.
    pub loaded_at: crate::clock::Moment,
    /// Keys whose new value waits for a restart.
    pub needs_restart: Vec<String>,
}

/// What an operator may order over HTTP.
#[derive(Debug)]
pub enum Order {
    /// Read the configuration again; answers with why not.
    Reload(oneshot::Sender<Result<(), String>>),
    /// Stop.
    Quit,
}

/// Everything the handlers read.
#[derive(Clone, Debug)]
pub struct State {
    /// The plan published last.
    pub plan: watch::Receiver<Arc<Plan>>,
    /// The scanner.
    pub scanner: scanner::Handle,
    /// The program.
    pub about: Arc<About>,
    /// The configuration in force.
    pub config: watch::Receiver<Arc<ConfigStatus>>,
    /// Counters and histograms of what happened.
    pub registry: prometheus::Registry,
    /// Where orders go, if they are allowed.
    pub orders: Option<mpsc::Sender<Order>>,
}

/// The routes.
pub fn router(state: State) -> Router {
    Router::new()
        .route("/", get(page::landing))
        .route("/metrics", get(metrics::metrics))
        .route("/-/healthy", get(probes::healthy))
        .route("/-/ready", get(probes::ready))
        .route("/-/reload", any(probes::reload))
        .route("/-/quit", any(probes::quit))
        .route("/api/v1/status", get(api::status))
        .route("/api/v1/targets", get(api::targets))
        .route("/api/v1/queue", get(api::queue))
        .route("/api/v1/explain", get(api::explain))
        .route("/api/v1/config", get(api::config))
        .fallback(probes::not_found)
        .with_state(state)
}

/// The answer for work that was lost: its panic goes on here, and where the runtime ends
/// there is nobody left to answer.
fn lost(failed: JoinError) -> Response {
    match failed.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "recliner is stopping\n").into_response(),
    }
}

#[cfg(test)]
mod tests;
