//! The live state of the cluster that affects decisions, in addition to facts and channels.

use super::{disk::Disks, pressure::Pressures, rules::Rules};
use crate::jobs::{Jobs, TargetConstraints};
use std::sync::Arc;

/// The conditions under which a plan is made, each as last published by its owner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Running jobs.
    pub jobs: Arc<Jobs>,
    /// Stored outcomes, orders and suspensions.
    pub constraints: Arc<TargetConstraints>,
    /// Free space.
    pub disks: Arc<Disks>,
    /// Which nodes are too busy, or in maintenance.
    pub pressures: Arc<Pressures>,
}

impl Conditions {
    /// Peak size of a database's compaction, as a multiple of its active bytes: the configured
    /// factor, or the observed one if it is larger.
    pub(super) fn headroom_factor(&self, rules: &Rules) -> f64 {
        rules.headroom.factor.max(self.constraints.learned_headroom_factor.unwrap_or(0.0))
    }
}
