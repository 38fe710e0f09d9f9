#[path = "../../../../tests/seeded/mod.rs"]
mod seeded;

use super::{
    super::store::{JournalStore, WriteBatch},
    disk::Disk,
    *,
};
use proptest::prelude::*;
use seeded::random_numbers;
use std::collections::BTreeSet;

fn batch(numbers: std::ops::Range<u64>) -> WriteBatch {
    let changes = numbers.clone().map(|number| StateChange::StartIntended(intent(number)));
    let ends = numbers.clone().filter(|number| number % 2 == 0).map(ended);
    let rests = numbers.map(|number| {
        let remembered = TargetRecord { failures: 1, ..TargetRecord::default() };
        StateChange::SetTargetRecord(target(number % 7), Some(remembered))
    });
    WriteBatch { changes: changes.chain(ends).chain(rests).collect(), ..WriteBatch::default() }
}

/// The numbers of the jobs that ended and of those that did not, according to the stored batches.
fn stored_jobs(store: &JournalStore) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let number = |target: &TargetId| -> u64 {
        target.to_string().rsplit_once('d').unwrap().1.parse().unwrap()
    };
    let tx = store.begin_read().unwrap();
    let query = HistoryQuery { limit: usize::MAX, ..HistoryQuery::default() };
    let outcomes = query::history(&tx, &query).unwrap().entries;
    let open = store.load_state(moment(0)).unwrap().intents;
    (
        outcomes.iter().map(|(_, outcome)| number(&outcome.target)).collect(),
        open.iter().map(|intent| number(&intent.target)).collect(),
    )
}

/// Writes batches of the given sizes until the power fails. Checks that acknowledged batches are
/// present, others are either complete or absent, and that writing can continue.
fn check_power_loss(disk: &Disk, sizes: &[u64], power: u64, seed: u64) {
    let mut random = random_numbers(seed);
    disk.set_power_loss_after(power);
    let mut acknowledged = 0;
    let mut next = 0;
    if let Ok(mut store) = JournalStore::open(disk, false) {
        for size in sizes {
            let numbers = acknowledged..acknowledged + size;
            next = numbers.end;
            if store.write(&batch(numbers), &work::JournalRetention::default(), moment(0)).is_err()
            {
                break;
            }
            acknowledged = next;
        }
    }
    // Sometimes the power fails again during recovery.
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
        disk.set_power_loss_after(random() % 20);
        drop(JournalStore::open(disk, false));
    }
    if !disk.has_power() {
        disk.reboot(|| random().is_multiple_of(2));
    }
    let mut store = JournalStore::open(disk, false).unwrap();
    let (ends, open) = stored_jobs(&store);
    let expected = |end: u64| -> (BTreeSet<u64>, BTreeSet<u64>) {
        (0..end).partition(|number| number % 2 == 0)
    };
    let found =
        [acknowledged, next].into_iter().find(|end| (ends.clone(), open.clone()) == expected(*end));
    let Some(found) = found else {
        panic!("{acknowledged} were acknowledged, {next} were sent, there is {ends:?} {open:?}")
    };
    // An unacknowledged batch is sent again.
    store
        .write(
            &batch(found.min(acknowledged)..next + 3),
            &work::JournalRetention::default(),
            moment(0),
        )
        .unwrap();
    assert_eq!(stored_jobs(&store), expected(next + 3));
}

#[test]
fn acknowledged_batches_survive_power_loss_at_any_point() {
    let formatted = Disk::formatted();
    let sizes = [1, 3, 1, 40, 2];
    let whole = formatted.copy();
    check_power_loss(&whole, &sizes, u64::MAX, 0);
    assert!(whole.done() > 40, "{}", whole.done());
    for power in 0..whole.done() {
        for seed in 0..3 {
            check_power_loss(&formatted.copy(), &sizes, power, power * 31 + seed);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_writes_survive_a_power_failure_at_a_random_point(
        sizes in proptest::collection::vec(1_u64..30, 1..12),
        power in 0_u64..200,
        seed: u64,
    ) {
        check_power_loss(&Disk::formatted(), &sizes, power, seed);
    }
}

#[tokio::test]
#[ignore = "not a test of its own: acknowledged_changes_survive_a_kill starts and kills it"]
async fn prints_acknowledged_changes() {
    let instructions = child::child_instructions();
    let (dir, first) = instructions.rsplit_once(',').unwrap();
    let first: u64 = first.parse().unwrap();
    let running = RunningJournal::claimed(DirectoryStorage::new(dir)).await;
    for number in first.. {
        running
            .keep(vec![StateChange::StartIntended(intent(number)), ended(number)])
            .await
            .unwrap();
        child::print_line(&format!("stored {number}"));
    }
}

#[tokio::test]
async fn acknowledged_changes_survive_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = random_numbers(7);
    let mut printed = BTreeSet::new();
    for round in 0..12 {
        let first = round * 1_000_000;
        // In the first rounds the process is killed while it creates or opens the file, in the
        // others while it writes.
        let wanted = (round >= 4).then(|| usize::try_from(random() % 2000).unwrap());
        let pause = Duration::from_micros(random() % 30_000);
        let instructions = format!("{},{first}", dir.path().display());
        let test = "store::journal::tests::crash::prints_acknowledged_changes";
        let lines = child::run_and_kill(test, &instructions, wanted, pause).await;
        let before = printed.len();
        let stored =
            lines.iter().filter_map(|line| line.strip_prefix("stored ")?.parse::<u64>().ok());
        printed.extend(stored);
        assert!(round < 4 || printed.len() > before, "round {round} printed nothing");

        let running = RunningJournal::claimed(DirectoryStorage::new(dir.path())).await;
        let stored: BTreeSet<u64> = running
            .history()
            .await
            .iter()
            .map(|outcome| outcome.started_at.unix() - moment(0).unix())
            .collect();
        let lost: Vec<_> = printed.difference(&stored).collect();
        assert!(lost.is_empty(), "round {round} lost {lost:?}");
        assert!(running.recovered().await.intents.is_empty(), "stored completely or not at all");
        running.stop_and_wait().await;
    }
}
