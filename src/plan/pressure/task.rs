//! The task that probes every served node and publishes which nodes hold back starts.
//!
//! Owns the gates. A node with a pending probe is not probed again; the state of a node that was
//! down is reset when it is back.

use super::{
    NodePressure, NodeReading, Pressures, Probe, Signal,
    gate::{GateChange, PressureGate, marks_of},
    gate_log::GateLog,
};
use crate::{
    jobs::Jobs,
    model::settings::limits,
    table::{NodeIx, Snapshot},
    tasks::publish_if_changed,
    text::Label,
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

const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// While the cluster is quiet, only one in this many probes is sent.
const QUIET_PROBE_DIVISOR: u32 = 6;

/// The state of one node.
#[derive(Debug)]
struct NodePressureState {
    name: Arc<str>,
    gate: PressureGate,
    log: GateLog,
    maintenance_since: Option<Moment>,
    upgrade_since: Option<Moment>,
    is_pending: bool,
    /// Whether any probe was answered.
    has_answered: bool,
}

/// Owns the gates.
#[derive(Debug)]
pub(crate) struct PressureTask {
    clock: Clock,
    probe: watch::Receiver<Arc<dyn Probe>>,
    settings: watch::Receiver<Arc<limits::Pressure>>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    jobs: watch::Receiver<Arc<Jobs>>,
    pressures: watch::Sender<Arc<Pressures>>,
    nodes: BTreeMap<NodeIx, NodePressureState>,
    /// Pending probes.
    probes: FuturesUnordered<BoxFuture<'static, ProbeResult>>,
    ticks: u32,
}

type ProbeResult = (NodeIx, NodeReading);

enum Event {
    Settings,
    Tick,
    Answered(ProbeResult),
}

impl PressureTask {
    /// Creates the task and a receiver of the pressures.
    #[must_use]
    pub(crate) fn new(
        clock: Clock,
        probe: watch::Receiver<Arc<dyn Probe>>,
        settings: watch::Receiver<Arc<limits::Pressure>>,
        snapshots: watch::Receiver<Arc<Snapshot>>,
        jobs: watch::Receiver<Arc<Jobs>>,
    ) -> (Self, watch::Receiver<Arc<Pressures>>) {
        let (pressures, reader) = watch::channel(Arc::default());
        let task = Self {
            clock,
            probe,
            settings,
            snapshots,
            jobs,
            pressures,
            nodes: BTreeMap::new(),
            probes: FuturesUnordered::new(),
            ticks: 0,
        };
        (task, reader)
    }

    /// Probes until `stop`, or until the sender of settings is dropped.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut tick = time::interval(PROBE_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Every arm is cancel-safe, and no arm's body awaits.
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = self.settings.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    Event::Settings
                }
                Some(answer) = self.probes.next() => Event::Answered(answer),
                _ = tick.tick() => Event::Tick,
            };
            self.handle(event);
            self.publish();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Settings => {
                self.settings.mark_unchanged();
                self.update_gates();
            }
            Event::Answered((node, reading)) => self.record_reading(node, reading),
            Event::Tick => {
                self.update_nodes();
                if self.is_probe_due() {
                    self.probe_nodes();
                }
                self.update_gates();
            }
        }
    }

    /// Updates the list to the nodes that are served and not known to be down.
    fn update_nodes(&mut self) {
        let snapshot = Arc::clone(&self.snapshots.borrow_and_update());
        let mut old = std::mem::take(&mut self.nodes);
        for (at, node) in snapshot.nodes().iter().enumerate() {
            let is_probed = node.is_served && node.is_member && !node.files_only && !node.is_down();
            let Some(ix) = NodeIx::from_usize(at).filter(|ix| is_probed && *ix != NodeIx::CLUSTER)
            else {
                continue;
            };
            let state = old.remove(&ix).unwrap_or_else(|| NodePressureState {
                name: Arc::clone(&node.name),
                gate: PressureGate::default(),
                log: GateLog::default(),
                maintenance_since: None,
                upgrade_since: None,
                is_pending: false,
                has_answered: false,
            });
            self.nodes.insert(ix, state);
        }
    }

    /// Whether a probe is due. While no client writes and no job runs, occasional probes are
    /// enough.
    fn is_probe_due(&mut self) -> bool {
        let quiet = self.snapshots.borrow().is_quiet() && self.jobs.borrow().list.is_empty();
        self.ticks = if quiet { self.ticks.wrapping_add(1) } else { 0 };
        self.ticks.is_multiple_of(QUIET_PROBE_DIVISOR)
    }

    fn probe_nodes(&mut self) {
        let probe = Arc::clone(&self.probe.borrow());
        for (ix, state) in self.nodes.iter_mut().filter(|(_, state)| !state.is_pending) {
            state.is_pending = true;
            let ix = *ix;
            self.probes.push(probe.probe(&state.name).map(move |reading| (ix, reading)).boxed());
        }
    }

    fn record_reading(&mut self, node: NodeIx, reading: NodeReading) {
        let jobs = Arc::clone(&self.jobs.borrow());
        let Some(state) = self.nodes.get_mut(&node) else { return };
        state.is_pending = false;
        state.has_answered |= reading != NodeReading::default();
        state.log.record(&reading);
        let polled = jobs.polled_nodes.iter().any(|(polled, _)| *polled == node);
        let indexers = polled.then(|| jobs.builds_on(node) as f64);
        for signal in Signal::each() {
            let value = match signal {
                Signal::ProbeLatency => reading.latency.map(|latency| latency.as_secs_f64()),
                Signal::RunQueue => reading.run_queue.map(|length| length as f64),
                Signal::ReplicationBacklog => reading.replication_backlog.map(|count| count as f64),
                Signal::Indexers => indexers,
            };
            state.gate.record(signal, value);
        }
        let now = self.clock.now();
        for (is_set, since) in [
            (reading.maintenance, &mut state.maintenance_since),
            (reading.upgrade, &mut state.upgrade_since),
        ] {
            match is_set {
                Some(true) => *since = Some(since.unwrap_or(now)),
                Some(false) => *since = None,
                None => {}
            }
        }
        self.update_gates();
    }

    fn update_gates(&mut self) {
        let settings = Arc::clone(&self.settings.borrow());
        let now = self.clock.now();
        for state in self.nodes.values_mut() {
            let changes = state.gate.update(&settings, now);
            for change in state.log.changes_to_log(changes, &state.gate.signals()) {
                log_change(&state.name, change, &settings);
            }
        }
    }

    fn publish(&self) {
        let settings = Arc::clone(&self.settings.borrow());
        let nodes = self.nodes.iter().filter(|(_, state)| state.has_answered).map(|(ix, state)| {
            let pressure = NodePressure {
                signals: state.gate.signals(),
                load: state.gate.load(&settings),
                hold: state.gate.hold(&settings),
                maintenance_since: state.maintenance_since,
                upgrade_since: state.upgrade_since,
            };
            (*ix, pressure)
        });
        let marks = Signal::each().map(|signal| (signal, marks_of(&settings, signal)));
        let pressures = Pressures { nodes: nodes.collect(), marks: marks.collect() };
        publish_if_changed(&self.pressures, pressures);
    }
}

fn log_change(node: &str, change: GateChange, pressure: &limits::Pressure) {
    match change {
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
            tracing::warn!(node, signal = signal.label(), reads, %after, "pressure has held back starts for pressure.hold_at_most; compactions now start despite it, until it has fallen and risen again");
        }
    }
}

#[cfg(test)]
mod tests;
