//! Responses with one long list, of which the reader gets a part.

use super::{ChannelWeek, DutyLine, Explained, LimitLine, Planned, RefusedLine, Target};
use crate::plan::{Plan, QueueView};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// A response with one long list, which the server sends while it renders it.
pub trait Listing: Serialize + 'static {
    /// The name of the list's field. No other field of the response has this name.
    const LIST: &'static str;
    /// An item of the list.
    type Item: Serialize + 'static;
}

/// Some of the targets, in the order that was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Targets {
    /// When the targets were read.
    pub generated_at: String,
    /// How many targets match.
    pub total: usize,
    /// How many of these were left out before the first one here.
    pub offset: usize,
    /// How many are listed at most.
    pub limit: usize,
    /// The targets.
    pub targets: Vec<Target>,
}

impl Listing for Targets {
    const LIST: &'static str = "targets";
    type Item = Target;
}

/// The targets that a name means, each with what is decided about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanations {
    /// When the targets were read.
    pub generated_at: String,
    /// How many targets the name means.
    pub total: usize,
    /// How many of these were left out before the first one here.
    pub offset: usize,
    /// How many are listed at most.
    pub limit: usize,
    /// The targets.
    pub targets: Vec<Explained>,
}

impl Listing for Explanations {
    const LIST: &'static str = "targets";
    type Item = Explained;
}

/// Queues with what waits in them, and what limits them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Queues {
    /// When the targets were read.
    pub generated_at: String,
    /// How many targets of each queue were left out before the first one here.
    pub offset: usize,
    /// How many targets of each queue are listed at most.
    pub limit: usize,
    /// The limits, and how much of each is used now by compactions, whatever started them.
    pub limits: Vec<LimitLine>,
    /// Nodes on which recliner's compactions run, or that rest after them.
    #[serde(default)]
    pub duty: Vec<DutyLine>,
    /// When each channel may start anything, in the present week.
    pub windows: Vec<ChannelWeek>,
    /// The queues.
    pub queues: Vec<Queue>,
}

impl Listing for Queues {
    const LIST: &'static str = "queues";
    type Item = Queue;
}

impl Queues {
    /// The limits and windows of a plan, without the queues.
    #[must_use]
    pub fn head(plan: &Plan, offset: usize, limit: usize, now: Moment) -> Self {
        Self {
            generated_at: plan.snapshot.generated_at().rfc3339(),
            offset,
            limit,
            limits: LimitLine::all(plan),
            duty: DutyLine::all(plan, now),
            windows: ChannelWeek::all(plan, now),
            queues: Vec::new(),
        }
    }
}

/// The queue of one channel on one node. Unknown is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Queue {
    /// The node, or `_cluster`.
    pub node: String,
    /// The channel.
    pub channel: String,
    /// How many targets wait.
    pub size: usize,
    /// How many can wait.
    pub capacity: usize,
    /// How many more were turned away because the queue is full.
    pub overflow: usize,
    /// Compactions that run of targets that this channel takes, whoever started them.
    pub active: usize,
    /// What compacting all that wait would free, as predicted.
    pub reclaimable_bytes: u64,
    /// The highest priority that waits.
    pub priority_max: Option<f64>,
    /// The lowest priority that waits.
    pub priority_min: Option<f64>,
    /// Since when the target that has waited longest waits.
    pub oldest: Option<String>,
    /// The targets that wait, the best first.
    pub targets: Vec<Target>,
}

impl Listing for Queue {
    const LIST: &'static str = "targets";
    type Item = Target;
}

impl Queue {
    /// A queue of a plan, without its targets.
    #[must_use]
    pub fn of(node: &str, channel: &str, (queue, waiting): (&QueueView, usize)) -> Self {
        Self {
            node: node.to_owned(),
            channel: channel.to_owned(),
            size: waiting,
            capacity: queue.capacity,
            overflow: queue.overflow,
            active: queue.active_jobs,
            reclaimable_bytes: queue.reclaimable_bytes,
            priority_max: queue.priority_range.map(|(best, _)| best),
            priority_min: queue.priority_range.map(|(_, worst)| worst),
            oldest: queue.oldest_queued_at.map(Moment::rfc3339),
            targets: Vec::new(),
        }
    }
}

impl Listing for Planned {
    const LIST: &'static str = "refused";
    type Item = RefusedLine;
}
