//! The targets with most to reclaim, kept up with every change.

use super::Ix;
use crate::target::Kind;
use std::collections::BTreeSet;

/// The best few of each kind by reclaimable bytes, most first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Top {
    kinds: [Vec<Ix>; Kind::ALL.len()],
}

impl Top {
    /// The best of one kind, most to reclaim first.
    #[must_use]
    pub fn of(&self, kind: Kind) -> &[Ix] {
        &self.kinds[kind as usize]
    }
}

/// Keeps a little more than is shown, so that most changes need no look at the rest.
///
/// Everything above `floor` is in `best`. A value that sinks below the floor leaves; when
/// fewer than are shown remain while others exist, the keeper asks to be filled again.
#[derive(Clone, Debug)]
pub(super) struct Keeper {
    shown: usize,
    best: [BTreeSet<Entry>; Kind::ALL.len()],
    /// The best entry that found no room.
    floor: [Option<Entry>; Kind::ALL.len()],
}

/// Bytes, then place: a total order, so that equal values need no rule of their own.
type Entry = (u64, Ix);

impl Keeper {
    pub(super) fn new(shown: usize) -> Self {
        Self { shown, best: Default::default(), floor: Default::default() }
    }

    pub(super) fn remove(&mut self, kind: Kind, value: Option<u64>, ix: Ix) {
        if let Some(value) = value {
            self.best[kind as usize].remove(&(value, ix));
        }
    }

    /// Takes a target; what would free nothing never enters.
    pub(super) fn insert(&mut self, kind: Kind, value: Option<u64>, ix: Ix) {
        let (best, floor) = (&mut self.best[kind as usize], &mut self.floor[kind as usize]);
        let Some(value) = value.filter(|value| *value > 0) else { return };
        let entry = (value, ix);
        if floor.is_some_and(|floor| entry < floor) {
            return;
        }
        best.insert(entry);
        if best.len() > self.shown.saturating_mul(4).max(16) {
            while best.len() > self.shown.saturating_mul(2) {
                *floor = best.pop_first();
            }
        }
    }

    /// Whether targets below the floor may belong among the shown again.
    pub(super) fn wants_filling(&self) -> bool {
        self.best
            .iter()
            .zip(self.floor)
            .any(|(best, floor)| best.len() < self.shown && floor.is_some())
    }

    /// Forgets everything, to be given every target again.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.shown);
    }

    pub(super) fn top(&self) -> Top {
        Top {
            kinds: self
                .best
                .each_ref()
                .map(|best| best.iter().rev().take(self.shown).map(|(_, ix)| *ix).collect()),
        }
    }
}
