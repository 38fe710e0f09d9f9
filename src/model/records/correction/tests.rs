//! Tests learning from real compactions, and against a second implementation that keeps every
//! outcome.

use super::*;
use crate::model::{
    correction::Content,
    estimate,
    facts::{Confidence, Facts, OptionalU64},
};
use proptest::prelude::*;

const DAY: u64 = 24 * 3600;

fn key(db: &str) -> CorrectionKey {
    CorrectionKey { db: db.into(), suffix: ".1".into(), kind: TargetKind::Db }
}

fn correction(learned: &LearnedCorrections, db: &str, at: u64) -> Correction {
    let corrections = learned.in_force(Moment::from_unix(at));
    corrections.of(db, ".1").map(|it| it.db).unwrap_or_default()
}

/// A compaction that leaves `docs` documents of 10,000 bytes, where the fitted rule predicted
/// `fitted` bytes.
fn compaction(at: u64, docs: u64, fitted: u64) -> CompactionEvidence {
    CompactionEvidence {
        at: Moment::from_unix(at),
        fitted_bytes: fitted,
        left_bytes: docs * 10_000,
        content: Content { units: docs, overhead_bytes: 0 },
        changes: Some(10 * docs),
    }
}

/// One recorded compaction of a shard.
#[derive(Clone, Debug)]
struct Recorded {
    db: String,
    round: u64,
    before: Facts,
    after: Facts,
}

impl Recorded {
    fn left(&self) -> f64 {
        self.after.file_bytes.get().unwrap() as f64
    }

    fn error(&self, predicted: f64) -> f64 {
        (predicted / self.left() - 1.0).abs()
    }

    fn fitted(&self) -> u64 {
        estimate::fitted_bytes(TargetKind::Db, &self.before).unwrap()
    }

    fn evidence(&self, at: u64) -> CompactionEvidence {
        CompactionEvidence {
            at: Moment::from_unix(at),
            fitted_bytes: self.fitted(),
            left_bytes: self.after.file_bytes.get().unwrap(),
            content: Content::of(TargetKind::Db, &self.after).unwrap(),
            changes: crate::model::correction::changes_since_compaction(
                TargetKind::Db,
                &self.before,
            ),
        }
    }
}

/// Compactions in the order in which they ran.
fn recorded(csv: &str, db_column: &str) -> Vec<Recorded> {
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let read = |line: &str| {
        let cells: BTreeMap<&str, &str> = header.iter().copied().zip(line.split(',')).collect();
        let number = |name: &str| cells.get(name).and_then(|cell| cell.parse::<u64>().ok());
        let facts = |prefix: &str| {
            let of =
                |name: &str| number(&format!("{prefix}{name}")).or_else(|| number(name)).into();
            Facts {
                file_bytes: of("file"),
                active_bytes: of("active"),
                docs: of("docs"),
                deleted_docs: of("deldocs"),
                update_seq: of("update_seq"),
                compacted_seq: number(&format!("{prefix}compacted_seq"))
                    .map_or(OptionalU64::new(0), OptionalU64::new),
                ..Facts::default()
            }
        };
        let round = number("round").unwrap_or_default();
        let kind = cells.get("kind").is_none_or(|kind| *kind == "db");
        kind.then(|| Recorded {
            db: cells[db_column].to_owned(),
            round,
            before: facts(""),
            after: facts("after_"),
        })
    };
    lines.filter_map(read).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn three_compactions_correct_active_bytes_for_old_attachments() {
    let csv = include_str!("../../../../tests/data/compactions/attachments-3.3.3.csv");
    let mut learned = LearnedCorrections::default();
    let mut ratios: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let (mut fitted, mut corrected, mut by_ratio) = (Vec::new(), Vec::new(), Vec::new());
    let mut by_db: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (at, outcome) in (DAY..).step_by(3600).zip(recorded(csv, "db")) {
        let facts = Facts { confidence: Confidence::Low, ..outcome.before };
        let now = correction(&learned, &outcome.db, at);
        let predicted = now.predicted_bytes(TargetKind::Db, &facts).unwrap() as f64;
        // The alternative to compare with: a mean logarithm of the size left over the fitted
        // prediction.
        let (sum, count) = ratios.entry(outcome.db.clone()).or_default();
        let ratio = (*sum / (*count + 0.5)).exp();
        if outcome.round >= 3 {
            fitted.push(outcome.error(outcome.fitted() as f64));
            corrected.push(outcome.error(predicted));
            by_ratio.push(outcome.error(outcome.fitted() as f64 * ratio));
            by_db.entry(outcome.db.clone()).or_default().push(outcome.error(predicted));
            assert_eq!(now.confidence(TargetKind::Db, &facts), Confidence::Learned);
        }
        *sum += (outcome.left() / outcome.fitted() as f64).ln();
        *count += 1.0;
        learned.learn(key(&outcome.db), &outcome.evidence(at));
    }
    assert_eq!(fitted.len(), 18 * 2 * 4);
    let within = by_db.into_values().filter(|errors| median(errors.clone()) < 0.15).count();
    let medians = [median(fitted), median(by_ratio), median(corrected)];
    println!("errors {medians:?}; {within} of 18 databases within 15 %");
    assert!(medians[0] > 0.5, "{medians:?}");
    assert!(medians[1] > 2.0 * medians[2], "{medians:?}");
    assert!(medians[2] < 0.05, "{medians:?}");
    // The other databases have few documents, whose sizes differ by an order of magnitude.
    assert!(within >= 14, "{within} of 18");
}

#[test]
fn corrections_are_negligible_where_active_bytes_are_right() {
    let shapes = include_str!("../../../../tests/data/compactions/shapes.csv");
    let mut learned = LearnedCorrections::default();
    let (mut fitted, mut corrected) = (Vec::new(), Vec::new());
    // The files of one shape of documents act as the shards of one database.
    for (at, outcome) in (DAY..).step_by(3600).zip(recorded(shapes, "shape")) {
        let now = correction(&learned, &outcome.db, at);
        let predicted = now.predicted_bytes(TargetKind::Db, &outcome.before).unwrap() as f64;
        fitted.push(outcome.error(outcome.fitted() as f64));
        corrected.push(outcome.error(predicted));
        learned.learn(key(&outcome.db), &outcome.evidence(at));
    }
    let worst = |errors: &[f64]| errors.iter().copied().fold(0.0, f64::max);
    let (worst_before, worst_after) = (worst(&fitted), worst(&corrected));
    let (before, after) = (median(fitted), median(corrected));
    println!("median {before} -> {after}, worst {worst_before} -> {worst_after}");
    assert!(after <= before + 0.001, "{before} {after}");
    assert!(worst_after <= worst_before + 0.02, "{worst_before} {worst_after}");
}

#[test]
fn evidence_raises_trust_and_time_lowers_it() {
    let mut learned = LearnedCorrections::default();
    assert!(learned.in_force(Moment::from_unix(DAY)).is_empty(), "nothing was learned");
    let mut last = 0.0;
    for day in 1..=4 {
        learned.learn(key("a"), &compaction(day * DAY, 1_000, 25_000_000));
        let now = correction(&learned, "a", day * DAY);
        assert!(now.trust > last, "day {day}: {now:?}");
        assert_eq!(now.is_confirmed, day >= 3, "day {day}");
        assert!((now.density - 10_000.0).abs() < 0.01);
        last = now.trust;
    }
    assert!(last > 0.95, "{last}");
    for (months, least, most) in [(3, 0.9, 0.97), (18, 0.2, 0.5), (60, 0.0, 0.0)] {
        let now = correction(&learned, "a", 4 * DAY + months * 30 * DAY);
        assert!((least..=most).contains(&now.trust), "after {months} months: {now:?}");
    }
    let never_again = correction(&learned, "a", 60 * 365 * DAY);
    assert_eq!(never_again, Correction::NONE);
}

#[test]
fn later_contrary_evidence_outweighs_one_outlier() {
    let mut learned = LearnedCorrections::default();
    // Nearly everything was deleted just before the first compaction.
    learned.learn(key("a"), &compaction(DAY, 100, 100_000_000));
    assert!(correction(&learned, "a", DAY).trust > 0.8);
    // Later documents are four times as large, and active bytes are right.
    for day in 2..=5 {
        let larger = CompactionEvidence {
            left_bytes: 40_000_000,
            ..compaction(day * DAY, 1_000, 40_000_000)
        };
        learned.learn(key("a"), &larger);
    }
    let now = correction(&learned, "a", 5 * DAY);
    assert!(now.trust < 0.5, "{now:?}");
    assert!((25_000.0..40_000.0).contains(&now.density), "{now:?}");
}

#[test]
fn evidence_of_other_databases_counts_only_at_low_confidence() {
    let mut learned = LearnedCorrections::default();
    for db in ["a", "b", "c", "d", "e", "f"] {
        for day in 1..=3 {
            learned.learn(key(db), &compaction(day * DAY, 1_000, 25_000_000));
        }
    }
    // Its first compaction comes before any document is written twice.
    learned.learn(key("new"), &compaction(4 * DAY, 1_000, 10_000_000));
    let now = correction(&learned, "new", 4 * DAY);
    assert_eq!((now.trust, now.is_confirmed), (0.0, false));
    assert!((0.5..0.8).contains(&now.trust_where_low), "{now:?}");
    assert_eq!(correction(&learned, "never compacted", 4 * DAY), Correction::NONE);
}

#[test]
fn drops_databases_with_the_smallest_errors_when_full() {
    let mut learned = LearnedCorrections::default();
    let name = |at: usize| format!("db{at:05}");
    let mut stored = BTreeMap::new();
    for at in 0..MAX_RECORDS + 100 {
        // The fitted rule is wrong by more bytes for each further database, except for every 50th.
        let docs = if at % 50 == 49 { 1 } else { 1_000 + at as u64 };
        let changes = learned.learn(key(&name(at)), &compaction(DAY, docs, docs * 20_000));
        for (key, record) in changes {
            match record {
                Some(record) => stored.insert(key, record),
                None => stored.remove(&key),
            };
        }
    }
    assert_eq!(learned.records.len(), MAX_RECORDS);
    assert_eq!(stored, learned.records, "the store and the records in memory agree");
    let small = (0..MAX_RECORDS + 100).filter(|at| at % 50 == 49);
    let small = small.filter(|at| learned.records.contains_key(&key(&name(*at)))).count();
    assert_eq!(small, 0);
    assert!(learned.records.contains_key(&key(&name(MAX_RECORDS + 97))));
    assert_eq!(LearnedCorrections::new(stored), learned);
}

#[test]
fn setting_the_clock_back_loses_no_evidence() {
    let mut learned = LearnedCorrections::default();
    for day in [400, 1, 2] {
        learned.learn(key("a"), &compaction(day * DAY, 1_000, 25_000_000));
    }
    let now = correction(&learned, "a", 2 * DAY);
    assert!(now.trust > 0.9 && now.is_confirmed, "{now:?}");
}

/// The trust calculated from all outcomes, without running sums.
fn trust_by_hand(outcomes: &[CompactionEvidence], now: u64) -> f64 {
    let mut moments: Vec<Moment> = outcomes.iter().map(|it| it.at).collect();
    moments.sort_unstable();
    moments.dedup();
    let density_before = |at: Moment| {
        let earlier: Vec<_> = moments.iter().filter(|moment| **moment < at).collect();
        let sum = |value: &dyn Fn(&CompactionEvidence) -> f64| -> f64 {
            earlier
                .iter()
                .rev()
                .enumerate()
                .map(|(steps, moment)| {
                    let of = outcomes.iter().filter(|it| it.at == **moment);
                    0.8_f64.powi(i32::try_from(steps).unwrap()) * of.map(value).sum::<f64>()
                })
                .sum()
        };
        let bytes = sum(&|it| it.left_bytes.saturating_sub(it.content.overhead_bytes) as f64);
        let units = sum(&|it| it.content.units as f64);
        (units > 0.0).then_some(bytes / units)
    };
    let (mut above, mut below) = (0.0, 0.03);
    for outcome in outcomes {
        let fitted = outcome.fitted_bytes as f64;
        let missed = ((fitted - outcome.left_bytes as f64) / fitted).clamp(-1.0, 1.0);
        let difference = match density_before(outcome.at) {
            None => missed.max(0.0),
            Some(density) => {
                let by_documents =
                    outcome.content.overhead_bytes as f64 + density * outcome.content.units as f64;
                let writes = outcome.changes.map_or(f64::INFINITY, |it| 2.0 * density * it as f64);
                ((fitted - by_documents).max(0.0).min(writes) / fitted).min(1.0)
            }
        };
        if difference == 0.0 {
            continue;
        }
        let slope = (missed / difference).clamp(-1.5, 1.5);
        let counted = difference.min(0.5);
        let age = (now - outcome.at.unix()) as f64 / DAY as f64;
        let weight = 0.5_f64.powf(age / 90.0);
        above += weight * counted * counted * slope;
        below += weight * counted * counted;
    }
    (above / below).clamp(0.0, 1.0)
}

fn any_outcomes() -> impl Strategy<Value = Vec<CompactionEvidence>> {
    let one = (1_u64..6, 0_u64..2_000, 1_u64..50_000_000, 0_u64..1_300, 0_u64..500, 0_u64..5_000);
    let one = one.prop_map(|(day, units, fitted, left, overhead, changes)| CompactionEvidence {
        at: Moment::from_unix(day * 20 * DAY),
        fitted_bytes: fitted,
        left_bytes: fitted * left / 1_000,
        content: Content { units, overhead_bytes: overhead * 200 },
        changes: (changes > 0).then_some(changes),
    });
    proptest::collection::vec(one, 1..12)
}

proptest! {
    #[test]
    fn running_sums_equal_the_sums_over_all_outcomes(outcomes in any_outcomes(), later in 0_u64..400) {
        let mut outcomes = outcomes;
        outcomes.sort_by_key(|it| it.at);
        let mut record = CorrectionRecord::default();
        outcomes.iter().for_each(|it| record.add(it));
        let now = (100 + later) * DAY;
        let (ours, theirs) = (record.trust(0.0, Moment::from_unix(now)), trust_by_hand(&outcomes, now));
        prop_assert!((ours - theirs).abs() < 1e-9, "{ours} {theirs}");
        let stored = serde_json::to_string(&record).unwrap();
        let read: CorrectionRecord = serde_json::from_str(&stored).unwrap();
        let at = Moment::from_unix(now);
        prop_assert_eq!(read.correction(0.0, at), record.correction(0.0, at));
    }

    #[test]
    fn order_of_outcomes_at_one_moment_does_not_matter(
        outcomes in any_outcomes(),
        seed in proptest::collection::vec(any::<u32>(), 12),
    ) {
        let mut one = outcomes;
        one.sort_by_key(|it| it.at);
        let mut order: Vec<usize> = (0..one.len()).collect();
        order.sort_by_key(|at| (one[*at].at, seed[*at]));
        let (mut first, mut second) = (CorrectionRecord::default(), CorrectionRecord::default());
        one.iter().for_each(|it| first.add(it));
        order.iter().for_each(|at| second.add(&one[*at]));
        let now = Moment::from_unix(120 * DAY);
        let (first, second) = (first.correction(0.0, now), second.correction(0.0, now));
        prop_assert!((first.trust - second.trust).abs() <= to_single(TRUST_STEP));
        prop_assert!((first.density - second.density).abs() <= first.density.abs() * 1e-6);
        prop_assert_eq!(first.is_confirmed, second.is_confirmed);
    }

    #[test]
    fn trust_stays_between_0_and_1_and_density_finite(outcomes in any_outcomes(), prior in 0.0..=1.0_f64) {
        let mut record = CorrectionRecord::default();
        for outcome in outcomes {
            record.add(&outcome);
            let now = record.correction(prior, outcome.at);
            prop_assert!((0.0..=1.0).contains(&now.trust) && (0.0..=1.0).contains(&now.trust_where_low));
            prop_assert!(now.trust <= now.trust_where_low + to_single(TRUST_STEP));
            prop_assert!(now.density.is_finite() && now.density >= 0.0);
        }
    }
}
