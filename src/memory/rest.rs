//! Who is left alone for a while, and why.

use super::{Ending, Ordered, Outcome, Owner};
use crate::{clock::Moment, settings::limits::Failure};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, time::Duration};

/// Freed less than this part of what was promised, a compaction was futile.
const FUTILE_BELOW: f64 = 0.2;

/// A futile target is tried again when its file or its sequence grew by this part.
const CHANGED: f64 = 0.25;

/// A promise of fewer bytes than this, and of a smaller part of the file than [`SMALL_PART`],
/// says nothing when it is not kept: headers and fragments weigh as much.
const SMALL: u64 = 1 << 20;

/// See [`SMALL`].
const SMALL_PART: f64 = 0.05;

/// What is remembered of one target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Remembered {
    /// Failures in a row.
    pub failures: u32,
    /// When the last of them was.
    pub failed_at: Option<Moment>,
    /// Until when it rests after the last of them.
    pub rests_until: Option<Moment>,
    /// Since when it waits for an operator, after too many of them.
    pub quarantined_since: Option<Moment>,
    /// What a compaction that freed far less than promised left.
    pub futile: Option<Futile>,
    /// Nodes whose copy of a view was compacted since the first of them was: a view is done
    /// when all were.
    pub copies_done: BTreeSet<String>,
    /// What an operator ordered, while it waits to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordered: Option<Ordered>,
}

/// A compaction was of no use; it stays so until enough changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Futile {
    /// When it ended.
    pub at: Moment,
    /// Bytes on disk it left.
    pub file_bytes: u64,
    /// The last sequence written then, where known.
    pub update_seq: Option<u64>,
}

/// Why a target is left alone, as the planner reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// It failed not long ago.
    CoolDown {
        /// Since when: the failure.
        since: Moment,
        /// Until when.
        until: Moment,
    },
    /// It failed repeatedly and waits to be released.
    Quarantined {
        /// Since when.
        since: Moment,
        /// After how many failures.
        failures: u32,
    },
    /// Its last compaction was of no use and too little changed since.
    Futile {
        /// When that one ended.
        since: Moment,
        /// Bytes on disk it left.
        file_bytes: u64,
    },
}

/// What a compaction left behind, as it was measured afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Bytes of the file.
    pub file_bytes: Option<u64>,
    /// The last sequence written.
    pub update_seq: Option<u64>,
    /// Whether it asked for an upgrade before and still does: the upgrade did not take.
    pub not_upgraded: bool,
}

impl Remembered {
    /// Whether nothing need be remembered.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        *self == Self::default()
    }

    /// Takes in how a job of the target ended.
    ///
    /// A failure of this program's own makes the target rest, twice as long each time. A
    /// success, whoever's, forgets all failures and does what was ordered; one of no use makes
    /// it futile. What got lost says nothing. Failures of others are theirs to judge.
    pub fn ended(&mut self, outcome: &Outcome, left: Left, failure: &Failure) {
        match outcome.ending {
            Ending::Lost => {}
            Ending::Failed if outcome.owner == Owner::Other => {}
            Ending::Failed => self.failed(outcome.ended_at, failure),
            Ending::Freed | Ending::NothingFreed | Ending::Grew => {
                let copies_done = std::mem::take(&mut self.copies_done);
                *self = Self { copies_done, ..Self::default() };
                if let Some(file_bytes) = left.file_bytes
                    && (left.not_upgraded || is_futile(outcome))
                {
                    let update_seq = left.update_seq;
                    self.futile = Some(Futile { at: outcome.ended_at, file_bytes, update_seq });
                }
            }
        }
    }

    fn failed(&mut self, at: Moment, failure: &Failure) {
        self.failures = self.failures.saturating_add(1);
        let doublings = self.failures.saturating_sub(1).min(31);
        let rest = failure.cool_down.saturating_mul(1 << doublings).min(failure.cool_down_max);
        self.failed_at = Some(at);
        self.rests_until = Some(at.plus(rest.max(Duration::from_secs(1))));
        if self.failures >= failure.quarantine_after.max(1) {
            self.quarantined_since.get_or_insert(at);
        }
    }

    /// An operator lets it go: only which copies are done is still known, and what was ordered.
    pub fn release(&mut self) {
        let Self { copies_done, ordered, .. } = std::mem::take(self);
        *self = Self { copies_done, ordered, ..Self::default() };
    }

    /// Notes that the copy of a view on a node was compacted; a round ends with the last of
    /// its `copies`.
    pub fn copy_done(&mut self, node: &str, copies: u32) {
        self.copies_done.insert(node.to_owned());
        if self.copies_done.len() >= copies as usize {
            self.copies_done.clear();
        }
    }

    /// Why it is left alone at `now`, given its file and its last sequence.
    #[must_use]
    pub fn rest(&self, file: Option<u64>, seq: Option<u64>, now: Moment) -> Option<Rest> {
        if let Some(since) = self.quarantined_since {
            return Some(Rest::Quarantined { since, failures: self.failures });
        }
        // A clock that was set back by more than the rest is long prolongs none.
        let rests = |until: &Moment| {
            let failed_at = self.failed_at.unwrap_or(now);
            *until > now && now.age(failed_at) <= failed_at.age(*until)
        };
        if let Some(until) = self.rests_until.filter(rests) {
            return Some(Rest::CoolDown { since: self.failed_at.unwrap_or(now), until });
        }
        let futile = self.futile.filter(|futile| !futile.is_over(file, seq))?;
        Some(Rest::Futile { since: futile.at, file_bytes: futile.file_bytes })
    }
}

impl Futile {
    /// Whether enough changed since.
    #[must_use]
    pub fn is_over(&self, file: Option<u64>, seq: Option<u64>) -> bool {
        let grew = |now: u64, then: u64| now as f64 >= then as f64 * (1.0 + CHANGED) && now > then;
        file.is_some_and(|file| grew(file, self.file_bytes))
            || seq.zip(self.update_seq).is_some_and(|(now, then)| grew(now, then))
    }
}

/// Whether a compaction freed far less than it promised.
fn is_futile(outcome: &Outcome) -> bool {
    let (Some(before), Some(predicted)) = (outcome.before_bytes, outcome.predicted_bytes) else {
        return false;
    };
    let Some(freed) = outcome.freed_bytes() else { return false };
    let promised = before.saturating_sub(predicted);
    if promised == 0 || (promised < SMALL && (promised as f64) < before as f64 * SMALL_PART) {
        return false;
    }
    (freed as f64) < promised as f64 * FUTILE_BELOW
}

#[cfg(test)]
mod tests;
