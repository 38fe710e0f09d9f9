//! One queue: the waiting targets of one channel on one node, bounded, best first.
//!
//! Owns their order. Never scores and never decides; the planner puts targets in and takes
//! them out. Ties go to the one that has waited longest (smoosh prefers the newest).
//!
//! Why two sets: the queue holds the best `capacity` of *everything the channel takes*, so
//! when one leaves, the best of the overflow moves up. smoosh drops the overflow and meets
//! it again at the next write, which an idle database never sees.

use crate::clock::Moment;
use ordered_float::OrderedFloat;
use std::{
    cmp::{Ordering, Reverse},
    collections::BTreeSet,
};

/// A waiting target: what orders it, and its place in the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<I> {
    /// The channel's priority.
    pub priority: OrderedFloat<f64>,
    /// Since when it waits in this channel.
    pub since: Moment,
    /// Which target.
    pub ix: I,
}

impl<I: Ord + Copy> Entry<I> {
    fn order(&self) -> (Reverse<OrderedFloat<f64>>, Moment, I) {
        (Reverse(self.priority), self.since, self.ix)
    }
}

impl<I: Ord + Copy> Ord for Entry<I> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl<I: Ord + Copy> PartialOrd for Entry<I> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The best targets of a channel on a node, and the rest of what the channel takes.
#[derive(Clone, Debug)]
pub struct Queue<I> {
    capacity: usize,
    kept: BTreeSet<Entry<I>>,
    overflow: BTreeSet<Entry<I>>,
}

impl<I: Ord + Copy> Queue<I> {
    /// An empty queue of this capacity.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self { capacity, kept: BTreeSet::new(), overflow: BTreeSet::new() }
    }

    /// A queue of all these entries; a third of the time of putting them in one by one.
    #[must_use]
    pub fn of(capacity: usize, mut entries: Vec<Entry<I>>) -> Self {
        entries.sort_unstable();
        let overflow = entries.split_off(capacity.min(entries.len()));
        Self {
            capacity,
            kept: entries.into_iter().collect(),
            overflow: overflow.into_iter().collect(),
        }
    }

    /// Puts an entry in; the worst of a full queue goes to the overflow.
    pub fn insert(&mut self, entry: Entry<I>) {
        if self.kept.len() < self.capacity {
            self.kept.insert(entry);
            return;
        }
        match self.kept.last() {
            Some(worst) if entry < *worst => {
                self.overflow.extend(self.kept.pop_last());
                self.kept.insert(entry);
            }
            _ => {
                self.overflow.insert(entry);
            }
        }
    }

    /// Takes an entry out, wherever it waits; the best of the overflow moves up.
    pub fn remove(&mut self, entry: &Entry<I>) {
        if self.kept.remove(entry) {
            self.kept.extend(self.overflow.pop_first());
        } else {
            self.overflow.remove(entry);
        }
    }

    /// Takes out the best entry; the best of the overflow moves up.
    pub fn pop(&mut self) -> Option<Entry<I>> {
        let best = self.kept.pop_first()?;
        self.kept.extend(self.overflow.pop_first());
        Some(best)
    }

    /// The waiting entries, best first.
    pub fn iter(&self) -> impl Iterator<Item = &Entry<I>> {
        self.kept.iter()
    }

    /// The best entry.
    #[must_use]
    pub fn first(&self) -> Option<&Entry<I>> {
        self.kept.first()
    }

    /// The worst entry that still has room.
    #[must_use]
    pub fn last(&self) -> Option<&Entry<I>> {
        self.kept.last()
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// How many the channel takes that find no room.
    #[must_use]
    pub fn overflow(&self) -> usize {
        self.overflow.len()
    }

    /// What it holds at most.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(priority: f64, since: u64, ix: u32) -> Entry<u32> {
        Entry { priority: OrderedFloat(priority), since: Moment::from_unix(since), ix }
    }

    #[test]
    fn the_best_comes_first_and_of_equals_the_oldest() {
        let mut queue = Queue::new(3);
        for each in [entry(2.0, 9, 1), entry(5.0, 9, 2), entry(2.0, 1, 3), entry(3.0, 9, 4)] {
            queue.insert(each);
        }
        assert_eq!((queue.len(), queue.overflow()), (3, 1));
        let mut order = Vec::new();
        while let Some(best) = queue.pop() {
            order.push(best.ix);
        }
        assert_eq!(order, [2, 4, 3, 1], "the overflow moves up as room comes free");
    }

    #[test]
    fn a_queue_without_room_holds_nothing_and_counts_everything() {
        let mut queue = Queue::new(0);
        queue.insert(entry(2.0, 0, 1));
        assert_eq!((queue.len(), queue.overflow(), queue.pop()), (0, 1, None));
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_sorted_list(
            capacity in 0..12_usize,
            start in proptest::collection::vec((0..6_u8, 0..4_u64), 0..30),
            steps in proptest::collection::vec((any::<bool>(), 0..6_u8, 0..4_u64, 0..30_u32), 0..80),
        ) {
            let mut model: Vec<Entry<u32>> = start
                .iter()
                .zip(100..)
                .map(|(&(priority, since), ix)| entry(f64::from(priority), since, ix))
                .collect();
            let mut queue = Queue::of(capacity, model.clone());
            for (put, priority, since, ix) in steps {
                let entry = entry(f64::from(priority), since, ix);
                if put && !model.contains(&entry) {
                    model.push(entry);
                    queue.insert(entry);
                } else if !put {
                    model.retain(|each| *each != entry);
                    queue.remove(&entry);
                }
                model.sort_unstable();
                let kept = capacity.min(model.len());
                prop_assert_eq!(queue.iter().collect::<Vec<_>>(), model[..kept].iter().collect::<Vec<_>>());
                prop_assert_eq!(queue.overflow(), model.len() - kept);
                prop_assert_eq!(queue.last(), model[..kept].last());
            }
        }
    }
}
