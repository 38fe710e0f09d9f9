//! Tracks an outage and decides how often to log it.

use std::time::Duration;

/// Interval until the first reminder of an outage; each later interval is twice as long.
const MIN_REMINDER_INTERVAL: Duration = Duration::from_secs(60);
/// Longest interval between reminders.
const MAX_REMINDER_INTERVAL: Duration = Duration::from_secs(3_600);

/// A change to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutageNotice {
    /// The outage began.
    Down,
    /// The outage continues, after this time.
    StillDown(Duration),
    /// The outage ended, after this time.
    Up(Duration),
}

/// The state of something that may be down.
#[derive(Clone, Debug, Default)]
pub(super) struct Outage {
    /// Since when it has been down, if it is.
    down_since: Option<Duration>,
    /// After the first line: time of the next reminder, and the last interval.
    next_reminder: Option<(Duration, Duration)>,
}

impl Outage {
    /// Updates the state. Outages shorter than `grace` are not logged. Times count from the start.
    pub(super) fn update(
        &mut self,
        down: bool,
        grace: Duration,
        now: Duration,
    ) -> Option<OutageNotice> {
        if !down {
            let since = self.down_since.take()?;
            return self.next_reminder.take().map(|_| OutageNotice::Up(now.saturating_sub(since)));
        }
        let lasts = now.saturating_sub(*self.down_since.get_or_insert(now));
        match self.next_reminder {
            None if lasts >= grace => {
                self.next_reminder = Some((now + MIN_REMINDER_INTERVAL, MIN_REMINDER_INTERVAL));
                Some(OutageNotice::Down)
            }
            Some((at, pause)) if now >= at => {
                let pause = pause.saturating_mul(2).min(MAX_REMINDER_INTERVAL);
                self.next_reminder = Some((now + pause, pause));
                Some(OutageNotice::StillDown(lasts))
            }
            None | Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(3);

    /// The notices for a sequence of seconds, each up (`.`) or down (`x`).
    fn notices(course: &str) -> Vec<(u64, OutageNotice)> {
        let mut outage = Outage::default();
        let seconds = (0..).zip(course.chars());
        let notice = seconds.filter_map(|(second, state)| {
            Some((second, outage.update(state == 'x', GRACE, Duration::from_secs(second))?))
        });
        notice.collect()
    }

    #[test]
    fn logs_outage_at_growing_intervals_and_at_its_end() {
        let seconds = Duration::from_secs;
        assert_eq!(notices("....."), []);
        assert_eq!(notices("..xxx...xxx.."), [], "too short to be logged");
        assert_eq!(
            notices("..xxxxxx..xxxx"),
            [(5, OutageNotice::Down), (8, OutageNotice::Up(seconds(6))), (13, OutageNotice::Down)]
        );
        let day = notices(&"x".repeat(86_400));
        let moments: Vec<u64> = day.iter().map(|(at, _)| *at).collect();
        assert_eq!(moments[..9], [3, 63, 183, 423, 903, 1_863, 3_783, 7_383, 10_983]);
        assert_eq!(day[1].1, OutageNotice::StillDown(seconds(63)));
        assert!(day.len() < 32, "{}", day.len());
    }
}
