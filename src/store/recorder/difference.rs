//! What is new in a plan against the plans before. Pure, and one pass over what waits: a
//! million targets take a few milliseconds and sixteen bytes each.
//!
//! A reader of the journal wants to know what came to be, not each time it came again. So a
//! target's reasons are written once in a [`WINDOW`]; what came and went within it is one
//! entry at its end, with a count. And what comes to many targets of a queue at once has one
//! cause, and is one entry that names them.

mod groups;

pub use groups::{Difference, Entry};

use crate::{
    plan::RefusalReason,
    table::{Ix, NodeIx},
};
use groups::Groups;
use std::{collections::BTreeMap, time::Duration};
use wall_clock::Moment;

/// Within this time nothing is written of a target twice.
const WINDOW: Duration = Duration::from_secs(60 * 60);

/// For how long a target has to wait for its turn before that is written.
const TURN_HOLDS: Duration = Duration::from_secs(60);

/// Of how many targets is counted, at most, what came again within a window.
const MAX_REPEATED: usize = 10_000;

/// A target that waits, as a plan has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The target.
    pub ix: Ix,
    /// The node of its queue, or the pseudo node.
    pub node: NodeIx,
    /// The channel's place in the order.
    pub channel: usize,
    /// Why it does not start; none where it does.
    pub refused: Option<RefusalReason>,
}

/// What is written of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// It entered a queue.
    Queued,
    /// It is refused for another reason than before.
    Refused,
}

/// How often something came again that was written before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// How many times.
    pub count: u64,
    /// When it first came again.
    pub first: Moment,
    /// When it last did.
    pub last: Moment,
}

impl Repeated {
    /// Both together.
    fn and(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }
}

/// What the looks so far saw, target by target.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    look: u32,
    /// When the last look was, and when the window began.
    at: Moment,
    window: Moment,
    states: Vec<State>,
    /// What came again within the window, and as what the target waited then.
    repeated: BTreeMap<(About, Ix), (Waiting, Repeated)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The last look that saw it wait; zero for none.
    look: u32,
    /// Which of the targets that had its place it is.
    generation: u32,
    /// What was written of it in this window: a bit for each reason and each channel.
    written: u32,
    channel: u8,
    /// Why it does not start as the last look saw it, and for how many seconds.
    seen: u8,
    held: u8,
    /// The last reason that held long enough; zero for none.
    settled: u8,
}

/// Reasons come first, and what is left is for channels. From the eighth on these share a bit.
const CHANNEL_BITS: u32 = u32::BITS - REASON_BITS;

/// One bit for each reason.
#[expect(clippy::cast_possible_truncation, reason = "there are some twenty reasons")]
const REASON_BITS: u32 = RefusalReason::ALL.len() as u32;

/// Reasons that say one thing of a target: that it waits for its turn. Which limit is reached
/// first changes with every job that starts or ends.
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

/// A reason as a number, all that wait for their turn having one; zero for none.
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
    /// Whether a reason has to be written: that a target runs, its start says.
    fn settles(&self, reason: RefusalReason) -> bool {
        let holds = if is_turn(reason) { TURN_HOLDS } else { Duration::ZERO };
        reason != RefusalReason::Running
            && self.settled != self.seen
            && Duration::from_secs(u64::from(self.held)) >= holds
    }
}

impl Memory {
    /// Looks at what waits in a plan; answers what is new, in at most `limit` entries.
    ///
    /// `there` says whether a target still is: of one that went it is not told what came again. A
    /// reason counts once two looks in a row have seen it: many last for a moment. That a target
    /// waits for its turn counts after a minute.
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

    /// Counts what was written before in this window.
    fn repeat(&mut self, about: About, it: Waiting, now: Moment) {
        let again = Repeated { count: 1, first: now, last: now };
        let full = self.repeated.len() >= MAX_REPEATED;
        if let Some((latest, repeated)) = self.repeated.get_mut(&(about, it.ix)) {
            (*latest, *repeated) = (it, repeated.and(again));
        } else if !full {
            self.repeated.insert((about, it.ix), (it, again));
        }
    }

    /// Says what came again. What did is not written one by one in the next window either: it
    /// is likely to go on.
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
