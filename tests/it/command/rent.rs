//! `import smoosh --as rent` and what-if, of a recliner over a simulated cluster whose clock runs faster.

use super::{PATIENCE, Ran, recliner, written};
use couchdb_client::Transport;
use couchdb_sim::{Cluster, Config, Database, Design, Exchange};
use recliner::{
    config::{self, Flags},
    serve::http::ProcessInfo,
    service::{HostAccess, Service},
    simulated::SimulatedDisks,
    store::journal::InMemory,
};
use serde_json::Value;
use std::{path::Path, sync::Arc, time::Duration};
use tokio::{
    task::JoinSet,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment, TimeSource};

const NODES: [&str; 3] = ["couchdb@sim-1.local", "couchdb@sim-2.local", "couchdb@sim-3.local"];

/// Simulated seconds per real second: few enough that the clock's progress between two events of the scanner
/// is not taken for a clock change.
const SPEED: u32 = 25;

#[derive(Debug)]
struct FastClock(Instant);

impl TimeSource for FastClock {
    fn now(&self) -> Moment {
        let passed = self.0.elapsed() * SPEED;
        Moment::from_unix(1_795_230_000).plus(passed)
    }
}

/// A busy cluster whose smoosh has high thresholds for databases and short nightly windows.
fn busy_world() -> Config {
    let mut config = Config::new(&NODES);
    for at in 0..3_u32 {
        let design = Design { views: vec!["by_day".to_owned()], ..Design::new("app") };
        config = config.with(Database {
            q: 1,
            docs: 20_000 * u64::from(at + 1),
            doc_bytes: 2_000,
            bloat: 1.2,
            // The cluster runs on the machine's time.
            writes_per_second: f64::from(SPEED) / f64::from(at + 1),
            designs: vec![design],
            ..Database::new(&format!("db{at}"))
        });
    }
    for node in &mut config.nodes {
        for (section, key, value) in [
            ("smoosh.ratio_dbs", "min_priority", "4.0"),
            ("smoosh.ratio_dbs", "from", "20:00"),
            ("smoosh.ratio_dbs", "to", "06:00"),
            ("smoosh.slack_dbs", "from", "20:00"),
            ("smoosh.slack_dbs", "to", "06:00"),
        ] {
            node.settings.push((section.to_owned(), key.to_owned(), value.to_owned()));
        }
    }
    config
}

/// A service over the busy cluster.
struct FastService {
    url: String,
    cluster: Cluster,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl FastService {
    async fn start() -> Self {
        crate::watchdog::start();
        let _again = rustls::crypto::ring::default_provider().install_default();
        let clock = Clock::Custom(Box::leak(Box::new(FastClock(Instant::now()))));
        let cluster = Cluster::new(busy_world(), 1, clock).expect("the configuration is valid");
        let flags = Flags {
            couchdb_urls: NODES
                .map(|node| {
                    format!("http://{}:5984", node.split_once('@').expect("it has a host").1)
                })
                .to_vec(),
            couchdb_username: Some("admin".to_owned()),
            env_password: Some("secret".into()),
            web_admin_socket: Some("none".into()),
            web_listen_address: Some("127.0.0.1:0".to_owned()),
            ..Flags::default()
        };
        let nodes = NODES.map(|node| format!("\"{node}\"")).join(", ");
        let text = format!(
            "scan: {{interval: 1s}}
poll: 1s
follow: {{enabled: false}}
couchdb: {{cold_reads_per_second: off}}
headroom: {{volumes: [{{nodes: [{nodes}], available: 3TB}}]}}
"
        );
        let file = config::File { name: Path::new("recliner.yml"), bytes: text.as_bytes() };
        let settings = config::load(&flags, Some(file)).expect("the settings are valid").settings;
        let transport = Transport::in_process(cluster.by_host());
        let about = ProcessInfo::of_this_build(true);
        let machine =
            HostAccess { meter: Arc::new(SimulatedDisks(cluster.clone())), directories: None };
        let service =
            Service::start(settings, transport, about, clock, InMemory::default(), machine).await;
        let service = service.expect("it starts");
        let (url, stop) = (format!("http://{}", service.address()), service.stop_token());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            service.run(Box::new(|| Err("it does not reload".to_owned()))).await;
        });
        Self { url, cluster, stop, tasks }
    }

    async fn run(&self, words: &[&str]) -> Ran {
        let mut all = words.to_vec();
        all.extend(["--recliner.url", &self.url]);
        recliner(&all, &[]).await
    }

    /// Waits until files were watched long enough to predict that smoosh would compact some of them.
    async fn until_smoosh_compacts(&self) {
        let compacts = async {
            loop {
                let ran = self.run(&["what-if", "--days", "5", "--format", "json"]).await;
                if ran.code == 0 {
                    if compactions(&ran.json(), "smoosh") > 0.5 {
                        return;
                    }
                } else {
                    ran.refuses(1, &["not enough history yet", "try again later"]);
                }
                time::sleep(Duration::from_millis(200)).await;
            }
        };
        time::timeout(2 * PATIENCE, compacts).await.expect("it knows in time");
    }

    async fn stop(mut self) {
        self.stop.cancel();
        let ended = time::timeout(PATIENCE, self.tasks.join_next()).await;
        ended.expect("in time").expect("there is one").expect("no panic");
    }
}

/// One outlook in the response.
fn outlook<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let outlooks = answer["outlooks"].as_array().expect("it has outlooks");
    outlooks.iter().find(|outlook| outlook["name"] == name).expect("it is shown")
}

/// The compactions per day under these rules.
fn compactions(answer: &Value, name: &str) -> f64 {
    outlook(answer, name)["compactions_per_day"].as_f64().expect("it is a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn import_as_rent_prints_channels_that_keep_smooshs_mean_waste() {
    let service = FastService::start().await;
    service.until_smoosh_compacts().await;
    let ran = service.run(&["import", "smoosh", "--as", "rent", "--days", "5"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    let comments = ran.out.replace("\n# ", " ");
    for part in [
        "Channels by rent that keep the mean waste expected under smoosh",
        "the next 5 days",
        " Mean waste: ",
        " Rewritten per day: ",
        " rent_dbs: databases waste ",
        "smoosh is shown with the cluster's settings",
        "name: rent_dbs",
        "name: rent_views",
        "name: index_cleanup",
        "from: \"20:00\"",
    ] {
        assert!(comments.contains(part), "{part:?} is not in {}", ran.out);
    }
    assert_eq!(ran.out.matches("horizon: ").count(), 2, "{}", ran.out);
    assert_eq!(ran.out.matches("windows:").count(), 1, "only those of databases: {}", ran.out);
    assert!(ran.out.lines().all(|line| line.chars().count() <= 100), "{}", ran.out);
    // The output is part of a configuration.
    let dir = tempfile::tempdir().unwrap();
    let file = format!("couchdb: {{urls: ['http://couch-a:5984']}}\n{}", ran.out);
    let file = written(dir.path(), "recliner.yml", &file);
    let checked = recliner(&["check-config", "--config.file", &file], &[]).await;
    assert_eq!((checked.code, checked.err.as_str()), (0, ""), "{checked:?}");

    // What-if shows the same waste for that configuration and for smoosh.
    let words = ["what-if", "--days", "5", "--format", "json", "--config.file", &file];
    let ran = service.run(&words).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let answer = ran.json();
    assert_eq!(answer["smoosh"]["settings"], "cluster");
    assert_eq!(answer["smoosh"]["nodes"].as_array().unwrap().len(), NODES.len());
    let waste = |name: &str| outlook(&answer, name)["mean_waste_bytes"].as_f64().unwrap();
    let (smoosh, proposed) = (waste("smoosh"), waste("proposed"));
    // Between the two requests the fast clock advances, on a busy machine by hours, and rates change.
    assert!((proposed - smoosh).abs() < 0.5 * smoosh, "{smoosh} and {proposed}");
    let table = service.run(&["what-if", "--days", "1", "--channels", "smoosh-as-rent"]).await;
    assert_eq!(table.code, 0, "{table:?}");
    for part in ["smoosh is shown with", "staleness", "rent_dbs: databases waste"] {
        assert!(table.out.replace('\n', " ").contains(part), "{part:?} is not in {}", table.out);
    }
    assert!(service.cluster.exchanges().iter().all(Exchange::is_reading));
    service.stop().await;
}

#[tokio::test]
async fn import_as_rent_requires_a_running_service() {
    let words = ["import", "smoosh", "--as", "rent", "--recliner.url", "http://127.0.0.1:1"];
    let expected = ["http://127.0.0.1:1", "only a running recliner knows", "--recliner.url"];
    recliner(&words, &[]).await.refuses(1, &expected);
    for (more, expected) in [
        (&["--couchdb.url", "http://a:1"][..], "omit --config.file and flags that name CouchDB"),
        (&["--ini", "local.ini"], "omit --config.file and flags that name CouchDB"),
        (&["--config.file", "recliner.yml"], "omit --config.file and flags that name CouchDB"),
    ] {
        let mut words = vec!["import", "smoosh", "--as", "rent"];
        words.extend(more);
        recliner(&words, &[]).await.refuses(64, &[expected, "--recliner.url"]);
    }
    let words = ["import", "compaction-daemon", "--as", "rent"];
    recliner(&words, &[]).await.refuses(64, &["import smoosh", "CouchDB 2"]);
    let words = ["import", "smoosh", "--recliner.url", "http://127.0.0.1:1"];
    recliner(&words, &[]).await.refuses(64, &["--recliner.url", "--as rent"]);
    for words in [
        &["import", "smoosh", "--days", "3"][..],
        &["import", "smoosh", "--as", "slack"],
        &["import", "smoosh", "--as", "rent", "--days", "0"],
    ] {
        let ran = recliner(words, &[]).await;
        assert_eq!((ran.code, ran.out.as_str()), (64, ""), "{ran:?}");
    }
}
