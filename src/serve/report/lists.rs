//! Responses with one long list, returned page by page.

use super::{ChannelWeek, DutyLine, Explained, LimitLine, Target};
use crate::plan::{Plan, QueueView};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// A page of the list of targets, in the requested order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Targets {
    /// When the targets were read.
    pub generated_at: String,
    /// Number of targets that match.
    pub total: usize,
    /// Number of matching targets before this page.
    pub offset: usize,
    /// Maximum number of targets on a page.
    pub limit: usize,
    /// The targets.
    pub targets: Vec<Target>,
}

/// The targets that a name matches, each with the decision about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanations {
    /// When the targets were read.
    pub generated_at: String,
    /// Number of targets that the name matches.
    pub total: usize,
    /// Number of matching targets before this page.
    pub offset: usize,
    /// Maximum number of targets on a page.
    pub limit: usize,
    /// The cluster's only node; null if it has several.
    pub only_node: Option<String>,
    /// The nodes that do not answer: sizes there are as they were last read, or unknown.
    #[serde(default)]
    pub unanswered: Vec<String>,
    /// The targets.
    pub targets: Vec<Explained>,
}

/// Queues with their targets, and what limits them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Queues {
    /// When the targets were read.
    pub generated_at: String,
    /// Number of targets of each queue before this page.
    pub offset: usize,
    /// Maximum number of targets of each queue on a page.
    pub limit: usize,
    /// The limits, and how much of each is used by running compactions, whatever started them.
    pub limits: Vec<LimitLine>,
    /// Nodes on which recliner's compactions run, or that pause after them.
    #[serde(default)]
    pub duty: Vec<DutyLine>,
    /// When each channel may start compactions in the current week.
    pub windows: Vec<ChannelWeek>,
    /// The queues.
    pub queues: Vec<Queue>,
}

impl Queues {
    /// The limits and windows of a plan, without the queues.
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
    /// Number of targets that wait.
    pub size: usize,
    /// Maximum number of targets that can wait.
    pub capacity: usize,
    /// Number of further targets that did not fit into the queue.
    pub overflow: usize,
    /// Number of running compactions of targets that this channel takes, whatever started them.
    pub active: usize,
    /// Bytes that compacting all waiting targets is predicted to free.
    pub reclaimable_bytes: u64,
    /// Highest priority of a waiting target.
    pub priority_max: Option<f64>,
    /// Lowest priority of a waiting target.
    pub priority_min: Option<f64>,
    /// Since when the longest waiting target has waited.
    pub oldest: Option<String>,
    /// The waiting targets, highest priority first.
    pub targets: Vec<Target>,
}

impl Queue {
    /// A queue of a plan, without its targets.
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
