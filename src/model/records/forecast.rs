//! The forecasts of a volume that were kept, and the actual free space.
//!
//! Owns one forecast for each day, for 400 days, the rule that compares it with the actual free
//! space, and the rule that learns from this how wide ranges must be.

use crate::model::forecast::{DAY, Forecast, FreeRange, HORIZONS, Widening};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use wall_clock::Moment;

/// Maximum number of kept forecasts.
const MAX_KEPT: usize = 400;

/// Maximum delay of a measurement after the forecast's moment for the two to be compared.
const COMPARED_WITHIN: Duration = Duration::from_secs(3_600);

/// Minimum number of compared forecasts before ranges are adjusted, and the maximum number used.
const MIN_COMPARED: usize = 10;
const MAX_COMPARED: usize = 60;

/// The share of outcomes that a range should contain.
const HELD_SHARE: f64 = 0.8;

/// The limits of the factors on ranges.
const MIN_FACTOR: f64 = 0.5;
const MAX_FACTOR: f64 = 4.0;

/// The forecast of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptRange {
    /// Days ahead.
    pub days: u32,
    /// The predicted free bytes.
    pub range: FreeRange,
    /// The factor by which the record had widened the range.
    pub widened: f64,
    /// The actual free bytes; `None` before that moment, or if they were not measured then.
    pub came: Option<u64>,
}

/// The forecast of one day.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptForecast {
    /// When it was made.
    pub made_at: Moment,
    /// Free bytes then.
    pub free_bytes: u64,
    /// The moments that it predicted.
    pub ranges: Vec<KeptRange>,
}

/// The forecasts of one volume, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ForecastRecord {
    /// The forecasts.
    pub kept: Vec<KeptForecast>,
}

/// How accurate the last forecasts for one horizon were.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backtest {
    /// Number of forecasts compared with the actual free space.
    pub compared: usize,
    /// Number of these whose range contained the actual free space.
    pub within: usize,
    /// The median error, as a share of the median change of free space within the horizon.
    pub error: f64,
}

impl KeptRange {
    const fn holds(&self, came: u64) -> bool {
        self.range.low <= came && came <= self.range.high
    }

    /// The error as a multiple of the distance from the median to the end of the range on the same
    /// side, before widening.
    fn score(&self, came: u64) -> f64 {
        let FreeRange { low, median, high } = self.range;
        let side = if came < median { median - low.min(median) } else { high.max(median) - median };
        let side = side as f64 / self.widened.max(f64::MIN_POSITIVE);
        median.abs_diff(came) as f64 / side.max(1.0)
    }
}

impl ForecastRecord {
    /// Whether the forecast of a new day is to be kept.
    pub fn is_due(&self, now: Moment) -> bool {
        let last = self.kept.last();
        last.is_none_or(|last| last.made_at > now || last.made_at.age(now) >= DAY)
    }

    /// Whether its last forecast is too old for anything in it to be compared.
    pub fn is_over(&self, now: Moment) -> bool {
        let longest = DAY * HORIZONS[HORIZONS.len() - 1];
        let last = self.kept.last();
        last.is_none_or(|last| last.made_at.age(now) > longest + COMPARED_WITHIN)
    }

    /// Keeps a forecast whose ranges the record had widened by these factors.
    pub fn keep(&mut self, forecast: &Forecast, widening: Widening) {
        let ranges = HORIZONS.iter().zip(widening).filter_map(|(days, widened)| {
            let range = forecast.after_days(*days)?;
            Some(KeptRange { days: *days, range, widened, came: None })
        });
        let Forecast { made_at, free_bytes, .. } = *forecast;
        self.kept.push(KeptForecast { made_at, free_bytes, ranges: ranges.collect() });
        let surplus = self.kept.len().saturating_sub(MAX_KEPT);
        self.kept.drain(..surplus);
    }

    /// Compares earlier forecasts for this moment with the free space; returns whether there were any.
    pub fn compare(&mut self, free_bytes: u64, now: Moment) -> bool {
        let mut is_any = false;
        for forecast in &mut self.kept {
            for range in forecast.ranges.iter_mut().filter(|range| range.came.is_none()) {
                let due = forecast.made_at.plus(DAY * range.days);
                if due <= now && due.age(now) <= COMPARED_WITHIN {
                    range.came = Some(free_bytes);
                    is_any = true;
                }
            }
        }
        is_any
    }

    /// The compared forecasts for a horizon, latest first: free bytes when made, the range, and the actual free bytes.
    fn compared(&self, days: u32) -> impl Iterator<Item = (u64, &KeptRange, u64)> {
        self.kept.iter().rev().filter_map(move |forecast| {
            let range = forecast.ranges.iter().find(|range| range.days == days)?;
            Some((forecast.free_bytes, range, range.came?))
        })
    }

    /// The factors by which ranges must be widened so that four of five would have contained the actual value.
    pub fn widening(&self) -> Widening {
        HORIZONS.map(|days| {
            let compared = self.compared(days).take(MAX_COMPARED);
            let mut scores: Vec<f64> = compared.map(|(_, range, came)| range.score(came)).collect();
            if scores.len() < MIN_COMPARED {
                return 1.0;
            }
            scores.sort_by(f64::total_cmp);
            // One more than the share, as if the next outcome were included.
            let place = (scores.len() + 1) as f64 * HELD_SHARE;
            let held = scores.iter().enumerate().find(|(at, _)| *at as f64 + 1.0 >= place);
            held.map_or(MAX_FACTOR, |(_, score)| score.clamp(MIN_FACTOR, MAX_FACTOR))
        })
    }

    /// How accurate the last `most` forecasts for a horizon were; `None` before one was compared.
    pub fn backtest(&self, days: u32, most: usize) -> Option<Backtest> {
        let compared: Vec<_> = self.compared(days).take(most).collect();
        if compared.is_empty() {
            return None;
        }
        let median = |mut values: Vec<u64>| {
            values.sort_unstable();
            let at = |place: usize| values.get(place).copied().unwrap_or_default() as f64;
            f64::midpoint(at((values.len() - 1) / 2), at(values.len() / 2))
        };
        let errors = compared.iter().map(|(_, range, came)| range.range.median.abs_diff(*came));
        let changes = compared.iter().map(|(free, _, came)| free.abs_diff(*came));
        Some(Backtest {
            compared: compared.len(),
            within: compared.iter().filter(|(_, range, came)| range.holds(*came)).count(),
            error: median(errors.collect()) / median(changes.collect()).max(1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn at(day: u64) -> Moment {
        Moment::from_unix(1_000_000_000 + day * 86_400)
    }

    /// A forecast of 10 GiB less each day, plus or minus one per day.
    fn forecast(day: u64, free_bytes: u64) -> Forecast {
        let days = (1..=40).map(|ahead| {
            let median = free_bytes.saturating_sub(10 * GIB * ahead);
            FreeRange {
                low: median.saturating_sub(ahead * GIB),
                median,
                high: median + ahead * GIB,
            }
        });
        Forecast { made_at: at(day), free_bytes, days: days.collect(), ..Forecast::default() }
    }

    /// A volume that loses `rate` GiB each day, forecast for this many days.
    fn lived(days: u64, rate: u64) -> ForecastRecord {
        let mut record = ForecastRecord::default();
        for day in 0..days {
            let free = 5_000 * GIB - day * rate * GIB;
            record.compare(free, at(day));
            assert!(record.is_due(at(day)));
            record.keep(&forecast(day, free), [1.0; 3]);
            assert!(!record.is_due(at(day).plus(DAY / 2)), "once a day");
        }
        record
    }

    #[test]
    fn kept_forecasts_are_compared_with_later_measurements() {
        let right = lived(40, 10).backtest(7, 30).unwrap();
        assert_eq!(right, Backtest { compared: 30, within: 30, error: 0.0 });
        let wrong = lived(40, 20).backtest(7, 30).unwrap();
        assert_eq!((wrong.compared, wrong.within), (30, 0));
        assert!((wrong.error - 0.5).abs() < 1e-9, "70 of 140 GiB: {}", wrong.error);
        assert_eq!(lived(7, 10).backtest(7, 30), None, "none has come yet");
        assert_eq!(lived(8, 10).backtest(7, 30).unwrap().compared, 1);
    }

    #[test]
    fn past_errors_widen_or_narrow_forecast_ranges() {
        assert_eq!(lived(9, 20).widening(), [1.0; 3], "too few were compared");
        let [day, week, month] = lived(25, 13).widening();
        assert!((day - 3.0).abs() < 1e-6 && (week - 3.0).abs() < 1e-6, "{day}, {week}");
        assert!((month - 1.0).abs() < 1e-6, "none came");
        assert!((lived(25, 10).widening()[0] - MIN_FACTOR).abs() < 1e-6);
    }

    #[test]
    fn forecast_without_a_timely_measurement_is_not_compared() {
        let mut record = ForecastRecord::default();
        record.keep(&forecast(0, 900 * GIB), [1.0; 3]);
        assert!(!record.compare(GIB, at(0).plus(DAY / 2)), "not yet");
        assert!(!record.compare(GIB, at(2)), "a day late");
        assert_eq!(record.backtest(1, 30), None);
        assert!(record.compare(GIB, at(7).plus(Duration::from_secs(60))));
        assert_eq!(record.backtest(7, 30).unwrap().within, 0);
    }

    #[test]
    fn forecast_record_keeps_at_most_400_days() {
        let mut record = ForecastRecord::default();
        (0..500).for_each(|day| record.keep(&forecast(day, GIB), [1.0; 3]));
        assert_eq!((record.kept.len(), record.kept[0].made_at), (400, at(100)));
    }
}
