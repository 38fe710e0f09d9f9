//! Time: the only place that reads a clock.
//!
//! Owns the two clocks of the program: wall time for values that are stored, shown or compared
//! with a window, and tokio's clock for waiting. Every policy rule takes `now` as an argument;
//! only tasks and commands read the clock here.

use serde::{Deserialize, Serialize};
use std::time::{Duration, UNIX_EPOCH};

/// A moment of wall time, in whole seconds since 1970 (UTC).
///
/// Four bytes, because a million rows contain one; it lasts until 2106. It is never compared with
/// the clocks of CouchDB's nodes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Moment(u32);

impl Moment {
    /// The moment `seconds` after 1970, clamped to the representable range.
    #[must_use]
    pub const fn from_unix(seconds: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "checked, and try_from is not const")]
        Self(if seconds > u32::MAX as u64 { u32::MAX } else { seconds as u32 })
    }

    /// Seconds since 1970.
    pub const fn unix(self) -> u64 {
        self.0 as u64
    }

    /// The time since this moment at `now`; zero if it is in the future, as after a clock was set
    /// back.
    pub fn age(self, now: Self) -> Duration {
        Duration::from_secs(u64::from(now.0.saturating_sub(self.0)))
    }

    /// The time between two moments, in either order.
    pub fn distance(self, other: Self) -> Duration {
        self.age(other).max(other.age(self))
    }

    /// The moment `span` later, clamped.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self::from_unix(self.unix().saturating_add(span.as_secs()))
    }

    /// The moment moved by the step by which a clock was set from `before` to `now`, saturating.
    #[must_use]
    pub fn shifted(self, before: Self, now: Self) -> Self {
        Self::from_unix((self.unix() + now.unix()).saturating_sub(before.unix()))
    }

    /// Parses RFC 3339 or a number of seconds since 1970; `None` for times before 1970.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let stamp = || Some(text.parse::<jiff::Timestamp>().ok()?.as_second());
        let seconds = text.parse::<u64>().ok();
        seconds.or_else(|| u64::try_from(stamp()?).ok()).map(Self::from_unix)
    }

    /// Parses the date of an HTTP header, `Fri, 27 Nov 2026 02:11:22 GMT`.
    #[must_use]
    pub fn parse_http(text: &str) -> Option<Self> {
        let stamp = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
        u64::try_from(stamp.as_second()).ok().map(Self::from_unix)
    }

    /// RFC 3339 in UTC with whole seconds, as in JSON and tables.
    pub fn rfc3339(self) -> String {
        jiff::Timestamp::from_second(i64::from(self.0))
            .map_or_else(|_| self.0.to_string(), |stamp| stamp.to_string())
    }

    /// The date in UTC, such as `2026-11-21`.
    pub fn date(self) -> String {
        self.rfc3339().chars().take(10).collect()
    }
}

/// A source of the current time that replaces the system's clock.
pub trait TimeSource: std::fmt::Debug + Send + Sync {
    /// The current time.
    fn now(&self) -> Moment;
}

/// The source of the current time.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The system's wall clock.
    System,
    /// A wall clock that starts at `wall` and advances with tokio's clock, so that a test on
    /// paused time controls windows and ages too.
    Anchored {
        /// Wall time at the anchor.
        wall: Moment,
        /// Tokio's time at the anchor.
        at: tokio::time::Instant,
    },
    /// A clock that the caller provides, such as that of a machine whose clock is set back.
    Custom(&'static dyn TimeSource),
}

impl Clock {
    /// A clock that reads `wall` now and advances with tokio's clock.
    #[must_use]
    pub fn anchored(wall: Moment) -> Self {
        Self::Anchored { wall, at: tokio::time::Instant::now() }
    }

    /// The current time.
    pub fn now(self) -> Moment {
        match self {
            Self::System => {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "this is the one reader of the wall clock"
                )]
                let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH);
                Moment::from_unix(since.unwrap_or_default().as_secs())
            }
            Self::Anchored { wall, at } => wall.plus(at.elapsed()),
            Self::Custom(source) => source.now(),
        }
    }
}

/// Compiles and runs the examples of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_of_a_future_moment_is_zero() {
        let now = Moment::from_unix(1_000);
        assert_eq!(Moment::from_unix(2_000).age(now), Duration::ZERO);
        let before = Moment::from_unix(400);
        assert_eq!(before.age(now), Duration::from_secs(600));
        assert_eq!(
            (before.distance(now), now.distance(before)),
            (before.age(now), before.age(now))
        );
    }

    #[test]
    fn moments_print_as_utc() {
        assert_eq!(Moment::from_unix(1_795_222_434).rfc3339(), "2026-11-21T00:53:54Z");
    }

    #[tokio::test(start_paused = true)]
    async fn an_anchored_clock_follows_paused_time() {
        let clock = Clock::anchored(Moment::from_unix(100));
        tokio::time::advance(Duration::from_secs(42)).await;
        assert_eq!(clock.now(), Moment::from_unix(142));
    }

    #[test]
    fn custom_clock_determines_the_time() {
        #[derive(Debug)]
        struct Stopped;
        impl TimeSource for Stopped {
            fn now(&self) -> Moment {
                Moment::from_unix(7)
            }
        }
        assert_eq!(Clock::Custom(&Stopped).now(), Moment::from_unix(7));
    }
}
