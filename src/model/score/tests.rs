//! smoosh's own test cases, the edges of its rule, and a comparison with a second implementation.

use super::*;
use crate::model::{
    facts::{FactFlags, OptionalU64},
    priority::PriorityKind,
};
use proptest::prelude::*;

fn sizes(file: u64, active: impl Into<Option<u64>>) -> Facts {
    Facts {
        file_bytes: OptionalU64::new(file),
        active_bytes: active.into().into(),
        ..Facts::default()
    }
}

/// The score in a channel that does not rank by rent.
fn score(channel: &Channel, kind: TargetKind, facts: &Facts) -> Result<f64, Miss> {
    super::score(channel, kind, facts, RentNow::UNKNOWN)
}

fn channel(kind: TargetKind, priority: PriorityKind, min_priority: f64) -> Channel {
    Channel { min_priority, ..Channel::with_defaults("c", kind, priority) }
}

/// The scores of the three view channels, with the thresholds of smoosh's own tests.
fn views(facts: &Facts) -> [f64; 3] {
    [
        channel(TargetKind::View, PriorityKind::Ratio, 5.0),
        channel(TargetKind::View, PriorityKind::Slack, 16_777_216.0),
        channel(TargetKind::View, PriorityKind::Upgrade, 5.0),
    ]
    .map(|channel| score(&channel, TargetKind::View, facts).unwrap_or(0.0))
}

#[test]
fn test_cases_of_smoosh_get_the_same_scores() {
    for (case, facts, expected) in [
        ("ratio", sizes(5_242_880, 524_288), [10.0, 0.0, 0.0]),
        ("slack", sizes(33_554_432, 16_777_215), [0.0, 16_777_217.0, 0.0]),
        ("no data", sizes(5_242_880, 0), [5.0, 16_777_216.0, 5.0]),
        ("below min priority", sizes(5_242_880, 1_048_576), [0.0, 0.0, 0.0]),
        ("below min size", sizes(1_048_576, 512_000), [0.0, 0.0, 0.0]),
        ("timeout", Facts::default(), [0.0, 0.0, 0.0]),
    ] {
        assert_eq!(views(&facts), expected, "{case}");
    }
}

#[test]
fn bounds_are_strict_where_smoosh_is_strict() {
    let mut ratio = channel(TargetKind::Db, PriorityKind::Ratio, 2.0);
    ratio.max_priority = 4.0;
    ratio.min_size = 100;
    ratio.max_size = Some(1_000);
    let reason = |file, active| match score(&ratio, TargetKind::Db, &sizes(file, active)) {
        Ok(priority) => Err(priority),
        Err(miss) => Ok((miss.reason, miss.value, miss.limit)),
    };
    for (file, active, expected) in [
        (100, 10, Ok((MissReason::BelowMinSize, Some(100.0), Some(100.0)))),
        (101, 50, Err(2.02)),
        (200, 100, Ok((MissReason::BelowMinPriority, Some(2.0), Some(2.0)))),
        (1_000, 250, Err(4.0)),
        (1_000, 200, Ok((MissReason::AboveMaxPriority, Some(5.0), Some(4.0)))),
        (1_001, 500, Ok((MissReason::AboveMaxSize, Some(1_001.0), Some(1_000.0)))),
    ] {
        assert_eq!(reason(file, active), expected, "{file}/{active}");
    }
    assert_eq!(
        score(&ratio, TargetKind::Db, &sizes(500, None)),
        Err(Miss::without_numbers(MissReason::UnknownSize))
    );
    assert_eq!(
        score(&ratio, TargetKind::View, &sizes(500, 1)),
        Err(Miss::without_numbers(MissReason::NotThisKind))
    );
}

#[test]
fn too_few_changes_are_checked_before_anything_else() {
    let mut upgrade = channel(TargetKind::Db, PriorityKind::Upgrade, 2.0);
    upgrade.min_changes = 10;
    let facts = |update_seq, compacted_seq: Option<u64>| Facts {
        update_seq: OptionalU64::new(update_seq),
        compacted_seq: compacted_seq.into(),
        flags: FactFlags { needs_upgrade: true, ..FactFlags::default() },
        ..sizes(1, 1)
    };
    assert_eq!(score(&upgrade, TargetKind::Db, &facts(110, Some(100))), Ok(1.0));
    assert_eq!(
        score(&upgrade, TargetKind::Db, &facts(109, Some(100))),
        Err(Miss { reason: MissReason::TooFewChanges, value: Some(9.0), limit: Some(10.0) })
    );
    assert_eq!(
        score(&upgrade, TargetKind::Db, &facts(5, None)),
        Ok(1.0),
        "unknown changes block nothing"
    );
}

#[test]
fn file_without_active_bytes_scores_a_finite_nonzero_minimum() {
    for (priority, floor, expected) in [
        (PriorityKind::Ratio, 2.0, Some(2.0)),
        (PriorityKind::Slack, 7.0, Some(7.0)),
        (PriorityKind::Upgrade, 2.0, Some(2.0)),
        (PriorityKind::Ratio, 0.0, None),
        (PriorityKind::Ratio, f64::INFINITY, None),
    ] {
        let channel = channel(TargetKind::Db, priority, floor);
        assert_eq!(score(&channel, TargetKind::Db, &sizes(5_000_000, 0)).ok(), expected, "{floor}");
    }
}

#[test]
fn cleanup_is_taken_only_with_evidence_of_stale_files() {
    let cleanup = Channel::with_defaults("c", TargetKind::Cleanup, PriorityKind::Cleanup);
    let mut facts = Facts::default();
    assert!(score(&cleanup, TargetKind::Cleanup, &facts).is_err());
    facts.flags.evidence = true;
    assert_eq!(score(&cleanup, TargetKind::Cleanup, &facts), Ok(1.0));
}

/// smoosh's rule implemented a second time, from its description and in another form: a list of
/// (condition, answer) pairs of which the first match counts; zero means no.
fn oracle(channel: &Channel, facts: &Facts) -> f64 {
    let (file, active) = (facts.file_bytes.get(), facts.active_bytes.get());
    let gated = match (facts.update_seq.get(), facts.compacted_seq.get()) {
        (Some(update), Some(compacted)) if channel.kind == TargetKind::Db => {
            i128::from(update) - i128::from(compacted) < i128::from(channel.min_changes)
        }
        _ => false,
    };
    if gated {
        return 0.0;
    }
    let upgrade = channel.priority == PriorityKind::Upgrade;
    if upgrade && facts.flags.needs_upgrade {
        return 1.0;
    }
    let Some(file) = file else { return 0.0 };
    let measure = |active: u64| match channel.priority {
        PriorityKind::Ratio => file as f64 / active as f64,
        PriorityKind::Slack => (i128::from(file) - i128::from(active)) as f64,
        PriorityKind::Upgrade | PriorityKind::Cleanup | PriorityKind::Rent => 0.0,
    };
    let answers: [(bool, f64); 4] = [
        (file <= channel.min_size, 0.0),
        (channel.max_size.is_some_and(|max| file > max), 0.0),
        (
            active == Some(0),
            if channel.min_priority.is_finite() { channel.min_priority } else { 0.0 },
        ),
        (active.is_none() || upgrade, 0.0),
    ];
    if let Some((_, answer)) = answers.iter().find(|(holds, _)| *holds) {
        return *answer;
    }
    let value = measure(active.unwrap_or(1));
    if value > channel.min_priority && value <= channel.max_priority { value } else { 0.0 }
}

fn sizes_near_bounds() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(1_048_576),
        Just(1_048_577),
        Just(536_870_912),
        Just(536_870_913),
        0..3_000_000_u64,
        0..(1_u64 << 45),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]
    #[test]
    fn score_agrees_with_a_second_implementation(
        kind in prop_oneof![Just(TargetKind::Db), Just(TargetKind::View)],
        priority in prop_oneof![Just(PriorityKind::Ratio), Just(PriorityKind::Slack), Just(PriorityKind::Upgrade)],
        min_priority in prop_oneof![Just(0.0), Just(2.0), Just(5.0), Just(536_870_912.0), Just(f64::INFINITY), 0.0..20.0],
        max_priority in prop_oneof![Just(f64::INFINITY), 1.0..1e10],
        min_size in sizes_near_bounds(),
        max_size in proptest::option::of(sizes_near_bounds()),
        min_changes in prop_oneof![Just(0_u64), 0..100_u64],
        file in proptest::option::weighted(0.95, sizes_near_bounds()),
        active in proptest::option::weighted(0.95, sizes_near_bounds()),
        update_seq in proptest::option::of(0..200_u64),
        compacted_seq in proptest::option::of(0..200_u64),
        needs_upgrade: bool,
    ) {
        let channel = Channel {
            min_priority, max_priority, min_size, max_size, min_changes,
            ..Channel::with_defaults("c", kind, priority)
        };
        let facts = Facts {
            file_bytes: file.into(),
            active_bytes: active.into(),
            update_seq: update_seq.into(),
            compacted_seq: compacted_seq.into(),
            flags: FactFlags { needs_upgrade, ..FactFlags::default() },
            ..Facts::default()
        };
        let ours = score(&channel, kind, &facts);
        prop_assert_eq!(ours.unwrap_or(0.0), oracle(&channel, &facts));
        if let Ok(priority) = ours {
            prop_assert!(priority.is_finite() && priority != 0.0);
        }
    }
}
