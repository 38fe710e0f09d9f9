//! The task of the scorecard: passes it the published plans and the time, and stores its changes.
//!
//! Owns the [`Scorecard`]. Nothing waits for it: while the journal cannot be written, changes are
//! merged and stored later.

use super::{Scorecard, ScorecardView};
use crate::{
    jobs::CompactionTotals,
    model::{
        records::{HourNumber, ScorecardChange, ScorecardRecords, StateChange, StateStore},
        target::TargetId,
    },
    plan::Plan,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    sync::{oneshot, watch},
    time::{self, Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

const STEP_INTERVAL: Duration = Duration::from_secs(60);

/// The record that a change replaces.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RecordKey {
    Hour(HourNumber),
    Target(TargetId),
    Jobs,
}

impl RecordKey {
    fn of(change: &ScorecardChange) -> Self {
        match change {
            ScorecardChange::Hour(number, _) => Self::Hour(*number),
            ScorecardChange::Target(id, _) => Self::Target(id.clone()),
            ScorecardChange::Jobs(_) => Self::Jobs,
        }
    }
}

#[derive(Debug)]
pub(crate) struct ScorecardTask {
    clock: Clock,
    plans: watch::Receiver<Arc<Plan>>,
    totals: watch::Receiver<CompactionTotals>,
    store: Arc<dyn StateStore>,
    published: watch::Sender<Arc<ScorecardView>>,
    scorecard: Scorecard,
    stepped_at: Option<Instant>,
    /// Changes that wait to be stored, only the latest of each record.
    waiting: BTreeMap<RecordKey, ScorecardChange>,
}

impl ScorecardTask {
    /// Creates the task and a receiver of what it publishes.
    pub(crate) fn new(
        clock: Clock,
        plans: watch::Receiver<Arc<Plan>>,
        totals: watch::Receiver<CompactionTotals>,
        store: Arc<dyn StateStore>,
    ) -> (Self, watch::Receiver<Arc<ScorecardView>>) {
        let (published, view) = watch::channel(Arc::default());
        let scorecard = Scorecard::default();
        let (stepped_at, waiting) = (None, BTreeMap::new());
        let task = Self { clock, plans, totals, store, published, scorecard, stepped_at, waiting };
        (task, view)
    }

    /// Waits for the records of the previous process, then runs until `stop`, or until the planner
    /// ends. Ends if there is no usable state, as the job state task does.
    pub(crate) async fn run(
        mut self,
        recovering: oneshot::Receiver<ScorecardRecords>,
        stop: CancellationToken,
    ) {
        let Some(Ok(recovered)) = stop.run_until_cancelled(recovering).await else { return };
        self.scorecard = Scorecard::new(recovered);
        self.publish();
        let mut tick = time::interval(STEP_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = tick.tick() => {
                    self.step();
                    if stop.run_until_cancelled(self.store_changes()).await.is_none() {
                        return;
                    }
                }
                planned = self.plans.changed() => {
                    if planned.is_err() {
                        return;
                    }
                    let plan = Arc::clone(&self.plans.borrow_and_update());
                    self.scorecard.see(&plan, self.clock.now());
                    // The first step need not wait a minute to continue from the records of an
                    // earlier process.
                    let is_first = self.stepped_at.is_none();
                    if is_first && plan.snapshot.sweep_duration().is_some() {
                        tick.reset_immediately();
                    }
                }
            }
        }
    }

    fn step(&mut self) {
        let plan = Arc::clone(&self.plans.borrow());
        // The initial value is not a plan.
        if plan.snapshot.version() == 0 {
            return;
        }
        let at = Instant::now();
        let elapsed = self.stepped_at.replace(at).map(|last| at - last);
        let totals = *self.totals.borrow();
        let changes = self.scorecard.step(&plan, totals, self.clock.now(), elapsed);
        self.waiting.extend(changes.into_iter().map(|change| (RecordKey::of(&change), change)));
        self.publish();
    }

    fn publish(&self) {
        self.published.send_replace(Arc::new(self.scorecard.view(self.clock.now())));
    }

    /// Stores the waiting changes. The job state task reports a journal that cannot be written.
    async fn store_changes(&mut self) {
        let changes = self.waiting.values().cloned().map(StateChange::Scorecard).collect();
        if !self.waiting.is_empty() && self.store.store(changes).await.is_ok() {
            self.waiting.clear();
        }
    }
}
