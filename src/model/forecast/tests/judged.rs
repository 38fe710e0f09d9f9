//! Forecasts judged on worlds that they were not fitted to: a forecast each day, kept, and compared
//! by the record that the service keeps.

use super::{
    super::*,
    worlds::{DAYS, Kind, World},
};
use crate::model::records::ForecastRecord;
use std::fmt::Write as _;

const SEEDS: u64 = 5;

/// The hour of the day at which forecasts are made.
const HOUR_OF_DAY: usize = 9;

/// Days before forecasts are judged: they learn the rhythm of the week, and ten are compared first.
const UNJUDGED_DAYS: usize = 14;

/// The sums of one horizon in one kind of world.
#[derive(Default)]
struct Judged {
    within: usize,
    changes: Vec<f64>,
    errors: Vec<f64>,
    hours: Vec<f64>,
    week: Vec<f64>,
    best: Vec<f64>,
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    rhythm::quantile(&values, 0.5)
}

impl Judged {
    fn add_world(&mut self, kind: Kind, seed: u64, days: usize) {
        let (world, ahead) = (World::new(kind, seed), days * 24);
        let mut record = ForecastRecord::default();
        for day in 2..DAYS {
            let hour = day * 24 + HOUR_OF_DAY;
            let (now, free) = (World::moment(hour), world.free_at(hour));
            record.compare(free as u64, now);
            let widening = record.widening();
            let facts = VolumeFacts {
                history: &world.history(hour),
                free_bytes: free as u64,
                waste_bytes: world.waste_at(hour) as u64,
                freed: &world.simulated(hour),
                widening,
            };
            let forecast = forecast(&facts, now).unwrap();
            record.keep(&forecast, widening);
            let Some(range) = forecast.after_days(days as u32) else { continue };
            if day < UNJUDGED_DAYS || hour + ahead > DAYS * 24 {
                continue;
            }
            let came = world.free_at(hour + ahead);
            self.within += usize::from(range.low as f64 <= came && came <= range.high as f64);
            self.changes.push((came - free).abs());
            self.errors.push((came - range.median as f64).abs());
            self.hours.push((came - world.predict_linear(hour, 6, ahead)).abs());
            self.week.push((came - world.predict_linear(hour, 168, ahead)).abs());
            self.best.push((came - world.best_guess(hour, ahead)).abs());
        }
    }

    /// The share of ranges that contained the actual value, and the median errors as shares of the median change: of
    /// the forecast, of `predict_linear` over six hours and over seven days, and of an observer who knows the world.
    fn shares(&self) -> [f64; 5] {
        let change = median(&self.changes);
        let error = |errors: &[f64]| median(errors) / change;
        let held = self.within as f64 / self.errors.len() as f64;
        [held, error(&self.errors), error(&self.hours), error(&self.week), error(&self.best)]
    }
}

/// The table of one horizon, and its shares by kind of world.
fn judge(days: usize) -> (String, Vec<[f64; 5]>) {
    let mut text = format!("{days} days: held, error, predict_linear over 6h, over 7d, at best\n");
    let shares = Kind::ALL.map(|kind| {
        let mut judged = Judged::default();
        (1..=SEEDS).for_each(|seed| judged.add_world(kind, seed, days));
        let shares = judged.shares();
        let [held, error, hours, week, best] = shares.map(|share| 100.0 * share);
        let name = kind.name();
        writeln!(
            text,
            "{name:18} {held:>4.0} % {error:>6.1} % {hours:>6.1} % {week:>6.1} % {best:>6.1} %"
        )
        .unwrap();
        shares
    });
    (text, shares.to_vec())
}

#[test]
fn week_forecast_beats_linear_extrapolation_in_every_world() {
    let (table, shares) = judge(7);
    insta::assert_snapshot!(table);
    for [held, error, hours, week, _] in shares {
        assert!((0.7..=0.9).contains(&held), "{table}");
        assert!(error < hours && error < week, "{table}");
    }
}
