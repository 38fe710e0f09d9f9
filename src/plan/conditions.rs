//! What beside facts and channels decides: the present of the cluster.

use crate::{
    disk::Disks,
    job::{History, Jobs},
    pressure::Pressures,
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
