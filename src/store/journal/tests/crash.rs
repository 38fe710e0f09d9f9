#[path = "../../../../tests/seeded/mod.rs"]
mod seeded;

use super::{
    super::store::{Batch, Store},
    disk::Disk,
    *,
};
use proptest::prelude::*;
use seeded::random_numbers;
use std::collections::BTreeSet;

fn batch(numbers: std::ops::Range<u64>) -> Batch {
    let changes = numbers.clone().map(|number| Change::Intended(intent(number)));
    let ends = numbers.clone().filter(|number| number % 2 == 0).map(ended);
    let rests = numbers.map(|number| {
        let remembered = Remembered { failures: 1, ..Remembered::default() };
        Change::Remember(target(number % 7), Some(remembered))
    });
    Batch { changes: changes.chain(ends).chain(rests).collect(), ..Batch::default() }
}

/// What batches that were kept leave: numbers whose job ended, and whose did not.
fn left(store: &Store) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let number = |target: &TargetId| -> u64 {
        target.to_string().rsplit_once('d').unwrap().1.parse().unwrap()
    };
    let tx = store.read().unwrap();
    let query = HistoryQuery { limit: usize::MAX, ..HistoryQuery::default() };
    let outcomes = query::history(&tx, &query).unwrap().entries;
    let open = store.recovered(moment(0)).unwrap().intents;
    (
        outcomes.iter().map(|(_, outcome)| number(&outcome.target)).collect(),
        open.iter().map(|intent| number(&intent.target)).collect(),
    )
}

/// Writes batches of these sizes until the power goes; checks that what was acknowledged is
/// there, what was not is there whole or not at all, and that it goes on from there.
fn survives(disk: &Disk, sizes: &[u64], power: u64, seed: u64) {
    let mut random = random_numbers(seed);
    disk.power_goes_after(power);
    let mut acknowledged = 0;
    let mut next = 0;
    if let Ok(mut store) = Store::open(disk, false) {
        for size in sizes {
            let numbers = acknowledged..acknowledged + size;
            next = numbers.end;
            if store.write(&batch(numbers), &work::Journal::default(), moment(0)).is_err() {
                break;
            }
            acknowledged = next;
        }
    }
    // Once in a while the power goes again while the file is mended.
    while disk.has_power() || random().is_multiple_of(3) {
        let some = random() % 3;
        disk.reboot(|| match some {
            0 => false,
            1 => true,
            _ => random().is_multiple_of(2),
        });
        if random().is_multiple_of(2) {
            break;
        }
        disk.power_goes_after(random() % 20);
        drop(Store::open(disk, false));
    }
    if !disk.has_power() {
        disk.reboot(|| random().is_multiple_of(2));
    }
    let mut store = Store::open(disk, false).unwrap();
    let (ends, open) = left(&store);
    let expected = |end: u64| -> (BTreeSet<u64>, BTreeSet<u64>) {
        (0..end).partition(|number| number % 2 == 0)
    };
    let found =
        [acknowledged, next].into_iter().find(|end| (ends.clone(), open.clone()) == expected(*end));
    let Some(found) = found else {
        panic!("{acknowledged} were acknowledged, {next} were sent, there is {ends:?} {open:?}")
    };
    // Whoever was not answered sends it again.
    store
        .write(&batch(found.min(acknowledged)..next + 3), &work::Journal::default(), moment(0))
        .unwrap();
    assert_eq!(left(&store), expected(next + 3));
}

#[test]
fn the_power_may_go_at_any_point() {
    let formatted = Disk::formatted();
    let sizes = [1, 3, 1, 40, 2];
    let whole = formatted.copy();
    survives(&whole, &sizes, u64::MAX, 0);
    assert!(whole.done() > 40, "{}", whole.done());
    for power in 0..whole.done() {
        for seed in 0..3 {
            survives(&formatted.copy(), &sizes, power, power * 31 + seed);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_is_written_and_whenever_the_power_goes(
        sizes in proptest::collection::vec(1_u64..30, 1..12),
        power in 0_u64..200,
        seed: u64,
    ) {
        survives(&Disk::formatted(), &sizes, power, seed);
    }
}

#[tokio::test]
#[ignore = "not a test of its own: everything_printed_outlives_a_kill starts and kills it"]
async fn prints_what_was_kept() {
    let told = child::told();
    let (dir, first) = told.rsplit_once(',').unwrap();
    let first: u64 = first.parse().unwrap();
    let running = Running::claimed(Directory::new(dir)).await;
    for number in first.. {
        running.keep(vec![Change::Intended(intent(number)), ended(number)]).await.unwrap();
        child::say(&format!("kept {number}"));
    }
}

#[tokio::test]
async fn everything_printed_outlives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = random_numbers(7);
    let mut printed = BTreeSet::new();
    for round in 0..12 {
        let first = round * 1_000_000;
        // The first rounds end while the file is made or opened, the others while it writes.
        let wanted = (round >= 4).then(|| usize::try_from(random() % 2000).unwrap());
        let pause = Duration::from_micros(random() % 30_000);
        let told = format!("{},{first}", dir.path().display());
        let test = "store::journal::tests::crash::prints_what_was_kept";
        let lines = child::killed(test, &told, wanted, pause).await;
        let before = printed.len();
        let kept = lines.iter().filter_map(|line| line.strip_prefix("kept ")?.parse::<u64>().ok());
        printed.extend(kept);
        assert!(round < 4 || printed.len() > before, "round {round} printed nothing");

        let running = Running::claimed(Directory::new(dir.path())).await;
        let kept: BTreeSet<u64> = running
            .history()
            .await
            .iter()
            .map(|outcome| outcome.started_at.unix() - moment(0).unix())
            .collect();
        let lost: Vec<_> = printed.difference(&kept).collect();
        assert!(lost.is_empty(), "round {round} lost {lost:?}");
        assert!(running.recovered().await.intents.is_empty(), "kept whole or not at all");
        running.stopped().await;
    }
}
