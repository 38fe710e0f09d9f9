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
mod updates;
mod web;
mod what_if;

pub(crate) use what_if::smoosh_channels;

pub use metrics::families;
pub use openapi::document as openapi;
pub use orders::Order;
pub use serve::{ConnectionLimits, listen, serve, serve_socket};
pub use socket::{AdminSocket, SocketError};
pub use web::WebAccess;

use crate::{
    act::{job_state, takeover::Takeovers, warmer::IndexBuilds},
    advice::AdviceView,
    feeds::{feed_client, feed_server::FeedHandle},
    model::channel::Mode,
    plan::Plan,
    scan,
    sources::{node_settings::NodeSettings, present_design::DesignReader},
    store::journal::Journal,
    tasks::unwrap_join,
    what_if::scorecard::ScorecardView,
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

/// The maximum number of concurrent scrapes, as in Prometheus's own exporters. An additional one
/// displaces a client that does not read, or gets 503.
const SCRAPES: usize = 40;

/// The maximum number of API responses computed at a time: each may sort a million targets.
const ANSWERS: usize = 4;

/// Information about this process.
#[derive(Clone, Debug)]
pub struct ProcessInfo {
    /// Its version.
    pub version: &'static str,
    /// The commit it was built from, or `unknown`.
    pub revision: &'static str,
    /// The date of that commit in UTC, or `unknown`.
    pub date: &'static str,
    /// Whether the cluster is a simulation.
    pub simulated: bool,
}

impl ProcessInfo {
    /// This build, as the build script recorded it.
    #[must_use]
    pub const fn of_this_build(simulated: bool) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            revision: env!("RECLINER_BUILD_REVISION"),
            date: env!("RECLINER_BUILD_DATE"),
            simulated,
        }
    }

    /// The date of the source; `None` if the build does not know it.
    #[must_use]
    pub fn known_date(&self) -> Option<&'static str> {
        // As the build script writes it.
        (self.date != "unknown").then_some(self.date)
    }

    /// Whether it is a developer's build, which does not know its origin: it would be remade after each commit.
    #[must_use]
    pub fn is_development(&self) -> bool {
        cfg!(debug_assertions) && self.revision == "unknown"
    }

    /// The notice about a simulated cluster, which depends on the mode.
    #[must_use]
    pub fn simulation(&self, mode: Mode) -> Option<&'static str> {
        self.simulated.then_some(match mode {
            Mode::Enforce => {
                "This cluster is a simulation inside the process: no CouchDB is asked and no data is real. The mode is enforce, so compactions of simulated files start; nothing outside the process is touched."
            }
            Mode::Advise => {
                "This cluster is a simulation inside the process: no CouchDB is asked and no data is real. The mode is advise: no compaction starts, not even in the simulation."
            }
        })
    }
}

/// The active configuration, as it is shown to clients.
#[derive(Clone, Debug, Default)]
pub struct ConfigStatus {
    /// The effective configuration, with secrets replaced.
    pub shown: serde_json::Value,
    /// The active mode.
    pub mode: Mode,
    /// Whether the last reload took effect.
    pub reload_successful: bool,
    /// When a configuration last took effect.
    pub loaded_at: wall_clock::Moment,
    /// Keys whose new value needs a restart.
    pub needs_restart: Vec<String>,
}

/// The orders that are allowed over HTTP.
#[derive(Clone, Debug, Default)]
pub struct Allow {
    /// Reload and quit.
    pub lifecycle: bool,
    /// All others. Suspend, resume and backup are always allowed over the Unix socket.
    pub admin: bool,
    /// Host names of this machine, besides localhost, addresses and the names in its certificate. An
    /// order with any other name in `Host` may come through DNS rebinding.
    pub names: Arc<[String]>,
    /// Whether requests that read need such a `Host` too, if they have no user.
    pub checks_host: bool,
}

/// Everything that the handlers read.
#[derive(Clone, Debug)]
pub struct AppState {
    /// The latest plan.
    pub plan: watch::Receiver<Arc<Plan>>,
    /// What to do about the cluster.
    pub advice: watch::Receiver<Arc<AdviceView>>,
    /// The scorecard of advice.
    pub scorecard: watch::Receiver<Arc<ScorecardView>>,
    /// The scanner's state.
    pub status: watch::Receiver<Arc<scan::ScanStatus>>,
    /// The state of each configured CouchDB URL.
    pub couchdb: watch::Receiver<Arc<[couchdb_client::EntryStatus]>>,
    /// The results of this process's own jobs.
    pub counts: watch::Receiver<Arc<job_state::JobCounters>>,
    /// This process.
    pub about: Arc<ProcessInfo>,
    /// The clock, to which relative times in queries refer.
    pub clock: Clock,
    /// The active configuration.
    pub config: watch::Receiver<Arc<ConfigStatus>>,
    /// The state of the feeds.
    pub changes: watch::Receiver<Arc<feed_client::FeedClientStatus>>,
    /// The smoosh channels that are taken over.
    pub takeovers: watch::Receiver<Arc<Takeovers>>,
    /// How the nodes are set.
    pub node_settings: watch::Receiver<Arc<NodeSettings>>,
    /// Reads design documents.
    pub designs: Arc<dyn DesignReader>,
    /// When the certificates for connections to CouchDB expire.
    pub certificates: watch::Receiver<CertificateEnds>,
    /// Indexes that lag, and their builds.
    pub builds: watch::Receiver<Arc<IndexBuilds>>,
    /// Counters and histograms of what happened.
    pub registry: prometheus::Registry,
    /// The journal, if there is one.
    pub journal: Option<Journal>,
    /// The feed of database events, if there is one.
    pub feed: Option<FeedHandle>,
    /// The channel for orders.
    pub orders: mpsc::Sender<Order>,
    /// The orders that are allowed.
    pub allow: Allow,
    /// Users and certificates.
    pub web: WebAccess,
    /// Ends waiting requests.
    pub stop: CancellationToken,
}

/// The routes.
pub fn router(state: AppState) -> Router {
    let web = state.web.clone();
    let turns = ConcurrencyLimit::new(ANSWERS);
    let forecasts = what_if::Turns::default();
    let api = Router::new()
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
        .route("/advice/mute", post(advice::mute))
        .route("/advice/unmute", post(advice::unmute))
        .route("/history", get(api::history))
        .route("/history/hours", get(api::hours))
        .route("/events", get(api::events))
        .route("/config", get(api::config))
        .route("/permissions", get(console::permissions))
        .route("/backup", get(backup::backup))
        .route("/openapi.json", openapi::route())
        .route("/suspend", post(admin::suspend))
        .route("/resume", post(admin::resume))
        .route("/compact", post(admin::compact))
        .route("/release", post(admin::release))
        .route("/rescan", post(admin::rescan))
        .route("/flush", post(admin::flush))
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
