//! Tracks an outage and decides how often to log it.

use std::time::Duration;

/// Interval until the first reminder of an outage; each later interval is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// Longest interval between reminders.
const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);

/// A change to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The outage began.
    Down,
    /// The outage continues, after this time.
    StillDown(Duration),
    /// The outage ended, after this time.
    Up(Duration),
}

/// State of one thing that may be down.
#[derive(Clone, Debug, Default)]
pub(super) struct Outage {
    /// Since when it is down.
    since: Option<Duration>,
    /// After the first line: time of the next reminder, and the last interval.
    again: Option<(Duration, Duration)>,
}

impl Outage {
    /// Updates the state. Outages shorter than `grace` are not logged. Times count from the start.
    pub(super) fn look(&mut self, down: bool, grace: Duration, now: Duration) -> Option<News> {
        if !down {
            let since = self.since.take()?;
            return self.again.take().map(|_| News::Up(now.saturating_sub(since)));
        }
        let lasts = now.saturating_sub(*self.since.get_or_insert(now));
        match self.again {
            None if lasts >= grace => {
                self.again = Some((now + FIRST_PAUSE, FIRST_PAUSE));
                Some(News::Down)
            }
            Some((at, pause)) if now >= at => {
                let pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
                self.again = Some((now + pause, pause));
                Some(News::StillDown(lasts))
            }
            None | Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(3);

    /// The lines for a sequence of seconds, each up (`.`) or down (`x`).
    fn said(course: &str) -> Vec<(u64, News)> {
        let mut outage = Outage::default();
        let seconds = (0..).zip(course.chars());
        let news = seconds.filter_map(|(second, state)| {
            Some((second, outage.look(state == 'x', GRACE, Duration::from_secs(second))?))
        });
        news.collect()
    }

    #[test]
    fn an_outage_is_logged_once_then_at_growing_intervals_and_once_at_its_end() {
        let seconds = Duration::from_secs;
        assert_eq!(said("....."), []);
        assert_eq!(said("..xxx...xxx.."), [], "it is too short");
        assert_eq!(
            said("..xxxxxx..xxxx"),
            [(5, News::Down), (8, News::Up(seconds(6))), (13, News::Down)]
        );
        let day = said(&"x".repeat(86_400));
        let moments: Vec<u64> = day.iter().map(|(at, _)| *at).collect();
        assert_eq!(moments[..9], [3, 63, 183, 423, 903, 1_863, 3_783, 7_383, 10_983]);
        assert_eq!(day[1].1, News::StillDown(seconds(63)));
        assert!(day.len() < 32, "{}", day.len());
    }
}
