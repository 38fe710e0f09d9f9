//! Remembered constraints on targets, in the form that the planner reads: indexed by table
//! position.

use super::busy_period::BusyPeriod;
use crate::{
    model::records::{Backoff, BuildSpeed, CompactionOrder, JournalFailure, Runs, Suspensions},
    table::{NodeIx, TargetIx},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use wall_clock::Moment;

/// All remembered constraints at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetConstraints {
    /// Targets that must not be started for now, and why.
    pub backoffs: BTreeMap<TargetIx, Backoff>,
    /// Bytes per file that another compaction would leave, for targets whose last compaction showed
    /// this.
    pub remaining_bytes: BTreeMap<TargetIx, u64>,
    /// Views of which some copies were compacted and others not yet, with the nodes that are done.
    /// The remaining copies are compacted whatever their score is now.
    pub partly_compacted_views: BTreeMap<TargetIx, BTreeSet<NodeIx>>,
    /// Targets started and not measured since, with the time of the start. Measurements from before
    /// the start are outdated.
    pub started_unmeasured: BTreeMap<TargetIx, Moment>,
    /// Targets ordered by an operator and not started yet. They come before all others, in the
    /// sequence in which they were ordered.
    pub orders: BTreeMap<TargetIx, CompactionOrder>,
    /// Runs, open and ended.
    pub runs: Runs,
    /// Targets that were compacted since an open run began, with the newest such run.
    pub done_in_run: BTreeMap<TargetIx, u64>,
    /// Suspensions set by operators.
    pub suspensions: Suspensions,
    /// Starts of this process within the last hour: time and file size in bytes.
    pub recent_starts: Vec<(Moment, u64)>,
    /// When this process last started a job on each node.
    pub last_start_by_node: BTreeMap<NodeIx, Moment>,
    /// The last busy period of each node.
    pub busy_periods: BTreeMap<NodeIx, BusyPeriod>,
    /// When this process began to enforce; starts ramp up from then on.
    pub enforcing_since: Option<Moment>,
    /// Largest observed peak of a database compaction as a multiple of its active bytes, if above
    /// the configured factor.
    pub learned_headroom_factor: Option<f64>,
    /// Measured rewrite rate of this process's jobs, in bytes per second.
    pub rewrite_bytes_per_second: Option<f64>,
    /// How fast indexes were built, the newest first.
    pub build_speeds: Arc<[BuildSpeed]>,
    /// Since when the journal cannot be used, and why.
    pub journal_failure: Option<(Moment, JournalFailure)>,
}

impl TargetConstraints {
    /// Bytes of new files that compactions write per second; `None` before any was measured.
    pub fn measured_rate(&self) -> Option<f64> {
        self.rewrite_bytes_per_second.filter(|rate| *rate > 0.0)
    }
}
