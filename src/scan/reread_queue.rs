//! When to read targets with feed events: a queue with a pause after each read of one target.
//!
//! Pure: each call gets `now`. A target is read at once after its first event, and after further events
//! when its pause is over. The pause grows for targets with repeated events, up to the interval of
//! sweeps. So feeds at most double how often one target is read.

use hashbrown::HashMap;
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hash,
    time::Duration,
};
use tokio::time::Instant;

/// The pause grows after this many consecutive reads that were each followed by an event within the
/// pause. A rarely written database may have two events in a short time by chance.
const MIN_STREAK: u32 = 4;

/// The limits on how often one target is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// The minimum pause.
    pub(super) shortest: Duration,
    /// The maximum pause.
    pub(super) longest: Duration,
}

impl Pace {
    fn pause(self, streak: u32) -> Duration {
        let doubled = 1_u32.checked_shl(streak.saturating_sub(MIN_STREAK)).unwrap_or(u32::MAX);
        self.shortest.saturating_mul(doubled).min(self.longest.max(self.shortest))
    }
}

/// One queued target.
#[derive(Clone, Copy, Debug)]
struct Entry<L> {
    group: L,
    /// When it is to be read; `None` if it was read since its last event.
    due: Option<Instant>,
    reading: bool,
    /// When its last read ended.
    read: Option<Instant>,
    streak: u32,
}

/// Keys `K` that are to be read, each in a group that is read independently of the others.
#[derive(Debug)]
pub(super) struct RereadQueue<L, K> {
    all: HashMap<K, Entry<L>>,
    due: BTreeMap<L, BTreeSet<(Instant, K)>>,
}

impl<L, K> Default for RereadQueue<L, K> {
    fn default() -> Self {
        Self { all: HashMap::new(), due: BTreeMap::new() }
    }
}

impl<L: Copy + Ord, K: Clone + Ord + Hash> RereadQueue<L, K> {
    /// Queues a key after an event.
    pub(super) fn name(&mut self, group: L, key: K, pace: Pace, now: Instant) {
        let entry = self.entry(group, &key);
        if entry.due.is_some() {
            return;
        }
        let rests = entry.read.map(|read| read + pace.pause(entry.streak));
        let again = entry.reading || rests.is_some_and(|until| until > now);
        entry.streak = if again { entry.streak.saturating_add(1) } else { 0 };
        let until = entry.read.map(|read| read + pace.pause(entry.streak));
        let due = if entry.reading { now + pace.shortest } else { until.unwrap_or(now).max(now) };
        self.schedule(&key, due);
    }

    /// Queues a key to be read now, without a pause.
    pub(super) fn name_urgent(&mut self, group: L, key: K, now: Instant) {
        self.entry(group, &key);
        self.schedule(&key, now);
    }

    fn entry(&mut self, group: L, key: &K) -> &mut Entry<L> {
        self.all.entry(key.clone()).or_insert(Entry {
            group,
            due: None,
            reading: false,
            read: None,
            streak: 0,
        })
    }

    fn schedule(&mut self, key: &K, due: Instant) {
        let Some(entry) = self.all.get_mut(key) else { return };
        let before = entry.due.replace(due);
        let group = self.due.entry(entry.group).or_default();
        if let Some(before) = before {
            group.remove(&(before, key.clone()));
        }
        group.insert((due, key.clone()));
    }

    /// When the next read is due in a group that is `free`.
    pub(super) fn next_due(&self, free: impl Fn(L) -> bool) -> Option<Instant> {
        let groups = self.due.iter().filter(|(group, _)| free(**group));
        groups.filter_map(|(_, due)| due.first()).map(|(at, _)| *at).min()
    }

    /// Takes up to `at_most` due keys from each `free` group, and marks them as being read.
    pub(super) fn take_due(
        &mut self,
        free: impl Fn(L) -> bool,
        at_most: usize,
        now: Instant,
    ) -> BTreeMap<L, Vec<K>> {
        let mut due_keys = BTreeMap::new();
        for (group, due) in self.due.iter_mut().filter(|(group, _)| free(**group)) {
            let mut keys = Vec::new();
            while keys.len() < at_most
                && due.first().is_some_and(|(at, _)| *at <= now)
                && let Some((_, key)) = due.pop_first()
            {
                if let Some(entry) = self.all.get_mut(&key) {
                    entry.due = None;
                    entry.reading = true;
                }
                keys.push(key);
            }
            if !keys.is_empty() {
                due_keys.insert(*group, keys);
            }
        }
        self.due.retain(|_, due| !due.is_empty());
        due_keys
    }

    /// Records the end of a read, successful or not. Returns whether no event arrived during the
    /// read.
    pub(super) fn finish(&mut self, key: &K, well: bool, pace: Pace, now: Instant) -> bool {
        let Some(entry) = self.all.get_mut(key) else { return true };
        entry.reading = false;
        entry.read = Some(now);
        if !well && entry.due.is_none() {
            entry.streak = entry.streak.saturating_add(1);
        }
        let named = entry.due.is_some();
        let due = now + pace.pause(entry.streak);
        if named || !well {
            self.schedule(key, due);
        }
        !named
    }

    /// Whether a key waits to be read, or is being read.
    pub(super) fn contains(&self, key: &K) -> bool {
        self.all.get(key).is_some_and(|entry| entry.due.is_some() || entry.reading)
    }

    /// Whether a key is being read.
    pub(super) fn is_reading(&self, key: &K) -> bool {
        self.all.get(key).is_some_and(|entry| entry.reading)
    }

    /// The number of keys that wait or are being read.
    pub(super) fn len(&self) -> usize {
        self.all.values().filter(|entry| entry.due.is_some() || entry.reading).count()
    }

    /// Removes a key that no longer exists.
    pub(super) fn remove(&mut self, key: &K) {
        if let Some(Entry { group, due: Some(due), .. }) = self.all.remove(key)
            && let Some(group) = self.due.get_mut(&group)
        {
            group.remove(&(due, key.clone()));
        }
    }

    /// Forgets keys without recent events.
    pub(super) fn tidy(&mut self, pace: Pace, now: Instant) {
        self.all.retain(|_, entry| {
            let rested = entry.read.is_none_or(|read| read + pace.pause(entry.streak) < now);
            entry.due.is_some() || entry.reading || !rested
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PACE: Pace = Pace { shortest: Duration::from_secs(1), longest: Duration::from_secs(300) };

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Queues one key at each of the moments `named`, with reads that take `takes`, in
    /// milliseconds; returns when it was read.
    fn readings(named: &[u64], takes: u64, until: u64) -> Vec<u64> {
        let start = Instant::now();
        let mut queue: RereadQueue<(), u8> = RereadQueue::default();
        let (mut reads, mut ends) = (Vec::new(), None);
        for at in 0..until {
            let now = start + millis(at);
            if named.contains(&at) {
                queue.name((), 1, PACE, now);
            }
            if ends == Some(at) {
                queue.finish(&1, true, PACE, now);
                ends = None;
            }
            if ends.is_none() && !queue.take_due(|()| true, 9, now).is_empty() {
                reads.push(at);
                ends = Some(at + takes);
            }
        }
        reads
    }

    #[test]
    fn key_is_read_at_once_and_again_after_further_events() {
        assert_eq!(readings(&[100], 5, 5_000), [100]);
        assert_eq!(readings(&[100, 101, 200, 300], 5, 5_000), [100, 1_105]);
        assert_eq!(readings(&[100, 104], 5, 5_000), [100, 1_105], "an event during the read");
        assert_eq!(readings(&[100, 1_200, 2_500], 5, 5_000), [100, 1_200, 2_500]);
    }

    #[test]
    fn pauses_grow_with_repeated_events_and_end_when_calm() {
        let always: Vec<u64> = (0..60_000).step_by(100).collect();
        let reads = readings(&always, 5, 60_000);
        let gaps: Vec<u64> = reads.windows(2).map(|two| (two[1] - two[0]) / 1_000).collect();
        assert_eq!(gaps, [1, 1, 1, 1, 2, 4, 8, 16]);
        let mut calm = always;
        calm.extend([200_000, 210_000]);
        let reads = readings(&calm, 5, 220_000);
        assert_eq!(reads.last_chunk(), Some(&[200_000, 210_000]), "{reads:?}");
    }

    #[test]
    fn failed_read_is_repeated_and_a_busy_group_is_not_read() {
        let now = Instant::now();
        let mut queue: RereadQueue<u8, u8> = RereadQueue::default();
        queue.name(1, 10, PACE, now);
        queue.name(2, 20, PACE, now);
        assert_eq!(queue.take_due(|group| group == 1, 9, now), BTreeMap::from([(1, vec![10])]));
        assert_eq!(queue.next_due(|group| group == 1), None);
        assert!(queue.finish(&10, false, PACE, now + millis(5)));
        assert_eq!(queue.next_due(|group| group == 1), Some(now + millis(1_005)));
        assert!(queue.contains(&10) && queue.contains(&20));
        queue.remove(&20);
        assert_eq!(queue.next_due(|group| group == 2), None);
        assert_eq!(queue.len(), 1);
        queue.name_urgent(1, 10, now);
        assert_eq!(queue.take_due(|_| true, 9, now).len(), 1);
        assert!(queue.finish(&10, true, PACE, now));
        queue.tidy(PACE, now + Duration::from_secs(3));
        assert!(queue.all.is_empty() && queue.due.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn every_queued_key_is_read_but_not_too_often(
            named in proptest::collection::btree_set(0_u64..20_000, 1..200),
            takes in 1_u64..1_500,
        ) {
            let named: Vec<u64> = named.into_iter().collect();
            let reads = readings(&named, takes, 100_000);
            for two in reads.windows(2) {
                prop_assert!(two[1] >= two[0] + takes + 1_000, "{:?}", reads);
            }
            let (last_named, last_read) = (named.last().unwrap(), reads.last().unwrap());
            prop_assert!(last_read >= last_named, "{:?} {:?}", named, reads);
        }
    }
}
