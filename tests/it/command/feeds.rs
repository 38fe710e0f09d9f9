//! A service whose feeds break on the wire, or that is killed: its journal still records
//! everything.

use super::{NODES, PASSWORD, PATIENCE, Site, data_of, seed, service::Running, written};
use crate::seeded::random_numbers;
use couchdb_sim::{Config, Database, Effect, Fault, Role, User};
use recliner::serve::report::Events;
use std::{collections::BTreeMap, time::Duration};
use tokio::{task::JoinSet, time};

const PATH: &str = "/_db_updates";

/// The longest silence of a feed, plus the time to reopen it.
const SILENCE: Duration = Duration::from_secs(100);

fn world() -> Config {
    let mut config = Config::new(&NODES).with(Database { q: 1, docs: 0, ..Database::new("app") });
    config.users =
        vec![User { name: "adm".into(), password: PASSWORD.into(), role: Role::ServerAdmin }];
    config
}

struct ServiceClient {
    http: reqwest::Client,
    base: String,
}

impl ServiceClient {
    fn of(running: &Running) -> Self {
        let _again = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build().expect("the HTTP client is valid");
        Self { http, base: format!("http://{}", running.address) }
    }

    async fn get(&self, path: &str) -> String {
        let answer = self.http.get(format!("{}{path}", self.base)).send().await;
        answer.expect("a response arrives").text().await.expect("the body is text")
    }

    /// The value of a sample in `/metrics`.
    async fn sample(&self, name: &str) -> Option<String> {
        let text = self.get("/metrics").await;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(ToOwned::to_owned)
    }

    /// Waits until a sample has this value.
    async fn wait_for_sample(&self, name: &str, value: &str, within: Duration) {
        let shown = async {
            while self.sample(name).await.as_deref() != Some(value) {
                time::sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(time::timeout(within, shown).await.is_ok(), "{name} is never {value}");
    }

    /// Waits for the ends of two more sweeps: the first of them may have begun before the call.
    async fn wait_for_two_sweeps(&self) {
        let name = "recliner_scan_last_success_timestamp_seconds{node=\"node1@127.0.0.1\",source=\"http\"}";
        let ends = async {
            let mut last = self.sample(name).await;
            for _ in 0..3 {
                let before = last.clone();
                while last == before {
                    time::sleep(Duration::from_millis(50)).await;
                    last = self.sample(name).await;
                }
            }
        };
        time::timeout(PATIENCE, ends).await.expect("it sweeps");
    }

    /// The number of journal events for each event type and database.
    async fn event_counts(&self) -> BTreeMap<String, usize> {
        let (mut counts, mut since) = (BTreeMap::new(), 0);
        loop {
            let path =
                format!("/api/v1/events?types=created,updated,deleted&since={since}&limit=1000");
            let page: Events = data_of(&self.get(&path).await);
            let Some(last) = page.events.last() else { return counts };
            since = last.seq;
            for event in &page.events {
                let db = event.db.as_deref().expect("it is about a database");
                *counts.entry(format!("{} {db}", event.event_type)).or_default() += 1;
            }
        }
    }

    /// Waits until the journal has all these events.
    async fn wait_for_events(&self, truth: &[String]) {
        let has = async {
            loop {
                let counts = self.event_counts().await;
                if truth.iter().all(|event| counts.contains_key(event)) {
                    return;
                }
                time::sleep(Duration::from_millis(100)).await;
            }
        };
        let counts = time::timeout(PATIENCE, has).await;
        if counts.is_err() {
            let counts = self.event_counts().await;
            let lost: Vec<&String> = truth.iter().filter(|it| !counts.contains_key(*it)).collect();
            panic!("{lost:?} never came; the journal has {counts:?}");
        }
    }
}

fn make(site: &Site, db: &str) -> String {
    let database = Database { q: 1, docs: 0, ..Database::new(db) };
    site.cluster.world(|world| world.create(database)).expect("the database is new");
    format!("created {db}")
}

/// Breaks the feed of a separate service once, in this way.
async fn break_feed(name: &'static str, effect: Effect) {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut running = Running::start(&site, dir.path(), &[]).await;
    let service = ServiceClient::of(&running);
    let connected = "recliner_feed_connected{feed=\"_db_updates\"}";
    service.wait_for_sample(connected, "1", PATIENCE).await;
    site.cluster.faults().plan(Fault::everywhere(effect).at(PATH).times(1));
    NODES.into_iter().for_each(|node| site.cluster.faults().restart(node));
    service.wait_for_sample(connected, "0", PATIENCE).await;
    let mut truth = vec![make(&site, "while-away")];
    // The effect may take a line or two to show.
    let opened = async {
        loop {
            let asked = site.cluster.exchanges();
            if asked.iter().filter(|it| it.path.contains("feed=continuous")).count() >= 3 {
                return;
            }
            truth.push(make(&site, &format!("more-{}", truth.len())));
            time::sleep(Duration::from_millis(700)).await;
        }
    };
    assert!(time::timeout(SILENCE, opened).await.is_ok(), "{name}: it is never opened again");
    truth.push(make(&site, "and-on"));
    service.wait_for_sample(connected, "1", PATIENCE).await;
    service.wait_for_events(&truth).await;
    let asked = site.cluster.exchanges().iter().filter(|it| it.path.starts_with(PATH)).count();
    assert!(asked <= 12, "{name}: {asked} requests");
    let counts = service.event_counts().await;
    assert!(counts.values().all(|count| *count == 1), "{name}: {counts:?}");
    assert_eq!(
        service.sample("recliner_journal_dropped_total").await.as_deref(),
        Some("0"),
        "{name}"
    );
    running.stop().await;
}

#[tokio::test]
async fn feed_broken_on_the_wire_loses_no_events() {
    let mut all = JoinSet::new();
    for (name, effect) in [
        ("half a line", Effect::Cut(14)),
        ("a break", Effect::Break(40)),
        ("another encoding", Effect::Packed),
        ("no UTF-8", Effect::Insert(14, vec![0xff, 0xc3])),
        ("a peer that stalls", Effect::Stall(14)),
    ] {
        all.spawn(break_feed(name, effect));
    }
    while let Some(ended) = all.join_next().await {
        ended.expect("no case panics");
    }
}

/// How often the service is killed.
const LIVES: usize = 12;

#[tokio::test]
async fn killed_at_any_moment_without_feeds_reports_each_change_once() {
    let mut random = random_numbers(seed());
    let mut below = |most: u8| random().to_le_bytes()[7] % most;
    let mut config = world();
    config.global_changes = false;
    let names = |kind: char| (0..LIVES * 4).map(move |at| format!("{kind}{at:03}"));
    // One copy each: copies are read one by one, and each may be the first to show a write.
    for db in names('w').chain(names('d')) {
        config = config.with(Database { q: 1, n: 1, docs: 10, ..Database::new(&db) });
    }
    let site = Site::open(config).await;
    let dir = tempfile::tempdir().unwrap();
    let file = written(dir.path(), "recliner.yml", "scan: {interval: 1s}\npoll: 1s\n");
    let flags = ["--config.file", file.as_str(), "--storage.path", "data"];
    let mut running = Running::start(&site, dir.path(), &flags).await;
    ServiceClient::of(&running).wait_for_two_sweeps().await;
    assert_eq!(
        ServiceClient::of(&running).event_counts().await,
        BTreeMap::new(),
        "databases seen for the first time are not reported"
    );

    let (mut truth, mut writes, mut deletes) = (Vec::new(), names('w'), names('d'));
    let mut makes = names('c');
    for _ in 0..LIVES {
        for _ in 0..4 {
            let some = [0, below(60).into(), 4 * u64::from(below(250))];
            time::sleep(Duration::from_millis(some[usize::from(below(3))])).await;
            let db = writes.next().expect("there are enough");
            site.cluster.world(|world| world.write(&db, 1));
            truth.push(format!("updated {db}"));
            let db = deletes.next().expect("there are enough");
            site.cluster.world(|world| world.delete(&db, false));
            truth.push(format!("deleted {db}"));
            truth.push(make(&site, &makes.next().expect("there are enough")));
        }
        time::sleep(Duration::from_millis(8 * u64::from(below(250)))).await;
        running.kill().await;
        running = Running::start(&site, dir.path(), &flags).await;
    }
    let service = ServiceClient::of(&running);
    service.wait_for_events(&truth).await;
    service.wait_for_two_sweeps().await;
    let counts = service.event_counts().await;
    let again: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    assert!(again.is_empty(), "reported more than once: {again:?}");
    assert_eq!(counts.len(), truth.len(), "and nothing else: {counts:?}");
    running.stop().await;
}
