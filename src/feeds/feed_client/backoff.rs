//! Pauses after failures of a feed: increasing, with jitter so that feeds do not synchronise.

use super::change_feeds::FeedFailure;
use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use std::time::Duration;
use tokio::time::Instant;

/// The first pause, and the longest after successive failures.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Pauses if the feed does not exist, or the login may not read it.
const ABSENT_PAUSE: Duration = Duration::from_secs(60);
const REFUSED_PAUSE: Duration = Duration::from_secs(300);

/// A failure of a feed that has worked for this long counts as the first one.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);

/// The pauses of one feed.
#[derive(Debug)]
pub(super) struct FeedBackoff {
    next: ExponentialBackoff,
}

impl FeedBackoff {
    pub(super) fn new() -> Self {
        let next = ExponentialBuilder::default()
            .with_min_delay(MIN_PAUSE)
            // Jitter may double the delay.
            .with_max_delay(MAX_PAUSE / 2)
            .without_max_times()
            .with_jitter()
            .build();
        Self { next }
    }

    /// The pause after a failure. `worked_since` is when the feed last began to work, if it did.
    pub(super) fn next_pause(
        &mut self,
        failed: FeedFailure,
        worked_since: Option<Instant>,
    ) -> Duration {
        if worked_since.is_some_and(|since| since.elapsed() >= HEALTHY_AFTER) {
            *self = Self::new();
        }
        let next = self.next.next().unwrap_or(MAX_PAUSE);
        match failed {
            FeedFailure::Absent => ABSENT_PAUSE + next / 10,
            FeedFailure::Refused => REFUSED_PAUSE + next,
            FeedFailure::BadSequence | FeedFailure::Malformed | FeedFailure::Broken => next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_to_a_minute_and_restart_when_healthy() {
        let mut pauses = FeedBackoff::new();
        let all: Vec<Duration> =
            (0..12).map(|_| pauses.next_pause(FeedFailure::Broken, Some(Instant::now()))).collect();
        assert!(all[0] >= MIN_PAUSE && all[0] <= 2 * MIN_PAUSE, "{all:?}");
        assert!(all[11] >= MAX_PAUSE / 2 && all[11] <= MAX_PAUSE, "{all:?}");
        assert!(pauses.next_pause(FeedFailure::Absent, None) >= ABSENT_PAUSE);
        let worked_since = Instant::now();
        tokio::time::advance(HEALTHY_AFTER).await;
        assert!(pauses.next_pause(FeedFailure::Broken, Some(worked_since)) <= 2 * MIN_PAUSE);
    }
}
