//! The enforcer: does what the plan says, one careful start at a time on each node.
//!
//! Owns the way from a start of the plan to CouchDB's answer: everything it depends on is
//! read once more, the intent is kept durably, the request is sent once, and the follower
//! hears what came of it. Never decides what is worth starting (`plan`) or what became of it
//! (`follower`). Where the mode is advise it sends nothing at all.

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

/// How long a start that was off just before it went out is left alone: the plan may not
/// know yet what changed.
const PAUSE: Duration = Duration::from_secs(30);

/// How long requests that are out may take to be answered once the program stops.
const GRACE: Duration = Duration::from_secs(5);

/// What the enforcer reads and uses.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// What to start.
    pub plans: watch::Receiver<Arc<Plan>>,
    /// Where facts are read once more.
    pub source: watch::Receiver<Arc<dyn Source>>,
    /// Who sends.
    pub hands: watch::Receiver<Arc<dyn Hands>>,
    /// Who follows, and keeps.
    pub follower: follower::Handle,
    /// Who reads again what turned out to have changed.
    pub scanner: scan::Handle,
    /// How often it asks.
    pub settings: watch::Receiver<Arc<scan::Settings>>,
}

/// Acts on the plan.
#[derive(Debug)]
pub struct Task {
    tools: Tools,
    plans: watch::Receiver<Arc<Plan>>,
    settings: watch::Receiver<Arc<scan::Settings>>,
    splits: Splits,
    /// The plan whose starts are worked on.
    plan: Arc<Plan>,
    waiting: VecDeque<Start>,
    deciding: JoinSet<(Place, Decided)>,
    sending: JoinSet<(Place, Gone)>,
    busy: BTreeSet<NodeIx>,
    paused: BTreeMap<Place, Instant>,
    /// Starts that the follower took up so far.
    taken: u64,
}

/// A target on a node.
type Place = (Ix, NodeIx);

/// Whether a request went out.
type Gone = bool;

impl Task {
    /// Makes the task.
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

    /// Acts until `stop`, or until nobody plans any more.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            // Every arm is cancel-safe, and no arm's body awaits. A newer plan waits for what
            // is being decided: it may have given the same room away.
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
        // What is not answered by then is found open by the next process, and judged.
        let out = async { while self.sending.join_next().await.is_some() {} };
        let _late = time::timeout(GRACE, out).await;
    }

    /// Takes over a plan that counts in every start so far.
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

    /// Sets going what waits, one start a node.
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
                tracing::info!(target_id = target, why, "a start is cancelled");
                self.paused.insert(place, Instant::now() + PAUSE);
                self.busy.remove(&place.1);
            }
        }
    }

    fn go(&mut self, place: Place, key: IntentKey, order: Order, target: &str) {
        tracing::info!(target_id = target, node = key.node, "a compaction is started");
        let sends = self.tools.clone().send(key, order);
        self.sending.spawn(async move { (place, sends.await) });
    }

    fn sent(&mut self, sent: Result<(Place, Gone), tokio::task::JoinError>) {
        let Some((place, gone)) = joined(sent) else { return };
        self.busy.remove(&place.1);
        if !gone {
            // What kept it from going out is rarely over in an instant.
            self.paused.insert(place, Instant::now() + PAUSE);
        }
    }
}

#[cfg(test)]
mod tests;
