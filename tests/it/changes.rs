//! Feeds of a simulated cluster: from a write to the plan, and the cost of a broken feed.

mod breaks;

use crate::support::{A, B, C, NODES, Rig, dbs_seen, dbs_there, nodes, small, targets};
use couchdb_sim::{Config, Database, Design, Effect, Exchange, Fault, Fleet};
use recliner::{
    feeds::feed_client::{FeedClientHandle, FeedClientStatus},
    model::target::{TargetKind, TargetState},
    plan::{Freshness, Plan},
    scan::ScanCommand,
    store::journal::{EventsQuery, Journal},
    table::TargetIx,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// Sweeps are rare enough that any change seen between two of them came from a feed.
const SELDOM: &str = "scan: {interval: 1h, interval_followed: 6h, fresh_for: 4h}\n";

fn world() -> Config {
    nodes()
        .with(Database { q: 2, designs: vec![Design::new("v")], ..Database::new("app") })
        .with(small("quiet", 100))
}

async fn wait_for_status(
    handle: &mut FeedClientHandle,
    wanted: impl Fn(&FeedClientStatus) -> bool,
) -> Arc<FeedClientStatus> {
    let waited = timeout(HOUR, handle.status.wait_for(|status| wanted(status))).await;
    Arc::clone(&waited.expect("it comes within the hour").expect("the listener lives"))
}

/// A process that follows both feeds and has read every shard since.
async fn following(world: Config, yaml: &str) -> (Rig, FeedClientHandle) {
    let mut rig = Rig::new(world, yaml);
    rig.sweep().await;
    let mut handle = rig.follow_feeds();
    wait_for_status(&mut handle, |status| status.followed_since.is_some()).await;
    sleep(2 * Duration::from_secs(1)).await;
    rig.sweep().await;
    (rig, handle)
}

fn seqs(plan: &Plan, db: &str) -> BTreeMap<String, Option<u64>> {
    targets(plan, TargetKind::Db)
        .filter(|target| target.db_name().db == db)
        .map(|target| (target.id().to_string(), target.facts().update_seq.get()))
        .collect()
}

/// The time until a plan shows every copy of a database with a new sequence.
async fn time_until_seen(
    rig: &mut Rig,
    db: &str,
    before: &BTreeMap<String, Option<u64>>,
) -> Duration {
    let began = Instant::now();
    rig.plan_where(|plan| {
        let now = seqs(plan, db);
        now.len() == before.len() && now.iter().all(|(id, seq)| *seq > before[id])
    })
    .await;
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn feed_event_rereads_only_the_written_database() {
    let (mut rig, _handle) = following(world(), SELDOM).await;
    let before = seqs(&*rig.planned().await, "app");
    rig.cluster.clear_exchanges();
    let sweeps = rig.status().sweeps;
    rig.cluster.world(|world| world.write("app", 50));
    let took = time_until_seen(&mut rig, "app", &before).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(rig.status().sweeps, sweeps);
    let reads = rig.asked("/shards%2F");
    assert_eq!(reads.len(), 6, "each of its copies once: {reads:?}");
    assert!(reads.iter().all(|read| read.path.contains("app.")), "{reads:?}");
}

#[tokio::test(start_paused = true)]
async fn feed_adds_new_and_removes_deleted_databases() {
    let (mut rig, _handle) = following(world(), SELDOM).await;
    let sweeps = rig.status().sweeps;
    let began = Instant::now();
    rig.cluster.world(|world| world.create(small("new", 10))).unwrap();
    let measured = |plan: &Plan| {
        let mut all =
            targets(plan, TargetKind::Db).filter(|it| it.db_name().db == "new").peekable();
        all.peek().is_some() && all.all(|it| it.facts().measured_at.is_some())
    };
    rig.plan_where(measured).await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    // The shard map was read a moment ago and is not reread at once.
    sleep(Duration::from_secs(5)).await;
    let plan = rig.planned().await;
    assert_eq!(dbs_seen(&plan), dbs_there(&rig.cluster, |_, _| TargetState::Ok));

    let began = Instant::now();
    rig.cluster.world(|world| world.delete("app", false));
    let gone = |plan: &Plan| plan.snapshot.targets().all(|it| it.db_name().db != "app");
    rig.plan_where(gone).await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    // The shard map was read a moment ago and is not reread at once.
    sleep(Duration::from_secs(5)).await;
    let plan = rig.planned().await;
    assert_eq!(dbs_seen(&plan), dbs_there(&rig.cluster, |_, _| TargetState::Ok));

    rig.cluster.world(|world| world.create(Database { q: 1, ..Database::new("app") })).unwrap();
    let back = |plan: &Plan| targets(plan, TargetKind::Db).any(|it| it.db_name().db == "app");
    rig.plan_where(back).await;
    sleep(MINUTE).await;
    let plan = rig.planned().await;
    assert_eq!(dbs_seen(&plan), dbs_there(&rig.cluster, |_, _| TargetState::Ok));
    assert_eq!(rig.status().sweeps, sweeps);
    let plan = rig.sweep().await;
    assert_eq!(
        dbs_seen(&plan),
        dbs_there(&rig.cluster, |_, _| TargetState::Ok),
        "a sweep sees the same databases"
    );
    assert_eq!(rig.errors(), []);
}

#[tokio::test(start_paused = true)]
async fn unchanged_databases_stay_fresh_by_feed_coverage() {
    let yaml = "scan: {interval: 5m, interval_followed: 6h, fresh_for: 15m}\n";
    let (mut rig, _handle) = following(world(), yaml).await;
    sleep(2 * HOUR).await;
    let plan = rig.planned().await;
    let rules = |plan: &Plan| {
        let mut rules: BTreeMap<Option<Freshness>, usize> = BTreeMap::new();
        for target in plan.snapshot.targets().filter(|it| it.kind() != TargetKind::Cleanup) {
            *rules.entry(plan.freshness(target)).or_default() += 1;
        }
        rules
    };
    let found = rules(&plan);
    assert!(found.contains_key(&Some(Freshness::ConfirmedByFeeds)), "{found:?}");
    assert!(!found.contains_key(&None), "{found:?}");

    // Without the feed, an old measurement is stale until the shard is read again: within two
    // sweeps.
    rig.cluster.world(|world| world.set_global_changes(false));
    sleep(45 * Duration::from_secs(1)).await;
    let plan = rig.planned().await;
    assert!(rules(&plan).contains_key(&None), "{:?}", rules(&plan));
    sleep(10 * MINUTE).await;
    let plan = rig.planned().await;
    assert_eq!(rules(&plan).into_keys().collect::<Vec<_>>(), [Some(Freshness::RecentlyMeasured)]);
}

#[tokio::test(start_paused = true)]
async fn running_job_makes_measurements_unconfirmed_without_feed_events() {
    let mut config = nodes().with(Database { bloat: 5.0, ..small("big", 100_000) });
    config.compaction_rate = 1 << 20;
    let (mut rig, _handle) = following(config, SELDOM).await;
    let target = |plan: &Plan| {
        let mut found = targets(plan, TargetKind::Db);
        found.find(|it| it.node() == A && it.db_name().db == "big").unwrap().ix()
    };
    let plan = rig.planned().await;
    let ix = target(&plan);
    assert!(plan.snapshot.is_confirmed(ix));
    let file = plan.snapshot.target(ix).unwrap().shard_name().unwrap();
    let before = plan.snapshot.target(ix).unwrap().facts().file_bytes.get();
    rig.cluster.world(|world| world.compact(A, &file)).unwrap();
    let plan = rig.plan_where(|plan| !plan.snapshot.is_confirmed(ix)).await;
    assert!(plan.snapshot.target(ix).unwrap().facts().flags.compact_running);
    let smaller = |plan: &Plan| {
        let facts = plan.snapshot.target(ix).unwrap().facts();
        facts.file_bytes.get() < before && plan.snapshot.is_confirmed(ix)
    };
    rig.plan_where(smaller).await;
}

/// Rereading a target, as when its start is cancelled, also polls running jobs at once, although the cluster is quiet
/// and polls are rare.
#[tokio::test(start_paused = true)]
async fn changed_target_triggers_a_poll_of_a_quiet_cluster() {
    let (mut rig, _handle) = following(world(), SELDOM).await;
    let plan = rig.plan_where(|plan| plan.snapshot.is_quiet()).await;
    let ix = targets(&plan, TargetKind::Db).next().unwrap().ix();
    // Just after a poll, so that the next one is half a minute away.
    let polls = request_count(&rig, "_active_tasks");
    while request_count(&rig, "_active_tasks") == polls {
        sleep(Duration::from_millis(100)).await;
    }
    sleep(Duration::from_secs(1)).await;
    let polls = request_count(&rig, "_active_tasks");
    assert_eq!(rig.watch.scanner.send(ScanCommand::Reread(vec![ix])), None);
    sleep(Duration::from_secs(1)).await;
    assert!(request_count(&rig, "_active_tasks") > polls);
}

/// The number of requests whose path contains `part`.
fn request_count(rig: &Rig, part: &str) -> usize {
    rig.cluster.exchanges().iter().filter(|it| it.path.contains(part)).count()
}

#[tokio::test(start_paused = true)]
async fn broken_feed_costs_few_requests_and_recovers() {
    // A number of bytes within the first line of either feed.
    let some = 20;
    let effects = [
        ("status", Effect::Status(500)),
        ("malformed", Effect::Status(400)),
        ("absent", Effect::Status(404)),
        ("malformed", Effect::Malformed),
        ("endless", Effect::Endless),
        ("dropped", Effect::Drop),
        ("silent", Effect::Silent),
        ("hangs", Effect::Hang),
        ("cut", Effect::Cut(some)),
        ("redirected", Effect::Redirect("http://elsewhere/".to_owned())),
        ("from its start", Effect::FromStart),
    ];
    // Polls of running jobs say nothing about feeds.
    let yaml = format!("{SELDOM}poll: 1m\n");
    for (path, feed) in [("/_db_updates", "_db_updates"), ("/_dbs/_changes", "_dbs")] {
        for (name, effect) in &effects {
            let name = format!("{feed} {name}");
            let (mut rig, mut handle) = following(world(), &yaml).await;
            rig.cluster.faults().plan(Fault::everywhere(effect.clone()).at(path));
            // Open feeds break, so that they have to be reopened.
            for node in [A, B, C] {
                rig.cluster.faults().restart(node);
            }
            rig.cluster.clear_exchanges();
            rig.cluster.world(|world| world.write("app", 50));
            sleep(HOUR).await;
            let asked = request_count(&rig, path);
            assert!((2..=400).contains(&asked), "{name}: {asked} requests in an hour");
            let reads = rig.asked("/shards%2F").len();
            assert!(reads <= 60, "{name}: {reads} shards read in an hour, and there are 9");
            let status = handle.status.borrow().clone();
            assert!(status.followed_since.is_none(), "{name}: {status:?}");

            rig.cluster.faults().clear();
            wait_for_status(&mut handle, |status| status.followed_since.is_some()).await;
            rig.sweep().await;
            let before = seqs(&*rig.planned().await, "app");
            rig.cluster.world(|world| world.write("app", 50));
            let took = time_until_seen(&mut rig, "app", &before).await;
            assert!(took < Duration::from_secs(2), "{name}: {took:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn feed_that_appears_or_disappears_is_noticed() {
    let mut config = world();
    config.global_changes = false;
    let mut rig = Rig::new(config, SELDOM);
    rig.sweep().await;
    let mut handle = rig.follow_feeds();
    let status =
        wait_for_status(&mut handle, |it| it.feeds.get("_db_updates").is_some_and(|it| it.absent))
            .await;
    assert!(status.feeds["_dbs"].problem.is_none(), "{status:?}");
    sleep(HOUR).await;
    assert!(handle.status.borrow().feeds["_dbs"].connected);
    assert!((50..=70).contains(&rig.asked("/_db_updates").len()), "once a minute");
    rig.cluster.world(|world| world.set_global_changes(true));
    wait_for_status(&mut handle, |status| status.followed_since.is_some()).await;
    rig.cluster.world(|world| world.set_global_changes(false));
    wait_for_status(&mut handle, |status| status.followed_since.is_none()).await;
}

/// The journal's database events after a sequence number, without their times.
async fn events_since(journal: &Journal, since: u64) -> Vec<String> {
    let query = EventsQuery { after_seq: Some(since), limit: 10_000, ..EventsQuery::default() };
    let page = journal.events(query).await.expect("the journal is readable");
    let recorded = page.entries.into_iter().map(|(_, event)| {
        let json = serde_json::to_value(&event.details).expect("valid JSON");
        let word =
            |name: &str| json[name].as_str().expect("the event is about a database").to_owned();
        [word("type"), word("db")].join(" ")
    });
    recorded.collect()
}

fn newest(journal: &Journal) -> u64 {
    journal.health().borrow().last_seq
}

#[tokio::test(start_paused = true)]
async fn changes_without_a_feed_are_reported_once() {
    let mut config = world();
    config.global_changes = false;
    let mut rig = Rig::new(config, "scan: {interval: 5m}\n");
    let (mut handle, journal) = rig.follow_feeds_with_journal().await;
    let absent = |it: &FeedClientStatus| it.feeds.get("_db_updates").is_some_and(|it| it.absent);
    wait_for_status(&mut handle, absent).await;
    rig.sweep().await;
    sleep(20 * MINUTE).await;
    assert_eq!(
        events_since(&journal, 0).await,
        Vec::<String>::new(),
        "databases seen for the first time are not reported"
    );

    rig.cluster.world(|world| world.write("app", 50));
    rig.cluster.world(|world| world.create(small("new", 10))).unwrap();
    sleep(6 * MINUTE).await;
    let mut recorded = events_since(&journal, 0).await;
    recorded.sort();
    assert_eq!(recorded, ["created new", "updated app", "updated new"]);
    let seq = newest(&journal);
    rig.cluster.world(|world| world.delete("new", false));
    rig.cluster.world(|world| world.create(small("new", 10))).unwrap();
    sleep(6 * MINUTE).await;
    let recorded = events_since(&journal, seq).await;
    assert_eq!(recorded, ["deleted new", "created new", "updated new"]);

    // The feed appears: sweeps notice the changes before it, the feed reports later ones, and none
    // is reported twice.
    let seq = newest(&journal);
    rig.cluster.world(|world| world.write("app", 50));
    rig.cluster.world(|world| world.set_global_changes(true));
    wait_for_status(&mut handle, |status| status.followed_since.is_some()).await;
    rig.cluster.world(|world| world.write("quiet", 5));
    sleep(20 * MINUTE).await;
    let mut recorded = events_since(&journal, seq).await;
    recorded.sort();
    assert_eq!(recorded, ["updated app", "updated quiet"]);
    let seq = newest(&journal);
    rig.cluster.world(|world| world.write("app", 50));
    rig.cluster.world(|world| world.delete("new", false));
    sleep(20 * MINUTE).await;
    let mut recorded = events_since(&journal, seq).await;
    recorded.sort();
    assert_eq!(recorded, ["deleted new", "updated app"]);

    // The feed disappears again.
    let seq = newest(&journal);
    rig.cluster.world(|world| world.set_global_changes(false));
    rig.cluster.world(|world| world.write("app", 50));
    wait_for_status(&mut handle, absent).await;
    sleep(20 * MINUTE).await;
    assert_eq!(events_since(&journal, seq).await, ["updated app"]);
}

#[tokio::test(start_paused = true)]
async fn node_restart_keeps_feed_coverage() {
    let (mut rig, mut handle) = following(world(), SELDOM).await;
    let since = handle.status.borrow().followed_since;
    for node in [A, B, C] {
        rig.cluster.faults().restart(node);
        sleep(MINUTE).await;
    }
    let status = wait_for_status(&mut handle, |status| status.followed_since.is_some()).await;
    assert_eq!(status.followed_since, since, "{status:?}");
    assert!(status.feeds["_db_updates"].failures > 0, "{status:?}");
    let before = seqs(&*rig.planned().await, "app");
    rig.cluster.world(|world| world.write("app", 50));
    assert!(time_until_seen(&mut rig, "app", &before).await < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn shard_map_feed_survives_loss_of_its_node() {
    let (rig, mut handle) = following(world(), SELDOM).await;
    let asked = handle.status.borrow().feeds["_dbs"].node.clone().unwrap();
    rig.cluster.faults().down(&asked);
    wait_for_status(&mut handle, |status| {
        let feed = &status.feeds["_dbs"];
        feed.connected && feed.node.as_ref() != Some(&asked)
    })
    .await;
    rig.cluster.faults().up(&asked);
}

#[tokio::test(start_paused = true)]
async fn refused_login_is_retried_rarely() {
    let (rig, mut handle) = following(world(), SELDOM).await;
    rig.cluster.faults().password("admin", "other");
    for node in [A, B, C] {
        rig.cluster.faults().restart(node);
    }
    wait_for_status(&mut handle, |status| status.followed_since.is_none()).await;
    rig.cluster.clear_exchanges();
    sleep(HOUR).await;
    let logins: Vec<Exchange> = rig.cluster.exchanges();
    assert!(logins.len() <= 40, "{}", logins.len());
    rig.cluster.faults().password("admin", "secret");
    wait_for_status(&mut handle, |status| status.followed_since.is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_idle_shards_cost_under_one_request_per_second() {
    let like = Database { q: 1, n: 3, docs: 100, ..Database::new("tenant-") };
    let fleet = Fleet::named(like, 3_330, 12);
    let mut config = nodes();
    config.fleets.push(fleet);
    let yaml = "couchdb: {cold_reads_per_second: off}\n";
    let mut rig =
        Rig::in_mode(recliner::model::channel::Mode::Advise, crate::support::START, config, yaml);
    let mut handle = rig.follow_feeds();
    wait_for_status(&mut handle, |status| status.followed_since.is_some()).await;
    sleep(20 * MINUTE).await;
    let shards = targets(&*rig.planned().await, TargetKind::Db).count();
    assert!(shards >= 9_990, "{shards}");
    let before = rig.cluster.requests();
    sleep(6 * HOUR).await;
    let asked = rig.cluster.requests() - before;
    let rate = asked as f64 / (6.0 * 3_600.0);
    let mut routes: BTreeMap<String, usize> = BTreeMap::new();
    for exchange in rig.cluster.exchanges() {
        let route = exchange.path.split(['?']).next().unwrap_or_default();
        let route = route.split("/shards").next().unwrap_or_default().to_owned();
        *routes.entry(route).or_default() += 1;
    }
    assert!(rate <= 1.0, "{rate} requests a second; the latest were {routes:#?}");
    let plan = rig.planned().await;
    let unconfirmed =
        targets(&plan, TargetKind::Db).filter(|it| !plan.snapshot.is_confirmed(it.ix()));
    assert_eq!(unconfirmed.count(), 0);
    println!("{rate:.3} requests a second over {shards} shards");
}

#[tokio::test(start_paused = true)]
async fn writes_show_within_two_seconds_without_frequent_rereads() {
    let like = Database { q: 1, n: 1, docs: 100, ..Database::new("tenant-") };
    let mut config = Config::new(&[A]);
    config.fleets.push(Fleet::named(like, 1_000, 12));
    let (mut rig, _handle) = following(config, SELDOM).await;
    let plan = rig.planned().await;
    let places: Vec<(String, TargetIx, u64)> = targets(&plan, TargetKind::Db)
        .filter(|it| it.db_name().db.starts_with("tenant-"))
        .map(|it| (it.db_name().db.to_owned(), it.ix(), it.facts().update_seq.get().unwrap()))
        .collect();
    assert_eq!(places.len(), 1_000);
    rig.cluster.clear_exchanges();

    let mut written = vec![0_u64; places.len()];
    let mut waiting: Vec<(usize, u64, Instant)> = Vec::new();
    let mut took: Vec<Duration> = Vec::new();
    for at in 0..10_000_usize {
        if at < 6_000 {
            // In random order, some databases twice within a short time.
            let place = at.wrapping_mul(0x9e37_79b9) % 7_919 % places.len();
            rig.cluster.world(|world| world.write(&places[place].0, 1));
            written[place] += 1;
            waiting.push((place, written[place], Instant::now()));
        }
        sleep(Duration::from_millis(5)).await;
        if at % 4 == 0 {
            let plan = Arc::clone(&rig.watch.planner.plan.borrow());
            waiting.retain(|(place, count, since)| {
                let (_, ix, before) = places[*place];
                let seen = plan.snapshot.target(ix).and_then(|it| it.facts().update_seq.get());
                let shows = seen.is_some_and(|seen| seen >= before + count);
                took.extend(shows.then(|| since.elapsed()));
                !shows
            });
        }
    }
    assert!(waiting.is_empty(), "{} never showed", waiting.len());
    took.sort_unstable();
    let of_hundred = |part: usize| took[took.len() * part / 100];
    println!("median {:?}, p99 {:?}, all {:?}", of_hundred(50), of_hundred(99), took.last());
    assert!(of_hundred(99) <= Duration::from_secs(2), "{:?}", of_hundred(99));

    let mut reads: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    for read in rig.asked("/shards%2F") {
        reads.entry(read.path).or_default().push(read.at);
    }
    let gaps = reads.values().flat_map(|all| all.windows(2)).map(|two| two[1] - two[0]);
    let least = gaps.min().unwrap();
    assert!(least >= Duration::from_secs(1), "read again after {least:?}");
}
