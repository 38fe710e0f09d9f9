use super::*;
use crate::model::{
    correction::Correction,
    facts::{FactFlags, OptionalU64},
    records::Calibration,
    target::{TargetId, TargetKind},
};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

const FAILURE: FailureSettings = FailureSettings {
    cool_down: Duration::from_secs(600),
    cool_down_max: Duration::from_secs(3_600),
    quarantine_after: 5,
};

fn at(seconds: u64) -> Moment {
    Moment::from_unix(seconds)
}

fn outcome(ending: JobResult, ended: u64, sizes: [Option<u64>; 3]) -> Outcome {
    let [before_bytes, after_bytes, predicted_bytes] = sizes;
    Outcome {
        target: TargetId::Cleanup { db: "a".into() },
        kind: TargetKind::Db,
        node: "couchdb@a".into(),
        design: None,
        channel: None,
        owner: JobOwner::Recliner,
        ordered_by: None,
        started_at: at(ended - 10),
        ended_after: None,
        charged_bytes: None,
        ended_at: at(ended),
        before_bytes,
        after_bytes,
        predicted_bytes,
        ending,
        why: None,
    }
}

/// The back-off of a target whose only known facts are the file size and the last sequence.
fn rest_of(
    remembered: &TargetRecord,
    file: Option<u64>,
    seq: Option<u64>,
    now: u64,
) -> Option<Backoff> {
    let facts = Facts { file_bytes: file.into(), update_seq: seq.into(), ..Facts::default() };
    remembered.backoff(TargetKind::Db, &facts, Correction::NONE, at(now))
}

const fn futile_rest(file_bytes: u64) -> Backoff {
    Backoff::Futile { since: Moment::from_unix(50), file_bytes, caught_up: false }
}

fn failed(ended: u64) -> Outcome {
    outcome(JobResult::Failed, ended, [None; 3])
}

#[test]
fn each_failure_doubles_the_cool_down_until_the_fifth_quarantines() {
    let mut remembered = TargetRecord::default();
    let mut rests = Vec::new();
    for _ in 0..5 {
        remembered.record_outcome(&failed(1_000), AfterCompaction::default(), &FAILURE);
        rests.push(remembered.rests_until.unwrap().unix() - 1_000);
    }
    assert_eq!(rests, [600, 1_200, 2_400, 3_600, 3_600]);
    let quarantined = Some(Backoff::Quarantined { since: at(1_000), failures: 5 });
    assert_eq!(rest_of(&remembered, None, None, 999_999), quarantined);
    remembered.release();
    assert!(remembered.is_empty());
}

#[test]
fn a_cool_down_ends_by_itself_and_any_success_clears_the_failures() {
    let mut remembered = TargetRecord::default();
    remembered.record_outcome(&failed(1_000), AfterCompaction::default(), &FAILURE);
    let rest = Some(Backoff::CoolDown { since: at(1_000), until: at(1_600) });
    assert_eq!(rest_of(&remembered, None, None, 1_599), rest);
    assert_eq!(rest_of(&remembered, None, None, 1_600), None);
    let lost = outcome(JobResult::Lost, 1_700, [None; 3]);
    let theirs = Outcome { owner: JobOwner::Other, ..lost.clone() };
    let before = remembered.clone();
    remembered.record_outcome(&theirs, AfterCompaction::default(), &FAILURE);
    assert_eq!(remembered, before, "jobs of others cause no cool-down");
    remembered.record_outcome(&lost, AfterCompaction::default(), &FAILURE);
    assert_eq!(remembered.failures, 1, "a lost job is no failure");
    assert!(rest_of(&remembered, None, None, 1_701).is_some(), "but starts a cool-down");
    let theirs = Outcome { owner: JobOwner::Other, ..failed(1_800) };
    remembered.record_outcome(&theirs, AfterCompaction::default(), &FAILURE);
    assert_eq!(remembered.failures, 1, "failures of others are ignored");
    let good = [Some(100 * MIB), Some(10 * MIB), Some(10 * MIB)];
    let theirs = Outcome { owner: JobOwner::Other, ..outcome(JobResult::Freed, 1_900, good) };
    remembered.record_outcome(&theirs, AfterCompaction::default(), &FAILURE);
    assert!(remembered.is_empty());
}

/// Covers jobs that a server accepts but never shows, and cleanups, whose effect no reading shows.
#[test]
fn jobs_without_visible_effect_are_repeated_less_and_less_often() {
    let cleaned =
        |at| Outcome { kind: TargetKind::Cleanup, ..outcome(JobResult::Unmeasured, at, [None; 3]) };
    for ended in [|at| outcome(JobResult::Lost, at, [None; 3]), cleaned as fn(u64) -> Outcome] {
        let (mut remembered, mut now, mut rests) = (TargetRecord::default(), 1_000, Vec::new());
        for _ in 0..5 {
            remembered.record_outcome(&ended(now), AfterCompaction::default(), &FAILURE);
            let over = (now..).find(|now| rest_of(&remembered, None, None, *now).is_none());
            rests.push(over.unwrap() - now);
            now = over.unwrap() + 10;
        }
        assert_eq!(rests, [600, 1_200, 2_400, 3_600, 3_600]);
        assert_eq!((remembered.failures, remembered.quarantined_since), (0, None));
        // After a long pause the cool-down starts again at its minimum.
        now += 3_601;
        remembered.record_outcome(&ended(now), AfterCompaction::default(), &FAILURE);
        assert_eq!(rest_of(&remembered, None, None, now + 600), None);
    }
}

#[test]
fn clock_set_back_prolongs_cool_down_by_at_most_its_length() {
    let mut remembered = TargetRecord::default();
    remembered.record_outcome(&failed(100_000), AfterCompaction::default(), &FAILURE);
    let rests = |now| rest_of(&remembered, None, None, now).is_some();
    assert_eq!([99_400, 99_399, 0].map(rests), [true, false, false]);
}

#[test]
fn a_futile_compaction_is_not_repeated_until_enough_changed() {
    let left = |file| AfterCompaction {
        file_bytes: Some(file),
        update_seq: Some(1_000),
        ..AfterCompaction::default()
    };
    // Columns: before, after, predicted, and whether the result is futile.
    for (before, after, predicted, futile) in [
        (100 * MIB, 96 * MIB, 50 * MIB, true),
        (100 * MIB, 95 * MIB, 50 * MIB, false),
        (100 * MIB, 120 * MIB, 50 * MIB, true),
        (100 * MIB, 100 * MIB, 100 * MIB - 5, true),
        (40_000, 40_000, 20_000, true),
        (MIB, MIB, 2 * MIB, true),
    ] {
        let mut remembered = TargetRecord::default();
        let sizes = [Some(before), Some(after), Some(predicted)];
        remembered.record_outcome(
            &outcome(JobResult::NothingFreed, 50, sizes),
            left(after),
            &FAILURE,
        );
        let rest = rest_of(&remembered, Some(after), Some(1_000), 99_999);
        let expected = futile.then_some(futile_rest(after));
        assert_eq!(rest, expected, "{sizes:?}");
    }
    let mut remembered = TargetRecord::default();
    let sizes = [Some(100 * MIB), Some(99 * MIB), Some(50 * MIB)];
    remembered.record_outcome(&outcome(JobResult::Freed, 50, sizes), left(99 * MIB), &FAILURE);
    let rests = |file, seq| rest_of(&remembered, file, seq, 60).is_some();
    assert!(rests(Some(120 * MIB), Some(1_249)));
    assert!(!rests(Some(124 * MIB), Some(1_000)));
    assert!(!rests(Some(99 * MIB), Some(1_250)));
    assert!(rests(None, None), "unknown sizes do not count as a change");
}

/// The facts of a shard: its file and active bytes in tenths of a mebibyte, its last sequence, and
/// the time.
fn measured([file, active, seq, when]: [u64; 4]) -> Facts {
    Facts {
        update_seq: OptionalU64::new(seq),
        compacted_seq: OptionalU64::new(seq),
        ..Facts::read(file * MIB / 10, active * MIB / 10, at(when))
    }
}

#[test]
fn state_after_a_compaction_decides_whether_the_next_is_futile() {
    // Columns: name; a job of 10 s that ended at 1,000 (bytes before and after it, active bytes,
    // changes during it, and the waste that as many changes cause; bytes in tenths of a mebibyte;
    // the last sequence is 5,000); the current facts, as `measured` takes them; whether another
    // compaction is futile, and whether it would be if the previous compaction had left as much.
    let cases = [
        ("clean and small", [900, 101, 100, 0, 0], [101, 100, 5_000, 1_010], [false, false]),
        ("clean, and yet large", [900, 130, 100, 0, 0], [130, 100, 5_000, 1_010], [true, true]),
        (
            "the same, hardly written to",
            [900, 130, 100, 0, 0],
            [134, 100, 5_040, 1_900],
            [true, true],
        ),
        ("the same, written to", [900, 130, 100, 0, 0], [150, 100, 5_100, 1_900], [false, false]),
        (
            "the same, grown by what is new",
            [900, 130, 100, 0, 0],
            [260, 200, 9_000, 1_900],
            [true, true],
        ),
        ("the same, emptied", [900, 130, 100, 0, 0], [135, 20, 5_100, 1_900], [false, false]),
        ("it had to catch up", [900, 300, 100, 4_000, 200], [300, 100, 5_000, 1_001], [true, true]),
        (
            "as much is written as then",
            [900, 300, 100, 4_000, 200],
            [302, 100, 9_000, 1_010],
            [true, true],
        ),
        ("a third is written", [900, 300, 100, 4_000, 200], [310, 100, 6_400, 1_010], [true, true]),
        (
            "no more is written yet",
            [900, 300, 100, 4_000, 200],
            [300, 100, 5_000, 1_010],
            [true, true],
        ),
        ("long calm", [900, 300, 100, 4_000, 200], [300, 100, 5_000, 1_200], [false, false]),
        (
            "a few changes explain nothing",
            [900, 300, 100, 40, 2],
            [300, 100, 5_000, 9_999],
            [false, true],
        ),
        ("it freed little", [310, 300, 100, 0, 0], [300, 100, 5_000, 9_999], [false, true]),
        ("the same, after growth", [310, 300, 100, 0, 0], [360, 100, 6_000, 9_999], [false, false]),
    ];
    for (why, [before, file, active, changes, waste], now, rests) in cases {
        let tenths = |count: u64| Some(count * MIB / 10);
        let sizes = [tenths(before), tenths(file), tenths(101)];
        let left = measured([file, active, 5_000, 1_000]);
        let left = AfterCompaction {
            file_bytes: left.file_bytes.get(),
            active_bytes: left.active_bytes.get(),
            predicted_bytes: Correction::NONE.predicted_bytes(TargetKind::Db, &left),
            update_seq: left.update_seq.get(),
            changes: Some(changes),
            changes_bytes: tenths(waste),
            not_upgraded: false,
        };
        let mut remembered = TargetRecord::default();
        let now = measured(now);
        for rests in rests {
            remembered.record_outcome(&outcome(JobResult::Freed, 1_000, sizes), left, &FAILURE);
            let rest = remembered.backoff(TargetKind::Db, &now, Correction::NONE, at(10_000));
            assert_eq!(rest.is_some(), rests, "{why}: {rest:?}");
        }
        let upgrade = Facts { flags: FactFlags { needs_upgrade: true, ..now.flags }, ..now };
        let rest = remembered.backoff(TargetKind::Db, &upgrade, Correction::NONE, at(10_000));
        assert_eq!(rest, None, "{why}: an upgrade is worth it regardless");
    }
}

/// A compaction that resumed an interrupted one left its waste; the next one freed 60 % of the file.
#[test]
fn waste_left_by_a_resumed_compaction_is_tried_once_more() {
    let now = measured([367, 137, 5_000, 9_999]);
    let ended = |file: u64| {
        let after = measured([file, 137, 5_000, 1_000]);
        AfterCompaction {
            file_bytes: after.file_bytes.get(),
            active_bytes: after.active_bytes.get(),
            predicted_bytes: Correction::NONE.predicted_bytes(TargetKind::Db, &after),
            update_seq: Some(5_000),
            changes: Some(0),
            ..AfterCompaction::default()
        }
    };
    let sizes = |before: u64, after: u64| [Some(before * MIB / 10), Some(after * MIB / 10), None];
    let freed = |before, after| outcome(JobResult::Freed, 1_000, sizes(before, after));
    let rest = |remembered: &TargetRecord| {
        remembered.backoff(TargetKind::Db, &now, Correction::NONE, at(10_000))
    };
    let mut remembered = TargetRecord::default();
    remembered.record_outcome(&freed(800, 367), ended(367), &FAILURE);
    assert_eq!(rest(&remembered), None);
    assert_eq!(remembered.remaining_bytes(TargetKind::Db, &now, Correction::NONE), None);

    let mut stubborn = remembered.clone();
    stubborn.record_outcome(&freed(367, 367), ended(367), &FAILURE);
    assert!(matches!(rest(&stubborn), Some(Backoff::Futile { .. })), "twice is a lesson");
    stubborn.ordered = Some(CompactionOrder {
        at: at(9_999),
        until: at(10_001),
        by: "ann".into(),
        force: false,
        run: None,
    });
    assert_eq!(rest(&stubborn), None, "nobody's order is refused while most of the file is waste");

    remembered.record_outcome(&freed(367, 138), ended(138), &FAILURE);
    assert!(remembered.is_empty(), "it freed what the first one left");
}

/// A shard was compacted for 23 minutes under writes that ceased when it ended; it left 40.3 MiB, 2.1 of them live.
#[test]
fn waste_left_when_writes_stop_is_compacted_after_a_calm_period() {
    let after = measured([403, 21, 50_000, 100_000]);
    let after = AfterCompaction {
        file_bytes: after.file_bytes.get(),
        active_bytes: after.active_bytes.get(),
        predicted_bytes: Correction::NONE.predicted_bytes(TargetKind::Db, &after),
        update_seq: Some(50_000),
        changes: Some(40_000),
        changes_bytes: Some(200 * MIB),
        not_upgraded: false,
    };
    let job = outcome(JobResult::Grew, 100_000, [Some(20 * MIB), after.file_bytes, None]);
    let mut record = TargetRecord::default();
    for _ in 0..2 {
        let job = Outcome { started_at: at(100_000 - 1_400), ..job.clone() };
        record.record_outcome(&job, after, &FAILURE);
    }
    let reading = |seq, when| measured([403, 21, seq, when]);
    let left = |facts| record.remaining_bytes(TargetKind::Db, &facts, Correction::NONE).unwrap();
    let rest = |facts| record.backoff(TargetKind::Db, &facts, Correction::NONE, at(200_000));

    assert!(left(reading(50_100, 100_003)) > 40 * MIB, "at the same rate, as much is left again");
    assert!(matches!(rest(reading(50_100, 100_003)), Some(Backoff::Futile { .. })));

    let calm = reading(50_000, 100_060);
    assert!(left(calm) < 3 * MIB, "without writes, all waste would go");
    let Some(waiting @ Backoff::Unsettled { since, until }) = rest(calm) else { panic!() };
    assert_eq!((since, until > at(101_400), until < at(107_000)), (at(100_000), true, true));
    assert!(waiting.yields_to_order(&calm));
    assert_eq!(rest(Facts { measured_at: reading(0, 107_000).measured_at, ..calm }), None);
}

#[test]
fn unmeasured_copy_does_not_erase_a_futile_result() {
    let mut remembered = TargetRecord::default();
    let left = AfterCompaction { file_bytes: Some(30 * MIB), ..AfterCompaction::default() };
    let sizes = [Some(30 * MIB), Some(30 * MIB), Some(9 * MIB)];
    remembered.record_outcome(&outcome(JobResult::NothingFreed, 50, sizes), left, &FAILURE);
    let unmeasured = outcome(JobResult::Unmeasured, 60, [None; 3]);
    remembered.record_outcome(&unmeasured, AfterCompaction::default(), &FAILURE);
    assert!(rest_of(&remembered, Some(30 * MIB), None, 70).is_some());
}

#[test]
fn learned_correction_ends_a_futile_back_off() {
    let futile = Futile {
        at: at(50),
        file_bytes: 4 * MIB,
        active_bytes: Some(4 * MIB),
        update_seq: Some(1_000),
        caught_up: None,
        not_upgraded: false,
        is_doubtful: false,
    };
    let remembered = TargetRecord { futile: Some(futile), ..TargetRecord::default() };
    // Active bytes grew with the file, so they alone show nothing to free.
    let now = Facts {
        docs: OptionalU64::new(100),
        deleted_docs: OptionalU64::new(0),
        compacted_seq: OptionalU64::new(1_000),
        ..measured([1_000, 1_000, 5_000, 1_000])
    };
    let learned = |trust| Correction {
        density: 40_000.0,
        trust,
        trust_where_low: trust,
        is_confirmed: true,
        ..Correction::NONE
    };
    for (trust, rests) in [(0.0, true), (0.001, true), (0.9, false)] {
        let rest = remembered.backoff(TargetKind::Db, &now, learned(trust), at(10_000));
        assert_eq!(rest.is_some(), rests, "trust {trust}: {rest:?}");
    }
}

#[test]
fn unknown_sizes_cause_no_back_off() {
    let left = AfterCompaction {
        file_bytes: Some(30 * MIB),
        changes: Some(0),
        ..AfterCompaction::default()
    };
    let mut remembered = TargetRecord::default();
    remembered.record_outcome(
        &outcome(JobResult::NothingFreed, 50, [None, Some(30 * MIB), None]),
        left,
        &FAILURE,
    );
    assert!(remembered.is_empty());
}

#[test]
fn an_upgrade_without_effect_is_not_repeated_at_once() {
    let mut remembered = TargetRecord::default();
    let left =
        AfterCompaction { file_bytes: Some(5), not_upgraded: true, ..AfterCompaction::default() };
    remembered.record_outcome(
        &outcome(JobResult::Freed, 50, [Some(9), Some(5), Some(5)]),
        left,
        &FAILURE,
    );
    assert!(rest_of(&remembered, Some(5), None, 60).is_some());
}

#[test]
fn round_over_view_copies_ends_with_the_last_copy() {
    let mut remembered = TargetRecord::default();
    remembered.record_copy_done("a", 3);
    remembered.record_copy_done("a", 3);
    remembered.record_copy_done("b", 3);
    remembered.record_outcome(
        &outcome(JobResult::Freed, 50, [None; 3]),
        AfterCompaction::default(),
        &FAILURE,
    );
    assert_eq!(remembered.copies_done.len(), 2, "a success of one copy continues the round");
    remembered.record_copy_done("c", 3);
    assert!(remembered.is_empty());
}

#[test]
fn learns_rates_errors_and_peaks_from_outcomes() {
    let mut learned = Calibration::default();
    assert!(!learned.learn(&failed(100), Some(10)));
    let sizes = |sizes: [u64; 3]| sizes.map(|size| Some(size * MIB));
    let ended = outcome(JobResult::Freed, 100, sizes([900, 300, 200]));
    assert!(learned.learn(&ended, Some(100 * MIB)));
    let rate = |mib: u64| Some((mib * MIB) as f64);
    assert_eq!((learned.rate, learned.db_ratio), (rate(30), Some(1.5)));
    assert_eq!(learned.headroom_factor, Some(3.15));
    let smaller = outcome(JobResult::Freed, 200, sizes([900, 100, 100]));
    assert!(learned.learn(&smaller, Some(100 * MIB)));
    assert_eq!(learned.headroom_factor, Some(3.15), "only upward");
    assert_eq!(learned.rate, rate(26));
    let hot = outcome(JobResult::Freed, 300, sizes([66, 5, 1]));
    assert!(learned.learn(&hot, Some(MIB)));
    assert_eq!(learned.headroom_factor, Some(3.15), "it was written to faster than copied");
}

proptest! {
    #[test]
    fn cool_downs_never_shrink_with_failures_and_never_exceed_the_maximum(
        failures in 1_u32..80, cool in 1_u64..100_000, max in 1_u64..1_000_000,
    ) {
        let failure = FailureSettings {
            cool_down: Duration::from_secs(cool),
            cool_down_max: Duration::from_secs(max),
            quarantine_after: u32::MAX,
        };
        let mut remembered = TargetRecord::default();
        let mut last = 0;
        for _ in 0..failures {
            remembered.record_outcome(&failed(1_000), AfterCompaction::default(), &failure);
            let rest = remembered.rests_until.unwrap().unix() - 1_000;
            prop_assert!(rest >= last && rest <= max);
            last = rest;
        }
    }
}
