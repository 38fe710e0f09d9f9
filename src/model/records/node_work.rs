//! When compactions of this program last ran on a node: `limits.wait` and `limits.duty` count from it,
//! also after a restart.

use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// When compactions of this program last ran on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeWork {
    /// When one was last started.
    #[serde(default)]
    pub last_start: Option<Moment>,
    /// The last period in which compactions ran without a break.
    #[serde(default)]
    pub busy: Option<BusyRecord>,
}

/// A period in which compactions ran without a break.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusyRecord {
    /// When it began.
    pub since: Moment,
    /// The shard file of its first job.
    pub first_shard: String,
    /// That job's design document, if it compacted an index.
    #[serde(default)]
    pub first_design: Option<String>,
    /// When that job ended.
    #[serde(default)]
    pub first_ended_at: Option<Moment>,
    /// When the last job ended.
    #[serde(default)]
    pub ended_at: Option<Moment>,
}
