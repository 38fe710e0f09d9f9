//! The service: creates and connects all tasks, in one place and in order.
//!
//! Owns startup, reload and shutdown. [`Watch`] contains the client, scanner and planner of a
//! cluster; commands that look once use it on its own. [`Service`] adds the web server, signals and
//! orders. If a task ends on its own, the process ends.

mod descriptors;
mod memory;
mod operator;
mod operator_log;
mod orders;
mod tasks;
mod watch;

pub use tasks::Tasks;
pub use watch::{Surroundings, Watch};

use crate::{
    config::{self, Loaded, Problems},
    feeds::feed,
    model::settings::Settings,
    plan::disk::Meter,
    serve::http::{self, About, ConfigStatus, Order},
    sources::{couchdb::SetupError, inventory::Directories},
    store::journal::{self, Journal, Place},
};
use couchdb_client::{CertificateEnds, Client, Transport};
use futures::FutureExt as _;
use operator::Operator;
use orders::Signals;
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot, watch as latest},
    time,
};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Time limit for tasks to end.
const GRACE: Duration = Duration::from_secs(20);

/// Maximum number of waiting HTTP orders.
const ORDERS: usize = 8;

/// Reads the configuration again.
pub type Reload = Box<dyn FnMut() -> Result<Loaded, String> + Send>;

/// Why the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is in use or not local.
    #[error("cannot listen on {address}: {why}; choose another one with --web.listen-address")]
    Listen {
        /// The address.
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
    Journal(#[from] journal::OpenError),
    /// Two metrics have the same name.
    #[error("cannot register metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Why the service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was asked to stop.
    Told,
    /// The named task ended unexpectedly.
    Died(&'static str),
}

/// Access to machines other than through CouchDB.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Measures free space.
    pub meter: Arc<dyn Meter>,
    /// Directories of nodes in addition to those in the settings.
    pub directories: Option<Arc<dyn Directories>>,
}

/// A running service.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    watch: Watch,
    tasks: Tasks,
    stop: CancellationToken,
    /// Tasks that store data for the others; they end last.
    keepers: Tasks,
    keepers_stop: CancellationToken,
    keep: latest::Sender<journal::Settings>,
    web: http::Web,
    settings: Settings,
    /// The settings at startup: changes that need a restart are not in force yet.
    started: Box<Settings>,
    config: latest::Sender<Arc<ConfigStatus>>,
    certificates: latest::Sender<CertificateEnds>,
    signals: Signals,
    orders: mpsc::Receiver<Order>,
    operator: Operator,
    clock: Clock,
}

/// Runs the journal apart from all other tasks, so that it can end last.
fn keep_the_journal(journal: journal::Task) -> (Tasks, CancellationToken) {
    let (mut keepers, stop) = (Tasks::new(), CancellationToken::new());
    let ended = stop.clone();
    keepers.spawn_alone(async move {
        journal.run(ended).await;
        "journal"
    });
    (keepers, stop)
}

/// What the watch needs beside CouchDB: the journal and what it recovers, and the machine.
fn surroundings(
    client: &Client,
    settings: &Settings,
    journal: &Journal,
    machine: Machine,
) -> Surroundings {
    let (before, measured_before) = oneshot::channel();
    let whose = match watch::only_node(settings) {
        Some(node) => memory::Whose::Node(node),
        None => memory::Whose::Cluster(client.clone()),
    };
    Surroundings {
        keeper: Arc::new(journal.clone()),
        recovering: memory::recover(journal.clone(), whose, before).boxed(),
        measured_before: measured_before.map(Result::unwrap_or_default).boxed(),
        meter: Some(machine.meter),
        directories: machine.directories,
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
        about: About,
        clock: Clock,
        place: impl Place + 'static,
        machine: Machine,
    ) -> Result<Self, StartError> {
        let web = http::Web::open(settings.web.config_file.as_deref())?;
        if let Some(problem) = config::open_to_strangers(&settings, web.has_users()) {
            return Err(Problems::new(vec![problem]).into());
        }
        let address = settings.web.listen_address;
        let listener = http::listen(address).map_err(|why| StartError::Listen { address, why })?;
        let address = listener.local_addr().unwrap_or(address);
        let registry = prometheus::Registry::new();
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        let stop = CancellationToken::new();
        let mut tasks = Tasks::new();
        orders::outlive_file_size_limit().map_err(StartError::Signals)?;
        // Before the service reports that it serves, because it may be asked to stop from then on.
        let signals = Signals::new().map_err(StartError::Signals)?;
        let (keep, keep_rx) = latest::channel(settings.journal);
        let (journal_task, journal) = journal::Task::open(place, clock, keep_rx)?;
        // After the journal, which guarantees that no other process uses the directory.
        let socket = match &settings.web.admin_socket {
            Some(path) => Some(http::AdminSocket::open(path).await?),
            None => None,
        };
        let (keepers, keepers_stop) = keep_the_journal(journal_task);
        let around = |client: &Client| surroundings(client, &settings, &journal, machine);
        let watch =
            Watch::start(&settings, transport, clock, &registry, &mut tasks, &stop, around)?;
        watch.enforce(&mut tasks);
        watch.archive(journal.clone(), &mut tasks);
        watch.record(journal.clone(), &mut tasks);
        let luck = u64::from(std::process::id()) ^ clock.now().unix();
        let warmer = watch.warm(Some(journal.clone()), luck, &mut tasks);
        // Leave enough descriptors for connections to CouchDB.
        let room = http::Room::of(descriptors::raised());
        let (feed_task, feed) = feed::Task::new(journal.clone(), room.for_feeds(), stop.clone());
        tasks.spawn(async move {
            feed_task.run().await;
            "feed"
        });
        let changes = watch.listen(Some(journal.clone()), &mut tasks);
        let takeover = watch.take_over(Arc::new(journal.clone()), &mut tasks);
        let couchdb = watch.log(&mut tasks);
        let (config, config_rx) = latest::channel(Arc::new(status(&settings, clock)));
        let (certificates, certificates_rx) = latest::channel(watch.client.certificate_ends());
        let (orders_tx, orders) = mpsc::channel(ORDERS);
        let state = http::State {
            plan: watch.planner.plan.clone(),
            status: watch.scanner.status.clone(),
            counts: watch.follower.counts.clone(),
            couchdb,
            about: Arc::new(about),
            clock,
            config: config_rx,
            changes: changes.status,
            takeovers: takeover.takeovers,
            certificates: certificates_rx,
            builds: warmer.builds,
            registry,
            journal: Some(journal),
            feed: Some(feed),
            orders: orders_tx,
            allow: http::Allow {
                lifecycle: settings.web.enable_lifecycle,
                admin: settings.web.enable_admin_api,
                names: orders::own_names().into(),
            },
            web: web.clone(),
            stop: stop.clone(),
        };
        let router = http::router(state);
        if let Some(socket) = socket {
            let (ended, router) = (stop.clone(), router.clone());
            tasks.spawn(async move {
                http::serve_socket(socket, router, ended).await;
                "admin socket"
            });
        }
        let (ended, door) = (stop.clone(), web.clone());
        tasks.spawn(async move {
            http::serve(listener, router, door, room, ended).await;
            "web server"
        });
        let started = Box::new(settings.clone());
        let operator = Operator::new(&watch, clock);
        Ok(Self {
            operator,
            address,
            watch,
            tasks,
            stop,
            keepers,
            keepers_stop,
            keep,
            web,
            settings,
            started,
            config,
            certificates,
            signals,
            orders,
            clock,
        })
    }

    /// The address it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Authentication and TLS of the web server.
    #[must_use]
    pub const fn web(&self) -> &http::Web {
        &self.web
    }

    /// The client, scanner and planner.
    #[must_use]
    pub const fn watch(&self) -> &Watch {
        &self.watch
    }

    /// A token that stops the service as a signal would.
    #[must_use]
    pub fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Serves until a signal, an order, or an unexpected end of a task.
    pub async fn run(mut self, mut reload: Reload) -> Ended {
        let ended = loop {
            // Every arm is cancel-safe, and no arm's body awaits. The stop token comes first: after
            // it, tasks end too, which is not unexpected.
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break Ended::Told,
                signal = self.signals.next() => match signal {
                    orders::Signal::Stop => break Ended::Told,
                    orders::Signal::Reload => {
                        // The result is logged; nobody waits for it.
                        let _logged = self.reload(&mut reload);
                    }
                },
                Some(order) = self.orders.recv() => match order {
                    Order::Quit => break Ended::Told,
                    Order::Reload(answer) => {
                        // The requester may be gone; the reload takes effect anyway.
                        let _gone = answer.send(self.reload(&mut reload));
                    }
                    order @ (Order::Suspend(..)
                    | Order::Resume(..)
                    | Order::Compact(..)
                    | Order::Rescan(_)
                    | Order::Flush(..)
                    | Order::Release(..)) => self.operator.take(order),
                },
                Some(name) = self.tasks.next_ended() => break Ended::Died(name),
                Some(name) = self.keepers.next_ended() => break Ended::Died(name),
            }
        };
        self.stop.cancel();
        tracing::info!("stopping");
        let grace = time::sleep(GRACE);
        tokio::pin!(grace);
        loop {
            tokio::select! {
                () = &mut grace => {
                    tracing::warn!("some tasks did not end in time");
                    break;
                }
                orders::Signal::Stop = self.signals.next() => break,
                ended = self.tasks.next_ended() => if ended.is_none() { break },
            }
        }
        self.keepers_stop.cancel();
        let kept = async { while self.keepers.next_ended().await.is_some() {} };
        if time::timeout(GRACE, kept).await.is_err() {
            tracing::warn!("the journal was not closed in time");
        }
        ended
    }

    /// Reads the configuration again and logs the result.
    fn reload(&mut self, read: &mut Reload) -> Result<(), String> {
        let reloaded = self.take_over(read);
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
    fn take_over(&mut self, read: &mut Reload) -> Result<Vec<&'static str>, String> {
        let still_closed = |loaded: Loaded| match config::open_to_strangers(
            &loaded.settings,
            self.web.has_users(),
        ) {
            None => Ok(loaded),
            Some(problem) => Err(problem.to_string()),
        };
        let loaded = read().and_then(still_closed)?;
        let changes = config::changes(&self.settings, &loaded.settings);
        let needs_restart: Vec<String> = config::changes(&self.started, &loaded.settings)
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
        self.watch
            .reconfigure(&self.settings, &loaded.settings, &mut self.tasks)
            .map_err(|why| why.to_string())?;
        self.certificates.send_replace(self.watch.client.certificate_ends());
        self.keep.send_replace(loaded.settings.journal);
        self.settings = loaded.settings;
        let status = ConfigStatus { needs_restart, ..status(&self.settings, self.clock) };
        self.config.send_replace(Arc::new(status));
        Ok(changes.iter().map(|change| change.key).collect())
    }
}

fn status(settings: &Settings, clock: Clock) -> ConfigStatus {
    ConfigStatus {
        shown: config::shown(settings),
        mode: settings.mode,
        reload_successful: true,
        loaded_at: clock.now(),
        needs_restart: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
