//! Pauses after failures of a feed: increasing, with jitter so that feeds do not synchronise.

use super::feeds::Failed;
use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use std::time::Duration;
use tokio::time::Instant;

/// The first pause, and the longest after successive failures.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Pauses if the feed does not exist, or the login may not read it.
const ABSENT: Duration = Duration::from_secs(60);
const REFUSED: Duration = Duration::from_secs(300);

/// After working for this long, a failure counts as the first one.
const LIVED: Duration = Duration::from_secs(60);

/// The pauses of one feed.
#[derive(Debug)]
pub(super) struct Pauses {
    next: ExponentialBackoff,
}

impl Pauses {
    pub(super) fn new() -> Self {
        let next = ExponentialBuilder::default()
            .with_min_delay(FIRST)
            // Jitter may double the delay.
            .with_max_delay(LONGEST / 2)
            .without_max_times()
            .with_jitter()
            .build();
        Self { next }
    }

    /// The pause after a failure. `lived` is when the feed last began to work, if it did.
    pub(super) fn after(&mut self, failed: Failed, lived: Option<Instant>) -> Duration {
        if lived.is_some_and(|since| since.elapsed() >= LIVED) {
            *self = Self::new();
        }
        let next = self.next.next().unwrap_or(LONGEST);
        match failed {
            Failed::Absent => ABSENT + next / 10,
            Failed::Refused => REFUSED + next,
            Failed::BadSequence | Failed::Garbage | Failed::Broken => next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_to_a_minute_and_restart_after_a_minute_of_health() {
        let mut pauses = Pauses::new();
        let all: Vec<Duration> =
            (0..12).map(|_| pauses.after(Failed::Broken, Some(Instant::now()))).collect();
        assert!(all[0] >= FIRST && all[0] <= 2 * FIRST, "{all:?}");
        assert!(all[11] >= LONGEST / 2 && all[11] <= LONGEST, "{all:?}");
        assert!(pauses.after(Failed::Absent, None) >= ABSENT);
        let lived = Instant::now();
        tokio::time::advance(LIVED).await;
        assert!(pauses.after(Failed::Broken, Some(lived)) <= 2 * FIRST);
    }
}
