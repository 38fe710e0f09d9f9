//! What beside facts and channels decides: the present of the cluster.

use super::Rules;
use crate::{
    jobs::{History, Jobs},
    plan::{disk::Disks, pressure::Pressures},
};
use std::sync::Arc;

/// The conditions under which a plan is made, each as its owner published it last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// What runs.
    pub jobs: Arc<Jobs>,
    /// What is remembered.
    pub history: Arc<History>,
    /// Free space.
    pub disks: Arc<Disks>,
    /// Which nodes are too busy, or in maintenance.
    pub pressures: Arc<Pressures>,
}

impl Conditions {
    /// Peak of a db's compaction, as a multiple of its active bytes: as configured, or more
    /// where more was seen.
    pub(super) fn headroom_factor(&self, rules: &Rules) -> f64 {
        rules.headroom.factor.max(self.history.headroom_factor.unwrap_or(0.0))
    }
}
