//! The rate limit of cold reads: each may cost the server an fsync.
//!
//! A token bucket: a number of reads per second, and after a pause a tenth of that at once.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// Limits reads to a number per second.
#[derive(Debug)]
pub(super) struct TokenBucket {
    created: Instant,
    /// Nanoseconds from one read to the next.
    interval: u64,
    /// How far ahead of schedule a read may begin, in nanoseconds.
    ahead: u64,
    /// When the next read is due if all begin on time, in nanoseconds after `created`.
    due: AtomicU64,
}

impl TokenBucket {
    /// Allows this many per second, evenly except for a burst of a tenth; `None` for 0, which is
    /// unlimited.
    pub(super) fn new(per_second: u32) -> Option<Self> {
        let interval = 1_000_000_000_u64.checked_div(per_second.into())?;
        let burst = u64::from(per_second / 10).max(1);
        let ahead = interval.saturating_mul(burst - 1);
        Some(Self { created: Instant::now(), interval, ahead, due: AtomicU64::new(0) })
    }

    /// Waits until a read may begin. A cancelled wait costs nothing.
    pub(super) async fn wait_for_turn(&self) {
        loop {
            let now = u64::try_from(self.created.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let Err(wait) = self.take(now) else { return };
            sleep(wait).await;
        }
    }

    /// Admits a read, or returns how long it has to wait.
    fn take(&self, now: u64) -> Result<(), Duration> {
        let latest = now.saturating_add(self.ahead);
        let next = |due: u64| (due <= latest).then(|| due.max(now).saturating_add(self.interval));
        match self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => Ok(()),
            Err(due) => Err(Duration::from_nanos(due.saturating_sub(latest))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    #[tokio::test(start_paused = true)]
    async fn keeps_the_configured_rate() {
        let pace = TokenBucket::new(50).unwrap();
        let start = Instant::now();
        for _ in 0..505 {
            pace.wait_for_turn().await;
        }
        let took = start.elapsed().as_secs_f64();
        assert!((9.9..10.6).contains(&took), "{took}");
        assert!(TokenBucket::new(0).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_waits_use_no_turn() {
        let pace = TokenBucket::new(10).unwrap();
        pace.wait_for_turn().await;
        for _ in 0..100 {
            let given_up =
                tokio::time::timeout(Duration::from_millis(1), pace.wait_for_turn()).await;
            assert!(given_up.is_err() || pace.created.elapsed() >= Duration::from_millis(100));
        }
        let start = Instant::now();
        pace.wait_for_turn().await;
        assert!(start.elapsed() <= Duration::from_millis(101), "{:?}", start.elapsed());
    }

    proptest! {
        #[test]
        fn grants_a_token_after_the_returned_wait_and_keeps_the_rate(
            per_second in 1_u32..100_000,
            pauses in proptest::collection::vec(0_u64..2 * SECOND, 1..200),
        ) {
            let pace = TokenBucket::new(per_second).unwrap();
            let share = usize::try_from(per_second + (per_second / 10).max(1)).unwrap();
            let (mut now, mut taken) = (0, Vec::new());
            for pause in pauses {
                now += pause;
                if let Err(wait) = pace.take(now) {
                    now += u64::try_from(wait.as_nanos()).unwrap();
                    prop_assert_eq!(pace.take(now), Ok(()));
                }
                taken.push(now);
                let in_a_second = taken.iter().filter(|at| now - **at < SECOND).count();
                prop_assert!(in_a_second <= share, "{} of {}", in_a_second, share);
            }
        }
    }
}
