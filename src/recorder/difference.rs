//! What is new in a plan against the plans before. Pure, and one pass over what waits: a
//! million targets take a few milliseconds and eight bytes each.

use crate::{plan::RefusalReason, snapshot::Ix};

/// A target that waits, as a plan has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The target.
    pub ix: Ix,
    /// The channel's place in the order.
    pub channel: usize,
    /// Why it does not start; none where it does.
    pub refused: Option<RefusalReason>,
}

/// What is new, as far as it is to be told one by one, and how much more there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Targets that entered a queue.
    pub queued: Vec<Waiting>,
    /// Targets that are refused for another reason than was told last.
    pub refused: Vec<Waiting>,
    /// How many more entered a queue.
    pub more_queued: u64,
    /// How many more are refused for another reason.
    pub more_refused: u64,
}

/// What the looks so far saw, target by target.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    look: u32,
    states: Vec<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The last look that saw it wait.
    look: u32,
    channel: u8,
    /// Of the target's generation the low byte: its place may have been another's.
    generation: u8,
    /// Why it did not start then, and what was told of that last; zero for nothing.
    seen: u8,
    told: u8,
}

/// A reason as a byte; zero for none.
fn code(reason: Option<RefusalReason>) -> u8 {
    reason.and_then(|reason| u8::try_from(reason as usize + 1).ok()).unwrap_or(0)
}

/// Whether a reason is worth telling: that a target runs, its start told.
fn tells(reason: Option<RefusalReason>) -> bool {
    reason.is_some_and(|reason| reason != RefusalReason::Running)
}

impl Memory {
    /// Looks at what waits in a plan; tells `most` of what is new one by one.
    ///
    /// A reason is told once two looks in a row have seen it: many last for a moment.
    pub fn look(&mut self, waiting: impl Iterator<Item = Waiting>, most: usize) -> Difference {
        let (before, now) = (self.look, self.look.wrapping_add(1));
        self.look = now;
        let mut found = Difference::default();
        for it in waiting {
            let (at, channel) = (it.ix.as_usize(), u8::try_from(it.channel).unwrap_or(u8::MAX));
            if self.states.len() <= at {
                self.states.resize(at + 1, State::default());
            }
            let Some(state) = self.states.get_mut(at) else { continue };
            let room = found.queued.len() + found.refused.len() < most;
            let reason = code(it.refused);
            let [generation, ..] = it.ix.generation().to_le_bytes();
            let same = state.channel == channel && state.generation == generation;
            if state.look != before || before == 0 || !same {
                *state = State { look: now, channel, generation, seen: reason, told: 0 };
                if room {
                    found.queued.push(it)
                } else {
                    found.more_queued += 1
                }
                continue;
            }
            if tells(it.refused) && reason == state.seen && reason != state.told {
                state.told = reason;
                if room { found.refused.push(it) } else { found.more_refused += 1 }
            }
            (state.look, state.seen) = (now, reason);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Option<RefusalReason> = Some(RefusalReason::NodeLimit);
    const SPACE: Option<RefusalReason> = Some(RefusalReason::Headroom);
    const RUNS: Option<RefusalReason> = Some(RefusalReason::Running);

    fn waiting(at: usize, channel: usize, refused: Option<RefusalReason>) -> Waiting {
        Waiting { ix: Ix::from_usize(at).unwrap(), channel, refused }
    }

    /// What is told of one target in each of some plans; it waits or does not.
    fn told(plans: &[Option<(usize, Option<RefusalReason>)>]) -> Vec<String> {
        let mut memory = Memory::default();
        let look = |plan: &Option<(usize, Option<RefusalReason>)>| {
            let all = plan.iter().map(|(channel, refused)| waiting(7, *channel, *refused));
            let Difference { queued, refused, .. } = memory.look(all, 10);
            let queued = queued.iter().map(|it| format!("queued {}", it.channel));
            let refused = refused.iter().map(|it| it.refused.unwrap().label().to_owned());
            queued.chain(refused).collect::<Vec<_>>().join(" ")
        };
        plans.iter().map(look).collect()
    }

    #[test]
    fn what_is_new_is_told_once_and_a_reason_when_it_lasts() {
        for (plans, expected) in [
            (&[Some((1, LIMIT)); 3][..], &["queued 1", "node_limit", ""][..]),
            (
                &[Some((1, LIMIT)), Some((1, SPACE)), Some((1, LIMIT)), Some((1, LIMIT))],
                &["queued 1", "", "", "node_limit"],
            ),
            (
                &[
                    Some((1, LIMIT)),
                    Some((1, LIMIT)),
                    Some((1, SPACE)),
                    Some((1, LIMIT)),
                    Some((1, LIMIT)),
                ],
                &["queued 1", "node_limit", "", "", ""],
            ),
            (
                &[Some((1, None)), Some((1, None)), Some((1, RUNS)), Some((1, RUNS))],
                &["queued 1", "", "", ""],
            ),
            (
                &[
                    Some((1, LIMIT)),
                    Some((1, LIMIT)),
                    Some((1, RUNS)),
                    Some((1, RUNS)),
                    Some((1, LIMIT)),
                ],
                &["queued 1", "node_limit", "", "", ""],
            ),
            (&[Some((1, None)), None, Some((1, None))], &["queued 1", "", "queued 1"]),
            (&[Some((1, None)), Some((0, None))], &["queued 1", "queued 0"]),
            (&[None, Some((1, None))], &["", "queued 1"]),
        ] {
            assert_eq!(told(plans), expected, "{plans:?}");
        }
    }

    #[test]
    fn another_target_in_the_place_of_one_that_went_is_new() {
        let mut draft = crate::snapshot::Draft::new(1);
        let node = draft.node("couchdb@a");
        let mut made = |name: &str, gone: Option<Ix>| {
            gone.into_iter().for_each(|ix| draft.remove(ix));
            let db = draft.db(crate::snapshot::DbName { db: name, suffix: "" });
            draft.db_target(node, db, None)
        };
        let one = made("one", None);
        let other = made("other", Some(one));
        assert_eq!(one.as_usize(), other.as_usize());
        let mut memory = Memory::default();
        let mut queued = |ix| {
            let waits = Waiting { ix, channel: 1, refused: None };
            memory.look([waits].into_iter(), 9).queued.len()
        };
        assert_eq!([one, one, other, other].map(&mut queued), [1, 0, 1, 0]);
    }

    #[test]
    fn a_million_at_once_are_a_few_lines_and_a_number() {
        let mut memory = Memory::default();
        let all = || (0..1_000_000).map(|at| waiting(at, 2, LIMIT));
        let found = memory.look(all(), 100);
        assert_eq!((found.queued.len(), found.more_queued), (100, 999_900));
        assert_eq!((found.refused.len(), found.more_refused), (0, 0));
        let found = memory.look(all(), 100);
        assert_eq!((found.refused.len(), found.more_refused), (100, 999_900));
        assert_eq!(memory.look(all(), 100), Difference::default());
    }
}
