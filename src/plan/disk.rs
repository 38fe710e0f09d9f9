//! Volumes: how much space is free on the file systems that hold CouchDB's files.
//!
//! Owns the state of the volumes and the task that measures it: through the local file system, a
//! Prometheus query, or fixed numbers. Never decides whether a job fits: `plan` does, with the
//! jobs' reservations. Metrics and the API show it.

mod local_fs;
mod prometheus;
mod space_trend;
mod task;
mod volume_specs;

pub use task::{DiskSettings, DiskTask, SpaceMeter, SystemMeter, VolumeMeasurement};
pub use volume_specs::{LocalDirectories, SpaceSource, VolumeSpec};

use crate::{
    jobs::{Job, Jobs},
    model::target::short_node,
    table::Snapshot,
    text::listed,
};
use std::sync::Arc;
use wall_clock::Moment;

/// Free space of a volume, as last measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeSpace {
    /// Free bytes.
    pub available: u64,
    /// The volume's size in bytes, if known.
    pub size: Option<u64>,
    /// Bytes that the unfinished files of running compactions took at the same moment, where their directory
    /// can be read.
    pub held: Option<u64>,
    /// The time of the measurement.
    pub measured_at: Moment,
}

/// One volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    /// The volume's name in metrics: unique, from the configuration.
    pub name: Arc<str>,
    /// The nodes with files on it, by CouchDB's names.
    pub nodes: Vec<Arc<str>>,
    /// Its free space; `None` if unknown or too old to rely on.
    pub space: Option<VolumeSpace>,
    /// Whether the configuration states its free space. Such a number measures nothing: it stays the same whatever
    /// is written, so nothing can be concluded from its difference to the sizes of files.
    pub is_stated: bool,
    /// When free space began to fall faster than the jobs on the volume explain.
    pub falling_since: Option<Moment>,
    /// Why its space is unknown.
    pub problem: Option<String>,
}

/// Maximum number of nodes that a volume's title names.
const NAMED_NODES: usize = 2;

/// A volume's name for people. A volume is named after its first node, so one that several nodes share is shown by its
/// nodes instead: `a, b and 1 more`.
pub fn volume_title(name: &str, nodes: &[impl AsRef<str>]) -> String {
    let Some(first) = nodes.first().filter(|_| nodes.len() > 1) else { return name.to_owned() };
    let more = nodes.len().saturating_sub(NAMED_NODES);
    let named = nodes.iter().take(NAMED_NODES).map(|node| short_node(node.as_ref()).to_owned());
    let named: Vec<String> = named.collect();
    let title =
        if more > 0 { format!("{} and {more} more", named.join(", ")) } else { listed(&named) };
    // The second volume of the same nodes has a number.
    if first.as_ref() == name { title } else { format!("{} ({title})", short_node(name)) }
}

impl Volume {
    /// Its name for people.
    #[must_use]
    pub fn title(&self) -> String {
        volume_title(&self.name, &self.nodes)
    }

    /// The compactions on it, including those that others started.
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

    /// Bytes that the compactions on it may still use.
    #[must_use]
    pub fn reserved_bytes(&self, jobs: &Jobs, snapshot: &Snapshot) -> u64 {
        self.jobs(jobs, snapshot).fold(0, |sum, job| sum.saturating_add(job.reserved_bytes))
    }

    /// Bytes of the unfinished files that running compactions have written on it: as measured together with
    /// its free space, or else estimated.
    #[must_use]
    pub fn held_bytes(&self, jobs: &Jobs, snapshot: &Snapshot) -> u64 {
        if let Some(held) = self.space.and_then(|space| space.held) {
            return held;
        }
        self.jobs(jobs, snapshot).fold(0, |sum, job| sum.saturating_add(job.held_bytes()))
    }
}

/// Every configured volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Disks {
    /// The volumes, in the order of the configuration.
    pub volumes: Vec<Volume>,
}

impl Disks {
    /// Whether there are volumes, and each was measured or cannot be.
    #[must_use]
    pub fn are_measured(&self) -> bool {
        let is_read = |volume: &Volume| volume.space.is_some() || volume.problem.is_some();
        !self.volumes.is_empty() && self.volumes.iter().all(is_read)
    }

    /// The volumes that hold files of a node.
    pub fn of_node<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Volume> {
        self.volumes.iter().filter(move |volume| volume.nodes.iter().any(|name| &**name == node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_volume_is_titled_by_its_nodes() {
        for (name, nodes, title) in [
            ("couchdb@a", &["couchdb@a"][..], "couchdb@a"),
            ("couchdb@a-2", &["couchdb@a"], "couchdb@a-2"),
            ("couchdb@a", &["couchdb@a", "n@b"], "a and n@b"),
            ("couchdb@a", &["couchdb@a", "couchdb@b", "couchdb@c"], "a, b and 1 more"),
            ("couchdb@a-2", &["couchdb@a", "couchdb@b"], "a-2 (a and b)"),
            ("couchdb@a", &[], "couchdb@a"),
        ] {
            assert_eq!(volume_title(name, nodes), title);
        }
    }
}
