//! Back-off: which targets are not started for a while, and why.

mod futile;

use futile::Hold;
pub use futile::{AfterCompaction, Futile};

use super::{CompactionOrder, JobOwner, JobResult, Outcome};
use crate::model::{
    correction::Correction, facts::Facts, settings::limits::FailureSettings, target::TargetKind,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, time::Duration};
use wall_clock::Moment;

/// The stored record of one target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetRecord {
    /// Consecutive failures.
    pub failures: u32,
    /// When the cool-down began.
    pub failed_at: Option<Moment>,
    /// When the cool-down ends.
    pub rests_until: Option<Moment>,
    /// When it was quarantined after too many failures.
    pub quarantined_since: Option<Moment>,
    /// What its last compaction left, if that is more than the sizes suggest.
    pub futile: Option<Futile>,
    /// Nodes whose copy of a view was compacted in the current round; the round ends once every
    /// copy was compacted.
    pub copies_done: BTreeSet<String>,
    /// An operator's order that waits to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordered: Option<CompactionOrder>,
    /// The newest open run that began before it was last compacted: no open run up to this one compacts it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done_in_run: Option<u64>,
}

/// Why a target is not started for now, as the planner reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backoff {
    /// It failed recently, was lost, or was cleaned up.
    CoolDown {
        /// When its last job ended.
        since: Moment,
        /// The end of the cool-down.
        until: Moment,
    },
    /// It failed repeatedly and waits for its release.
    Quarantined {
        /// The start of the quarantine.
        since: Moment,
        /// The number of failures before it.
        failures: u32,
    },
    /// According to its last compaction, another one would free almost nothing.
    Futile {
        /// When that compaction ended.
        since: Moment,
        /// Bytes of one file that it left.
        file_bytes: u64,
        /// Whether data written during the compaction is the cause.
        caught_up: bool,
    },
    /// Its last compaction caught up with writes that have ceased; if they come back, another compaction would
    /// free almost nothing.
    Unsettled {
        /// When that compaction ended.
        since: Moment,
        /// When it is tried again, if little is written until then.
        until: Moment,
    },
}

/// Share of waste in a file that makes an operator's order worthwhile, regardless of the last compaction.
const ORDERED_SHARE: f64 = 0.25;

impl Backoff {
    /// Whether an operator's order of the target suffices to override it: the last compaction left much waste in the
    /// file.
    pub fn yields_to_order(&self, facts: &Facts) -> bool {
        let sizes = facts.file_bytes.get().zip(facts.active_bytes.get());
        let is_wasteful = sizes.is_some_and(|(file, active)| {
            file.saturating_sub(active) as f64 >= file as f64 * ORDERED_SHARE
        });
        matches!(self, Self::Futile { .. } | Self::Unsettled { .. }) && is_wasteful
    }
}

impl TargetRecord {
    /// Whether the record holds nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Records how a job of the target ended.
    ///
    /// A failure of recliner's own job starts a cool-down that doubles each time. A success, no
    /// matter who started the job, clears all failures and completes an order; what the job left is
    /// recorded if another compaction would leave it too. recliner's own lost jobs are not
    /// failures, but they start the same cool-down: otherwise a server that accepts requests and
    /// never shows a job would be asked endlessly. So do recliner's cleanups, because no reading
    /// shows what a cleanup did. Failures of jobs that others started are ignored.
    pub fn record_outcome(
        &mut self,
        outcome: &Outcome,
        after: AfterCompaction,
        failure: &FailureSettings,
    ) {
        let is_own = outcome.owner == JobOwner::Recliner;
        match outcome.ending {
            JobResult::Lost | JobResult::Failed if !is_own => {}
            JobResult::Lost => self.rest_longer(outcome.ended_at, failure),
            JobResult::Failed => self.record_failure(outcome.ended_at, failure),
            JobResult::Freed
            | JobResult::NothingFreed
            | JobResult::Grew
            | JobResult::Unmeasured => {
                let Self { copies_done, futile, failed_at, rests_until, done_in_run, .. } =
                    std::mem::take(self);
                // The size that a compaction left is unknown for most copies of a view.
                let futile = match after.file_bytes {
                    Some(_) => Futile::from_outcome(outcome, after, futile),
                    None => futile,
                };
                *self = Self { copies_done, futile, done_in_run, ..Self::default() };
                if is_own && outcome.kind == TargetKind::Cleanup {
                    (self.failed_at, self.rests_until) = (failed_at, rests_until);
                    self.rest_longer(outcome.ended_at, failure);
                }
            }
        }
    }

    /// Starts a cool-down, twice as long as the previous one unless that one ended at least its own
    /// length ago.
    fn rest_longer(&mut self, at: Moment, failure: &FailureSettings) {
        let before = self.failed_at.zip(self.rests_until);
        let before = before.map(|(from, until)| (from.age(until), until));
        let recent = before.filter(|(rest, until)| at <= until.plus(*rest));
        let rest = recent.map_or(failure.cool_down, |(rest, _)| rest.saturating_mul(2));
        self.rest(at, rest.max(failure.cool_down).min(failure.cool_down_max));
    }

    fn rest(&mut self, at: Moment, rest: Duration) {
        self.failed_at = Some(at);
        self.rests_until = Some(at.plus(rest.max(Duration::from_secs(1))));
    }

    fn record_failure(&mut self, at: Moment, failure: &FailureSettings) {
        self.failures = self.failures.saturating_add(1);
        let doublings = self.failures.saturating_sub(1).min(31);
        let rest = failure.cool_down.saturating_mul(1 << doublings).min(failure.cool_down_max);
        self.rest(at, rest);
        if self.failures >= failure.quarantine_after.max(1) {
            self.quarantined_since.get_or_insert(at);
        }
    }

    /// An operator releases the target: only its compacted copies, its order and its runs are kept.
    pub fn release(&mut self) {
        let Self { copies_done, ordered, done_in_run, .. } = std::mem::take(self);
        *self = Self { copies_done, ordered, done_in_run, ..Self::default() };
    }

    /// Records that a view's copy on a node was compacted; a round ends with the last of its
    /// `copies`.
    pub fn record_copy_done(&mut self, node: &str, copies: u32) {
        self.copies_done.insert(node.to_owned());
        if self.copies_done.len() >= copies as usize {
            self.copies_done.clear();
        }
    }

    /// Why it is not started at `now`, given its current facts and the correction of its
    /// predictions.
    pub fn backoff(
        &self,
        kind: TargetKind,
        facts: &Facts,
        correction: Correction,
        now: Moment,
    ) -> Option<Backoff> {
        if let Some(since) = self.quarantined_since {
            return Some(Backoff::Quarantined { since, failures: self.failures });
        }
        // A clock that was set back by more than the cool-down does not prolong it.
        let rests = |until: &Moment| {
            let failed_at = self.failed_at.unwrap_or(now);
            *until > now && now.age(failed_at) <= failed_at.age(*until)
        };
        if let Some(until) = self.rests_until.filter(rests) {
            return Some(Backoff::CoolDown { since: self.failed_at.unwrap_or(now), until });
        }
        // The result for one copy of a view does not apply to copies that the current round has not
        // compacted yet.
        let futile = self.futile.filter(|_| self.copies_done.is_empty())?;
        let Futile { at: since, file_bytes, caught_up, .. } = futile;
        // A calm period is known only up to the last reading.
        let known_at = facts.measured_at.map_or_else(Moment::default, |measured| measured.at);
        let backoff = match futile.hold(kind, facts, correction)? {
            Hold::UntilWritten => {
                Backoff::Futile { since, file_bytes, caught_up: caught_up.is_some() }
            }
            Hold::Until(until) if until <= known_at => return None,
            Hold::Until(until) => Backoff::Unsettled { since, until },
        };
        let is_ordered =
            self.ordered.as_ref().is_some_and(|order| order.run.is_none() && order.until > now);
        Some(backoff).filter(|backoff| !(is_ordered && backoff.yields_to_order(facts)))
    }

    /// Bytes that another compaction would leave of one file, if the last one showed more about that than the sizes do.
    pub fn remaining_bytes(
        &self,
        kind: TargetKind,
        facts: &Facts,
        correction: Correction,
    ) -> Option<u64> {
        self.futile?.remaining_bytes(kind, facts, correction)
    }
}

#[cfg(test)]
mod tests;
