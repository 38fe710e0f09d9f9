//! What one entry stands for beside the target that it names.

use crate::model::target::TargetId;
use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// What one entry stands for beside the target that it names: other targets of the same queue
/// to which the same happened at once, and how often it happened again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The other targets, as far as they are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<TargetId>,
    /// How many targets there are together; none where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<u64>,
    /// How often it happened again; none where it is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// When it first happened again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Moment>,
    /// When it last did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Moment>,
}
