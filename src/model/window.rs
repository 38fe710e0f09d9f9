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

/// How far ahead a change is searched for: every state of a weekly rule occurs within this span,
/// even if daylight saving skips one opening.
const HORIZON: Duration = Duration::from_secs(15 * 86_400);

/// One window: between two times of day in a time zone, on the days on which it begins.
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
    pub fn is_always_open(&self) -> bool {
        self.days == Days::ALL && self.from == self.to
    }

    fn local(&self, now: Moment) -> Option<DateTime> {
        Some(self.zone.to_datetime(timestamp(now)?))
    }

    /// Every moment of a span at which its state may change: its opening and closing times on each
    /// day, and the zone's own transitions.
    fn edges(&self, (from, until): (Moment, Moment)) -> Vec<Moment> {
        let mut edges = Vec::new();
        let (Some(local), Some(start)) = (self.local(from), timestamp(from)) else { return edges };
        let mut push = |stamp: Timestamp| {
            let moment = u64::try_from(stamp.as_second()).map(Moment::from_unix);
            edges.extend(moment.ok().filter(|moment| from < *moment && *moment <= until));
        };
        let days = 1 + until.unix().saturating_sub(from.unix()) / 86_400;
        let mut date = local.date();
        for _ in 0..=days {
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
        let jumps = self.zone.following(start).map(|jump| jump.timestamp());
        let end = timestamp(until).unwrap_or(Timestamp::MAX);
        jumps.take_while(|jump| *jump <= end).for_each(push);
        edges
    }
}

fn timestamp(at: Moment) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(at.unix()).ok()?).ok()
}

/// Whether any of `windows` is open at `now`; with an empty list, always.
pub fn any_open_at(windows: &[Window], now: Moment) -> bool {
    windows.is_empty() || windows.iter().any(|window| window.is_open_at(now))
}

/// When [`any_open_at`] changes, over some weeks: computed once, it answers questions for two
/// weeks.
#[derive(Clone, Debug)]
pub struct Openings {
    /// The period that is covered.
    span: (Moment, Moment),
    /// Whether a window is open when the period begins.
    begins_open: bool,
    /// The changes, in order.
    changes: Vec<Moment>,
}

impl Openings {
    /// The openings of these windows, for questions about `now` and later.
    pub fn of(windows: &[Window], now: Moment) -> Self {
        let from = Moment::from_unix(now.unix().saturating_sub(HORIZON.as_secs()));
        let span = (from, now.plus(HORIZON * 2));
        let mut open: Vec<bool> = windows.iter().map(|window| window.is_open_at(from)).collect();
        let mut open_count = open.iter().filter(|open| **open).count();
        let begins_open = windows.is_empty() || open_count > 0;
        let mut edges: Vec<(Moment, usize)> = windows
            .iter()
            .enumerate()
            .flat_map(|(ix, window)| window.edges(span).into_iter().map(move |at| (at, ix)))
            .collect();
        edges.sort_unstable();
        let mut changes = Vec::new();
        for at_once in edges.chunk_by(|one, other| one.0 == other.0) {
            let was_open = open_count > 0;
            for &(at, ix) in at_once {
                let (Some(window), Some(open)) = (windows.get(ix), open.get_mut(ix)) else {
                    continue;
                };
                let was = std::mem::replace(open, window.is_open_at(at));
                open_count = open_count + usize::from(*open) - usize::from(was);
            }
            if was_open != (open_count > 0) {
                changes.extend(at_once.first().map(|(at, _)| *at));
            }
        }
        Self { span, begins_open, changes }
    }

    /// Whether this can answer questions about `now`.
    pub fn covers(&self, now: Moment) -> bool {
        self.span.0.plus(HORIZON) <= now && now.plus(HORIZON) <= self.span.1
    }

    /// Number of changes up to `now`.
    fn passed(&self, now: Moment) -> usize {
        self.changes.partition_point(|at| *at <= now)
    }

    /// Whether any window is open at `now`; always if there are no windows.
    pub fn is_open_at(&self, now: Moment) -> bool {
        self.begins_open == self.passed(now).is_multiple_of(2)
    }

    /// When this last changed. `None` if it did not change for two weeks.
    pub fn last_change(&self, now: Moment) -> Option<Moment> {
        let last = *self.changes.get(self.passed(now).checked_sub(1)?)?;
        (last.age(now) < HORIZON).then_some(last)
    }

    /// When this changes next. `None` if it does not change within the next two weeks, which means
    /// that it never changes.
    pub fn next_change(&self, now: Moment) -> Option<Moment> {
        let next = *self.changes.get(self.passed(now))?;
        (now.age(next) < HORIZON).then_some(next)
    }

    /// The longest continuous opening within the next two weeks; `None` if it is open all the time.
    pub fn longest(&self, now: Moment) -> Option<Duration> {
        let (mut at, mut longest) = (now, None);
        while let Some(next) = self.next_change(at).filter(|next| now.age(*next) < HORIZON) {
            let opening = if self.is_open_at(at) { at.age(next) } else { Duration::ZERO };
            longest = longest.max(Some(opening));
            at = next;
        }
        longest.or_else(|| (!self.is_open_at(now)).then_some(Duration::ZERO))
    }
}

#[cfg(test)]
mod tests;
