//! Windows of time in which a channel may start jobs.
//!
//! Owns the question "is it open at this moment, and until when", across midnight,
//! week days and daylight saving. Pure: the moment comes in as an argument.

use crate::clock::Moment;
use jiff::{Timestamp, civil, tz::TimeZone};

/// Days of the week, Monday first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Days([bool; 7]);

impl Days {
    /// Every day.
    pub const ALL: Self = Self([true; 7]);
}

/// One window: from a time of day to another, on the days it begins on, in a time zone.
///
/// When `from` is not before `to`, it runs over midnight and belongs to the day it begins
/// on. Equal ends mean the whole day.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// The days it begins on.
    pub days: Days,
    /// When it opens.
    pub from: civil::Time,
    /// When it closes; midnight stands for the day's end.
    pub to: civil::Time,
    /// Whose clock it follows.
    pub zone: TimeZone,
}

impl Window {
    /// Whether it is open at `now`.
    #[must_use]
    pub fn open_at(&self, now: Moment) -> bool {
        let Ok(stamp) = Timestamp::from_second(i64::try_from(now.unix()).unwrap_or(i64::MAX))
        else {
            return false;
        };
        let local = stamp.to_zoned(self.zone.clone()).datetime();
        let today = self.days.has(local.date().weekday());
        let time = local.time();
        if self.from < self.to {
            return today && self.from <= time && time < self.to;
        }
        let began_yesterday =
            local.date().yesterday().is_ok_and(|yesterday| self.days.has(yesterday.weekday()));
        (today && time >= self.from) || (began_yesterday && time < self.to)
    }
}

impl Days {
    /// Whether `day` is among them.
    #[must_use]
    pub fn has(self, day: civil::Weekday) -> bool {
        let at = usize::try_from(day.to_monday_zero_offset()).unwrap_or_default();
        self.0.get(at).copied().unwrap_or_default()
    }
}
