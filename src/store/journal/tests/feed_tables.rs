use super::{
    super::{
        feed_tables,
        store::{JournalStore, WriteBatch},
        tables,
    },
    *,
};

const KEEP: Keep = Keep { keep: Duration::from_secs(8_000), max_size: 1 << 30 };

fn budgets(events: Keep) -> work::JournalRetention {
    work::JournalRetention { events, ..work::JournalRetention::default() }
}

fn created(db: &str) -> EventDetails {
    EventDetails::Created { db: db.into() }
}

fn updated(db: &str) -> EventDetails {
    EventDetails::Updated { db: db.into() }
}

fn deleted(db: &str) -> EventDetails {
    EventDetails::Deleted { db: db.into() }
}

fn write(store: &mut JournalStore, events: Vec<EventDetails>, keep: Keep, at: u64) -> bool {
    let batch = WriteBatch { events, ..WriteBatch::default() };
    store.write(&batch, &budgets(keep), moment(at)).unwrap()
}

fn page(store: &JournalStore, since: FeedStart) -> FeedPage {
    let query = FeedQuery { start: since, until: None, newest_first: false, limit: usize::MAX };
    feed_tables::read(&store.begin_read().unwrap(), &query).unwrap()
}

/// Numbers, types and databases from the beginning.
fn all(store: &JournalStore) -> Vec<(u64, &'static str, String)> {
    let page = page(store, FeedStart::Beginning);
    let row = |update: FeedEntry| (update.seq, update.change.label(), update.db);
    page.entries.into_iter().map(row).collect()
}

fn row(seq: u64, kind: &'static str, db: &str) -> (u64, &'static str, String) {
    (seq, kind, db.to_owned())
}

#[test]
fn an_event_replaces_the_previous_one_of_its_type() {
    let mut store = JournalStore::open(&InMemory::default(), true).unwrap();
    write(&mut store, vec![created("a"), updated("a"), updated("b"), updated("a")], KEEP, 0);
    assert_eq!(
        all(&store),
        [row(1, "created", "a"), row(3, "updated", "b"), row(4, "updated", "a")]
    );
    assert_eq!(store.counts().feed.size.entries, 3);
    assert_eq!(store.counts().db_events.entries, 4);
}

#[test]
fn database_events_do_not_displace_recliners_own_events() {
    let mut store = JournalStore::open(&InMemory::default(), true).unwrap();
    let small = Keep { max_size: 2_000, ..KEEP };
    let own = || EventDetails::Released { target: target(1) };
    let mut expected = Vec::new();
    for round in 0..50_u64 {
        let more = write(&mut store, vec![own(), updated("a"), updated("b")], small, 0);
        assert!(!more && store.counts().events.bytes <= 2_000);
        expected.push(round * 3 + 1);
    }
    let query = EventsQuery { after_seq: Some(0), limit: usize::MAX, ..EventsQuery::default() };
    let stored = query::events(&store.begin_read().unwrap(), &query).unwrap();
    let numbers: Vec<u64> = stored.entries.iter().map(|(seq, _)| *seq).collect();
    assert!(numbers.is_sorted() && numbers.last() == Some(&150), "{numbers:?}");
    let own: Vec<u64> = numbers.iter().copied().filter(|seq| seq % 3 == 1).collect();
    // Each table has its own budget.
    assert_eq!(own, expected[expected.len() - own.len()..]);
    assert!(own.len() >= 15 && numbers.len() - own.len() >= 20, "{numbers:?}");
    // The newest events come from both tables.
    let query = EventsQuery { after_seq: None, limit: 4, ..EventsQuery::default() };
    let newest = query::events(&store.begin_read().unwrap(), &query).unwrap();
    assert_eq!(
        newest.entries.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(),
        [147, 148, 149, 150]
    );
}

#[test]
fn deleted_databases_expire_and_existing_ones_stay() {
    let mut store = JournalStore::open(&InMemory::default(), true).unwrap();
    let first =
        [created("old"), updated("old"), created("lives"), created("again"), updated("back")];
    write(&mut store, first.to_vec(), KEEP, 0);
    write(&mut store, vec![deleted("old"), deleted("again"), deleted("back")], KEEP, 10);
    // In turn: a late update from before the deletion; a database created again; an update long
    // after an unnoticed creation.
    write(&mut store, vec![updated("old"), created("again")], KEEP, 20);
    write(&mut store, vec![updated("back")], KEEP, 1_000);
    let newest = page(&store, FeedStart::End);
    let at =
        |number| FeedStart::AfterSequence { number, era: newest.era.clone(), removed_at_start: 0 };
    // Just short of the retention.
    write(&mut store, vec![], KEEP, 8_900);
    assert_eq!(all(&store).len(), 8);
    assert_eq!(page(&store, at(5)).reset, None);
    while write(&mut store, vec![], KEEP, 9_100) {}
    let expected = [
        row(3, "created", "lives"),
        row(7, "deleted", "again"),
        row(8, "deleted", "back"),
        row(10, "created", "again"),
        row(11, "updated", "back"),
    ];
    assert_eq!(all(&store), expected);
    assert_eq!((store.counts().feed.size.entries, store.counts().feed.highest_removed_seq), (5, 9));
    // A reader that missed a removed event must start again.
    for (number, reset) in
        [(5, Some(ResetReason::Trimmed)), (8, Some(ResetReason::Trimmed)), (9, None), (11, None)]
    {
        assert_eq!(page(&store, at(number)).reset, reset, "{number}");
    }
    // A reader that started after the removal may continue from anywhere.
    let begun =
        FeedStart::AfterSequence { number: 3, era: newest.era.clone(), removed_at_start: 9 };
    let rest = page(&store, begun);
    assert_eq!(
        (rest.reset, rest.after, rest.removed_at_start, rest.entries.len()),
        (None, 3, 9, 4)
    );
    assert_eq!(page(&store, FeedStart::Beginning).removed_at_start, 9);
}

#[test]
fn deleted_databases_are_removed_early_above_the_size_limit() {
    let mut store = JournalStore::open(&InMemory::default(), true).unwrap();
    let small = Keep { max_size: 10_000, ..KEEP };
    write(&mut store, vec![created("lives")], small, 0);
    let mut largest = 0;
    for number in 0..2_000 {
        let db = format!("d{number}");
        write(&mut store, vec![created(&db), updated(&db), deleted(&db)], small, 0);
        largest = largest.max(store.counts().feed.size.bytes);
    }
    assert!(largest <= 11_000, "{largest}");
    let rows = all(&store);
    assert_eq!(rows[0], row(1, "created", "lives"));
    assert!(rows.len() > 100, "{}", rows.len());
    assert_eq!(rows.len() as u64, store.counts().feed.size.entries);
}

/// A server may invent databases without end.
#[test]
fn events_of_countless_databases_stay_within_size_limit() {
    let dir = tempfile::tempdir().unwrap();
    let storage = DirectoryStorage::new(dir.path());
    let mut store = JournalStore::open(&storage, true).unwrap();
    let small = Keep { max_size: 1 << 20, ..KEEP };
    let mut largest = 0;
    for round in 0..100 {
        let dbs = (0..200).map(|number| format!("invented-{round}-{number}"));
        let events = dbs.flat_map(|db| [created(&db), updated(&db)]).collect();
        write(&mut store, events, small, 0);
        let counts = store.counts();
        largest = largest.max(counts.feed.size.bytes + counts.db_events.bytes);
    }
    // A commit may add entries before it removes others, so the size may briefly exceed the limit.
    assert!(largest <= (1 << 20) + 64 * 1_024, "{largest}");
    let file = storage.bytes().unwrap();
    assert!(file <= 8 << 20, "{file} bytes for 1 MiB");
    let rows = all(&store);
    assert_eq!(rows.len() as u64, store.counts().feed.size.entries);
    assert_eq!(rows.last().map(|row| row.2.as_str()), Some("invented-99-199"), "the newest stay");
    let newest = page(&store, FeedStart::End);
    let early = FeedStart::AfterSequence { number: 1, era: newest.era, removed_at_start: 0 };
    assert_eq!(page(&store, early).reset, Some(ResetReason::Trimmed));
}

/// A file that is written to, copied, written to again, and restored from the copy.
#[test]
fn sequence_numbers_reused_after_a_restore_are_distinguished() {
    let dir = tempfile::tempdir().unwrap();
    let (storage, path) = (DirectoryStorage::new(dir.path()), dir.path().join("journal.redb"));
    let copy = dir.path().join("copy");
    let open = || JournalStore::open(&storage, true).unwrap();
    let era = |store: &JournalStore| page(store, FeedStart::End).era;
    let mut store = open();
    write(&mut store, vec![updated("a"), updated("b")], KEEP, 0);
    let before = era(&store);
    store.close().unwrap();
    std::fs::copy(&path, &copy).unwrap();
    // Reopening begins a new era with the first event; earlier sequences stay valid.
    let mut store = open();
    assert_eq!(era(&store), before);
    write(&mut store, vec![updated("c")], KEEP, 0);
    let lost = era(&store);
    assert_ne!(lost, before);
    let behind = |number, era: &str| FeedStart::AfterSequence {
        number,
        era: era.into(),
        removed_at_start: 0,
    };
    assert_eq!(page(&store, behind(2, &before)).reset, None);
    assert_eq!(page(&store, behind(3, &lost)).reset, None);
    assert_eq!(page(&store, behind(3, &before)).reset, Some(ResetReason::UnknownSequence));
    store.close().unwrap();
    std::fs::copy(&copy, &path).unwrap();
    let mut store = open();
    for events in 0..3 {
        // In turn: before the number was assigned a second time, at that number, and after it.
        assert_eq!(
            page(&store, behind(3, &lost)).reset,
            Some(ResetReason::UnknownSequence),
            "{events}"
        );
        assert_eq!(page(&store, behind(2, &before)).reset, None, "{events}");
        write(&mut store, vec![updated("d")], KEEP, 0);
    }
    assert_eq!(page(&store, behind(4, &era(&store))).reset, None);
    // Old eras are forgotten.
    store.close().unwrap();
    for _ in 0..100 {
        let mut store = open();
        write(&mut store, vec![updated("e")], KEEP, 0);
        store.close().unwrap();
    }
    assert_eq!(page(&open(), behind(2, &before)).reset, Some(ResetReason::UnknownSequence));
}

#[tokio::test]
async fn a_file_of_the_previous_format_is_upgraded() {
    let dir = tempfile::tempdir().unwrap();
    let storage = DirectoryStorage::new(dir.path());
    {
        let database = storage.open(true).unwrap();
        let tx = database.begin_write().unwrap();
        {
            let mut meta = tx.open_table(tables::META).unwrap();
            meta.insert("schema", &b"1"[..]).unwrap();
            let counts = r#"{"last_seq":4,"outcomes":{"entries":0,"bytes":0},
                "events":{"entries":4,"bytes":400}}"#;
            meta.insert("counts", counts.as_bytes()).unwrap();
            tx.open_table(tables::OUTCOMES).unwrap();
            let mut events = tx.open_table(tables::EVENTS).unwrap();
            let own = EventDetails::Released { target: target(1) };
            for (seq, what) in (1..).zip([updated("a"), own, updated("a"), created("b")]) {
                let event = JournalEvent { at: moment(seq), details: what };
                let json = serde_json::to_vec(&event).unwrap();
                events.insert(seq, (1_800_000_000, json.as_slice())).unwrap();
            }
        }
        tx.commit().unwrap();
        database.close().unwrap();
    }
    for more in 0..2 {
        let running = RunningJournal::claimed(storage.clone()).await;
        running.journal.record_batch(vec![updated("b")]);
        within_patience(running.journal.overridden_settings()).await.unwrap();
        assert_eq!(running.events().await.len(), 5 + more);
        let query =
            FeedQuery { start: FeedStart::Beginning, until: None, newest_first: false, limit: 10 };
        let page = within_patience(running.journal.feed(query)).await.unwrap();
        let numbers: Vec<u64> = page.entries.iter().map(|update| update.seq).collect();
        assert_eq!(numbers, [3, 4, 5 + more as u64]);
        running.stop_and_wait().await;
    }
}
