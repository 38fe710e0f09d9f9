//! The service: creates and connects all tasks, in one place and in order.
//!
//! Owns startup, reload and shutdown. [`ClusterMonitor`] contains the client, scanner and planner of a
//! cluster; commands that look once use it on its own. [`Service`] adds the web server, signals and
//! orders. If a task ends on its own, the process ends.

mod cluster_monitor;
mod descriptors;
mod fleet;
mod journal_claim;
mod operator_log;
mod order_dispatcher;
mod process_metrics;
mod signals;
mod tasks;
mod tidy;

pub use cluster_monitor::{ClusterMonitor, Dependencies, owner_problem};
pub use fleet::{FleetServer, serve_fleet};
pub use tasks::TaskSet;
pub use tidy::{TidyEnd, TidyEvent, TidyReport, TidyScope};

use crate::{
    act::{
        job_state::Recovery,
        sharing::{Sharing, SharingTask},
    },
    config::{self, Loaded, Problems},
    feeds::feed_server::{self, FeedHandle},
    fleet::{Fleet, FleetTask},
    model::{
        records::JournalFailure,
        settings::{Settings, fleet::FleetSettings, otlp::OtlpSettings},
    },
    plan::disk::SpaceMeter,
    serve::http::{self, Command, ConfigStatus, ProcessInfo},
    sources::{couchdb::SetupError, inventory::Directories},
    store::journal::{self, Journal, Storage},
};
use axum::Router;
use couchdb_client::{CertificateEnds, Client, Transport};
use futures::FutureExt as _;
use order_dispatcher::OrderDispatcher;
use signals::ProcessSignals;
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot, watch as latest},
    time,
};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Time limit for tasks to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum number of HTTP orders that wait to be handled.
const ORDER_QUEUE_LEN: usize = 8;

/// Reads the configuration again.
pub type ReloadFn = Box<dyn FnMut() -> Result<Loaded, String> + Send>;

/// Why the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is in use or not local.
    #[error("cannot listen on {address}: {why}; choose another one with --web.listen-address")]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// The error of the system.
        why: io::Error,
    },
    /// The Unix socket cannot be created.
    #[error(transparent)]
    Socket(#[from] http::SocketError),
    /// The web configuration cannot be used, or users are required and missing.
    #[error(transparent)]
    Web(#[from] Problems),
    /// Signals cannot be received.
    #[error("cannot receive signals: {0}")]
    Signals(io::Error),
    /// The client cannot be created.
    #[error(transparent)]
    Connect(#[from] SetupError),
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] journal::JournalOpenError),
    /// Two metrics have the same name.
    #[error("cannot register metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Why the service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceEnd {
    /// It was asked to stop.
    Stopped,
    /// The named task ended unexpectedly.
    TaskEnded(&'static str),
}

/// Access to machines other than through CouchDB.
#[derive(Clone, Debug)]
pub struct HostAccess {
    /// Measures free space.
    pub meter: Arc<dyn SpaceMeter>,
    /// Directories of nodes in addition to those in the settings.
    pub directories: Option<Arc<dyn Directories>>,
}

/// A running service.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    monitor: ClusterMonitor,
    tasks: TaskSet,
    stop: CancellationToken,
    /// Tasks that store data for the others; they end last.
    storage_tasks: TaskSet,
    storage_stop: CancellationToken,
    journal_settings: latest::Sender<journal::JournalSettings>,
    fleet_settings: latest::Sender<FleetSettings>,
    sharing: Sharing,
    otlp_settings: latest::Sender<OtlpSettings>,
    web: http::WebAccess,
    settings: Settings,
    /// The settings at startup: changes that need a restart are not in force yet.
    initial_settings: Box<Settings>,
    config: latest::Sender<Arc<ConfigStatus>>,
    certificates: latest::Sender<CertificateEnds>,
    signals: ProcessSignals,
    commands: mpsc::Receiver<Command>,
    order_dispatcher: OrderDispatcher,
    clock: Clock,
}

/// Runs the journal apart from all other tasks, so that it can end last.
fn start_journal(journal: journal::JournalTask) -> (TaskSet, CancellationToken) {
    let (mut storage_tasks, stop) = (TaskSet::new(), CancellationToken::new());
    storage_tasks.spawn_on_own_thread("journal", journal.run(stop.clone()));
    (storage_tasks, stop)
}

/// What the cluster monitor needs in addition to CouchDB: the journal with the state it recovers,
/// and the machine.
fn dependencies(
    client: latest::Receiver<Client>,
    settings: &Settings,
    journal: &Journal,
    machine: HostAccess,
    sharing: &Sharing,
) -> Dependencies {
    let (facts_tx, facts_rx) = oneshot::channel();
    let just_started = JournalFailure::NotLoaded("recliner has just started".to_owned());
    let (obstacle_tx, obstacle) = latest::channel(just_started);
    let owner = match cluster_monitor::files_only_node(settings) {
        Some(node) => journal_claim::JournalOwner::Node(node),
        None => journal_claim::JournalOwner::Cluster(client),
    };
    let state = journal_claim::claim_and_recover(journal.clone(), owner, facts_tx, obstacle_tx);
    Dependencies {
        state_store: Arc::new(journal.clone()),
        recovery: Recovery::new(state, obstacle),
        previous_facts: facts_rx.map(Result::unwrap_or_default).boxed(),
        meter: Some(machine.meter),
        acts: true,
        directories: machine.directories,
        shared: sharing.member.granted(),
    }
}

/// The listeners that HTTP clients connect to.
#[derive(Debug)]
struct HttpEntrances {
    listener: TcpListener,
    socket: Option<http::AdminSocket>,
    web: http::WebAccess,
    limits: http::ConnectionLimits,
}

impl HttpEntrances {
    /// Starts to serve all listeners.
    fn serve(self, router: Router, tasks: &mut TaskSet, stop: &CancellationToken) {
        let Self { listener, socket, web, limits } = self;
        if let Some(socket) = socket {
            let served = http::serve_socket(socket, router.clone(), stop.clone());
            tasks.spawn("admin socket", served);
        }
        tasks.spawn("web server", http::serve(listener, router, web, limits, stop.clone()));
    }
}

impl Service {
    /// Starts everything. The listener is opened first, so that a port in use causes no requests to
    /// CouchDB.
    ///
    /// # Errors
    /// If the address cannot be used, the client cannot be created, or the journal cannot be
    /// opened.
    pub async fn start(
        settings: Settings,
        transport: Transport,
        about: ProcessInfo,
        clock: Clock,
        storage: impl Storage + 'static,
        machine: HostAccess,
    ) -> Result<Self, StartError> {
        let web = http::WebAccess::open(settings.web.config_file.as_deref())?;
        if let Some(problem) = config::admin_api_exposed(&settings, web.has_users()) {
            return Err(Problems::new(vec![problem]).into());
        }
        let (listener, address) = listen(settings.web.listen_address)?;
        let registry = prometheus::Registry::new();
        registry.register(process_metrics::collector(clock.now())?)?;
        let stop = CancellationToken::new();
        let mut tasks = TaskSet::new();
        signals::ignore_file_size_signal().map_err(StartError::Signals)?;
        // Receive signals before the service reports that it serves: it may be asked to stop right after that.
        let signals = ProcessSignals::new().map_err(StartError::Signals)?;
        let (journal_settings, journal_settings_rx) = latest::channel(settings.journal);
        let (journal_task, journal) =
            journal::JournalTask::open(storage, clock, journal_settings_rx)?;
        // Open the socket after the journal, which guarantees that no other process uses the
        // directory.
        let socket = admin_socket(&settings).await?;
        let (storage_tasks, storage_stop) = start_journal(journal_task);
        let (sharing_task, sharing) = SharingTask::new(clock, &settings, &journal);
        let needs = |client| dependencies(client, &settings, &journal, machine, &sharing);
        let mut monitor = ClusterMonitor::start(
            &settings, transport, clock, &registry, &mut tasks, &stop, needs,
        )?;
        monitor.start_claim_guard(journal.clone(), &mut tasks);
        start_sharing(sharing_task, &monitor, &stop, &mut tasks);
        monitor.start_enforcer(&mut tasks);
        monitor.start_archive(journal.clone(), &mut tasks);
        monitor.start_recorder(journal.clone(), &mut tasks);
        monitor.start_scorecard(&mut tasks);
        let ledger = monitor.start_ledger(journal.clone(), settings.scan.interval, &mut tasks);
        let takeover = monitor.start_takeover(Arc::new(journal.clone()), &mut tasks);
        let node_settings = monitor.start_node_settings(takeover.takeovers.clone(), &mut tasks);
        let reads = monitor.start_reads(journal.clone(), &mut tasks);
        let warmer = monitor.start_warmer(Some(journal.clone()), seed(clock), &mut tasks);
        let learned = (ledger.histories, reads.clone(), warmer.failed);
        let advice = monitor.start_advice(node_settings.clone(), learned, &mut tasks);
        // Leave enough descriptors for connections to CouchDB.
        let limits = http::ConnectionLimits::for_descriptors(descriptors::raise_file_limit());
        let feed = start_feed_server(&journal, &limits, &stop, &mut tasks);
        let (fleet_settings, fleet) = start_fleet(&settings.fleet, clock, &stop, &mut tasks);
        let (config, config_rx) = latest::channel(Arc::new(status(&settings, clock)));
        let (certificates, certificates_rx) = latest::channel(monitor.client.certificate_ends());
        let (orders_tx, commands) = mpsc::channel(ORDER_QUEUE_LEN);
        let state = http::AppState {
            plan: monitor.planner.plan.clone(),
            status: monitor.scanner.status.clone(),
            advice: advice.view.clone(),
            scorecard: monitor.scorecard.clone(),
            ledger: ledger.books,
            reads,
            fleet,
            sharing: sharing.clone(),
            waste_reasons: http::KeptReasons::default(),
            counts: monitor.job_state.counters.clone(),
            couchdb: monitor.start_operator_log(&mut tasks),
            about: Arc::new(about),
            clock,
            config: config_rx,
            changes: monitor.start_feed_client(Some(journal.clone()), &mut tasks).status,
            takeovers: takeover.takeovers,
            node_settings,
            designs: monitor.design_reader(),
            xrays: monitor.start_xrays(&mut tasks),
            certificates: certificates_rx,
            builds: warmer.builds,
            registry,
            journal: Some(journal),
            feed: Some(feed),
            orders: orders_tx,
            allow: allowed(&settings),
            web: web.clone(),
            stop: stop.clone(),
            limits: http::Limits::default(),
        };
        let otlp_settings = start_otlp(&state, &settings.otlp, address, &mut tasks)?;
        let entrances = HttpEntrances { listener, socket, web: web.clone(), limits };
        entrances.serve(http::router(state), &mut tasks, &stop);
        Ok(Self {
            order_dispatcher: OrderDispatcher::new(&monitor, advice, clock),
            address,
            monitor,
            tasks,
            stop,
            storage_tasks,
            storage_stop,
            journal_settings,
            fleet_settings,
            sharing,
            otlp_settings,
            web,
            initial_settings: Box::new(settings.clone()),
            settings,
            config,
            certificates,
            signals,
            commands,
            clock,
        })
    }

    /// The address it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Authentication and TLS of the web server.
    pub const fn web(&self) -> &http::WebAccess {
        &self.web
    }

    /// The client, scanner and planner.
    pub const fn monitor(&self) -> &ClusterMonitor {
        &self.monitor
    }

    /// A token that stops the service as a signal would.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Serves until a signal, an order, or an unexpected end of a task.
    pub async fn run(mut self, mut reload: ReloadFn) -> ServiceEnd {
        let ended = loop {
            // Every arm is cancel-safe, and no arm's body awaits. The stop token comes first: once
            // it is cancelled, tasks end as well, which is expected then.
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break ServiceEnd::Stopped,
                signal = self.signals.next() => match signal {
                    signals::ProcessSignal::Stop => break ServiceEnd::Stopped,
                    signals::ProcessSignal::Reload => {
                        // The result is logged; nobody waits for it.
                        let _logged = self.reload(&mut reload);
                    }
                },
                Some(command) = self.commands.recv() => match command {
                    Command::Quit => break ServiceEnd::Stopped,
                    Command::Reload(answer) => {
                        // The requester may be gone; the reload takes effect anyway.
                        let _gone = answer.send(self.reload(&mut reload));
                    }
                    Command::Order(order) => self.order_dispatcher.dispatch(order),
                },
                Some(name) = self.tasks.next_ended() => break ServiceEnd::TaskEnded(name),
                Some(name) = self.storage_tasks.next_ended() => break ServiceEnd::TaskEnded(name),
            }
        };
        self.stop.cancel();
        tracing::info!("stopping");
        let grace = time::sleep(SHUTDOWN_TIMEOUT);
        tokio::pin!(grace);
        loop {
            tokio::select! {
                () = &mut grace => {
                    tracing::warn!("some tasks did not end in time");
                    break;
                }
                signals::ProcessSignal::Stop = self.signals.next() => break,
                ended = self.tasks.next_ended() => if ended.is_none() { break },
            }
        }
        self.storage_stop.cancel();
        let storage_end = async { while self.storage_tasks.next_ended().await.is_some() {} };
        if time::timeout(SHUTDOWN_TIMEOUT, storage_end).await.is_err() {
            tracing::warn!("the journal was not closed in time");
        }
        ended
    }

    /// Reads the configuration again and logs the result.
    fn reload(&mut self, read: &mut ReloadFn) -> Result<(), String> {
        let reloaded = self.apply_reloaded(read);
        match &reloaded {
            Ok(changed) if changed.is_empty() => {
                tracing::info!("configuration reloaded: nothing has changed");
            }
            Ok(changed) => {
                let changed = changed.join(" ");
                tracing::info!(changed, "configuration reloaded");
            }
            Err(why) => {
                self.config.send_modify(|config| {
                    Arc::make_mut(config).reload_successful = false;
                });
                tracing::error!(why, "configuration not reloaded: the old one stays in force");
            }
        }
        reloaded.map(drop)
    }

    /// Reads the configuration again. A valid one takes effect as a whole, an invalid one not at
    /// all. Returns the changed keys.
    fn apply_reloaded(&mut self, read: &mut ReloadFn) -> Result<Vec<&'static str>, String> {
        let still_closed = |loaded: Loaded| match config::admin_api_exposed(
            &loaded.settings,
            self.web.has_users(),
        ) {
            None => Ok(loaded),
            Some(problem) => Err(problem.to_string()),
        };
        let loaded = read().and_then(still_closed)?;
        let changes = config::changes(&self.settings, &loaded.settings);
        let needs_restart: Vec<String> = config::changes(&self.initial_settings, &loaded.settings)
            .iter()
            .filter(|change| change.when == config::When::Restart)
            .map(|change| change.key.to_string())
            .collect();
        if !needs_restart.is_empty() {
            let keys = needs_restart.join(" ");
            tracing::warn!(
                keys,
                "some changed settings need a restart and keep their old values until then"
            );
        }
        self.sharing.reconfigure(&loaded.settings);
        if let Err(why) =
            self.monitor.reconfigure(&self.settings, &loaded.settings, &mut self.tasks)
        {
            self.sharing.reconfigure(&self.settings);
            return Err(why.to_string());
        }
        self.certificates.send_replace(self.monitor.client.certificate_ends());
        self.journal_settings.send_replace(loaded.settings.journal);
        self.fleet_settings.send_replace(loaded.settings.fleet.clone());
        self.otlp_settings.send_if_modified(|otlp| {
            std::mem::replace(otlp, loaded.settings.otlp.clone()) != loaded.settings.otlp
        });
        self.settings = loaded.settings;
        let status = ConfigStatus { needs_restart, ..status(&self.settings, self.clock) };
        self.config.send_replace(Arc::new(status));
        Ok(changes.iter().map(|change| change.key).collect())
    }
}

/// The Unix socket for orders, if it is used.
async fn admin_socket(settings: &Settings) -> Result<Option<http::AdminSocket>, http::SocketError> {
    match &settings.web.admin_socket {
        Some(path) => Ok(Some(http::AdminSocket::open(path).await?)),
        None => Ok(None),
    }
}

/// A number that differs between processes.
fn seed(clock: Clock) -> u64 {
    u64::from(std::process::id()) ^ clock.now().unix()
}

fn start_sharing(
    task: SharingTask,
    monitor: &ClusterMonitor,
    stop: &CancellationToken,
    tasks: &mut TaskSet,
) {
    let (job_state, plans) = (monitor.job_state.clone(), monitor.planner.plan.clone());
    tasks.spawn("shared limits", task.run(job_state, plans, stop.clone()));
}

fn start_feed_server(
    journal: &Journal,
    limits: &http::ConnectionLimits,
    stop: &CancellationToken,
    tasks: &mut TaskSet,
) -> FeedHandle {
    let readers = limits.max_feed_readers();
    let (task, feed) = feed_server::FeedServerTask::new(journal.clone(), readers, stop.clone());
    tasks.spawn("feed", task.run());
    feed
}

fn start_fleet(
    settings: &FleetSettings,
    clock: Clock,
    stop: &CancellationToken,
    tasks: &mut TaskSet,
) -> (latest::Sender<FleetSettings>, latest::Receiver<Arc<Fleet>>) {
    let (sender, receiver) = latest::channel(settings.clone());
    let (task, fleet) = FleetTask::new(receiver, clock);
    tasks.spawn("fleet", task.run(stop.clone()));
    (sender, fleet)
}

/// Listens on an address, and returns it with the port that the system chose if it was zero.
fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let listener = http::listen(address).map_err(|why| StartError::Listen { address, why })?;
    let address = listener.local_addr().unwrap_or(address);
    Ok((listener, address))
}

/// Starts to push metrics if the settings say so.
fn start_otlp(
    state: &http::AppState,
    settings: &OtlpSettings,
    address: SocketAddr,
    tasks: &mut TaskSet,
) -> Result<latest::Sender<OtlpSettings>, StartError> {
    let (sender, settings) = latest::channel(settings.clone());
    let push = http::OtlpPush {
        state: state.clone(),
        metrics: http::OtlpMetrics::register(&state.registry)?,
        settings,
        instance: instance(address),
        started: state.clock.now(),
    };
    tasks.spawn("otlp", push.run(state.stop.clone()));
    Ok(sender)
}

/// The address of this process as Prometheus would name it.
fn instance(address: SocketAddr) -> String {
    let host = signals::host_names().into_iter().next();
    format!("{}:{}", host.unwrap_or_else(|| address.ip().to_string()), address.port())
}

fn allowed(settings: &Settings) -> http::Allow {
    http::Allow {
        lifecycle: settings.web.enable_lifecycle,
        admin: settings.web.enable_admin_api,
        mcp: settings.web.enable_mcp,
        names: [signals::host_names(), settings.web.allowed_hosts.clone()].concat().into(),
    }
}

fn status(settings: &Settings, clock: Clock) -> ConfigStatus {
    ConfigStatus {
        shown: config::to_json(settings),
        mode: settings.mode,
        price_per_gib_month: settings.report.price_per_gib_month,
        reload_successful: true,
        loaded_at: clock.now(),
        needs_restart: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
