//! Running work: tasks, smoosh's channels, shard splits.

use super::lenient;
use serde::Deserialize;
use std::collections::BTreeMap;

/// One entry of `_active_tasks`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct ActiveTask {
    /// `database_compaction`, `view_compaction`, `indexer`, `search_indexer`, `replication`, …
    #[serde(rename = "type", deserialize_with = "lenient::field")]
    pub kind: Option<String>,
    /// The node; missing if only one node was asked.
    #[serde(deserialize_with = "lenient::field")]
    pub node: Option<String>,
    /// The shard's name.
    #[serde(deserialize_with = "lenient::field")]
    pub database: Option<String>,
    /// The design document's id, with `_design/`.
    #[serde(deserialize_with = "lenient::field")]
    pub design_document: Option<String>,
    /// The search index being built.
    #[serde(deserialize_with = "lenient::field")]
    pub index: Option<String>,
    /// The phase of a compaction; each phase has its own progress.
    #[serde(deserialize_with = "lenient::field")]
    pub phase: Option<String>,
    /// Percent of the phase.
    #[serde(deserialize_with = "lenient::field")]
    pub progress: Option<f64>,
    /// Changes processed in this phase.
    #[serde(deserialize_with = "lenient::field")]
    pub changes_done: Option<u64>,
    /// Total changes of this phase.
    #[serde(deserialize_with = "lenient::field")]
    pub total_changes: Option<u64>,
    /// Seconds since 1970 by the node's clock.
    #[serde(deserialize_with = "lenient::field")]
    pub started_on: Option<u64>,
    /// Seconds since 1970 by the node's clock.
    #[serde(deserialize_with = "lenient::field")]
    pub updated_on: Option<u64>,
    /// The Erlang process.
    #[serde(deserialize_with = "lenient::field")]
    pub pid: Option<String>,
    /// The process that builds the index. It equals the pid of a compaction while that compaction
    /// builds the new file.
    #[serde(deserialize_with = "lenient::field")]
    pub indexer_pid: Option<String>,
    /// `running`, `waiting`, `suspended`, … (3.2+).
    #[serde(deserialize_with = "lenient::field")]
    pub process_status: Option<String>,
}

/// `GET /_node/_local/_smoosh/status`, since 3.4.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct SmooshStatus {
    /// Channels by name.
    #[serde(deserialize_with = "lenient::field")]
    pub channels: BTreeMap<String, SmooshChannel>,
}

/// One of smoosh's channels.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct SmooshChannel {
    /// Running compactions.
    #[serde(deserialize_with = "lenient::field")]
    pub active: Option<u64>,
    /// Compactions being started.
    #[serde(deserialize_with = "lenient::field")]
    pub starting: Option<u64>,
    /// The queue.
    #[serde(deserialize_with = "lenient::field")]
    pub waiting: SmooshWaiting,
}

/// A channel's queue.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct SmooshWaiting {
    /// The number of queued targets.
    #[serde(deserialize_with = "lenient::field")]
    pub size: Option<u64>,
    /// The lowest priority: 0 if the queue is empty, infinity if CouchDB sends `infinity`.
    #[serde(deserialize_with = "lenient::field")]
    pub min: Option<f64>,
    /// The highest priority.
    #[serde(deserialize_with = "lenient::field")]
    pub max: Option<f64>,
}

/// `GET /_reshard/jobs`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ReshardJobs {
    /// The jobs.
    #[serde(deserialize_with = "lenient::field")]
    pub jobs: Vec<ReshardJob>,
}

/// One shard split.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ReshardJob {
    /// The job's id.
    #[serde(deserialize_with = "lenient::field")]
    pub id: Option<String>,
    /// `split`.
    #[serde(rename = "type", deserialize_with = "lenient::field")]
    pub kind: Option<String>,
    /// The node it runs on.
    #[serde(deserialize_with = "lenient::field")]
    pub node: Option<String>,
    /// The shard being split.
    #[serde(deserialize_with = "lenient::field")]
    pub source: Option<String>,
    /// The shards that result from the split.
    #[serde(deserialize_with = "lenient::field")]
    pub target: Option<Vec<String>>,
    /// `new`, `running`, `stopped`, `completed`, `failed`.
    #[serde(deserialize_with = "lenient::field")]
    pub job_state: Option<String>,
    /// The step of the split, such as `initial_copy`.
    #[serde(deserialize_with = "lenient::field")]
    pub split_state: Option<String>,
}

impl lenient::Object for ActiveTask {}
impl lenient::Object for SmooshChannel {}
impl lenient::Object for SmooshWaiting {}
impl lenient::Object for ReshardJob {}
