//! Values learned from outcomes: the space a compaction needs, its speed, and the error of the
//! estimates; and the speed of index builds.

use super::{BuildSpeeds, JobResult, Outcome};
use crate::model::target::TargetKind;
use serde::{Deserialize, Serialize};

/// Weight of the newest outcome in a mean.
const NEWEST_WEIGHT: f64 = 0.2;

/// Minimum duration in seconds of a job whose rate counts: moments have a resolution of one
/// second, and starting a job takes as long as copying.
const MIN_JOB_SECONDS: u64 = 3;

/// A compaction writes more than the new file: sorted temporary data stays next to it until the
/// end, at least this share of the file.
const SORT_SPACE_SHARE: f64 = 0.05;

/// A peak above this multiple of active bytes is ignored: the file grew for another reason.
const MAX_PEAK_FACTOR: f64 = 10.0;

/// Minimum active bytes of a file whose peak counts: writes to a smaller file during its
/// compaction soon outweigh the copied data.
const MIN_ACTIVE_BYTES: u64 = 16 << 20;

/// The values learned so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Calibration {
    /// The largest observed peak of a database job, as a multiple of the active bytes before it.
    pub headroom_factor: Option<f64>,
    /// Bytes of new files written per second, newer jobs weighted more.
    pub rate: Option<f64>,
    /// Error of database estimates: actual over predicted size, newer jobs weighted more.
    pub db_ratio: Option<f64>,
    /// Error of view estimates, like `db_ratio`.
    pub view_ratio: Option<f64>,
    /// How fast indexes were built.
    #[serde(skip_serializing_if = "BuildSpeeds::is_empty")]
    pub builds: BuildSpeeds,
}

impl Calibration {
    /// Learns from the outcome of a job that had `active` bytes to copy; returns whether anything
    /// changed. Ignores jobs that ended without a new file.
    pub fn learn(&mut self, outcome: &Outcome, active: Option<u64>) -> bool {
        let before = self.clone();
        if !matches!(outcome.ending, JobResult::Freed | JobResult::NothingFreed | JobResult::Grew) {
            return false;
        }
        if let Some(ratio) = outcome.estimate_ratio() {
            match outcome.kind {
                TargetKind::Db => update_mean(&mut self.db_ratio, ratio),
                TargetKind::View => update_mean(&mut self.view_ratio, ratio),
                TargetKind::Cleanup | TargetKind::Search => {}
            }
        }
        let Some(after) = outcome.after_bytes else { return *self != before };
        let seconds = outcome.started_at.age(outcome.ended_at).as_secs();
        if outcome.took().is_some() && seconds >= MIN_JOB_SECONDS && after > 0 {
            update_mean(&mut self.rate, after as f64 / seconds as f64);
        }
        let large = |active: &u64| *active >= MIN_ACTIVE_BYTES && outcome.kind == TargetKind::Db;
        if let Some(active) = active.filter(large) {
            let peak = after as f64 * (1.0 + SORT_SPACE_SHARE) / active as f64;
            if peak <= MAX_PEAK_FACTOR && self.headroom_factor.is_none_or(|largest| peak > largest)
            {
                self.headroom_factor = Some(peak);
            }
        }
        *self != before
    }
}

/// Moves a mean towards a new value.
fn update_mean(mean: &mut Option<f64>, value: f64) {
    *mean =
        Some(mean.map_or(value, |mean| mean.mul_add(1.0 - NEWEST_WEIGHT, value * NEWEST_WEIGHT)));
}
