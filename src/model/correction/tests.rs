use super::*;
use crate::{model::facts::OptionalU64, text::Label};
use proptest::prelude::*;

fn db(file: u64, active: u64, docs: u64, update_seq: u64, compacted_seq: u64) -> Facts {
    Facts {
        docs: OptionalU64::new(docs),
        deleted_docs: OptionalU64::new(0),
        update_seq: OptionalU64::new(update_seq),
        compacted_seq: OptionalU64::new(compacted_seq),
        ..Facts::sized(file, active)
    }
}

fn trusted(density: f32, trust: f32) -> Correction {
    Correction { density, trust, trust_where_low: trust, is_confirmed: false, ..Correction::NONE }
}

#[test]
fn prediction_drops_excess_bytes_that_writes_can_explain() {
    // 1,000 documents of 10,000 bytes; active bytes also count 1,000 superseded versions.
    let bloated = db(40_000_000, 20_000_000, 1_000, 2_000, 1_000);
    let fitted = estimate::fitted_bytes(TargetKind::Db, &bloated).unwrap();
    let by_documents = 10_000_000 + estimate::DB_HEADER_BYTES;
    let cases = [
        ("no trust", trusted(10_000.0, 0.0), bloated, fitted),
        ("no density", trusted(0.0, 1.0), bloated, fitted),
        ("full trust", trusted(10_000.0, 1.0), bloated, by_documents),
        ("half", trusted(10_000.0, 0.5), bloated, fitted - (fitted - by_documents) / 2),
        ("documents are larger than the fitted rule says", trusted(30_000.0, 1.0), bloated, fitted),
        (
            "100 writes leave at most 200 documents' worth",
            trusted(10_000.0, 1.0),
            Facts { compacted_seq: OptionalU64::new(1_900), ..bloated },
            {
                let changed = Facts { compacted_seq: OptionalU64::new(1_900), ..bloated };
                estimate::fitted_bytes(TargetKind::Db, &changed).unwrap() - 2_000_000
            },
        ),
        (
            "its documents are not known",
            trusted(10_000.0, 1.0),
            Facts { docs: OptionalU64::UNKNOWN, ..bloated },
            estimate::fitted_bytes(
                TargetKind::Db,
                &Facts { docs: OptionalU64::UNKNOWN, ..bloated },
            )
            .unwrap(),
        ),
    ];
    for (why, correction, facts, expected) in cases {
        let predicted = correction.predicted_bytes(TargetKind::Db, &facts).unwrap();
        assert!(predicted.abs_diff(expected) <= 1, "{why}: {predicted}, not {expected}");
        let file = facts.file_bytes.get().unwrap();
        assert_eq!(
            correction.reclaimable_bytes(TargetKind::Db, &facts),
            Some(file.saturating_sub(predicted)),
            "{why}"
        );
    }
}

#[test]
fn trusted_correction_predicts_a_view_from_its_row_bytes() {
    let facts =
        Facts { external_bytes: OptionalU64::new(1_000_000), ..Facts::sized(9_000_000, 4_000_000) };
    let predicted = trusted(1.2, 1.0).predicted_bytes(TargetKind::View, &facts).unwrap();
    assert!(predicted.abs_diff(1_200_000 + estimate::VIEW_HEADER_BYTES) <= 1, "{predicted}");
    for kind in [TargetKind::Cleanup, TargetKind::Search] {
        assert_eq!(trusted(1.2, 1.0).predicted_bytes(kind, &facts), None);
    }
}

#[test]
fn confidence_is_learned_if_compactions_corrected_or_confirmed() {
    let bloated = db(40_000_000, 20_000_000, 1_000, 2_000, 1_000);
    let low = Facts { confidence: Confidence::Low, ..bloated };
    let (none, half) = (Correction::NONE, trusted(10_000.0, 0.5));
    let confirmed = Correction { is_confirmed: true, ..none };
    let only_low = Correction { trust: 0.0, ..half };
    let cases = [
        (none, bloated, Confidence::High),
        (none, low, Confidence::Low),
        (half, bloated, Confidence::Learned),
        (half, low, Confidence::Learned),
        (confirmed, bloated, Confidence::High),
        (confirmed, low, Confidence::Learned),
        (only_low, bloated, Confidence::High),
        (only_low, low, Confidence::Learned),
        (trusted(10_000.0, 0.004), low, Confidence::Low),
        (half, Facts { file_bytes: OptionalU64::UNKNOWN, ..low }, Confidence::Low),
    ];
    for (at, (correction, facts, expected)) in cases.into_iter().enumerate() {
        assert_eq!(correction.confidence(TargetKind::Db, &facts), expected, "case {at}");
    }
}

#[test]
fn each_database_instance_and_kind_has_its_own_correction() {
    let mut corrections = Corrections::default();
    assert!(corrections.is_empty());
    corrections.set("app", ".1", TargetKind::Db, trusted(1.0, 0.5));
    corrections.set("app", ".2", TargetKind::Db, trusted(2.0, 0.5));
    corrections.set("app", ".1", TargetKind::View, trusted(3.0, 0.5));
    let density = |suffix, kind| corrections.of("app", suffix).map(|it| it.of_kind(kind).density);
    assert_eq!(density(".1", TargetKind::Db), Some(1.0));
    assert_eq!(density(".1", TargetKind::View), Some(3.0));
    assert_eq!(density(".2", TargetKind::Db), Some(2.0));
    assert_eq!(density(".2", TargetKind::View), Some(0.0));
    assert_eq!(density(".3", TargetKind::Db), None);
    assert!(corrections.of("ap", ".1").is_none());
    assert_eq!(corrections.iter().count(), 2);
}

fn any_facts() -> impl Strategy<Value = Facts> {
    let number = || proptest::option::weighted(0.9, prop_oneof![0..100_u64, 0..u64::MAX >> 1]);
    (proptest::array::uniform7(number()), any::<bool>()).prop_map(|(numbers, low)| {
        let [file, active, external, docs, deleted, update, compacted] =
            numbers.map(OptionalU64::from);
        Facts {
            file_bytes: file,
            active_bytes: active,
            external_bytes: external,
            docs,
            deleted_docs: deleted,
            update_seq: update,
            compacted_seq: compacted,
            confidence: if low { Confidence::Low } else { Confidence::High },
            ..Facts::default()
        }
    })
}

proptest! {
    #[test]
    fn without_outcomes_the_fitted_prediction_is_unchanged(facts in any_facts()) {
        for kind in TargetKind::each() {
            let fitted = estimate::fitted_bytes(kind, &facts);
            prop_assert_eq!(Correction::NONE.predicted_bytes(kind, &facts), fitted);
            prop_assert_eq!(Correction::NONE.confidence(kind, &facts), facts.confidence);
        }
    }

    #[test]
    fn correction_lies_between_fitted_and_document_based_prediction(
        facts in any_facts(),
        density in prop_oneof![0.0..10.0_f32, 0.0..1e12_f32],
        trusts in (0.0..=1.0_f32, 0.0..=1.0_f32),
    ) {
        let (less, more) = (trusts.0.min(trusts.1), trusts.0.max(trusts.1));
        for kind in [TargetKind::Db, TargetKind::View] {
            let fitted = estimate::fitted_bytes(kind, &facts);
            let predicted = trusted(density, more).predicted_bytes(kind, &facts);
            prop_assert_eq!(fitted.is_some(), predicted.is_some());
            let (Some(fitted), Some(predicted)) = (fitted, predicted) else { continue };
            prop_assert!(predicted <= fitted);
            if let Some(content) = Content::of(kind, &facts) {
                let by_content = content.overhead_bytes as f64 + f64::from(density) * content.units as f64;
                // A float has 53 bits of precision, a number of bytes has up to 64.
                let rounding = 2.0 + fitted as f64 / (1_u64 << 50) as f64;
                prop_assert!(predicted as f64 + rounding >= by_content.min(fitted as f64));
            } else {
                prop_assert_eq!(predicted, fitted);
            }
            let by_less = trusted(density, less).predicted_bytes(kind, &facts).unwrap();
            prop_assert!(predicted <= by_less, "more trust never predicts more");
        }
    }

    #[test]
    fn just_compacted_file_is_predicted_without_correction(
        facts in any_facts(),
        density in 0.0..1e6_f32,
    ) {
        let facts = Facts { compacted_seq: facts.update_seq, ..facts };
        prop_assume!(facts.update_seq.get().is_some());
        let predicted = trusted(density, 1.0).predicted_bytes(TargetKind::Db, &facts);
        prop_assert_eq!(predicted, estimate::fitted_bytes(TargetKind::Db, &facts));
    }
}
