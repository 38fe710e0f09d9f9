//! The web surface: metrics, the JSON API, probes and a page for people.
//!
//! Owns nothing but routes: it reads the plan and the statuses other tasks published and
//! never asks CouchDB, so that it answers at once whatever CouchDB does. Orders go to the
//! service, where the operator allowed them, and are answered when they were carried out.

mod admin;
mod answer;
mod api;
mod facts;
mod guard;
mod metrics;
mod openapi;
pub mod orders;
mod page;
mod peer;
mod probes;
mod query;
mod sd;
mod serve;
mod socket;
mod updates;
mod web;

pub use metrics::families;
pub use openapi::document as openapi;
pub use orders::Order;
pub use serve::{ConnectionLimits, listen, serve, serve_socket};
pub use socket::{AdminSocket, SocketError};
pub use web::Web;

use crate::{
    act::{job_state, takeover::Takeovers, warmer::IndexBuilds},
    feeds::{feed_client, feed_server::FeedHandle},
    model::channel::Mode,
    plan::Plan,
    scan,
    store::journal::Journal,
    tasks::unwrap_join,
};
use axum::{
    Extension, Router,
    http::StatusCode,
    middleware,
    response::{IntoResponse, Response},
    routing::{any, get, post},
};
use couchdb_client::{self, CertificateEnds};
use guard::ConcurrencyLimit;
use std::sync::Arc;
use tokio::{
    sync::{mpsc, watch},
    task::JoinError,
};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Scrapes that may be under way at a time, as in Prometheus's own exporters; one more takes
/// the place of a client that reads nothing, or is answered 503.
const SCRAPES: usize = 40;

/// Answers of the API that may be worked out at a time: each may sort a million targets.
const ANSWERS: usize = 4;

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

impl About {
    /// What has to be said of a simulated cluster, by the mode in which it is looked after.
    #[must_use]
    pub fn simulation(&self, mode: Mode) -> Option<&'static str> {
        self.simulated.then_some(match mode {
            Mode::Enforce => {
                "This cluster is a simulation inside the process: no CouchDB is asked, no byte is real. The mode is enforce, so that compactions of simulated files are started; nothing outside the process is touched."
            }
            Mode::Advise => {
                "This cluster is a simulation inside the process: no CouchDB is asked, no byte is real. The mode is advise: no compaction is started, in the simulation neither."
            }
        })
    }
}

/// The configuration in force, as far as others may see it.
#[derive(Clone, Debug, Default)]
pub struct ConfigStatus {
    /// The effective configuration, secrets replaced.
    pub shown: serde_json::Value,
    /// The mode in force.
    pub mode: Mode,
    /// Whether the last reload took effect.
    pub reload_successful: bool,
    /// When a configuration last took effect.
    pub loaded_at: wall_clock::Moment,
    /// Keys whose new value waits for a restart.
    pub needs_restart: Vec<String>,
}

/// Which orders are taken over HTTP.
#[derive(Clone, Debug, Default)]
pub struct Allow {
    /// Reload and quit.
    pub lifecycle: bool,
    /// All others; suspending and resuming are taken over the Unix socket without.
    pub admin: bool,
    /// Host names that are this machine's own, beside localhost, addresses and those of its
    /// certificate: an order with any other name in `Host` may come through DNS rebinding.
    pub names: Arc<[String]>,
}

/// Everything the handlers read.
#[derive(Clone, Debug)]
pub struct State {
    /// The plan published last.
    pub plan: watch::Receiver<Arc<Plan>>,
    /// What the scanner says of itself.
    pub status: watch::Receiver<Arc<scan::Status>>,
    /// How the URLs of CouchDB in the settings answer.
    pub couchdb: watch::Receiver<Arc<[couchdb_client::EntryStatus]>>,
    /// What became of this process's own jobs.
    pub counts: watch::Receiver<Arc<job_state::JobCounters>>,
    /// The program.
    pub about: Arc<About>,
    /// What times in questions count back from.
    pub clock: Clock,
    /// The configuration in force.
    pub config: watch::Receiver<Arc<ConfigStatus>>,
    /// What is heard of databases.
    pub changes: watch::Receiver<Arc<feed_client::FeedClientStatus>>,
    /// What is taken over from smoosh.
    pub takeovers: watch::Receiver<Arc<Takeovers>>,
    /// When the certificates end with which CouchDB is reached.
    pub certificates: watch::Receiver<CertificateEnds>,
    /// Which view indexes lag, and what is done about it.
    pub builds: watch::Receiver<Arc<IndexBuilds>>,
    /// Counters and histograms of what happened.
    pub registry: prometheus::Registry,
    /// What is remembered, where anything is.
    pub journal: Option<Journal>,
    /// What happened to databases, where that is written down.
    pub feed: Option<FeedHandle>,
    /// Where orders go.
    pub orders: mpsc::Sender<Order>,
    /// Which of them are taken.
    pub allow: Allow,
    /// Who may ask.
    pub web: Web,
    /// Ends what waits.
    pub stop: CancellationToken,
}

/// The routes.
pub fn router(state: State) -> Router {
    let web = state.web.clone();
    let api = Router::new()
        .route("/status", get(api::status))
        .route("/targets", get(api::targets))
        .route("/facts", get(facts::facts))
        .route("/queue", get(api::queue))
        .route("/plan", get(api::plan))
        .route("/jobs", get(api::jobs))
        .route("/explain", get(api::explain))
        .route("/history", get(api::history))
        .route("/events", get(api::events))
        .route("/config", get(api::config))
        .route("/openapi.json", get(openapi::openapi))
        .route("/suspend", post(admin::suspend))
        .route("/resume", post(admin::resume))
        .route("/compact", post(admin::compact))
        .route("/release", post(admin::release))
        .route("/rescan", post(admin::rescan))
        .route("/flush", post(admin::flush))
        .layer(Extension(ConcurrencyLimit::new(ANSWERS)))
        .fallback(api::not_found)
        .method_not_allowed_fallback(api::wrong_method);
    Router::new()
        .route("/", get(page::landing))
        .route("/metrics", get(metrics::metrics).layer(Extension(metrics::Scrapes::new(SCRAPES))))
        .route("/sd", get(sd::discovery))
        .route("/_db_updates", any(updates::updates))
        .route("/-/healthy", get(probes::healthy))
        .route("/-/ready", get(probes::ready))
        .route("/-/reload", post(probes::reload))
        .route("/-/quit", post(probes::quit))
        .fallback(probes::not_found)
        .method_not_allowed_fallback(probes::wrong_method)
        .nest("/api/v1", api)
        // A nested router does not match its own path with a slash at the end.
        .route("/api/v1/", any(api::not_found))
        .layer(middleware::map_response(guard::add_security_headers))
        .layer(middleware::from_fn_with_state(web, web::authenticate))
        .with_state(state)
}

/// The answer for work that was lost: its panic goes on here, and where the runtime ends
/// no client is left to answer.
fn lost(failed: JoinError) -> Response {
    let answered = unwrap_join::<Response>(Err(failed));
    answered.unwrap_or_else(|| {
        (StatusCode::SERVICE_UNAVAILABLE, "recliner is stopping\n").into_response()
    })
}

#[cfg(test)]
mod tests;
