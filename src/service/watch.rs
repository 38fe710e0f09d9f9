//! What sees a cluster: client, scanner, follower and planner.
//!
//! A service also has them measure the surroundings: free space and pressure.

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

/// What a watch remembers by, and whether it looks around.
pub struct Surroundings {
    /// Where what must survive is kept.
    pub keeper: Arc<dyn Keeper>,
    /// What an earlier process left; none where it cannot be used, which ends the watch.
    pub recovering: BoxFuture<'static, Option<Recovered>>,
    /// What an earlier process measured.
    pub measured_before: BoxFuture<'static, scan::Before>,
    /// What measures free space; without it neither that nor pressure is measured.
    pub meter: Option<Arc<dyn disk::Meter>>,
    /// Directories of nodes beside those that the settings name.
    pub directories: Option<Arc<dyn Directories>>,
}

impl std::fmt::Debug for Surroundings {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Surroundings").field("keeper", &self.keeper).finish_non_exhaustive()
    }
}

impl Surroundings {
    /// For a command that looks once: nothing is remembered, nothing measured.
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

/// Client, scanner, follower and planner of one cluster.
#[derive(Debug)]
pub struct Watch {
    /// What is seen.
    pub scanner: scan::Handle,
    /// What runs, and what is remembered.
    pub follower: follower::Handle,
    /// What follows from it.
    pub planner: planner::Handle,
    /// How CouchDB is asked.
    pub client: Client,
    clock: Clock,
    metrics: Arc<RequestMetrics>,
    stop: CancellationToken,
    /// Whoever gives up the watch ends its tasks.
    _ends: DropGuard,
    /// Ends the task of the client in use.
    client_stop: CancellationToken,
    /// Those for whom a client lives on when all others stop: they have something to end.
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
    /// Starts them.
    ///
    /// # Errors
    /// When the client cannot be set up.
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
        // What looks once starts nothing, so that nothing is spread out after its start.
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
            "follower"
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
                "measuring of disks"
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
                "measuring of pressure"
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

    /// What starts compactions where the settings say so; nothing else in the program does.
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

    /// What writes to the log what an operator looks for there; answers how the URLs of the
    /// settings answer.
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

    /// What lets the facts outlive the process.
    pub fn archive(&self, journal: Journal, tasks: &mut Tasks) {
        let (settled, ended) = (self.scanner.settled(), self.stop.clone());
        let scan::Handle { status, snapshots, .. } = self.scanner.clone();
        let task = archive::Task::new(status, snapshots, settled, journal);
        tasks.spawn_alone(async move {
            task.run(ended).await;
            "archive"
        });
    }

    /// What writes down what happens to those that wait.
    pub fn record(&self, journal: Journal, tasks: &mut Tasks) {
        let task = recorder::Task::new(self.clock, self.planner.plan.clone(), journal);
        let ended = self.stop.clone();
        tasks.spawn_alone(async move {
            task.run(ended).await;
            "recorder"
        });
    }

    /// What keeps view indexes built where the settings say so, and says what it would build
    /// elsewhere.
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

    /// What hears of changes, so that not everything has to be read all the time.
    pub fn listen(&self, journal: Option<Journal>, tasks: &mut Tasks) -> changes::Handle {
        let (feeds, settings) = (self.reach.feeds.subscribe(), self.listen.subscribe());
        let scanner = self.scanner.clone();
        let (task, handle) = changes::Task::new(self.clock, feeds, settings, scanner, journal);
        let ended = self.stop.clone();
        tasks.spawn(async move {
            task.run(ended).await;
            "listener"
        });
        handle
    }

    /// What stops smoosh's channels where the settings say so, and gives them back.
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
            "takeover of smoosh"
        }));
        handle
    }

    /// Takes over other settings. Where CouchDB is reached differently, a new client takes
    /// the old one's place, and proves its login before it asks anything.
    ///
    /// # Errors
    /// When the new client cannot be set up; then nothing changed.
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
            // A feed that is open stays so where nothing else is to be reached.
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

/// A client's task that ends because another client took its place is no death.
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

/// What is asked: CouchDB where it is named, the node's own files where they are.
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
        tracing::error!(%why, "sidecars cannot be asked");
        None
    });
    let peers = peers.map(|peers| Arc::new(peers) as Arc<dyn Directories>);
    let has_couchdb = !settings.couchdb.urls.is_empty();
    let elsewhere = peers.into_iter().chain(directories).collect();
    Arc::new(Sources { http: has_couchdb.then_some(http), files, elsewhere })
}

/// Who asks sidecars, where they have users: the same as commands ask a recliner as.
fn peers_login() -> Option<(String, SecretString)> {
    let env = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    Some((env("RECLINER_USER")?, env("RECLINER_PASSWORD")?.into()))
}

/// The node whose directories are read: the one that is served, else the one that the files
/// themselves name, else what CouchDB calls a node without a name.
fn node_of(settings: &Settings, data: &Path) -> String {
    let owner = datadir::owner(data);
    match (settings.nodes.only(), owner) {
        (Some(node), Some(owner)) if node != owner => {
            // A directory that was restored elsewhere keeps the name of the node it came from.
            tracing::warn!(node, owner, directory = %data.display(), "the files there name another node");
            node.to_owned()
        }
        (Some(node), _) => node.to_owned(),
        (None, owner) => owner.unwrap_or_else(|| "nonode@nohost".to_owned()),
    }
}

/// The node whose files are all that is read; none where CouchDB is asked.
pub(super) fn only_node(settings: &Settings) -> Option<String> {
    let data = settings.files.data_dir.as_ref().filter(|_| settings.couchdb.urls.is_empty())?;
    Some(node_of(settings, data))
}

/// Databases that some channel names in full.
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
