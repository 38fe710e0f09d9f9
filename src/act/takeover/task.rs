//! The task that keeps smoosh channels stopped while this program enforces in their place, and
//! restores them when it no longer does.
//!
//! Owns the set of channels taken over by this process. Runs one pass at a time over all nodes; a
//! node that does not answer delays no other, and is read again in the next pass.

use super::{
    Hands, Ledger, NodeState, TakenOver, Takeovers, lines,
    node::{Pass, Passed},
};
use crate::{
    model::{
        channel::Mode,
        settings::{self, work::SmooshMode},
    },
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
const KEEPING: Duration = Duration::from_secs(30);
/// Interval otherwise, when only takeovers of others are detected.
const LOOKING: Duration = Duration::from_secs(300);
/// Time limit for one node. The next pass continues with what was interrupted.
const WITHIN: Duration = Duration::from_secs(8);
/// Number of attempts to restore channels at the end.
const TRIES: u32 = 2;

/// Settings of the task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether anything may be changed, i.e. the process enforces.
    pub enforce: bool,
    /// Smoosh channels to stop; empty if smoosh coexists with this program.
    pub takeover: BTreeSet<String>,
    /// Channels in which this program enforces.
    pub acting: BTreeSet<String>,
}

impl From<&settings::Settings> for Settings {
    fn from(settings: &settings::Settings) -> Self {
        let enforce = settings.mode == Mode::Enforce;
        let takes = enforce && settings.smoosh.mode == SmooshMode::Takeover;
        let channels = settings.channels.list.iter();
        let acting = channels.filter(|it| settings.mode_of(it) == Mode::Enforce);
        Self {
            enforce,
            takeover: settings.smoosh.takeover.iter().filter(|_| takes).cloned().collect(),
            acting: acting.map(|channel| channel.name.to_string()).collect(),
        }
    }
}

/// Handle for reading the state of smoosh.
#[derive(Clone, Debug)]
pub struct Handle {
    /// Result of the last pass.
    pub takeovers: watch::Receiver<Arc<Takeovers>>,
}

/// The task that owns the channels taken over by this process.
#[derive(Debug)]
pub struct Task {
    clock: Clock,
    hands: watch::Receiver<Arc<dyn Hands>>,
    ledger: Arc<dyn Ledger>,
    settings: watch::Receiver<Arc<Settings>>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    takeovers: watch::Sender<Arc<Takeovers>>,
    held: BTreeMap<String, BTreeSet<String>>,
    yielded: BTreeMap<String, BTreeSet<String>>,
    /// Channels that this process ever tried to take over.
    tried: BTreeSet<String>,
    /// The nodes of the last pass.
    seen: BTreeSet<String>,
}

enum Event {
    Stop,
    Settings,
    Nodes,
    Tick,
}

impl Task {
    /// Creates the task and its handle.
    #[must_use]
    pub fn new(
        clock: Clock,
        hands: watch::Receiver<Arc<dyn Hands>>,
        ledger: Arc<dyn Ledger>,
        settings: watch::Receiver<Arc<Settings>>,
        snapshots: watch::Receiver<Arc<Snapshot>>,
    ) -> (Self, Handle) {
        let (takeovers, reader) = watch::channel(Arc::default());
        let task = Self {
            clock,
            hands,
            ledger,
            settings,
            snapshots,
            takeovers,
            held: BTreeMap::new(),
            yielded: BTreeMap::new(),
            tried: BTreeSet::new(),
            seen: BTreeSet::new(),
        };
        (task, Handle { takeovers: reader })
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
                () = stop.cancelled() => Event::Stop,
                news = self.settings.changed() => if news.is_ok() { Event::Settings } else { Event::Stop },
                () = Self::others(&mut self.snapshots, &self.seen) => Event::Nodes,
                () = time::sleep_until(next) => Event::Tick,
            };
            let settings = Arc::clone(&self.settings.borrow());
            match event {
                Event::Stop => break,
                Event::Settings => self.yielded.clear(),
                Event::Nodes | Event::Tick => {}
            }
            self.pass(&settings).await;
            let keeping = !settings.takeover.is_empty() || self.holds();
            next = time::Instant::now() + if keeping { KEEPING } else { LOOKING };
        }
        for _ in 0..TRIES {
            if self.tried.is_empty() {
                return;
            }
            self.pass(&Settings::default()).await;
            let state = Arc::clone(&self.takeovers.borrow());
            if !self.holds() && state.nodes.values().all(|node| node.problem.is_none()) {
                return;
            }
        }
        for (node, channels) in self.held.iter().filter(|(_, channels)| !channels.is_empty()) {
            let channels: Vec<&str> = channels.iter().map(String::as_str).collect();
            tracing::error!(
                node,
                channels = channels.join(" "),
                "smoosh channels could not be restored: run `recliner restore-smoosh`, or restart CouchDB there"
            );
        }
    }

    fn holds(&self) -> bool {
        self.held.values().any(|channels| !channels.is_empty())
    }

    /// Waits until the set of reachable nodes differs from the last pass.
    async fn others(snapshots: &mut watch::Receiver<Arc<Snapshot>>, seen: &BTreeSet<String>) {
        // The service stops the sender of snapshots and this task together.
        if snapshots.wait_for(|snapshot| served(snapshot) != *seen).await.is_err() {
            std::future::pending().await
        }
    }

    async fn pass(&mut self, settings: &Settings) {
        self.seen = served(&self.snapshots.borrow());
        self.tried.extend(settings.takeover.iter().cloned());
        let (records, trouble) = match self.ledger.taken().await {
            Ok(records) => (records, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let mut by_node: BTreeMap<String, BTreeMap<String, TakenOver>> = BTreeMap::new();
        for record in records {
            let of_node = by_node.entry(record.node.clone()).or_default();
            of_node.insert(record.channel.clone(), record);
        }
        let held = self.held.iter().filter(|(_, held)| !held.is_empty()).map(|(node, _)| node);
        let nodes: BTreeSet<String> =
            self.seen.iter().chain(by_node.keys()).chain(held).cloned().collect();
        // Without the store nothing new is taken over, because it could not be recorded.
        let wanted = if trouble.is_some() {
            self.held
                .values()
                .flatten()
                .filter(|it| settings.takeover.contains(*it))
                .cloned()
                .collect()
        } else {
            settings.takeover.clone()
        };
        let (none, no_records) = (BTreeSet::new(), BTreeMap::new());
        let hands = Arc::clone(&self.hands.borrow());
        let passes = nodes.iter().map(async |node| {
            let pass = Pass {
                node,
                wanted: &wanted,
                acting: &settings.acting,
                records: by_node.get(node).unwrap_or(&no_records),
                held: self.held.get(node).unwrap_or(&none),
                yielded: self.yielded.get(node).unwrap_or(&none),
                may: settings.enforce,
                tried: &self.tried,
                now: self.clock.now(),
            };
            let run = pass.run(hands.as_ref(), self.ledger.as_ref());
            time::timeout(WITHIN, run).await.unwrap_or_else(|_| Passed {
                state: NodeState {
                    problem: Some(format!("{node} did not answer within {WITHIN:?}")),
                    ..NodeState::default()
                },
                held: pass.held.clone(),
                yielded: pass.yielded.clone(),
            })
        });
        let passed = join_all(passes).await;
        let mut takeovers = Takeovers::default();
        for (node, Passed { mut state, held, yielded }) in nodes.iter().zip(passed) {
            if let Some(why) = &trouble {
                state.problem.get_or_insert_with(|| why.clone());
            }
            self.held.insert(node.clone(), held);
            self.yielded.insert(node.clone(), yielded);
            takeovers.nodes.insert(node.clone(), state);
        }
        lines::news(&self.takeovers.borrow(), &takeovers).iter().for_each(lines::Line::write);
        self.takeovers.send_replace(Arc::new(takeovers));
    }
}

/// The served nodes that are not known to be down.
fn served(snapshot: &Snapshot) -> BTreeSet<String> {
    let nodes = snapshot.nodes().iter().skip(1);
    let nodes = nodes.filter(|node| node.served && node.member && !node.files_alone);
    let nodes = nodes.filter(|node| node.up != Some(false));
    nodes.map(|node| node.name.to_string()).collect()
}

#[cfg(test)]
mod tests;
