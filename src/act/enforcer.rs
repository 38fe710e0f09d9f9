//! The enforcer: starts the compactions of the plan, one at a time on each node.
//!
//! Owns the steps from a planned start to CouchDB's answer: it reads again everything the start
//! depends on, stores the intent durably, sends the request once, and reports the result to the
//! job state task. Never decides what is worth starting (`plan`) or how a job ended. Sends nothing
//! in advise mode.

mod attempt;
mod check;
mod hands;
mod splits;

pub use hands::{Hands, Order};

use crate::{
    act::follower,
    model::{channel::Mode, memory::IntentKey},
    plan::{Plan, Start},
    scan,
    sources::inventory::Source,
    table::{Ix, NodeIx},
    tasks::joined,
};
use attempt::{Decided, Tools};
use splits::Splits;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// How long a start that was cancelled just before its request is not retried. The plan may not
/// know the reason yet.
const PAUSE: Duration = Duration::from_secs(30);

/// How long to wait for answers to sent requests when the program stops.
const GRACE: Duration = Duration::from_secs(5);

/// Inputs of the enforcer.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The plans whose starts are executed.
    pub plans: watch::Receiver<Arc<Plan>>,
    /// Source for reading facts again.
    pub source: watch::Receiver<Arc<dyn Source>>,
    /// Sends the requests.
    pub hands: watch::Receiver<Arc<dyn Hands>>,
    /// Tracks the started jobs and stores the intents.
    pub follower: follower::Handle,
    /// Rereads targets that turned out to have changed.
    pub scanner: scan::Handle,
    /// The poll interval.
    pub settings: watch::Receiver<Arc<scan::Settings>>,
}

/// The task that executes the plan.
#[derive(Debug)]
pub struct Task {
    tools: Tools,
    plans: watch::Receiver<Arc<Plan>>,
    settings: watch::Receiver<Arc<scan::Settings>>,
    splits: Splits,
    /// The plan whose starts are being executed.
    plan: Arc<Plan>,
    waiting: VecDeque<Start>,
    deciding: JoinSet<(Place, Decided)>,
    sending: JoinSet<(Place, Gone)>,
    busy: BTreeSet<NodeIx>,
    paused: BTreeMap<Place, Instant>,
    /// Number of starts the job state task has accepted.
    taken: u64,
}

/// A target on a node.
type Place = (Ix, NodeIx);

/// Whether a request was sent.
type Gone = bool;

impl Task {
    /// Creates the task.
    #[must_use]
    pub fn new(clock: Clock, inputs: Inputs) -> Self {
        let Inputs { plans, source, hands, follower, scanner, settings } = inputs;
        let tools = Tools { clock, source, hands, plans: plans.clone(), follower, scanner };
        Self {
            tools,
            plans,
            settings,
            splits: Splits::default(),
            plan: Arc::default(),
            waiting: VecDeque::new(),
            deciding: JoinSet::new(),
            sending: JoinSet::new(),
            busy: BTreeSet::new(),
            paused: BTreeMap::new(),
            taken: 0,
        }
    }

    /// Runs until `stop`, or until the planner ends.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            // Every arm is cancel-safe, and no arm's body awaits. A newer plan is adopted only
            // after all pending decisions, because it may assign the same capacity again.
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(sent) = self.sending.join_next() => self.sent(sent),
                Some(decided) = self.deciding.join_next() => self.decided(decided),
                news = self.plans.changed(), if self.deciding.is_empty() => {
                    if news.is_err() {
                        break;
                    }
                    self.adopt();
                }
            }
            self.pump();
        }
        self.deciding.abort_all();
        // The next process finds unanswered intents open and judges them.
        let out = async { while self.sending.join_next().await.is_some() {} };
        let _late = time::timeout(GRACE, out).await;
    }

    /// Adopts the newest plan if it includes every start accepted so far.
    fn adopt(&mut self) {
        let plan = Arc::clone(&self.plans.borrow_and_update());
        self.waiting.clear();
        if plan.rules.mode == Mode::Enforce && plan.conditions.jobs.taken >= self.taken {
            let now = Instant::now();
            self.paused.retain(|_, until| *until > now);
            let starts = plan.starts.iter();
            let starts = starts.filter(|start| !self.paused.contains_key(&(start.ix, start.node)));
            self.waiting.extend(starts.cloned());
        }
        self.plan = plan;
    }

    /// Begins waiting starts, one per node.
    fn pump(&mut self) {
        for start in std::mem::take(&mut self.waiting) {
            if !self.busy.insert(start.node) {
                self.waiting.push_back(start);
                continue;
            }
            let place = (start.ix, start.node);
            let every = self.settings.borrow().poll;
            let splits = self.splits.read(&self.tools.source.borrow(), every);
            let decides = self.tools.clone().decide(Arc::clone(&self.plan), start, splits);
            self.deciding.spawn(async move { (place, decides.await) });
        }
    }

    fn decided(&mut self, decided: Result<(Place, Decided), tokio::task::JoinError>) {
        let Some((place, decided)) = joined(decided) else { return };
        let target = self.plan.snapshot.target(place.0).map(|target| target.id().to_string());
        let target = target.unwrap_or_default();
        match decided {
            Decided::Goes { key, order, taken } => {
                self.taken = self.taken.max(taken);
                self.go(place, key, order, &target);
            }
            Decided::Off(why) => {
                tracing::info!(target_id = target, why, "start cancelled");
                self.paused.insert(place, Instant::now() + PAUSE);
                self.busy.remove(&place.1);
            }
        }
    }

    fn go(&mut self, place: Place, key: IntentKey, order: Order, target: &str) {
        tracing::info!(target_id = target, node = key.node, "compaction started");
        let sends = self.tools.clone().send(key, order);
        self.sending.spawn(async move { (place, sends.await) });
    }

    fn sent(&mut self, sent: Result<(Place, Gone), tokio::task::JoinError>) {
        let Some((place, gone)) = joined(sent) else { return };
        self.busy.remove(&place.1);
        if !gone {
            // Whatever prevented the request rarely ends at once.
            self.paused.insert(place, Instant::now() + PAUSE);
        }
    }
}

#[cfg(test)]
mod tests;
