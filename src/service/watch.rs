//! Observes a cluster: client, scanner, job state and planner.
//!
//! A service additionally measures free space and pressure.

mod reach;

use super::{StartError, Tasks, operator_log};
use crate::{
    act::{enforcer, follower, takeover, warmer},
    datadir::{self, Roots},
    feeds::changes,
    model::{
        channel::Mode,
        memory::{Fleeting, Keeper, Recovered},
        settings::{ScanViews, Settings},
    },
    plan::{Rules, disk, planner, pressure},
    scan,
    sources::{
        couchdb::{SetupError, USER_AGENT},
        inventory::{
            Directories, FilesSource, HttpSettings, HttpSource, PeersSource, Source, Sources,
        },
        request_metrics::RequestMetrics,
    },
    store::{archive, journal::Journal, recorder},
};
use couchdb_client::{self, Client, Transport};
use futures::{FutureExt as _, future::BoxFuture};
use reach::Reach;
use secrecy::SecretString;
use std::{collections::BTreeSet, future::ready, path::Path, sync::Arc};
use tokio::sync::watch as latest;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};
use wall_clock::Clock;

/// External dependencies of the monitor.
pub struct Surroundings {
    /// Stores everything that must survive a restart.
    pub keeper: Arc<dyn Keeper>,
    /// State of the previous process; `None` if it cannot be used, which ends the monitor.
    pub recovering: BoxFuture<'static, Option<Recovered>>,
    /// Facts measured by the previous process.
    pub measured_before: BoxFuture<'static, scan::Before>,
    /// Measures free space. Without it, neither free space nor pressure is measured.
    pub meter: Option<Arc<dyn disk::Meter>>,
    /// Directories of nodes in addition to those in the settings.
    pub directories: Option<Arc<dyn Directories>>,
}

impl std::fmt::Debug for Surroundings {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Surroundings").field("keeper", &self.keeper).finish_non_exhaustive()
    }
}

impl Surroundings {
    /// For a command that looks once: stores nothing and measures nothing.
    #[must_use]
    pub fn none() -> Self {
        Self {
            keeper: Arc::new(Fleeting::default()),
            recovering: ready(Some(Recovered::default())).boxed(),
            measured_before: ready(scan::Before::default()).boxed(),
            meter: None,
            directories: None,
        }
    }
}

/// Client, scanner, job state and planner of one cluster.
#[derive(Debug)]
pub struct Watch {
    /// The scanner's published state.
    pub scanner: scan::Handle,
    /// Jobs and remembered state.
    pub follower: follower::Handle,
    /// The published plans.
    pub planner: planner::Handle,
    /// The CouchDB client.
    pub client: Client,
    clock: Clock,
    metrics: Arc<RequestMetrics>,
    stop: CancellationToken,
    /// Dropping the monitor ends its tasks.
    _ends: DropGuard,
    /// Stops the task of the current client.
    client_stop: CancellationToken,
    /// Tasks that still need the client after all others have stopped, to finish their work.
    carried: TaskTracker,
    reach: Reach,
    scan: latest::Sender<Arc<scan::Settings>>,
    plan: latest::Sender<Arc<planner::Settings>>,
    follow: latest::Sender<Arc<follower::Settings>>,
    disk: latest::Sender<Arc<disk::Settings>>,
    pressure: latest::Sender<Arc<pressure::Settings>>,
    pressures: latest::Receiver<Arc<pressure::Pressures>>,
    takeover: latest::Sender<Arc<takeover::Settings>>,
    warmer: latest::Sender<Arc<warmer::Settings>>,
    listen: latest::Sender<changes::Settings>,
}

impl Watch {
    /// Starts the tasks.
    ///
    /// # Errors
    /// If the client cannot be created.
    pub fn start(
        settings: &Settings,
        transport: Transport,
        clock: Clock,
        registry: &prometheus::Registry,
        tasks: &mut Tasks,
        stop: &CancellationToken,
        around: impl FnOnce(&Client) -> Surroundings,
    ) -> Result<Self, StartError> {
        let metrics = Arc::new(RequestMetrics::register(registry)?);
        let couchdb = settings.couchdb.clone();
        let (client, client_task) = Client::builder(couchdb)
            .transport(transport)
            .observer(Arc::<RequestMetrics>::clone(&metrics))
            .build()
            .map_err(SetupError)?;
        let (client_stop, carried) = (CancellationToken::new(), TaskTracker::new());
        carried.close();
        spawn_client(client_task, client_stop.clone(), stop.clone(), carried.clone(), tasks);
        let Surroundings { keeper, recovering, measured_before, meter, directories } =
            around(&client);
        let reach = Reach::new(&client, settings, clock, directories);
        let scan = sender(scan_settings(settings));
        let plan = sender(plan_settings(settings));
        let mut following = follow_settings(settings);
        // A command that looks once starts no jobs, so its plan must not ramp up.
        following.acting &= meter.is_some();
        let follow = sender(following);
        let disk = sender(disk::Settings::of(settings, datadir::owner));
        let pressure = sender(pressure_settings(settings));

        let (task, scanner) = scan::Task::new(clock, reach.source.subscribe(), scan.subscribe());
        let ended = stop.clone();
        tasks.spawn_alone(async move {
            task.run_after(measured_before, ended).await;
            "scanner"
        });

        let (task, follower) =
            follower::Task::new(clock, scanner.clone(), follow.subscribe(), keeper);
        let ended = stop.clone();
        tasks.spawn(async move {
            task.run(recovering, ended).await;
            "job state task"
        });

        let mut inputs = planner::Inputs {
            jobs: follower.jobs.clone(),
            history: follower.history.clone(),
            ..planner::Inputs::facts_only(scanner.snapshots.clone())
        };
        if let Some(meter) = meter {
            let (snapshots, jobs) = (scanner.snapshots.clone(), follower.jobs.clone());
            let (task, disks) = disk::Task::new(clock, meter, disk.subscribe(), snapshots, jobs);
            inputs.disks = disks.disks;
            let ended = stop.clone();
            tasks.spawn(async move {
                task.run(ended).await;
                "free space monitor"
            });
            let (snapshots, jobs) = (scanner.snapshots.clone(), follower.jobs.clone());
            let (task, pressures) = pressure::Task::new(
                clock,
                reach.probe.subscribe(),
                pressure.subscribe(),
                snapshots,
                jobs,
            );
            inputs.pressures = pressures.pressures;
            let ended = stop.clone();
            tasks.spawn(async move {
                task.run(ended).await;
                "pressure monitor"
            });
        }

        let pressures = inputs.pressures.clone();
        let (task, planner) = planner::Task::new(clock, inputs, plan.subscribe());
        let ended = stop.clone();
        tasks.spawn_alone(async move {
            task.run(ended).await;
            "planner"
        });
        let (stop, ends) = (stop.clone(), stop.clone().drop_guard());
        Ok(Self {
            scanner,
            follower,
            planner,
            client,
            clock,
            metrics,
            stop,
            _ends: ends,
            client_stop,
            carried,
            reach,
            scan,
            plan,
            follow,
            disk,
            pressure,
            pressures,
            takeover: sender(takeover::Settings::from(settings)),
            warmer: sender(warmer::Settings::from(settings)),
            listen: latest::channel(settings.follow).0,
        })
    }

    /// Starts the enforcer, which starts compactions if the settings allow it. Nothing else does.
    pub fn enforce(&self, tasks: &mut Tasks) {
        let inputs = enforcer::Inputs {
            plans: self.planner.plan.clone(),
            source: self.reach.source.subscribe(),
            hands: self.reach.hands.subscribe(),
            follower: self.follower.clone(),
            scanner: self.scanner.clone(),
            settings: self.scan.subscribe(),
        };
        let (task, ended) = (enforcer::Task::new(self.clock, inputs), self.stop.clone());
        tasks.spawn(self.carried.track_future(async move {
            task.run(ended).await;
            "enforcer"
        }));
    }

    /// Starts the task that writes the operator's log lines; returns a receiver for the state of
    /// the configured URLs.
    pub fn log(&self, tasks: &mut Tasks) -> latest::Receiver<Arc<[couchdb_client::Entry]>> {
        let scan::Handle { status, snapshots, .. } = self.scanner.clone();
        let (client, pressures) = (self.reach.client.subscribe(), self.pressures.clone());
        let (task, entries) = operator_log::Task::new(client, status, snapshots, pressures);
        let ended = self.stop.clone();
        tasks.spawn(async move {
            task.run(ended).await;
            "operator log"
        });
        entries
    }

    /// Starts the task that saves facts for the next process.
    pub fn archive(&self, journal: Journal, tasks: &mut Tasks) {
        let (settled, ended) = (self.scanner.settled(), self.stop.clone());
        let scan::Handle { status, snapshots, .. } = self.scanner.clone();
        let task = archive::Task::new(status, snapshots, settled, journal);
        tasks.spawn_alone(async move {
            task.run(ended).await;
            "measurement archive"
        });
    }

    /// Starts the task that records queue events.
    pub fn record(&self, journal: Journal, tasks: &mut Tasks) {
        let task = recorder::Task::new(self.clock, self.planner.plan.clone(), journal);
        let ended = self.stop.clone();
        tasks.spawn_alone(async move {
            task.run(ended).await;
            "queue recorder"
        });
    }

    /// Starts the warmer, which keeps indexes built if the settings say so, and otherwise reports
    /// what it would build.
    pub fn warm(&self, journal: Option<Journal>, luck: u64, tasks: &mut Tasks) -> warmer::Handle {
        let inputs = warmer::Inputs {
            plans: self.planner.plan.clone(),
            settings: self.warmer.subscribe(),
            hands: self.reach.builds.subscribe(),
            scanner: self.scanner.clone(),
            journal,
            luck,
        };
        let (task, handle) = warmer::Task::new(self.clock, inputs);
        let ended = self.stop.clone();
        tasks.spawn(async move {
            task.run(ended).await;
            "warmer"
        });
        handle
    }

    /// Starts the feed client, which tells the scanner which databases changed.
    pub fn listen(&self, journal: Option<Journal>, tasks: &mut Tasks) -> changes::Handle {
        let (feeds, settings) = (self.reach.feeds.subscribe(), self.listen.subscribe());
        let scanner = self.scanner.clone();
        let (task, handle) = changes::Task::new(self.clock, feeds, settings, scanner, journal);
        let ended = self.stop.clone();
        tasks.spawn(async move {
            task.run(ended).await;
            "feed client"
        });
        handle
    }

    /// Starts the task that takes smoosh channels over if the settings say so, and restores them.
    pub fn take_over(
        &self,
        ledger: Arc<dyn takeover::Ledger>,
        tasks: &mut Tasks,
    ) -> takeover::Handle {
        let (hands, settings) = (self.reach.smoosh.subscribe(), self.takeover.subscribe());
        let snapshots = self.scanner.snapshots.clone();
        let (task, handle) = takeover::Task::new(self.clock, hands, ledger, settings, snapshots);
        let ended = self.stop.clone();
        tasks.spawn(self.carried.track_future(async move {
            task.run(ended).await;
            "smoosh takeover"
        }));
        handle
    }

    /// Applies new settings. If access to CouchDB changed, a new client replaces the old one, and
    /// proves its login before any other request.
    ///
    /// # Errors
    /// If the new client cannot be created; then nothing is changed.
    pub fn reconfigure(
        &mut self,
        old: &Settings,
        new: &Settings,
        tasks: &mut Tasks,
    ) -> Result<(), SetupError> {
        if old.couchdb != new.couchdb {
            let couchdb = new.couchdb.clone();
            let metrics = Arc::<RequestMetrics>::clone(&self.metrics);
            let (client, task) =
                Client::builder(couchdb).user_agent(USER_AGENT).observer(metrics).build()?;
            self.client_stop.cancel();
            self.client_stop = CancellationToken::new();
            let (replaced, stop) = (self.client_stop.clone(), self.stop.clone());
            spawn_client(task, replaced, stop, self.carried.clone(), tasks);
            self.client = client;
            // An open feed stays open unless the access to CouchDB changed.
            self.reach.feeds.send_replace(Arc::new(self.client.clone()));
        }
        self.reach.replace(&self.client, new, self.clock);
        self.scan.send_replace(Arc::new(scan_settings(new)));
        self.plan.send_replace(Arc::new(plan_settings(new)));
        self.follow.send_replace(Arc::new(follow_settings(new)));
        self.disk.send_replace(Arc::new(disk::Settings::of(new, datadir::owner)));
        self.pressure.send_replace(Arc::new(pressure_settings(new)));
        self.takeover.send_replace(Arc::new(takeover::Settings::from(new)));
        self.warmer.send_replace(Arc::new(warmer::Settings::from(new)));
        self.listen.send_if_modified(|follow| std::mem::replace(follow, new.follow) != new.follow);
        Ok(())
    }
}

/// Runs a client's task. Its end because of a replacement is not unexpected.
fn spawn_client(
    task: couchdb_client::Task,
    replaced: CancellationToken,
    stop: CancellationToken,
    carried: TaskTracker,
    tasks: &mut Tasks,
) {
    tasks.spawn(async move {
        let over = async {
            stop.cancelled().await;
            carried.wait().await;
        };
        tokio::select! {
            () = task.run(replaced.clone()) => {}
            () = over => {}
        }
        if replaced.is_cancelled() {
            stop.cancelled().await;
        }
        "couchdb client"
    });
}

/// Creates the source: CouchDB and the local node's files, as far as configured.
fn source_of(
    client: &Client,
    settings: &Settings,
    clock: Clock,
    directories: Option<Arc<dyn Directories>>,
) -> Arc<dyn Source> {
    let http = HttpSettings {
        requests_in_flight: settings.couchdb.requests_in_flight,
        languages: settings.warmer.languages.clone(),
        named: named(settings),
    };
    let http = HttpSource::new(client.clone(), clock, http);
    let files = settings.files.data_dir.clone().map(|data| {
        let node = node_of(settings, &data);
        let views = settings.files.view_index_dir.clone();
        FilesSource::new(&node, Roots { data, views }, clock)
    });
    let peers = PeersSource::new(&settings.peers, peers_login(), clock).unwrap_or_else(|why| {
        tracing::error!(%why, "cannot create the client for sidecars");
        None
    });
    let peers = peers.map(|peers| Arc::new(peers) as Arc<dyn Directories>);
    let has_couchdb = !settings.couchdb.urls.is_empty();
    let elsewhere = peers.into_iter().chain(directories).collect();
    Arc::new(Sources { http: has_couchdb.then_some(http), files, elsewhere })
}

/// The login for sidecars with users: the same one that commands use for a running recliner.
fn peers_login() -> Option<(String, SecretString)> {
    let env = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    Some((env("RECLINER_USER")?, env("RECLINER_PASSWORD")?.into()))
}

/// The node whose directories are read: the served node, else the one that the files name, else
/// CouchDB's default for an unnamed node.
fn node_of(settings: &Settings, data: &Path) -> String {
    let owner = datadir::owner(data);
    match (settings.nodes.only(), owner) {
        (Some(node), Some(owner)) if node != owner => {
            // A directory restored on another node still names the original one.
            tracing::warn!(node, owner, directory = %data.display(), "the files in this directory belong to another node");
            node.to_owned()
        }
        (Some(node), _) => node.to_owned(),
        (None, owner) => owner.unwrap_or_else(|| "nonode@nohost".to_owned()),
    }
}

/// The node whose files are the only source; `None` if CouchDB is used.
pub(super) fn only_node(settings: &Settings) -> Option<String> {
    let data = settings.files.data_dir.as_ref().filter(|_| settings.couchdb.urls.is_empty())?;
    Some(node_of(settings, data))
}

/// Databases that some channel names without wildcards.
fn named(settings: &Settings) -> Vec<String> {
    let included = settings.channels.list.iter().flat_map(|channel| channel.databases.texts().0);
    let whole = included.filter(|text| !text.contains(['*', '?', '[', ']', '{', '}', '\\', '!']));
    whole.cloned().collect::<BTreeSet<_>>().into_iter().collect()
}

fn sender<T>(settings: T) -> latest::Sender<Arc<T>> {
    latest::channel(Arc::new(settings)).0
}

fn follow_settings(settings: &Settings) -> follower::Settings {
    follower::Settings {
        failure: settings.failure,
        headroom_factor: settings.headroom.factor,
        channels: Arc::new(settings.channels.clone()),
        acting: settings.mode == Mode::Enforce,
    }
}

const fn pressure_settings(settings: &Settings) -> pressure::Settings {
    pressure::Settings { pressure: settings.pressure }
}

fn scan_settings(settings: &Settings) -> scan::Settings {
    scan::Settings {
        interval: settings.scan.interval,
        interval_followed: settings.scan.interval_followed,
        reread_after: settings.follow.reread_after,
        poll: settings.poll,
        nodes: settings.nodes.clone(),
        views: settings.cluster_targets
            && settings.scan.views == ScanViews::Auto
            && !settings.couchdb.urls.is_empty(),
        parts: settings.scan.views == ScanViews::Auto,
        top: settings.scan.top,
    }
}

fn plan_settings(settings: &Settings) -> planner::Settings {
    planner::Settings {
        channels: Arc::new(settings.channels.clone()),
        rules: Rules {
            mode: settings.mode,
            limits: settings.limits,
            headroom: settings.headroom.clone(),
            views: settings.views.enforce,
            fresh_for: settings.scan.fresh_for,
        },
    }
}
