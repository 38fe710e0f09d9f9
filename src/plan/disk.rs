//! Volumes: how much space is free where the files lie.
//!
//! Owns what is known of volumes at one moment, and the task that asks for it: the local
//! file system, a Prometheus, or fixed numbers. Never decides whether a job fits: `plan`
//! does, with the jobs' reservations; metrics and API show it.

mod layout;
mod local;
mod prometheus;
mod slope;
mod task;

pub use layout::{Local, Place, Source};
pub use task::{Handle, Instruments, Measured, Meter, Settings, Task};

use crate::{
    jobs::{Job, Jobs},
    table::Snapshot,
};
use std::sync::Arc;
use wall_clock::Moment;

/// Free space of a volume, when it was last known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that may be written.
    pub available: u64,
    /// The volume's size in bytes, where it is known.
    pub size: Option<u64>,
    /// When it was measured.
    pub at: Moment,
}

/// One volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    /// What it is called in metrics: unique, from the configuration.
    pub name: Arc<str>,
    /// Nodes whose files lie on it, by CouchDB's names.
    pub nodes: Vec<Arc<str>>,
    /// Its space; absent where it is unknown or too old to count on.
    pub space: Option<Space>,
    /// Since when space falls faster than the jobs on it explain.
    pub falling_since: Option<Moment>,
    /// Why its space is unknown.
    pub problem: Option<String>,
}

impl Volume {
    /// The compactions on it, whoever started them.
    pub fn jobs<'a>(
        &'a self,
        jobs: &'a Jobs,
        snapshot: &'a Snapshot,
    ) -> impl Iterator<Item = &'a Job> {
        jobs.compactions().filter(move |job| {
            let node = snapshot.node(job.key.node);
            node.is_some_and(|node| self.nodes.contains(&node.name))
        })
    }

    /// Bytes that the compactions on it may still take.
    #[must_use]
    pub fn reserved(&self, jobs: &Jobs, snapshot: &Snapshot) -> u64 {
        self.jobs(jobs, snapshot).fold(0, |sum, job| sum.saturating_add(job.reserved))
    }
}

/// Every volume that is configured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Disks {
    /// The volumes, in the configuration's order.
    pub volumes: Vec<Volume>,
}

impl Disks {
    /// The volumes that hold files of a node.
    pub fn of_node<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Volume> {
        self.volumes.iter().filter(move |volume| volume.nodes.iter().any(|name| &**name == node))
    }
}
