//! Compares a plan with earlier plans. Pure; one pass over the queued targets: a million targets
//! take a few milliseconds and sixteen bytes each.
//!
//! A reader of the journal wants to see new facts, not each recurrence. Each reason of a target is
//! therefore recorded once per [`WINDOW`]; recurrences are summarised in one entry with a count
//! at the end of the window. Events that affect many targets of a queue at once have one cause, and
//! are recorded as one entry that lists the targets.

mod groups;

pub use groups::{ChangeEntry, PlanChanges};

use crate::{
    plan::RefusalReason,
    table::{NodeIx, TargetIx},
    text::Label,
};
use groups::ChangeGroups;
use std::{collections::BTreeMap, time::Duration};
use wall_clock::Moment;

/// The same event of a target is recorded once within this time.
const WINDOW: Duration = Duration::from_secs(60 * 60);

/// How long a target must wait for its turn before that is recorded.
const MIN_TURN_WAIT: Duration = Duration::from_secs(60);

/// Maximum number of targets whose recurrences are counted within a window.
const MAX_REPEATED_TARGETS: usize = 10_000;

/// A queued target in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The target.
    pub ix: TargetIx,
    /// Node of its queue, or the pseudo node of the cluster.
    pub node: NodeIx,
    /// Index of the channel.
    pub channel: usize,
    /// Why it is refused; `None` if it would start.
    pub refused: Option<RefusalReason>,
}

/// What an entry says about a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// It entered a queue.
    Queued,
    /// It is refused for a new reason.
    Refused,
}

/// How often a recorded event recurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recurrence {
    /// Number of recurrences.
    pub count: u64,
    /// Time of the first recurrence.
    pub first: Moment,
    /// Time of the last recurrence.
    pub last: Moment,
}

impl Recurrence {
    /// Combines two counts.
    fn merge(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }
}

/// State of all targets from the previous comparisons.
#[derive(Clone, Debug, Default)]
pub struct PlanHistory {
    round: u32,
    /// Time of the last comparison, and start of the window.
    at: Moment,
    window_start: Moment,
    states: Vec<QueuedTargetState>,
    /// Recurrences within the window, with the latest state of the target.
    repeated: BTreeMap<(About, TargetIx), (Waiting, Recurrence)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct QueuedTargetState {
    /// Last comparison that found the target queued; zero for none.
    round: u32,
    /// Generation of the target at this table position.
    generation: u32,
    /// Recorded events in this window: a bit for each reason and channel.
    recorded: u32,
    channel: u8,
    /// Code of the reason in the last comparison, and for how many seconds it lasted.
    current_reason: u8,
    held_seconds: u8,
    /// Code of the last reason that persisted; zero for none.
    persisted_reason: u8,
}

/// Bits for channels; reasons use the lower bits. Channels from the eighth on share a bit.
const CHANNEL_BITS: u32 = u32::BITS - REASON_BITS;

/// Bits for reasons: more than there are reasons, so that a new one does not move the bits of
/// channels.
const REASON_BITS: u32 = TURN_CODE as u32;

/// The code that all reasons of waiting for a turn share.
const TURN_CODE: u8 = 24;

/// The code of each reason, which also determines its bit.
const REASON_CODES: [u8; RefusalReason::ALL.len()] = {
    let (mut codes, mut at, mut next) = ([TURN_CODE; RefusalReason::ALL.len()], 0, 1);
    while at < codes.len() {
        if !RefusalReason::ALL[at].is_of_turn() {
            codes[at] = next;
            next += 1;
        }
        at += 1;
    }
    assert!(next <= TURN_CODE);
    codes
};

/// The code of a reason; zero means no reason.
fn reason_code(reason: Option<RefusalReason>) -> u8 {
    reason.and_then(|reason| REASON_CODES.get(reason as usize).copied()).unwrap_or_default()
}

const fn reason_bit(code: u8) -> u32 {
    match code.checked_sub(1) {
        Some(at) => 1 << at,
        None => 0,
    }
}

fn channel_bit(channel: u8) -> u32 {
    1 << (REASON_BITS + u32::from(channel).min(CHANNEL_BITS - 1))
}

impl QueuedTargetState {
    /// Whether a refusal must be recorded. `Running` need not be, because the start was recorded.
    fn is_worth_recording(&self, reason: RefusalReason) -> bool {
        let holds = if reason.is_of_turn() { MIN_TURN_WAIT } else { Duration::ZERO };
        reason != RefusalReason::Running
            && self.persisted_reason != self.current_reason
            && Duration::from_secs(u64::from(self.held_seconds)) >= holds
    }
}

impl PlanHistory {
    /// Compares the queued targets of a plan with the previous state and returns the changes, in at
    /// most `limit` entries.
    ///
    /// `there` tells whether a target still exists; recurrences of removed targets are dropped. A
    /// reason counts after two successive comparisons found it, because many last only for a
    /// moment. Waiting for a turn counts after a minute.
    pub fn compare(
        &mut self,
        now: Moment,
        waiting: impl Iterator<Item = Waiting>,
        there: impl Fn(TargetIx) -> bool,
        limit: usize,
    ) -> PlanChanges {
        let (before, round) = (self.round, self.round.wrapping_add(1).max(1));
        let elapsed = u8::try_from(self.at.age(now).as_secs()).unwrap_or(u8::MAX);
        if before == 0 {
            self.window_start = now;
        }
        (self.round, self.at) = (round, now);
        let mut groups = ChangeGroups::default();
        for it in waiting {
            let (at, channel) = (it.ix.as_usize(), u8::try_from(it.channel).unwrap_or(u8::MAX));
            if self.states.len() <= at {
                self.states.resize(at + 1, QueuedTargetState::default());
            }
            let Some(state) = self.states.get_mut(at) else { continue };
            let reason = reason_code(it.refused);
            let waited = state.round == before && before != 0;
            let about = if !waited || state.channel != channel {
                let generation = it.ix.generation();
                if state.generation != generation {
                    *state = QueuedTargetState { generation, ..QueuedTargetState::default() };
                }
                if !waited {
                    state.persisted_reason = 0;
                }
                (state.channel, state.current_reason, state.held_seconds) = (channel, reason, 0);
                Some((About::Queued, channel_bit(channel)))
            } else if state.current_reason != reason {
                (state.current_reason, state.held_seconds) = (reason, 0);
                None
            } else {
                state.held_seconds = state.held_seconds.saturating_add(elapsed);
                it.refused.filter(|reason| state.is_worth_recording(*reason)).map(|_| {
                    state.persisted_reason = reason;
                    (About::Refused, reason_bit(reason))
                })
            };
            state.round = round;
            let Some((about, bit)) = about else { continue };
            if state.recorded & bit == 0 {
                state.recorded |= bit;
                groups.add(about, it, None);
            } else {
                self.count_recurrence(about, it, now);
            }
        }
        if self.window_start.age(now) >= WINDOW {
            self.window_start = now;
            self.end_window(&mut groups, there);
        }
        groups.into_plan_changes(limit)
    }

    /// Counts a recurrence within this window.
    fn count_recurrence(&mut self, about: About, it: Waiting, now: Moment) {
        let again = Recurrence { count: 1, first: now, last: now };
        let full = self.repeated.len() >= MAX_REPEATED_TARGETS;
        if let Some((latest, repeated)) = self.repeated.get_mut(&(about, it.ix)) {
            (*latest, *repeated) = (it, repeated.merge(again));
        } else if !full {
            self.repeated.insert((about, it.ix), (it, again));
        }
    }

    /// Adds entries for recurrences. Events that recurred are not recorded individually in the next
    /// window either, because they are likely to recur.
    fn end_window(&mut self, groups: &mut ChangeGroups, there: impl Fn(TargetIx) -> bool) {
        let mut repeated = std::mem::take(&mut self.repeated);
        repeated.retain(|(_, ix), _| there(*ix));
        let written =
            |ix: TargetIx| self.states.get(ix.as_usize()).map(|state| (ix, state.recorded));
        let kept: Vec<(TargetIx, u32)> =
            repeated.keys().filter_map(|(_, ix)| written(*ix)).collect();
        for state in &mut self.states {
            let stands = reason_bit(state.persisted_reason) | channel_bit(state.channel);
            state.recorded = if state.round == self.round { stands } else { 0 };
        }
        for (ix, written) in kept {
            if let Some(state) = self.states.get_mut(ix.as_usize()) {
                state.recorded = written;
            }
        }
        for ((about, _), (it, again)) in repeated {
            groups.add(about, it, Some(again));
        }
    }
}

#[cfg(test)]
mod tests;
