//! How long a feed that failed rests: longer each time, never to the beat of others.

use super::feeds::Failed;
use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use std::time::Duration;
use tokio::time::Instant;

/// The first pause, and the longest that failures in a row lead to.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// How often a feed is asked for that is not there, or not for this login.
const ABSENT: Duration = Duration::from_secs(60);
const REFUSED: Duration = Duration::from_secs(300);

/// A feed that lived for so long has failed for the first time when it fails.
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
            // As much again is added by chance.
            .with_max_delay(LONGEST / 2)
            .without_max_times()
            .with_jitter()
            .build();
        Self { next }
    }

    /// The pause after a failure of a feed that had lived since then, if it ever did.
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
    async fn pauses_grow_to_a_minute_and_begin_anew_after_a_minute_of_life() {
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
