//! Compares a plan with earlier plans. Pure; one pass over the queued targets: a million targets
//! take a few milliseconds and sixteen bytes each.
//!
//! A reader of the journal wants to see new facts, not each recurrence. Each reason of a target is
//! therefore recorded once per [`WINDOW`]; recurrences are summarised in one entry with a count
//! at the end of the window. Events that affect many targets of a queue at once have one cause, and
//! are recorded as one entry that lists the targets.

mod groups;

pub use groups::{Difference, Entry};

use crate::{
    plan::RefusalReason,
    table::{Ix, NodeIx},
};
use groups::Groups;
use std::{collections::BTreeMap, time::Duration};
use wall_clock::Moment;

/// The same event of a target is recorded once within this time.
const WINDOW: Duration = Duration::from_secs(60 * 60);

/// How long a target must wait for its turn before that is recorded.
const TURN_HOLDS: Duration = Duration::from_secs(60);

/// Maximum number of targets whose recurrences are counted within a window.
const MAX_REPEATED: usize = 10_000;

/// A queued target in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The target.
    pub ix: Ix,
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
pub struct Repeated {
    /// Number of recurrences.
    pub count: u64,
    /// Time of the first recurrence.
    pub first: Moment,
    /// Time of the last recurrence.
    pub last: Moment,
}

impl Repeated {
    /// Combines two counts.
    fn and(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }
}

/// State of all targets from the previous comparisons.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    look: u32,
    /// Time of the last comparison, and start of the window.
    at: Moment,
    window: Moment,
    states: Vec<State>,
    /// Recurrences within the window, with the latest state of the target.
    repeated: BTreeMap<(About, Ix), (Waiting, Repeated)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Last comparison that found the target queued; zero for none.
    look: u32,
    /// Generation of the target at this table position.
    generation: u32,
    /// Recorded events in this window: a bit for each reason and channel.
    written: u32,
    channel: u8,
    /// Code of the reason in the last comparison, and for how many seconds it lasted.
    seen: u8,
    held: u8,
    /// Code of the last reason that persisted; zero for none.
    settled: u8,
}

/// Bits for channels; reasons use the lower bits. Channels from the eighth on share a bit.
const CHANNEL_BITS: u32 = u32::BITS - REASON_BITS;

/// One bit for each reason.
#[expect(clippy::cast_possible_truncation, reason = "there are about twenty reasons")]
const REASON_BITS: u32 = RefusalReason::ALL.len() as u32;

/// Reasons that all mean that a target waits for its turn. Which limit applies first changes with
/// every job that starts or ends.
const fn is_turn(reason: RefusalReason) -> bool {
    matches!(
        reason,
        RefusalReason::ChannelLimit
            | RefusalReason::NodeLimit
            | RefusalReason::ClusterLimit
            | RefusalReason::Budget
            | RefusalReason::Ramp
            | RefusalReason::OtherCopyRunning
    )
}

/// A reason as a number. All reasons of waiting for a turn share one; zero means no reason.
fn code(reason: Option<RefusalReason>) -> u8 {
    let reason = reason.map(|it| if is_turn(it) { RefusalReason::NodeLimit } else { it });
    reason.and_then(|reason| u8::try_from(reason as usize + 1).ok()).unwrap_or(0)
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

impl State {
    /// Whether a refusal must be recorded. `Running` need not be, because the start was recorded.
    fn settles(&self, reason: RefusalReason) -> bool {
        let holds = if is_turn(reason) { TURN_HOLDS } else { Duration::ZERO };
        reason != RefusalReason::Running
            && self.settled != self.seen
            && Duration::from_secs(u64::from(self.held)) >= holds
    }
}

impl Memory {
    /// Compares the queued targets of a plan with the previous state and returns the changes, in at
    /// most `limit` entries.
    ///
    /// `there` tells whether a target still exists; recurrences of removed targets are dropped. A
    /// reason counts after two successive comparisons found it, because many last only for a
    /// moment. Waiting for a turn counts after a minute.
    pub fn look(
        &mut self,
        now: Moment,
        waiting: impl Iterator<Item = Waiting>,
        there: impl Fn(Ix) -> bool,
        limit: usize,
    ) -> Difference {
        let (before, look) = (self.look, self.look.wrapping_add(1).max(1));
        let elapsed = u8::try_from(self.at.age(now).as_secs()).unwrap_or(u8::MAX);
        if before == 0 {
            self.window = now;
        }
        (self.look, self.at) = (look, now);
        let mut groups = Groups::default();
        for it in waiting {
            let (at, channel) = (it.ix.as_usize(), u8::try_from(it.channel).unwrap_or(u8::MAX));
            if self.states.len() <= at {
                self.states.resize(at + 1, State::default());
            }
            let Some(state) = self.states.get_mut(at) else { continue };
            let seen = code(it.refused);
            let waited = state.look == before && before != 0;
            let about = if !waited || state.channel != channel {
                let generation = it.ix.generation();
                if state.generation != generation {
                    *state = State { generation, ..State::default() };
                }
                if !waited {
                    state.settled = 0;
                }
                (state.channel, state.seen, state.held) = (channel, seen, 0);
                Some((About::Queued, channel_bit(channel)))
            } else if state.seen != seen {
                (state.seen, state.held) = (seen, 0);
                None
            } else {
                state.held = state.held.saturating_add(elapsed);
                it.refused.filter(|reason| state.settles(*reason)).map(|_| {
                    state.settled = seen;
                    (About::Refused, reason_bit(seen))
                })
            };
            state.look = look;
            let Some((about, bit)) = about else { continue };
            if state.written & bit == 0 {
                state.written |= bit;
                groups.add(about, it, None);
            } else {
                self.repeat(about, it, now);
            }
        }
        if self.window.age(now) >= WINDOW {
            self.window = now;
            self.end_window(&mut groups, there);
        }
        groups.into_difference(limit)
    }

    /// Counts a recurrence within this window.
    fn repeat(&mut self, about: About, it: Waiting, now: Moment) {
        let again = Repeated { count: 1, first: now, last: now };
        let full = self.repeated.len() >= MAX_REPEATED;
        if let Some((latest, repeated)) = self.repeated.get_mut(&(about, it.ix)) {
            (*latest, *repeated) = (it, repeated.and(again));
        } else if !full {
            self.repeated.insert((about, it.ix), (it, again));
        }
    }

    /// Adds entries for recurrences. Events that recurred are not recorded individually in the next
    /// window either, because they are likely to recur.
    fn end_window(&mut self, groups: &mut Groups, there: impl Fn(Ix) -> bool) {
        let mut repeated = std::mem::take(&mut self.repeated);
        repeated.retain(|(_, ix), _| there(*ix));
        let written = |ix: Ix| self.states.get(ix.as_usize()).map(|state| (ix, state.written));
        let kept: Vec<(Ix, u32)> = repeated.keys().filter_map(|(_, ix)| written(*ix)).collect();
        for state in &mut self.states {
            let stands = reason_bit(state.settled) | channel_bit(state.channel);
            state.written = if state.look == self.look { stands } else { 0 };
        }
        for (ix, written) in kept {
            if let Some(state) = self.states.get_mut(ix.as_usize()) {
                state.written = written;
            }
        }
        for ((about, _), (it, again)) in repeated {
            groups.add(about, it, Some(again));
        }
    }
}

#[cfg(test)]
mod tests;
