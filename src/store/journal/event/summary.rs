//! Further targets and repeats covered by one journal entry.

use crate::model::target::TargetId;
use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// Further targets and repeats covered by one journal entry: other targets of the same queue with
/// the same event at the same time, and the number of repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventSummary {
    /// Other affected targets, up to the number that is listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<TargetId>,
    /// Total number of affected targets; `None` for one target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<u64>,
    /// Number of repeats; `None` if the event is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Time of the first repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Moment>,
    /// Time of the last repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Moment>,
}
