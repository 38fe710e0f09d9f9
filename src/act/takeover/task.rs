//! The task that keeps smoosh channels stopped while this program enforces in their place, and
//! restores them when it no longer does.
//!
//! Owns the set of channels taken over by this process. Runs one pass at a time over all nodes; a
//! node that does not answer delays no other, and is read again in the next pass.

use super::{
    ConfigApi, NodeTakeover, TakeoverRecord, TakeoverStore, Takeovers, log_lines,
    node::{NodePass, PassResult},
};
use crate::{
    model::{
        channel::Mode,
        settings::{self, work::SmooshMode},
    },
    sources::nodes_changed,
    table::Snapshot,
};
use futures::future::join_all;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, time};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Interval between passes while channels are taken over. Smoosh may work that long after an
/// unnoticed restart of a node.
const ACTIVE_INTERVAL: Duration = Duration::from_secs(30);
/// Interval otherwise, when only takeovers of others are detected.
const IDLE_INTERVAL: Duration = Duration::from_secs(300);
/// Time limit for one node. The next pass continues with what was interrupted.
const NODE_TIMEOUT: Duration = Duration::from_secs(8);
/// Number of attempts to restore channels at the end.
const RESTORE_ATTEMPTS: u32 = 2;

/// Settings of the task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakeoverSettings {
    /// Whether anything may be changed, i.e. the process enforces.
    pub enforce: bool,
    /// Smoosh channels to stop; empty if smoosh coexists with this program.
    pub takeover: BTreeSet<String>,
    /// Channels in which this program enforces.
    pub enforced: BTreeSet<String>,
}

impl From<&settings::Settings> for TakeoverSettings {
    fn from(settings: &settings::Settings) -> Self {
        let enforce = settings.mode == Mode::Enforce;
        let takes = enforce && settings.smoosh.mode == SmooshMode::Takeover;
        let channels = settings.channels.list.iter();
        let acting = channels.filter(|it| settings.mode_of(it) == Mode::Enforce);
        Self {
            enforce,
            takeover: settings.smoosh.takeover.iter().filter(|_| takes).cloned().collect(),
            enforced: acting.map(|channel| channel.name.to_string()).collect(),
        }
    }
}

/// Handle for reading the state of smoosh.
#[derive(Clone, Debug)]
pub struct TakeoverHandle {
    /// Result of the last pass.
    pub takeovers: watch::Receiver<Arc<Takeovers>>,
}

/// The task that owns the channels taken over by this process.
#[derive(Debug)]
pub struct TakeoverTask {
    clock: Clock,
    api: watch::Receiver<Arc<dyn ConfigApi>>,
    store: Arc<dyn TakeoverStore>,
    settings: watch::Receiver<Arc<TakeoverSettings>>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    takeovers: watch::Sender<Arc<Takeovers>>,
    held: BTreeMap<String, BTreeSet<String>>,
    left_to_operator: BTreeMap<String, BTreeSet<String>>,
    /// Channels that this process ever tried to take over.
    ever_tried: BTreeSet<String>,
    /// The nodes of the last pass.
    known_nodes: BTreeSet<String>,
}

enum TakeoverEvent {
    Stop,
    Settings,
    Nodes,
    Tick,
}

impl TakeoverTask {
    /// Creates the task and its handle.
    pub fn new(
        clock: Clock,
        api: watch::Receiver<Arc<dyn ConfigApi>>,
        store: Arc<dyn TakeoverStore>,
        settings: watch::Receiver<Arc<TakeoverSettings>>,
        snapshots: watch::Receiver<Arc<Snapshot>>,
    ) -> (Self, TakeoverHandle) {
        let (takeovers, reader) = watch::channel(Arc::default());
        let task = Self {
            clock,
            api,
            store,
            settings,
            snapshots,
            takeovers,
            held: BTreeMap::new(),
            left_to_operator: BTreeMap::new(),
            ever_tried: BTreeSet::new(),
            known_nodes: BTreeSet::new(),
        };
        (task, TakeoverHandle { takeovers: reader })
    }

    /// Runs until `stop`, or until the sender of settings is gone; then restores all channels
    /// within seconds. The client must stay usable until this ends.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut next = time::Instant::now();
        loop {
            // Every arm is cancel-safe. The pass runs after the select and is never interrupted,
            // because everything it wrote must be known.
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => TakeoverEvent::Stop,
                news = self.settings.changed() => if news.is_ok() { TakeoverEvent::Settings } else { TakeoverEvent::Stop },
                () = nodes_changed(&mut self.snapshots, &self.known_nodes) => TakeoverEvent::Nodes,
                () = time::sleep_until(next) => TakeoverEvent::Tick,
            };
            match event {
                TakeoverEvent::Stop => break,
                TakeoverEvent::Settings => self.left_to_operator.clear(),
                TakeoverEvent::Nodes | TakeoverEvent::Tick => {}
            }
            let settings = Arc::clone(&self.settings.borrow());
            self.run_pass(&settings).await;
            let is_active = !settings.takeover.is_empty() || self.holds_any();
            next = time::Instant::now() + if is_active { ACTIVE_INTERVAL } else { IDLE_INTERVAL };
        }
        self.restore_all().await;
    }

    /// Restores everything that this process took over, and logs what no answer confirmed.
    async fn restore_all(&mut self) {
        for _ in 0..RESTORE_ATTEMPTS {
            if self.ever_tried.is_empty() {
                return;
            }
            self.run_pass(&TakeoverSettings::default()).await;
            let state = Arc::clone(&self.takeovers.borrow());
            if !self.holds_any() && state.nodes.values().all(|node| node.problem.is_none()) {
                return;
            }
        }
        for (node, channels) in self.held.iter().filter(|(_, channels)| !channels.is_empty()) {
            let channels: Vec<&str> = channels.iter().map(String::as_str).collect();
            tracing::error!(
                node,
                channels = channels.join(" "),
                "the node did not confirm in time that its smoosh channels are restored: run `recliner restore-smoosh`, or restart CouchDB there"
            );
        }
    }

    fn holds_any(&self) -> bool {
        self.held.values().any(|channels| !channels.is_empty())
    }

    /// Passes over all nodes at once, and publishes what was found.
    async fn run_pass(&mut self, settings: &TakeoverSettings) {
        self.known_nodes = self.snapshots.borrow().reachable_nodes();
        self.ever_tried.extend(settings.takeover.iter().cloned());
        let (records, store_problem) = match self.store.records().await {
            Ok(records) => (by_node(records), None),
            Err(why) => (BTreeMap::new(), Some(why)),
        };
        // Without the store nothing new is taken over, because the takeover could not be recorded.
        let wanted = if store_problem.is_none() {
            settings.takeover.clone()
        } else {
            let held = self.held.values().flatten();
            held.filter(|channel| settings.takeover.contains(*channel)).cloned().collect()
        };
        let held = self.held.iter().filter(|(_, held)| !held.is_empty()).map(|(node, _)| node);
        let nodes: BTreeSet<String> =
            self.known_nodes.iter().chain(records.keys()).chain(held).cloned().collect();
        let passes = self.pass_nodes(&nodes, &wanted, &records, settings).await;
        self.apply_passes(nodes.into_iter().zip(passes), store_problem.as_deref());
    }

    /// Passes over all nodes at once; the results are in the order of the nodes.
    async fn pass_nodes(
        &self,
        nodes: &BTreeSet<String>,
        wanted: &BTreeSet<String>,
        records: &BTreeMap<String, NodeRecords>,
        settings: &TakeoverSettings,
    ) -> Vec<PassResult> {
        let (no_channels, no_records) = (BTreeSet::new(), BTreeMap::new());
        let api = Arc::clone(&self.api.borrow());
        let passes = nodes.iter().map(async |node| {
            let pass = NodePass {
                node,
                wanted,
                enforced: &settings.enforced,
                records: records.get(node).unwrap_or(&no_records),
                held: self.held.get(node).unwrap_or(&no_channels),
                left_to_operator: self.left_to_operator.get(node).unwrap_or(&no_channels),
                may_change: settings.enforce,
                ever_tried: &self.ever_tried,
                now: self.clock.now(),
                api: api.as_ref(),
                store: self.store.as_ref(),
            };
            time::timeout(NODE_TIMEOUT, pass.run()).await.unwrap_or_else(|_| PassResult {
                state: NodeTakeover {
                    problem: Some(format!("{node} did not answer within {NODE_TIMEOUT:?}")),
                    ..NodeTakeover::default()
                },
                held: pass.held.clone(),
                left_to_operator: pass.left_to_operator.clone(),
            })
        });
        join_all(passes).await
    }

    fn apply_passes(
        &mut self,
        passes: impl Iterator<Item = (String, PassResult)>,
        store_problem: Option<&str>,
    ) {
        let mut takeovers = Takeovers::default();
        for (node, PassResult { mut state, held, left_to_operator }) in passes {
            if let Some(why) = store_problem {
                state.problem.get_or_insert_with(|| why.to_owned());
            }
            self.held.insert(node.clone(), held);
            self.left_to_operator.insert(node.clone(), left_to_operator);
            takeovers.nodes.insert(node, state);
        }
        log_lines::changed_lines(&self.takeovers.borrow(), &takeovers)
            .iter()
            .for_each(log_lines::LogLine::log);
        self.takeovers.send_if_modified(|published| {
            let changed = **published != takeovers;
            *published = Arc::new(takeovers);
            changed
        });
    }
}

/// The records of a node, by channel.
type NodeRecords = BTreeMap<String, TakeoverRecord>;

fn by_node(records: Vec<TakeoverRecord>) -> BTreeMap<String, NodeRecords> {
    let mut nodes: BTreeMap<String, NodeRecords> = BTreeMap::new();
    for record in records {
        let node = nodes.entry(record.node.clone()).or_default();
        node.insert(record.channel.clone(), record);
    }
    nodes
}

#[cfg(test)]
mod tests;
