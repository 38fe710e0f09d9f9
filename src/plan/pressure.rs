//! Pressure: whether nodes are too busy for further compactions.
//!
//! Owns the signals of each node and the gate they open and close, with high and low marks and a
//! maximum hold; and the task that reads them. `plan` reads the gates; metrics and the API show
//! them with the signals.

mod gate;
mod gate_log;
mod probe;
mod task;

pub(crate) use probe::{NodeReading, Probe};
pub(crate) use task::PressureTask;

use crate::{model::settings::limits::Marks, table::NodeIx};
use std::collections::BTreeMap;
use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

/// A signal of pressure.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Seconds that a small request of recliner's own took.
    ProbeLatency,
    /// Erlang's run queue: processes waiting for a scheduler.
    RunQueue,
    /// Changes that internal replication still has to send.
    ReplicationBacklog,
    /// Running indexers.
    Indexers,
}

impl Signal {
    /// The unit of its numbers.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::ProbeLatency => "seconds",
            Self::RunQueue => "processes",
            Self::ReplicationBacklog => "changes",
            Self::Indexers => "indexers",
        }
    }
}

/// The signal that holds back a node's starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PressureHold {
    /// The signal that closed the gate.
    pub signal: Signal,
    /// When it closed the gate.
    pub since: Moment,
    /// Its current value.
    pub value: f64,
    /// The low mark at which the gate opens again.
    pub low: f64,
}

/// The state of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePressure {
    /// The current value of each signal; absent where it could not be read.
    pub signals: BTreeMap<Signal, f64>,
    /// How busy it is: 0 while every signal is at or below its low mark, 1 when one is at or above
    /// its high mark.
    pub load: f64,
    /// The signal that closed the gate, if it is closed.
    pub hold: Option<PressureHold>,
    /// When the node went into maintenance, according to `_up`.
    pub maintenance_since: Option<Moment>,
    /// Since when an operator marks it as being upgraded (`[couchdb] upgrade_in_progress`).
    pub upgrade_since: Option<Moment>,
}

/// The state of every node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pressures {
    /// By node; absent until the first probe.
    pub nodes: BTreeMap<NodeIx, NodePressure>,
    /// The marks of each signal, in its own unit; empty until the first probe.
    pub marks: BTreeMap<Signal, Marks<f64>>,
}
