//! `_db_updates` breaks in every possible way while databases are written, created and deleted: the
//! journal records every event, coverage is lost and regained, and CouchDB gets few requests.

use super::{C, MINUTE, NODES, SELDOM, events_since, newest, wait_for_status, world};
use crate::support::{Rig, small};
use couchdb_sim::{Effect, Fault};
use recliner::{
    feeds::feed_client::{FeedClientHandle, FeedClientStatus},
    store::journal::Journal,
    table::Snapshot,
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{Instant, sleep};

const PATH: &str = "/_db_updates";
const SECOND: Duration = Duration::from_secs(1);

/// Maximum number of requests for the feed in an hour of failures: pauses grow to their maximum, and after a
/// meaningless response every node is asked at once.
const OPENED: usize = 240;

/// How a broken feed continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovery {
    /// The feed resumes at its last sequence: each event arrives once.
    Resumed,
    /// The feed starts from the beginning: events around that moment may arrive twice.
    Restarted,
}

/// A process that follows both feeds, has read every shard since, and records the feeds' events in
/// a journal.
async fn record_events() -> (Rig, FeedClientHandle, Journal) {
    // Polls of running jobs say nothing about feeds.
    let mut rig = Rig::new(world(), &format!("{SELDOM}poll: 1m\n"));
    let (mut handle, journal) = rig.follow_feeds_with_journal().await;
    wait_for_status(&mut handle, |status| status.followed_since.is_some()).await;
    sleep(2 * SECOND).await;
    rig.sweep().await;
    sleep(MINUTE).await;
    (rig, handle, journal)
}

/// Whether every measurement of the unchanged database is confirmed.
fn is_covered(snapshot: &Snapshot) -> bool {
    let mut all = snapshot.targets().filter(|it| it.db_name().db == "quiet");
    all.all(|it| snapshot.is_confirmed(it.ix()))
}

fn is_connected(status: &FeedClientStatus) -> bool {
    status.feeds[&PATH[1..]].connected
}

/// Creates, writes and deletes one database after another, and writes to `app` all the while.
/// Returns the events that the journal must have, with their counts.
async fn make_changes(rig: &Rig, name: &str, pause: Duration) -> BTreeMap<String, usize> {
    let mut truth = BTreeMap::new();
    for at in 0..6 {
        rig.cluster.world(|world| world.write("app", 5));
        let db = format!("{name}{at}");
        rig.cluster.world(|world| world.create(small(&db, 0))).expect("the database is new");
        sleep(pause).await;
        rig.cluster.world(|world| world.write(&db, 3));
        if at % 2 == 0 {
            sleep(pause).await;
            rig.cluster.world(|world| world.delete(&db, false));
            truth.insert(format!("deleted {db}"), 1);
        } else {
            truth.insert(format!("updated {db}"), 1);
        }
        truth.insert(format!("created {db}"), 1);
        sleep(pause).await;
    }
    truth
}

/// Asserts that the journal has all these events since a sequence number, each at most `most`
/// times.
async fn assert_recorded(
    name: &str,
    journal: &Journal,
    since: u64,
    truth: &BTreeMap<String, usize>,
    most: usize,
) {
    let mut recorded: BTreeMap<String, usize> = BTreeMap::new();
    for event in events_since(journal, since).await {
        *recorded.entry(event).or_default() += 1;
    }
    for event in truth.keys() {
        let count = recorded.get(event).copied().unwrap_or_default();
        assert!((1..=most).contains(&count), "{name}: {count} of {event} in {recorded:#?}");
    }
    assert!(recorded.contains_key("updated app"), "{name}: {recorded:#?}");
    assert_eq!(journal.dropped_events(), 0, "{name}");
}

/// Breaks all open feeds, so that they have to be reopened.
fn break_connections(rig: &Rig) {
    NODES.into_iter().for_each(|node| rig.cluster.faults().restart(node));
}

fn request_count(rig: &Rig) -> usize {
    rig.cluster.exchanges().iter().filter(|it| it.path.starts_with(PATH)).count()
}

/// Breaks the feed for an hour with many changes, repairs it, and checks the outcome.
async fn break_for_an_hour(name: &str, effect: Effect, recovery: Recovery) {
    let (mut rig, mut handle, journal) = record_events().await;
    assert!(is_covered(&rig.planned().await.snapshot), "{name}");
    let since = newest(&journal);
    let failures = handle.status.borrow().feeds[&PATH[1..]].failures;
    rig.cluster.faults().plan(Fault::everywhere(effect).at(PATH));
    break_connections(&rig);
    rig.cluster.clear_exchanges();
    let mut truth = make_changes(&rig, "a", 3 * MINUTE).await;
    assert!(
        (2..=OPENED).contains(&request_count(&rig)),
        "{name}: {} requests",
        request_count(&rig)
    );
    let status = handle.status.borrow().clone();
    assert!(status.feeds[&PATH[1..]].failures > failures + 1, "{name}: {status:?}");
    assert!(status.feeds[&PATH[1..]].problem.is_some(), "{name}: {status:?}");
    assert!(!is_connected(&status) && status.followed_since.is_none(), "{name}: {status:?}");
    assert!(!is_covered(&rig.planned().await.snapshot), "{name}");

    rig.cluster.faults().clear();
    wait_for_status(&mut handle, |status| status.followed_since.is_some()).await;
    truth.extend(make_changes(&rig, "b", 10 * SECOND).await);
    sleep(2 * SECOND).await;
    rig.sweep().await;
    sleep(MINUTE).await;
    assert!(is_covered(&rig.planned().await.snapshot), "{name}");
    let most = if recovery == Recovery::Resumed { 1 } else { 2 };
    assert_recorded(name, &journal, since, &truth, most).await;
}

#[tokio::test(start_paused = true)]
async fn refused_or_failing_feed_loses_no_events() {
    for (status, recovery) in [
        (500, Recovery::Resumed),
        (503, Recovery::Resumed),
        (429, Recovery::Resumed),
        (400, Recovery::Restarted),
        (401, Recovery::Resumed),
        (404, Recovery::Restarted),
        (414, Recovery::Restarted),
    ] {
        break_for_an_hour(&status.to_string(), Effect::Status(status), recovery).await;
    }
}

#[tokio::test(start_paused = true)]
async fn ended_or_hanging_feed_loses_no_events() {
    // The first line is about 100 bytes long: the cuts are within its name, within its sequence,
    // and before its end.
    for (name, effect) in [
        ("no answer", Effect::Hang),
        ("no body", Effect::Silent),
        ("broken at once", Effect::Drop),
        ("ended at once", Effect::Cut(0)),
        ("cut within a name", Effect::Cut(14)),
        ("cut within a sequence", Effect::Cut(60)),
        ("broken within a line", Effect::Break(14)),
        ("stalled within a line", Effect::Stall(14)),
        ("stalled at once", Effect::Stall(0)),
        ("trickles", Effect::Trickle(5 * SECOND)),
    ] {
        break_for_an_hour(name, effect, Recovery::Resumed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn malformed_feed_is_dropped_without_losing_events() {
    let error = "{\"error\":\"unauthorized\",\"reason\":\"You are not a server admin.\"}\n";
    for (name, effect) in [
        ("no JSON", Effect::Malformed),
        ("packed", Effect::Packed),
        ("an error in between", Effect::Insert(0, error.into())),
        ("no UTF-8", Effect::Insert(14, vec![0xff, 0xc3, 0x28])),
        ("a long line", Effect::Insert(14, vec![b'x'; 70 << 10])),
        ("no end of a line", Effect::Endless),
        ("a redirect", Effect::Redirect("http://elsewhere/".to_owned())),
        ("from the start", Effect::FromStart),
    ] {
        break_for_an_hour(name, effect, Recovery::Restarted).await;
    }
}

#[tokio::test(start_paused = true)]
async fn silent_feed_is_reported_and_reopened() {
    let (rig, mut handle, journal) = record_events().await;
    let since = newest(&journal);
    // The feed works for a while, and then sends nothing, not even heartbeats.
    let fault = Fault::everywhere(Effect::Stall(400)).at(PATH).times(1);
    rig.cluster.faults().plan(fault);
    break_connections(&rig);
    wait_for_status(&mut handle, |status| !is_connected(status)).await;
    wait_for_status(&mut handle, is_connected).await;
    let covered = handle.status.borrow().followed_since;
    assert!(covered.is_some());
    let mut truth = make_changes(&rig, "a", SECOND).await;
    let began = Instant::now();
    wait_for_status(&mut handle, |status| !is_connected(status)).await;
    assert!(began.elapsed() <= 31 * SECOND, "{:?}", began.elapsed());
    wait_for_status(&mut handle, is_connected).await;
    assert!(began.elapsed() <= 45 * SECOND, "{:?}", began.elapsed());
    assert_eq!(handle.status.borrow().followed_since, covered, "it resumed at its last sequence");
    truth.extend(make_changes(&rig, "b", SECOND).await);
    sleep(MINUTE).await;
    assert_recorded("silent", &journal, since, &truth, 1).await;
}

#[tokio::test(start_paused = true)]
async fn repeated_feed_lines_are_recorded_once() {
    let (rig, mut handle, journal) = record_events().await;
    let since = newest(&journal);
    rig.cluster.faults().plan(Fault::everywhere(Effect::Repeat(40)).at(PATH));
    break_connections(&rig);
    wait_for_status(&mut handle, |status| !is_connected(status)).await;
    wait_for_status(&mut handle, is_connected).await;
    let truth = make_changes(&rig, "a", 5 * SECOND).await;
    sleep(MINUTE).await;
    assert_recorded("repeated", &journal, since, &truth, 1).await;
    let status = handle.status.borrow().clone();
    assert!(is_connected(&status) && status.followed_since.is_some(), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn recreated_feed_counts_as_a_new_feed() {
    // The feed is missing too briefly to be noticed, or for a while.
    for (away, pause) in [(0, 1), (0, 120), (1, 1), (300, 1)] {
        let name = format!("away for {away}, then a change each {pause}");
        let (mut rig, mut handle, journal) = record_events().await;
        let since = newest(&journal);
        let covered = handle.status.borrow().followed_since;
        rig.cluster.world(|world| world.set_global_changes(false));
        let mut truth = make_changes(&rig, "a", away * SECOND / 18).await;
        rig.cluster.clear_exchanges();
        rig.cluster.world(|world| world.set_global_changes(true));
        truth.extend(make_changes(&rig, "b", pause * SECOND).await);
        wait_for_status(&mut handle, |it| {
            it.followed_since.is_some() && it.followed_since != covered
        })
        .await;
        truth.extend(make_changes(&rig, "c", SECOND).await);
        sleep(2 * SECOND).await;
        rig.sweep().await;
        sleep(MINUTE).await;
        assert!(request_count(&rig) < 12, "{name}: {} requests", request_count(&rig));
        assert!(is_covered(&rig.planned().await.snapshot), "{name}");
        // A database that is created and deleted between two reports is never seen.
        truth.retain(|event, _| away > 1 || !event.contains(" a"));
        assert_recorded(&name, &journal, since, &truth, 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn lower_last_seq_means_a_different_feed() {
    let (rig, mut handle, _journal) = record_events().await;
    let end = Effect::Insert(0, b"{\"last_seq\":\"5-x\"}\n".to_vec());
    rig.cluster.faults().plan(Fault::everywhere(end).at(PATH).times(1));
    let covered = handle.status.borrow().followed_since;
    break_connections(&rig);
    wait_for_status(&mut handle, |it| it.followed_since.is_some() && it.followed_since != covered)
        .await;
    assert_eq!(handle.status.borrow().feeds[&PATH[1..]].rewinds, 1);
}

#[tokio::test(start_paused = true)]
async fn broken_feed_on_one_node_delays_events_but_loses_none() {
    let (rig, mut handle, journal) = record_events().await;
    let since = newest(&journal);
    rig.cluster.faults().plan(Fault::on(C, Effect::Hang).at(PATH));
    let covered = handle.status.borrow().followed_since;
    for at in 0..6 {
        break_connections(&rig);
        let truth = make_changes(&rig, &format!("a{at}x"), SECOND).await;
        wait_for_status(&mut handle, is_connected).await;
        sleep(MINUTE).await;
        assert_recorded("one node", &journal, since, &truth, 1).await;
    }
    assert_eq!(handle.status.borrow().followed_since, covered);
}
