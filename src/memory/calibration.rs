//! What outcomes teach: how much space a compaction takes, how fast it writes, how far the
//! estimates are off.

use serde::{Deserialize, Serialize};

/// What was learned so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Calibration {
    /// The largest peak of a db job that was seen, as a multiple of the active bytes before.
    pub headroom_factor: Option<f64>,
    /// Bytes of new files a second that jobs wrote, the newer the heavier.
    pub rate: Option<f64>,
    /// How db estimates are off: actual over predicted, the newer the heavier.
    pub db_ratio: Option<f64>,
    /// The same of views.
    pub view_ratio: Option<f64>,
}
