//! Time windows in which a channel may start jobs.
//!
//! Decides whether a window is open at a moment and until when, across midnight, week days and
//! daylight saving; owns the notation of days, times and zones. Pure: the moment is an argument.
//! `plan` evaluates windows; `config` reads and writes them.

mod days;
mod parse;

pub use days::{DAY_NAMES, Days};
pub use parse::{WindowEnd, format_time, parse_time, parse_zone, zone_name};

use jiff::{
    Timestamp,
    civil::{self, DateTime},
    tz::{AmbiguousOffset, TimeZone},
};
use std::time::Duration;
use wall_clock::Moment;

/// How far ahead a change is searched: every state of a weekly rule occurs within this span, even
/// if daylight saving skips one opening.
const HORIZON_DAYS: u64 = 15;

/// One window: between two times of day, on the days on which it begins, in a time zone.
///
/// If `from` is not before `to`, it spans midnight and belongs to the day on which it begins.
/// Equal ends mean the whole day.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// The days on which it begins.
    pub days: Days,
    /// When it opens.
    pub from: civil::Time,
    /// When it closes; midnight means the end of the day.
    pub to: civil::Time,
    /// Its time zone.
    pub zone: TimeZone,
}

impl Window {
    /// Whether it is open at `now`.
    #[must_use]
    pub fn is_open_at(&self, now: Moment) -> bool {
        let Some(local) = self.local(now) else {
            return false;
        };
        let today = self.days.contains(local.date().weekday());
        let time = local.time();
        if self.from < self.to {
            return today && self.from <= time && time < self.to;
        }
        let began_yesterday =
            local.date().yesterday().is_ok_and(|yesterday| self.days.contains(yesterday.weekday()));
        (today && time >= self.from) || (began_yesterday && time < self.to)
    }

    /// Whether it is open at all times.
    #[must_use]
    pub fn is_always_open(&self) -> bool {
        self.days == Days::ALL && self.from == self.to
    }

    fn local(&self, now: Moment) -> Option<DateTime> {
        let stamp = Timestamp::from_second(i64::try_from(now.unix()).ok()?).ok()?;
        Some(self.zone.to_datetime(stamp))
    }

    /// Every moment after `now`, up to the horizon, at which its state may change: its ends on
    /// each day, and the zone's own transitions.
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
                    // The clock skips this time; the transition itself is added below.
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
        let horizon = now.plus(Duration::from_secs(86_400 * HORIZON_DAYS));
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
pub fn any_open_at(windows: &[Window], now: Moment) -> bool {
    windows.is_empty() || windows.iter().any(|window| window.is_open_at(now))
}

/// When the result of [`any_open_at`] changes next. `None` if it does not change within the next two
/// weeks, which means never.
#[must_use]
pub fn next_change(windows: &[Window], now: Moment) -> Option<Moment> {
    let open = any_open_at(windows, now);
    edges_after(windows, now).into_iter().find(|at| any_open_at(windows, *at) != open)
}

/// The longest time without a break in which [`any_open_at`] holds, within the next two weeks; none if it
/// holds all the time.
#[must_use]
pub fn longest_opening(windows: &[Window], now: Moment) -> Option<Duration> {
    let mut since = any_open_at(windows, now).then_some(now);
    let (mut longest, mut closes) = (Duration::ZERO, since.is_none());
    for at in edges_after(windows, now) {
        match (since, any_open_at(windows, at)) {
            (Some(opened), false) => {
                longest = longest.max(opened.age(at));
                (since, closes) = (None, true);
            }
            (None, true) => since = Some(at),
            (Some(_), true) | (None, false) => {}
        }
    }
    closes.then_some(longest)
}

/// When the result of [`any_open_at`] last changed. `None` if it did not change for a week and more.
#[must_use]
pub fn last_change(windows: &[Window], now: Moment) -> Option<Moment> {
    // The search starts at the horizon, so that it includes today's edges and those of a day that
    // daylight saving made longer.
    let horizon = Moment::from_unix(now.unix().saturating_sub(86_400 * (HORIZON_DAYS - 2)));
    let mut open = any_open_at(windows, horizon);
    let mut last = None;
    for at in edges_after(windows, horizon).into_iter().take_while(|at| *at <= now) {
        if any_open_at(windows, at) != open {
            open = !open;
            last = Some(at);
        }
    }
    last
}

/// Every moment at which the result may change, in order.
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
