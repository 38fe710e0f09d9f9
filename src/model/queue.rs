//! One queue: the waiting targets of one channel on one node, bounded, best first.
//!
//! Owns their order. Never scores and never decides; the planner adds and removes targets. Ties go
//! to the target that has waited longest (smoosh prefers the newest).
//!
//! The queue keeps *everything the channel takes* and offers the best `capacity` entries, so when
//! one target leaves, the best of the remainder moves up. smoosh drops the others and considers
//! them again at their next write, which never comes for an idle database.
//!
//! There are two sets because only the few entries in `front` are iterated often and need fast
//! lookups. `front` holds up to twice the capacity, so a removed entry is usually replaced without
//! access to `remainder`, and entries move between the sets by the thousand.

use ordered_float::OrderedFloat;
use std::{
    cmp::{Ordering, Reverse},
    collections::BTreeSet,
};
use wall_clock::Moment;

/// A waiting target: its sort key and its index in the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueEntry<I> {
    /// The channel's priority.
    pub priority: OrderedFloat<f64>,
    /// When it was queued in this channel.
    pub queued_since: Moment,
    /// The target.
    pub ix: I,
}

impl<I: Ord + Copy> QueueEntry<I> {
    fn sort_key(&self) -> (Reverse<OrderedFloat<f64>>, Moment, I) {
        (Reverse(self.priority), self.queued_since, self.ix)
    }
}

impl<I: Ord + Copy> Ord for QueueEntry<I> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sort_key().cmp(&other.sort_key())
    }
}

impl<I: Ord + Copy> PartialOrd for QueueEntry<I> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Entries that `front` may hold beyond twice the capacity.
const FRONT_MARGIN: usize = 64;

/// Maximum number of entries that move from `remainder` to `front` at once.
const MOVE_BATCH: usize = 1 << 16;

/// The best targets of a channel on a node, and all others that the channel takes.
#[derive(Clone, Debug)]
pub(crate) struct Queue<I> {
    capacity: usize,
    /// The best entries, at least `capacity` if there are that many; the first `capacity` of them
    /// are offered.
    front: BTreeSet<QueueEntry<I>>,
    /// All other entries; none is better than any entry in `front`.
    remainder: BTreeSet<QueueEntry<I>>,
}

impl<I: Ord + Copy> Queue<I> {
    /// An empty queue with this capacity.
    pub(crate) const fn new(capacity: usize) -> Self {
        Self { capacity, front: BTreeSet::new(), remainder: BTreeSet::new() }
    }

    /// A queue of all these entries; takes a third of the time of inserting them one by one.
    pub(crate) fn from_entries(capacity: usize, mut entries: Vec<QueueEntry<I>>) -> Self {
        entries.sort_unstable();
        let far = entries.split_off(capacity.min(entries.len()));
        Self {
            capacity,
            front: entries.into_iter().collect(),
            remainder: far.into_iter().collect(),
        }
    }

    /// Adds an entry; if the queue is full, the worst entry becomes overflow.
    pub(crate) fn insert(&mut self, entry: QueueEntry<I>) {
        let belongs_near = match self.front.last() {
            Some(worst) => self.remainder.is_empty() || entry < *worst,
            None => self.remainder.is_empty(),
        };
        if !belongs_near {
            self.remainder.insert(entry);
            return;
        }
        self.front.insert(entry);
        if self.front.len() > self.capacity.saturating_mul(2).saturating_add(FRONT_MARGIN) {
            while self.front.len() > self.capacity {
                self.remainder.extend(self.front.pop_last());
            }
        }
    }

    /// Removes an entry; the best of the remainder moves up.
    pub(crate) fn remove(&mut self, entry: &QueueEntry<I>) {
        if self.front.remove(entry) {
            self.refill_front();
        } else {
            self.remainder.remove(entry);
        }
    }

    /// Removes the best entry; the best of the remainder moves up.
    pub(crate) fn pop(&mut self) -> Option<QueueEntry<I>> {
        if self.capacity == 0 {
            return None;
        }
        let best = self.front.pop_first()?;
        self.refill_front();
        Some(best)
    }

    /// Refills `front` from `remainder` when it holds fewer entries than the capacity.
    fn refill_front(&mut self) {
        if self.front.len() >= self.capacity || self.remainder.is_empty() {
            return;
        }
        let batch = self.capacity.clamp(FRONT_MARGIN, MOVE_BATCH);
        let mut fetched: BTreeSet<QueueEntry<I>> =
            std::iter::from_fn(|| self.remainder.pop_first()).take(batch).collect();
        self.front.append(&mut fetched);
    }

    /// The waiting entries, best first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &QueueEntry<I>> {
        self.front.iter().take(self.capacity)
    }

    /// The best entry.
    pub(crate) fn first(&self) -> Option<&QueueEntry<I>> {
        self.iter().next()
    }

    /// The worst entry within the capacity.
    pub(crate) fn last(&self) -> Option<&QueueEntry<I>> {
        if self.front.len() <= self.capacity { self.front.last() } else { self.iter().last() }
    }

    /// Number of offered entries.
    pub(crate) fn len(&self) -> usize {
        self.front.len().min(self.capacity)
    }

    /// Whether no entry is offered.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of entries beyond the capacity.
    pub(crate) fn overflow(&self) -> usize {
        self.front.len() + self.remainder.len() - self.len()
    }

    /// Maximum number of offered entries.
    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(priority: f64, since: u64, ix: u32) -> QueueEntry<u32> {
        QueueEntry { priority: OrderedFloat(priority), queued_since: Moment::from_unix(since), ix }
    }

    #[test]
    fn orders_by_priority_then_by_waiting_time() {
        let mut queue = Queue::new(3);
        for each in [entry(2.0, 9, 1), entry(5.0, 9, 2), entry(2.0, 1, 3), entry(3.0, 9, 4)] {
            queue.insert(each);
        }
        assert_eq!((queue.len(), queue.overflow()), (3, 1));
        let mut order = Vec::new();
        while let Some(best) = queue.pop() {
            order.push(best.ix);
        }
        assert_eq!(order, [2, 4, 3, 1], "the overflow moves up as places become free");
    }

    #[test]
    fn a_queue_without_capacity_offers_nothing_and_counts_everything() {
        let mut queue = Queue::new(0);
        queue.insert(entry(2.0, 0, 1));
        assert_eq!((queue.len(), queue.overflow(), queue.pop()), (0, 1, None));
    }

    proptest! {
        #[test]
        fn queue_matches_a_sorted_list(
            capacity in 0..12_usize,
            start in proptest::collection::vec((0..6_u8, 0..4_u64), 0..200),
            steps in proptest::collection::vec((proptest::bool::weighted(0.7), 0..6_u8, 0..4_u64, 0..300_u32), 0..200),
        ) {
            let mut model: Vec<QueueEntry<u32>> = start
                .iter()
                .zip(100..)
                .map(|(&(priority, since), ix)| entry(f64::from(priority), since, ix))
                .collect();
            let mut queue = Queue::from_entries(capacity, model.clone());
            for (put, priority, since, ix) in steps {
                let entry = entry(f64::from(priority), since, ix);
                if put && !model.contains(&entry) {
                    model.push(entry);
                    queue.insert(entry);
                } else if !put && !model.is_empty() {
                    let gone = model.remove(ix as usize % model.len());
                    queue.remove(&gone);
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
