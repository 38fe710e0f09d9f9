//! The warmer: keeps indexes of views and of search built, as CouchDB's ken does, from outside.
//!
//! Owns what is remembered of indexes that lag, decides by ken's rules which of them are
//! built, and, where the mode is enforce and the warmer is enabled, has CouchDB build them
//! by a query that it does not wait for. Else it says what it would do. Never measures: the
//! scanner does, and is asked to before a build and after; never compacts.
//!
//! ken runs on every node and cannot be seen. So only lag that outlives a grace without an
//! indexer is acted on; and as a query builds all copies of an index, each counts against
//! the indexers that run on its node. Follows the plan that the planner published last:
//! facts, jobs, gates and disks of one moment.

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

/// From one look at the tables to the next.
const PERIOD: Duration = Duration::from_secs(5);

/// How long a node's threshold is believed.
const THRESHOLD_HOLDS: Duration = Duration::from_secs(600);

/// Lines that are published by name; the counts are of all.
const LINES: usize = 1_000;

/// What the warmer goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Its own settings.
    pub warmer: settings::work::Warmer,
    /// Whether the process may start anything.
    pub mode: Mode,
    /// How many indexes are exported by name.
    pub top: usize,
}

impl From<&settings::Settings> for Settings {
    fn from(settings: &settings::Settings) -> Self {
        Self { warmer: settings.warmer.clone(), mode: settings.mode, top: settings.scan.top }
    }
}

/// What the warmer reads and uses.
#[derive(Debug)]
pub struct Inputs {
    /// Facts, jobs, gates and disks.
    pub plans: watch::Receiver<Arc<Plan>>,
    /// What it goes by.
    pub settings: watch::Receiver<Arc<Settings>>,
    /// Who asks CouchDB.
    pub hands: watch::Receiver<Arc<dyn Hands>>,
    /// Who measures.
    pub scanner: scan::Handle,
    /// Where builds are written down.
    pub journal: Option<Journal>,
    /// Decides the order of builds.
    pub luck: u64,
}

/// Which indexes lag, and what is done about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Builds {
    /// When that was looked at; none before the first look.
    pub at: Option<Moment>,
    /// Whether builds are started, rather than named.
    pub acting: bool,
    /// How many lines are exported by name.
    pub top: usize,
    /// Indexes that lag or are built, those that lag most first: a thousand at most.
    pub lines: Vec<Line>,
    /// Builds of this process that go on.
    pub running: BTreeMap<Class, u64>,
    /// Indexes that lag behind documents and wait to be built.
    pub waiting: BTreeMap<Class, u64>,
    /// Indexes that lag though something was tried, or whose indexers do nothing.
    pub stalled: u64,
    /// Builds that were asked for since the process began.
    pub started: BTreeMap<Class, u64>,
    /// And how they ended.
    pub finished: BTreeMap<(Class, Ending), u64>,
}

/// The way to read what the warmer does.
#[derive(Clone, Debug)]
pub struct Handle {
    /// What was published last.
    pub builds: watch::Receiver<Arc<Builds>>,
}

/// Keeps indexes built.
#[derive(Debug)]
pub struct Task {
    clock: Clock,
    inputs: Inputs,
    memory: Memory,
    /// Builds that were asked for and have not ended. A target may be gone by then.
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
    /// Makes the task and its handle.
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

    /// Works until `stop`.
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
            // Where the queue is full they are asked for again at a later look.
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
        tracing::info!(target_id = %target.id(), class = class.label(), "an index build is started");
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

    /// `why` is what CouchDB said when it refused.
    fn ended(&mut self, ix: Ix, class: Class, ending: Ending, why: Option<&str>) {
        *self.totals.finished.entry((class, ending)).or_default() += 1;
        let Some((target, started_at)) = self.under_way.remove(&ix) else { return };
        let took = duration::shown(started_at.age(self.clock.now()));
        let class = class.label();
        match ending {
            Ending::Built => {
                tracing::info!(target_id = %target, class, took, "an index build ended");
            }
            Ending::Failed => {
                let why = why.unwrap_or("no indexer works on it and it still lags, or it is gone");
                tracing::warn!(target_id = %target, class, took, why, "an index build failed");
            }
        }
        self.note(What::IndexBuildFinished { target, result: ending.label().to_owned() });
    }

    fn note(&self, what: What) {
        if let Some(journal) = &self.inputs.journal {
            journal.note(what);
        }
    }

    /// Asks nodes where an index may be built for the threshold of their disk monitor.
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
