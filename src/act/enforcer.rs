//! The enforcer: starts the compactions of the plan, one at a time on each node.
//!
//! Owns the steps from a planned start to CouchDB's answer: it reads again everything the start
//! depends on, stores the intent durably, sends the request once, and reports the result to the
//! job state task. Never decides what is worth starting (`plan`) or how a job ended. Sends nothing
//! in advise mode.

mod attempt;
mod check;
mod compaction_api;
mod splits;

pub(crate) use compaction_api::{CompactionApi, CompactionCommand};

use crate::{
    act::job_state,
    model::{channel::Mode, records::IntentKey},
    plan::{Plan, PlannedStart},
    scan,
    sources::inventory::Source,
    table::{NodeIx, TargetIx},
    tasks::unwrap_join,
};
use attempt::{AttemptContext, StartDecision};
use splits::SplitsCache;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{self, Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Pause before retrying a start that was cancelled just before its request: the plan may not know
/// the reason yet.
const PAUSE_AFTER_CANCEL: Duration = Duration::from_secs(30);

/// Interval of rereading targets whose start is only advised: a compaction by another program may
/// end before a poll shows it.
const ADVISED_INTERVAL: Duration = Duration::from_secs(10);

/// How long to wait for answers to sent requests when the program stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(crate) struct EnforcerInputs {
    /// The plans whose starts are executed.
    pub plans: watch::Receiver<Arc<Plan>>,
    /// Source for reading facts again.
    pub source: watch::Receiver<Arc<dyn Source>>,
    /// Sends the requests.
    pub api: watch::Receiver<Arc<dyn CompactionApi>>,
    /// Tracks the started jobs and stores the intents.
    pub job_state: job_state::JobStateHandle,
    /// Rereads targets that turned out to have changed.
    pub scanner: scan::ScanHandle,
    /// The poll interval.
    pub scan_settings: watch::Receiver<Arc<scan::ScanSettings>>,
}

/// The task that executes the plan.
#[derive(Debug)]
pub(crate) struct EnforcerTask {
    context: AttemptContext,
    plans: watch::Receiver<Arc<Plan>>,
    scan_settings: watch::Receiver<Arc<scan::ScanSettings>>,
    splits: SplitsCache,
    /// The plan whose starts are being executed.
    plan: Arc<Plan>,
    waiting_starts: VecDeque<PlannedStart>,
    deciding: JoinSet<(TargetOnNode, StartDecision)>,
    sending: JoinSet<(TargetOnNode, WasSent)>,
    busy_nodes: BTreeSet<NodeIx>,
    paused_until: BTreeMap<TargetOnNode, Instant>,
    /// The starts that are reread although they are only advised.
    advised: BTreeSet<TargetIx>,
    /// Number of starts the job state task has accepted.
    starts_accepted: u64,
}

type TargetOnNode = (TargetIx, NodeIx);

/// Whether a request was sent.
type WasSent = bool;

impl EnforcerTask {
    pub(crate) fn new(clock: Clock, inputs: EnforcerInputs) -> Self {
        let EnforcerInputs { plans, source, api, job_state, scanner, scan_settings } = inputs;
        let context =
            AttemptContext { clock, source, api, plans: plans.clone(), job_state, scanner };
        Self {
            context,
            plans,
            scan_settings,
            splits: SplitsCache::default(),
            plan: Arc::default(),
            waiting_starts: VecDeque::new(),
            deciding: JoinSet::new(),
            sending: JoinSet::new(),
            busy_nodes: BTreeSet::new(),
            paused_until: BTreeMap::new(),
            advised: BTreeSet::new(),
            starts_accepted: 0,
        }
    }

    /// Runs until `stop`, or until the planner ends.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut advised = time::interval(ADVISED_INTERVAL);
        advised.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Every arm is cancel-safe, and no arm's body awaits. A newer plan is adopted only
            // after all pending decisions, because it may assign the same capacity again.
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(sent) = self.sending.join_next() => self.handle_sent(sent),
                Some(decided) = self.deciding.join_next() => self.handle_decision(decided),
                changed = self.plans.changed(), if self.deciding.is_empty() => {
                    if changed.is_err() {
                        break;
                    }
                    self.adopt_plan();
                }
                _ = advised.tick() => self.reread_advised(),
            }
            self.begin_starts();
        }
        self.deciding.abort_all();
        // The next process finds unanswered intents open and judges them.
        let answers = async { while self.sending.join_next().await.is_some() {} };
        let _late = time::timeout(SHUTDOWN_GRACE, answers).await;
    }

    /// Has the targets of advised starts read again; a target that is being compacted is read until
    /// the compaction ends.
    fn reread_advised(&mut self) {
        let plan = Arc::clone(&self.plans.borrow());
        let target = |ix: &TargetIx| plan.snapshot.target(*ix);
        self.advised.retain(|ix| target(ix).is_some_and(|it| it.facts().flags.compact_running));
        if plan.rules.mode == Mode::Advise {
            self.advised.extend(plan.starts.iter().map(|start| start.ix));
        }
        if !self.advised.is_empty() {
            let targets = self.advised.iter().copied().collect();
            // If the scanner's queue is full, the next tick asks again.
            let _full = self.context.scanner.send(scan::ScanCommand::Reread(targets));
        }
    }

    /// Adopts the newest plan if it includes every start accepted so far.
    fn adopt_plan(&mut self) {
        let plan = Arc::clone(&self.plans.borrow_and_update());
        self.waiting_starts.clear();
        if plan.rules.mode == Mode::Enforce
            && plan.conditions.jobs.starts_accepted >= self.starts_accepted
        {
            let now = Instant::now();
            self.paused_until.retain(|_, until| *until > now);
            let starts = plan.starts.iter();
            let starts =
                starts.filter(|start| !self.paused_until.contains_key(&(start.ix, start.node)));
            self.waiting_starts.extend(starts.cloned());
        }
        self.plan = plan;
    }

    /// Begins waiting starts, one per node.
    fn begin_starts(&mut self) {
        for start in std::mem::take(&mut self.waiting_starts) {
            if !self.busy_nodes.insert(start.node) {
                self.waiting_starts.push_back(start);
                continue;
            }
            let target_on_node = (start.ix, start.node);
            let every = self.scan_settings.borrow().poll;
            let splits = self.splits.read(&self.context.source.borrow(), every);
            let decision = self.context.clone().decide(Arc::clone(&self.plan), start, splits);
            self.deciding.spawn(async move { (target_on_node, decision.await) });
        }
    }

    fn handle_decision(
        &mut self,
        decided: Result<(TargetOnNode, StartDecision), tokio::task::JoinError>,
    ) {
        let Some((target_on_node, decided)) = unwrap_join(decided) else { return };
        let target =
            self.plan.snapshot.target(target_on_node.0).map(|target| target.id().to_string());
        let target = target.unwrap_or_default();
        match decided {
            StartDecision::Send { key, command, starts_accepted } => {
                self.starts_accepted = self.starts_accepted.max(starts_accepted);
                self.send_request(target_on_node, key, command, &target);
            }
            StartDecision::Cancelled(why) => {
                tracing::info!(target_id = target, why, "start cancelled");
                self.paused_until.insert(target_on_node, Instant::now() + PAUSE_AFTER_CANCEL);
                self.busy_nodes.remove(&target_on_node.1);
            }
        }
    }

    fn send_request(
        &mut self,
        target_on_node: TargetOnNode,
        key: IntentKey,
        command: CompactionCommand,
        target: &str,
    ) {
        tracing::info!(target_id = target, node = key.node, "compaction started");
        let request = self.context.clone().send(key, command);
        self.sending.spawn(async move { (target_on_node, request.await) });
    }

    fn handle_sent(&mut self, sent: Result<(TargetOnNode, WasSent), tokio::task::JoinError>) {
        let Some((target_on_node, was_sent)) = unwrap_join(sent) else { return };
        self.busy_nodes.remove(&target_on_node.1);
        if !was_sent {
            // The cause rarely disappears at once.
            self.paused_until.insert(target_on_node, Instant::now() + PAUSE_AFTER_CANCEL);
        }
    }
}

#[cfg(test)]
mod tests;
