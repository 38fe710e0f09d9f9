//! The state that handlers read, and the orders that are allowed.

use super::{
    concurrency_limit::Limits, kept_reasons::KeptReasons, orders::Command, web::WebAccess,
};
use crate::{
    act::{job_state, sharing::Sharing, takeover::Takeovers, warmer::IndexBuilds},
    advice::AdviceView,
    feeds::{feed_client, feed_server::FeedHandle},
    fleet::Fleet,
    ledger::Books,
    model::{channel::Mode, reads::Reads},
    plan::Plan,
    scan::{self, xrays::XrayHandle},
    serve::report::SimulatedWeek,
    sources::{node_settings::NodeSettings, present_design::DesignReader},
    store::journal::Journal,
    what_if::scorecard::ScorecardView,
};
use couchdb_client::CertificateEnds;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Information about this process.
#[derive(Clone, Debug)]
pub struct ProcessInfo {
    /// The version of recliner.
    pub version: &'static str,
    /// The commit it was built from, or `unknown`.
    pub revision: &'static str,
    /// The date of that commit in UTC, or `unknown`.
    pub date: &'static str,
    /// Whether the cluster is a simulation.
    pub simulated: bool,
    /// Totals of the simulated week before, by program.
    pub simulated_weeks: Vec<SimulatedWeek>,
}

impl ProcessInfo {
    /// This build, as the build script recorded it.
    pub const fn of_this_build(simulated: bool) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            revision: env!("RECLINER_BUILD_REVISION"),
            date: env!("RECLINER_BUILD_DATE"),
            simulated,
            simulated_weeks: Vec::new(),
        }
    }

    /// The date of the source; `None` if it is unknown.
    pub fn known_date(&self) -> Option<&'static str> {
        // The build script writes `unknown` for a missing date.
        (self.date != "unknown").then_some(self.date)
    }

    /// Whether it is a developer's build, which does not record its revision, so that a commit does
    /// not force a rebuild.
    pub fn is_development(&self) -> bool {
        cfg!(debug_assertions) && self.revision == "unknown"
    }

    /// The notice that the cluster is simulated, if it is; the text depends on the mode.
    pub fn simulation(&self, mode: Mode) -> Option<&'static str> {
        self.simulated.then_some(match mode {
            Mode::Enforce => {
                "A simulated cluster: no data is real, nothing else is touched. Mode enforce: recliner compacts."
            }
            Mode::Advise => {
                "A simulated cluster: no data is real, nothing else is touched. Mode advise: recliner starts nothing; the simulated smoosh compacts files after writes."
            }
        })
    }
}

/// The active configuration, as clients see it.
#[derive(Clone, Debug, Default)]
pub struct ConfigStatus {
    /// The effective configuration, with secrets replaced.
    pub shown: serde_json::Value,
    /// The active mode.
    pub mode: Mode,
    /// Price of a GiB of disk for a month.
    pub price_per_gib_month: Option<f64>,
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
    /// Questions of assistants, over the Model Context Protocol.
    pub mcp: bool,
    /// All other orders. Suspend, resume and backup are always allowed over the Unix socket.
    pub admin: bool,
    /// Host names of this machine, besides localhost, addresses and the names in its certificate. A
    /// request with any other name in `Host` may come through DNS rebinding.
    pub names: Arc<[String]>,
}

/// Everything that the handlers need.
#[derive(Clone, Debug)]
pub struct AppState {
    /// The latest plan.
    pub plan: watch::Receiver<Arc<Plan>>,
    /// The current advice about the cluster.
    pub advice: watch::Receiver<Arc<AdviceView>>,
    /// The scorecard of advice.
    pub scorecard: watch::Receiver<Arc<ScorecardView>>,
    /// The books of the ledger.
    pub ledger: watch::Receiver<Arc<Books>>,
    /// Who reads the indexes.
    pub reads: watch::Receiver<Arc<Reads>>,
    /// Other recliners.
    pub fleet: watch::Receiver<Arc<Fleet>>,
    /// Limits that several clusters share.
    pub sharing: Sharing,
    /// Why waste is not compacted, as the last sweep shows it.
    pub waste_reasons: KeptReasons,
    /// The scanner's state.
    pub status: watch::Receiver<Arc<scan::ScanStatus>>,
    /// The state of each configured CouchDB URL.
    pub couchdb: watch::Receiver<Arc<[couchdb_client::EntryStatus]>>,
    /// The results of this process's own jobs.
    pub counts: watch::Receiver<Arc<job_state::JobCounters>>,
    /// Information about this process.
    pub about: Arc<ProcessInfo>,
    /// The clock for relative times in queries.
    pub clock: Clock,
    /// The active configuration.
    pub config: watch::Receiver<Arc<ConfigStatus>>,
    /// The state of the feeds.
    pub changes: watch::Receiver<Arc<feed_client::FeedClientStatus>>,
    /// The smoosh channels that are taken over.
    pub takeovers: watch::Receiver<Arc<Takeovers>>,
    /// The settings of the nodes.
    pub node_settings: watch::Receiver<Arc<NodeSettings>>,
    /// Reads design documents.
    pub designs: Arc<dyn DesignReader>,
    /// What the bytes of databases' files are.
    pub xrays: XrayHandle,
    /// When the certificates for connections to CouchDB expire.
    pub certificates: watch::Receiver<CertificateEnds>,
    /// Indexes that lag, and their builds.
    pub builds: watch::Receiver<Arc<IndexBuilds>>,
    /// Counters and histograms that tasks update themselves.
    pub registry: prometheus::Registry,
    /// The journal, if there is one.
    pub journal: Option<Journal>,
    /// The feed of database events, if there is one.
    pub feed: Option<FeedHandle>,
    /// The channel for commands to the service.
    pub orders: mpsc::Sender<Command>,
    /// The orders that are allowed.
    pub allow: Allow,
    /// Users and certificates.
    pub web: WebAccess,
    /// Ends waiting requests.
    pub stop: CancellationToken,
    /// How many requests of each kind are worked on at a time.
    pub limits: Limits,
}
