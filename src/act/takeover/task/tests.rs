//! The task on paused time, with simulated nodes and records in memory.

#[path = "../../../../tests/takeover_store/mod.rs"]
mod takeover_store;

use super::*;
use crate::{
    act::takeover::{ConfigKey, ConfigResult, MARK_SECTION, RestoredChannel, restore_node},
    table::Draft,
};
use futures::{FutureExt as _, future::BoxFuture};
use takeover_store::InMemoryTakeoverStore;
use tokio::{task::JoinSet, time::Instant};
use wall_clock::Moment;

type Sections = BTreeMap<String, BTreeMap<String, String>>;

/// The configuration in a node's files, and the one in force.
#[derive(Clone, Debug, Default, PartialEq)]
struct SimulatedNode {
    files: Sections,
    in_force: Sections,
    down: bool,
    version: &'static str,
}

#[derive(Clone, Debug, Default)]
struct ClusterState {
    nodes: BTreeMap<String, SimulatedNode>,
    /// Number of further changes that succeed; after that every change fails.
    changes_left: Option<u32>,
    changes: u32,
}

/// The configurations of a cluster, with CouchDB's rules for them.
#[derive(Clone, Debug, Default)]
struct Cluster(Arc<watch::Sender<ClusterState>>);

const A: &str = "couchdb@a";
const B: &str = "couchdb@b";

impl Cluster {
    /// Two nodes. On node a, `ratio_dbs` has its own concurrency in the files, and `slack_dbs` one
    /// that was set until the restart.
    fn new() -> Self {
        let cluster = Self::default();
        cluster.change(|state| {
            for name in [A, B] {
                let node = SimulatedNode { version: "3.5.2", ..SimulatedNode::default() };
                state.nodes.insert(name.to_owned(), node);
            }
            let node = state.nodes.get_mut(A).unwrap();
            put(&mut node.files, "smoosh.ratio_dbs", "concurrency", "2");
            node.in_force.clone_from(&node.files);
            put(&mut node.in_force, "smoosh.slack_dbs", "concurrency", "7");
        });
        cluster
    }

    fn change(&self, change: impl FnOnce(&mut ClusterState)) {
        self.0.send_modify(change);
    }

    fn node(&self, name: &str) -> SimulatedNode {
        self.0.borrow().nodes[name].clone()
    }

    fn value(&self, node: &str, channel: &str) -> Option<String> {
        self.node(node).in_force.get(&format!("smoosh.{channel}"))?.get("concurrency").cloned()
    }

    fn restart(&self, node: &str) {
        self.change(|state| {
            let node = state.nodes.get_mut(node).unwrap();
            node.in_force.clone_from(&node.files);
        });
    }

    fn written(&self, node: &str, change: impl FnOnce(&mut SimulatedNode)) -> Result<(), String> {
        let mut result = Ok(());
        self.change(|state| {
            if state.changes_left == Some(0) {
                result = Err("killed".to_owned());
                return;
            }
            state.changes_left = state.changes_left.map(|lives| lives - 1);
            match state.nodes.get_mut(node) {
                Some(node) if !node.down => change(node),
                Some(_) | None => result = Err(format!("{node} is down")),
            }
            state.changes += 1;
        });
        result
    }
}

fn put(sections: &mut Sections, section: &str, key: &str, value: &str) {
    sections.entry(section.to_owned()).or_default().insert(key.to_owned(), value.to_owned());
}

impl ConfigApi for Cluster {
    fn version<'a>(&'a self, node: &'a str) -> ConfigResult<'a, Option<String>> {
        async move {
            let version = self.0.borrow().nodes.get(node).map(|node| node.version.to_owned());
            version.map(Some).ok_or_else(|| format!("{node} is down"))
        }
        .boxed()
    }

    fn section<'a>(
        &'a self,
        node: &'a str,
        section: &'a str,
    ) -> ConfigResult<'a, BTreeMap<String, String>> {
        async move {
            time::sleep(Duration::from_millis(5)).await;
            match self.0.borrow().nodes.get(node) {
                Some(node) if !node.down => {
                    Ok(node.in_force.get(section).cloned().unwrap_or_default())
                }
                Some(_) | None => Err(format!("{node} is down")),
            }
        }
        .boxed()
    }

    fn set<'a>(&'a self, at: ConfigKey<'a>, value: &'a str) -> ConfigResult<'a, ()> {
        async move {
            self.written(at.node, |node| put(&mut node.in_force, at.section, at.key, value))
        }
        .boxed()
    }

    fn reset<'a>(
        &'a self,
        ConfigKey { node, section, key }: ConfigKey<'a>,
    ) -> ConfigResult<'a, ()> {
        async move {
            self.written(node, |node| {
                let keys = node.in_force.entry(section.to_owned()).or_default();
                keys.remove(key);
                if let Some(value) = node.files.get(section).and_then(|keys| keys.get(key)) {
                    keys.insert(key.to_owned(), value.clone());
                }
                node.in_force.retain(|_, keys| !keys.is_empty());
            })
        }
        .boxed()
    }
}

fn set_of(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn takeover() -> TakeoverSettings {
    let channels = set_of(&["ratio_dbs", "slack_dbs", "upgrade_dbs"]);
    TakeoverSettings { enforce: true, enforced: channels.clone(), takeover: channels }
}

fn coexist() -> TakeoverSettings {
    TakeoverSettings { takeover: BTreeSet::new(), ..takeover() }
}

struct RunningTask {
    handle: TakeoverHandle,
    settings: watch::Sender<Arc<TakeoverSettings>>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    _senders: (watch::Sender<Arc<dyn ConfigApi>>, watch::Sender<Arc<Snapshot>>),
}

impl RunningTask {
    fn start(
        cluster: &Cluster,
        store: impl TakeoverStore + 'static,
        settings: TakeoverSettings,
    ) -> Self {
        let clock = Clock::anchored(Moment::from_unix(1_000_000));
        let mut draft = Draft::new(5);
        for name in [A, B] {
            let ix = draft.get_or_add_node(name);
            draft.update_node(ix, |node| {
                (node.is_up, node.is_member, node.is_served) = (Some(true), true, true);
            });
        }
        let api: Arc<dyn ConfigApi> = Arc::new(cluster.clone());
        let (api, api_rx) = watch::channel(api);
        let (settings, settings_rx) = watch::channel(Arc::new(settings));
        let (snapshots, snapshots_rx) = watch::channel(draft.publish(clock.now()));
        let (task, handle) =
            TakeoverTask::new(clock, api_rx, Arc::new(store), settings_rx, snapshots_rx);
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        tasks.spawn(task.run(stop.clone()));
        Self { handle, settings, stop, tasks, _senders: (api, snapshots) }
    }

    async fn after(&self, seconds: u64) -> Arc<Takeovers> {
        time::sleep(Duration::from_secs(seconds)).await;
        Arc::clone(&self.handle.takeovers.borrow())
    }

    async fn stop(mut self) {
        self.stop.cancel();
        let ended = time::timeout(Duration::from_secs(60), self.tasks.join_next()).await;
        ended.expect("the task ends in time").expect("a task was running").unwrap();
    }
}

fn stopped_channels(cluster: &Cluster) -> usize {
    let all = [A, B].into_iter().flat_map(|node| {
        ["ratio_dbs", "slack_dbs", "upgrade_dbs"].map(|channel| cluster.value(node, channel))
    });
    all.filter(|value| value.as_deref() == Some("0")).count()
}

#[tokio::test(start_paused = true)]
async fn channels_are_stopped_and_restored_to_their_previous_values() {
    let (cluster, store) = (Cluster::new(), InMemoryTakeoverStore::default());
    let before = [cluster.node(A), cluster.node(B)];
    let running = RunningTask::start(&cluster, store.clone(), takeover());
    let state = running.after(5).await;
    assert_eq!(stopped_channels(&cluster), 6);
    assert_eq!(state.nodes[A].taken_over, takeover().takeover);
    assert_eq!((state.nodes[A].findings.len(), &state.nodes[A].problem), (0, &None));
    assert_eq!(store.records().await.unwrap().len(), 6);
    assert_eq!(cluster.node(A).files, before[0].files, "nothing is written to the files");
    assert_eq!(cluster.node(A).in_force[MARK_SECTION].len(), 3);
    let changes = cluster.0.borrow().changes;
    running.after(3_600).await;
    assert_eq!(cluster.0.borrow().changes, changes, "correct values are left alone");
    running.stop().await;
    assert_eq!([cluster.node(A), cluster.node(B)], before);
    assert_eq!(store.records().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_node_is_taken_over_again_and_restored_to_its_files() {
    let (cluster, store) = (Cluster::new(), InMemoryTakeoverStore::default());
    let running = RunningTask::start(&cluster, store.clone(), takeover());
    running.after(5).await;
    cluster.change(|state| {
        put(&mut state.nodes.get_mut(A).unwrap().files, "smoosh.ratio_dbs", "concurrency", "4");
    });
    cluster.restart(A);
    assert_eq!(stopped_channels(&cluster), 3);
    running.after(31).await;
    assert_eq!(stopped_channels(&cluster), 6);
    running.stop().await;
    assert_eq!(cluster.value(A, "ratio_dbs").as_deref(), Some("4"));
    assert_eq!(
        cluster.value(A, "slack_dbs"),
        None,
        "the value set by hand was lost with the restart"
    );
    assert_eq!(store.records().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_value_set_by_hand_is_left_alone() {
    let (cluster, store) = (Cluster::new(), InMemoryTakeoverStore::default());
    let running = RunningTask::start(&cluster, store.clone(), takeover());
    running.after(5).await;
    cluster.change(|state| {
        put(&mut state.nodes.get_mut(A).unwrap().in_force, "smoosh.ratio_dbs", "concurrency", "3");
    });
    let state = running.after(120).await;
    assert_eq!(cluster.value(A, "ratio_dbs").as_deref(), Some("3"));
    assert_eq!(state.nodes[A].taken_over, set_of(&["slack_dbs", "upgrade_dbs"]));
    let why = &state.nodes[A].not_taken_over["ratio_dbs"];
    assert!(why.contains("somebody changed") && why.contains("\"3\""), "{why}");
    running.stop().await;
    assert_eq!(cluster.value(A, "ratio_dbs").as_deref(), Some("3"));
    assert_eq!(cluster.node(A).in_force.get(MARK_SECTION), None);
    assert_eq!(store.records().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_channel_stopped_by_somebody_else_is_not_restored() {
    let (cluster, store) = (Cluster::new(), InMemoryTakeoverStore::default());
    cluster.change(|state| {
        put(&mut state.nodes.get_mut(B).unwrap().in_force, "smoosh.ratio_dbs", "concurrency", "0");
    });
    let before = cluster.node(B);
    let running = RunningTask::start(&cluster, store, takeover());
    let state = running.after(5).await;
    assert_eq!(state.nodes[B].taken_over, set_of(&["slack_dbs", "upgrade_dbs"]));
    assert!(state.nodes[B].findings.is_empty() && state.nodes[B].not_taken_over.is_empty());
    running.stop().await;
    assert_eq!(cluster.node(B), before);
}

#[tokio::test(start_paused = true)]
async fn a_reload_restores_removed_channels_and_reports_contested_ones() {
    let cluster = Cluster::new();
    let before = [cluster.node(A), cluster.node(B)];
    let running = RunningTask::start(&cluster, InMemoryTakeoverStore::default(), takeover());
    running.after(5).await;
    let fewer = TakeoverSettings { takeover: set_of(&["ratio_dbs"]), ..takeover() };
    running.settings.send_replace(Arc::new(fewer));
    let state = running.after(1).await;
    assert_eq!(stopped_channels(&cluster), 2);
    assert_eq!(state.nodes[A].findings.len(), 0, "restored channels are detected in the next pass");
    let state = running.after(31).await;
    let [slack, upgrade] = state.nodes[B].findings.as_slice() else { panic!("{state:?}") };
    assert!(slack.contains("channel slack_dbs on couchdb@b"), "{slack}");
    assert!(upgrade.contains("smoosh.mode takeover"), "{upgrade}");
    // The process now only advises, and still restores what it took over.
    running.settings.send_replace(Arc::default());
    let state = running.after(1).await;
    assert_eq!([cluster.node(A), cluster.node(B)], before);
    assert!(state.nodes.values().all(|node| *node == NodeTakeover::default()), "{state:?}");
}

/// Up to CouchDB 3.2 a configured list replaces the built-in channels; since 3.3 it adds to them.
#[tokio::test(start_paused = true)]
async fn channel_unknown_to_smoosh_is_neither_contested_nor_taken_over() {
    let cluster = Cluster::new();
    cluster.change(|state| {
        for node in state.nodes.values_mut() {
            put(&mut node.in_force, "smoosh", "db_channels", "big_dbs");
        }
        state.nodes.get_mut(B).unwrap().version = "3.2.1";
    });
    let settings = TakeoverSettings {
        enforce: true,
        takeover: BTreeSet::new(),
        enforced: set_of(&["ratio_dbs", "big_dbs", "dbs"]),
    };
    let running = RunningTask::start(&cluster, InMemoryTakeoverStore::default(), settings.clone());
    let state = running.after(5).await;
    assert_eq!(state.nodes[A].contested, set_of(&["ratio_dbs", "big_dbs"]));
    assert_eq!(state.nodes[B].contested, set_of(&["big_dbs"]));
    let takeover = set_of(&["big_dbs", "dbs"]);
    running.settings.send_replace(Arc::new(TakeoverSettings { takeover, ..settings }));
    let state = running.after(1).await;
    assert_eq!(state.nodes[B].taken_over, set_of(&["big_dbs"]));
    assert_eq!(cluster.value(B, "dbs"), None);
    let why = &state.nodes[B].not_taken_over["dbs"];
    let has = "it has big_dbs, ratio_views, slack_views, upgrade_views";
    assert!(why.contains("no channel dbs") && why.ends_with(has), "{why}");
    assert!(state.nodes[B].findings.contains(why));
    cluster.change(|state| state.nodes.get_mut(B).unwrap().version = "");
    let state = running.after(31).await;
    assert!(!state.nodes[B].not_taken_over.contains_key("dbs"), "the channels of b are not known");
}

#[tokio::test(start_paused = true)]
async fn advise_mode_leaves_channels_stopped_by_a_killed_process() {
    let (cluster, store) = (Cluster::new(), InMemoryTakeoverStore::default());
    let mut killed = RunningTask::start(&cluster, store.clone(), takeover());
    killed.after(5).await;
    killed.tasks.abort_all();
    let state_before = (cluster.node(A), cluster.0.borrow().changes);
    let running = RunningTask::start(&cluster, store.clone(), TakeoverSettings::default());
    let state = running.after(3_600).await;
    assert_eq!((cluster.node(A), cluster.0.borrow().changes), state_before);
    assert_eq!(state.nodes[A].findings.len(), 3);
    assert!(state.nodes[A].findings[0].contains("`recliner restore-smoosh`"));
    running.stop().await;
    assert_eq!((cluster.node(A), cluster.0.borrow().changes), state_before);
    // An enforcing process restores what its own store contains, and nothing else.
    let other = RunningTask::start(&cluster, InMemoryTakeoverStore::default(), coexist());
    other.after(5).await;
    assert_eq!(stopped_channels(&cluster), 6);
    let own = RunningTask::start(&cluster, store, coexist());
    own.after(5).await;
    assert_eq!(stopped_channels(&cluster), 0);
}

/// The process is killed after each possible number of changes. The next one restores everything,
/// with the records or, on another machine, without them.
#[tokio::test(start_paused = true)]
async fn a_process_killed_at_any_moment_leaves_a_restorable_state() {
    for lives in 0..=26 {
        for (store_survives, by_hand) in [(true, false), (false, false), (true, true)] {
            let cluster = Cluster::new();
            let before = [cluster.node(A), cluster.node(B)];
            cluster.change(|state| state.changes_left = Some(lives));
            let store = InMemoryTakeoverStore::default();
            let first = RunningTask::start(&cluster, store.clone(), takeover());
            first.after(5).await;
            // From twelve changes on, it is killed while restoring.
            first.stop().await;
            cluster.change(|state| state.changes_left = None);
            if by_hand {
                for node in [A, B] {
                    restore_node(&cluster, node).await.unwrap();
                }
            } else {
                let store = if store_survives { store } else { InMemoryTakeoverStore::default() };
                let next = RunningTask::start(&cluster, store.clone(), takeover());
                next.after(5).await;
                assert_eq!(stopped_channels(&cluster), 6, "after {lives}");
                next.stop().await;
                assert_eq!(store.records().await.unwrap(), [], "after {lives}");
            }
            let mut after = [cluster.node(A), cluster.node(B)];
            // If it is killed between the two steps of restoring, a value set until the restart is
            // replaced by the one in the files.
            let slack = || "smoosh.slack_dbs".to_owned();
            if !after[0].in_force.contains_key(&slack()) {
                after[0].in_force.insert(slack(), before[0].in_force[&slack()].clone());
                assert!(lives > 12, "after {lives}");
            }
            assert_eq!(after, before, "after {lives}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unreachable_node_does_not_delay_others() {
    let (cluster, store) = (Cluster::new(), InMemoryTakeoverStore::default());
    let running = RunningTask::start(&cluster, store.clone(), takeover());
    running.after(5).await;
    cluster.change(|state| state.nodes.get_mut(B).unwrap().down = true);
    let state = running.after(40).await;
    assert_eq!(state.nodes[B].problem.as_deref(), Some("couchdb@b is down"));
    assert_eq!(state.nodes[A].taken_over.len(), 3);
    let start = Instant::now();
    running.stop().await;
    assert!(start.elapsed() < Duration::from_secs(20));
    assert_eq!(cluster.value(A, "ratio_dbs").as_deref(), Some("2"));
    let records = store.records().await.unwrap();
    assert!(records.len() == 3 && records.iter().all(|it| it.node == B), "{records:?}");
}

/// A store in which no record can be written.
#[derive(Clone, Debug)]
struct FullTakeoverStore;

impl TakeoverStore for FullTakeoverStore {
    fn records(&self) -> BoxFuture<'_, Result<Vec<TakeoverRecord>, String>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }
    fn insert(&self, _taken: TakeoverRecord) -> BoxFuture<'_, Result<(), String>> {
        std::future::ready(Err("the disk is full".to_owned())).boxed()
    }
    fn remove(&self, _taken: TakeoverRecord) -> BoxFuture<'_, Result<(), String>> {
        std::future::ready(Err("the disk is full".to_owned())).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn takes_over_nothing_that_cannot_be_recorded() {
    let cluster = Cluster::new();
    let running = RunningTask::start(&cluster, FullTakeoverStore, takeover());
    let state = running.after(5).await;
    assert_eq!((stopped_channels(&cluster), cluster.0.borrow().changes), (0, 0));
    assert_eq!(state.nodes[A].not_taken_over.len(), 3);
    assert_eq!(state.nodes[A].problem.as_deref(), Some("the disk is full"));
}

#[tokio::test(start_paused = true)]
async fn restore_command_needs_only_the_marks() {
    let cluster = Cluster::new();
    let before = cluster.node(A);
    let mut killed = RunningTask::start(&cluster, InMemoryTakeoverStore::default(), takeover());
    killed.after(5).await;
    killed.tasks.abort_all();
    cluster.change(|state| {
        put(
            &mut state.nodes.get_mut(A).unwrap().in_force,
            "smoosh.upgrade_dbs",
            "concurrency",
            "9",
        );
    });
    let restored = |channel: &str, value: Option<&str>, was_stopped| RestoredChannel {
        node: A.to_owned(),
        channel: channel.to_owned(),
        value: value.map(str::to_owned),
        was_stopped,
    };
    assert_eq!(
        restore_node(&cluster, A).await.unwrap(),
        [
            restored("ratio_dbs", Some("2"), true),
            restored("slack_dbs", Some("7"), true),
            restored("upgrade_dbs", Some("9"), false),
        ]
    );
    assert_eq!(restore_node(&cluster, A).await.unwrap(), []);
    let mut after = cluster.node(A);
    after.in_force.remove("smoosh.upgrade_dbs");
    assert_eq!(after, before);
}
