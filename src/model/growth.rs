//! Growth: how fast a file and its live bytes grow, according to its readings.
//!
//! Owns four weighted means for each target: file and live bytes, each over the last hours and the
//! last days; and how a reading changes them. Never reads a clock. The snapshot stores one
//! [`Growth`] for each target; forecasts read it.
//!
//! A mean decays by itself while nothing changes, so a reading without a change stores nothing, and
//! an idle cluster changes no row.

use crate::model::{
    facts::Facts,
    rounding::{to_bytes, to_single},
    target::TargetKind,
};
use std::time::Duration;
use wall_clock::Moment;

/// Time constant of the mean of hours: a change of this age weighs a third of a new one.
const HOURS: Duration = Duration::from_secs(6 * 3_600);

/// Time constant of the mean of days.
const DAYS: Duration = Duration::from_secs(3 * 86_400);

/// Minimum time of observation before growth is used.
const MIN_WATCHED: Duration = Duration::from_secs(600);

/// Growth is extrapolated to this multiple of the time for which it was watched: minutes of load do not make a weekly
/// rate.
pub const REACH_FACTOR: u32 = 2;

/// A compaction catches up at no less than this share of its rate, and within this time; longer
/// catch-ups are not worth predicting.
const MIN_CATCH_UP_SHARE: f64 = 0.1;
const MAX_CATCH_UP: Duration = Duration::from_secs(30 * 86_400);

/// Weighted means of one rate over hours and over days, in bytes per second.
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
    /// Time of the first reading; the Unix epoch before there is one.
    watched_since: Moment,
    /// The time up to which the means are calculated; readings since then showed no change.
    updated_at: Moment,
}

/// A rate that starts at the mean of the last hours and approaches the mean of the last days.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExpectedRate {
    /// Initial rate, in bytes per second.
    pub hours: f64,
    /// Final rate, in bytes per second.
    pub days: f64,
}

/// The growth of a file from now on, only as far ahead as the observation allows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GrowthAhead {
    file: ExpectedRate,
    active: ExpectedRate,
    /// How far ahead the growth is known.
    pub reach: Duration,
}

impl GrowthAhead {
    /// Bytes by which the file and its live bytes grow within a time; growth beyond the reach is not counted.
    pub fn within(self, span: Duration) -> (f64, f64) {
        let span = span.min(self.reach);
        (self.file.bytes_within(span), self.active.bytes_within(span))
    }
}

/// A time ahead in the form that rates need, calculated once for all targets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimeAhead {
    /// The length of time from now.
    pub span: Duration,
    seconds: f64,
    /// Seconds for which the rate of the last hours counts within `span`; fewer than `span` because
    /// that rate fades.
    fading_seconds: f64,
}

impl TimeAhead {
    /// The point in time after this span.
    pub fn after(span: Duration) -> Self {
        let (seconds, scale) = (span.as_secs_f64(), HOURS.as_secs_f64());
        Self { span, seconds, fading_seconds: scale * -(-seconds / scale).exp_m1() }
    }
}

impl ExpectedRate {
    /// Bytes added within a time; negative where live bytes shrink.
    pub fn bytes_within(self, span: Duration) -> f64 {
        self.bytes_between(TimeAhead::default(), TimeAhead::after(span))
    }

    /// Bytes added between two times; negative where live bytes shrink.
    pub fn bytes_between(self, from: TimeAhead, to: TimeAhead) -> f64 {
        let fading = to.fading_seconds - from.fading_seconds;
        self.days.mul_add(to.seconds - from.seconds, (self.hours - self.days) * fading)
    }
}

/// The sizes in one reading of a file.
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
    /// The sizes in these facts of one file; `None` if a size or the time is unknown, or if the
    /// target has no file.
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
    /// The means after `seconds` at a rate of `rate` bytes per second.
    fn after(self, seconds: f64, rate: f64) -> Self {
        let mean = |mean: f32, scale: Duration| {
            let kept = (-seconds / scale.as_secs_f64()).exp();
            to_single(f64::from(mean).mul_add(kept, rate * (1.0 - kept)))
        };
        Self { hours: mean(self.hours, HOURS), days: mean(self.days, DAYS) }
    }

    /// The expected rate from means that started at zero `watched` seconds ago.
    fn expected(self, watched: f64) -> ExpectedRate {
        let unbiased = |mean: f32, scale: Duration| {
            f64::from(mean) / -(-watched / scale.as_secs_f64()).exp_m1()
        };
        ExpectedRate { hours: unbiased(self.hours, HOURS), days: unbiased(self.days, DAYS) }
    }
}

impl Growth {
    /// The growth after a reading; `previous` is the reading before it.
    ///
    /// What was written between a reading before a compaction and one after it is unknown, so that time is left out.
    pub fn after_reading(
        self,
        previous: Option<&SizeReading>,
        reading: Option<&SizeReading>,
    ) -> Self {
        let Some(reading) = reading else { return self };
        let Some(previous) = previous.filter(|_| self.watched_since != Moment::default()) else {
            return Self { watched_since: reading.at, updated_at: reading.at, ..self };
        };
        let replaced = previous.was_replaced_until(reading);
        let same = (previous.file_bytes, previous.active_bytes)
            == (reading.file_bytes, reading.active_bytes);
        if same && !replaced {
            return self;
        }
        // If a reading is dated later than the next one, the clock was set back: ignore its time.
        let last = if previous.at <= reading.at {
            previous.at.max(self.updated_at)
        } else {
            self.updated_at
        };
        let changed_from = last.min(reading.at);
        let unchanged = self.updated_at.age(changed_from).as_secs_f64();
        let changing = changed_from.age(reading.at).as_secs_f64();
        let rate = |before: u64, after: u64| {
            if replaced { None } else { Some((after as f64 - before as f64) / changing.max(1.0)) }
        };
        let means = |means: RateMeans, rate: Option<f64>| {
            let idle = means.after(unchanged, 0.0);
            rate.map_or(idle, |rate| idle.after(changing, rate))
        };
        Self {
            file: means(self.file, rate(previous.file_bytes, reading.file_bytes)),
            active: means(self.active, rate(previous.active_bytes, reading.active_bytes)),
            watched_since: self.watched_since.min(reading.at),
            updated_at: reading.at,
        }
    }

    /// The same growth on a clock that read `before` when it was set to `now`.
    ///
    /// Bytes written since the last reading then count from the new time on, so the step itself
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

    /// How long it has been watched at `now`; `None` before the first reading.
    pub fn watched(self, now: Moment) -> Option<Duration> {
        (self.watched_since != Moment::default()).then(|| self.watched_since.age(now))
    }

    /// The rates of its file and of its live bytes at `now`; `None` until it was watched long
    /// enough.
    pub fn expected(self, now: Moment) -> Option<(ExpectedRate, ExpectedRate)> {
        let watched = self.watched(now).filter(|watched| *watched >= MIN_WATCHED)?.as_secs_f64();
        let idle = self.updated_at.age(now).as_secs_f64();
        let expected = |means: RateMeans| means.after(idle, 0.0).expected(watched);
        Some((expected(self.file), expected(self.active)))
    }

    /// Its growth from now on, as far as the observation allows; `None` until it was watched long enough to say
    /// anything.
    pub fn ahead(self, now: Moment) -> Option<GrowthAhead> {
        let (file, active) = self.expected(now)?;
        Some(GrowthAhead { file, active, reach: self.watched(now)?.saturating_mul(REACH_FACTOR) })
    }

    /// The rates of its file and of its live bytes over the last days, in bytes per second; `None`
    /// until it was watched long enough.
    ///
    /// Equals the `days` of [`expected`](Self::expected), but is faster for sums over many targets,
    /// most of which never change.
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

    /// Waste that is written while a compaction copies `bytes` of the file: the compaction also
    /// copies concurrent writes, and leaves what they supersede. Zero while growth is unknown.
    pub fn waste_during(self, bytes: u64, bytes_per_second: Option<f64>, now: Moment) -> u64 {
        let Some(((file, active), pace)) = self.expected(now).zip(bytes_per_second) else {
            return 0;
        };
        // Concurrent writes must be copied too.
        let pace = (pace - file.hours.max(0.0)).max(pace * MIN_CATCH_UP_SHARE);
        let seconds = bytes as f64 / pace.max(f64::MIN_POSITIVE);
        let span = Duration::try_from_secs_f64(seconds).unwrap_or(MAX_CATCH_UP).min(MAX_CATCH_UP);
        to_bytes(file.bytes_within(span) - active.bytes_within(span).max(0.0))
    }

    /// The stored form: four means, and the two times.
    pub const fn parts(self) -> ([f32; 4], [Moment; 2]) {
        let Self { file, active, watched_since, updated_at } = self;
        ([file.hours, file.days, active.hours, active.days], [watched_since, updated_at])
    }

    /// The growth that an earlier process stored.
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
    fn short_burst_of_writes_is_not_extrapolated_to_a_week() {
        let growth = growth(&[reading(0, 0, 0), reading(1_200, 7_200, 7_200)]);
        let now = at(1_200);
        let ahead = |span| growth.ahead(now).unwrap().within(Duration::from_secs(span)).0;
        assert!(near(ahead(600), 3_600.0), "{}", ahead(600));
        assert!(near(ahead(7 * 24 * HOUR), 2.0 * 7_200.0), "{}", ahead(7 * 24 * HOUR));
        assert_eq!(growth.ahead(at(300)), None);
    }

    #[test]
    fn finds_a_steady_rate_from_any_length_of_history() {
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
    fn expected_growth_is_unknown_until_watched_for_ten_minutes() {
        assert_eq!(Growth::default().expected(at(9_000_000)), None);
        assert_eq!(growth(&[reading(0, 9, 9)]).expected(at(599)), None);
        let idle = growth(&[reading(0, 9, 9)]).expected(at(600)).unwrap();
        assert_eq!(idle, (ExpectedRate::default(), ExpectedRate::default()));
    }

    #[test]
    fn daily_rates_match_the_expected_rate() {
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
    fn waste_written_during_a_compaction_depends_on_its_rate() {
        // 1 MB per second, of which 0.4 are live: at 5 MB per second, 40 MB take ten seconds,
        // because concurrent writes are copied too.
        let steps =
            (0..=300).map(|step| reading(step * 600, 600_000_000 * step, 240_000_000 * step));
        let growth = growth(&steps.collect::<Vec<_>>());
        let now = at(300 * 600);
        let waste = |bytes, rate| growth.waste_during(bytes, rate, now);
        let near = |bytes: u64, wanted: u64| bytes.abs_diff(wanted) <= wanted / 100;
        assert!(near(waste(40_000_000, Some(5e6)), 6_000_000), "{}", waste(40_000_000, Some(5e6)));
        assert!(near(waste(40_000_000, Some(1e6)), 240_000_000), "it hardly catches up");
        assert_eq!(waste(40_000_000, None), 0, "the rate is not known");
        assert_eq!(Growth::default().waste_during(40_000_000, Some(5e6), now), 0);
    }

    #[test]
    fn unchanged_reading_stores_nothing() {
        let known = growth(&[reading(0, 9, 9), reading(600, 99, 50)]);
        let again = known.after_reading(Some(&reading(600, 99, 50)), Some(&reading(900, 99, 50)));
        assert_eq!(again, known);
    }

    #[test]
    fn clock_changes_do_not_affect_growth_rates() {
        const DAY: i64 = 86_400;
        let on = |step: i64, seconds: u64| {
            Moment::from_unix((START + seconds).saturating_add_signed(step))
        };
        let steps = || (0..=12).map(|step| reading(step * 600, 60_000 * step, 30_000 * step));
        let known = growth(&steps().collect::<Vec<_>>());
        let last = reading(7_200, 720_000, 360_000);
        // The clock is set five minutes after the last reading; the next reading follows five
        // minutes later.
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
    fn compaction_does_not_count_as_growth() {
        let before = [reading(0, 1_000, 500), reading(HOUR, 4_600, 500)];
        let (file, _) = growth(&before).expected(at(HOUR)).unwrap();
        let compacted = SizeReading { compacted_seq: Some(7), ..reading(HOUR + 60, 9_000, 500) };
        let (after, _) =
            growth(&[before[0], before[1], compacted]).expected(at(HOUR + 60)).unwrap();
        assert!((after.hours - file.hours).abs() < 0.03 * file.hours, "{after:?}, {file:?}");
    }

    #[test]
    fn recent_hourly_rate_fades_to_the_daily_rate() {
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
        /// The number of readings does not matter while the rate between them is constant.
        #[test]
        fn mean_rates_do_not_depend_on_the_number_of_readings(
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
