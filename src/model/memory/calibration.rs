//! What outcomes teach: how much space a compaction takes, how fast it writes, how far the
//! estimates are off.

use super::{Ending, Outcome};
use crate::model::target::Kind;
use serde::{Deserialize, Serialize};

/// How much the newest outcome counts in a mean.
const NEWEST: f64 = 0.2;

/// Jobs that took fewer seconds say nothing of rates: moments are whole seconds, and starting
/// costs as much as copying.
const SHORTEST: u64 = 3;

/// The new file is not all that a compaction writes: what it sorts lies beside it until the
/// end, at least this part of the file.
const SORTED_BESIDE: f64 = 0.05;

/// No peak larger than this multiple of active is believed: the file grew for another reason.
const LARGEST_FACTOR: f64 = 10.0;

/// Files with fewer active bytes say nothing of space: what is written to them while they are
/// compacted soon weighs as much as what is copied.
const SMALLEST: u64 = 16 << 20;

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

impl Calibration {
    /// Takes in how a job ended that had `active` bytes to copy; answers whether that taught
    /// anything. Of jobs that did not end with a new file nothing is learned.
    pub fn learn(&mut self, outcome: &Outcome, active: Option<u64>) -> bool {
        let before = *self;
        if !matches!(outcome.ending, Ending::Freed | Ending::NothingFreed | Ending::Grew) {
            return false;
        }
        if let Some(ratio) = outcome.estimate_ratio() {
            match outcome.kind {
                Kind::Db => mix(&mut self.db_ratio, ratio),
                Kind::View => mix(&mut self.view_ratio, ratio),
                Kind::Cleanup | Kind::Search => {}
            }
        }
        let Some(after) = outcome.after_bytes else { return *self != before };
        let seconds = outcome.started_at.age(outcome.ended_at).as_secs();
        if seconds >= SHORTEST && after > 0 {
            mix(&mut self.rate, after as f64 / seconds as f64);
        }
        let large = |active: &u64| *active >= SMALLEST && outcome.kind == Kind::Db;
        if let Some(active) = active.filter(large) {
            let peak = after as f64 * (1.0 + SORTED_BESIDE) / active as f64;
            if peak <= LARGEST_FACTOR && self.headroom_factor.is_none_or(|known| peak > known) {
                self.headroom_factor = Some(peak);
            }
        }
        *self != before
    }
}

/// Moves a mean towards a new value.
fn mix(mean: &mut Option<f64>, value: f64) {
    *mean = Some(mean.map_or(value, |mean| mean.mul_add(1.0 - NEWEST, value * NEWEST)));
}
