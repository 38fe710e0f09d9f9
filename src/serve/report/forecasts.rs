//! The forecasts of volumes, and how accurate earlier ones were.

use crate::{
    advice::AdviceView,
    model::{
        forecast::{Forecast, FreeRange, FullRange, HORIZONS},
        records::{Backtest, ForecastRecord, KeptForecast},
    },
    plan::{Plan, disk::volume_title},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// Number of past forecasts that are compared and listed.
const LAST: usize = 30;

/// The forecasts of all volumes with known free space, given the compactions of the current mode: smoosh's or
/// recliner's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Forecasts {
    /// How accurate earlier forecasts were, in a sentence for each volume.
    pub says: Vec<String>,
    /// The volumes.
    pub volumes: Vec<VolumeForecastLine>,
}

/// The forecast of one volume. Ranges contain four outcomes of five.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeForecastLine {
    /// The volume.
    pub volume: String,
    /// The nodes with files on the volume.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// When the forecast was made; null if there is none.
    pub made_at: Option<String>,
    /// Why there is no forecast; null if there is one.
    pub withheld: Option<String>,
    /// For how long growth was watched, in seconds; null if there is no forecast.
    pub watched_seconds: Option<u64>,
    /// Free bytes ahead, as far as the forecast reaches.
    pub ahead: Vec<FreeLine>,
    /// When the volume is full.
    #[serde(flatten)]
    pub full: FullDates,
    /// How accurate the last forecasts for each horizon were.
    pub record: Vec<RecordLine>,
    /// The last forecasts that were kept, the latest first.
    pub kept: Vec<KeptLine>,
}

/// When a volume is full by its forecast. Null if not within its reach, or if there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FullDates {
    /// When the volume is full, by the median of the forecast; null if not within its reach, or unknown.
    pub full_at: Option<String>,
    /// The start of the range of `full_at`: one outcome of ten is earlier; null if not within reach, or unknown.
    pub full_early_at: Option<String>,
    /// The end of the range of `full_at`: one outcome of ten is later; null if not within reach, or unknown.
    pub full_late_at: Option<String>,
}

impl FullDates {
    /// The dates of a forecast, if there is one.
    pub(super) fn of(forecast: Option<&Forecast>) -> Self {
        let FullRange { early, median, late } = forecast.map(|it| it.full).unwrap_or_default();
        let [full_early_at, full_at, full_late_at] =
            [early, median, late].map(|at| at.map(Moment::rfc3339));
        Self { full_at, full_early_at, full_late_at }
    }

    /// The range in words; `None` if it lies within one day, or begins beyond the reach of the forecast.
    pub(crate) fn likely(&self) -> Option<String> {
        let [early, median, late] = [&self.full_early_at, &self.full_at, &self.full_late_at]
            .map(|at| at.as_deref().and_then(Moment::parse));
        FullRange { early, median, late }.likely()
    }
}

/// Free bytes at one future moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FreeLine {
    /// Days ahead.
    pub days: u32,
    /// The lower end of the range.
    pub low_bytes: u64,
    /// The median.
    pub median_bytes: u64,
    /// The upper end of the range.
    pub high_bytes: u64,
}

/// How accurate the last forecasts for one horizon were.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordLine {
    /// Days ahead.
    pub days: u32,
    /// Number of forecasts compared with the actual free space, at most 30.
    pub compared: usize,
    /// Number of these whose range contained the actual free space.
    pub within: usize,
    /// The median error, as a share of the median change of free space in that time; null before one was compared.
    pub error_ratio: Option<f64>,
}

/// A kept forecast.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeptLine {
    /// When it was made.
    pub made_at: String,
    /// Free bytes then.
    pub free_bytes: u64,
    /// The predicted free bytes.
    pub ahead: Vec<FreeLine>,
    /// The actual free bytes, in the order of `ahead`; null if that moment is still to come, or was not measured.
    pub came_bytes: Vec<Option<u64>>,
}

impl Forecasts {
    /// The forecasts of the advice.
    pub fn of(advice: &AdviceView, plan: &Plan) -> Self {
        let forecasts = &advice.forecasts;
        let none = ForecastRecord::default();
        let volumes = forecasts.by_volume.iter().map(|(volume, known)| {
            let record = forecasts.records.get(&**volume).unwrap_or(&none);
            let known = known.as_ref().map(|known| known.expected(plan.rules.mode));
            let forecast = known.ok();
            let of_name = plan.conditions.disks.volumes.iter().find(|it| it.name == *volume);
            let nodes = of_name.into_iter().flat_map(|it| &it.nodes).map(ToString::to_string);
            VolumeForecastLine {
                volume: volume.to_string(),
                nodes: nodes.collect(),
                made_at: forecast.map(|forecast| forecast.made_at.rfc3339()),
                withheld: known.err().map(ToString::to_string),
                watched_seconds: forecast.map(|forecast| forecast.watched.as_secs()),
                ahead: HORIZONS
                    .iter()
                    .filter_map(|days| Some(FreeLine::of(*days, forecast?.after_days(*days)?)))
                    .collect(),
                full: FullDates::of(forecast),
                record: HORIZONS.iter().map(|days| RecordLine::of(*days, record)).collect(),
                kept: record.kept.iter().rev().take(LAST).map(KeptLine::of).collect(),
            }
        });
        let volumes: Vec<VolumeForecastLine> = volumes.collect();
        Self { says: volumes.iter().map(VolumeForecastLine::says).collect(), volumes }
    }
}

impl VolumeForecastLine {
    /// The volume's name for people.
    pub(crate) fn title(&self) -> String {
        volume_title(&self.volume, &self.nodes)
    }

    /// How accurate the forecasts were, in a sentence.
    pub fn says(&self) -> String {
        let title = self.title();
        let told: Vec<String> = self.record.iter().filter_map(RecordLine::says).collect();
        if told.is_empty() {
            return format!("{title}: no forecast could be compared with the outcome yet.");
        }
        format!("{title}: {}.", told.join("; "))
    }
}

impl RecordLine {
    fn of(days: u32, record: &ForecastRecord) -> Self {
        let backtest = record.backtest(days, LAST);
        let Backtest { compared, within, error } =
            backtest.unwrap_or(Backtest { compared: 0, within: 0, error: 0.0 });
        Self { days, compared, within, error_ratio: backtest.map(|_| error) }
    }

    fn says(&self) -> Option<String> {
        let Self { days, compared, within, error_ratio } = self;
        let error = (error_ratio.as_ref()? * 100.0).round();
        let days = if *days == 1 { "one day".to_owned() } else { format!("{days} days") };
        Some(format!(
            "of the last {compared} forecasts for {days}, {within} had the outcome within their range; the median error was {error} % of the change"
        ))
    }
}

impl FreeLine {
    const fn of(days: u32, range: FreeRange) -> Self {
        let FreeRange { low, median, high } = range;
        Self { days, low_bytes: low, median_bytes: median, high_bytes: high }
    }
}

impl KeptLine {
    fn of(kept: &KeptForecast) -> Self {
        let ahead = kept.ranges.iter().map(|range| FreeLine::of(range.days, range.range));
        Self {
            made_at: kept.made_at.rfc3339(),
            free_bytes: kept.free_bytes,
            ahead: ahead.collect(),
            came_bytes: kept.ranges.iter().map(|range| range.came).collect(),
        }
    }
}
