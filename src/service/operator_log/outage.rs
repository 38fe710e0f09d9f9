//! What is down and for how long, and how often that is worth a line.

use std::time::Duration;

/// The first pause after it was said that something is down; each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);

/// What there is to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It is down.
    Down,
    /// It is still down, after so long.
    StillDown(Duration),
    /// It is up again, after so long.
    Up(Duration),
}

/// One thing that may be down.
#[derive(Clone, Debug, Default)]
pub(super) struct Outage {
    /// Since when it is.
    since: Option<Duration>,
    /// When that is said again, once it was said, and the pause before.
    again: Option<(Duration, Duration)>,
}

impl Outage {
    /// Looks at it; what lasts for less than `grace` is not worth a line. Moments count from
    /// the start.
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

    /// What is said of a course, in seconds: each second is up (`.`) or down (`x`).
    fn said(course: &str) -> Vec<(u64, News)> {
        let mut outage = Outage::default();
        let seconds = (0..).zip(course.chars());
        let news = seconds.filter_map(|(second, state)| {
            Some((second, outage.look(state == 'x', GRACE, Duration::from_secs(second))?))
        });
        news.collect()
    }

    #[test]
    fn it_is_said_once_and_then_ever_more_seldom_and_once_when_it_is_over() {
        let seconds = Duration::from_secs;
        assert_eq!(said("....."), []);
        assert_eq!(said("..xxx...xxx.."), [], "it lasts for a moment");
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
