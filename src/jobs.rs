//! Jobs: compactions and index builds that run, whoever started them.
//!
//! Owns what is known of them at one moment. Never asks CouchDB and never starts anything:
//! the follower keeps it up with what the scanner polls, `plan` counts limits and space by
//! it, metrics and API show it.

mod history;
mod judge;
mod progress;
mod running;
mod tracker;

pub use history::History;
pub use running::{Polled, Running, Task};
pub use tracker::{Ended, Rules, Sent, StartRefused, Step, Tracker};

use crate::{
    model::{memory::Owner, target::Kind},
    table::{Ix, NodeIx},
};
use std::sync::Arc;
use wall_clock::Moment;

/// What a job does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// Compacts a shard.
    Db,
    /// Compacts the index of a design document, by its id.
    View(Arc<str>),
    /// Builds the index of a design document, by its id.
    Build(Arc<str>),
    /// Builds a search index, by its design document's id and its name.
    BuildSearch(Arc<str>, Arc<str>),
}

/// What tells one job from another. Processes, phases and starting times change while one
/// goes on; this does not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobKey {
    /// The node it runs on.
    pub node: NodeIx,
    /// The shard file's name.
    pub shard: Arc<str>,
    /// What it does.
    pub work: Work,
}

/// How far a job is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The request is out, or about to be, and CouchDB has not shown it yet.
    Starting,
    /// CouchDB shows it.
    Running,
    /// CouchDB shows that it is suspended (smoosh outside its window).
    Suspended,
    /// CouchDB shows it no more, and its file is being read to learn how it ended.
    Ending,
}

impl Phase {
    /// The word in JSON.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Ending => "ending",
        }
    }
}

/// One job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its identity.
    pub key: JobKey,
    /// What it works on, where the tables have it.
    pub target: Option<Ix>,
    /// The kind of that target.
    pub kind: Kind,
    /// Who started it.
    pub owner: Owner,
    /// The channel it was started for, or that takes its target.
    pub channel: Option<Arc<str>>,
    /// When it was started, or first seen.
    pub since: Moment,
    /// How far on its way it is.
    pub phase: Phase,
    /// What is done of it, phases weighted, from 0 to 1; absent while CouchDB says nothing.
    pub progress: Option<f64>,
    /// When CouchDB last said that something was done.
    pub last_progress: Moment,
    /// Bytes it may still take on its volume beside what it has written.
    pub reserved: u64,
    /// Bytes of its target's file before.
    pub file_bytes: Option<u64>,
    /// Bytes it is predicted to leave.
    pub predicted_bytes: Option<u64>,
}

impl Job {
    /// Whether it compacts, rather than builds.
    #[must_use]
    pub const fn compacts(&self) -> bool {
        matches!(self.key.work, Work::Db | Work::View(_))
    }
}

/// Every job of the cluster, as far as its nodes were asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Jobs {
    /// The jobs, by their keys.
    pub list: Vec<Job>,
    /// Nodes whose tasks are known, with when they were last asked; of the others nothing is.
    pub polled: Vec<(NodeIx, Moment)>,
    /// Starts of this process that these jobs count in: a plan made from older ones may give
    /// their room away once more.
    pub taken: u64,
}

impl Jobs {
    /// Compactions that run or start on a node.
    #[must_use]
    pub fn on_node(&self, node: NodeIx) -> usize {
        self.compactions().filter(|job| job.key.node == node).count()
    }

    /// Compactions that run or start anywhere.
    pub fn compactions(&self) -> impl Iterator<Item = &Job> {
        self.list.iter().filter(|job| job.compacts())
    }

    /// Index builds that run on a node.
    #[must_use]
    pub fn builds_on(&self, node: NodeIx) -> usize {
        self.list.iter().filter(|job| !job.compacts() && job.key.node == node).count()
    }
}
