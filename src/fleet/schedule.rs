//! Decides when each member is asked: at its own offset in the interval, with a limited number of
//! requests at a time. Pure.
//!
//! Members that did not answer share their own slots, so they never delay the others.

use couchdb_client::Address;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

/// Maximum number of concurrent requests: to members that answered last time, and to all others. It is high
/// enough that 500 slow members need not wait for each other.
const AT_A_TIME: [usize; 2] = [128, 128];

/// Which slots a member uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pool {
    Answers,
    Silent,
}

#[derive(Debug)]
pub(super) struct Schedule {
    epoch: Instant,
    interval: Duration,
    members: BTreeMap<Address, Pool>,
    due: [BTreeSet<(Instant, Address)>; 2],
    asked: BTreeMap<Address, Pool>,
}

impl Schedule {
    pub(super) fn new(interval: Duration, now: Instant) -> Self {
        Self {
            epoch: now,
            interval,
            members: BTreeMap::new(),
            due: [BTreeSet::new(), BTreeSet::new()],
            asked: BTreeMap::new(),
        }
    }

    /// Sets the members; new ones are due now.
    pub(super) fn set(&mut self, members: &BTreeSet<&Address>, interval: Duration, now: Instant) {
        self.interval = interval;
        self.members.retain(|address, _| members.contains(address));
        for due in &mut self.due {
            due.retain(|(_, address)| members.contains(address));
        }
        for address in members.iter().copied() {
            if self.members.insert(address.clone(), Pool::Silent).is_some() {
                continue;
            }
            if !self.asked.contains_key(address) {
                self.due[Pool::Silent as usize].insert((now, address.clone()));
            }
        }
    }

    /// Takes the next member to ask, if one is due and a slot for it is free.
    pub(super) fn take(&mut self, now: Instant) -> Option<Address> {
        for pool in [Pool::Answers, Pool::Silent] {
            let first = self.due[pool as usize].first().filter(|(due, _)| *due <= now);
            if let Some(first) = first.filter(|_| self.has_place(pool)).cloned() {
                self.due[pool as usize].remove(&first);
                self.asked.insert(first.1.clone(), pool);
                return Some(first.1);
            }
        }
        None
    }

    /// When the next member is due for which a slot is free.
    pub(super) fn next(&self) -> Option<Instant> {
        let pools = [Pool::Answers, Pool::Silent].into_iter().filter(|pool| self.has_place(*pool));
        pools.filter_map(|pool| Some(self.due[pool as usize].first()?.0)).min()
    }

    /// Ends a request; returns whether it was a member's.
    pub(super) fn record(&mut self, address: &Address, answers: bool, now: Instant) -> bool {
        self.asked.remove(address);
        let next = self.next_of(address, now);
        let Some(pool) = self.members.get_mut(address) else { return false };
        *pool = if answers { Pool::Answers } else { Pool::Silent };
        self.due[*pool as usize].insert((next, address.clone()));
        true
    }

    fn has_place(&self, pool: Pool) -> bool {
        self.asked.values().filter(|it| **it == pool).count() < AT_A_TIME[pool as usize]
    }

    /// The first moment after half an interval that lies at the member's own offset in the interval.
    fn next_of(&self, address: &Address, now: Instant) -> Instant {
        let interval = self.interval.as_nanos().max(1);
        let place = u128::from(xxh3_64(address.as_str().as_bytes())) % interval;
        let from = (now + self.interval / 2).duration_since(self.epoch).as_nanos();
        let wait = (place + interval - from % interval) % interval;
        now + self.interval / 2 + Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    fn addresses(count: usize) -> Vec<Address> {
        (0..count).map(|at| format!("http://r{at:03}:1").parse().unwrap()).collect()
    }

    fn schedule(addresses: &[Address], now: Instant) -> Schedule {
        let mut schedule = Schedule::new(INTERVAL, now);
        schedule.set(&addresses.iter().collect(), INTERVAL, now);
        schedule
    }

    #[tokio::test(start_paused = true)]
    async fn members_are_spread_over_the_interval() {
        let (all, begin) = (addresses(500), Instant::now());
        let mut schedule = schedule(&all, begin);
        let mut now = begin;
        let mut asked: BTreeMap<Address, Vec<Instant>> = BTreeMap::new();
        while now < begin + 10 * INTERVAL {
            while let Some(address) = schedule.take(now) {
                asked.entry(address.clone()).or_default().push(now);
                assert!(schedule.record(&address, true, now));
            }
            now = schedule.next().unwrap();
        }
        assert_eq!(asked.len(), 500);
        let mut in_second = [0; 30];
        for times in asked.values() {
            // After the first round, exactly once in each interval.
            let [first, second, rest @ ..] = &times[..] else { panic!("{times:?}") };
            let wait = *second - *first;
            assert!(wait >= INTERVAL / 2 && wait <= INTERVAL * 3 / 2, "{wait:?}");
            let mut last = *second;
            for time in rest {
                assert_eq!(*time - last, INTERVAL);
                last = *time;
            }
            in_second[usize::try_from((last - begin).as_secs() % 30).unwrap()] += 1;
        }
        assert!(in_second.iter().all(|count| *count < 40), "{in_second:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn silent_members_do_not_occupy_slots_of_answering_ones() {
        let (all, begin) = (addresses(500), Instant::now());
        let mut schedule = schedule(&all, begin);
        // Only the first 200 ever answer; all others hang.
        let hangs = |address: &Address| *address >= all[200];
        let mut now = begin;
        for _ in 0..8 {
            while let Some(address) = schedule.take(now) {
                schedule.record(&address, !hangs(&address), now);
            }
            now = schedule.next().unwrap();
        }
        now += 2 * INTERVAL;
        let taken: Vec<Address> = std::iter::from_fn(|| schedule.take(now)).collect();
        assert_eq!(taken.iter().filter(|it| hangs(it)).count(), AT_A_TIME[1]);
        assert_eq!(taken.iter().filter(|it| !hangs(it)).count(), AT_A_TIME[0]);
        // A slot that becomes free goes to a member that answers.
        let done = taken.iter().find(|it| !hangs(it)).unwrap();
        schedule.record(done, true, now);
        assert!(!hangs(&schedule.take(now).unwrap()));
        assert_eq!(schedule.take(now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn removed_member_is_forgotten_even_during_its_request() {
        let (all, now) = (addresses(2), Instant::now());
        let mut schedule = schedule(&all, now);
        let taken = schedule.take(now).unwrap();
        schedule.set(&BTreeSet::from([&all[1]]), INTERVAL, now);
        assert!(!schedule.record(&taken, true, now));
        assert_eq!(schedule.take(now), Some(all[1].clone()));
        assert_eq!(schedule.take(now), None);
        assert_eq!(schedule.next(), None);
    }
}
