//! What a feed named, and when each of it is read for that.
//!
//! Pure: `now` comes with each call. Something named is read at once, and what is named again
//! no sooner than its pause after that was over. The pause grows for what is named again and
//! again, up to that between two sweeps: nothing is ever read more often for being named than
//! twice as often as it would be without a feed.

use hashbrown::HashMap;
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hash,
    time::Duration,
};
use tokio::time::Instant;

/// Readings in a row, each followed by another naming within its pause, before the pause
/// grows. Something that is written to now and then is named twice in a short while by chance.
const PATIENCE: u32 = 4;

/// How often one thing is read at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// The shortest pause.
    pub(super) shortest: Duration,
    /// The longest.
    pub(super) longest: Duration,
}

impl Pace {
    fn pause(self, streak: u32) -> Duration {
        let doubled = 1_u32.checked_shl(streak.saturating_sub(PATIENCE)).unwrap_or(u32::MAX);
        self.shortest.saturating_mul(doubled).min(self.longest.max(self.shortest))
    }
}

/// What is known of one thing that was named.
#[derive(Clone, Copy, Debug)]
struct Touch<L> {
    lane: L,
    /// When it is to be read; absent where it was read since it was named.
    due: Option<Instant>,
    reading: bool,
    /// When its last reading ended.
    read: Option<Instant>,
    streak: u32,
}

/// Things of kind `K` that were named, each on a lane that is read by itself.
#[derive(Debug)]
pub(super) struct Touched<L, K> {
    all: HashMap<K, Touch<L>>,
    due: BTreeMap<L, BTreeSet<(Instant, K)>>,
}

impl<L, K> Default for Touched<L, K> {
    fn default() -> Self {
        Self { all: HashMap::new(), due: BTreeMap::new() }
    }
}

impl<L: Copy + Ord, K: Clone + Ord + Hash> Touched<L, K> {
    /// A feed named it.
    pub(super) fn named(&mut self, lane: L, key: K, pace: Pace, now: Instant) {
        let touch = self.touch(lane, &key);
        if touch.due.is_some() {
            return;
        }
        let rests = touch.read.map(|read| read + pace.pause(touch.streak));
        let again = touch.reading || rests.is_some_and(|until| until > now);
        touch.streak = if again { touch.streak.saturating_add(1) } else { 0 };
        let until = touch.read.map(|read| read + pace.pause(touch.streak));
        let due = if touch.reading { now + pace.shortest } else { until.unwrap_or(now).max(now) };
        self.schedule(&key, due);
    }

    /// It has to be read now, however lately it was.
    pub(super) fn urgent(&mut self, lane: L, key: K, now: Instant) {
        self.touch(lane, &key);
        self.schedule(&key, now);
    }

    fn touch(&mut self, lane: L, key: &K) -> &mut Touch<L> {
        self.all.entry(key.clone()).or_insert(Touch {
            lane,
            due: None,
            reading: false,
            read: None,
            streak: 0,
        })
    }

    fn schedule(&mut self, key: &K, due: Instant) {
        let Some(touch) = self.all.get_mut(key) else { return };
        let before = touch.due.replace(due);
        let lane = self.due.entry(touch.lane).or_default();
        if let Some(before) = before {
            lane.remove(&(before, key.clone()));
        }
        lane.insert((due, key.clone()));
    }

    /// When something is due next on a lane that is `free`.
    pub(super) fn next(&self, free: impl Fn(L) -> bool) -> Option<Instant> {
        let lanes = self.due.iter().filter(|(lane, _)| free(**lane));
        lanes.filter_map(|(_, due)| due.first()).map(|(at, _)| *at).min()
    }

    /// What is due on `free` lanes, so many of each at most; from now on it is being read.
    pub(super) fn take(
        &mut self,
        free: impl Fn(L) -> bool,
        at_most: usize,
        now: Instant,
    ) -> BTreeMap<L, Vec<K>> {
        let mut taken = BTreeMap::new();
        for (lane, due) in self.due.iter_mut().filter(|(lane, _)| free(**lane)) {
            let mut keys = Vec::new();
            while keys.len() < at_most
                && due.first().is_some_and(|(at, _)| *at <= now)
                && let Some((_, key)) = due.pop_first()
            {
                if let Some(touch) = self.all.get_mut(&key) {
                    touch.due = None;
                    touch.reading = true;
                }
                keys.push(key);
            }
            if !keys.is_empty() {
                taken.insert(*lane, keys);
            }
        }
        self.due.retain(|_, due| !due.is_empty());
        taken
    }

    /// A reading ended, well or not. Answers whether it was not named meanwhile.
    pub(super) fn read(&mut self, key: &K, well: bool, pace: Pace, now: Instant) -> bool {
        let Some(touch) = self.all.get_mut(key) else { return true };
        touch.reading = false;
        touch.read = Some(now);
        if !well && touch.due.is_none() {
            touch.streak = touch.streak.saturating_add(1);
        }
        let named = touch.due.is_some();
        let due = now + pace.pause(touch.streak);
        if named || !well {
            self.schedule(key, due);
        }
        !named
    }

    /// Whether it waits to be read, or is being read.
    pub(super) fn waits(&self, key: &K) -> bool {
        self.all.get(key).is_some_and(|touch| touch.due.is_some() || touch.reading)
    }

    /// Whether it is being read.
    pub(super) fn is_read_now(&self, key: &K) -> bool {
        self.all.get(key).is_some_and(|touch| touch.reading)
    }

    /// How many wait to be read, or are being read.
    pub(super) fn waiting(&self) -> usize {
        self.all.values().filter(|touch| touch.due.is_some() || touch.reading).count()
    }

    /// It is gone.
    pub(super) fn forget(&mut self, key: &K) {
        if let Some(Touch { lane, due: Some(due), .. }) = self.all.remove(key)
            && let Some(lane) = self.due.get_mut(&lane)
        {
            lane.remove(&(due, key.clone()));
        }
    }

    /// Forgets what has not been named for long.
    pub(super) fn tidy(&mut self, pace: Pace, now: Instant) {
        self.all.retain(|_, touch| {
            let rested = touch.read.is_none_or(|read| read + pace.pause(touch.streak) < now);
            touch.due.is_some() || touch.reading || !rested
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

    /// Names one thing at these moments, each reading taking so long; answers when it was
    /// read.
    fn readings(named: &[u64], takes: u64, until: u64) -> Vec<u64> {
        let start = Instant::now();
        let mut touched: Touched<(), u8> = Touched::default();
        let (mut reads, mut ends) = (Vec::new(), None);
        for at in 0..until {
            let now = start + millis(at);
            if named.contains(&at) {
                touched.named((), 1, PACE, now);
            }
            if ends == Some(at) {
                touched.read(&1, true, PACE, now);
                ends = None;
            }
            if ends.is_none() && !touched.take(|()| true, 9, now).is_empty() {
                reads.push(at);
                ends = Some(at + takes);
            }
        }
        reads
    }

    #[test]
    fn something_is_read_at_once_and_what_is_named_meanwhile_once_more() {
        assert_eq!(readings(&[100], 5, 5_000), [100]);
        assert_eq!(readings(&[100, 101, 200, 300], 5, 5_000), [100, 1_105]);
        assert_eq!(readings(&[100, 104], 5, 5_000), [100, 1_105], "while it is read");
        assert_eq!(readings(&[100, 1_200, 2_500], 5, 5_000), [100, 1_200, 2_500]);
    }

    #[test]
    fn what_keeps_changing_is_read_ever_more_seldom_and_soon_again_when_it_calms_down() {
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
    fn what_failed_is_read_again_later_and_a_lane_that_is_taken_waits() {
        let now = Instant::now();
        let mut touched: Touched<u8, u8> = Touched::default();
        touched.named(1, 10, PACE, now);
        touched.named(2, 20, PACE, now);
        assert_eq!(touched.take(|lane| lane == 1, 9, now), BTreeMap::from([(1, vec![10])]));
        assert_eq!(touched.next(|lane| lane == 1), None);
        assert!(touched.read(&10, false, PACE, now + millis(5)));
        assert_eq!(touched.next(|lane| lane == 1), Some(now + millis(1_005)));
        assert!(touched.waits(&10) && touched.waits(&20));
        touched.forget(&20);
        assert_eq!(touched.next(|lane| lane == 2), None);
        assert_eq!(touched.waiting(), 1);
        touched.urgent(1, 10, now);
        assert_eq!(touched.take(|_| true, 9, now).len(), 1);
        assert!(touched.read(&10, true, PACE, now));
        touched.tidy(PACE, now + Duration::from_secs(3));
        assert!(touched.all.is_empty() && touched.due.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn nothing_named_goes_unread_and_nothing_is_read_too_often(
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
