use super::{disk::Disk, *};
use crate::{model::target::TargetSelector, store::journal::EventSummary, table::PublishedDbState};
use std::collections::BTreeMap;

fn updated(number: u64) -> EventDetails {
    EventDetails::Updated { db: format!("db{number}") }
}

#[tokio::test(start_paused = true)]
async fn recorded_events_are_sent_with_their_numbers_once_stored() {
    let running = RunningJournal::claimed(Disk::formatted()).await;
    running.journal.record_batch(vec![EventDetails::Created { db: "early".into() }]);
    running.keep(vec![ended(1)]).await.unwrap();
    let mut subscriber = running.journal.subscribe();
    let batch = vec![updated(1), EventDetails::Deleted { db: "db2".into() }];
    running.journal.record_batch(batch.clone());
    let received = within_patience(subscriber.recv()).await.unwrap();
    let details: Vec<EventDetails> =
        received.iter().map(|(_, event)| event.details.clone()).collect();
    assert_eq!(details, batch);
    let (first, last) = (received[0].0, received[1].0);
    assert_eq!(last, first + 1);
    assert_eq!(running.journal.health().borrow().last_seq, last);

    let query = |types: Vec<EventType>| EventsQuery {
        types,
        after_seq: Some(0),
        limit: 9,
        ..EventsQuery::default()
    };
    let of_databases = vec![EventType::Created, EventType::Updated, EventType::Deleted];
    let page = within_patience(running.journal.events(query(of_databases))).await.unwrap();
    let seqs: Vec<u64> = page.entries.iter().map(|(seq, _)| *seq).collect();
    assert_eq!((seqs.len(), seqs[1..].to_vec()), (3, vec![first, last]));
    // Events of other changes are sent as well, in the order of the numbers.
    running.keep(vec![ended(2)]).await.unwrap();
    let received = within_patience(subscriber.recv()).await.unwrap();
    assert!(
        received[0].0 > last && matches!(received[0].1.details, EventDetails::Finished { .. }),
        "{received:?}"
    );
    running.stop_and_wait().await;
}

#[test]
fn event_that_lists_many_targets_matches_each_listed_one() {
    let id = |db: &str| -> TargetId { format!("db:couchdb@a/{db}").parse().unwrap() };
    let what = EventDetails::Refused {
        target: id("first"),
        channel: "ratio_dbs".into(),
        reason: "stale".into(),
        summary: EventSummary {
            also: vec![id("second")],
            targets: Some(9),
            ..EventSummary::default()
        },
    };
    for (db, wanted) in [("first", true), ("second", true), ("third", false)] {
        let target = Some(TargetSelector::new(&id(db).to_string(), []));
        let query = EventsQuery { target, ..EventsQuery::default() };
        assert_eq!(query.matches(&what), wanted, "{db}");
    }
}

#[tokio::test(start_paused = true)]
async fn events_that_cannot_be_written_are_counted_and_not_sent() {
    let running = RunningJournal::open(Disk::formatted()).unwrap();
    let mut subscriber = running.journal.subscribe();
    running.journal.record_batch(vec![updated(1), updated(2)]);
    // It is claimed after the batch was already refused.
    running.recovered().await;
    assert_eq!(running.journal.dropped_events(), 2);
    running.journal.record_batch(vec![updated(3)]);
    assert_eq!(within_patience(subscriber.recv()).await.unwrap()[0].1.details, updated(3));
    running.stop_and_wait().await;
}

#[tokio::test(start_paused = true)]
async fn the_feed_position_is_stored_with_its_events() {
    let disk = Disk::formatted();
    let position =
        |seq: &str| FeedPosition { seq: seq.to_owned(), created_at: None, at: moment(1) };
    let running = RunningJournal::open(disk.clone()).unwrap();
    assert!(
        within_patience(running.journal.feed_position()).await.is_err(),
        "it may belong to another cluster"
    );
    running.recovered().await;
    assert_eq!(within_patience(running.journal.feed_position()).await.unwrap(), None);
    let at = |seq: &str| EventProgress { position: Some(position(seq)), marks: Vec::new() };
    running.journal.record_batch_with_progress(vec![updated(1)], at("1-x"));
    running.journal.record_batch_with_progress(vec![updated(2)], EventProgress::default());
    assert_eq!(
        within_patience(running.journal.feed_position()).await.unwrap(),
        Some(position("1-x"))
    );
    running.journal.record_batch_with_progress(Vec::new(), at("2-x"));
    assert_eq!(
        within_patience(running.journal.feed_position()).await.unwrap(),
        Some(position("2-x"))
    );
    running.stop_and_wait().await;
    let running = RunningJournal::claimed(disk).await;
    assert_eq!(
        within_patience(running.journal.feed_position()).await.unwrap(),
        Some(position("2-x"))
    );
    running.stop_and_wait().await;
}

/// A mark of the named database.
fn mark(db: &str) -> PublishedDbState {
    let (suffix, there, fresh) = (".17".into(), true, false);
    PublishedDbState {
        db: db.into(),
        suffix,
        there,
        fresh,
        copies: vec![("couchdb@a".into(), 0, 9, 7)],
    }
}

#[tokio::test(start_paused = true)]
async fn unread_change_marks_are_kept_until_newer_facts_are_saved() {
    let disk = Disk::formatted();
    let running = RunningJournal::claimed(disk.clone()).await;
    let with = |db: &str| EventProgress { position: None, marks: vec![mark(db)] };
    let pass = || MeasuredBlocks { total: Some(0), ..MeasuredBlocks::default() };
    assert_eq!(within_patience(running.journal.marks()).await.unwrap(), []);
    running.journal.record_batch_with_progress(vec![updated(1)], with("a"));
    running.journal.record_batch_with_progress(vec![updated(1)], with("a"));
    // A pass that may have begun before the mark was written does not cover it.
    within_patience(running.journal.save_measurements(MeasuredBlocks::default())).await.unwrap();
    within_patience(running.journal.save_measurements(pass())).await.unwrap();
    running.journal.record_batch_with_progress(vec![updated(2)], with("b"));
    assert_eq!(within_patience(running.journal.marks()).await.unwrap(), [mark("a"), mark("b")]);
    within_patience(running.journal.save_measurements(pass())).await.unwrap();
    assert_eq!(within_patience(running.journal.marks()).await.unwrap(), [mark("b")]);
    running.stop_and_wait().await;
    let running = RunningJournal::claimed(disk).await;
    assert_eq!(within_patience(running.journal.marks()).await.unwrap(), [mark("b")]);
    for _ in 0..2 {
        within_patience(running.journal.save_measurements(pass())).await.unwrap();
    }
    assert_eq!(within_patience(running.journal.marks()).await.unwrap(), []);
    running.stop_and_wait().await;
}

#[tokio::test]
#[ignore = "not a test of its own: sent_events_survive_a_kill starts and kills it"]
async fn prints_sent_events() {
    let dir = child::child_instructions();
    let running = RunningJournal::claimed(DirectoryStorage::new(dir)).await;
    let mut subscriber = running.journal.subscribe();
    for number in 0.. {
        running.journal.record_batch((number..number + 3).map(updated).collect());
        for (seq, event) in within_patience(subscriber.recv()).await.unwrap().iter() {
            let EventDetails::Updated { db } = &event.details else { continue };
            child::print_line(&format!("received {seq} {db}"));
        }
    }
}

#[tokio::test]
async fn sent_events_survive_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut received: BTreeMap<u64, String> = BTreeMap::new();
    for round in 0..4 {
        let test = "store::journal::tests::published::prints_sent_events";
        let (directory, bytes) = (dir.path().to_str().unwrap(), Some(500 + 300 * round));
        let lines = child::run_and_kill(test, directory, bytes, Duration::ZERO).await;
        let lines = lines.iter().filter_map(|line| line.strip_prefix("received ")?.split_once(' '));
        let new: Vec<(u64, String)> =
            lines.map(|(seq, db)| (seq.parse().unwrap(), db.to_owned())).collect();
        assert!(
            !new.is_empty() && new.iter().all(|(seq, _)| !received.contains_key(seq)),
            "{new:?}"
        );
        received.extend(new);

        let running = RunningJournal::claimed(DirectoryStorage::new(dir.path())).await;
        let query = EventsQuery { after_seq: Some(0), limit: usize::MAX, ..EventsQuery::default() };
        let page = within_patience(running.journal.events(query)).await.unwrap();
        let stored: BTreeMap<u64, EventDetails> =
            page.entries.into_iter().map(|(seq, event)| (seq, event.details)).collect();
        for (seq, db) in &received {
            assert_eq!(stored.get(seq), Some(&EventDetails::Updated { db: db.clone() }), "{seq}");
        }
        running.stop_and_wait().await;
    }
}
