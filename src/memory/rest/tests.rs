use super::*;
use crate::{
    memory::Calibration,
    target::{Kind, TargetId},
};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

const FAILURE: Failure = Failure {
    cool_down: Duration::from_secs(600),
    cool_down_max: Duration::from_secs(3_600),
    quarantine_after: 5,
};

fn at(seconds: u64) -> Moment {
    Moment::from_unix(seconds)
}

fn outcome(ending: Ending, ended: u64, sizes: [Option<u64>; 3]) -> Outcome {
    let [before_bytes, after_bytes, predicted_bytes] = sizes;
    Outcome {
        target: TargetId::Cleanup { db: "a".into() },
        kind: Kind::Db,
        node: "couchdb@a".into(),
        design: None,
        channel: None,
        owner: Owner::Recliner,
        ordered_by: None,
        started_at: at(ended - 10),
        ended_at: at(ended),
        before_bytes,
        after_bytes,
        predicted_bytes,
        ending,
        why: None,
    }
}

fn failed(ended: u64) -> Outcome {
    outcome(Ending::Failed, ended, [None; 3])
}

#[test]
fn each_failure_rests_twice_as_long_until_the_fifth_waits_for_an_operator() {
    let mut remembered = Remembered::default();
    let mut rests = Vec::new();
    for _ in 0..5 {
        remembered.ended(&failed(1_000), Left::default(), &FAILURE);
        rests.push(remembered.rests_until.unwrap().unix() - 1_000);
    }
    assert_eq!(rests, [600, 1_200, 2_400, 3_600, 3_600]);
    let quarantined = Some(Rest::Quarantined { since: at(1_000), failures: 5 });
    assert_eq!(remembered.rest(None, None, at(999_999)), quarantined);
    remembered.release();
    assert!(remembered.is_blank());
}

#[test]
fn a_rest_ends_by_itself_and_a_success_of_anyone_forgets_the_failures() {
    let mut remembered = Remembered::default();
    remembered.ended(&failed(1_000), Left::default(), &FAILURE);
    let rest = Some(Rest::CoolDown { since: at(1_000), until: at(1_600) });
    assert_eq!(remembered.rest(None, None, at(1_599)), rest);
    assert_eq!(remembered.rest(None, None, at(1_600)), None);
    let lost = outcome(Ending::Lost, 1_700, [None; 3]);
    remembered.ended(&lost, Left::default(), &FAILURE);
    assert_eq!(remembered.failures, 1, "what got lost says nothing");
    let theirs = Outcome { owner: Owner::Other, ..failed(1_800) };
    remembered.ended(&theirs, Left::default(), &FAILURE);
    assert_eq!(remembered.failures, 1, "their failures are theirs");
    let good = [Some(100 * MIB), Some(10 * MIB), Some(10 * MIB)];
    let theirs = Outcome { owner: Owner::Other, ..outcome(Ending::Freed, 1_900, good) };
    remembered.ended(&theirs, Left::default(), &FAILURE);
    assert!(remembered.is_blank());
}

#[test]
fn a_clock_that_is_set_back_prolongs_no_rest_by_more_than_its_length() {
    let mut remembered = Remembered::default();
    remembered.ended(&failed(100_000), Left::default(), &FAILURE);
    let rests = |now| remembered.rest(None, None, at(now)).is_some();
    assert_eq!([99_400, 99_399, 0].map(rests), [true, false, false]);
}

#[test]
fn what_freed_far_less_than_promised_waits_until_enough_changed() {
    let left = |file| Left { file_bytes: Some(file), update_seq: Some(1_000), not_upgraded: false };
    // Before, after, predicted, and whether that was of no use.
    for (before, after, predicted, futile) in [
        (100 * MIB, 95 * MIB, 50 * MIB, true),
        (100 * MIB, 89 * MIB, 50 * MIB, false),
        (100 * MIB, 120 * MIB, 50 * MIB, true),
        (100 * MIB, 100 * MIB, 100 * MIB - 5, false),
        (40_000, 40_000, 20_000, true),
        (40_000, 40_000, 39_000, false),
        (MIB, MIB, 2 * MIB, false),
    ] {
        let mut remembered = Remembered::default();
        let sizes = [Some(before), Some(after), Some(predicted)];
        remembered.ended(&outcome(Ending::NothingFreed, 50, sizes), left(after), &FAILURE);
        let rest = remembered.rest(Some(after), Some(1_000), at(99_999));
        let expected = futile.then_some(Rest::Futile { since: at(50), file_bytes: after });
        assert_eq!(rest, expected, "{sizes:?}");
    }
    let mut remembered = Remembered::default();
    let sizes = [Some(100 * MIB), Some(99 * MIB), Some(50 * MIB)];
    remembered.ended(&outcome(Ending::Freed, 50, sizes), left(99 * MIB), &FAILURE);
    let rests = |file, seq| remembered.rest(file, seq, at(60)).is_some();
    assert!(rests(Some(120 * MIB), Some(1_249)));
    assert!(!rests(Some(124 * MIB), Some(1_000)));
    assert!(!rests(Some(99 * MIB), Some(1_250)));
    assert!(rests(None, None), "unknown is no change");
}

#[test]
fn an_upgrade_that_did_not_take_is_not_tried_again_at_once() {
    let mut remembered = Remembered::default();
    let left = Left { file_bytes: Some(5), update_seq: None, not_upgraded: true };
    remembered.ended(&outcome(Ending::Freed, 50, [Some(9), Some(5), Some(5)]), left, &FAILURE);
    assert!(remembered.rest(Some(5), None, at(60)).is_some());
}

#[test]
fn a_round_over_the_copies_of_a_view_ends_with_the_last() {
    let mut remembered = Remembered::default();
    remembered.copy_done("a", 3);
    remembered.copy_done("a", 3);
    remembered.copy_done("b", 3);
    remembered.ended(&outcome(Ending::Freed, 50, [None; 3]), Left::default(), &FAILURE);
    assert_eq!(remembered.copies_done.len(), 2, "a success of one copy goes on with the round");
    remembered.copy_done("c", 3);
    assert!(remembered.is_blank());
}

#[test]
fn outcomes_teach_rates_errors_and_peaks() {
    let mut learned = Calibration::default();
    assert!(!learned.learn(&failed(100), Some(10)));
    let sizes = |sizes: [u64; 3]| sizes.map(|size| Some(size * MIB));
    let ended = outcome(Ending::Freed, 100, sizes([900, 300, 200]));
    assert!(learned.learn(&ended, Some(100 * MIB)));
    let rate = |mib: u64| Some((mib * MIB) as f64);
    assert_eq!((learned.rate, learned.db_ratio), (rate(30), Some(1.5)));
    assert_eq!(learned.headroom_factor, Some(3.15));
    let smaller = outcome(Ending::Freed, 200, sizes([900, 100, 100]));
    assert!(learned.learn(&smaller, Some(100 * MIB)));
    assert_eq!(learned.headroom_factor, Some(3.15), "only upward");
    assert_eq!(learned.rate, rate(26));
    let hot = outcome(Ending::Freed, 300, sizes([66, 5, 1]));
    assert!(learned.learn(&hot, Some(MIB)));
    assert_eq!(learned.headroom_factor, Some(3.15), "it was written to faster than copied");
}

proptest! {
    #[test]
    fn rests_never_shrink_with_failures_and_never_exceed_the_longest(
        failures in 1_u32..80, cool in 1_u64..100_000, max in 1_u64..1_000_000,
    ) {
        let failure = Failure {
            cool_down: Duration::from_secs(cool),
            cool_down_max: Duration::from_secs(max),
            quarantine_after: u32::MAX,
        };
        let mut remembered = Remembered::default();
        let mut last = 0;
        for _ in 0..failures {
            remembered.ended(&failed(1_000), Left::default(), &failure);
            let rest = remembered.rests_until.unwrap().unix() - 1_000;
            prop_assert!(rest >= last && rest <= max);
            last = rest;
        }
    }
}
