use super::*;
use crate::model::{correction::Correction, facts::OptionalU64};
use proptest::prelude::*;

mod outcomes;

/// Bytes that a compaction frees according to the fitted rule alone.
fn reclaimable_bytes(kind: TargetKind, facts: &Facts) -> Option<u64> {
    Correction::NONE.reclaimable_bytes(kind, facts)
}

fn db(file: u64, active: u64, docs: u64, update_seq: u64) -> Facts {
    Facts {
        external_bytes: OptionalU64::new(active / 2),
        docs: OptionalU64::new(docs),
        deleted_docs: OptionalU64::new(0),
        update_seq: OptionalU64::new(update_seq),
        compacted_seq: OptionalU64::new(0),
        ..Facts::sized(file, active)
    }
}

#[test]
fn unknown_sizes_predict_nothing() {
    let whole = db(10_000_000, 1_000_000, 1000, 4000);
    for kind in [TargetKind::Db, TargetKind::View] {
        let no_file = Facts { file_bytes: OptionalU64::UNKNOWN, ..whole };
        let no_active = Facts { active_bytes: OptionalU64::UNKNOWN, ..whole };
        for facts in [no_file, no_active, Facts::default()] {
            assert_eq!(fitted_bytes(kind, &facts), None);
            assert_eq!(reclaimable_bytes(kind, &facts), None);
        }
    }
    assert_eq!(fitted_bytes(TargetKind::Cleanup, &whole), None);
    assert_eq!(reclaimable_bytes(TargetKind::Cleanup, &whole), None);
}

#[test]
fn prediction_adds_up_its_terms_as_documented() {
    let whole = db(10_000_000, 1_000_000, 1000, 4000);
    // 3000 rewrites of 1000 documents weigh 3000 / 1.3.
    let by_rewrites = 1_000_000 - 126_923 + DB_HEADER_BYTES;
    assert_eq!(fitted_bytes(TargetKind::Db, &whole), Some(by_rewrites));
    // 35 % of half of active, times 0.9 of slack.
    assert_eq!(
        fitted_bytes(TargetKind::View, &whole),
        Some(1_000_000 - 157_500 + VIEW_HEADER_BYTES)
    );
    let since_compaction = Facts { compacted_seq: OptionalU64::new(3900), ..whole };
    // At most 100 rewrites since the last compaction.
    assert_eq!(
        fitted_bytes(TargetKind::Db, &since_compaction),
        Some(1_000_000 - 5445 + DB_HEADER_BYTES)
    );
    let by_sizes = Some(1_000_000 - 67_500 + DB_HEADER_BYTES);
    for facts in [
        Facts { docs: OptionalU64::UNKNOWN, ..whole },
        Facts { deleted_docs: OptionalU64::UNKNOWN, ..whole },
        Facts { update_seq: OptionalU64::UNKNOWN, ..whole },
        Facts { compacted_seq: OptionalU64::UNKNOWN, ..whole },
    ] {
        assert_eq!(fitted_bytes(TargetKind::Db, &facts), by_sizes);
    }
    let no_rows = Facts { external_bytes: OptionalU64::UNKNOWN, ..whole };
    assert_eq!(fitted_bytes(TargetKind::Db, &no_rows), Some(by_rewrites));
    assert_eq!(
        fitted_bytes(TargetKind::View, &no_rows),
        Some(1_000_000 - 27_900 + VIEW_HEADER_BYTES)
    );
}

#[test]
fn file_as_large_as_its_active_bytes_frees_almost_nothing() {
    // Ten thousand documents, all deleted and just compacted, but CouchDB has lost the compacted
    // sequence.
    let forgotten =
        Facts { deleted_docs: OptionalU64::new(10_000), ..db(22_151_383, 22_134_595, 0, 20_000) };
    let promised = reclaimable_bytes(TargetKind::Db, &forgotten).unwrap();
    assert!(promised < 1_024, "{promised}");
}

#[test]
fn well_compressed_rows_do_not_reduce_the_prediction() {
    let compressed =
        Facts { external_bytes: OptionalU64::new(3_000_000), ..db(10_000_000, 1_000_000, 1, 1) };
    assert_eq!(fitted_bytes(TargetKind::View, &compressed), Some(1_000_000 + VIEW_HEADER_BYTES));
}

#[test]
fn nearly_all_of_a_file_without_active_bytes_is_reclaimable() {
    for (kind, headers) in
        [(TargetKind::Db, DB_HEADER_BYTES), (TargetKind::View, VIEW_HEADER_BYTES)]
    {
        for facts in [db(1 << 30, 0, 0, 9000), db(1 << 30, 0, 0, 0), db(1 << 30, 0, 10, 9000)] {
            assert_eq!(reclaimable_bytes(kind, &facts), Some((1 << 30) - headers));
        }
        assert_eq!(reclaimable_bytes(kind, &db(0, 0, 0, 0)), Some(0));
    }
}

#[test]
fn a_small_fresh_db_is_predicted_to_grow_and_frees_nothing() {
    let fresh = db(100_000, 96_000, 100, 100);
    assert_eq!(fitted_bytes(TargetKind::Db, &fresh), Some(96_000 + DB_HEADER_BYTES));
    assert_eq!(reclaimable_bytes(TargetKind::Db, &fresh), Some(0));
}

#[test]
fn confidence_depends_on_version_kind_and_attachments() {
    use Confidence::{High, Low};
    let any = [None, Some(false), Some(true)];
    for (version, by_attachments) in [
        (None, [High, High, High]),
        (Some("3.2.3"), [Low, Low, Low]),
        (Some("3.3.0"), [Low, High, Low]),
        (Some("3.4.2"), [Low, High, Low]),
        (Some("3.4.3"), [High, High, High]),
        (Some("3.5.0-dev"), [High, High, High]),
    ] {
        let parsed = version.map(|text| text.parse().unwrap());
        let of = |kind| any.map(|attachments| confidence(kind, parsed, attachments));
        assert_eq!(of(TargetKind::Db), by_attachments, "{version:?}");
        assert_eq!(of(TargetKind::View), [High; 3], "{version:?}");
        assert_eq!(of(TargetKind::Cleanup), [High; 3], "{version:?}");
    }
}

fn maybe_known(largest: u64) -> impl Strategy<Value = OptionalU64> {
    prop_oneof![1 => Just(OptionalU64::UNKNOWN), 6 => (0..=largest).prop_map(OptionalU64::new)]
}

/// Facts of a realistic size, up to a pebibyte, or arbitrary numbers.
fn facts(largest: u64) -> impl Strategy<Value = Facts> {
    let number = move || maybe_known(largest);
    (number(), number(), number(), number(), number(), number(), number()).prop_map(
        |(file, active, external, docs, deleted_docs, update_seq, compacted_seq)| Facts {
            file_bytes: file,
            active_bytes: active,
            external_bytes: external,
            docs,
            deleted_docs,
            update_seq,
            compacted_seq,
            ..Facts::default()
        },
    )
}

fn kind() -> impl Strategy<Value = TargetKind> {
    prop_oneof![Just(TargetKind::Db), Just(TargetKind::View)]
}

fn scaled(facts: &Facts, by: u64) -> Facts {
    let scale = |known: OptionalU64| OptionalU64::from(known.get().map(|number| number * by));
    Facts {
        file_bytes: scale(facts.file_bytes),
        active_bytes: scale(facts.active_bytes),
        external_bytes: scale(facts.external_bytes),
        docs: scale(facts.docs),
        deleted_docs: scale(facts.deleted_docs),
        update_seq: scale(facts.update_seq),
        compacted_seq: scale(facts.compacted_seq),
        ..*facts
    }
}

proptest! {
    #[test]
    fn reclaimable_needs_both_sizes_and_never_exceeds_the_file(
        kind in kind(),
        facts in prop_oneof![facts(1 << 50), facts(u64::MAX)],
    ) {
        let sizes = facts.file_bytes.get().zip(facts.active_bytes.get());
        prop_assert_eq!(fitted_bytes(kind, &facts).is_some(), sizes.is_some());
        prop_assert_eq!(reclaimable_bytes(kind, &facts).is_some(), sizes.is_some());
        if let Some((file, active)) = sizes {
            prop_assert!(reclaimable_bytes(kind, &facts).unwrap() <= file);
            let least = active - active.div_ceil(2);
            prop_assert!(fitted_bytes(kind, &facts).unwrap() >= least);
        }
    }

    #[test]
    fn more_active_bytes_never_predict_a_smaller_file(
        kind in kind(),
        facts in facts(1 << 50),
        file in 0..1_u64 << 50,
        active in 0..1_u64 << 50,
        more in prop_oneof![1..100_u64, 1..1_u64 << 40],
    ) {
        let of = |active| {
            let (file, active) = (OptionalU64::new(file), OptionalU64::new(active));
            fitted_bytes(kind, &Facts { file_bytes: file, active_bytes: active, ..facts })
        };
        prop_assert!(of(active) <= of(active + more));
    }

    #[test]
    fn the_prediction_scales_from_a_gibibyte_to_a_tebibyte(
        kind in kind(),
        facts in facts(1 << 30),
        // The file has up to a hundred times its active bytes.
        active in (1_u64 << 30) / 100..1 << 30,
    ) {
        let file = OptionalU64::new(1 << 30);
        let small = Facts { file_bytes: file, active_bytes: OptionalU64::new(active), ..facts };
        let large = scaled(&small, 1024);
        let part = |facts: &Facts| {
            fitted_bytes(kind, facts).unwrap() as f64 / facts.file_bytes.get().unwrap() as f64
        };
        let (small, large) = (part(&small), part(&large));
        prop_assert!((small / large - 1.0).abs() < 0.01, "{small} {large}");
    }
}
