use super::{disk::Disk, *};
use crate::{model::target::Selector, store::journal::Summary, table::Mark};
use std::collections::BTreeMap;

fn updated(number: u64) -> What {
    What::Updated { db: format!("db{number}") }
}

#[tokio::test(start_paused = true)]
async fn recorded_events_are_sent_with_their_numbers_once_stored() {
    let running = Running::claimed(Disk::formatted()).await;
    running.journal.publish(vec![What::Created { db: "early".into() }]);
    running.keep(vec![ended(1)]).await.unwrap();
    let mut kept = running.journal.kept();
    let batch = vec![updated(1), What::Deleted { db: "db2".into() }];
    running.journal.publish(batch.clone());
    let told = soon(kept.recv()).await.unwrap();
    let whats: Vec<What> = told.iter().map(|(_, event)| event.what.clone()).collect();
    assert_eq!(whats, batch);
    let (first, last) = (told[0].0, told[1].0);
    assert_eq!(last, first + 1);
    assert_eq!(running.journal.health().borrow().last_seq, last);

    let query = |types: Vec<Type>| EventsQuery {
        types,
        since: Some(0),
        limit: 9,
        ..EventsQuery::default()
    };
    let of_databases = vec![Type::Created, Type::Updated, Type::Deleted];
    let page = soon(running.journal.events(query(of_databases))).await.unwrap();
    let seqs: Vec<u64> = page.entries.iter().map(|(seq, _)| *seq).collect();
    assert_eq!((seqs.len(), seqs[1..].to_vec()), (3, vec![first, last]));
    // Events of other changes are sent as well, in the order of the numbers.
    running.keep(vec![ended(2)]).await.unwrap();
    let told = soon(kept.recv()).await.unwrap();
    assert!(told[0].0 > last && matches!(told[0].1.what, What::Finished { .. }), "{told:?}");
    running.stopped().await;
}

#[test]
fn an_entry_that_covers_many_targets_matches_each_of_them() {
    let id = |db: &str| -> TargetId { format!("db:couchdb@a/{db}").parse().unwrap() };
    let what = What::Refused {
        target: id("first"),
        channel: "ratio_dbs".into(),
        reason: "stale".into(),
        summary: Summary { also: vec![id("second")], targets: Some(9), ..Summary::default() },
    };
    for (db, wanted) in [("first", true), ("second", true), ("third", false)] {
        let target = Some(Selector::new(&id(db).to_string(), []));
        let query = EventsQuery { target, ..EventsQuery::default() };
        assert_eq!(query.wants(&what), wanted, "{db}");
    }
}

#[tokio::test(start_paused = true)]
async fn events_that_cannot_be_written_are_counted_and_not_sent() {
    let running = Running::open(Disk::formatted()).unwrap();
    let mut kept = running.journal.kept();
    running.journal.publish(vec![updated(1), updated(2)]);
    // Claimed after the batch, which was refused by then.
    running.recovered().await;
    assert_eq!(running.journal.dropped(), 2);
    running.journal.publish(vec![updated(3)]);
    assert_eq!(soon(kept.recv()).await.unwrap()[0].1.what, updated(3));
    running.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn the_feed_position_is_stored_with_its_events() {
    let disk = Disk::formatted();
    let position = |seq: &str| Position { seq: seq.to_owned(), made: None, at: moment(1) };
    let running = Running::open(disk.clone()).unwrap();
    assert!(soon(running.journal.position()).await.is_err(), "it may belong to another cluster");
    running.recovered().await;
    assert_eq!(soon(running.journal.position()).await.unwrap(), None);
    let at = |seq: &str| Reached { position: Some(position(seq)), marks: Vec::new() };
    running.journal.publish_up_to(vec![updated(1)], at("1-x"));
    running.journal.publish_up_to(vec![updated(2)], Reached::default());
    assert_eq!(soon(running.journal.position()).await.unwrap(), Some(position("1-x")));
    running.journal.publish_up_to(Vec::new(), at("2-x"));
    assert_eq!(soon(running.journal.position()).await.unwrap(), Some(position("2-x")));
    running.stopped().await;
    let running = Running::claimed(disk).await;
    assert_eq!(soon(running.journal.position()).await.unwrap(), Some(position("2-x")));
    running.stopped().await;
}

/// A mark of the named database.
fn mark(db: &str) -> Mark {
    let (suffix, there, fresh) = (".17".into(), true, false);
    Mark { db: db.into(), suffix, there, fresh, copies: vec![("couchdb@a".into(), 0, 9, 7)] }
}

#[tokio::test(start_paused = true)]
async fn marks_are_kept_with_their_events_until_newer_facts_are_saved() {
    let disk = Disk::formatted();
    let running = Running::claimed(disk.clone()).await;
    let with = |db: &str| Reached { position: None, marks: vec![mark(db)] };
    let pass = || Measured { total: Some(0), ..Measured::default() };
    assert_eq!(soon(running.journal.marks()).await.unwrap(), []);
    running.journal.publish_up_to(vec![updated(1)], with("a"));
    running.journal.publish_up_to(vec![updated(1)], with("a"));
    // A pass that may have begun before the mark was written does not cover it.
    soon(running.journal.keep_measured(Measured::default())).await.unwrap();
    soon(running.journal.keep_measured(pass())).await.unwrap();
    running.journal.publish_up_to(vec![updated(2)], with("b"));
    assert_eq!(soon(running.journal.marks()).await.unwrap(), [mark("a"), mark("b")]);
    soon(running.journal.keep_measured(pass())).await.unwrap();
    assert_eq!(soon(running.journal.marks()).await.unwrap(), [mark("b")]);
    running.stopped().await;
    let running = Running::claimed(disk).await;
    assert_eq!(soon(running.journal.marks()).await.unwrap(), [mark("b")]);
    for _ in 0..2 {
        soon(running.journal.keep_measured(pass())).await.unwrap();
    }
    assert_eq!(soon(running.journal.marks()).await.unwrap(), []);
    running.stopped().await;
}

#[tokio::test]
#[ignore = "not a test of its own: sent_events_survive_a_kill starts and kills it"]
async fn prints_sent_events() {
    let dir = child::told();
    let running = Running::claimed(Directory::new(dir)).await;
    let mut kept = running.journal.kept();
    for number in 0.. {
        running.journal.publish((number..number + 3).map(updated).collect());
        for (seq, event) in soon(kept.recv()).await.unwrap().iter() {
            let What::Updated { db } = &event.what else { continue };
            child::say(&format!("told {seq} {db}"));
        }
    }
}

#[tokio::test]
async fn sent_events_survive_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut told: BTreeMap<u64, String> = BTreeMap::new();
    for round in 0..4 {
        let test = "store::journal::tests::published::prints_sent_events";
        let (place, bytes) = (dir.path().to_str().unwrap(), Some(500 + 300 * round));
        let lines = child::killed(test, place, bytes, Duration::ZERO).await;
        let lines = lines.iter().filter_map(|line| line.strip_prefix("told ")?.split_once(' '));
        let new: Vec<(u64, String)> =
            lines.map(|(seq, db)| (seq.parse().unwrap(), db.to_owned())).collect();
        assert!(!new.is_empty() && new.iter().all(|(seq, _)| !told.contains_key(seq)), "{new:?}");
        told.extend(new);

        let running = Running::claimed(Directory::new(dir.path())).await;
        let query = EventsQuery { since: Some(0), limit: usize::MAX, ..EventsQuery::default() };
        let page = soon(running.journal.events(query)).await.unwrap();
        let kept: BTreeMap<u64, What> =
            page.entries.into_iter().map(|(seq, event)| (seq, event.what)).collect();
        for (seq, db) in &told {
            assert_eq!(kept.get(seq), Some(&What::Updated { db: db.clone() }), "{seq}");
        }
        running.stopped().await;
    }
}
