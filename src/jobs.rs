//! Jobs: running compactions and index builds, whoever started them.
//!
//! Holds the known jobs at one moment. Never queries CouchDB and never starts anything. The job
//! state task updates it from the scanner's polls; `plan` checks limits and disk space against it;
//! metrics and the API display it.

mod build_meter;
mod busy_period;
mod constraints;
mod failed_builds;
mod job;
mod progress;
mod running_tasks;
mod totals;
mod tracker;
mod verdict;

pub(crate) use build_meter::BuildMeter;
pub(crate) use busy_period::BusyPeriod;
pub(crate) use constraints::TargetConstraints;
pub(crate) use failed_builds::{FailedBuilds, FailedBuildsByIndex};
pub(crate) use job::{Job, JobKey, JobKind, JobPhase, Jobs};
pub(crate) use running_tasks::{NodePoll, Running, RunningTask};
pub use totals::CompactionTotals;
pub(crate) use tracker::{
    EndedJob, JobTracker, RequestResult, StartRejected, TrackerChanges, TrackerInputs,
};

#[cfg(test)]
mod months_tests;
