//! Decides whether another compaction would free anything, from the state after the last one.
//!
//! Sequences are not enough: a compaction that had to catch up with writes leaves a file several
//! times the size of its active data, although its compaction sequence is the last one written.
//! Sizes are: they are compared with those that the last compaction left.

use super::super::Outcome;
use crate::model::{correction::Correction, facts::Facts, target::TargetKind};
use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// A compaction that freed less than this share of the prediction was futile, and so would be
/// another one with such an expectation.
const MIN_GAIN_SHARE: f64 = 0.2;

/// A futile target with unknown sizes is tried again once its file or its sequence grew by this
/// share.
const RETRY_GROWTH_SHARE: f64 = 0.25;

/// A prediction of fewer bytes than this, and of a smaller share of the file than [`SMALL_PREDICTION_SHARE`],
/// is not held against a compaction: headers and fragments have the same size.
const SMALL_PREDICTION_BYTES: u64 = 1 << 20;

/// See [`SMALL_PREDICTION_BYTES`].
const SMALL_PREDICTION_SHARE: f64 = 0.05;

/// Catching up no longer counts once the rate of changes is this many times lower than during the
/// compaction.
const CALMER_FACTOR: u64 = 4;

/// The state after a compaction that another one would not improve, until enough changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Futile {
    /// When it ended.
    pub at: Moment,
    /// Bytes on disk after it.
    pub file_bytes: u64,
    /// Active bytes among them, where known.
    pub active_bytes: Option<u64>,
    /// The last sequence at that time, where known.
    pub update_seq: Option<u64>,
    /// The writes it had to catch up with, if any. Without these, another compaction frees more.
    pub caught_up: Option<ConcurrentWrites>,
}

/// The writes during a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConcurrentWrites {
    /// Number of changes.
    pub changes: u64,
    /// Duration of the compaction.
    pub seconds: u64,
}

/// The state of a file measured after a compaction. Bytes are those of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AfterCompaction {
    /// Bytes of the file.
    pub file_bytes: Option<u64>,
    /// Active bytes in it.
    pub active_bytes: Option<u64>,
    /// Bytes that another compaction would leave, as predicted.
    pub predicted_bytes: Option<u64>,
    /// The last sequence written.
    pub update_seq: Option<u64>,
    /// Changes while it ran, where known; zero if nothing was written.
    pub changes: Option<u64>,
    /// Whether the target needed an upgrade before and still does: the upgrade had no effect.
    pub not_upgraded: bool,
}

impl Futile {
    /// Derives from an outcome whether another compaction would be useless: this one freed far
    /// less than predicted, or sizes predict a gain although nothing was written while it ran.
    pub(super) fn from_outcome(outcome: &Outcome, left: AfterCompaction) -> Option<Self> {
        let file_bytes = left.file_bytes?;
        let promises = predicted_gain(Some(file_bytes), left.predicted_bytes).is_some();
        let clean = left.changes == Some(0) && promises;
        if !(left.not_upgraded || freed_too_little(outcome) || clean) {
            return None;
        }
        let seconds = outcome.started_at.age(outcome.ended_at).as_secs().max(1);
        let caught_up = left.changes.filter(|changes| *changes > 0);
        Some(Self {
            at: outcome.ended_at,
            file_bytes,
            active_bytes: left.active_bytes,
            update_seq: left.update_seq,
            caught_up: caught_up.map(|changes| ConcurrentWrites { changes, seconds }),
        })
    }

    /// Bytes that another compaction would leave of one file, in proportion to the last one;
    /// unknown if active bytes are unknown then or now.
    #[must_use]
    pub fn remaining_bytes(&self, facts: &Facts) -> Option<u64> {
        let then = self.active_bytes.filter(|bytes| *bytes > 0)?;
        let left =
            u128::from(self.file_bytes) * u128::from(facts.active_bytes.get()?) / u128::from(then);
        Some(u64::try_from(left).unwrap_or(u64::MAX))
    }

    /// Whether enough has changed since, according to current facts.
    ///
    /// What compactions of the database taught counts for more than what this one left in proportion
    /// to active bytes: it shows the waste that active bytes hide.
    #[must_use]
    pub fn has_expired(&self, kind: TargetKind, facts: &Facts, correction: Correction) -> bool {
        if self.are_writes_calmer(facts) {
            return true;
        }
        let file = facts.file_bytes.get();
        let predicted = Correction::NONE.predicted_bytes(kind, facts);
        if predicted_gain(predicted, correction.predicted_bytes(kind, facts)).is_some() {
            return true;
        }
        if let (Some(file), Some(left)) = (file, self.remaining_bytes(facts)) {
            let promised = predicted_gain(Some(file), predicted);
            let frees = file.saturating_sub(left);
            return promised
                .is_some_and(|promised| frees as f64 >= promised as f64 * MIN_GAIN_SHARE);
        }
        let grew = |now: u64, then: u64| {
            now as f64 >= then as f64 * (1.0 + RETRY_GROWTH_SHARE) && now > then
        };
        let seq = facts.update_seq.get();
        file.is_some_and(|file| grew(file, self.file_bytes))
            || seq.zip(self.update_seq).is_some_and(|(now, then)| grew(now, then))
    }

    /// Whether far fewer changes came since than while it ran, over at least the same time.
    fn are_writes_calmer(&self, facts: &Facts) -> bool {
        let Some(ConcurrentWrites { changes, seconds }) = self.caught_up else { return false };
        let measured = facts.measured_at.map(|measured| measured.at);
        let age = measured.map_or(0, |at| self.at.age(at).as_secs());
        let since = facts.update_seq.get().zip(self.update_seq);
        let Some(since) = since.and_then(|(now, then)| now.checked_sub(then)) else { return false };
        let slower = u128::from(since) * u128::from(seconds) * u128::from(CALMER_FACTOR)
            <= u128::from(changes) * u128::from(age);
        age >= seconds && slower
    }
}

/// Whether a compaction freed far less than predicted.
fn freed_too_little(outcome: &Outcome) -> bool {
    let promised = predicted_gain(outcome.before_bytes, outcome.predicted_bytes);
    let freed = outcome.freed_bytes();
    promised
        .zip(freed)
        .is_some_and(|(promised, freed)| (freed as f64) < promised as f64 * MIN_GAIN_SHARE)
}

/// The predicted reduction of a file in bytes, if it is worth mentioning.
fn predicted_gain(file: Option<u64>, predicted: Option<u64>) -> Option<u64> {
    let promised = file?.saturating_sub(predicted?);
    let small = promised < SMALL_PREDICTION_BYTES
        && (promised as f64) < file? as f64 * SMALL_PREDICTION_SHARE;
    (promised > 0 && !small).then_some(promised)
}
