use super::*;
use crate::{
    model::facts::{Facts, OptionalU64, file_id},
    store::journal::{self, ClusterIdentity, InMemory},
    table::{DbName, Draft},
};
use tokio::task::JoinSet;

const DAY: u64 = 86_400;

fn day(number: u64) -> Moment {
    Moment::from_unix(1_795_222_440 + number * DAY)
}

/// A cluster of databases, each given by name, number of deleted documents, and number of ranges.
fn cluster(databases: impl IntoIterator<Item = (String, u64, u32)>, suffix: &str) -> Arc<Snapshot> {
    let mut draft = Draft::new(1);
    let node = draft.get_or_add_node("couchdb@a");
    for (name, deleted, ranges) in databases {
        let db = draft.get_or_add_db(DbName { db: &name, suffix });
        for from in 0..ranges {
            let shard = draft.get_or_add_shard(node, db, Some(Range { from, to: from }));
            let facts = Facts {
                deleted_docs: OptionalU64::new(deleted / u64::from(ranges)),
                update_seq: OptionalU64::new(deleted),
                file_id: file_id("one"),
                ..Facts::sized(8_192, 4_096)
            };
            draft.set_facts(shard, facts);
        }
    }
    draft.publish(day(0))
}

fn one(deleted: u64, suffix: &str) -> Arc<Snapshot> {
    cluster([("orders".to_owned(), deleted, 1)], suffix)
}

#[test]
fn only_databases_with_most_deleted_documents_are_recorded() {
    let name = |at: u64| format!("db{at:05}");
    let mut records = DeletionRecords::default();
    let most = 1_500;
    records.see(&cluster((0..most).map(|at| (name(at), at, 1)), ".17"), day(0));
    let kept: Vec<&String> = records.records.keys().collect();
    let expected: Vec<String> = (500..most).map(name).collect();
    assert_eq!(kept, expected.iter().collect::<Vec<_>>());

    // A database without a record needs twice as many to replace one with a record.
    let deleted = |at: u64| match at {
        498 => 999,
        499 => 1_001,
        at => at,
    };
    records.see(&cluster((0..most).map(|at| (name(at), deleted(at), 1)), ".17"), day(1));
    let is_kept = [498, 499, 500, 501].map(|at| records.records.contains_key(&name(at)));
    assert_eq!(is_kept, [false, true, false, true]);
    let dropped = records.batch().into_iter().find(|(db, _)| *db == name(500));
    assert_eq!(dropped, Some((name(500), None)), "its stored record is removed");

    let mut records = DeletionRecords::default();
    records.see(&cluster((0..300).map(|at| (name(at), 1_000, 40)), ".17"), day(0));
    let copies: usize = records.records.values().map(DeletionRecord::copies).sum();
    assert_eq!((records.records.len(), copies), (250, MAX_COPIES));
}

#[test]
fn record_ends_with_its_database() {
    let mut records = DeletionRecords::default();
    records.see(&one(100, ".17"), day(0));
    let none = cluster([], ".17");
    records.see(&none, day(29));
    assert!(records.records.contains_key("orders"), "it may only be unread");
    // Another database of the same name.
    records.see(&one(50, ".18"), day(29));
    let record = &records.records["orders"];
    let times: Vec<Moment> = record.times(&SeenCopies::new()).iter().map(|it| it.at).collect();
    assert_eq!((&*record.suffix, times), (".18", vec![day(29)]));
    records.see(&none, day(60));
    assert!(records.records.is_empty());
}

#[test]
fn large_records_are_stored_in_several_batches() {
    let mut records = DeletionRecords::default();
    records.see(&cluster((0..40).map(|at| (format!("db{at}"), 1_000, 250)), ".17"), day(0));
    for (name, record) in &mut records.records {
        record.suffix = "x".repeat(100_000);
        records.unsaved.insert(name.clone());
    }
    let bytes =
        |batch: &NamedValues| batch.iter().flat_map(|it| &it.1).map(Vec::len).sum::<usize>();
    let batch = records.batch();
    assert!((2..40).contains(&batch.len()), "{}", batch.len());
    assert!(bytes(&batch) < BATCH_BYTES + 200_000);
}

#[tokio::test(start_paused = true)]
async fn restarted_recorder_continues_its_records() {
    let settings = watch::channel(journal::JournalSettings::default()).1;
    let clock = Clock::anchored(day(0));
    let (task, journal) = journal::JournalTask::open(InMemory::default(), clock, settings).unwrap();
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(task.run(stop.clone()));
    let (status, status_rx) = watch::channel(Arc::<ScanStatus>::default());
    let (snapshots, snapshots_rx) = watch::channel(one(1_000, ".17"));
    let start = |tasks: &mut JoinSet<()>| {
        let seen = (status_rx.clone(), snapshots_rx.clone());
        let stop = stop.child_token();
        tasks.spawn(DeletionRecorderTask::new(clock, seen, journal.clone()).run(stop.clone()));
        stop
    };
    let sweep = async |number| {
        status.send_replace(Arc::new(ScanStatus { sweeps: number, ..ScanStatus::default() }));
        time::sleep(INTERVAL * 2).await;
    };
    let first = start(&mut tasks);
    sweep(1).await;
    assert_eq!(stored_record(&journal, "orders").await.ok().flatten(), None, "not claimed");
    let nodes = ["couchdb@a".to_owned()].into();
    journal.claim(ClusterIdentity { nodes, ..ClusterIdentity::default() }).await.unwrap();
    sweep(2).await;
    let record = stored_record(&journal, "orders").await.unwrap().unwrap();
    first.cancel();

    // The next process begins with tables without the database.
    time::sleep(Duration::from_secs(3 * DAY)).await;
    snapshots.send_replace(cluster([], ".17"));
    start(&mut tasks);
    sweep(1).await;
    assert_eq!(stored_record(&journal, "orders").await.unwrap(), Some(record));
    let present = one(1_010, ".17");
    snapshots.send_replace(Arc::clone(&present));
    sweep(2).await;
    let record = stored_record(&journal, "orders").await.unwrap().unwrap();
    let (db, _) = present.databases().next().unwrap();
    let still = record.times(&seen_copies(&present, db));
    let still: Vec<(String, Option<u64>, u64)> =
        still.iter().map(|it| (it.at.date(), it.deleted, it.still_deleted)).collect();
    let expected = [
        ("2026-11-21".to_owned(), Some(1_000), 1_000),
        ("2026-11-24".to_owned(), Some(1_010), 1_010),
    ];
    assert_eq!(still, expected);
}
