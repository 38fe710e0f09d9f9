//! Taking smoosh over and restoring it over HTTP: always against the simulator, and against a real
//! cluster if `RECLINER_TEST_COUCHDB_URL` names one (see `live.rs`).

use crate::support::{A, B, InMemoryTakeoverStore, NODES, START, nodes};
use couchdb_client::{Address, Client, ClientSettings, Login, Transport};
use couchdb_sim::{Cluster, Config, Effect, Fault};
use recliner::{
    act::takeover::{self, ConfigApi, TakeoverStore, Takeovers, restore_node},
    table::{Draft, Snapshot},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinSet, time};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

fn connect(settings: ClientSettings, transport: Transport) -> Client {
    Client::builder(settings).transport(transport).open().expect("the settings are valid")
}

/// The takeover task over nodes of these names.
struct Running {
    handle: takeover::TakeoverHandle,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    _hands: watch::Sender<Arc<dyn ConfigApi>>,
    _settings: watch::Sender<Arc<takeover::TakeoverSettings>>,
    _snapshots: watch::Sender<Arc<Snapshot>>,
}

impl Running {
    fn start(
        client: &Client,
        ledger: InMemoryTakeoverStore,
        names: &[String],
        channel: &str,
    ) -> Self {
        let mut draft = Draft::new(5);
        for name in names {
            let ix = draft.get_or_add_node(name);
            draft.update_node(ix, |node| {
                (node.is_up, node.is_member, node.is_served) = (Some(true), true, true);
            });
        }
        let settings = takeover::TakeoverSettings {
            enforce: true,
            takeover: [channel.to_owned()].into(),
            enforced: [channel.to_owned()].into(),
        };
        let hands: Arc<dyn ConfigApi> = Arc::new(client.clone());
        let (hands, hands_rx) = watch::channel(hands);
        let (settings, settings_rx) = watch::channel(Arc::new(settings));
        let (snapshots, snapshots_rx) = watch::channel(draft.publish(START));
        let clock = Clock::anchored(START);
        let ledger = Arc::new(ledger);
        let (task, handle) =
            takeover::TakeoverTask::new(clock, hands_rx, ledger, settings_rx, snapshots_rx);
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        tasks.spawn(task.run(stop.clone()));
        Self { handle, stop, tasks, _hands: hands, _settings: settings, _snapshots: snapshots }
    }

    /// Waits until the state of all nodes meets a condition.
    async fn until(&mut self, wanted: impl Fn(&Takeovers) -> bool) {
        let waited = self.handle.takeovers.wait_for(|seen| wanted(seen));
        let waited = time::timeout(Duration::from_secs(120), waited).await;
        drop(waited.expect("it comes within two minutes").expect("the task lives"));
    }

    async fn stop(mut self) {
        self.stop.cancel();
        let ended = time::timeout(Duration::from_secs(60), self.tasks.join_next()).await;
        ended.expect("it ends").expect("there is one").expect("it did not panic");
    }
}

fn all_taken(seen: &Takeovers) -> bool {
    !seen.nodes.is_empty() && seen.nodes.values().all(|node| node.is_taken_over())
}

/// The nodes' settings of a channel, and recliner's marks in their configurations.
async fn channel_settings(
    client: &Client,
    names: &[String],
    channel: &str,
) -> Vec<BTreeMap<String, String>> {
    let mut sections = Vec::new();
    for name in names {
        for section in [format!("smoosh.{channel}"), takeover::MARK_SECTION.to_owned()] {
            let mut section =
                client.config_section(name, &section).await.expect("the node answers");
            section.retain(|key, _| key == "concurrency" || key.contains(channel));
            sections.push(section);
        }
    }
    sections
}

async fn taken_and_given_back(client: &Client, names: &[String], channel: &str) {
    let before = channel_settings(client, names, channel).await;
    let ledger = InMemoryTakeoverStore::default();
    let mut running = Running::start(client, ledger.clone(), names, channel);
    running.until(all_taken).await;
    for (at, name) in names.iter().enumerate() {
        let now = channel_settings(client, names, channel).await;
        assert_eq!(now[2 * at]["concurrency"], "0", "{name}");
        assert!(now[2 * at + 1].values().all(|mark| mark.contains("\"was\"")), "{now:?}");
    }
    running.stop().await;
    assert_eq!(channel_settings(client, names, channel).await, before);
    assert_eq!(ledger.records().await.expect("it can be read"), []);

    // A killed process leaves smoosh taken over; the command restores it by the marks alone.
    let mut killed = Running::start(client, InMemoryTakeoverStore::default(), names, channel);
    killed.until(all_taken).await;
    killed.tasks.abort_all();
    for name in names {
        let restored = restore_node(client, name).await.expect("the node answers");
        assert!(restored.iter().any(|it| it.channel == channel && it.was_stopped), "{restored:?}");
    }
    assert_eq!(channel_settings(client, names, channel).await, before);
}

#[tokio::test(start_paused = true)]
async fn takeover_on_the_simulator_can_be_undone() {
    let cluster = Cluster::new(nodes(), 1, Clock::anchored(START)).unwrap();
    cluster.world(|world| {
        world.set(A, "smoosh.ratio_dbs", "concurrency", "2");
        world.set_until_restart(B, "smoosh.ratio_dbs", "concurrency", "7");
    });
    let mut settings =
        ClientSettings::new(vec!["http://sim-1.local:5984".parse::<Address>().unwrap()]);
    settings.login = Login::password("admin", "secret").unwrap();
    let client = connect(settings, Transport::in_process(cluster.by_host()));
    let names = NODES.map(str::to_owned).to_vec();
    taken_and_given_back(&client, &names, "ratio_dbs").await;

    // A restarted node is taken over again, and restored as its files say.
    let mut running =
        Running::start(&client, InMemoryTakeoverStore::default(), &names, "ratio_dbs");
    running.until(all_taken).await;
    cluster.world(|world| {
        for node in [A, B] {
            world.stop_node(node);
            world.start_node(node);
        }
    });
    let stopped = |node: &str| {
        cluster.world(|world| {
            world.setting(node, "smoosh.ratio_dbs", "concurrency").map(str::to_owned)
        })
    };
    assert_eq!((stopped(A), stopped(B)), (Some("2".to_owned()), None));
    time::sleep(Duration::from_secs(31)).await;
    assert_eq!((stopped(A), stopped(B)), (Some("0".to_owned()), Some("0".to_owned())));
    running.stop().await;
    assert_eq!((stopped(A), stopped(B)), (Some("2".to_owned()), None));
}

/// A node that hangs holds back only its own takeover, and is waited for once in a pass.
#[tokio::test(start_paused = true)]
async fn hanging_node_delays_no_takeover_elsewhere() {
    let names: Vec<String> = (1..=10).map(|at| format!("couchdb@sim-{at}.local")).collect();
    let config = Config::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let cluster = Cluster::new(config, 1, Clock::anchored(START)).unwrap();
    cluster.faults().plan(Fault::on(B, Effect::Hang).at("_config"));
    let mut settings =
        ClientSettings::new(vec!["http://sim-1.local:5984".parse::<Address>().unwrap()]);
    settings.login = Login::password("admin", "secret").unwrap();
    let client = connect(settings, Transport::in_process(cluster.by_host()));
    let ledger = InMemoryTakeoverStore::default();
    let begun = time::Instant::now();
    let mut running = Running::start(&client, ledger, &names, "ratio_dbs");
    let others = || {
        let others = names.iter().filter(|name| *name != B);
        let stopped = others.filter(|name| {
            cluster
                .world(|world| world.setting(name, "smoosh.ratio_dbs", "concurrency") == Some("0"))
        });
        stopped.count()
    };
    time::sleep(Duration::from_secs(1)).await;
    assert_eq!(others(), 9, "they are taken over while the tenth hangs");
    running.until(|seen| !seen.nodes.is_empty()).await;
    assert!(begun.elapsed() <= Duration::from_secs(8), "{:?}", begun.elapsed());
    let seen = running.handle.takeovers.borrow().clone();
    let taken = seen.nodes.values().filter(|node| node.is_taken_over()).count();
    assert_eq!((taken, seen.nodes[B].problem.is_some()), (9, true));
    running.stop().await;
    assert_eq!(others(), 0, "they are given back");
}

#[tokio::test]
#[ignore = "needs a real cluster, named by RECLINER_TEST_COUCHDB_URL"]
async fn takeover_on_live_couchdb_can_be_undone() {
    let urls = std::env::var("RECLINER_TEST_COUCHDB_URL").expect("it names a cluster");
    let named = |name| std::env::var(name).unwrap_or_default();
    let urls = urls.split(',').map(|url| url.parse::<Address>().unwrap()).collect();
    let mut settings = ClientSettings::new(urls);
    let (user, password) =
        (named("RECLINER_TEST_COUCHDB_USER"), named("RECLINER_TEST_COUCHDB_PASSWORD"));
    settings.login = Login::password(&user, &password).unwrap();
    let transport = Transport::http(&settings, "recliner-tests").unwrap();
    let client = connect(settings, transport);
    let names = client.membership().await.unwrap().cluster_nodes.unwrap();
    // A channel that nothing else uses, so that a live cluster is not disturbed.
    let channel = "recliner_test_takeover";
    taken_and_given_back(&client, &names, channel).await;
}
