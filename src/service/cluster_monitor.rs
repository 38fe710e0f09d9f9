//! Observes a cluster: client, scanner, job state and planner.
//!
//! A service additionally measures free space and pressure.

mod couch_handles;

use super::{StartError, TaskSet, journal_claim, operator_log};
use crate::{
    act::{enforcer, job_state, runs, takeover, warmer},
    advice::{AdviceHandle, AdviceLeft, AdviceSources, AdviceTask},
    datadir::{self, NodeDirectories},
    feeds::feed_client,
    jobs::FailedBuildsByIndex,
    ledger::{Ledger, LedgerInputs, LedgerTask},
    model::{
        channel::Mode,
        forecast::GrowthHistories,
        reads::Reads,
        records::{InMemoryStore, RecoveredState, ScorecardRecords, StateStore},
        settings::{
            ScanViews, Settings,
            advice::{AdviceSettings, RemedySettings},
            limits,
        },
    },
    plan::{Rules, disk, planner, pressure},
    reads::{ReadsInputs, ReadsTask, TaskSettings},
    scan::{
        self,
        xrays::{XrayHandle, XraySettings, XrayTask},
    },
    serve::http::smoosh_channels,
    shared_limits::Granted,
    sources::{
        couchdb::{SetupError, USER_AGENT},
        inventory::{
            Directories, FilesSource, HttpSettings, HttpSource, PeersSource, Source, Sources,
        },
        node_settings::{NodeSettings, NodeSettingsTask},
        present_design::{CurrentClient, DesignReader},
        recliner::login_in_environment,
        request_metrics::RequestMetrics,
    },
    store::{
        deletion_recorder::DeletionRecorderTask, journal::Journal, measurement_archive,
        queue_recorder,
    },
    table::Movements,
    what_if::scorecard::{ScorecardTask, ScorecardView},
};
use couch_handles::CouchHandles;
use couchdb_client::{self, Client, Transport};
use futures::{FutureExt as _, future::BoxFuture};
use std::{collections::BTreeSet, future::ready, path::Path, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot, watch as latest};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};
use wall_clock::Clock;

/// External dependencies of the monitor.
pub struct Dependencies {
    /// Stores everything that must survive a restart.
    pub state_store: Arc<dyn StateStore>,
    /// State of the previous process.
    pub recovery: job_state::Recovery,
    /// Facts measured by the previous process.
    pub previous_facts: BoxFuture<'static, scan::EarlierProcess>,
    /// Measures free space.
    pub meter: Option<Arc<dyn disk::SpaceMeter>>,
    /// Whether jobs may be started. Otherwise pressure is not measured.
    pub acts: bool,
    /// Directories of nodes in addition to those in the settings.
    pub directories: Option<Arc<dyn Directories>>,
    /// The share of limits that several clusters have.
    pub shared: latest::Receiver<Option<Granted>>,
}

impl std::fmt::Debug for Dependencies {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Dependencies")
            .field("state_store", &self.state_store)
            .finish_non_exhaustive()
    }
}

impl Dependencies {
    /// For a command that looks once: stores nothing, starts nothing and measures no pressure.
    pub fn none() -> Self {
        Self {
            state_store: Arc::new(InMemoryStore::default()),
            recovery: RecoveredState::default().into(),
            previous_facts: ready(scan::EarlierProcess::default()).boxed(),
            meter: None,
            acts: false,
            directories: None,
            shared: latest::channel(None).1,
        }
    }
}

/// Records that the previous process left for the scorecard and for advice.
#[derive(Debug)]
struct LeftRecords {
    scorecard: Option<oneshot::Receiver<ScorecardRecords>>,
    advice: Option<oneshot::Receiver<AdviceLeft>>,
}

/// Maximum number of snapshots whose movements wait for the ledger; the scanner keeps further ones.
const WAITING_MOVEMENTS: usize = 4;

impl LeftRecords {
    /// Takes these records out of the previous process's state; also returns the rest of that
    /// state.
    fn of(recovery: job_state::Recovery) -> (job_state::Recovery, Self) {
        let (scorecard, scorecard_rx) = oneshot::channel();
        let (advice, advice_rx) = oneshot::channel();
        let rest = recovery.map(|mut state| {
            // A one-shot command uses neither the scorecard nor the advice.
            let _unused = scorecard.send(std::mem::take(&mut state.scorecard));
            let _unused = advice.send(AdviceLeft {
                advice: std::mem::take(&mut state.advice),
                forecasts: std::mem::take(&mut state.forecasts),
            });
            state
        });
        (rest, Self { scorecard: Some(scorecard_rx), advice: Some(advice_rx) })
    }
}

/// Client, scanner, job state and planner of one cluster.
#[derive(Debug)]
pub struct ClusterMonitor {
    /// The scanner's published state.
    pub scanner: scan::ScanHandle,
    /// The job state: running jobs, and what is remembered about targets.
    pub job_state: job_state::JobStateHandle,
    /// The published plans.
    pub planner: planner::PlannerHandle,
    /// The scorecard of advice.
    pub scorecard: latest::Receiver<Arc<ScorecardView>>,
    /// The CouchDB client.
    pub client: Client,
    pub(super) clock: Clock,
    metrics: Arc<RequestMetrics>,
    stop: CancellationToken,
    /// Dropping the monitor ends its tasks.
    _stop_on_drop: DropGuard,
    /// Stops the task of the current client.
    client_stop: CancellationToken,
    /// Tasks that still need the client after all others have stopped, to finish their work.
    client_users: TaskTracker,
    handles: CouchHandles,
    scan_settings: latest::Sender<Arc<scan::ScanSettings>>,
    plan_settings: latest::Sender<Arc<planner::Policy>>,
    job_state_settings: latest::Sender<Arc<job_state::JobStateSettings>>,
    disk_settings: latest::Sender<Arc<disk::DiskSettings>>,
    pressure_settings: latest::Sender<Arc<limits::Pressure>>,
    takeover_settings: latest::Sender<Arc<takeover::TakeoverSettings>>,
    xray_settings: latest::Sender<Arc<XraySettings>>,
    warmer_settings: latest::Sender<Arc<warmer::WarmerSettings>>,
    feed_client_settings: latest::Sender<feed_client::FeedSettings>,
    advice_settings: latest::Sender<AdviceSettings>,
    remedy_settings: latest::Sender<RemedySettings>,
    reads_settings: latest::Sender<TaskSettings>,
    store: Arc<dyn StateStore>,
    /// Kept until the tasks of the scorecard and of advice take them.
    left_records: LeftRecords,
    disks: latest::Receiver<Arc<disk::Disks>>,
    /// Kept until the ledger takes it.
    movements: Option<mpsc::Receiver<Movements>>,
}

/// What other tasks learn over time and the advice reads: the growth of volumes, who reads the indexes,
/// and the indexes whose builds fail.
type LearnedByOthers = (
    latest::Receiver<Arc<GrowthHistories>>,
    latest::Receiver<Arc<Reads>>,
    latest::Receiver<Arc<FailedBuildsByIndex>>,
);

impl ClusterMonitor {
    /// Starts the tasks.
    ///
    /// # Errors
    /// If the client cannot be created.
    pub fn start(
        settings: &Settings,
        transport: Transport,
        clock: Clock,
        registry: &prometheus::Registry,
        tasks: &mut TaskSet,
        stop: &CancellationToken,
        around: impl FnOnce(latest::Receiver<Client>) -> Dependencies,
    ) -> Result<Self, StartError> {
        let metrics = Arc::new(RequestMetrics::register(registry)?);
        let (client, client_task) = Client::builder(settings.couchdb.clone())
            .transport(transport)
            .observer(Arc::<RequestMetrics>::clone(&metrics))
            .build()
            .map_err(SetupError)?;
        let (client_stop, carried) = (CancellationToken::new(), TaskTracker::new());
        carried.close();
        spawn_client(client_task, client_stop.clone(), stop.clone(), carried.clone(), tasks);
        let current_client = latest::channel(client.clone()).0;
        let needs = around(current_client.subscribe());
        let Dependencies { state_store, recovery, previous_facts, directories, shared, .. } = needs;
        let (recovery, left_records) = LeftRecords::of(recovery);
        let store = Arc::clone(&state_store);
        let peers = sidecars(settings, clock);
        let reach = CouchHandles::new(current_client, settings, clock, peers.clone(), directories);
        let scan = settings_channel(scan_settings(settings));
        let plan = settings_channel(plan_settings(settings));
        // A command that reads once starts no jobs, so its plan must not ramp up.
        let mut follow = follow_settings(settings);
        follow.acting &= needs.acts;
        let follow = settings_channel(follow);
        let disk = settings_channel(disk::DiskSettings::of(settings, datadir::directory_owner));
        let pressure = settings_channel(settings.pressure);

        let (scan_task, scanner) =
            scan::ScanTask::new(clock, reach.source.subscribe(), scan.subscribe());
        let (task, follower) =
            job_state::JobStateTask::new(clock, scanner.clone(), follow.subscribe(), state_store);
        let task = task.bounded_by(shared.clone());
        let (moved, movements) = mpsc::channel(WAITING_MOVEMENTS);
        let scan_task = scan_task.correcting(follower.corrections.clone()).reporting(moved);
        tasks.spawn_on_own_thread("scanner", scan_task.run_after(previous_facts, stop.clone()));
        tasks.spawn("job state task", task.run(recovery, stop.clone()));

        let mut inputs = planner::Inputs {
            jobs: follower.jobs.clone(),
            constraints: follower.constraints.clone(),
            shared,
            ..planner::Inputs::facts_only(scanner.snapshots.clone())
        };
        if let Some(meter) = needs.meter {
            let (snapshots, jobs) = (scanner.snapshots.clone(), follower.jobs.clone());
            let (task, disks) =
                disk::DiskTask::new(clock, meter, disk.subscribe(), snapshots, jobs);
            inputs.disks = disks;
            tasks.spawn("free space monitor", task.run(stop.clone()));
        }
        if needs.acts {
            let (snapshots, jobs) = (scanner.snapshots.clone(), follower.jobs.clone());
            let (task, pressures) = pressure::PressureTask::new(
                clock,
                reach.probe.subscribe(),
                pressure.subscribe(),
                snapshots,
                jobs,
            );
            inputs.pressures = pressures;
            tasks.spawn("pressure monitor", task.run(stop.clone()));
        }

        let disks = inputs.disks.clone();
        let (task, planner) = planner::PlannerTask::new(clock, inputs, plan.subscribe());
        tasks.spawn_on_own_thread("planner", task.run(stop.clone()));
        let (stop, ends) = (stop.clone(), stop.clone().drop_guard());
        Ok(Self {
            scanner,
            job_state: follower,
            planner,
            scorecard: latest::channel(Arc::default()).1,
            client,
            clock,
            metrics,
            stop,
            _stop_on_drop: ends,
            client_stop,
            client_users: carried,
            handles: reach,
            scan_settings: scan,
            plan_settings: plan,
            job_state_settings: follow,
            disk_settings: disk,
            pressure_settings: pressure,
            takeover_settings: settings_channel(takeover::TakeoverSettings::from(settings)),
            xray_settings: settings_channel(xray_settings(settings, peers.clone())),
            warmer_settings: settings_channel(warmer::WarmerSettings::from(settings)),
            feed_client_settings: latest::channel(settings.follow).0,
            advice_settings: latest::channel(settings.advice).0,
            remedy_settings: latest::channel(RemedySettings::from(settings)).0,
            reads_settings: latest::channel(reads_settings(settings, peers)).0,
            store,
            left_records,
            disks,
            movements: Some(movements),
        })
    }

    /// Starts the enforcer, which starts compactions if the settings allow it, and the task that
    /// ends runs. Nothing else starts any compaction.
    pub fn start_enforcer(&self, tasks: &mut TaskSet) {
        let inputs = enforcer::EnforcerInputs {
            plans: self.planner.plan.clone(),
            source: self.handles.source.subscribe(),
            api: self.handles.compaction_api.subscribe(),
            job_state: self.job_state.clone(),
            scanner: self.scanner.clone(),
            scan_settings: self.scan_settings.subscribe(),
        };
        let task = enforcer::EnforcerTask::new(self.clock, inputs).run(self.stop.clone());
        tasks.spawn("enforcer", self.client_users.track_future(task));
        let task = runs::RunTask {
            clock: self.clock,
            plans: self.planner.plan.clone(),
            status: self.scanner.status.clone(),
            job_state: self.job_state.clone(),
        };
        tasks.spawn("runs", task.run(self.stop.clone()));
    }

    /// Starts the task that writes the operator's log lines; returns a receiver for the state of
    /// the configured URLs.
    pub fn start_operator_log(
        &self,
        tasks: &mut TaskSet,
    ) -> latest::Receiver<Arc<[couchdb_client::EntryStatus]>> {
        let scan::ScanHandle { status, snapshots, .. } = self.scanner.clone();
        let client = self.handles.client.subscribe();
        let (task, entries) = operator_log::OperatorLogTask::new(client, status, snapshots);
        tasks.spawn("operator log", task.run(self.stop.clone()));
        entries
    }

    /// Starts the tasks that save what sweeps found: facts for the next process, and how many documents are deleted.
    pub fn start_archive(&self, journal: Journal, tasks: &mut TaskSet) {
        let settled = self.scanner.confirmed_events();
        let scan::ScanHandle { status, snapshots, .. } = self.scanner.clone();
        let seen = (status.clone(), snapshots.clone());
        let task = DeletionRecorderTask::new(self.clock, seen, journal.clone());
        tasks.spawn_on_own_thread("deletion recorder", task.run(self.stop.clone()));
        let task = measurement_archive::ArchiveTask::new(status, snapshots, settled, journal);
        tasks.spawn_on_own_thread("measurement archive", task.run(self.stop.clone()));
    }

    /// Starts the task that checks after each reload that the journal is still the cluster's own.
    pub fn start_claim_guard(&self, journal: Journal, tasks: &mut TaskSet) {
        let guard = journal_claim::keep_claimed(journal, self.clients());
        let guard = self.stop.clone().run_until_cancelled_owned(guard).map(drop);
        tasks.spawn("journal's claim", guard);
    }

    /// Starts the task that records queue events.
    pub fn start_recorder(&self, journal: Journal, tasks: &mut TaskSet) {
        let task =
            queue_recorder::RecorderTask::new(self.clock, self.planner.plan.clone(), journal);
        tasks.spawn_on_own_thread("queue recorder", task.run(self.stop.clone()));
    }

    /// Starts the scorecard of advice, once.
    pub fn start_scorecard(&mut self, tasks: &mut TaskSet) {
        let Some(recovered) = self.left_records.scorecard.take() else { return };
        let store = Arc::clone(&self.store);
        let (plans, totals) = (self.planner.plan.clone(), self.job_state.totals.clone());
        let (task, scorecard) = ScorecardTask::new(self.clock, plans, totals, store);
        self.scorecard = scorecard;
        tasks.spawn_on_own_thread("scorecard", task.run(recovered, self.stop.clone()));
    }

    /// Starts the ledger, once.
    pub(crate) fn start_ledger(
        &mut self,
        journal: Journal,
        interval: Duration,
        tasks: &mut TaskSet,
    ) -> Ledger {
        let Some(movements) = self.movements.take() else {
            let (books, histories) =
                (latest::channel(Arc::default()), latest::channel(Arc::default()));
            return Ledger { books: books.1, histories: histories.1 };
        };
        let (status, disks) = (self.scanner.status.clone(), self.disks.clone());
        let inputs = LedgerInputs { movements, status, disks, journal, interval };
        let (task, ledger) = LedgerTask::new(self.clock, inputs);
        tasks.spawn("ledger", task.run(self.stop.clone()));
        ledger
    }

    /// Starts the task that follows access logs.
    pub fn start_reads(
        &self,
        journal: Journal,
        tasks: &mut TaskSet,
    ) -> latest::Receiver<Arc<Reads>> {
        let snapshots = self.scanner.snapshots.clone();
        let settings = self.reads_settings.subscribe();
        let (task, reads) =
            ReadsTask::new(self.clock, ReadsInputs { journal, snapshots, settings });
        tasks.spawn_on_own_thread("reads", task.run(self.stop.clone()));
        reads
    }

    /// Starts the task that works out advice, once.
    pub fn start_advice(
        &mut self,
        node_settings: latest::Receiver<Arc<NodeSettings>>,
        (histories, reads, failed_builds): LearnedByOthers,
        tasks: &mut TaskSet,
    ) -> AdviceHandle {
        let sources = AdviceSources {
            plans: self.planner.plan.clone(),
            status: self.scanner.status.clone(),
            node_settings,
            smoosh_channels,
            settings: self.advice_settings.subscribe(),
            remedy_settings: self.remedy_settings.subscribe(),
            histories,
            reads,
            failed_builds,
        };
        let (task, handle) = AdviceTask::new(self.clock, sources, Arc::clone(&self.store));
        if let Some(recovered) = self.left_records.advice.take() {
            tasks.spawn_on_own_thread("advice", task.run(recovered, self.stop.clone()));
        }
        handle
    }

    /// Starts the warmer, which keeps indexes built if the settings say so, and otherwise reports
    /// what it would build.
    pub fn start_warmer(
        &self,
        journal: Option<Journal>,
        seed: u64,
        tasks: &mut TaskSet,
    ) -> warmer::WarmerHandle {
        let inputs = warmer::WarmerInputs {
            plans: self.planner.plan.clone(),
            settings: self.warmer_settings.subscribe(),
            api: self.handles.index_build_api.subscribe(),
            scanner: self.scanner.clone(),
            journal,
            seed,
        };
        let (task, handle) = warmer::WarmerTask::new(self.clock, inputs);
        tasks.spawn("warmer", task.run(self.stop.clone()));
        handle
    }

    /// Starts the feed client, which tells the scanner which databases changed.
    pub fn start_feed_client(
        &self,
        journal: Option<Journal>,
        tasks: &mut TaskSet,
    ) -> feed_client::FeedClientHandle {
        let (feeds, settings) =
            (self.handles.feeds.subscribe(), self.feed_client_settings.subscribe());
        let scanner = self.scanner.clone();
        let (task, handle) =
            feed_client::FeedClientTask::new(self.clock, feeds, settings, scanner, journal);
        tasks.spawn("feed client", task.run(self.stop.clone()));
        handle
    }

    /// Starts the task that X-rays files.
    pub fn start_xrays(&self, tasks: &mut TaskSet) -> XrayHandle {
        let (settings, scanner) = (self.xray_settings.subscribe(), self.scanner.clone());
        let (task, handle) = XrayTask::new(self.clock, settings, scanner);
        tasks.spawn("x-rays", task.run(self.stop.clone()));
        handle
    }

    /// The current client of CouchDB, sent again after each reload.
    pub fn clients(&self) -> latest::Receiver<Client> {
        self.handles.client.subscribe()
    }

    /// Reads design documents with the current client.
    pub fn design_reader(&self) -> Arc<dyn DesignReader> {
        Arc::new(CurrentClient(self.handles.client.subscribe()))
    }

    /// Starts the task that reads the nodes' settings, and reads them again whenever `writer`
    /// changes, which is the state of a task that writes settings.
    pub fn start_node_settings<T: Send + Sync + 'static>(
        &self,
        writer: latest::Receiver<T>,
        tasks: &mut TaskSet,
    ) -> latest::Receiver<Arc<NodeSettings>> {
        let (client, snapshots) = (self.clients(), self.scanner.snapshots.clone());
        let (task, settings) = NodeSettingsTask::new(client, snapshots);
        tasks.spawn("reader of node settings", task.run(writer, self.stop.clone()));
        settings
    }

    /// Starts the task that takes smoosh channels over if the settings say so, and restores them.
    pub fn start_takeover(
        &self,
        store: Arc<dyn takeover::TakeoverStore>,
        tasks: &mut TaskSet,
    ) -> takeover::TakeoverHandle {
        let (config_api, settings) =
            (self.handles.config_api.subscribe(), self.takeover_settings.subscribe());
        let snapshots = self.scanner.snapshots.clone();
        let (task, handle) =
            takeover::TakeoverTask::new(self.clock, config_api, store, settings, snapshots);
        let task = self.client_users.track_future(task.run(self.stop.clone()));
        tasks.spawn("smoosh takeover", task);
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
        tasks: &mut TaskSet,
    ) -> Result<(), SetupError> {
        if old.couchdb != new.couchdb {
            let couchdb = new.couchdb.clone();
            let metrics = Arc::<RequestMetrics>::clone(&self.metrics);
            let (client, task) =
                Client::builder(couchdb).user_agent(USER_AGENT).observer(metrics).build()?;
            self.client_stop.cancel();
            self.client_stop = CancellationToken::new();
            let (replaced, stop) = (self.client_stop.clone(), self.stop.clone());
            spawn_client(task, replaced, stop, self.client_users.clone(), tasks);
            self.client = client;
            // An open feed stays open unless the access to CouchDB changed.
            self.handles.feeds.send_replace(Arc::new(self.client.clone()));
        }
        let peers = sidecars(new, self.clock);
        self.handles.replace(&self.client, new, self.clock, peers.clone());
        self.scan_settings.send_replace(Arc::new(scan_settings(new)));
        self.plan_settings.send_replace(Arc::new(plan_settings(new)));
        self.job_state_settings.send_replace(Arc::new(follow_settings(new)));
        self.disk_settings
            .send_replace(Arc::new(disk::DiskSettings::of(new, datadir::directory_owner)));
        self.pressure_settings.send_replace(Arc::new(new.pressure));
        self.takeover_settings.send_replace(Arc::new(takeover::TakeoverSettings::from(new)));
        self.xray_settings.send_replace(Arc::new(xray_settings(new, peers.clone())));
        self.warmer_settings.send_replace(Arc::new(warmer::WarmerSettings::from(new)));
        self.advice_settings.send_replace(new.advice);
        self.remedy_settings.send_replace(new.into());
        self.reads_settings.send_replace(reads_settings(new, peers));
        self.feed_client_settings
            .send_if_modified(|follow| std::mem::replace(follow, new.follow) != new.follow);
        Ok(())
    }
}

/// Runs a client's task. Its end is expected when the client is replaced.
fn spawn_client(
    task: couchdb_client::ClientTask,
    replaced: CancellationToken,
    stop: CancellationToken,
    carried: TaskTracker,
    tasks: &mut TaskSet,
) {
    tasks.spawn("couchdb client", async move {
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
    });
}

/// Creates the source: CouchDB and the local node's files, as far as configured.
fn build_source(
    client: &Client,
    settings: &Settings,
    clock: Clock,
    elsewhere: Vec<Arc<dyn Directories>>,
) -> Arc<dyn Source> {
    let http = HttpSettings {
        requests_in_flight: settings.couchdb.requests_in_flight,
        languages: settings.warmer.languages.clone(),
        named: databases_named_in_full(settings),
    };
    let http = HttpSource::new(client.clone(), clock, http);
    if let Some(problem) = owner_problem(settings) {
        tracing::warn!("{problem}");
    }
    let files = local_directories(settings)
        .map(|(node, directories)| FilesSource::new(&node, directories, clock));
    let has_couchdb = !settings.couchdb.urls.is_empty();
    Arc::new(Sources { http: has_couchdb.then_some(http), files, elsewhere })
}

/// The directories of the node whose files this process reads.
fn local_directories(settings: &Settings) -> Option<(String, NodeDirectories)> {
    let data = settings.files.data_dir.clone()?;
    let node = local_node(settings, &data);
    Some((node, NodeDirectories { data, views: settings.files.view_index_dir.clone() }))
}

fn sidecars(settings: &Settings, clock: Clock) -> Option<PeersSource> {
    PeersSource::new(&settings.peers, login_in_environment(), clock).unwrap_or_else(|why| {
        tracing::error!(%why, "cannot create the client for sidecars");
        None
    })
}

fn xray_settings(settings: &Settings, peers: Option<PeersSource>) -> XraySettings {
    XraySettings {
        local: local_directories(settings).map(|(node, files)| (node.into(), files)),
        peers: peers.map(Arc::new),
        bytes_per_second: settings.files.xray_rate,
    }
}

fn reads_settings(settings: &Settings, peers: Option<PeersSource>) -> TaskSettings {
    TaskSettings { reads: settings.reads.clone(), peers }
}

/// The node whose directories are read: the only served node, otherwise the one that the files
/// name, otherwise CouchDB's default for an unnamed node.
fn local_node(settings: &Settings, data: &Path) -> String {
    let named = settings.nodes.only().map(str::to_owned);
    let node = named.or_else(|| datadir::directory_owner(data));
    node.unwrap_or_else(|| "nonode@nohost".to_owned())
}

/// Why the files may not belong to the configured node: another node wrote them last. This only warns, because a
/// node may have been renamed, or its files restored.
pub fn owner_problem(settings: &Settings) -> Option<String> {
    let data = settings.files.data_dir.as_ref()?;
    let node = settings.nodes.only()?;
    let owner = datadir::directory_owner(data)?;
    let data = data.display();
    (node != owner).then(|| {
        format!(
            "the files in {data} were last written by {owner}, not by {node}: if {node} was neither renamed nor restored from that node, name its own data directory"
        )
    })
}

/// The node whose files are the only source; `None` if CouchDB is used.
pub(super) fn files_only_node(settings: &Settings) -> Option<String> {
    let data = settings.files.data_dir.as_ref().filter(|_| settings.couchdb.urls.is_empty())?;
    Some(local_node(settings, data))
}

/// Databases that some channel names without wildcards.
fn databases_named_in_full(settings: &Settings) -> Vec<String> {
    let included = settings.channels.list.iter().flat_map(|channel| channel.databases.texts().0);
    let whole = included.filter(|text| !text.contains(['*', '?', '[', ']', '{', '}', '\\', '!']));
    whole.cloned().collect::<BTreeSet<_>>().into_iter().collect()
}

fn settings_channel<T>(settings: T) -> latest::Sender<Arc<T>> {
    latest::channel(Arc::new(settings)).0
}

fn follow_settings(settings: &Settings) -> job_state::JobStateSettings {
    job_state::JobStateSettings {
        failure: settings.failure,
        headroom_factor: settings.headroom.factor,
        channels: Arc::new(settings.channels.clone()),
        acting: settings.mode == Mode::Enforce,
    }
}

fn scan_settings(settings: &Settings) -> scan::ScanSettings {
    scan::ScanSettings {
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

fn plan_settings(settings: &Settings) -> planner::Policy {
    planner::Policy {
        channels: Arc::new(settings.channels.clone()),
        rules: Rules {
            mode: settings.mode,
            limits: settings.limits,
            headroom: settings.headroom.clone(),
            rent: settings.rent,
            views: settings.views.enforce,
            fresh_for: settings.scan.fresh_for,
            ..Rules::default()
        },
    }
}
