//! The warmer: keeps view and search indexes built, as CouchDB's ken does, but from outside.
//!
//! Owns the history of lagging indexes and decides by ken's rules which of them to build. In
//! enforce mode with the warmer enabled, it makes CouchDB build them by a query whose result it
//! does not wait for; otherwise it only reports what it would do. Never measures: the scanner does
//! that, and is asked to before and after a build. Never compacts.
//!
//! ken runs on every node and cannot be observed. The warmer therefore acts only on lag that
//! outlasts a grace period without an indexer. A query builds all copies of an index, so each copy
//! counts against the indexers running on its node. All inputs come from the most recently
//! published plan: facts, jobs, gates and disks of one moment.

mod build_history;
mod class;
mod index_build_api;
mod index_lag;
mod selection;

pub use build_history::BuildResult;
pub use class::BuildClass;
pub use index_build_api::IndexBuildApi;
pub use selection::{BuildRefusal, BuildStatus, LaggingIndex};

use crate::{
    jobs::FailedBuildsByIndex,
    model::{channel::Mode, settings, target::TargetId},
    plan::Plan,
    scan,
    store::journal::{EventDetails, Journal},
    table::{NodeIx, Snapshot, TargetIx},
    tasks::{publish_if_changed, unwrap_join},
    text::Label,
    text::duration,
};
use build_history::BuildHistory;
use index_lag::IndexLags;
use selection::SelectionInputs;
use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{self, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// Interval between checks of the tables.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How long a node's disk threshold is cached.
const THRESHOLD_MAX_AGE: Duration = Duration::from_secs(600);

/// Maximum number of indexes listed; the counts include all.
const MAX_LISTED_INDEXES: usize = 1_000;

/// Settings of the warmer.
#[derive(Clone, Debug, PartialEq)]
pub struct WarmerSettings {
    /// The `warmer` section of the configuration.
    pub warmer: settings::work::Warmer,
    /// The mode of the process.
    pub mode: Mode,
    /// Number of indexes exported by name.
    pub top: usize,
}

impl From<&settings::Settings> for WarmerSettings {
    fn from(settings: &settings::Settings) -> Self {
        Self { warmer: settings.warmer.clone(), mode: settings.mode, top: settings.scan.top }
    }
}

/// Inputs of the warmer.
#[derive(Debug)]
pub struct WarmerInputs {
    /// Plans with facts, jobs, gates and disks.
    pub plans: watch::Receiver<Arc<Plan>>,
    /// Settings of the warmer.
    pub settings: watch::Receiver<Arc<WarmerSettings>>,
    /// Sends requests to CouchDB.
    pub api: watch::Receiver<Arc<dyn IndexBuildApi>>,
    /// Rereads targets.
    pub scanner: scan::ScanHandle,
    /// Records builds.
    pub journal: Option<Journal>,
    /// Seed for the order of builds.
    pub seed: u64,
}

/// Lagging indexes and their builds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IndexBuilds {
    /// Time of the last check; `None` before the first.
    pub checked_at: Option<Moment>,
    /// Whether builds are started rather than only listed.
    pub is_enforcing: bool,
    /// Number of indexes exported by name.
    pub top: usize,
    /// Indexes that lag or are being built, largest lag first; at most a thousand.
    pub indexes: Vec<LaggingIndex>,
    /// Running builds of this process.
    pub running: BTreeMap<BuildClass, u64>,
    /// Indexes that miss documents and wait to be built.
    pub waiting: BTreeMap<BuildClass, u64>,
    /// Indexes that still lag after builds, or whose indexers make no progress.
    pub stalled: u64,
    /// Builds requested since the process started.
    pub started: BTreeMap<BuildClass, u64>,
    /// Ended builds since the process started.
    pub finished: BTreeMap<(BuildClass, BuildResult), u64>,
}

impl IndexBuilds {
    /// Whether this process requested a build of an index that still runs.
    pub fn requests(&self, ix: TargetIx) -> bool {
        let is_running = |index: &LaggingIndex| index.status == BuildStatus::Building;
        self.indexes.iter().any(|index| index.ix == ix && is_running(index))
    }
}

/// Handle for reading the state of the warmer.
#[derive(Clone, Debug)]
pub struct WarmerHandle {
    /// The last published state.
    pub builds: watch::Receiver<Arc<IndexBuilds>>,
    /// The indexes whose last builds failed, for the advice.
    pub failed: watch::Receiver<Arc<FailedBuildsByIndex>>,
}

/// The task that keeps indexes built.
#[derive(Debug)]
pub struct WarmerTask {
    clock: Clock,
    inputs: WarmerInputs,
    history: BuildHistory,
    /// Requested builds that have not ended. Their targets may no longer exist.
    running_builds: BTreeMap<TargetIx, (TargetId, Moment)>,
    lags: IndexLags,
    /// The snapshot that `lags` is from. A weak reference keeps no tables in memory.
    lags_of: Weak<Snapshot>,
    thresholds: BTreeMap<NodeIx, (Moment, Option<f64>)>,
    sending: JoinSet<(TargetIx, Result<(), String>)>,
    threshold_reads: JoinSet<(NodeIx, Option<f64>)>,
    totals: IndexBuilds,
    builds: watch::Sender<Arc<IndexBuilds>>,
    failed: watch::Sender<Arc<FailedBuildsByIndex>>,
    check_count: u64,
}

impl WarmerTask {
    /// Creates the task and its handle.
    pub fn new(clock: Clock, inputs: WarmerInputs) -> (Self, WarmerHandle) {
        let (builds, builds_rx) = watch::channel(Arc::default());
        let (failed, failed_rx) = watch::channel(Arc::default());
        let task = Self {
            clock,
            inputs,
            history: BuildHistory::default(),
            running_builds: BTreeMap::new(),
            lags: IndexLags::default(),
            lags_of: Weak::new(),
            thresholds: BTreeMap::new(),
            sending: JoinSet::new(),
            threshold_reads: JoinSet::new(),
            totals: IndexBuilds::default(),
            builds,
            failed,
            check_count: 0,
        };
        (task, WarmerHandle { builds: builds_rx, failed: failed_rx })
    }

    /// Runs until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut tick = time::interval(CHECK_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Every arm is cancel-safe, and no arm's body awaits.
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some(sent) = self.sending.join_next() => {
                    if let Some(sent) = unwrap_join(sent) {
                        self.handle_sent(sent);
                    }
                }
                Some(read) = self.threshold_reads.join_next() => {
                    if let Some((node, threshold)) = unwrap_join(read) {
                        self.thresholds.insert(node, (self.clock.now(), threshold));
                    }
                }
                _ = tick.tick() => self.check(),
            }
        }
    }

    fn check(&mut self) {
        let plan = Arc::clone(&self.inputs.plans.borrow_and_update());
        let settings = Arc::clone(&self.inputs.settings.borrow_and_update());
        let now = self.clock.now();
        let snapshot = Arc::downgrade(&plan.snapshot);
        if !self.lags_of.ptr_eq(&snapshot) {
            self.lags = index_lag::index_lags(&plan.snapshot);
            self.lags_of = snapshot;
        }
        let warmer = &settings.warmer;
        let changes = self.history.update(&self.lags.buildable, &plan.conditions.jobs, warmer, now);
        for (ix, class, result) in changes.ended {
            self.record_end(ix, class, result, None);
        }
        let thresholds: BTreeMap<NodeIx, f64> = self
            .thresholds
            .iter()
            .filter_map(|(node, (_, threshold))| Some((*node, (*threshold)?)))
            .collect();
        self.check_count = self.check_count.wrapping_add(1);
        let seed = self.inputs.seed.wrapping_add(self.check_count);
        let is_enforcing = warmer.enabled && settings.mode == Mode::Enforce;
        let inputs = SelectionInputs {
            plan: &plan,
            settings: warmer,
            thresholds: &thresholds,
            is_enforcing,
            seed,
            now,
        };
        let mut selection = selection::select_builds(&self.lags, &self.history, inputs);
        let mut reread = changes.reread;
        if is_enforcing {
            self.read_thresholds(&plan, now);
            for (at, class) in std::mem::take(&mut selection.starts) {
                self.start_build(&plan, at, class, now);
            }
            for ix in &selection.reread {
                self.history.record_reread(*ix, now);
            }
            reread.extend(selection.reread);
        }
        if !reread.is_empty() {
            // If the queue is full, the request is repeated at a later check.
            let _full = self.inputs.scanner.send(scan::ScanCommand::Reread(reread));
        }
        self.totals.top = settings.top;
        self.publish(selection.indexes, is_enforcing, now);
    }

    fn start_build(&mut self, plan: &Plan, at: usize, class: BuildClass, now: Moment) {
        let Some(lag) = self.lags.buildable.get(at) else { return };
        let Some(target) = plan.snapshot.target(lag.ix) else { return };
        let Some(query) = target.view().and_then(|view| view.build_query.clone()) else { return };
        let (ix, db) = (lag.ix, target.db_name().db.to_owned());
        let engine = target.search().map(|search| search.engine);
        self.history.record_start(lag, class, now);
        self.running_builds.insert(ix, (target.id(), now));
        *self.totals.started.entry(class).or_default() += 1;
        self.record_event(EventDetails::IndexBuildStarted {
            target: target.id(),
            class: class.label().to_owned(),
        });
        tracing::info!(target_id = %target.id(), class = class.label(), "index build started");
        let api = Arc::clone(&self.inputs.api.borrow());
        self.sending.spawn(async move { (ix, api.build(&db, &query, engine).await) });
    }

    fn handle_sent(&mut self, (ix, sent): (TargetIx, Result<(), String>)) {
        let Err(why) = sent else { return };
        let settings = Arc::clone(&self.inputs.settings.borrow());
        let now = self.clock.now();
        if let Some(class) = self.history.record_refusal(ix, &why, &settings.warmer, now) {
            self.record_end(ix, class, BuildResult::Failed, Some(why));
        }
    }

    /// `why` is CouchDB's error if it refused the build.
    fn record_end(
        &mut self,
        ix: TargetIx,
        class: BuildClass,
        result: BuildResult,
        why: Option<String>,
    ) {
        *self.totals.finished.entry((class, result)).or_default() += 1;
        let Some((target, started_at)) = self.running_builds.remove(&ix) else { return };
        let took = duration::format_rounded(started_at.age(self.clock.now()));
        let class = class.label();
        let why = (result == BuildResult::Failed).then(|| {
            why.unwrap_or_else(|| {
                "it still lags but no indexer works on it, or it no longer exists; CouchDB answers a query of it with the error".to_owned()
            })
        });
        match &why {
            None => tracing::info!(target_id = %target, class, took, "index build ended"),
            Some(why) => {
                tracing::warn!(target_id = %target, class, took, why, "index build failed");
            }
        }
        let result = result.label().to_owned();
        self.record_event(EventDetails::IndexBuildFinished { target, result, why });
    }

    fn record_event(&self, what: EventDetails) {
        if let Some(journal) = &self.inputs.journal {
            journal.record(what);
        }
    }

    /// Reads the disk monitor's threshold from nodes where an index may be built.
    fn read_thresholds(&mut self, plan: &Plan, now: Moment) {
        if !self.threshold_reads.is_empty() {
            return;
        }
        let lagging = self.lags.buildable.iter().filter(|lag| lag.pending > 0 && !lag.is_search);
        let nodes: std::collections::BTreeSet<NodeIx> =
            lagging.flat_map(|lag| lag.database.copies_by_node.keys().copied()).collect();
        for node in nodes {
            let cached = self.thresholds.get(&node);
            if cached.is_some_and(|(at, _)| at.age(now) < THRESHOLD_MAX_AGE) {
                continue;
            }
            let Some(name) = plan.snapshot.node(node).map(|node| Arc::clone(&node.name)) else {
                continue;
            };
            let api = Arc::clone(&self.inputs.api.borrow());
            self.threshold_reads.spawn(async move { (node, api.disk_threshold(&name).await) });
        }
    }

    fn publish(&mut self, mut indexes: Vec<LaggingIndex>, is_enforcing: bool, now: Moment) {
        let mut builds = IndexBuilds { checked_at: Some(now), is_enforcing, ..self.totals.clone() };
        for index in &indexes {
            let count = match index.status {
                BuildStatus::Building => &mut builds.running,
                BuildStatus::Starting if is_enforcing => &mut builds.running,
                BuildStatus::Waiting(
                    BuildRefusal::Phantom
                    | BuildRefusal::Running
                    | BuildRefusal::Excluded
                    | BuildRefusal::NotOffered,
                ) => continue,
                BuildStatus::Starting | BuildStatus::Waiting(_) => &mut builds.waiting,
            };
            *count.entry(index.class).or_default() += 1;
        }
        let failed: FailedBuildsByIndex =
            (indexes.iter()).filter_map(|index| Some((index.ix, index.failed.clone()?))).collect();
        publish_if_changed(&self.failed, failed);
        builds.stalled =
            indexes.iter().filter(|index| index.stalled_since.is_some()).count() as u64;
        indexes.sort_by_key(|index| (std::cmp::Reverse(index.pending), index.ix));
        indexes.truncate(MAX_LISTED_INDEXES);
        builds.indexes = indexes;
        self.builds.send_replace(Arc::new(builds));
    }
}
