//! `_db_updates` breaks in every way there is, while databases are written, made and deleted:
//! the journal has all of it, coverage is given up and regained, and CouchDB is left in peace.

use super::{C, MINUTE, NODES, SELDOM, heard, newest, world, written};
use crate::support::{Rig, small};
use couchdb_sim::{Effect, Fault};
use recliner::{
    feeds::changes::{Handle, Status},
    store::journal::Journal,
    table::Snapshot,
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{Instant, sleep};

const PATH: &str = "/_db_updates";
const SECOND: Duration = Duration::from_secs(1);

/// How often the feed may be asked for in an hour in which it fails each time: at the longest
/// pauses, and the shorter ones before them, of each node at once where it makes no sense.
const OPENED: usize = 240;

/// What comes of a feed that breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comes {
    /// It goes on where it was: each event comes once.
    Resumed,
    /// It is begun anew: what happened around that may come twice.
    Anew,
}

/// One that follows both feeds, has read everything since, and writes down what it hears.
async fn writing() -> (Rig, Handle, Journal) {
    let mut rig = Rig::new(world(), SELDOM);
    let (mut handle, journal) = rig.listens_and_writes().await;
    heard(&mut handle, |status| status.followed_since.is_some()).await;
    sleep(2 * SECOND).await;
    rig.sweep().await;
    sleep(MINUTE).await;
    (rig, handle, journal)
}

/// Whether nothing that was measured of a database is in doubt.
fn is_covered(snapshot: &Snapshot) -> bool {
    let mut all = snapshot.targets().filter(|it| it.db_name().db == "quiet");
    all.all(|it| snapshot.is_confirmed(it.ix()))
}

fn is_connected(status: &Status) -> bool {
    status.feeds[&PATH[1..]].connected
}

/// Makes, writes and deletes a database each, one after the other, and `app` is written to all
/// the time. What the journal must have of them.
async fn happens(rig: &Rig, name: &str, pause: Duration) -> BTreeMap<String, usize> {
    let mut truth = BTreeMap::new();
    for at in 0..6 {
        rig.cluster.world(|world| world.write("app", 5));
        let db = format!("{name}{at}");
        rig.cluster.world(|world| world.create(small(&db, 0))).expect("it is new");
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

/// The journal has all of this since a number, and of each as many as may be.
async fn has(
    name: &str,
    journal: &Journal,
    since: u64,
    truth: &BTreeMap<String, usize>,
    most: usize,
) {
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    for event in written(journal, since).await {
        *told.entry(event).or_default() += 1;
    }
    for event in truth.keys() {
        let count = told.get(event).copied().unwrap_or_default();
        assert!((1..=most).contains(&count), "{name}: {count} of {event} in {told:#?}");
    }
    assert!(told.contains_key("updated app"), "{name}: {told:#?}");
    assert_eq!(journal.dropped(), 0, "{name}");
}

/// All feeds that are open break, so that they have to be opened again.
fn breaks(rig: &Rig) {
    NODES.into_iter().for_each(|node| rig.cluster.faults().restart(node));
}

fn asked(rig: &Rig) -> usize {
    rig.cluster.wire().iter().filter(|it| it.path.starts_with(PATH)).count()
}

/// Strikes the feed for an hour in which a lot happens, heals it, and looks at what came of it.
async fn strikes(name: &str, effect: Effect, comes: Comes) {
    let (mut rig, mut handle, journal) = writing().await;
    assert!(is_covered(&rig.planned().await.snapshot), "{name}");
    let since = newest(&journal);
    let failures = handle.status.borrow().feeds[&PATH[1..]].failures;
    rig.cluster.faults().plan(Fault::everywhere(effect).at(PATH));
    breaks(&rig);
    rig.cluster.clear_wire();
    let mut truth = happens(&rig, "a", 3 * MINUTE).await;
    assert!((2..=OPENED).contains(&asked(&rig)), "{name}: {} requests", asked(&rig));
    let status = handle.status.borrow().clone();
    assert!(status.feeds[&PATH[1..]].failures > failures + 1, "{name}: {status:?}");
    assert!(status.feeds[&PATH[1..]].problem.is_some(), "{name}: {status:?}");
    assert!(!is_connected(&status) && status.followed_since.is_none(), "{name}: {status:?}");
    assert!(!is_covered(&rig.planned().await.snapshot), "{name}");

    rig.cluster.faults().clear();
    heard(&mut handle, |status| status.followed_since.is_some()).await;
    truth.extend(happens(&rig, "b", 10 * SECOND).await);
    sleep(2 * SECOND).await;
    rig.sweep().await;
    sleep(MINUTE).await;
    assert!(is_covered(&rig.planned().await.snapshot), "{name}");
    let most = if comes == Comes::Resumed { 1 } else { 2 };
    has(name, &journal, since, &truth, most).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_or_fails_is_asked_again_and_nothing_is_lost() {
    for (status, comes) in [
        (500, Comes::Resumed),
        (503, Comes::Resumed),
        (429, Comes::Resumed),
        (400, Comes::Anew),
        (401, Comes::Resumed),
        (404, Comes::Anew),
        (414, Comes::Anew),
    ] {
        strikes(&status.to_string(), Effect::Status(status), comes).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_ends_or_hangs_anywhere_is_opened_again_and_nothing_is_lost() {
    // The first line is some 100 bytes long: within its name, its sequence, and before its end.
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
        strikes(name, effect, Comes::Resumed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_makes_no_sense_is_given_up_and_nothing_is_lost() {
    let error = "{\"error\":\"unauthorized\",\"reason\":\"You are not a server admin.\"}\n";
    for (name, effect) in [
        ("no JSON", Effect::Garbage),
        ("packed", Effect::Packed),
        ("an error in between", Effect::Insert(0, error.into())),
        ("no UTF-8", Effect::Insert(14, vec![0xff, 0xc3, 0x28])),
        ("a long line", Effect::Insert(14, vec![b'x'; 70 << 10])),
        ("no end of a line", Effect::Endless),
        ("a redirect", Effect::Redirect("http://elsewhere/".to_owned())),
        ("from the start", Effect::FromStart),
    ] {
        strikes(name, effect, Comes::Anew).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_falls_silent_is_noticed_opened_again_and_told_to_be_broken() {
    let (rig, mut handle, journal) = writing().await;
    let since = newest(&journal);
    // It lives for a while, and then nothing comes, not even heartbeats.
    let fault = Fault::everywhere(Effect::Stall(400)).at(PATH).times(1);
    rig.cluster.faults().plan(fault);
    breaks(&rig);
    heard(&mut handle, |status| !is_connected(status)).await;
    heard(&mut handle, is_connected).await;
    let covered = handle.status.borrow().followed_since;
    assert!(covered.is_some());
    let mut truth = happens(&rig, "a", SECOND).await;
    let began = Instant::now();
    heard(&mut handle, |status| !is_connected(status)).await;
    assert!(began.elapsed() <= 31 * SECOND, "{:?}", began.elapsed());
    heard(&mut handle, is_connected).await;
    assert!(began.elapsed() <= 45 * SECOND, "{:?}", began.elapsed());
    assert_eq!(handle.status.borrow().followed_since, covered, "it went on where it was");
    truth.extend(happens(&rig, "b", SECOND).await);
    sleep(MINUTE).await;
    has("silent", &journal, since, &truth, 1).await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_many_times_is_written_once() {
    let (rig, mut handle, journal) = writing().await;
    let since = newest(&journal);
    rig.cluster.faults().plan(Fault::everywhere(Effect::Repeat(40)).at(PATH));
    breaks(&rig);
    heard(&mut handle, |status| !is_connected(status)).await;
    heard(&mut handle, is_connected).await;
    let truth = happens(&rig, "a", 5 * SECOND).await;
    sleep(MINUTE).await;
    has("repeated", &journal, since, &truth, 1).await;
    let status = handle.status.borrow().clone();
    assert!(is_connected(&status) && status.followed_since.is_some(), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_is_deleted_and_made_again_is_another_one() {
    // It is away for a moment that nobody sees, or for a while; much or nothing comes of it.
    for (away, pause) in [(0, 1), (0, 120), (1, 1), (300, 1)] {
        let name = format!("away for {away}, then a change each {pause}");
        let (mut rig, mut handle, journal) = writing().await;
        let since = newest(&journal);
        let covered = handle.status.borrow().followed_since;
        rig.cluster.world(|world| world.set_global_changes(false));
        let mut truth = happens(&rig, "a", away * SECOND / 18).await;
        rig.cluster.clear_wire();
        rig.cluster.world(|world| world.set_global_changes(true));
        truth.extend(happens(&rig, "b", pause * SECOND).await);
        heard(&mut handle, |it| it.followed_since.is_some() && it.followed_since != covered).await;
        truth.extend(happens(&rig, "c", SECOND).await);
        sleep(2 * SECOND).await;
        rig.sweep().await;
        sleep(MINUTE).await;
        assert!(asked(&rig) < 12, "{name}: {} requests", asked(&rig));
        assert!(is_covered(&rig.planned().await.snapshot), "{name}");
        // What was made and deleted within a moment that nobody told of is not seen.
        truth.retain(|event, _| away > 1 || !event.contains(" a"));
        has(&name, &journal, since, &truth, 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_behind_is_another_feeds() {
    let (rig, mut handle, _journal) = writing().await;
    let end = Effect::Insert(0, b"{\"last_seq\":\"5-x\"}\n".to_vec());
    rig.cluster.faults().plan(Fault::everywhere(end).at(PATH).times(1));
    let covered = handle.status.borrow().followed_since;
    breaks(&rig);
    heard(&mut handle, |it| it.followed_since.is_some() && it.followed_since != covered).await;
    assert_eq!(handle.status.borrow().feeds[&PATH[1..]].rewinds, 1);
}

#[tokio::test(start_paused = true)]
async fn one_node_whose_feed_is_broken_costs_a_pause() {
    let (rig, mut handle, journal) = writing().await;
    let since = newest(&journal);
    rig.cluster.faults().plan(Fault::on(C, Effect::Hang).at(PATH));
    let covered = handle.status.borrow().followed_since;
    for at in 0..6 {
        breaks(&rig);
        let truth = happens(&rig, &format!("a{at}x"), SECOND).await;
        heard(&mut handle, is_connected).await;
        sleep(MINUTE).await;
        has("one node", &journal, since, &truth, 1).await;
    }
    assert_eq!(handle.status.borrow().followed_since, covered);
}
