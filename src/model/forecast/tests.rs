//! Forecasts of series that can be calculated by hand, and of simulated worlds.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a conversion from float saturates, and days are few"
)]

mod judged;
mod worlds;

use super::*;
use proptest::prelude::*;

const GIB: i64 = 1 << 30;
const HOUR: u64 = 3_600;
const NOW: u64 = 1_795_222_434;

fn now() -> Moment {
    Moment::from_unix(NOW)
}

/// A history of `hours` hours: live bytes, waste and events of each hour, in GiB, given how many hours ago it began.
fn history(hours: u64, booked: impl Fn(u64) -> [i64; 3]) -> GrowthHistory {
    let span = |ago: u64| {
        let [live, waste, event] = booked(ago).map(|gib| gib * GIB);
        let at = |ago: u64| Moment::from_unix(NOW - ago * HOUR);
        BookedSpan {
            from: at(ago),
            until: at(ago - 1),
            live_bytes: live,
            waste_bytes: waste,
            event_bytes: event,
        }
    };
    GrowthHistory { spans: (1..=hours).rev().map(span).collect() }
}

fn forecast_of(history: &GrowthHistory, free_gib: u64, freed: &FreedCourse) -> Forecast {
    let free_bytes = free_gib << 30;
    let facts =
        VolumeFacts { history, free_bytes, waste_bytes: 1 << 50, freed, widening: [1.0; 3] };
    forecast(&facts, now()).unwrap()
}

fn assert_near(bytes: u64, gib: f64) {
    let found = bytes as f64 / GIB as f64;
    assert!((found - gib).abs() < 0.01 * gib.max(1.0), "{found} GiB, not {gib}");
}

#[test]
fn steady_growth_is_extrapolated_until_the_volume_is_full() {
    let steady = history(30 * 24, |_| [1, 2, 0]);
    let forecast = forecast_of(&steady, 720, &FreedCourse::default());
    assert_near(forecast.after_days(1).unwrap().median, 648.0);
    let week = forecast.after_days(7).unwrap();
    assert_near(week.median, 216.0);
    assert_near(week.high - week.low, 0.0);
    assert_eq!(forecast.after_days(11).unwrap(), FreeRange::default(), "nothing is written then");
    let full = forecast.full.median.unwrap().unix() - NOW;
    assert!(full.abs_diff(10 * 86_400) < 600, "{full} s");
    assert_eq!(forecast.reach(), 60 * DAY);
    assert_near(forecast.median_after(DAY * 3 / 2).unwrap(), 612.0);
    assert_eq!(forecast.median_after(61 * DAY), None);
}

#[test]
fn forecast_is_withheld_until_growth_was_watched_for_two_days() {
    let of = |hours| {
        let history = history(hours, |_| [1, 0, 0]);
        let freed = &FreedCourse::default();
        let facts = VolumeFacts {
            history: &history,
            free_bytes: 1 << 40,
            waste_bytes: 0,
            freed,
            widening: [1.0; 3],
        };
        forecast(&facts, now())
    };
    assert_eq!(of(47), Err(Withheld::Watched(Duration::from_secs(47 * HOUR))));
    let why = of(5).unwrap_err().to_string();
    assert_eq!(why, "growth was measured for 5h; a forecast needs 2d");
    assert!(of(0).is_err());
    let short = of(48).unwrap();
    assert_eq!(short.reach(), 4 * DAY);
    assert!(short.after_days(7).is_none(), "a week is more than two days show");
}

#[test]
fn weekly_pattern_is_repeated() {
    // Ten GiB an hour on each seventh day, one on all others; today is the day before it.
    let weekly =
        history(28 * 24, |ago| if (ago - 1) / 24 % 7 == 6 { [10, 0, 0] } else { [1, 0, 0] });
    let forecast = forecast_of(&weekly, 1_000, &FreedCourse::default());
    assert_near(forecast.after_days(1).unwrap().median, 760.0);
    assert_near(forecast.after_days(2).unwrap().median, 736.0);
    assert_near(forecast.after_days(7).unwrap().median, 616.0);
}

#[test]
fn single_event_does_not_count_as_a_rate_unless_repeated() {
    let at = |ago: u64, event: [i64; 3]| if ago == 30 { event } else { [1, 0, 0] };
    for once in [[1, 0, 300], [300, 0, 0]] {
        let forecast =
            forecast_of(&history(28 * 24, |ago| at(ago, once)), 2_000, &FreedCourse::default());
        let week = forecast.after_days(7).unwrap();
        assert_near(week.median, 2_000.0 - 168.0);
        assert!(week.low < 1_600 << 30, "but it widens the range: {week:?}");
    }
    let twice = history(28 * 24, |ago| if ago % 168 == 30 { [1, 0, 300] } else { [1, 0, 0] });
    let week = forecast_of(&twice, 2_000, &FreedCourse::default()).after_days(7).unwrap();
    assert_near(week.median, 2_000.0 - 468.0);
}

#[test]
fn doubling_growth_continues_with_a_damped_trend() {
    let doubling = history(28 * 24, |ago| [1 << (3 - (ago - 1) / 168), 0, 0]);
    let forecast = forecast_of(&doubling, 20_000, &FreedCourse::default());
    // Eight GiB an hour in the last week, sixteen in the next.
    assert_near(forecast.after_days(7).unwrap().median, 20_000.0 - 16.0 * 168.0);
    let fortnight = forecast.after_days(14).unwrap().median;
    let second = forecast.after_days(7).unwrap().median - fortnight;
    assert!((20 * 168..32 * 168).contains(&(second >> 30)), "{second}");
}

#[test]
fn compaction_frees_no_more_than_the_waste_there_is() {
    let steady = history(30 * 24, |_| [0, 1, 0]);
    let point = |days: u32, waste: f64, freed: f64| FreedPoint {
        after: DAY * days,
        waste: waste * GIB as f64,
        freed: freed * GIB as f64,
    };
    // In the simulation, writes are half as fast: 240 GiB are freed once 240 are written.
    let freed = FreedCourse(vec![point(0, 0.0, 0.0), point(20, 240.0, 240.0)]);
    let kept = forecast_of(&steady, 1_000, &freed);
    assert_near(kept.after_days(5).unwrap().median, 1_000.0);
    assert_near(kept.after_days(40).unwrap().median, 1_000.0);
    let idle = history(30 * 24, |_| [0, 0, 0]);
    let backlog = FreedCourse(vec![point(0, 0.0, 0.0), point(10, 0.0, 100.0)]);
    assert_near(forecast_of(&idle, 500, &backlog).after_days(5).unwrap().median, 550.0);
    let rest = backlog.since(DAY * 4).freed(0.0, DAY * 3);
    assert_near(rest as u64, 30.0);
    let facts = VolumeFacts {
        history: &idle,
        free_bytes: 500 << 30,
        waste_bytes: 20 << 30,
        freed: &backlog,
        widening: [1.0; 3],
    };
    assert_near(forecast(&facts, now()).unwrap().after_days(9).unwrap().median, 520.0);
}

proptest! {
    #![proptest_config(crate::cases::one_case_in(4))]

    /// For any history, a range is ordered, and nothing panics.
    #[test]
    fn forecast_ranges_are_ordered_for_any_history(
        booked in proptest::collection::vec((-4_i64..9, 0_i64..9, -50_i64..50, 1_u64..4_000), 1..60),
        free in 0_u64..500,
        widened in 0.5_f64..4.0,
    ) {
        let mut spans = Vec::new();
        let mut from = NOW - booked.iter().map(|it| it.3 * 600).sum::<u64>();
        for (live, waste, event, minutes) in booked {
            let until = from + minutes * 600;
            spans.push(BookedSpan {
                from: Moment::from_unix(from),
                until: Moment::from_unix(until),
                live_bytes: live * GIB,
                waste_bytes: waste * GIB,
                event_bytes: event * GIB,
            });
            from = until;
        }
        let (history, freed) = (GrowthHistory { spans }, FreedCourse::default());
        let facts = VolumeFacts {
            history: &history,
            free_bytes: free << 30,
            waste_bytes: 5 << 30,
            freed: &freed,
            widening: [widened; 3],
        };
        if let Ok(forecast) = forecast(&facts, now()) {
            for range in &forecast.days {
                prop_assert!(range.low <= range.median && range.median <= range.high, "{range:?}");
            }
            let FullRange { early, median, late } = forecast.full;
            prop_assert!(median.is_none() || early <= median);
            prop_assert!(late.is_none() || median <= late);
        }
    }
}

proptest! {
    /// Every byte belongs to exactly one day, for any spans.
    #[test]
    fn every_booked_byte_is_in_exactly_one_day(lengths in proptest::collection::vec(1_u64..200_000, 1..40)) {
        let mut until = NOW;
        let mut spans = Vec::new();
        for seconds in lengths {
            let (from, live_bytes) = (until - seconds, (seconds * 1_000) as i64);
            spans.push(BookedSpan {
                from: Moment::from_unix(from),
                until: Moment::from_unix(until),
                live_bytes,
                ..BookedSpan::default()
            });
            until = from;
        }
        spans.reverse();
        for day in (GrowthHistory { spans }).days(now(), 28) {
            prop_assert!((day.growth - 86_400_000.0).abs() < 1.0, "{day:?}");
        }
    }
}
