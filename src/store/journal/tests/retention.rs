use super::{
    super::{
        store::{JournalStore, WriteBatch},
        tables::TableCounts,
    },
    *,
};

fn budgets(outcomes: u64, events: u64) -> work::JournalRetention {
    let keep = |max_size| Keep { keep: Duration::from_secs(1_000_000), max_size };
    work::JournalRetention { outcomes: keep(outcomes), events: keep(events) }
}

fn ends(numbers: std::ops::Range<u64>) -> WriteBatch {
    WriteBatch { changes: numbers.map(ended).collect(), ..WriteBatch::default() }
}

/// The numbers in the tables of outcomes and events.
fn stored_numbers(store: &JournalStore) -> (Vec<u64>, Vec<u64>) {
    let tx = store.begin_read().unwrap();
    let outcomes = HistoryQuery { limit: usize::MAX, ..HistoryQuery::default() };
    let outcomes = query::history(&tx, &outcomes).unwrap().entries;
    let events = EventsQuery { limit: usize::MAX, ..EventsQuery::default() };
    let events = query::events(&tx, &events).unwrap().entries;
    let counts: &TableCounts = store.counts();
    assert_eq!(counts.outcomes.entries, outcomes.len() as u64);
    assert_eq!(counts.events.entries, events.len() as u64);
    (
        outcomes.iter().rev().map(|(seq, _)| *seq).collect(),
        events.iter().map(|(seq, _)| *seq).collect(),
    )
}

#[test]
fn each_table_keeps_its_newest_entries_within_its_own_budget() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = JournalStore::open(&DirectoryStorage::new(dir.path()), true).unwrap();
    let budgets = budgets(64 << 10, 8 << 10);
    let mut largest = 0;
    for number in 0..600 {
        store.write(&ends(number * 20..number * 20 + 20), &budgets, moment(20_000)).unwrap();
        let counts = *store.counts();
        assert!(counts.outcomes.bytes <= 64 << 10 && counts.events.bytes <= 8 << 10);
        if number > 300 {
            largest = largest.max(DirectoryStorage::new(dir.path()).bytes().unwrap());
        }
    }
    let (outcomes, events) = stored_numbers(&store);
    // Each job uses two numbers, and there is no gap between stored ones.
    for numbers in [&outcomes, &events] {
        assert!(numbers.len() > 20 && numbers.windows(2).all(|pair| pair[1] - pair[0] == 2));
    }
    assert_eq!((outcomes.last(), events.last()), (Some(&23_999), Some(&24_000)));
    // The pages of removed entries are reused.
    assert!(largest <= 4 << 20, "{largest} bytes for 72 KiB");
    drop(store);
    let store = JournalStore::open(&DirectoryStorage::new(dir.path()), false).unwrap();
    assert_eq!(stored_numbers(&store), (outcomes, events));
    assert_eq!(store.last_seq(), 24_000);
}

#[test]
fn a_reduced_budget_is_reached_in_steps() {
    let mut store = JournalStore::open(&InMemory::default(), true).unwrap();
    store.write(&ends(0..2000), &budgets(1 << 30, 1 << 30), moment(10_000)).unwrap();
    let mut steps = 0;
    loop {
        let before = *store.counts();
        let more =
            store.write(&WriteBatch::default(), &budgets(10_000, 1 << 30), moment(10_000)).unwrap();
        let removed = before.outcomes.entries - store.counts().outcomes.entries;
        assert!(removed <= 256, "{removed} in one commit");
        steps += 1;
        if !more {
            break;
        }
    }
    assert!(steps > 5, "{steps}");
    assert!(store.counts().outcomes.bytes <= 10_000);
    assert_eq!(store.counts().events.entries, 2000);
}

#[test]
fn outcomes_of_the_last_hour_are_kept_whatever_their_size() {
    let mut store = JournalStore::open(&InMemory::default(), true).unwrap();
    for (now, kept) in [(2_000, 2_000), (3_600, 2_000), (4_600, 1_000), (9_000, 0)] {
        let batch = if now == 2_000 { ends(0..2_000) } else { WriteBatch::default() };
        let mut more = store.write(&batch, &budgets(0, 1 << 30), moment(now)).unwrap();
        while more {
            more = store.write(&WriteBatch::default(), &budgets(0, 1 << 30), moment(now)).unwrap();
        }
        assert_eq!(store.counts().outcomes.entries, kept, "at {now}");
    }
}

#[tokio::test(start_paused = true)]
async fn expired_entries_are_removed_even_if_nothing_is_written() {
    let day = Duration::from_secs(86_400);
    let keep = |days| Keep { keep: day * days, max_size: 1 << 30 };
    let settings = work::JournalRetention { outcomes: keep(5), events: keep(2) };
    let running = RunningJournal::with(InMemory::default(), settings).unwrap();
    running.recovered().await;
    running.keep((0..1000).map(ended).collect()).await.unwrap();
    time::sleep(day).await;
    running.keep(vec![ended(90_000)]).await.unwrap();
    assert_eq!((running.history().await.len(), running.events().await.len()), (1001, 1001));
    time::sleep(day + Duration::from_secs(700)).await;
    assert_eq!((running.history().await.len(), running.events().await.len()), (1001, 1));
    time::sleep(day * 3).await;
    assert_eq!((running.history().await.len(), running.events().await.len()), (1, 0));
    running.stop_and_wait().await;
}
