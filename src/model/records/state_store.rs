//! The records that must survive a restart, and the trait that stores them.
//!
//! Defines the changes that the job state task submits to a store. Never writes anything itself:
//! the journal implements [`StateStore`] with a database; [`InMemoryStore`] is for one-shot
//! commands and tests.

use super::{
    AdviceKey, AdviceRecord, Calibration, CorrectionKey, CorrectionRecord, ForecastRecord, Intent,
    JobOwner, JournalFailure, NodeWork, Outcome, Run, ScorecardChange, ScorecardRecords,
    Suspension, SuspensionScope, TargetRecord, replace,
};
use crate::model::target::TargetId;
use futures::{FutureExt, future::BoxFuture};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};
use wall_clock::Moment;

/// Identifies an open [`Intent`]: a target has at most one at a time on a node, or on all nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IntentKey {
    /// The target.
    pub target: TargetId,
    /// The node, or `_cluster`.
    pub node: String,
}

impl Intent {
    /// The key by which it is stored.
    pub fn key(&self) -> IntentKey {
        IntentKey { target: self.target.clone(), node: self.node.clone() }
    }
}

/// One change to store.
#[derive(Clone, Debug, PartialEq)]
pub enum StateChange {
    /// A start was decided. It stays open until an outcome replaces it or it is withdrawn. It
    /// replaces an open one with the same key.
    StartIntended(Intent),
    /// The job did not begin: the request was refused or never sent.
    StartWithdrawn(IntentKey),
    /// A job ended: its outcome is added to the history, and the intent with this key, if any, is
    /// closed.
    JobEnded {
        /// The outcome.
        outcome: Outcome,
        /// The intent that it closes; `None` if another client started the job.
        closes: Option<IntentKey>,
    },
    /// Replaces the record of a target; `None` removes it.
    SetTargetRecord(TargetId, Option<TargetRecord>),
    /// Suspends a scope.
    Suspend(SuspensionScope, Suspension),
    /// Ends a scope's suspension.
    Resume {
        /// The scope that may start jobs again.
        scope: SuspensionScope,
        /// The operator who ordered it, and from which address.
        by: Option<String>,
    },
    /// Replaces all learned sizes and times.
    Calibrate(Calibration),
    /// Replaces the evidence about one database and kind; `None` removes it.
    SetCorrection(CorrectionKey, Option<CorrectionRecord>),
    /// Changes the scorecard of advice.
    Scorecard(ScorecardChange),
    /// Replaces a record about advice; `None` removes it.
    SetAdvice(AdviceKey, Option<AdviceRecord>),
    /// Replaces the kept forecasts of a volume; `None` removes them.
    SetForecasts(String, Option<ForecastRecord>),
    /// Replaces a run, by number; `None` removes it.
    SetRun(u64, Option<Run>),
    /// Replaces when compactions last ran on a node.
    SetNodeWork(String, NodeWork),
}

/// The stored records as read back at start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecoveredState {
    /// Every open intent.
    pub intents: Vec<Intent>,
    /// Records of targets.
    pub remembered: BTreeMap<TargetId, TargetRecord>,
    /// Active suspensions.
    pub suspensions: BTreeMap<SuspensionScope, Suspension>,
    /// Learned values; defaults if none were stored.
    pub calibration: Calibration,
    /// Evidence from compactions about predictions, by database and kind.
    pub corrections: BTreeMap<CorrectionKey, CorrectionRecord>,
    /// The scorecard of advice.
    pub scorecard: ScorecardRecords,
    /// Records about advice.
    pub advice: BTreeMap<AdviceKey, AdviceRecord>,
    /// Kept forecasts, by volume.
    pub forecasts: BTreeMap<String, ForecastRecord>,
    /// Runs, by number.
    pub runs: BTreeMap<u64, Run>,
    /// When compactions last ran on each node.
    pub node_work: BTreeMap<String, NodeWork>,
    /// Outcomes of jobs that started within the last hour before this start, oldest first: the
    /// hourly budget counts them.
    pub recent_outcomes: Vec<Outcome>,
}

/// Why something could not be stored, for an operator: what was tried, with what, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// A durable store of changes.
pub trait StateStore: Send + Sync + std::fmt::Debug {
    /// Stores changes in this order, all or none of them. Returns `Ok` only if they would survive
    /// a crash of the machine.
    ///
    /// After an error it is unknown whether they were stored: the caller sends them again, or
    /// changes that undo them, before any later ones, so storing a change twice must have the same
    /// effect as once. The same outcome, identified by [`closes`](StateChange::JobEnded) or otherwise by
    /// target, node and `started_at`, appears in the history once. A dropped future either
    /// completes or has no effect.
    fn store(&self, changes: Vec<StateChange>) -> BoxFuture<'static, Result<(), StoreError>>;

    /// Since when nothing can be stored, and why, if the store knows this without trying.
    fn failure(&self) -> Option<(Moment, JournalFailure)> {
        None
    }
}

/// A store that lasts until the process ends; for one-shot commands, the demo, and tests.
#[derive(Clone, Debug, Default)]
pub struct InMemoryStore(Arc<Mutex<RecoveredState>>);

impl InMemoryStore {
    /// The stored records: what a restart would read, with every outcome counted as recent.
    pub fn kept(&self) -> RecoveredState {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl StateStore for InMemoryStore {
    fn store(&self, changes: Vec<StateChange>) -> BoxFuture<'static, Result<(), StoreError>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        changes.into_iter().for_each(|change| kept.apply(change));
        futures::future::ready(Ok(())).boxed()
    }
}

impl RecoveredState {
    /// What this program's starts count against the hourly budget: the time of each decision, and its
    /// bytes. A withdrawn start counts nothing.
    pub fn budget_charges(&self) -> impl Iterator<Item = (Moment, u64)> {
        let ours = self.recent_outcomes.iter().filter(|it| it.owner == JobOwner::Recliner);
        let ended = ours.map(|it| (it.started_at, it.charged_bytes.or(it.before_bytes)));
        let open = self.intents.iter().map(|it| (it.at, it.file_bytes));
        // Only a cleanup, which rewrites no file, starts without a size.
        ended.chain(open).map(|(at, bytes)| (at, bytes.unwrap_or_default()))
    }

    /// Applies one change, with the same result as reading back after storing it.
    pub fn apply(&mut self, change: StateChange) {
        match change {
            StateChange::StartIntended(intent) => {
                self.intents.retain(|open| open.key() != intent.key());
                self.intents.push(intent);
            }
            StateChange::StartWithdrawn(key) => self.intents.retain(|open| open.key() != key),
            StateChange::JobEnded { outcome, closes } => {
                self.intents.retain(|open| Some(open.key()) != closes);
                if !self.recent_outcomes.contains(&outcome) {
                    self.recent_outcomes.push(outcome);
                }
            }
            StateChange::SetTargetRecord(target, record) => {
                replace(&mut self.remembered, target, record)
            }
            StateChange::Suspend(scope, suspension) => {
                replace(&mut self.suspensions, scope, Some(suspension));
            }
            StateChange::Resume { scope, by: _ } => replace(&mut self.suspensions, scope, None),
            StateChange::Calibrate(calibration) => self.calibration = calibration,
            StateChange::SetCorrection(key, record) => replace(&mut self.corrections, key, record),
            StateChange::Scorecard(change) => self.scorecard.apply(change),
            StateChange::SetAdvice(key, record) => replace(&mut self.advice, key, record),
            StateChange::SetForecasts(volume, record) => {
                replace(&mut self.forecasts, volume, record);
            }
            StateChange::SetRun(number, run) => replace(&mut self.runs, number, run),
            StateChange::SetNodeWork(node, work) => drop(self.node_work.insert(node, work)),
        }
    }
}
