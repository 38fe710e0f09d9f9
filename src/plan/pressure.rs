//! Pressure: whether the servers are too busy for more.
//!
//! Owns the signals of each node and the gate they open and shut, with high and low marks
//! and a longest hold; and the task that asks for them. `plan` reads the gates, metrics and
//! API show them with the signals.

mod gate;
mod look;
mod reports;
mod task;

pub use look::{Look, Probe};
pub use task::{Handle, Settings, Task};

use crate::table::NodeIx;
use std::collections::BTreeMap;
use wall_clock::Moment;

/// A signal of pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Seconds that a small request of this program's own took.
    ProbeLatency,
    /// Erlang's run queue: processes that wait for a scheduler.
    RunQueue,
    /// Changes that internal replication has still to push.
    ReplicationBacklog,
    /// Indexers that run.
    Indexers,
}

impl Signal {
    /// Every signal.
    pub const ALL: [Self; 4] =
        [Self::ProbeLatency, Self::RunQueue, Self::ReplicationBacklog, Self::Indexers];

    /// The word in JSON, configuration and metric labels.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::ProbeLatency => "probe_latency",
            Self::RunQueue => "run_queue",
            Self::ReplicationBacklog => "replication_backlog",
            Self::Indexers => "indexers",
        }
    }
}

/// What holds a node's starts back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// The signal that shut the gate.
    pub signal: Signal,
    /// Since when.
    pub since: Moment,
    /// What it reads now.
    pub value: f64,
    /// Where it has to fall to.
    pub low: f64,
}

/// What is known of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePressure {
    /// What each signal last read; absent where it could not be read.
    pub signals: BTreeMap<Signal, f64>,
    /// What shuts the gate, if it is shut.
    pub held: Option<Held>,
    /// Since when the node is in maintenance (`_up` says so).
    pub maintenance_since: Option<Moment>,
    /// Whether the last looks, two at least, waited for an answer in vain.
    pub silent: bool,
}

/// What is known of every node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pressures {
    /// By node; one that is absent was not asked yet.
    pub nodes: BTreeMap<NodeIx, NodePressure>,
}
