use super::{
    super::{copy, store::JournalStore},
    *,
};
use crate::table::TableBlock;
use redb::{Key, ReadTransaction, ReadableTable as _, TableDefinition, TableHandle as _, Value};
use std::{
    io::{Seek as _, Write as _},
    path::Path,
    sync::Arc,
};
use tokio::sync::Semaphore;

/// Every entry of a database as text, table by table.
pub(super) fn dump(tx: &ReadTransaction) -> Vec<String> {
    fn table<K: Key + 'static, V: Value + 'static>(
        tx: &ReadTransaction,
        definition: TableDefinition<'static, K, V>,
        show: impl Fn(V::SelfType<'_>) -> String,
    ) -> Vec<String> {
        let Ok(table) = tx.open_table(definition) else { return Vec::new() };
        let entries = table.iter().unwrap().map(|entry| {
            let (key, value) = entry.unwrap();
            format!("{} {:?} {}", definition.name(), key.value(), show(value.value()))
        });
        entries.collect()
    }
    let entry = |(at, json): (u32, &[u8])| format!("{at} {}", json.escape_ascii());
    let bytes = |json: &[u8]| json.escape_ascii().to_string();
    [
        table(tx, tables::OUTCOMES, entry),
        table(tx, tables::EVENTS, entry),
        table(tx, tables::DB_EVENTS, entry),
        table(tx, tables::FEED, |it| format!("{it:?}")),
        table(tx, tables::FEED_SEQ_BY_DB, |it| format!("{it:?}")),
        table(tx, tables::FEED_DELETED, |it| format!("{it:?}")),
        table(tx, tables::INTENTS, bytes),
        table(tx, tables::TARGET_RECORDS, bytes),
        table(tx, tables::SUSPENSIONS, bytes),
        table(tx, tables::OVERRIDDEN_SETTINGS, bytes),
        table(tx, tables::BLOCKS, bytes),
        table(tx, tables::BLOCK_TIMES, |it| format!("{it:?}")),
        table(tx, tables::MARKS, entry),
        table(tx, tables::META, bytes),
    ]
    .concat()
}

/// Stores a copy as the journal of a directory.
fn restore(mut copy: JournalCopy, directory: &Path) -> DirectoryStorage {
    let mut file = std::fs::File::create(directory.join("journal.redb")).unwrap();
    let mut written = 0;
    loop {
        let piece = copy.read_piece().unwrap();
        if piece.is_empty() {
            break;
        }
        file.write_all(&piece).unwrap();
        written += piece.len() as u64;
    }
    assert_eq!(written, copy.bytes());
    DirectoryStorage::new(directory)
}

/// Records something in every table.
async fn fill(running: &RunningJournal) {
    let suspension = Suspension { since: moment(3), by: None, why: Some("backup".into()) };
    let record = TargetRecord { failures: 5, ..TargetRecord::default() };
    running
        .keep(vec![
            StateChange::StartIntended(intent(1)),
            ended(1),
            StateChange::StartIntended(intent(2)),
            StateChange::SetTargetRecord(target(7), Some(record)),
            StateChange::Suspend(SuspensionScope::All, suspension),
            StateChange::Calibrate(Calibration { rate: Some(1.5), ..Calibration::default() }),
        ])
        .await
        .unwrap();
    let setting = OverriddenSetting {
        node: "couchdb@a".into(),
        section: "smoosh.ratio_dbs".into(),
        key: "concurrency".into(),
        was: None,
    };
    running.journal.record_overrides(vec![setting]).await.unwrap();
    let mark = crate::table::PublishedDbState {
        db: "orders".into(),
        suffix: ".17".into(),
        there: true,
        fresh: true,
        copies: Vec::new(),
    };
    let position = FeedPosition { seq: "9-x".into(), created_at: None, at: moment(2) };
    let (db, carts) = ("orders".to_owned(), "carts".to_owned());
    running.journal.record_batch_with_progress(
        vec![
            EventDetails::Created { db: db.clone() },
            EventDetails::Updated { db },
            EventDetails::Deleted { db: carts },
        ],
        EventProgress { position: Some(position), marks: vec![mark] },
    );
    let block = TableBlock { number: 0, at: moment(3), bytes: vec![3; 9_000] };
    let measured = MeasuredBlocks { changed: vec![block], ..MeasuredBlocks::default() };
    within_patience(running.journal.save_measurements(measured)).await.unwrap();
}

#[tokio::test]
async fn a_copy_has_every_entry_of_every_table() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = RunningJournal::claimed(DirectoryStorage::new(dir.path())).await;
    fill(&running).await;
    let copy = within_patience(running.journal.copy()).await.unwrap();
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap()).collect();
    assert_eq!(names.len(), 1, "a copy has no name: {names:?}");
    let storage = restore(copy, other.path());
    // Later entries are not in the copy.
    running.keep(vec![ended(5)]).await.unwrap();
    running.stop_and_wait().await;

    let original = JournalStore::open(&DirectoryStorage::new(dir.path()), false).unwrap();
    let file = other.path().join("journal.redb");
    let file = std::fs::File::options().read(true).write(true).open(file).unwrap();
    let summary = check_copy(&file, "copy").unwrap();
    drop(file);
    assert_eq!(summary.last_seq + 2, original.last_seq());
    assert_eq!((summary.outcomes, summary.last_at.is_some()), (1, true));

    let restored = JournalStore::open(&storage, false).unwrap();
    let (before, after) = (original.begin_read().unwrap(), restored.begin_read().unwrap());
    let table_names = |tx: &ReadTransaction| -> Vec<String> {
        tx.list_tables().unwrap().map(|table| table.name().to_owned()).collect()
    };
    assert_eq!(table_names(&before), table_names(&after));
    let later = |line: &String| line.contains("d5") || line.starts_with("meta \"counts\"");
    let lines = |tx: &ReadTransaction| -> Vec<String> {
        dump(tx).into_iter().filter(|line| !later(line)).collect()
    };
    assert_eq!(lines(&before), lines(&after));
    let kinds: std::collections::BTreeSet<String> = dump(&after)
        .iter()
        .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(kinds, table_names(&after).into_iter().collect(), "every table has entries");
}

#[tokio::test]
async fn a_copy_has_no_leases_of_shared_limits() {
    let other = tempfile::tempdir().unwrap();
    let running = RunningJournal::claimed(InMemory::default()).await;
    for whose in [SharedRecord::Keeper, SharedRecord::Member] {
        running.journal.save_shared_record(whose, vec![7]).await.unwrap();
        assert_eq!(running.journal.shared_record(whose).await.unwrap(), Some(vec![7]));
    }
    let copy = within_patience(running.journal.copy()).await.unwrap();
    running.stop_and_wait().await;
    let restored = JournalStore::open(&restore(copy, other.path()), false).unwrap();
    let lines = dump(&restored.begin_read().unwrap());
    assert!(lines.iter().any(|line| line.starts_with("meta \"cluster\"")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("shared_")), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_made_during_writes_ends_between_two_commits() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = RunningJournal::claimed(DirectoryStorage::new(dir.path())).await;
    let last = |running: &RunningJournal| running.journal.health().borrow().last_seq;
    let (journal, stop) = (running.journal.clone(), CancellationToken::new());
    let stopped = stop.clone();
    let mut writer = JoinSet::new();
    writer.spawn(async move {
        let mut written = 0;
        while !stopped.is_cancelled() {
            let batch = (0..7).map(|at| ended(written * 7 + at)).collect();
            journal.store(vec![]).await.unwrap();
            journal.store(batch).await.unwrap();
            written += 1;
        }
    });
    let mut highest = 0;
    for _ in 0..5 {
        let before = last(&running);
        let copy = within_patience(running.journal.copy()).await.unwrap();
        let after = last(&running);
        let storage = restore(copy, other.path());
        let store = JournalStore::open(&storage, false).unwrap();
        let seq = store.last_seq();
        assert!((before..=after).contains(&seq) && seq >= highest, "{before} {seq} {after}");
        highest = seq;
        // Each job has an outcome and an event; each batch has seven jobs.
        assert_eq!(seq % 14, 0);
        let tx = store.begin_read().unwrap();
        let query = EventsQuery { after_seq: Some(0), limit: usize::MAX, ..EventsQuery::default() };
        let events = query::events(&tx, &query).unwrap().entries;
        let query = HistoryQuery { limit: usize::MAX, ..HistoryQuery::default() };
        let history = query::history(&tx, &query).unwrap().entries;
        let numbers = |list: Vec<u64>| list.into_iter().collect::<std::collections::BTreeSet<_>>();
        let mut all = numbers(events.iter().map(|(seq, _)| *seq).collect());
        all.extend(history.iter().map(|(seq, _)| *seq));
        assert_eq!(all, numbers((1..=seq).collect()), "nothing is missing and nothing is later");
        // When the copy is used, it continues in its own era.
        drop(tx);
        store.close().unwrap();
    }
    stop.cancel();
    within_patience(writer.join_next()).await.unwrap().unwrap();
    assert!(highest > 0);
    running.stop_and_wait().await;
}

#[tokio::test]
async fn only_one_copy_is_made_at_a_time() {
    let running = RunningJournal::claimed(InMemory::default()).await;
    running.keep(vec![ended(1)]).await.unwrap();
    let first = within_patience(running.journal.copy()).await.unwrap();
    let refused = within_patience(running.journal.copy()).await.unwrap_err();
    assert!(matches!(refused, CopyError::Busy), "{refused}");
    assert!(refused.to_string().starts_with("another backup is in progress"));
    drop(first);
    let second = within_patience(running.journal.copy()).await.unwrap();
    assert!(second.bytes() > 0);
    running.stop_and_wait().await;
}

#[tokio::test]
async fn unfinished_copy_is_removed_at_next_start_and_by_next_copy() {
    let dir = tempfile::tempdir().unwrap();
    let leftover = dir.path().join("journal.redb.copy");
    std::fs::write(&leftover, [7; 5_000]).unwrap();
    let running = RunningJournal::claimed(DirectoryStorage::new(dir.path())).await;
    assert!(!leftover.exists());
    std::fs::write(&leftover, [7; 5_000]).unwrap();
    within_patience(running.journal.copy()).await.unwrap();
    assert!(!leftover.exists());
    running.stop_and_wait().await;
}

#[tokio::test]
async fn failed_copy_says_why_and_harms_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let running = RunningJournal::claimed(DirectoryStorage::new(dir.path())).await;
    // A directory in its place is neither removed nor written to.
    std::fs::create_dir(dir.path().join("journal.redb.copy")).unwrap();
    let refused = within_patience(running.journal.copy()).await.unwrap_err().to_string();
    let start = format!("cannot write the copy of the journal in {}: ", dir.path().display());
    assert!(refused.starts_with(&start), "{refused}");
    running.keep(vec![ended(1)]).await.unwrap();
    std::fs::remove_dir(dir.path().join("journal.redb.copy")).unwrap();
    within_patience(running.journal.copy()).await.unwrap();
    running.stop_and_wait().await;
}

#[test]
fn copy_too_large_or_cancelled_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let storage = DirectoryStorage::new(dir.path().join("data"));
    let store = JournalStore::open(&storage, true).unwrap();
    let path = dir.path().join("copy");
    let permits = Arc::new(Semaphore::new(1));
    let write = |bytes: u64, cancelled: &CancellationToken| {
        let permit = Arc::clone(&permits).try_acquire_owned().unwrap();
        copy::write(store.begin_read().unwrap(), &path, Some(bytes), permit, cancelled)
    };
    let stop = CancellationToken::new();
    let refused = write(1 << 60, &stop).unwrap_err();
    assert!(matches!(refused, CopyError::NoSpace { .. }), "{refused}");
    let text = refused.to_string();
    assert!(text.starts_with("a backup temporarily needs 1 EiB in "), "{text}");
    assert!(text.ends_with(" are free: free space on that disk"), "{text}");
    stop.cancel();
    assert!(matches!(write(0, &stop), Err(CopyError::Cancelled)));
    assert!(!path.exists());
    assert!(write(0, &CancellationToken::new()).is_ok());
}

#[test]
fn file_that_is_not_a_journal_is_refused_as_a_copy() {
    for (bytes, says) in
        [(&b""[..], "it is not a journal"), (&[0; 8192], ""), (b"{\"status\":\"success\"}", "")]
    {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        let refused = check_copy(&file, "copy").unwrap_err().to_string();
        assert!(refused.starts_with("copy is damaged: "), "{refused}");
        assert!(refused.contains(says), "{refused}");
    }
}

#[tokio::test]
async fn the_journal_of_a_running_process_is_recognised() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    assert!(!is_open_journal(&path));
    let running = RunningJournal::claimed(DirectoryStorage::new(dir.path())).await;
    assert!(is_open_journal(&path));
    running.keep(vec![ended(1)]).await.unwrap();
    running.stop_and_wait().await;
    assert!(!is_open_journal(&path));
    std::fs::write(&path, "a text").unwrap();
    assert!(!is_open_journal(&path));
}

/// Measures how long copies of a large journal take while it is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measures_copies_made_during_writes() {
    let dir = tempfile::tempdir().unwrap();
    let running = RunningJournal::claimed(DirectoryStorage::new(dir.path())).await;
    let events = std::env::var("RECLINER_TEST_EVENTS").ok();
    let events: u64 = events.map_or(100_000, |events| events.parse().unwrap());
    for batch in 0..events / 1000 {
        let events = (0..1000).map(|at| EventDetails::Queued {
            target: target(batch * 1000 + at),
            channel: "ratio_dbs".into(),
            summary: EventSummary::default(),
        });
        running.journal.record_batch(events.collect());
        running.keep(vec![]).await.unwrap();
    }
    for _ in 0..3 {
        let (journal, stop) = (running.journal.clone(), CancellationToken::new());
        let stopped = stop.clone();
        let mut writer = JoinSet::new();
        writer.spawn(async move {
            let (mut commits, mut slowest) = (0, Duration::ZERO);
            while !stopped.is_cancelled() {
                let begun = time::Instant::now();
                journal.store(vec![ended(1_000_000 + commits)]).await.unwrap();
                slowest = slowest.max(begun.elapsed());
                commits += 1;
            }
            (commits, slowest)
        });
        let before = running.journal.health().borrow().clone();
        let begun = time::Instant::now();
        let copy = running.journal.copy().await.unwrap();
        let took = begun.elapsed();
        stop.cancel();
        let (commits, slowest) = writer.join_next().await.unwrap().unwrap();
        child::print_line(&format!(
            "{} events, journal {:?} bytes, copy {} bytes in {took:?}; {commits} commits meanwhile, the slowest {slowest:?}",
            before.last_seq,
            before.file_bytes,
            copy.bytes()
        ));
    }
    running.stop_and_wait().await;
}
