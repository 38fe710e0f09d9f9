//! The task that probes every served node and publishes which nodes hold back starts.
//!
//! Owns the gates. A node that has not answered yet is not asked again; the state of a node that
//! was down starts from empty when it is back.

use super::{
    NodePressure, NodeReading, Pressures, Probe, Signal,
    gate::{GateChange, PressureGate},
    gate_log::GateLog,
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
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// While the cluster is quiet, only one of this many probes is sent.
const QUIET_PROBE_DIVISOR: u32 = 6;

/// The task's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PressureSettings {
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
struct NodePressureState {
    name: Arc<str>,
    gate: PressureGate,
    log: GateLog,
    maintenance_since: Option<Moment>,
    is_pending: bool,
    /// Whether any probe was answered.
    has_answered: bool,
}

/// Owns the gates.
#[derive(Debug)]
pub struct Task {
    clock: Clock,
    probe: watch::Receiver<Arc<dyn Probe>>,
    settings: watch::Receiver<Arc<PressureSettings>>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    jobs: watch::Receiver<Arc<Jobs>>,
    pressures: watch::Sender<Arc<Pressures>>,
    nodes: BTreeMap<NodeIx, NodePressureState>,
    ticks: u32,
}

type ProbeResult = (NodeIx, NodeReading);

enum Event {
    Stop,
    Settings,
    Tick,
    Answered(ProbeResult),
}

impl Task {
    /// Makes the task and its handle.
    #[must_use]
    pub fn new(
        clock: Clock,
        probe: watch::Receiver<Arc<dyn Probe>>,
        settings: watch::Receiver<Arc<PressureSettings>>,
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
        let mut answers: FuturesUnordered<BoxFuture<'static, ProbeResult>> =
            FuturesUnordered::new();
        let mut tick = time::interval(PROBE_INTERVAL);
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
                    self.update_gates();
                }
                Event::Answered((node, look)) => self.record_reading(node, look),
                Event::Tick => {
                    self.update_nodes();
                    if self.is_probe_due() {
                        self.probe_nodes(&answers);
                    }
                    self.update_gates();
                }
            }
            self.publish();
        }
    }

    /// Keeps the nodes that are served and not known to be down.
    fn update_nodes(&mut self) {
        let snapshot = Arc::clone(&self.snapshots.borrow_and_update());
        let mut old = std::mem::take(&mut self.nodes);
        for (at, node) in snapshot.nodes().iter().enumerate() {
            let asked =
                node.is_served && node.is_member && !node.files_only && node.is_up != Some(false);
            let Some(ix) = NodeIx::from_usize(at).filter(|ix| asked && *ix != NodeIx::CLUSTER)
            else {
                continue;
            };
            let known = old.remove(&ix).unwrap_or_else(|| NodePressureState {
                name: Arc::clone(&node.name),
                gate: PressureGate::default(),
                log: GateLog::default(),
                maintenance_since: None,
                is_pending: false,
                has_answered: false,
            });
            self.nodes.insert(ix, known);
        }
    }

    /// Whether a probe is due. While no client writes and no job runs, an occasional probe is
    /// enough.
    fn is_probe_due(&mut self) -> bool {
        let quiet = self.snapshots.borrow().is_quiet() && self.jobs.borrow().list.is_empty();
        self.ticks = if quiet { self.ticks.wrapping_add(1) } else { 0 };
        self.ticks.is_multiple_of(QUIET_PROBE_DIVISOR)
    }

    fn probe_nodes(&mut self, answers: &FuturesUnordered<BoxFuture<'static, ProbeResult>>) {
        let probe = Arc::clone(&self.probe.borrow());
        for (ix, known) in self.nodes.iter_mut().filter(|(_, known)| !known.is_pending) {
            known.is_pending = true;
            let ix = *ix;
            answers.push(probe.probe(&known.name).map(move |look| (ix, look)).boxed());
        }
    }

    fn record_reading(&mut self, node: NodeIx, look: NodeReading) {
        let jobs = Arc::clone(&self.jobs.borrow());
        let Some(known) = self.nodes.get_mut(&node) else { return };
        known.is_pending = false;
        known.has_answered |= look != NodeReading::default();
        known.log.record(&look);
        let polled = jobs.polled_nodes.iter().any(|(polled, _)| *polled == node);
        let indexers = polled.then(|| jobs.builds_on(node) as f64);
        for signal in Signal::ALL {
            let reading = match signal {
                Signal::ProbeLatency => look.latency.map(|latency| latency.as_secs_f64()),
                Signal::RunQueue => look.run_queue.map(|length| length as f64),
                Signal::ReplicationBacklog => look.replication_backlog.map(|count| count as f64),
                Signal::Indexers => indexers,
            };
            known.gate.record(signal, reading);
        }
        match look.maintenance {
            Some(true) => {
                known.maintenance_since.get_or_insert_with(|| self.clock.now());
            }
            Some(false) => known.maintenance_since = None,
            None => {}
        }
        self.update_gates();
    }

    fn update_gates(&mut self) {
        let settings = Arc::clone(&self.settings.borrow());
        let now = self.clock.now();
        for known in self.nodes.values_mut() {
            let told = known.gate.update(&settings.pressure, now);
            for told in known.log.changes_to_log(told, &known.gate.signals()) {
                log_change(&known.name, told, &settings.pressure);
            }
        }
    }

    fn publish(&self) {
        let settings = Arc::clone(&self.settings.borrow());
        let nodes = self.nodes.iter().filter(|(_, known)| known.has_answered).map(|(ix, known)| {
            let pressure = NodePressure {
                signals: known.gate.signals(),
                hold: known.gate.hold(&settings.pressure),
                maintenance_since: known.maintenance_since,
                is_silent: known.log.is_silent(),
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

fn log_change(node: &str, told: GateChange, pressure: &limits::Pressure) {
    match told {
        GateChange::Closed(signal, reads) => {
            tracing::info!(
                node,
                signal = signal.label(),
                reads,
                "pressure: no compaction starts on this node"
            );
        }
        GateChange::Opened(signal, reads) => {
            tracing::info!(node, signal = signal.label(), reads, "pressure is over");
        }
        GateChange::HoldExpired(signal, reads) => {
            let after = duration::format_rounded(pressure.hold_at_most);
            tracing::warn!(node, signal = signal.label(), reads, %after, "pressure has held back starts for pressure.hold_at_most; compactions start despite it until it has fallen and risen again");
        }
    }
}

#[cfg(test)]
mod tests;
