//! Records about targets in addition to their facts: job outcomes, back-off after failures,
//! operators' suspensions.
//!
//! Owns the records and the pure rules that lead from one to the next. Never measures and never
//! writes: the job state task applies the rules, `journal` stores the records across restarts, and
//! `plan` reads them.

mod advice;
mod backoff;
mod build_speed;
mod calibration;
mod correction;
mod forecast;
mod journal_failure;
mod node_work;
mod order;
mod outcome;
mod run;
mod scorecard;
mod state_store;
mod suspension;

pub use advice::{AdviceKey, AdviceRecord, Mute};
pub use backoff::{AfterCompaction, Backoff, Futile, TargetRecord};
pub use build_speed::{BuildSpeed, BuildSpeeds};
pub use calibration::Calibration;
pub use correction::{CorrectionKey, CorrectionRecord, LearnedCorrections};
pub use forecast::{Backtest, ForecastRecord, KeptForecast, KeptRange};
pub use journal_failure::JournalFailure;
pub use node_work::{BusyRecord, NodeWork};
pub use order::CompactionOrder;
pub use outcome::{Intent, JobOwner, JobResult, Outcome, frees_little};
pub use run::{
    LeftOut, LeftOutMember, MAX_OPEN_RUNS, Run, RunCommand, RunEnd, RunEnding, RunRejected,
    RunScope, Runs,
};
pub use scorecard::{
    AdvisedJob, AdvisedTarget, HourNumber, ScorecardChange, ScorecardHour, ScorecardRecords,
    ScorecardSide, hour_begin, hour_of, take_surplus_hours,
};
pub use state_store::{
    InMemoryStore, IntentKey, RecoveredState, StateChange, StateStore, StoreError,
};
pub use suspension::{ParseScopeError, Suspension, SuspensionScope, Suspensions};

/// Replaces an entry, or removes it if `value` is `None`.
fn replace<K: Ord, V>(entries: &mut std::collections::BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => entries.insert(key, value),
        None => entries.remove(&key),
    };
}
