//! Everything that rules may look at.

use super::Survey;
use crate::{
    model::settings::advice::AdviceSettings,
    plan::Plan,
    scan::ScanStatus,
    table::{DbIx, Snapshot, TargetIx, TargetRef},
};
use std::sync::Arc;
use wall_clock::Moment;

/// What the rules are asked about, as other tasks published it last.
#[derive(Clone, Debug)]
pub struct AdviceInputs {
    /// The plan, with its snapshot, channels, jobs, volumes, remembered outcomes and settings.
    pub plan: Arc<Plan>,
    /// How the scanner fares.
    pub status: Arc<ScanStatus>,
    /// The thresholds.
    pub settings: AdviceSettings,
}

/// The inputs, with what one pass over all targets gathered.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// What other tasks published.
    pub inputs: &'a AdviceInputs,
    /// Sums by database.
    pub survey: &'a Survey,
    /// The present moment.
    pub now: Moment,
}

impl<'a> Situation<'a> {
    /// All targets.
    #[must_use]
    pub fn snapshot(&self) -> &'a Snapshot {
        &self.inputs.plan.snapshot
    }

    /// The thresholds.
    #[must_use]
    pub const fn settings(&self) -> &'a AdviceSettings {
        &self.inputs.settings
    }

    /// Number of copies that each range of a database has on average, at least one.
    #[must_use]
    pub fn copies_of(&self, db: DbIx) -> u64 {
        let map = self.snapshot().shard_map(db);
        u64::from(map.copies.checked_div(map.ranges).unwrap_or(1).max(1))
    }

    /// Targets that the survey put on one of its lists.
    pub fn listed(&self, list: &'a [TargetIx]) -> impl Iterator<Item = TargetRef<'a>> {
        let snapshot = self.snapshot();
        list.iter().filter_map(|ix| snapshot.target(*ix))
    }
}
