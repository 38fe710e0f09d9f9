//! A circuit breaker for one server or node.
//!
//! After several failures in a row, or as soon as the server is found to hang, it gets one request
//! at a time, at growing intervals.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::Semaphore, time::Instant};

/// Consecutive failures that open the breaker.
const FAILURE_THRESHOLD: u32 = 3;
/// Length of the first pause; each further failure doubles it.
const MIN_REST: Duration = Duration::from_secs(5);
/// Maximum length of a pause.
const MAX_REST: Duration = Duration::from_secs(60);

/// Counts the consecutive failures of one server or node.
#[derive(Debug)]
pub(super) struct Breaker {
    state: Mutex<State>,
    /// How long a probe request holds the others back.
    probe_timeout: Duration,
    /// Lets one check at a time find out whether the server hangs.
    pub(super) hang_check: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// When one request may go out.
    until: Option<Instant>,
    /// When the last answer came.
    alive_at: Option<Instant>,
}

impl State {
    const fn is_tripped(&self) -> bool {
        self.failures >= FAILURE_THRESHOLD
    }

    /// How long the next request has to wait.
    fn retry_in(&self) -> Duration {
        let until = self.until.filter(|_| self.is_tripped());
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }
}

/// Why a request is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resting {
    pub(super) failures: u32,
    pub(super) retry_in: Duration,
}

impl Breaker {
    /// `timeout` is the maximum time that a request takes to fail.
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            state: Mutex::default(),
            probe_timeout: timeout.saturating_add(Duration::from_secs(1)),
            hang_check: Semaphore::new(1),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a request if there are few failures, or as the single probe after a pause.
    pub(super) fn admit(&self) -> Result<(), Resting> {
        let mut state = self.state();
        let retry_in = state.retry_in();
        if !retry_in.is_zero() {
            return Err(Resting { failures: state.failures, retry_in });
        }
        if state.is_tripped() {
            state.until = Some(Instant::now() + self.probe_timeout);
        }
        Ok(())
    }

    /// Whether requests are held back now. Does not use up the probe.
    pub(super) fn is_resting(&self) -> bool {
        !self.state().retry_in().is_zero()
    }

    /// Whether the last request failed.
    pub(super) fn last_failed(&self) -> bool {
        self.state().failures > 0
    }

    /// Whether no answer has come since requests were first held back.
    pub(super) fn is_tripped(&self) -> bool {
        self.state().is_tripped()
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

    /// Adds one failure, or raises the count to `at_least`; at the threshold, requests pause.
    fn count_failure(&self, at_least: u32) {
        let mut state = self.state();
        state.failures = state.failures.saturating_add(1).max(at_least);
        if state.is_tripped() {
            let doubled = 1_u32 << state.failures.saturating_sub(FAILURE_THRESHOLD).min(8);
            let rest = MIN_REST.saturating_mul(doubled).min(MAX_REST);
            state.until = Some(Instant::now() + rest);
        }
    }

    /// When the last answer arrived, if any did.
    pub(super) fn last_alive(&self) -> Option<Instant> {
        self.state().alive_at
    }

    /// Records a sign of life, which does not mean that requests succeed.
    pub(super) fn record_alive(&self) {
        self.state().alive_at = Some(Instant::now());
    }

    /// Records an answer.
    pub(super) fn record_success(&self) {
        let mut state = self.state();
        state.alive_at = Some(Instant::now());
        state.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_after_three_failures_then_admits_one_probe() {
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
    async fn hang_pauses_requests_at_once_and_longer_each_time() {
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
    async fn pauses_grow_to_at_most_a_minute() {
        let breaker = Breaker::new(Duration::from_secs(30));
        for _ in 0..40 {
            breaker.record_failure();
        }
        assert_eq!(breaker.admit().unwrap_err().retry_in, MAX_REST);
    }
}
