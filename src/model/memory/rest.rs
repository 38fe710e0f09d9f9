//! Who is left alone for a while, and why.

mod futile;

pub use futile::{CaughtUp, Futile, Left};

use super::{Ending, Ordered, Outcome, Owner};
use crate::model::{facts::Facts, settings::limits::Failure, target::Kind};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, time::Duration};
use wall_clock::Moment;

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
    /// What the last compaction left, where another one would leave as much.
    pub futile: Option<Futile>,
    /// Nodes whose copy of a view was compacted since the first of them was: a view is done
    /// when all were.
    pub copies_done: BTreeSet<String>,
    /// What an operator ordered, while it waits to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordered: Option<Ordered>,
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
    /// By what its last compaction left, another one would free nothing to speak of.
    Futile {
        /// When that one ended.
        since: Moment,
        /// Bytes it left of one file.
        file_bytes: u64,
        /// Bytes that another one would leave of one file now, where that is known.
        would_leave: Option<u64>,
        /// Whether it is because of what was written while that one ran.
        caught_up: bool,
    },
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
    /// success, whoever's, forgets all failures and does what was ordered; where another one
    /// would be of no use, it is futile. What got lost says nothing. Failures of others are
    /// theirs to judge.
    pub fn ended(&mut self, outcome: &Outcome, left: Left, failure: &Failure) {
        match outcome.ending {
            Ending::Lost => {}
            Ending::Failed if outcome.owner == Owner::Other => {}
            Ending::Failed => self.failed(outcome.ended_at, failure),
            Ending::Freed | Ending::NothingFreed | Ending::Grew | Ending::Unmeasured => {
                let copies_done = std::mem::take(&mut self.copies_done);
                *self = Self { copies_done, ..Self::default() };
                self.futile = Futile::of(outcome, left);
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

    /// Why it is left alone at `now`, given what is measured of it.
    #[must_use]
    pub fn rest(&self, kind: Kind, facts: &Facts, now: Moment) -> Option<Rest> {
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
        let futile = self.futile.filter(|futile| !futile.is_over(kind, facts))?;
        let would_leave = futile.would_leave(facts);
        let Futile { at, file_bytes, caught_up, .. } = futile;
        let caught_up = caught_up.is_some();
        Some(Rest::Futile { since: at, file_bytes, would_leave, caught_up })
    }
}

#[cfg(test)]
mod tests;
