//! Rest for what does not answer: after failures in a row, or once it is found to hang,
//! it is asked one request at a time, at growing intervals.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};
use tokio::{sync::Semaphore, time::Instant};

/// Failures in a row before a rest.
const STRIKES: u32 = 3;
/// The first rest; each failure after it doubles it.
const FIRST_REST: Duration = Duration::from_secs(5);
/// The longest rest.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// Counts failures in a row of one server or node.
#[derive(Debug)]
pub(super) struct Breaker {
    born: Instant,
    strikes: AtomicU32,
    /// Milliseconds after `born` at which one request may go out.
    until: AtomicU64,
    /// How long a request that went out as a probe keeps the others back.
    probe: Duration,
    /// Milliseconds after `born` of the last answer, one more, so that 0 means none.
    heard: AtomicU64,
    /// Lets one look at a time find out whether it hangs.
    pub(super) look: Semaphore,
}

/// Held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resting {
    pub(super) strikes: u32,
    pub(super) again: Duration,
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl Breaker {
    /// `timeout` is the longest a request takes to fail.
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            born: Instant::now(),
            strikes: AtomicU32::new(0),
            until: AtomicU64::new(0),
            probe: timeout.saturating_add(Duration::from_secs(1)),
            heard: AtomicU64::new(0),
            look: Semaphore::new(1),
        }
    }

    fn now(&self) -> u64 {
        millis(self.born.elapsed())
    }

    /// Lets a request go, as long as there are few failures, or one as a probe after a
    /// rest.
    pub(super) fn admit(&self) -> Result<(), Resting> {
        let strikes = self.strikes.load(Ordering::Relaxed);
        if strikes < STRIKES {
            return Ok(());
        }
        let now = self.now();
        let until = self.until.load(Ordering::Relaxed);
        let next = now.saturating_add(millis(self.probe));
        let free = now >= until
            && self
                .until
                .compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if free {
            return Ok(());
        }
        let until = self.until.load(Ordering::Relaxed);
        Err(Resting { strikes, again: Duration::from_millis(until.saturating_sub(now)) })
    }

    /// Whether requests are held back; takes no probe.
    pub(super) fn resting(&self) -> bool {
        self.strikes.load(Ordering::Relaxed) >= STRIKES
            && self.now() < self.until.load(Ordering::Relaxed)
    }

    /// Whether the last request came to nothing.
    pub(super) fn is_doubted(&self) -> bool {
        self.strikes.load(Ordering::Relaxed) > 0
    }

    /// Whether nothing has come back since it had to rest.
    pub(super) fn is_on_probation(&self) -> bool {
        self.strikes.load(Ordering::Relaxed) >= STRIKES
    }

    /// A request came to nothing.
    pub(super) fn strike(&self) {
        let strikes = self.strikes.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if strikes >= STRIKES {
            self.rest(strikes);
        }
    }

    /// It hangs: more failures would tell no more.
    pub(super) fn trip(&self) {
        let strikes = self.strikes.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let strikes = strikes.max(STRIKES);
        self.strikes.fetch_max(strikes, Ordering::Relaxed);
        self.rest(strikes);
    }

    fn rest(&self, strikes: u32) {
        let doubled = 1_u32 << strikes.saturating_sub(STRIKES).min(8);
        let rest = FIRST_REST.saturating_mul(doubled).min(LONGEST_REST);
        self.until.store(self.now().saturating_add(millis(rest)), Ordering::Relaxed);
    }

    /// When the last answer came, if one ever did.
    pub(super) fn heard(&self) -> Option<Instant> {
        let after = self.heard.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.born + Duration::from_millis(after))
    }

    /// It lives, which does not say that it does its work.
    pub(super) fn hear(&self) {
        self.heard.store(self.now().saturating_add(1), Ordering::Relaxed);
    }

    /// An answer came.
    pub(super) fn heal(&self) {
        self.hear();
        if self.strikes.load(Ordering::Relaxed) != 0 {
            self.strikes.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn three_failures_rest_and_then_one_request_tries() {
        let breaker = Breaker::new(Duration::from_secs(30));
        for _ in 0..2 {
            breaker.strike();
            assert_eq!(breaker.admit(), Ok(()));
        }
        breaker.strike();
        assert!(breaker.resting());
        assert_eq!(breaker.admit(), Err(Resting { strikes: 3, again: FIRST_REST }));
        tokio::time::advance(FIRST_REST).await;
        assert_eq!(breaker.admit(), Ok(()));
        assert!(breaker.admit().is_err(), "one probe at a time");
        breaker.strike();
        assert_eq!(breaker.admit(), Err(Resting { strikes: 4, again: FIRST_REST * 2 }));
        breaker.heal();
        assert_eq!(breaker.admit(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_hangs_rests_at_once_and_longer_each_time() {
        let breaker = Breaker::new(Duration::from_secs(30));
        assert_eq!(breaker.heard(), None);
        tokio::time::advance(Duration::from_secs(7)).await;
        breaker.heal();
        assert_eq!(breaker.heard().map(|at| at.elapsed()), Some(Duration::ZERO));
        for rest in [1, 2, 4] {
            breaker.trip();
            assert_eq!(breaker.admit().unwrap_err().again, FIRST_REST * rest);
            tokio::time::advance(FIRST_REST * rest).await;
            assert_eq!(breaker.admit(), Ok(()));
        }
        breaker.heal();
        breaker.strike();
        assert_eq!(breaker.admit(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn rests_grow_to_a_minute() {
        let breaker = Breaker::new(Duration::from_secs(30));
        for _ in 0..40 {
            breaker.strike();
        }
        assert_eq!(breaker.admit().unwrap_err().again, LONGEST_REST);
    }
}
