//! Tests rent against values calculated by hand, and against a second implementation that keeps
//! every reading.

use super::*;
use crate::model::{correction::Correction, facts::OptionalU64};
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn at(seconds: u64) -> Moment {
    Moment::from_unix(seconds)
}

fn reading(seconds: u64, file: u64, reclaimable: u64, compacted: u64) -> WasteReading {
    WasteReading {
        at: at(seconds),
        reclaimable_bytes: reclaimable,
        file_bytes: file,
        compacted_seq: Some(compacted),
    }
}

/// The rent after these readings, and its byte-seconds at the time of the last one.
fn rent_after(readings: &[WasteReading]) -> (Rent, f64) {
    let mut rent = Rent::UNKNOWN;
    let mut previous: Option<&WasteReading> = None;
    for seen in readings {
        rent = rent.after_reading(previous, Some(seen));
        previous = Some(seen);
    }
    let last = previous.expect("there is a reading");
    (rent, rent.byte_seconds(last.reclaimable_bytes, last.at).expect("it was read"))
}

#[test]
fn rent_is_unknown_before_and_zero_at_the_first_reading() {
    assert_eq!(Rent::UNKNOWN.byte_seconds(100, at(50)), None);
    assert_eq!(Rent::UNKNOWN.parts(), None);
    assert_eq!(rent_after(&[reading(50, 900, 500, 0)]).1, 0.0);
    let read = Rent::UNKNOWN.after_reading(None, Some(&reading(50, 900, 500, 0)));
    assert_eq!(read.byte_seconds(500, at(60)), Some(5_000.0));
    assert_eq!(read.after_reading(Some(&reading(50, 900, 500, 0)), None).parts(), None);
}

#[test]
fn constant_waste_leaves_stored_rent_unchanged() {
    let first = reading(100, 900, 500, 0);
    let rent = Rent::UNKNOWN.after_reading(None, Some(&first));
    let mut known = first;
    for later in [130, 400, 401, 9_000] {
        let seen = WasteReading { at: at(later), ..known };
        assert_eq!(rent.after_reading(Some(&known), Some(&seen)), rent);
        known = seen;
    }
    assert_eq!(rent.byte_seconds(500, at(9_000)), Some(500.0 * 8_900.0));
}

#[test]
fn waste_between_two_readings_is_interpolated() {
    let (_, rent) = rent_after(&[
        reading(100, 1_000, 0, 0),
        reading(200, 1_000, 0, 0),
        reading(300, 2_000, 1_000, 0),
        reading(310, 2_000, 1_000, 0),
        reading(350, 4_000, 3_000, 0),
    ]);
    assert_eq!(rent, 100.0 * 500.0 + 10.0 * 1_000.0 + 40.0 * 2_000.0);
}

#[test]
fn a_compaction_pays_off_the_share_of_the_waste_that_it_freed() {
    for (case, after, left) in [
        ("everything", reading(200, 1_000, 0, 7), 0.0),
        ("a quarter stays wasted", reading(200, 2_000, 1_000, 7), 0.25),
        ("new data hides what the file lost", reading(200, 9_000, 1_000, 7), 0.25),
        ("less than promised", reading(200, 4_000, 3_000, 7), 0.75),
        ("more than promised", reading(200, 500, 0, 7), 0.0),
        ("nothing written since the last one: the file shows it", reading(200, 1_000, 0, 3), 0.0),
        ("waste that was written over without a compaction", reading(200, 5_000, 0, 3), 1.0),
    ] {
        let (_, rent) = rent_after(&[reading(100, 5_000, 4_000, 3), after]);
        let mean = f64::midpoint(4_000.0, after.reclaimable_bytes as f64);
        assert_eq!(rent, 100.0 * mean * left, "{case}");
    }
}

#[test]
fn view_counts_as_compacted_if_half_of_its_waste_is_gone() {
    let view = |seconds, file, reclaimable| WasteReading {
        compacted_seq: None,
        ..reading(seconds, file, reclaimable, 0)
    };
    // Two readings over HTTP may be of different copies.
    let (_, other_copy) = rent_after(&[view(100, 5_000, 4_000), view(200, 4_500, 3_500)]);
    assert_eq!(other_copy, 100.0 * 3_750.0);
    let (_, compacted) = rent_after(&[view(100, 5_000, 4_000), view(200, 2_000, 1_000)]);
    assert_eq!(compacted, 100.0 * 2_500.0 * 0.25);
}

#[test]
fn setting_the_clock_neither_loses_nor_doubles_rent() {
    const HOUR: u64 = 3_600;
    const YEAR: u64 = 365 * 24 * HOUR;
    let start = YEAR * 50;
    for (case, step) in [("forward", i64::try_from(YEAR).unwrap()), ("back", -86_400)] {
        let on = |seconds: u64| at((start + seconds).checked_add_signed(step).unwrap());
        let first = reading(start, 900, 500, 0);
        let rent = Rent::UNKNOWN.after_reading(None, Some(&first));
        let last = WasteReading { at: at(start + HOUR), ..first };
        let rent = rent.after_reading(Some(&first), Some(&last));
        // The clock is set an hour later, and the file is read another hour after that.
        let rent = rent.settled(500, at(start + 2 * HOUR), on(2 * HOUR));
        assert_eq!(rent.byte_seconds(500, on(3 * HOUR)), Some(3.0 * 3_600.0 * 500.0), "{case}");
        let seen = WasteReading { at: on(3 * HOUR), reclaimable_bytes: 600, ..first };
        let rent = rent.after_reading(Some(&last), Some(&seen));
        let changing = 550.0 * 3_600.0;
        let expected = 2.0 * 3_600.0 * 500.0 + changing;
        let known = rent.byte_seconds(600, on(3 * HOUR)).unwrap();
        assert!((known - expected).abs() < expected * 1e-6, "{case}: {known}, not {expected}");
    }
}

#[test]
fn file_that_is_half_waste_is_due_after_one_horizon() {
    let day = 86_400.0;
    for (waste, live, horizons) in [(1, 1, 1.0), (10, 1, 0.1), (1, 10, 10.0)] {
        let rent = (waste * GIB) as f64 * day * horizons;
        assert!((overdue(rent, live * GIB, day) - 1.0).abs() < 1e-12, "{waste} of {live}");
    }
    assert!(overdue(1.0, 0, day).is_finite(), "an empty file");
}

#[test]
fn facts_without_sizes_or_time_give_no_waste_reading() {
    let facts = Facts::read(2 << 20, 1 << 20, at(9));
    assert!(WasteReading::of(TargetKind::Db, &facts, Correction::NONE).is_some());
    assert!(WasteReading::of(TargetKind::Cleanup, &facts, Correction::NONE).is_none());
    for unknown in [
        Facts { measured_at: None, ..facts },
        Facts { active_bytes: OptionalU64::UNKNOWN, ..facts },
        Facts { file_bytes: OptionalU64::UNKNOWN, ..facts },
    ] {
        assert!(WasteReading::of(TargetKind::Db, &unknown, Correction::NONE).is_none());
    }
}

/// Rent from the whole history of a database: each interval between two readings adds its area, and
/// each compaction forgives a share of all earlier areas.
fn from_history(readings: &[WasteReading], now: Moment) -> f64 {
    let mut areas: Vec<f64> = Vec::new();
    for pair in readings.windows(2) {
        let (one, two) = (pair[0], pair[1]);
        let seconds = (two.at.unix() - one.at.unix()) as f64;
        let (before, after) = (one.reclaimable_bytes as f64, two.reclaimable_bytes as f64);
        areas.push(before * seconds + (after - before) * seconds / 2.0);
        let compacted = two.file_bytes < one.file_bytes || two.compacted_seq > one.compacted_seq;
        if compacted {
            let by_file = one.file_bytes as f64 - two.file_bytes as f64;
            let freed = by_file.max(before - after).max(0.0);
            let kept = if before == 0.0 { 0.0 } else { (1.0 - freed / before).max(0.0) };
            areas.iter_mut().for_each(|area| *area *= kept);
        }
    }
    let last = readings[readings.len() - 1];
    let since = (now.unix() - last.at.unix()) as f64;
    areas.iter().sum::<f64>() + last.reclaimable_bytes as f64 * since
}

prop_compose! {
    /// Readings at uneven times, of a file that grows, stays, and is compacted.
    fn histories()(steps in proptest::collection::vec(
        (1_u64..100_000, 0_u64..(1 << 40), 0_u64..(1 << 40), 0_u8..4), 1..40,
    )) -> Vec<WasteReading> {
        let (mut time, mut known) = (1_000_000_000, reading(1_000_000_000, GIB, 0, 0));
        let mut all = vec![known];
        for (seconds, file, waste, what) in steps {
            time += seconds;
            known = match what {
                0 => WasteReading { at: at(time), ..known },
                1 => WasteReading {
                    at: at(time),
                    file_bytes: known.file_bytes + file,
                    reclaimable_bytes: known.reclaimable_bytes + waste.min(file),
                    ..known
                },
                _ => WasteReading {
                    at: at(time),
                    file_bytes: file.max(waste),
                    reclaimable_bytes: waste.min(file),
                    compacted_seq: known.compacted_seq.map(|seq| seq + u64::from(what) - 1),
                },
            };
            all.push(known);
        }
        all
    }
}

proptest! {
    #[test]
    fn rent_agrees_with_rent_from_whole_history(readings in histories(), later in 0_u64..1_000_000) {
        let (rent, _) = rent_after(&readings);
        let last = readings[readings.len() - 1];
        let now = at(last.at.unix() + later);
        let ours = rent.byte_seconds(last.reclaimable_bytes, now).unwrap();
        let theirs = from_history(&readings, now);
        prop_assert!((ours - theirs).abs() <= theirs * 1e-4 + 1.0, "{ours}, not {theirs}");
    }

    /// A target with waste is due within its cost times the horizon divided by its waste,
    /// regardless of earlier readings.
    #[test]
    fn waste_is_due_in_bounded_time(readings in histories(), horizon in 1_u64..1_000_000) {
        let (rent, _) = rent_after(&readings);
        let last = readings[readings.len() - 1];
        prop_assume!(last.reclaimable_bytes > 0);
        let cost = last.file_bytes - last.reclaimable_bytes;
        let bound = (cost.max(1) as f64 * horizon as f64 / last.reclaimable_bytes as f64).ceil();
        prop_assume!(bound < 1e9);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is small")]
        let now = at(last.at.unix() + bound as u64 + 1);
        let paid = rent.byte_seconds(last.reclaimable_bytes, now).unwrap();
        prop_assert!(overdue(paid, cost, horizon as f64) >= 1.0);
    }
}
