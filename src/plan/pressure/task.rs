//! The task that probes every served node and publishes which nodes hold back starts.
//!
//! Owns the gates. A node that has not answered yet is not asked again; the state of a node that
//! was down starts from empty when it is back.

use super::{
    Look, NodePressure, Pressures, Probe, Signal,
    gate::{Gate, Told},
    reports::Reports,
};
use crate::{
    jobs::Jobs,
    model::settings::limits,
    table::{NodeIx, Snapshot},
    text::duration,
};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{self, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// Interval between probes.
const PERIOD: Duration = Duration::from_secs(10);

/// While the cluster is quiet, only one of this many probes is sent.
const QUIET: u32 = 6;

/// The task's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The marks, and the maximum hold.
    pub pressure: limits::Pressure,
}

/// Access to the published pressures.
#[derive(Clone, Debug)]
pub struct Handle {
    /// The pressures as last published.
    pub pressures: watch::Receiver<Arc<Pressures>>,
}

/// The state of one node.
#[derive(Debug)]
struct Known {
    name: Arc<str>,
    gate: Gate,
    reports: Reports,
    maintenance_since: Option<Moment>,
    asking: bool,
    /// Whether any probe was answered.
    answered: bool,
}

/// Owns the gates.
#[derive(Debug)]
pub struct Task {
    clock: Clock,
    probe: watch::Receiver<Arc<dyn Probe>>,
    settings: watch::Receiver<Arc<Settings>>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    jobs: watch::Receiver<Arc<Jobs>>,
    pressures: watch::Sender<Arc<Pressures>>,
    nodes: BTreeMap<NodeIx, Known>,
    ticks: u32,
}

type Answered = (NodeIx, Look);

enum Event {
    Stop,
    Settings,
    Tick,
    Answered(Answered),
}

impl Task {
    /// Makes the task and its handle.
    #[must_use]
    pub fn new(
        clock: Clock,
        probe: watch::Receiver<Arc<dyn Probe>>,
        settings: watch::Receiver<Arc<Settings>>,
        snapshots: watch::Receiver<Arc<Snapshot>>,
        jobs: watch::Receiver<Arc<Jobs>>,
    ) -> (Self, Handle) {
        let (pressures, reader) = watch::channel(Arc::default());
        let nodes = BTreeMap::new();
        let task = Self { clock, probe, settings, snapshots, jobs, pressures, nodes, ticks: 0 };
        (task, Handle { pressures: reader })
    }

    /// Probes until `stop`, or until the sender of settings is dropped.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut answers: FuturesUnordered<BoxFuture<'static, Answered>> = FuturesUnordered::new();
        let mut tick = time::interval(PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Every arm is cancel-safe, and no arm's body awaits.
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => Event::Stop,
                news = self.settings.changed() => if news.is_ok() { Event::Settings } else { Event::Stop },
                Some(answered) = answers.next() => Event::Answered(answered),
                _ = tick.tick() => Event::Tick,
            };
            match event {
                Event::Stop => return,
                Event::Settings => {
                    self.settings.mark_unchanged();
                    self.judge();
                }
                Event::Answered((node, look)) => self.take(node, look),
                Event::Tick => {
                    self.follow();
                    if self.is_time() {
                        self.ask(&answers);
                    }
                    self.judge();
                }
            }
            self.publish();
        }
    }

    /// Keeps the nodes that are served and not known to be down.
    fn follow(&mut self) {
        let snapshot = Arc::clone(&self.snapshots.borrow_and_update());
        let mut old = std::mem::take(&mut self.nodes);
        for (at, node) in snapshot.nodes().iter().enumerate() {
            let asked = node.served && node.member && !node.files_alone && node.up != Some(false);
            let Some(ix) = NodeIx::from_usize(at).filter(|ix| asked && *ix != NodeIx::CLUSTER)
            else {
                continue;
            };
            let known = old.remove(&ix).unwrap_or_else(|| Known {
                name: Arc::clone(&node.name),
                gate: Gate::default(),
                reports: Reports::default(),
                maintenance_since: None,
                asking: false,
                answered: false,
            });
            self.nodes.insert(ix, known);
        }
    }

    /// Whether a probe is due. While no client writes and no job runs, an occasional probe is
    /// enough.
    fn is_time(&mut self) -> bool {
        let quiet = self.snapshots.borrow().is_quiet() && self.jobs.borrow().list.is_empty();
        self.ticks = if quiet { self.ticks.wrapping_add(1) } else { 0 };
        self.ticks.is_multiple_of(QUIET)
    }

    fn ask(&mut self, answers: &FuturesUnordered<BoxFuture<'static, Answered>>) {
        let probe = Arc::clone(&self.probe.borrow());
        for (ix, known) in self.nodes.iter_mut().filter(|(_, known)| !known.asking) {
            known.asking = true;
            let ix = *ix;
            answers.push(probe.look(&known.name).map(move |look| (ix, look)).boxed());
        }
    }

    fn take(&mut self, node: NodeIx, look: Look) {
        let jobs = Arc::clone(&self.jobs.borrow());
        let Some(known) = self.nodes.get_mut(&node) else { return };
        known.asking = false;
        known.answered |= look != Look::default();
        known.reports.looked(&look);
        let polled = jobs.polled.iter().any(|(polled, _)| *polled == node);
        let indexers = polled.then(|| jobs.builds_on(node) as f64);
        for signal in Signal::ALL {
            let reading = match signal {
                Signal::ProbeLatency => look.latency.map(|latency| latency.as_secs_f64()),
                Signal::RunQueue => look.run_queue.map(|length| length as f64),
                Signal::ReplicationBacklog => look.backlog.map(|count| count as f64),
                Signal::Indexers => indexers,
            };
            known.gate.see(signal, reading);
        }
        match look.maintenance {
            Some(true) => {
                known.maintenance_since.get_or_insert_with(|| self.clock.now());
            }
            Some(false) => known.maintenance_since = None,
            None => {}
        }
        self.judge();
    }

    fn judge(&mut self) {
        let settings = Arc::clone(&self.settings.borrow());
        let now = self.clock.now();
        for known in self.nodes.values_mut() {
            let told = known.gate.judge(&settings.pressure, now);
            for told in known.reports.report(told, &known.gate.signals()) {
                say(&known.name, told, &settings.pressure);
            }
        }
    }

    fn publish(&self) {
        let settings = Arc::clone(&self.settings.borrow());
        let nodes = self.nodes.iter().filter(|(_, known)| known.answered).map(|(ix, known)| {
            let pressure = NodePressure {
                signals: known.gate.signals(),
                held: known.gate.held(&settings.pressure),
                maintenance_since: known.maintenance_since,
                silent: known.reports.is_silent(),
            };
            (*ix, pressure)
        });
        let pressures = Pressures { nodes: nodes.collect() };
        self.pressures.send_if_modified(|last| {
            let news = **last != pressures;
            if news {
                *last = Arc::new(pressures);
            }
            news
        });
    }
}

fn say(node: &str, told: Told, pressure: &limits::Pressure) {
    match told {
        Told::Shut(signal, reads) => {
            tracing::info!(
                node,
                signal = signal.label(),
                reads,
                "pressure: no compaction starts on this node"
            );
        }
        Told::LetGo(signal, reads) => {
            tracing::info!(node, signal = signal.label(), reads, "pressure is over");
        }
        Told::HeldEnough(signal, reads) => {
            let after = duration::shown(pressure.hold_at_most);
            tracing::warn!(node, signal = signal.label(), reads, %after, "pressure has held back starts for pressure.hold_at_most; compactions start despite it until it has fallen and risen again");
        }
    }
}

#[cfg(test)]
mod tests;
