//! The load of a node, and the work of its own smoosh.

use super::{vocabulary, vocabulary::Word};
use crate::{
    plan::pressure::{Pressures, Signal},
    table::{NodeIx, NodeSmoosh},
    text::Label,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One signal of load on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PressureLine {
    /// The signal.
    #[schemars(with = "vocabulary::Signal")]
    pub signal: Word,
    /// The unit of the values: `seconds`, `processes`, `changes` or `indexers`.
    #[schemars(with = "vocabulary::SignalUnit")]
    pub unit: Word,
    /// The median of recent readings.
    pub value: f64,
    /// Nothing starts above this value; null if there is no threshold.
    pub high: Option<f64>,
    /// Starts resume at or below this value; null if there is no threshold.
    pub low: Option<f64>,
    /// Whether the signal holds back starts now.
    pub holds: bool,
}

impl PressureLine {
    /// Every pressure signal of a node that could be read.
    pub(super) fn all(pressures: &Pressures, node: NodeIx) -> Vec<Self> {
        let Some(of_node) = pressures.nodes.get(&node) else { return Vec::new() };
        let line = |(signal, value): (&Signal, &f64)| {
            let marks = pressures.marks.get(signal);
            Self {
                signal: signal.label().into(),
                unit: signal.unit().into(),
                value: *value,
                high: marks.map(|marks| marks.high),
                low: marks.map(|marks| marks.low),
                holds: of_node.hold.is_some_and(|hold| hold.signal == *signal),
            }
        };
        of_node.signals.iter().map(line).collect()
    }
}

/// One channel of a node's smoosh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SmooshChannelLine {
    /// The channel's name.
    pub channel: String,
    /// Number of running compactions.
    pub active: u64,
    /// Number of compactions about to start.
    pub starting: u64,
    /// Number of queued files.
    pub waiting: u64,
}

impl SmooshChannelLine {
    /// Every channel of a node's smoosh.
    pub(super) fn all(smoosh: &NodeSmoosh) -> Vec<Self> {
        let NodeSmoosh::Channels(channels) = smoosh else { return Vec::new() };
        let line = |channel: &crate::table::SmooshChannel| Self {
            channel: channel.name.to_string(),
            active: channel.active,
            starting: channel.starting,
            waiting: channel.waiting,
        };
        channels.iter().map(line).collect()
    }
}
