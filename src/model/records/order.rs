//! An operator's order to compact a target, until it starts or expires.

use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// An order to compact one target before all others, through the same gates and limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionOrder {
    /// When it was given.
    pub at: Moment,
    /// When it expires if the target has not started by then.
    pub until: Moment,
    /// Who gave it, and from which address.
    pub by: String,
    /// Whether it also applies if no channel takes the target because of thresholds, and during
    /// back-off after failures or a useless compaction. Overrides nothing else.
    /// A useless compaction holds back no order while the file is far larger than its live bytes.
    pub force: bool,
    /// The run that it is a member of. Such an order is part of the plan only: the run is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u64>,
}
