//! Runs a pass to its end: the enforcer works on what waits now, and stops when nothing remains to be done, when enough
//! space is free, when the time is up, or when it is interrupted.
//!
//! Owns the end of the pass; the planner decides what starts and the enforcer starts it. Nothing is stored outside
//! memory: if the process is killed, only compactions remain, which CouchDB finishes by itself.

use super::ClusterMonitor;
use crate::{
    model::{
        channel::Mode,
        records::{CompactionOrder, JobOwner, Outcome, RecoveredState, SuspensionScope},
        target::TargetId,
    },
    plan::{Plan, Refusal, RefusalReason, TidyState},
    scan::ScanCommand,
    table::TargetIx,
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use strum::{EnumString, IntoStaticStr, VariantArray};
use tokio::time::{self, Instant};
use wall_clock::Moment;

/// How long requests in flight may take when a pass is cut short.
const ANSWER_GRACE: Duration = Duration::from_secs(5);

/// How long after a compaction a volume must be measured to show the freed bytes: CouchDB deletes
/// the old file only after it has switched to the new one.
const DELETION_TIME: Duration = Duration::from_secs(5);

/// How long a pass waits for a measurement of a target or a volume.
const MEASURE_PATIENCE: Duration = Duration::from_secs(120);

/// How long the sweep at the end of a pass may take.
const SWEEP_PATIENCE: Duration = Duration::from_secs(60);

/// How long an order of the pass is valid.
const ORDER_LIFETIME: Duration = Duration::from_secs(365 * 86_400);

/// What a pass works on, and when it stops early.
#[derive(Clone, Debug, Default)]
pub struct TidyScope {
    /// The targets that waited at its start. The pass does not wait for others.
    pub targets: BTreeSet<TargetId>,
    /// Cleanups to request even though no stale index files are known.
    pub cleanups: Vec<TargetId>,
    /// It stops when this much is free on the fullest volume.
    pub until_free: Option<u64>,
    /// It stops at this time.
    pub until: Option<Instant>,
}

/// Why a pass ended.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TidyEnd {
    /// It can do nothing more.
    Finished,
    /// Enough space is free.
    EnoughFree,
    /// Its time is up.
    TimeUp,
    /// It was interrupted.
    Interrupted,
}

/// What happens during a pass.
#[derive(Debug)]
pub enum TidyEvent<'a> {
    /// A compaction started.
    Started(TargetIx),
    /// A compaction or a cleanup ended.
    Ended(&'a Outcome),
    /// Nothing can start now; the pass waits.
    Waits(TargetIx, &'a Refusal),
}

/// The result of a pass.
#[derive(Debug)]
pub struct TidyReport {
    /// Why it ended.
    pub end: TidyEnd,
    /// The last plan.
    pub plan: Arc<Plan>,
    /// How each compaction and cleanup that it started ended.
    pub outcomes: Vec<Outcome>,
    /// The targets of the pass that CouchDB is still compacting.
    pub still_running: BTreeSet<TargetIx>,
}

/// The progress that was already reported to the observer.
#[derive(Debug)]
struct Told {
    started: BTreeSet<TargetIx>,
    ended: usize,
    waits: Option<(TargetIx, RefusalReason)>,
    last_end: Option<Moment>,
    last_change: Instant,
}

impl Told {
    fn tell(
        &mut self,
        plan: &Plan,
        outcomes: &[Outcome],
        observe: &mut impl FnMut(&Plan, TidyEvent<'_>),
    ) {
        let running: BTreeSet<TargetIx> = plan.own_jobs().map(|(ix, _)| ix).collect();
        for ix in running.difference(&self.started) {
            observe(plan, TidyEvent::Started(*ix));
        }
        for outcome in outcomes.iter().skip(self.ended) {
            observe(plan, TidyEvent::Ended(outcome));
            self.last_end = self.last_end.max(Some(outcome.ended_at));
        }
        if outcomes.len() > self.ended || running != self.started {
            (self.last_change, self.waits) = (Instant::now(), None);
        }
        (self.started, self.ended) = (running, outcomes.len());
    }

    /// Whether every volume was measured late enough to show what the last compaction freed.
    fn is_measured(&self, plan: &Plan) -> bool {
        let spaces = plan.conditions.disks.volumes.iter().filter_map(|volume| volume.space);
        let is_late = |at: Moment| self.last_end.is_none_or(|end| at > end.plus(DELETION_TIME));
        let is_current = spaces.map(|space| space.measured_at).all(is_late);
        is_current || self.last_change.elapsed() > MEASURE_PATIENCE
    }

    /// Whether the pass ends with this plan; if it waits, the observer is told the reason once.
    fn is_end(
        &mut self,
        plan: &Plan,
        scope: &TidyScope,
        outcomes: &[Outcome],
        observe: &mut impl FnMut(&Plan, TidyEvent<'_>),
    ) -> bool {
        let done = outcomes.iter().map(|it| it.target.clone()).collect();
        match plan.tidy_state(&scope.targets, &done) {
            TidyState::Works => false,
            TidyState::Waits(ix, refusal) => {
                let waits = Some((ix, refusal.reason));
                let passes_soon = [RefusalReason::Ramp, RefusalReason::Stale];
                if self.waits != waits && !passes_soon.contains(&refusal.reason) {
                    self.waits = waits;
                    observe(plan, TidyEvent::Waits(ix, &refusal));
                }
                refusal.reason == RefusalReason::Stale
                    && self.last_change.elapsed() > MEASURE_PATIENCE
            }
            TidyState::Ended => {
                let left = plan.left(|_, id| done.contains(id) || !scope.targets.contains(id));
                let mut reasons = left.iter().map(|(_, refusal)| refusal.reason);
                !reasons.any(|it| it == RefusalReason::Headroom) || self.is_measured(plan)
            }
        }
    }
}

impl TidyScope {
    fn has_enough(&self, plan: &Plan) -> bool {
        let goal = self.until_free.zip(plan.least_free_bytes());
        goal.is_some_and(|(goal, free)| free >= goal)
    }
}

impl ClusterMonitor {
    /// Runs the pass to its end. The settings must be in mode enforce, the enforcer must run, and
    /// `kept` must return the content of the monitor's store.
    ///
    /// # Errors
    /// If a task ended or an order could not be given.
    pub async fn run_to_end(
        &mut self,
        kept: impl Fn() -> RecoveredState,
        scope: &TidyScope,
        interrupted: impl Future<Output = ()>,
        mut observe: impl FnMut(&Plan, TidyEvent<'_>),
    ) -> Result<TidyReport, String> {
        self.order_cleanups(&scope.cleanups).await?;
        let mut told = Told {
            started: BTreeSet::new(),
            ended: 0,
            waits: None,
            last_end: None,
            last_change: Instant::now(),
        };
        let mut tick = time::interval(Duration::from_secs(1));
        let mut until = scope.until;
        let (mut end, mut pauses) = (None, false);
        tokio::pin!(interrupted);
        loop {
            let plan = Arc::clone(&self.planner.plan.borrow_and_update());
            let kept = kept();
            let outcomes: Vec<Outcome> = kept
                .recent_outcomes
                .into_iter()
                .filter(|it| it.owner == JobOwner::Recliner)
                .collect();
            told.tell(&plan, &outcomes, &mut observe);
            let is_answered = plan.own_jobs().all(|(_, is_known)| is_known);
            let is_idle = kept.intents.is_empty();
            if end.is_none() && is_idle && plan.rules.mode == Mode::Enforce {
                let is_measured = told.is_measured(&plan);
                let has_enough = scope.has_enough(&plan);
                if has_enough && is_measured {
                    end = Some(TidyEnd::EnoughFree);
                } else if pauses && is_measured {
                    // A running compaction used some of the free space since.
                    pauses = false;
                    self.start_again().await?;
                } else if !pauses && told.is_end(&plan, scope, &outcomes, &mut observe) {
                    end = Some(TidyEnd::Finished);
                }
            } else if end.is_none() && !pauses && scope.has_enough(&plan) {
                pauses = true;
                self.start_nothing_more().await?;
            }
            let is_cut_short = matches!(end, Some(TidyEnd::TimeUp | TidyEnd::Interrupted));
            let is_late = until.is_some_and(|until| until <= Instant::now());
            if let Some(end) = end
                && (!is_cut_short || is_answered || is_late)
            {
                let still_running = plan.own_jobs().map(|(ix, _)| ix).collect();
                let plan = if is_cut_short { plan } else { self.read_again(plan).await };
                return Ok(TidyReport { end, plan, outcomes, still_running });
            }
            let time_is_up = async {
                match until {
                    Some(until) => time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            let stopped = tokio::select! {
                changed = self.planner.plan.changed() => {
                    changed.map_err(|_| "the planner ended".to_owned())?;
                    None
                }
                _ = tick.tick() => None,
                () = time_is_up, if !is_cut_short => Some(TidyEnd::TimeUp),
                () = &mut interrupted, if !is_cut_short => Some(TidyEnd::Interrupted),
            };
            if stopped.is_some() {
                end = stopped;
                until = Some(Instant::now() + ANSWER_GRACE);
                self.start_nothing_more().await?;
            }
        }
    }

    /// The plan after another sweep, because not every file is measured when a pass ends; the given
    /// plan if the sweep takes too long.
    async fn read_again(&mut self, plan: Arc<Plan>) -> Arc<Plan> {
        let before = self.scanner.status.borrow().sweeps;
        let _full = self.scanner.send(ScanCommand::Sweep);
        let sweep = self.scanner.status.wait_for(|status| status.sweeps > before);
        if !matches!(time::timeout(SWEEP_PATIENCE, sweep).await, Ok(Ok(_))) {
            return plan;
        }
        let version = self.scanner.snapshots.borrow().version();
        let planned = self.planner.plan.wait_for(|plan| plan.snapshot.version() >= version).await;
        planned.map_or(plan, |planned| Arc::clone(&planned))
    }

    /// Requests cleanups ahead of everything else: they need no space.
    async fn order_cleanups(&self, cleanups: &[TargetId]) -> Result<(), String> {
        let now = self.clock.now();
        for target in cleanups {
            let order = CompactionOrder {
                at: now,
                until: now.plus(ORDER_LIFETIME),
                by: "recliner tidy".to_owned(),
                force: true,
                run: None,
            };
            self.job_state.order(target.clone(), order).await.map_err(|why| why.to_string())?;
        }
        Ok(())
    }

    async fn start_again(&self) -> Result<(), String> {
        let resumed = self.job_state.resume(SuspensionScope::All, None).await;
        resumed.map_err(|why| why.to_string())
    }

    async fn start_nothing_more(&self) -> Result<(), String> {
        let suspended = self.job_state.suspend(SuspensionScope::All, None, None).await;
        suspended.map(drop).map_err(|why| why.to_string())
    }
}
