//! Running work: tasks, smoosh's channels, shard splits.

use super::lenient::lenient;
use std::collections::BTreeMap;

lenient! {
    /// One entry of `_active_tasks`.
    pub struct ActiveTask {
        /// `database_compaction`, `view_compaction`, `indexer`, `search_indexer`, `replication`, …
        #[serde(rename = "type")]
        pub kind: Option<String>,
        /// The node; missing if only one node was asked.
        pub node: Option<String>,
        /// The shard's name.
        pub database: Option<String>,
        /// The design document's id, with `_design/`.
        pub design_document: Option<String>,
        /// The search index being built.
        pub index: Option<String>,
        /// The phase of a compaction; each phase has its own progress.
        pub phase: Option<String>,
        /// Percent of the phase.
        pub progress: Option<f64>,
        /// Changes processed in this phase.
        pub changes_done: Option<u64>,
        /// Total changes of this phase.
        pub total_changes: Option<u64>,
        /// Seconds since 1970 by the node's clock.
        pub started_on: Option<u64>,
        /// Seconds since 1970 by the node's clock.
        pub updated_on: Option<u64>,
        /// The Erlang process.
        pub pid: Option<String>,
        /// The process that builds the index. It equals the pid of a compaction while that compaction
        /// builds the new file.
        pub indexer_pid: Option<String>,
        /// `running`, `waiting`, `suspended`, … (3.2+).
        pub process_status: Option<String>,
    }

    /// `GET /_node/_local/_smoosh/status`, since 3.4.
    pub struct SmooshStatus {
        /// Channels by name.
        pub channels: BTreeMap<String, SmooshChannel>,
    }

    /// One of smoosh's channels.
    #[derive(Copy)]
    pub struct SmooshChannel {
        /// Running compactions.
        pub active: Option<u64>,
        /// Compactions being started.
        pub starting: Option<u64>,
        /// The queue.
        pub waiting: SmooshWaiting,
    }

    /// A channel's queue.
    #[derive(Copy)]
    pub struct SmooshWaiting {
        /// The number of queued targets.
        pub size: Option<u64>,
        /// The lowest priority: 0 if the queue is empty, infinity if CouchDB sends `infinity`.
        pub min: Option<f64>,
        /// The highest priority.
        pub max: Option<f64>,
    }

    /// `GET /_reshard/jobs`.
    pub struct ReshardJobs {
        /// The jobs.
        pub jobs: Vec<ReshardJob>,
    }

    /// One shard split.
    pub struct ReshardJob {
        /// The job's id.
        pub id: Option<String>,
        /// `split`.
        #[serde(rename = "type")]
        pub kind: Option<String>,
        /// The node it runs on.
        pub node: Option<String>,
        /// The shard being split.
        pub source: Option<String>,
        /// The shards that result from the split.
        pub target: Option<Vec<String>>,
        /// `new`, `running`, `stopped`, `completed`, `failed`.
        pub job_state: Option<String>,
        /// The step of the split, such as `initial_copy`.
        pub split_state: Option<String>,
        /// What is known about its state.
        pub state_info: Option<ReshardStateInfo>,
    }

    /// What is known about the state of a shard split.
    pub struct ReshardStateInfo {
        /// Why it failed or was stopped.
        pub reason: Option<String>,
    }
}
