//! Windows of time in which a channel may start jobs.
//!
//! Owns the question "is it open at this moment, and until when", across midnight,
//! week days and daylight saving, and the notation of days, times and zones. Pure: the
//! moment comes in as an argument. `plan` asks, `config` reads and writes.

mod days;
mod parse;

pub use days::{DAY_NAMES, Days, ParseDaysError};
pub use parse::{Edge, ParseTimeError, ParseZoneError, shown_time, time, zone, zone_name};

use jiff::{
    Timestamp,
    civil::{self, DateTime},
    tz::{AmbiguousOffset, TimeZone},
};
use wall_clock::Moment;

/// How far ahead a change is looked for: every state of a weekly rule shows within it,
/// also where daylight saving swallows one opening.
const HORIZON_DAYS: u64 = 15;

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
        let Some(local) = self.local(now) else {
            return false;
        };
        let today = self.days.has(local.date().weekday());
        let time = local.time();
        if self.from < self.to {
            return today && self.from <= time && time < self.to;
        }
        let began_yesterday =
            local.date().yesterday().is_ok_and(|yesterday| self.days.has(yesterday.weekday()));
        (today && time >= self.from) || (began_yesterday && time < self.to)
    }

    /// Whether it is open at every moment.
    #[must_use]
    pub fn never_closes(&self) -> bool {
        self.days == Days::ALL && self.from == self.to
    }

    fn local(&self, now: Moment) -> Option<DateTime> {
        let stamp = Timestamp::from_second(i64::try_from(now.unix()).ok()?).ok()?;
        Some(self.zone.to_datetime(stamp))
    }

    /// Every moment after `now`, up to the horizon, at which its state may change: its ends
    /// on each day, and the zone's own jumps.
    fn edges(&self, now: Moment, out: &mut Vec<Moment>) {
        let Some(local) = self.local(now) else {
            return;
        };
        let mut push = |stamp: Timestamp| {
            if let Ok(second) = u64::try_from(stamp.as_second()) {
                let moment = Moment::from_unix(second);
                if moment > now {
                    out.push(moment);
                }
            }
        };
        let mut date = local.date();
        for _ in 0..HORIZON_DAYS {
            for time in [self.from, self.to] {
                let at = date.to_datetime(time);
                let offsets = match self.zone.to_ambiguous_timestamp(at).offset() {
                    AmbiguousOffset::Unambiguous { offset } => [Some(offset), None],
                    AmbiguousOffset::Fold { before, after } => [Some(before), Some(after)],
                    // The clock jumps over it: the jump itself is an edge, seen below.
                    AmbiguousOffset::Gap { .. } => [None, None],
                };
                for offset in offsets.into_iter().flatten() {
                    if let Ok(stamp) = offset.to_timestamp(at) {
                        push(stamp);
                    }
                }
            }
            match date.tomorrow() {
                Ok(tomorrow) => date = tomorrow,
                Err(_) => break,
            }
        }
        let horizon = now.plus(std::time::Duration::from_secs(86_400 * HORIZON_DAYS));
        if let Ok(start) = Timestamp::from_second(i64::try_from(now.unix()).unwrap_or(i64::MAX)) {
            for jump in self.zone.following(start) {
                if jump.timestamp().as_second() > i64::try_from(horizon.unix()).unwrap_or(i64::MAX)
                {
                    break;
                }
                push(jump.timestamp());
            }
        }
    }
}

/// Whether any of `windows` is open at `now`; without windows it is always open.
#[must_use]
pub fn open_at(windows: &[Window], now: Moment) -> bool {
    windows.is_empty() || windows.iter().any(|window| window.open_at(now))
}

/// When the answer of [`open_at`] changes next: where it is open its closing, else its next
/// opening. `None` when it stays as it is for the next two weeks, which is for ever.
#[must_use]
pub fn next_change(windows: &[Window], now: Moment) -> Option<Moment> {
    let open = open_at(windows, now);
    edges_after(windows, now).into_iter().find(|at| open_at(windows, *at) != open)
}

/// Since when the answer of [`open_at`] is what it is: the last opening or closing. `None`
/// when it was the same for a week and more.
#[must_use]
pub fn last_change(windows: &[Window], now: Moment) -> Option<Moment> {
    // Edges are looked for from there on, today's and those of a day made longer by daylight
    // saving included.
    let horizon = Moment::from_unix(now.unix().saturating_sub(86_400 * (HORIZON_DAYS - 2)));
    let mut open = open_at(windows, horizon);
    let mut last = None;
    for at in edges_after(windows, horizon).into_iter().take_while(|at| *at <= now) {
        if open_at(windows, at) != open {
            open = !open;
            last = Some(at);
        }
    }
    last
}

/// Every moment at which the answer may change, in order.
fn edges_after(windows: &[Window], now: Moment) -> Vec<Moment> {
    let mut edges = Vec::new();
    for window in windows {
        window.edges(now, &mut edges);
    }
    edges.sort_unstable();
    edges
}

#[cfg(test)]
mod tests;
