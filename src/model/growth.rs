//! Growth: how fast a file and its live bytes grow, as its readings show it.
//!
//! Owns four weighted means for each target, of the last hours and of the last days, and how a
//! reading changes them. Never reads a clock. The snapshot keeps one [`Growth`] for each target;
//! forecasts read it.
//!
//! A mean decays by itself while nothing changes, so a reading that found nothing new stores
//! nothing, and an idle cluster changes no row.

use crate::model::{facts::Facts, rounding::to_single, target::TargetKind};
use std::time::Duration;
use wall_clock::Moment;

/// After this time a change weighs a third of a new one in the mean of hours.
const HOURS: Duration = Duration::from_secs(6 * 3_600);

/// The same for the mean of days.
const DAYS: Duration = Duration::from_secs(3 * 86_400);

/// Growth that was watched for less time says nothing.
const MIN_WATCHED: Duration = Duration::from_secs(600);

/// A weighted mean of one rate over hours and over days, in bytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct RateMeans {
    hours: f32,
    days: f32,
}

/// The growth of one target, per file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Growth {
    file: RateMeans,
    active: RateMeans,
    /// The first reading; 1970 before it.
    watched_since: Moment,
    /// The time up to which the means count; nothing changed since, as far as readings show.
    updated_at: Moment,
}

/// A rate that starts at the mean of the last hours and approaches that of the last days.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExpectedRate {
    /// Bytes a second at first.
    pub hours: f64,
    /// Bytes a second in the end.
    pub days: f64,
}

/// A time from now on, as rates need it: worked out once for all targets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimeAhead {
    /// The time.
    pub span: Duration,
    seconds: f64,
    /// How many seconds of the rate of the last hours count within it, because that rate fades.
    fading_seconds: f64,
}

impl TimeAhead {
    /// The time after this span.
    #[must_use]
    pub fn after(span: Duration) -> Self {
        let (seconds, scale) = (span.as_secs_f64(), HOURS.as_secs_f64());
        Self { span, seconds, fading_seconds: scale * -(-seconds / scale).exp_m1() }
    }
}

impl ExpectedRate {
    /// The bytes that come within a time; negative where live bytes shrink.
    #[must_use]
    pub fn bytes_within(self, span: Duration) -> f64 {
        self.bytes_between(TimeAhead::default(), TimeAhead::after(span))
    }

    /// The bytes that come between two times; negative where live bytes shrink.
    #[must_use]
    pub fn bytes_between(self, from: TimeAhead, to: TimeAhead) -> f64 {
        let fading = to.fading_seconds - from.fading_seconds;
        self.days.mul_add(to.seconds - from.seconds, (self.hours - self.days) * fading)
    }
}

/// What one reading of a file tells about its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeReading {
    /// When the file was read.
    pub at: Moment,
    /// Its size.
    pub file_bytes: u64,
    /// Its live bytes.
    pub active_bytes: u64,
    /// The sequence at its last compaction, where known.
    pub compacted_seq: Option<u64>,
}

impl SizeReading {
    /// What these facts of one file tell; none if its sizes or the time are not known, and for
    /// targets that have no file.
    #[must_use]
    pub fn of(kind: TargetKind, facts: &Facts) -> Option<Self> {
        matches!(kind, TargetKind::Db | TargetKind::View).then_some(())?;
        Some(Self {
            at: facts.measured_at?.at,
            file_bytes: facts.file_bytes.get()?,
            active_bytes: facts.active_bytes.get()?,
            compacted_seq: facts.compacted_seq.get(),
        })
    }

    /// Whether the file was replaced between this reading and a later one: files only grow at their
    /// end.
    fn was_replaced_until(&self, later: &Self) -> bool {
        let moved =
            self.compacted_seq.zip(later.compacted_seq).is_some_and(|(one, two)| one != two);
        moved || later.file_bytes < self.file_bytes
    }
}

impl RateMeans {
    /// The means after a time in which the rate was so many bytes a second.
    fn after(self, seconds: f64, rate: f64) -> Self {
        let mean = |mean: f32, scale: Duration| {
            let kept = (-seconds / scale.as_secs_f64()).exp();
            to_single(f64::from(mean).mul_add(kept, rate * (1.0 - kept)))
        };
        Self { hours: mean(self.hours, HOURS), days: mean(self.days, DAYS) }
    }

    /// The rate to expect, of means that began at zero so many seconds ago.
    fn expected(self, watched: f64) -> ExpectedRate {
        let unbiased = |mean: f32, scale: Duration| {
            f64::from(mean) / -(-watched / scale.as_secs_f64()).exp_m1()
        };
        ExpectedRate { hours: unbiased(self.hours, HOURS), days: unbiased(self.days, DAYS) }
    }
}

impl Growth {
    /// The growth after a reading; `known` is what the reading before it found.
    ///
    /// What was written between a reading before a compaction and one after it is unknown, and
    /// counts for nothing.
    #[must_use]
    pub fn after_reading(self, known: Option<&SizeReading>, seen: Option<&SizeReading>) -> Self {
        let Some(seen) = seen else { return self };
        let Some(known) = known.filter(|_| self.watched_since != Moment::default()) else {
            return Self { watched_since: seen.at, updated_at: seen.at, ..self };
        };
        let replaced = known.was_replaced_until(seen);
        let same = (known.file_bytes, known.active_bytes) == (seen.file_bytes, seen.active_bytes);
        if same && !replaced {
            return self;
        }
        // The time of a reading from before a clock was set says nothing.
        let last =
            if known.at <= seen.at { known.at.max(self.updated_at) } else { self.updated_at };
        let changed_from = last.min(seen.at);
        let unchanged = self.updated_at.age(changed_from).as_secs_f64();
        let changing = changed_from.age(seen.at).as_secs_f64();
        let rate = |before: u64, after: u64| {
            if replaced { None } else { Some((after as f64 - before as f64) / changing.max(1.0)) }
        };
        let means = |means: RateMeans, rate: Option<f64>| {
            let idle = means.after(unchanged, 0.0);
            rate.map_or(idle, |rate| idle.after(changing, rate))
        };
        Self {
            file: means(self.file, rate(known.file_bytes, seen.file_bytes)),
            active: means(self.active, rate(known.active_bytes, seen.active_bytes)),
            watched_since: self.watched_since.min(seen.at),
            updated_at: seen.at,
        }
    }

    /// The same growth on a clock that read `before` when it was set to `now`.
    ///
    /// What was written since the last reading then counts from the new time on, so that the step itself
    /// neither slows growth nor adds to it.
    #[must_use]
    pub fn settled(self, before: Moment, now: Moment) -> Self {
        if self.watched_since == Moment::default() {
            return self;
        }
        let unchanged = self.updated_at.age(before).as_secs_f64();
        Self {
            file: self.file.after(unchanged, 0.0),
            active: self.active.after(unchanged, 0.0),
            watched_since: self.watched_since.shifted(before, now),
            updated_at: now,
        }
    }

    /// How long it has been watched at `now`; none before the first reading.
    #[must_use]
    pub fn watched(self, now: Moment) -> Option<Duration> {
        (self.watched_since != Moment::default()).then(|| self.watched_since.age(now))
    }

    /// The rates of its file and of its live bytes at `now`; none while it was watched for too short
    /// a time.
    #[must_use]
    pub fn expected(self, now: Moment) -> Option<(ExpectedRate, ExpectedRate)> {
        let watched = self.watched(now).filter(|watched| *watched >= MIN_WATCHED)?.as_secs_f64();
        let idle = self.updated_at.age(now).as_secs_f64();
        let expected = |means: RateMeans| means.after(idle, 0.0).expected(watched);
        Some((expected(self.file), expected(self.active)))
    }

    /// The rates of its file and of its live bytes over the last days, in bytes a second; none while it was
    /// watched for too short a time.
    ///
    /// The same as in [`expected`](Self::expected), for sums over many targets, most of which never change.
    #[must_use]
    pub fn rates_of_days(self, now: Moment) -> Option<(f64, f64)> {
        let watched = self.watched(now).filter(|watched| *watched >= MIN_WATCHED)?;
        if self.file == RateMeans::default() && self.active == RateMeans::default() {
            return Some((0.0, 0.0));
        }
        let scale = DAYS.as_secs_f64();
        let kept = (-self.updated_at.age(now).as_secs_f64() / scale).exp();
        let counted = -(-watched.as_secs_f64() / scale).exp_m1();
        let rate = |means: RateMeans| f64::from(means.days) * kept / counted;
        Some((rate(self.file), rate(self.active)))
    }

    /// The stored form: four means, and the two times.
    #[must_use]
    pub const fn parts(self) -> ([f32; 4], [Moment; 2]) {
        let Self { file, active, watched_since, updated_at } = self;
        ([file.hours, file.days, active.hours, active.days], [watched_since, updated_at])
    }

    /// The growth that an earlier process stored.
    #[must_use]
    pub const fn from_parts(means: [f32; 4], [watched_since, updated_at]: [Moment; 2]) -> Self {
        let [file_hours, file_days, active_hours, active_days] = means;
        Self {
            file: RateMeans { hours: file_hours, days: file_days },
            active: RateMeans { hours: active_hours, days: active_days },
            watched_since,
            updated_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: u64 = 1_000_000_000;
    const HOUR: u64 = 3_600;

    fn at(seconds: u64) -> Moment {
        Moment::from_unix(START + seconds)
    }

    fn reading(seconds: u64, file_bytes: u64, active_bytes: u64) -> SizeReading {
        SizeReading { at: at(seconds), file_bytes, active_bytes, compacted_seq: Some(0) }
    }

    fn growth(readings: &[SizeReading]) -> Growth {
        let known = std::iter::once(None).chain(readings.iter().map(Some));
        known.zip(readings).fold(Growth::default(), |growth, (known, seen)| {
            growth.after_reading(known, Some(seen))
        })
    }

    fn near(one: f64, two: f64) -> bool {
        (one - two).abs() <= 1e-3 * two.abs() + 1e-3
    }

    #[test]
    fn a_steady_rate_is_found_from_the_first_minutes_on() {
        for hours in [1, 24, 24 * 30] {
            let steps = (0..=hours * 6).map(|step| reading(step * 600, 1_000 * step, 500 * step));
            let growth = growth(&steps.collect::<Vec<_>>());
            let (file, active) = growth.expected(at(hours * HOUR)).unwrap();
            for (found, rate) in [(file, 1_000.0 / 600.0), (active, 500.0 / 600.0)] {
                assert!(near(found.hours, rate) && near(found.days, rate), "{hours} h: {found:?}");
                let day = found.bytes_within(Duration::from_secs(86_400));
                assert!(near(day, rate * 86_400.0), "{day}");
            }
        }
    }

    #[test]
    fn nothing_is_expected_of_what_was_hardly_watched() {
        assert_eq!(Growth::default().expected(at(9_000_000)), None);
        assert_eq!(growth(&[reading(0, 9, 9)]).expected(at(599)), None);
        let idle = growth(&[reading(0, 9, 9)]).expected(at(600)).unwrap();
        assert_eq!(idle, (ExpectedRate::default(), ExpectedRate::default()));
    }

    #[test]
    fn the_rates_of_days_are_those_that_are_expected_in_the_end() {
        let steps = [(0, 0), (HOUR, 9_000), (5 * HOUR, 90_000), (20 * HOUR, 91_000)];
        let growth = growth(&steps.map(|(at, size)| reading(at, size, size / 2)));
        for after in [20, 21, 90] {
            let (file, active) = growth.expected(at(after * HOUR)).unwrap();
            let (days, live) = growth.rates_of_days(at(after * HOUR)).unwrap();
            assert!(near(file.days, days) && near(active.days, live) && days > 0.0, "{days}");
        }
        assert_eq!(Growth::default().rates_of_days(at(9_000_000)), None);
    }

    #[test]
    fn a_reading_that_finds_nothing_new_stores_nothing() {
        let known = growth(&[reading(0, 9, 9), reading(600, 99, 50)]);
        let again = known.after_reading(Some(&reading(600, 99, 50)), Some(&reading(900, 99, 50)));
        assert_eq!(again, known);
    }

    #[test]
    fn a_clock_that_is_set_changes_no_rate() {
        const DAY: i64 = 86_400;
        let on = |step: i64, seconds: u64| {
            Moment::from_unix((START + seconds).saturating_add_signed(step))
        };
        let steps = || (0..=12).map(|step| reading(step * 600, 60_000 * step, 30_000 * step));
        let known = growth(&steps().collect::<Vec<_>>());
        let last = reading(7_200, 720_000, 360_000);
        // Five minutes after the last reading the clock is set; five minutes later it is read again.
        for step in [DAY, 9 * DAY, -2 * DAY, -400, 90, 0] {
            let settled = known.settled(at(7_500), on(step, 7_500));
            let seen = SizeReading { at: on(step, 7_800), ..reading(0, 780_000, 390_000) };
            let after = settled.after_reading(Some(&last), Some(&seen));
            let (file, active) = after.expected(on(step, 7_800)).unwrap();
            for (found, rate) in [(file.hours, 100.0), (file.days, 100.0), (active.hours, 50.0)] {
                assert!((found - rate).abs() < 0.02 * rate, "{step}: {found}, not {rate}");
            }
            let watched = after.watched(on(step, 7_800)).unwrap();
            assert!(watched.as_secs().abs_diff(7_800) <= 1, "{step}: {watched:?}");
        }
    }

    #[test]
    fn an_idle_file_stays_idle_when_the_clock_is_set() {
        let known = growth(&[reading(0, 9, 9), reading(HOUR, 9, 9)]);
        let settled = known.settled(at(2 * HOUR), at(50 * HOUR));
        let idle = (ExpectedRate::default(), ExpectedRate::default());
        assert_eq!(settled.expected(at(50 * HOUR)), Some(idle));
        assert_eq!(Growth::default().settled(at(0), at(HOUR)), Growth::default());
    }

    #[test]
    fn a_compaction_is_no_growth() {
        let before = [reading(0, 1_000, 500), reading(HOUR, 4_600, 500)];
        let (file, _) = growth(&before).expected(at(HOUR)).unwrap();
        let compacted = SizeReading { compacted_seq: Some(7), ..reading(HOUR + 60, 9_000, 500) };
        let (after, _) =
            growth(&[before[0], before[1], compacted]).expected(at(HOUR + 60)).unwrap();
        assert!((after.hours - file.hours).abs() < 0.03 * file.hours, "{after:?}, {file:?}");
    }

    #[test]
    fn what_was_written_of_late_fades_to_what_days_show() {
        let mut steps: Vec<_> =
            (0..24 * 20).map(|hour| reading(hour * HOUR, 1_000, 1_000)).collect();
        let idle = 24 * 20 * HOUR;
        steps.extend((0..3).map(|hour| reading(idle + hour * HOUR, 1_000 + hour * 36_000, 1_000)));
        let (file, active) = growth(&steps).expected(at(idle + 2 * HOUR)).unwrap();
        assert!(file.hours > 2.0 && file.days < 0.5, "{file:?}");
        assert_eq!(active, ExpectedRate::default());
        let hour = file.bytes_within(Duration::from_secs(HOUR));
        let week = file.bytes_within(Duration::from_secs(7 * 86_400));
        assert!(hour > 7_000.0 && week < 7.0 * 86_400.0 * 0.5, "{hour}, {week}");
    }

    proptest! {
        /// Readings in between change nothing if the rate between them is one.
        #[test]
        fn the_means_do_not_depend_on_how_often_it_was_read(
            rates in proptest::collection::vec(0_u64..1_000_000, 1..20),
            parts in 2_u64..9,
        ) {
            let (mut coarse, mut fine) = (vec![reading(0, 0, 0)], vec![reading(0, 0, 0)]);
            let (mut time, mut size) = (0, 0);
            for rate in rates {
                for _ in 0..parts {
                    time += 600;
                    size += 600 * rate;
                    fine.push(reading(time, size, size));
                }
                coarse.push(reading(time, size, size));
            }
            let (one, _) = growth(&coarse).expected(at(time)).unwrap();
            let (two, _) = growth(&fine).expected(at(time)).unwrap();
            let alike = |one: f64, two: f64| (one - two).abs() <= 1e-3 * one.abs().max(1.0);
            prop_assert!(alike(one.hours, two.hours) && alike(one.days, two.days), "{one:?} {two:?}");
        }
    }
}
