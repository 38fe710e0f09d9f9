//! The task over simulated nodes, on paused time.

use super::*;
use crate::table::Draft;
use couchdb_client::{Address, ClientSettings, Login, Transport};
use couchdb_sim::{Cluster, Config, Exchange, Role, User};
use tokio::task::JoinSet;
use wall_clock::{Clock, Moment};

const A: &str = "couchdb@sim-1.local";
const B: &str = "couchdb@sim-2.local";
const START: Moment = Moment::from_unix(1_795_230_000);

/// A task over two nodes that are known to be up.
struct Rig {
    cluster: Cluster,
    draft: Draft,
    snapshots: watch::Sender<Arc<Snapshot>>,
    settings: watch::Receiver<Arc<NodeSettings>>,
    writer: watch::Sender<()>,
    _client: watch::Sender<Client>,
    _tasks: JoinSet<()>,
}

impl Rig {
    fn start(user: &str) -> Self {
        let mut config = Config::new(&[A, B]);
        config.users.push(User {
            name: "reader".into(),
            password: "secret".into(),
            role: Role::Metrics,
        });
        let cluster = Cluster::new(config, 1, Clock::anchored(START)).unwrap();
        let urls = ["http://sim-1.local:5984", "http://sim-2.local:5984"];
        let urls = urls.map(|url| url.parse::<Address>().unwrap()).to_vec();
        let mut settings = ClientSettings::new(urls);
        settings.login = Login::password(user, "secret").unwrap();
        let transport = Transport::in_process(cluster.by_host());
        let client = Client::builder(settings).transport(transport).open().unwrap();
        let mut draft = Draft::new(1);
        for name in [A, B] {
            let ix = draft.get_or_add_node(name);
            draft.update_node(ix, |node| {
                (node.is_up, node.is_member, node.is_served) = (Some(true), true, true);
            });
        }
        let (snapshots, snapshots_rx) = watch::channel(draft.publish(START));
        let (client, client_rx) = watch::channel(client);
        let (task, settings) = NodeSettingsTask::new(client_rx, snapshots_rx);
        let mut tasks = JoinSet::new();
        let (writer, writer_rx) = watch::channel(());
        tasks.spawn(task.run(writer_rx, CancellationToken::new()));
        Self { cluster, draft, snapshots, settings, writer, _client: client, _tasks: tasks }
    }

    async fn next(&mut self) -> Arc<NodeSettings> {
        let changed = time::timeout(2 * INTERVAL, self.settings.changed()).await;
        changed.expect("the task reads in time").expect("the task lives");
        Arc::clone(&self.settings.borrow_and_update())
    }
}

#[tokio::test(start_paused = true)]
async fn keeps_only_settings_that_advice_needs() {
    let mut rig = Rig::start("admin");
    rig.cluster.world(|world| {
        world.set(A, "smoosh", "db_channels", "big");
        world.set(A, "smoosh.big", "min_size", "7");
        world.set(A, "chttpd_auth", "secret", "s3kr3t");
        world.set(A, "couchdb", "max_dbs_open", "100");
        world.set(A, "couchdb", "uuid", "0123");
        world.set(B, "smoosh.ratio_dbs", "concurrency", "0");
        world.set(B, MARK_SECTION, "smoosh.ratio_dbs.concurrency", "{}");
    });
    let settings = rig.next().await;
    assert_eq!(settings.problems, BTreeMap::new());
    let (a, b) = (&settings.nodes[A], &settings.nodes[B]);
    assert_eq!(a.version, "3.5.0");
    assert_eq!(a.sections["smoosh.big"]["min_size"], "7");
    assert_eq!(b.sections["smoosh.ratio_dbs"]["concurrency"], "0");
    assert_eq!(b.sections[MARK_SECTION].len(), 1);
    let asked = rig.cluster.exchanges();
    assert!(asked.iter().all(Exchange::is_reading));
    assert!(asked.iter().all(|exchange| !exchange.path.ends_with("/_config")));
    assert!(asked.iter().all(|exchange| !exchange.path.contains("chttpd_auth")));
    assert_eq!(a.sections.keys().collect::<Vec<_>>(), ["couchdb", "smoosh", "smoosh.big"]);
    assert_eq!(a.sections["couchdb"], BTreeMap::from([("max_dbs_open".into(), "100".into())]));

    // The settings are read again after a while.
    rig.cluster.world(|world| {
        world.set(A, "smoosh.big", "min_size", "8");
    });
    assert_eq!(rig.next().await.nodes[A].sections["smoosh.big"]["min_size"], "8");
}

#[tokio::test(start_paused = true)]
async fn rereads_at_once_after_this_process_wrote_settings() {
    let mut rig = Rig::start("admin");
    rig.next().await;
    let began = Instant::now();
    rig.cluster.world(|world| {
        world.set(A, "smoosh.ratio_dbs", "concurrency", "0");
    });
    rig.writer.send_replace(());
    assert_eq!(rig.next().await.nodes[A].sections["smoosh.ratio_dbs"]["concurrency"], "0");
    assert!(began.elapsed() < INTERVAL / 10, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn silent_node_keeps_its_settings_until_it_leaves() {
    let mut rig = Rig::start("admin");
    let first = rig.next().await;
    assert_eq!(first.nodes.len(), 2);
    rig.cluster.faults().down(B);
    let second = rig.next().await;
    assert_eq!(second.nodes, first.nodes);
    assert_eq!(second.problems.keys().collect::<Vec<_>>(), [B]);
    let ix = rig.draft.get_or_add_node(B);
    rig.draft.update_node(ix, |node| node.is_member = false);
    rig.snapshots.send_replace(rig.draft.publish(START));
    let third = rig.next().await;
    assert_eq!(third.nodes.keys().collect::<Vec<_>>(), [A]);
    assert_eq!(third.problems, BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn silent_node_does_not_delay_others() {
    let mut rig = Rig::start("admin");
    rig.next().await;
    rig.cluster.world(|world| {
        world.set(A, "smoosh.ratio_dbs", "concurrency", "0");
    });
    rig.cluster.faults().freeze(B, 10 * INTERVAL);
    let began = Instant::now();
    rig.writer.send_replace(());
    assert_eq!(rig.next().await.nodes[A].sections["smoosh.ratio_dbs"]["concurrency"], "0");
    assert!(began.elapsed() < 2 * TOGETHER, "{:?}", began.elapsed());
    // Its own problem is reported next.
    assert_eq!(rig.next().await.problems.keys().collect::<Vec<_>>(), [B]);
}

#[tokio::test(start_paused = true)]
async fn missing_right_is_reported_for_every_node() {
    let mut rig = Rig::start("reader");
    let settings = rig.next().await;
    assert_eq!(settings.nodes, BTreeMap::new());
    assert_eq!(settings.problems.len(), 2);
}
