use super::*;
use proptest::{collection::vec, prelude::*, sample::Index};

const fn counts(deleted: u64, update_seq: u64, purge_seq: u64) -> CopyCounts {
    CopyCounts { deleted, update_seq, purge_seq, file: NonZeroU8::MIN }
}

fn day(number: u64) -> Moment {
    Moment::from_unix(number * 86_400 + 3_600)
}

fn range(text: &str) -> Range {
    text.parse().unwrap()
}

const LOW: &str = "00000000-7fffffff";
const HIGH: &str = "80000000-ffffffff";

#[test]
fn lower_bound_of_still_deleted_falls_with_later_changes() {
    for (then, now, expected) in [
        // In turn: nothing changed; 500 were deleted; 500 changes, up to 250 of which brought documents back
        // and as many deleted others.
        (counts(1_000, 5_000, 0), counts(1_000, 5_000, 0), Some(1_000)),
        (counts(1_000, 5_000, 0), counts(1_500, 5_500, 0), Some(1_000)),
        (counts(1_000, 5_000, 0), counts(1_000, 5_500, 0), Some(750)),
        (counts(1_000, 5_000, 0), counts(900, 5_100, 0), Some(900)),
        (counts(1_000, 5_000, 0), counts(1_000, 9_000, 0), Some(0)),
        // Purges remove some; each takes a sequence.
        (counts(1_000, 5_000, 7), counts(900, 5_100, 107), Some(850)),
        // Another file: its counts decreased, or changed more than so few changes can explain.
        (counts(1_000, 5_000, 0), counts(1_000, 4_999, 0), None),
        (counts(1_000, 5_000, 3), counts(1_000, 5_000, 2), None),
        (counts(1_000, 5_000, 0), counts(1_200, 5_100, 0), None),
        (counts(1_000, 5_000, 0), counts(800, 5_100, 0), None),
        (counts(u64::MAX, 0, 0), counts(0, u64::MAX, u64::MAX), Some(0)),
    ] {
        assert_eq!(then.still_deleted(&now), expected, "{then:?} {now:?}");
    }
}

#[test]
fn counts_of_a_replaced_file_give_no_bound() {
    let then = counts(900, 1_900, 0);
    let now = counts(1_800, 4_000, 0);
    assert_eq!(then.still_deleted(&now), Some(300));
    let other = CopyCounts { file: NonZeroU8::MAX, ..now };
    assert_eq!(then.still_deleted(&other), None);
}

/// What happens to a document.
#[derive(Clone, Copy, Debug)]
enum Change {
    Write,
    Delete,
    /// An edit of a deleted conflict, or the same deletion replicated.
    EditTombstone,
    Purge,
    /// A purge of the winning revision of two; the other revision is deleted.
    PurgeWinner,
    /// `_security`, or `_revs_limit`.
    Setting,
}

/// A shard copy; each document is absent, live, or deleted since a step.
#[derive(Clone, Debug)]
struct Copy {
    docs: Vec<Option<Option<usize>>>,
    update_seq: u64,
    purge_seq: u64,
}

impl Copy {
    fn apply(&mut self, step: usize, at: usize, change: Change) {
        let doc = &mut self.docs[at];
        match (change, *doc) {
            (Change::Write, _) => *doc = Some(None),
            // Replication also brings deletions of documents that never existed here.
            (Change::Delete, Some(None) | None) => *doc = Some(Some(step)),
            (Change::EditTombstone, Some(Some(_))) | (Change::Setting, _) => {}
            (Change::Purge, Some(_)) => {
                *doc = None;
                self.purge_seq += 1;
            }
            (Change::PurgeWinner, Some(None)) => {
                *doc = Some(Some(step));
                self.purge_seq += 1;
            }
            (Change::Delete | Change::EditTombstone | Change::Purge | Change::PurgeWinner, _) => {
                return;
            }
        }
        self.update_seq += 1;
    }

    fn counts(&self) -> CopyCounts {
        let deleted = self.docs.iter().filter(|doc| matches!(doc, Some(Some(_)))).count();
        counts(deleted as u64, self.update_seq, self.purge_seq)
    }

    /// Documents that were deleted before a step and stayed deleted.
    fn deleted_before(&self, step: usize) -> u64 {
        let is_old = |doc: &&Option<Option<usize>>| matches!(doc, Some(Some(at)) if *at < step);
        self.docs.iter().filter(is_old).count() as u64
    }
}

fn change() -> impl Strategy<Value = Change> {
    use Change::{Delete, EditTombstone, Purge, PurgeWinner, Setting, Write};
    prop_oneof![
        4 => Just(Write),
        8 => Just(Delete),
        1 => Just(EditTombstone),
        1 => Just(Purge),
        1 => Just(PurgeWinner),
        1 => Just(Setting),
    ]
}

proptest! {
    /// The bound never exceeds the number of old deletions, and a copy is never mistaken for another.
    #[test]
    fn bound_of_still_deleted_never_exceeds_the_truth(
        changes in vec((any::<Index>(), change()), 1..200),
        then in any::<Index>(),
    ) {
        let mut copy = Copy { docs: vec![None; 12], update_seq: 0, purge_seq: 0 };
        let then = then.index(changes.len());
        let mut before = copy.counts();
        for (step, (doc, change)) in changes.iter().enumerate() {
            if step == then {
                before = copy.counts();
            }
            copy.apply(step, doc.index(12), *change);
        }
        let bound = before.still_deleted(&copy.counts());
        prop_assert!(bound.is_some_and(|least| least <= copy.deleted_before(then)), "{bound:?} {copy:?}");
    }

    /// The same through a stored record, over days on which some copies were missing.
    #[test]
    fn stored_record_never_overstates_old_deletions(
        days in vec((vec((any::<Index>(), change()), 0..12), any::<bool>(), any::<bool>()), 1..60),
    ) {
        let mut copies = [LOW, HIGH].map(|_| Copy { docs: vec![None; 12], update_seq: 0, purge_seq: 0 });
        let mut record = DeletionRecord::beginning(".1");
        let (mut step, mut steps) = (0, Vec::new());
        for (number, (changes, low, high)) in (0_u64..).zip(&days) {
            for (doc, change) in changes {
                let at = doc.index(24);
                copies[at / 12].apply(step, at % 12, *change);
                step += 1;
            }
            steps.push(step);
            let read = |is_read: &bool, copy: &Copy| is_read.then(|| copy.counts());
            let seen = SeenCopies::from([
                ((range(LOW), "a"), read(low, &copies[0])),
                ((range(HIGH), "b"), read(high, &copies[1])),
            ]);
            record.see(&seen, day(number));
            record = postcard::from_bytes(&postcard::to_stdvec(&record).unwrap()).unwrap();
        }
        let now = SeenCopies::from([
            ((range(LOW), "a"), Some(copies[0].counts())),
            ((range(HIGH), "b"), Some(copies[1].counts())),
        ]);
        for time in record.times(&now) {
            let step = steps[usize::try_from(time.at.unix() / 86_400).unwrap()];
            let truth: u64 = copies.iter().map(|copy| copy.deleted_before(step)).sum();
            prop_assert!(time.still_deleted <= truth, "{time:?}, {truth}: {record:?}");
        }
    }
}

fn seen(deleted: u64, update_seq: u64) -> SeenCopies<'static> {
    SeenCopies::from([
        ((range(LOW), "a"), Some(counts(deleted, update_seq, 0))),
        ((range(LOW), "b"), Some(counts(deleted, 2 * update_seq, 0))),
        ((range(HIGH), "b"), Some(counts(deleted, update_seq, 0))),
    ])
}

#[test]
fn record_keeps_daily_points_and_thins_them_with_age() {
    let mut record = DeletionRecord::beginning(".1");
    for number in 0..4_000 {
        assert!(record.see(&seen(number, number), day(number)), "day {number}");
        assert!(!record.see(&seen(number, number), day(number).plus(DAY / 2)), "day {number}");
    }
    let now = seen(3_999, 3_999);
    let times = record.times(&now);
    let ages: Vec<u64> =
        times.iter().rev().map(|it| it.at.age(day(3_999)).as_secs() / 86_400).collect();
    assert!(ages.len() < 45, "{ages:?}");
    assert_eq!((&ages[..5], ages.last()), (&[0, 1, 2, 3, 4][..], Some(&3_999)));
    for (newer, older) in ages.iter().zip(ages.iter().skip(1)) {
        assert!(older - newer <= (older / 2).max(1), "{ages:?}");
    }
    let [then] = times.iter().filter(|it| it.at == day(3_996)).collect::<Vec<_>>()[..] else {
        panic!()
    };
    // Only one copy of each range counts.
    assert_eq!((then.deleted, then.still_deleted), (Some(2 * 3_996), 2 * 3_996));
    assert_eq!(record.deleted(&now), Some(2 * 3_999));
}

#[test]
fn unread_copy_is_unknown_and_filled_in_later_the_same_day() {
    let mut record = DeletionRecord::beginning(".1");
    let half = |deleted| {
        let mut half = seen(deleted, 100);
        half.insert((range(HIGH), "b"), None);
        half
    };
    assert!(record.see(&half(10), day(1)));
    assert!(!record.see(&half(10), day(1).plus(Duration::from_secs(60))));
    let times = record.times(&half(10));
    assert_eq!((times[0].deleted, times[0].still_deleted), (None, 10));
    assert_eq!(record.deleted(&half(10)), None);
    let later = day(1).plus(Duration::from_secs(120));
    assert!(record.see(&seen(10, 100), later));
    let expected = DeletedThen { at: later, deleted: Some(20), still_deleted: 20 };
    assert_eq!(record.times(&seen(10, 100)), [expected]);
}

#[test]
fn record_starts_over_for_a_copy_whose_file_is_replaced() {
    let mut record = DeletionRecord::beginning(".1");
    record.see(&seen(10, 100), day(1));
    // The copy grew beyond its former sequence within a day; the sweep in between saw it.
    assert!(record.see(&seen(10, 50), day(1).plus(Duration::from_secs(60))));
    record.see(&seen(12, 120), day(2));
    let still: Vec<u64> = record.times(&seen(12, 120)).iter().map(|it| it.still_deleted).collect();
    assert_eq!(still, [0, 24], "the other range's copy began anew as well");
    // A copy that moved away loses its recorded counts.
    let moved = SeenCopies::from([
        ((range(LOW), "b"), Some(counts(12, 240, 0))),
        ((range(HIGH), "b"), Some(counts(12, 120, 0))),
    ]);
    assert!(record.see(&moved, day(3)));
    let still: Vec<u64> = record.times(&moved).iter().map(|it| it.still_deleted).collect();
    assert_eq!(still, [0, 12, 24]);
}

#[test]
fn points_dated_in_the_future_are_forgotten() {
    let mut record = DeletionRecord::beginning(".1");
    record.see(&seen(10, 100), day(1));
    record.see(&seen(20, 110), day(400));
    assert!(record.see(&seen(20, 110), day(2)));
    let days: Vec<Moment> = record.times(&seen(20, 110)).iter().map(|it| it.at).collect();
    assert_eq!(days, [day(1), day(2)]);
}

#[test]
fn the_record_keeps_its_stored_encoding() {
    let mut record = DeletionRecord::beginning(".17");
    let mut first = seen(10, 300);
    first.remove(&(range(HIGH), "b"));
    record.see(&first, day(1));
    record.see(&seen(11, 301), day(2));
    let stored = postcard::to_stdvec(&record).unwrap();
    let hex: String = stored.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        concat!(
            "03",
            "2e3137", // its suffix
            "02",
            "00ffffffff0701",
            "61",
            "8080808008ffffffff0f01",
            "62", // the copies: range and node
            "02",
            "90bf05",
            "02",
            "010aac020001",
            "00", // a day of one copy
            "90e20a",
            "02",
            "010bad020001",
            "010bad020001", // a day of both
        )
    );
    let read: DeletionRecord = postcard::from_bytes(&stored).unwrap();
    assert_eq!(DeletionRecord { latest: Vec::new(), ..record }, read);
}
