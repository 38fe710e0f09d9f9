//! A circuit breaker for one server or node.
//!
//! After several failures in a row, or as soon as the server is found to hang, it gets one request
//! at a time, at growing intervals.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};
use tokio::{sync::Semaphore, time::Instant};

/// Failures in a row before a rest.
const FAILURE_THRESHOLD: u32 = 3;
/// The first rest; each failure after it doubles it.
const MIN_REST: Duration = Duration::from_secs(5);
/// The longest rest.
const MAX_REST: Duration = Duration::from_secs(60);

/// Counts the failures in a row of one server or node.
#[derive(Debug)]
pub(super) struct Breaker {
    created: Instant,
    failures: AtomicU32,
    /// Milliseconds after `created` at which one request may go out.
    until: AtomicU64,
    /// How long a request sent as a probe holds the others back.
    probe_timeout: Duration,
    /// Milliseconds after `created` of the last answer, one more, so that 0 means none.
    alive_at: AtomicU64,
    /// Lets one check at a time find out whether the server hangs.
    pub(super) hang_check: Semaphore,
}

/// Why a request is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resting {
    pub(super) failures: u32,
    pub(super) retry_in: Duration,
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl Breaker {
    /// `timeout` is the longest a request takes to fail.
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            created: Instant::now(),
            failures: AtomicU32::new(0),
            until: AtomicU64::new(0),
            probe_timeout: timeout.saturating_add(Duration::from_secs(1)),
            alive_at: AtomicU64::new(0),
            hang_check: Semaphore::new(1),
        }
    }

    fn now(&self) -> u64 {
        millis(self.created.elapsed())
    }

    /// Admits a request if there are few failures, or as the one probe after a rest.
    pub(super) fn admit(&self) -> Result<(), Resting> {
        let failures = self.failures.load(Ordering::Relaxed);
        if failures < FAILURE_THRESHOLD {
            return Ok(());
        }
        let now = self.now();
        let until = self.until.load(Ordering::Relaxed);
        let next = now.saturating_add(millis(self.probe_timeout));
        let free = now >= until
            && self
                .until
                .compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if free {
            return Ok(());
        }
        let until = self.until.load(Ordering::Relaxed);
        Err(Resting { failures, retry_in: Duration::from_millis(until.saturating_sub(now)) })
    }

    /// Whether requests are held back now. Does not use up the probe.
    pub(super) fn is_resting(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= FAILURE_THRESHOLD
            && self.now() < self.until.load(Ordering::Relaxed)
    }

    /// Whether the last request failed.
    pub(super) fn last_failed(&self) -> bool {
        self.failures.load(Ordering::Relaxed) > 0
    }

    /// Whether no answer has come since requests were first held back.
    pub(super) fn is_tripped(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= FAILURE_THRESHOLD
    }

    /// Records a request that got no answer.
    pub(super) fn record_failure(&self) {
        self.count_failure(1);
    }

    /// Records that the server or node hangs. More failures would add nothing, so requests are held
    /// back at once.
    pub(super) fn record_hang(&self) {
        self.count_failure(FAILURE_THRESHOLD);
    }

    /// Counts one failure, as at least this many in a row, and rests once there are enough.
    fn count_failure(&self, at_least: u32) {
        let counted = |failures: u32| failures.saturating_add(1).max(at_least);
        let before = self
            .failures
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |failures| Some(counted(failures)));
        let failures = counted(before.unwrap_or_else(|failures| failures));
        if failures < FAILURE_THRESHOLD {
            return;
        }
        let doubled = 1_u32 << failures.saturating_sub(FAILURE_THRESHOLD).min(8);
        let rest = MIN_REST.saturating_mul(doubled).min(MAX_REST);
        self.until.store(self.now().saturating_add(millis(rest)), Ordering::Relaxed);
    }

    /// When the last answer came, if one ever did.
    pub(super) fn last_alive(&self) -> Option<Instant> {
        let after = self.alive_at.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.created + Duration::from_millis(after))
    }

    /// Records a sign of life, which does not mean that requests succeed.
    pub(super) fn record_alive(&self) {
        self.alive_at.store(self.now().saturating_add(1), Ordering::Relaxed);
    }

    /// Records an answer.
    pub(super) fn record_success(&self) {
        self.record_alive();
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
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
            breaker.record_failure();
            assert_eq!(breaker.admit(), Ok(()));
        }
        breaker.record_failure();
        assert!(breaker.is_resting());
        assert_eq!(breaker.admit(), Err(Resting { failures: 3, retry_in: MIN_REST }));
        tokio::time::advance(MIN_REST).await;
        assert_eq!(breaker.admit(), Ok(()));
        assert!(breaker.admit().is_err(), "one probe at a time");
        breaker.record_failure();
        assert_eq!(breaker.admit(), Err(Resting { failures: 4, retry_in: MIN_REST * 2 }));
        breaker.record_success();
        assert_eq!(breaker.admit(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_hangs_rests_at_once_and_longer_each_time() {
        let breaker = Breaker::new(Duration::from_secs(30));
        assert_eq!(breaker.last_alive(), None);
        tokio::time::advance(Duration::from_secs(7)).await;
        breaker.record_success();
        assert_eq!(breaker.last_alive().map(|at| at.elapsed()), Some(Duration::ZERO));
        for rest in [1, 2, 4] {
            breaker.record_hang();
            assert_eq!(breaker.admit().unwrap_err().retry_in, MIN_REST * rest);
            tokio::time::advance(MIN_REST * rest).await;
            assert_eq!(breaker.admit(), Ok(()));
        }
        breaker.record_success();
        breaker.record_failure();
        assert_eq!(breaker.admit(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn rests_grow_to_a_minute() {
        let breaker = Breaker::new(Duration::from_secs(30));
        for _ in 0..40 {
            breaker.record_failure();
        }
        assert_eq!(breaker.admit().unwrap_err().retry_in, MAX_REST);
    }
}
