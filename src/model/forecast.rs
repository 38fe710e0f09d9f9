//! The forecast of a volume's free space: a median and a range that holds four outcomes of five.
//!
//! Owns the model, a pure function of what the ledger booked, what compaction is simulated to free,
//! how earlier forecasts did, and now. Everything that says when a volume is full reads it.
//!
//! # The model
//!
//! * **Growth** is what was booked as live bytes and as waste, day by day back from now. The next
//!   days repeat the same days of the last weeks, the latest ones most, with the trend between weeks;
//!   [`rhythm`] has both. Files that appeared or vanished, and days far beyond all others, are
//!   events: they are expected again only if they came in each of the last two weeks.
//! * **The range** comes from three hundred paths. Each adds up the rhythm and the deviations of
//!   blocks of past days (a block bootstrap), and has its own error of level and trend.
//! * **Compaction** frees what the simulation of the rules says. A path that writes more waste
//!   reaches the same point of the simulation sooner, and none frees more waste than there is.
//! * A path without free space stays there: nothing can be written.
//! * **The record** of earlier forecasts widens or narrows the range, so that it would have held
//!   four of five.

mod rhythm;

use super::{growth::REACH_FACTOR, rounding::to_bytes};
use crate::text::duration::format_rounded;
use couchdb_files::random_bits;
use rhythm::Rhythm;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};
use wall_clock::Moment;

/// A day of 24 hours.
pub const DAY: Duration = Duration::from_secs(86_400);

/// The horizons, in days, for which forecasts are kept and compared.
pub const HORIZONS: [u32; 3] = [1, 7, 30];

/// The factors on ranges for each of [`HORIZONS`].
pub type Widening = [f64; HORIZONS.len()];

/// Minimum time of observation: less says nothing about a whole day.
const MIN_WATCHED: Duration = Duration::from_secs(2 * 86_400);

/// The farthest day of a forecast: a rhythm of four weeks says little about later days.
const MAX_REACH_DAYS: u32 = 120;

/// Number of paths; with more, the quantiles move by less than a hundredth of the change.
const PATHS: usize = 300;

/// Number of successive days that are drawn together, because a busy day often follows another.
const BLOCK: usize = 3;

/// The low, middle and high quantile.
const QUANTILES: [f64; 3] = [0.1, 0.5, 0.9];

/// The ledger's entries for one volume and one span of time. Bytes may shrink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BookedSpan {
    /// The start of the span.
    pub from: Moment,
    /// The end of the span.
    pub until: Moment,
    /// Change of live bytes, and of bytes of unknown kind.
    pub live_bytes: i64,
    /// Waste that was written.
    pub waste_bytes: i64,
    /// Bytes of files that appeared, less those of files that vanished.
    pub event_bytes: i64,
}

/// The ledger's entries for one volume, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrowthHistory {
    /// The spans.
    pub spans: Vec<BookedSpan>,
}

/// The ledger's entries, by volume.
pub type GrowthHistories = BTreeMap<String, GrowthHistory>;

/// The sums of one day, counted back from now.
#[derive(Clone, Copy, Debug, Default)]
struct Day {
    growth: f64,
    waste: f64,
    events: f64,
}

impl GrowthHistory {
    /// How long growth was watched.
    pub fn watched(&self, now: Moment) -> Duration {
        self.spans.first().map_or(Duration::ZERO, |span| span.from.age(now))
    }

    /// At most `most` complete days, counted back from now, latest first.
    fn days(&self, now: Moment, most: usize) -> Vec<Day> {
        let seconds = DAY.as_secs();
        let count = usize::try_from(self.watched(now).as_secs() / seconds).unwrap_or(most);
        let mut days = vec![Day::default(); count.min(most)];
        for span in &self.spans {
            let (first, last) = (span.until.age(now).as_secs(), span.from.age(now).as_secs());
            let length = last.saturating_sub(first).max(1);
            for (at, day) in days.iter_mut().enumerate() {
                let begin = seconds * at as u64;
                let inside = last.max(first + 1).min(begin + seconds);
                let share = inside.saturating_sub(first.max(begin)) as f64 / length as f64;
                let bytes = |bytes: i64| bytes as f64 * share;
                day.growth += bytes(span.live_bytes.saturating_add(span.waste_bytes));
                day.waste += bytes(span.waste_bytes);
                day.events += bytes(span.event_bytes);
            }
        }
        days
    }
}

/// One point of a simulation of the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FreedPoint {
    /// The time ahead.
    pub after: Duration,
    /// Bytes of waste written until then.
    pub waste: f64,
    /// Bytes that compactions freed until then.
    pub freed: f64,
}

/// What compactions free on a volume under some rules, according to a simulation; empty if nothing is compacted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FreedCourse(pub Vec<FreedPoint>);

impl FreedCourse {
    /// The rest of the course after this time.
    #[must_use]
    pub fn since(&self, elapsed: Duration) -> Self {
        let next = self.0.partition_point(|point| point.after <= elapsed);
        let Some((one, two)) =
            next.checked_sub(1).and_then(|at| self.0.get(at)).zip(self.0.get(next))
        else {
            return self.clone();
        };
        let share = (elapsed - one.after).div_duration_f64(two.after - one.after);
        let between = |one: f64, two: f64| (two - one).mul_add(share, one);
        let (waste, freed) = (between(one.waste, two.waste), between(one.freed, two.freed));
        let rest = self.0.iter().skip(next).map(|point| FreedPoint {
            after: point.after - elapsed,
            waste: point.waste - waste,
            freed: point.freed - freed,
        });
        Self(std::iter::once(FreedPoint::default()).chain(rest).collect())
    }

    /// Bytes freed by the time at which `waste` is written; if the simulation writes no waste,
    /// bytes freed within `after`.
    fn freed(&self, waste: f64, after: Duration) -> f64 {
        let Some(last) = self.0.last() else { return 0.0 };
        let (place, reached): (fn(&FreedPoint) -> f64, f64) = if last.waste > 0.0 {
            (|point| point.waste, waste)
        } else {
            (|point| point.after.as_secs_f64(), after.as_secs_f64())
        };
        let next = self.0.partition_point(|point| place(point) <= reached);
        // Beyond its end, the course continues as in its second half.
        let (one, two) = match (next.checked_sub(1).and_then(|at| self.0.get(at)), self.0.get(next))
        {
            (Some(one), Some(two)) => (one, two),
            (None, _) => return 0.0,
            (Some(_), None) => (&self.0[(self.0.len() - 1) / 2], last),
        };
        let step = place(two) - place(one);
        if step <= 0.0 {
            return two.freed;
        }
        (two.freed - one.freed).mul_add((reached - place(one)) / step, one.freed)
    }
}

/// The facts that a forecast is based on.
#[derive(Clone, Copy, Debug)]
pub struct VolumeFacts<'a> {
    /// The ledger's entries.
    pub history: &'a GrowthHistory,
    /// Free bytes now.
    pub free_bytes: u64,
    /// Bytes that compactions could free now.
    pub waste_bytes: u64,
    /// What compactions will free.
    pub freed: &'a FreedCourse,
    /// The factors on ranges.
    pub widening: Widening,
}

/// Free bytes at one moment: the median, and the ends of the range of 80 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeRange {
    /// One outcome of ten is lower.
    pub low: u64,
    /// One outcome of two is lower.
    pub median: u64,
    /// One outcome of ten is higher.
    pub high: u64,
}

/// When a volume is full: the median, and the ends of the range of 80 %. `None` if not within reach of the forecast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FullRange {
    /// One outcome of ten is earlier.
    pub early: Option<Moment>,
    /// One outcome of two is earlier.
    pub median: Option<Moment>,
    /// One outcome of ten is later.
    pub late: Option<Moment>,
}

impl FullRange {
    /// The range in words; `None` if it lies within one day, or begins beyond the reach of the forecast.
    pub fn likely(self) -> Option<String> {
        match (self.early.map(Moment::date), self.late.map(Moment::date)) {
            (Some(early), Some(late)) if early != late => {
                Some(format!("80 % likely between {early} and {late}"))
            }
            (Some(early), None) => Some(format!("10 % likely before {early}")),
            (Some(_), Some(_)) | (None, _) => None,
        }
    }
}

/// The forecast of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// When it was made.
    pub made_at: Moment,
    /// Free bytes then.
    pub free_bytes: u64,
    /// How long growth was watched.
    pub watched: Duration,
    /// Free bytes after one day, two days, and so on.
    pub days: Vec<FreeRange>,
    /// When the volume is full.
    pub full: FullRange,
}

/// Why there is no forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Withheld {
    /// Growth was not watched for long enough.
    #[error("growth was measured for {}; a forecast needs {}", format_rounded(*.0), format_rounded(MIN_WATCHED))]
    Watched(Duration),
    /// The configuration states its free space.
    #[error(
        "its free space is a fixed number in headroom.volumes, which says nothing about what is written"
    )]
    Stated,
    /// Its size is unknown, so the ledger cannot tell how much of it is used.
    #[error("its size is unknown: give it `size` or a `size_query` in headroom.volumes")]
    SizeUnknown,
    /// A node has several volumes, or was not read yet.
    #[error("it is unknown which files are on it: a node has several volumes, or was not read yet")]
    FilesUnknown,
    /// What compactions will free is not simulated yet.
    #[error("recliner is still simulating what compactions will free")]
    NotSimulated,
}

impl Forecast {
    /// How far the forecast reaches.
    pub fn reach(&self) -> Duration {
        DAY * u32::try_from(self.days.len()).unwrap_or(u32::MAX)
    }

    /// Free bytes after this many days; `None` beyond the reach.
    pub fn after_days(&self, days: u32) -> Option<FreeRange> {
        self.days.get(usize::try_from(days).ok()?.checked_sub(1)?).copied()
    }

    /// The median of free bytes after this time; `None` beyond the reach.
    pub fn median_after(&self, after: Duration) -> Option<u64> {
        let days = after.as_secs_f64() / DAY.as_secs_f64();
        let whole = u32::try_from(after.as_secs() / DAY.as_secs()).ok()?;
        let at = |days: u32| match days {
            0 => Some(self.free_bytes),
            days => self.after_days(days).map(|range| range.median),
        };
        let before = at(whole)? as f64;
        let share = days - f64::from(whole);
        let next = if share > 0.0 { at(whole + 1)? as f64 } else { before };
        Some(to_bytes((next - before).mul_add(share, before)))
    }
}

/// How far a forecast reaches after this time of observation.
pub fn reach_of(watched: Duration) -> Duration {
    (watched * REACH_FACTOR).min(DAY * MAX_REACH_DAYS)
}

/// The forecast of a volume.
///
/// # Errors
/// If growth was not watched for long enough.
pub fn forecast(facts: &VolumeFacts<'_>, now: Moment) -> Result<Forecast, Withheld> {
    let watched = facts.history.watched(now);
    let days = facts.history.days(now, rhythm::MAX_DAYS);
    if watched < MIN_WATCHED || days.is_empty() {
        return Err(Withheld::Watched(watched));
    }
    let reach = usize::try_from(reach_of(watched).as_secs() / DAY.as_secs()).unwrap_or_default();
    let of = |bytes: fn(&Day) -> f64| days.iter().map(bytes).collect::<Vec<f64>>();
    let growth = Rhythm::of(&of(|day| day.growth), &of(|day| day.events));
    let waste = Rhythm::of(&of(|day| day.waste), &vec![0.0; days.len()]);
    let (mut by_day, mut full) = (vec![Vec::with_capacity(PATHS); reach], Vec::new());
    let mut draws = Draws { steps: 0, count: growth.deviations.len() };
    for _ in 0..PATHS {
        let path = Path::draw([&growth, &waste], facts, &mut draws, reach);
        for (values, free) in by_day.iter_mut().zip(&path.free) {
            values.push(*free);
        }
        full.push(path.full_after);
    }
    let factor = |day: usize| {
        let at = HORIZONS.iter().position(|horizon| day < *horizon as usize);
        facts.widening[at.unwrap_or(HORIZONS.len() - 1)]
    };
    let ranges = by_day.into_iter().enumerate().map(|(day, values)| {
        let [low, median, high] = widened(quantiles(values), factor(day)).map(to_bytes);
        FreeRange { low, median, high }
    });
    let full = quantiles(full);
    let day = full[1].min(f64::from(MAX_REACH_DAYS));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let [early, median, late] = widened(full, factor(day as usize)).map(|days| {
        let seconds = days.max(0.0) * DAY.as_secs_f64();
        let after = Duration::try_from_secs_f64(seconds).ok();
        after.filter(|_| days <= reach as f64).map(|after| now.plus(after))
    });
    Ok(Forecast {
        made_at: now,
        free_bytes: facts.free_bytes,
        watched,
        days: ranges.collect(),
        full: FullRange { early, median, late },
    })
}

/// One possible future.
struct Path {
    /// Free bytes after each day.
    free: Vec<f64>,
    /// Days until the volume is full; infinite if it never is.
    full_after: f64,
}

impl Path {
    fn draw(
        rhythms: [&Rhythm; 2],
        facts: &VolumeFacts<'_>,
        draws: &mut Draws,
        reach: usize,
    ) -> Self {
        let days = draws.blocks(draws.count);
        let level_errors = rhythms.map(|it| it.mean_deviation(&days));
        let trend_error = draws.normal();
        let factors = rhythms.map(|it| it.factors(trend_error, reach));
        let days = draws.blocks(reach);
        let free = facts.free_bytes as f64;
        let mut path = Self { free: Vec::with_capacity(reach), full_after: f64::INFINITY };
        let (mut grown, mut last) = ([0.0; 2], free);
        for (day, drawn) in days.iter().take(reach).enumerate() {
            for (at, sum) in grown.iter_mut().enumerate() {
                *sum += rhythms[at].on(day, *drawn, level_errors[at], &factors[at]);
            }
            let [growth, waste] = grown;
            let after = DAY.mul_f64((day + 1) as f64);
            let most = (facts.waste_bytes as f64 + waste).max(0.0);
            let next = free - growth + facts.freed.freed(waste, after).clamp(0.0, most);
            if next <= 0.0 && path.full_after.is_infinite() {
                path.full_after = day as f64 + last / (last - next).max(f64::MIN_POSITIVE);
            }
            last = next;
            path.free.push(if path.full_after.is_finite() { 0.0 } else { next });
        }
        path
    }
}

/// Random draws of past days. They are the same every time, so that a forecast changes only with its facts.
struct Draws {
    steps: u64,
    /// Number of past days.
    count: usize,
}

impl Draws {
    /// A number from 0 to 1.
    fn uniform(&mut self) -> f64 {
        self.steps += 1;
        (random_bits(1, self.steps - 1) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A normally distributed number, as a sum of twelve uniform ones.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    /// At least `length` past days, in blocks that run forward in time.
    fn blocks(&mut self, length: usize) -> Vec<usize> {
        let mut days = Vec::with_capacity(length + BLOCK);
        while days.len() < length {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "saturates"
            )]
            let first = (self.uniform() * self.count as f64) as usize;
            days.extend((0..BLOCK).map(|step| (first + BLOCK * self.count - step) % self.count));
        }
        days
    }
}

fn quantiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    QUANTILES.map(|share| rhythm::quantile(&values, share))
}

/// The range with its distances from the median multiplied.
fn widened([low, median, high]: [f64; 3], factor: f64) -> [f64; 3] {
    let far =
        |from: f64, to: f64| if to.is_finite() { (to - from).mul_add(factor, from) } else { to };
    if median.is_infinite() {
        [low, median, high]
    } else {
        [far(median, low), median, far(median, high)]
    }
}

#[cfg(test)]
mod tests;
