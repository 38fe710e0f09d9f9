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

mod choose;
mod class;
mod hands;
mod look;
mod memory;

pub use choose::{Line, Reason, Standing};
pub use class::Class;
pub use hands::Hands;
pub use memory::Ending;

use crate::{
    model::{channel::Mode, settings, target::TargetId},
    plan::Plan,
    scan,
    store::journal::{Journal, What},
    table::{Ix, NodeIx},
    tasks::joined,
    text::duration,
};
use choose::Present;
use look::Looked;
use memory::Memory;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{self, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// Interval between checks of the tables.
const PERIOD: Duration = Duration::from_secs(5);

/// How long a node's disk threshold is cached.
const THRESHOLD_HOLDS: Duration = Duration::from_secs(600);

/// Maximum number of indexes listed; the counts include all.
const LINES: usize = 1_000;

/// Settings of the warmer.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The `warmer` section of the configuration.
    pub warmer: settings::work::Warmer,
    /// The mode of the process.
    pub mode: Mode,
    /// Number of indexes exported by name.
    pub top: usize,
}

impl From<&settings::Settings> for Settings {
    fn from(settings: &settings::Settings) -> Self {
        Self { warmer: settings.warmer.clone(), mode: settings.mode, top: settings.scan.top }
    }
}

/// Inputs of the warmer.
#[derive(Debug)]
pub struct Inputs {
    /// Plans with facts, jobs, gates and disks.
    pub plans: watch::Receiver<Arc<Plan>>,
    /// Settings of the warmer.
    pub settings: watch::Receiver<Arc<Settings>>,
    /// Sends requests to CouchDB.
    pub hands: watch::Receiver<Arc<dyn Hands>>,
    /// Rereads targets.
    pub scanner: scan::Handle,
    /// Records builds.
    pub journal: Option<Journal>,
    /// Seed for the order of builds.
    pub luck: u64,
}

/// Lagging indexes and their builds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Builds {
    /// Time of the last check; `None` before the first.
    pub at: Option<Moment>,
    /// Whether builds are started rather than only listed.
    pub acting: bool,
    /// Number of indexes exported by name.
    pub top: usize,
    /// Indexes that lag or are being built, largest lag first; at most a thousand.
    pub lines: Vec<Line>,
    /// Running builds of this process.
    pub running: BTreeMap<Class, u64>,
    /// Indexes that miss documents and wait to be built.
    pub waiting: BTreeMap<Class, u64>,
    /// Indexes that still lag after builds, or whose indexers make no progress.
    pub stalled: u64,
    /// Builds requested since the process started.
    pub started: BTreeMap<Class, u64>,
    /// Ended builds since the process started.
    pub finished: BTreeMap<(Class, Ending), u64>,
}

/// Handle for reading the state of the warmer.
#[derive(Clone, Debug)]
pub struct Handle {
    /// The last published state.
    pub builds: watch::Receiver<Arc<Builds>>,
}

/// The task that keeps indexes built.
#[derive(Debug)]
pub struct Task {
    clock: Clock,
    inputs: Inputs,
    memory: Memory,
    /// Requested builds that have not ended. Their targets may no longer exist.
    under_way: BTreeMap<Ix, (TargetId, Moment)>,
    looked: Looked,
    thresholds: BTreeMap<NodeIx, (Moment, Option<f64>)>,
    sending: JoinSet<(Ix, Result<(), String>)>,
    asking: JoinSet<(NodeIx, Option<f64>)>,
    totals: Builds,
    builds: watch::Sender<Arc<Builds>>,
    turn: u64,
}

impl Task {
    /// Creates the task and its handle.
    #[must_use]
    pub fn new(clock: Clock, inputs: Inputs) -> (Self, Handle) {
        let (builds, reader) = watch::channel(Arc::default());
        let task = Self {
            clock,
            inputs,
            memory: Memory::default(),
            under_way: BTreeMap::new(),
            looked: Looked::default(),
            thresholds: BTreeMap::new(),
            sending: JoinSet::new(),
            asking: JoinSet::new(),
            totals: Builds::default(),
            builds,
            turn: 0,
        };
        (task, Handle { builds: reader })
    }

    /// Runs until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut tick = time::interval(PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Every arm is cancel-safe, and no arm's body awaits.
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some(sent) = self.sending.join_next() => {
                    if let Some(sent) = joined(sent) {
                        self.sent(sent);
                    }
                }
                Some(asked) = self.asking.join_next() => {
                    if let Some((node, threshold)) = joined(asked) {
                        self.thresholds.insert(node, (self.clock.now(), threshold));
                    }
                }
                _ = tick.tick() => self.look(),
            }
        }
    }

    fn look(&mut self) {
        let plan = Arc::clone(&self.inputs.plans.borrow_and_update());
        let settings = Arc::clone(&self.inputs.settings.borrow_and_update());
        let now = self.clock.now();
        self.looked = look::look(&plan.snapshot);
        let warmer = &settings.warmer;
        let step = self.memory.see(&self.looked.all, &plan.conditions.jobs, warmer, now);
        for (ix, class, ending) in step.ended {
            self.ended(ix, class, ending, None);
        }
        let thresholds: BTreeMap<NodeIx, f64> = self
            .thresholds
            .iter()
            .filter_map(|(node, (_, threshold))| Some((*node, (*threshold)?)))
            .collect();
        self.turn = self.turn.wrapping_add(1);
        let luck = self.inputs.luck.wrapping_add(self.turn);
        let acting = warmer.enabled && settings.mode == Mode::Enforce;
        let thresholds = &thresholds;
        let present = Present { plan: &plan, settings: warmer, thresholds, acting, luck, now };
        let mut chosen = choose::choose(&self.looked, &self.memory, present);
        let mut reread = step.reread;
        if acting {
            self.ask_thresholds(&plan, now);
            for (at, class) in std::mem::take(&mut chosen.starts) {
                self.start(&plan, at, class, now);
            }
            for ix in &chosen.reread {
                self.memory.asked(*ix, now);
            }
            reread.extend(chosen.reread);
        }
        if !reread.is_empty() {
            // If the queue is full, the request is repeated at a later check.
            let _full = self.inputs.scanner.send(scan::Command::Reread(reread));
        }
        self.totals.top = settings.top;
        self.publish(chosen.lines, acting, now);
    }

    fn start(&mut self, plan: &Plan, at: usize, class: Class, now: Moment) {
        let Some(seen) = self.looked.all.get(at) else { return };
        let Some(target) = plan.snapshot.target(seen.ix) else { return };
        let Some(query) = target.view().and_then(|view| view.built_by.clone()) else { return };
        let (ix, db) = (seen.ix, target.db_name().db.to_owned());
        let engine = target.search().map(|search| search.engine);
        self.memory.start(seen, class, now);
        self.under_way.insert(ix, (target.id(), now));
        *self.totals.started.entry(class).or_default() += 1;
        self.note(What::IndexBuildStarted { target: target.id(), class: class.label().to_owned() });
        tracing::info!(target_id = %target.id(), class = class.label(), "index build started");
        let hands = Arc::clone(&self.inputs.hands.borrow());
        self.sending.spawn(async move { (ix, hands.build(&db, &query, engine).await) });
    }

    fn sent(&mut self, (ix, sent): (Ix, Result<(), String>)) {
        let Err(why) = sent else { return };
        let settings = Arc::clone(&self.inputs.settings.borrow());
        if let Some(class) = self.memory.refused(ix, &settings.warmer, self.clock.now()) {
            self.ended(ix, class, Ending::Failed, Some(&why));
        }
    }

    /// `why` is CouchDB's error if it refused the build.
    fn ended(&mut self, ix: Ix, class: Class, ending: Ending, why: Option<&str>) {
        *self.totals.finished.entry((class, ending)).or_default() += 1;
        let Some((target, started_at)) = self.under_way.remove(&ix) else { return };
        let took = duration::shown(started_at.age(self.clock.now()));
        let class = class.label();
        match ending {
            Ending::Built => {
                tracing::info!(target_id = %target, class, took, "index build ended");
            }
            Ending::Failed => {
                let why = why
                    .unwrap_or("no indexer works on it and it still lags, or it no longer exists");
                tracing::warn!(target_id = %target, class, took, why, "index build failed");
            }
        }
        self.note(What::IndexBuildFinished { target, result: ending.label().to_owned() });
    }

    fn note(&self, what: What) {
        if let Some(journal) = &self.inputs.journal {
            journal.note(what);
        }
    }

    /// Reads the disk monitor's threshold from nodes where an index may be built.
    fn ask_thresholds(&mut self, plan: &Plan, now: Moment) {
        if !self.asking.is_empty() {
            return;
        }
        let lagging = self.looked.all.iter().filter(|seen| seen.pending > 0 && !seen.search);
        let nodes: std::collections::BTreeSet<NodeIx> =
            lagging.flat_map(|seen| seen.database.sites.keys().copied()).collect();
        for node in nodes {
            let known = self.thresholds.get(&node);
            if known.is_some_and(|(at, _)| at.age(now) < THRESHOLD_HOLDS) {
                continue;
            }
            let Some(name) = plan.snapshot.node(node).map(|node| Arc::clone(&node.name)) else {
                continue;
            };
            let hands = Arc::clone(&self.inputs.hands.borrow());
            self.asking.spawn(async move { (node, hands.threshold(&name).await) });
        }
    }

    fn publish(&mut self, mut lines: Vec<Line>, acting: bool, now: Moment) {
        let mut builds = Builds { at: Some(now), acting, ..self.totals.clone() };
        for line in &lines {
            let count = match line.standing {
                Standing::Builds => &mut builds.running,
                Standing::Starts if acting => &mut builds.running,
                Standing::Waits(
                    Reason::Phantom | Reason::Running | Reason::Excluded | Reason::NotOffered,
                ) => continue,
                Standing::Starts | Standing::Waits(_) => &mut builds.waiting,
            };
            *count.entry(line.class).or_default() += 1;
        }
        builds.stalled = lines.iter().filter(|line| line.stalled_since.is_some()).count() as u64;
        lines.sort_by_key(|line| (std::cmp::Reverse(line.pending), line.ix));
        lines.truncate(LINES);
        builds.lines = lines;
        self.builds.send_replace(Arc::new(builds));
    }
}
