//! What runs: tasks, smoosh's channels, shards being split.

use super::loose;
use serde::Deserialize;
use std::collections::BTreeMap;

/// One entry of `_active_tasks`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct ActiveTask {
    /// `database_compaction`, `view_compaction`, `indexer`, `search_indexer`, `replication`, …
    #[serde(rename = "type", deserialize_with = "loose::loose")]
    pub kind: Option<String>,
    /// The node; missing where one node was asked.
    #[serde(deserialize_with = "loose::loose")]
    pub node: Option<String>,
    /// The shard's name.
    #[serde(deserialize_with = "loose::loose")]
    pub database: Option<String>,
    /// The design document's id, with `_design/`.
    #[serde(deserialize_with = "loose::loose")]
    pub design_document: Option<String>,
    /// The search index that is built.
    #[serde(deserialize_with = "loose::loose")]
    pub index: Option<String>,
    /// The phase of a compaction; progress starts anew in each.
    #[serde(deserialize_with = "loose::loose")]
    pub phase: Option<String>,
    /// Percent of the phase.
    #[serde(deserialize_with = "loose::loose")]
    pub progress: Option<f64>,
    /// What is done of the phase.
    #[serde(deserialize_with = "loose::loose")]
    pub changes_done: Option<u64>,
    /// What there is to do in the phase.
    #[serde(deserialize_with = "loose::loose")]
    pub total_changes: Option<u64>,
    /// Seconds since 1970 by the node's clock.
    #[serde(deserialize_with = "loose::loose")]
    pub started_on: Option<u64>,
    /// Seconds since 1970 by the node's clock.
    #[serde(deserialize_with = "loose::loose")]
    pub updated_on: Option<u64>,
    /// The Erlang process.
    #[serde(deserialize_with = "loose::loose")]
    pub pid: Option<String>,
    /// The process that builds the index; equals a compaction's pid while that one
    /// builds anew.
    #[serde(deserialize_with = "loose::loose")]
    pub indexer_pid: Option<String>,
    /// `running`, `waiting`, `suspended`, … (3.2+).
    #[serde(deserialize_with = "loose::loose")]
    pub process_status: Option<String>,
}

/// `GET /_node/_local/_smoosh/status`, since 3.4.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct SmooshStatus {
    /// Channels by name.
    #[serde(deserialize_with = "loose::loose")]
    pub channels: BTreeMap<String, SmooshChannel>,
}

/// One of smoosh's channels.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct SmooshChannel {
    /// Compactions that run.
    #[serde(deserialize_with = "loose::loose")]
    pub active: Option<u64>,
    /// Compactions that are being started.
    #[serde(deserialize_with = "loose::loose")]
    pub starting: Option<u64>,
    /// The queue.
    #[serde(deserialize_with = "loose::loose")]
    pub waiting: SmooshWaiting,
}

/// A channel's queue.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct SmooshWaiting {
    /// How many wait.
    #[serde(deserialize_with = "loose::loose")]
    pub size: Option<u64>,
    /// The lowest priority; 0 when none waits, infinite where CouchDB says `infinity`.
    #[serde(deserialize_with = "loose::loose")]
    pub min: Option<f64>,
    /// The highest priority.
    #[serde(deserialize_with = "loose::loose")]
    pub max: Option<f64>,
}

/// `GET /_reshard/jobs`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ReshardJobs {
    /// The jobs.
    #[serde(deserialize_with = "loose::loose")]
    pub jobs: Vec<ReshardJob>,
}

/// One shard being split.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ReshardJob {
    /// The job.
    #[serde(deserialize_with = "loose::loose")]
    pub id: Option<String>,
    /// `split`.
    #[serde(rename = "type", deserialize_with = "loose::loose")]
    pub kind: Option<String>,
    /// The node it runs on.
    #[serde(deserialize_with = "loose::loose")]
    pub node: Option<String>,
    /// The shard being split.
    #[serde(deserialize_with = "loose::loose")]
    pub source: Option<String>,
    /// The shards it becomes.
    #[serde(deserialize_with = "loose::loose")]
    pub target: Option<Vec<String>>,
    /// `new`, `running`, `stopped`, `completed`, `failed`.
    #[serde(deserialize_with = "loose::loose")]
    pub job_state: Option<String>,
    /// The step of the split, such as `initial_copy`.
    #[serde(deserialize_with = "loose::loose")]
    pub split_state: Option<String>,
}

impl loose::Object for ActiveTask {}
impl loose::Object for SmooshChannel {}
impl loose::Object for SmooshWaiting {}
impl loose::Object for ReshardJob {}
