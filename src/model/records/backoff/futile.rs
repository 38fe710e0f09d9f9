//! The evidence that the last compaction of a file gives about the next one.
//!
//! A file is worth compacting again for what it frees beyond what the last compaction left, not for
//! what its sizes suggest: a prediction that was wrong then is wrong in the same way now.

use super::super::{Outcome, outcome::frees_little};
use crate::model::{correction::Correction, facts::Facts, rounding::to_bytes, target::TargetKind};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use wall_clock::Moment;

/// What a compaction left is recorded if it exceeds the prediction by at least this share of the
/// file. Measured over 501 compactions of CouchDB 3.5.0: at most 0.4 % for files above one
/// megabyte.
const MIN_EXCESS_SHARE: f64 = 0.01;

/// Share of such a file that another compaction must be expected to free before it is tried: how
/// much is written while it runs is never known exactly.
const MIN_EXPECTED_SHARE: f64 = 0.125;

/// Share of a file from which what one compaction left shows nothing yet: a compaction that resumes an interrupted one,
/// or catches up with writes, leaves waste that the next one frees.
const DOUBTFUL_SHARE: f64 = 0.25;

/// Times that the duration of a compaction must have been calm before one that caught up with writes is repeated.
const CALM_DURATIONS: u64 = 8;

/// Writes explain what a compaction left only if they cause at least this share of it.
const EXPLAINED_SHARE: f64 = 0.125;

/// Where sizes are unknown, a target is tried again once its file or its sequence has grown by this
/// share.
const RETRY_GROWTH_SHARE: f64 = 0.25;

/// Concurrent writes no longer count once the rate of changes is this many times lower than during
/// the compaction.
const CALMER_FACTOR: f64 = 4.0;

/// Within less than the duration of the compaction, the rate is known only if it would have made at least this many
/// changes since.
const MIN_EXPECTED_CHANGES: f64 = 10.0;

/// Writes that a compaction had to catch up with are expected to come again with this probability, times the duration
/// of the compaction over the time that has been calm since. Over 200 simulated files with random writes, this lowers
/// the share of bytes rewritten in vain from 2.7 % to below 2 %. A larger factor would keep a file that is written to every
/// night from ever being compacted by day.
const RECURRENCE_FACTOR: f64 = 4.0;

/// The longest time of calm that is waited for; beyond any compaction's.
const MAX_CALM: Duration = Duration::from_secs(400 * 24 * 3_600);

/// What the last compaction left of a file, where that is more than its sizes suggest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Futile {
    /// When the compaction ended.
    pub at: Moment,
    /// Bytes on disk after it.
    pub file_bytes: u64,
    /// Active bytes among them, where known.
    pub active_bytes: Option<u64>,
    /// The last sequence at that time, where known.
    pub update_seq: Option<u64>,
    /// The writes it had to catch up with, if any. Without these, another compaction frees more.
    pub caught_up: Option<ConcurrentWrites>,
    /// Whether the compaction was meant to upgrade the file and failed to.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub not_upgraded: bool,
    /// Whether it left far more than live bytes, and the compaction before it did not: one more is tried.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_doubtful: bool,
}

/// The writes during a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConcurrentWrites {
    /// Number of changes.
    pub changes: u64,
    /// Duration of the compaction.
    pub seconds: u64,
    /// Waste that `changes` changes cause, where known; the waste due to concurrent writes cannot
    /// be larger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
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
    /// Waste that as many changes caused before the compaction, where known.
    pub changes_bytes: Option<u64>,
    /// Whether the target needed an upgrade before and still does: the upgrade had no effect.
    pub not_upgraded: bool,
}

/// For how long another compaction would free almost nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Until enough of the file is new waste.
    UntilWritten,
    /// Until then, if little is written: writes like those during the last compaction may come again.
    Until(Moment),
}

impl Futile {
    /// The record of a compaction that freed nothing, had no effect, or left more than the sizes
    /// after it suggest; `None` after any other. `before` is that of the compaction before it.
    pub(super) fn from_outcome(
        outcome: &Outcome,
        after: AfterCompaction,
        before: Option<Self>,
    ) -> Option<Self> {
        let file_bytes = after.file_bytes?;
        let excess = after.predicted_bytes.map_or(0, |bytes| file_bytes.saturating_sub(bytes));
        let exceeds = excess as f64 >= file_bytes as f64 * MIN_EXCESS_SHARE && excess > 0;
        let sizes = outcome.before_bytes.zip(outcome.after_bytes);
        let in_vain = sizes.is_some_and(|(before, after)| frees_little(before, after));
        if !(after.not_upgraded || in_vain || exceeds) {
            return None;
        }
        let seconds = outcome.started_at.age(outcome.ended_at).as_secs().max(1);
        let bytes = after.changes_bytes;
        let caught_up = after.changes.filter(|changes| *changes > 0);
        Some(Self {
            at: outcome.ended_at,
            file_bytes,
            active_bytes: after.active_bytes,
            update_seq: after.update_seq,
            caught_up: caught_up.map(|changes| ConcurrentWrites { changes, seconds, bytes }),
            not_upgraded: after.not_upgraded,
            is_doubtful: before.is_none() && excess as f64 >= file_bytes as f64 * DOUBTFUL_SHARE,
        })
    }

    /// Whether one more compaction is tried: what this one left is doubtful, and writes neither explain it nor would
    /// make the next one leave it too.
    fn invites_another(&self, facts: &Facts) -> bool {
        self.is_doubtful && self.caught_up.is_none_or(|writes| self.is_past(writes, facts))
    }

    /// Whether these writes explain too little, or have been over for long.
    fn is_past(&self, writes: ConcurrentWrites, facts: &Facts) -> bool {
        let excess = self.file_bytes.saturating_sub(self.active_bytes.unwrap_or_default());
        let is_minor =
            writes.bytes.is_some_and(|bytes| (bytes as f64) < excess as f64 * EXPLAINED_SHARE);
        let age = facts.measured_at.map_or(0, |measured| self.at.age(measured.at).as_secs());
        let is_unwritten =
            facts.update_seq.get().zip(self.update_seq).is_some_and(|(now, then)| now == then);
        is_minor || (is_unwritten && age >= writes.seconds.saturating_mul(CALM_DURATIONS))
    }

    /// Bytes that another compaction would leave of one file, at the present rate of writes and in
    /// proportion to what the last one left; unknown if active bytes are unknown then or now, or if
    /// the next one is to show it.
    ///
    /// Waste hidden in active bytes, as learned from compactions of the database, counts as freed,
    /// not as left.
    pub(super) fn remaining_bytes(
        &self,
        kind: TargetKind,
        facts: &Facts,
        correction: Correction,
    ) -> Option<u64> {
        self.left_bytes(kind, facts, correction, 0.0)
    }

    /// The same, if writes that have ceased come again with a probability of `recurrence`.
    fn left_bytes(
        &self,
        kind: TargetKind,
        facts: &Facts,
        correction: Correction,
        recurrence: f64,
    ) -> Option<u64> {
        if self.invites_another(facts) {
            return None;
        }
        let then = self.active_bytes.filter(|bytes| *bytes > 0)? as f64;
        let now = facts.active_bytes.get()? as f64;
        let fitted = Correction::NONE.predicted_bytes(kind, facts)?;
        let hidden = correction.predicted_bytes(kind, facts)? as f64 / fitted.max(1) as f64;
        let (more_waste, more_live) =
            self.more_by_writes(then, now, facts, recurrence).unwrap_or_default();
        let left = self.file_bytes as f64 + more_waste;
        Some(to_bytes(left * (now + more_live) / then * hidden))
    }

    /// Bytes of waste that another compaction would leave in addition because the rate of writes
    /// differs from that during the last one (negative if it is lower); and bytes by which live
    /// data would grow meanwhile.
    fn more_by_writes(
        &self,
        active_then: f64,
        active: f64,
        facts: &Facts,
        recurrence: f64,
    ) -> Option<(f64, f64)> {
        let ConcurrentWrites { changes, seconds, bytes } = self.caught_up?;
        let age = self.at.age(facts.measured_at?.at).as_secs();
        let since = facts.update_seq.get()?.checked_sub(self.update_seq?)? as f64;
        let (age_seconds, runs, changes) =
            (age.max(1) as f64, seconds as f64, changes.max(1) as f64);
        let expected = changes * age_seconds / runs;
        let is_known = age >= seconds || expected >= MIN_EXPECTED_CHANGES;
        let is_calm = is_known && since * CALMER_FACTOR <= expected;
        let span = if is_calm { age_seconds } else { age_seconds.max(runs) };
        let excess = self.file_bytes as f64 - active_then;
        let caused = bytes.map_or(excess, |bytes| (bytes as f64).min(excess)).max(0.0);
        // An estimate from few changes is imprecise, so never expect more than twice the rate.
        let pace = (since / span * runs / changes).min(2.0);
        let more = if pace > 1.0 {
            caused * (pace - 1.0)
        } else if is_calm {
            caused * (pace - 1.0) * (1.0 - recurrence)
        } else {
            0.0
        };
        Some((more, (active - active_then) / span * runs))
    }

    /// Whether, and for how long, another compaction would free almost nothing, according to current facts.
    pub(super) fn hold(
        &self,
        kind: TargetKind,
        facts: &Facts,
        correction: Correction,
    ) -> Option<Hold> {
        if (facts.flags.needs_upgrade && !self.not_upgraded) || self.invites_another(facts) {
            return None;
        }
        let file = facts.file_bytes.get();
        if let Some((file, left)) = file.zip(self.remaining_bytes(kind, facts, correction)) {
            let (frees, needed) =
                (file.saturating_sub(left) as f64, file as f64 * MIN_EXPECTED_SHARE);
            if frees < needed {
                return Some(Hold::UntilWritten);
            }
            let left_again = self.left_bytes(kind, facts, correction, 1.0)?;
            return self.recurrence_hold(left_again.saturating_sub(left) as f64, frees - needed);
        }
        let grew = |now: u64, then: u64| {
            now as f64 >= then as f64 * (1.0 + RETRY_GROWTH_SHARE) && now > then
        };
        let seq = facts.update_seq.get().zip(self.update_seq);
        let is_new = file.is_some_and(|file| grew(file, self.file_bytes))
            || seq.is_some_and(|(now, then)| grew(now, then));
        (!is_new).then_some(Hold::UntilWritten)
    }

    /// How long to wait because writes may come again that would cost `loss` bytes, where only `margin` bytes can be
    /// spared.
    fn recurrence_hold(&self, loss: f64, margin: f64) -> Option<Hold> {
        let seconds = self.caught_up?.seconds as f64;
        let bearable = margin / loss.max(1.0);
        if bearable >= 1.0 {
            return None;
        }
        let calm = seconds * (RECURRENCE_FACTOR / bearable.max(f64::MIN_POSITIVE)).max(1.0);
        Some(Hold::Until(self.at.plus(Duration::from_secs_f64(calm.min(MAX_CALM.as_secs_f64())))))
    }
}
