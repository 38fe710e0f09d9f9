//! The readings of the pressure signals. The resulting gates come with the plan.

use crate::{
    plan::pressure::{Pressures, Signal},
    table::Snapshot,
    text::Label,
};
use metrics_text::{Family, Writer, families};

families! {
    PRESSURE_PROBE_LATENCY: Gauge Seconds "recliner_pressure_probe_latency_seconds" ["node"]
        "Time that the node takes to answer a small request, in seconds; the median of recent ones.";
    PRESSURE_RUN_QUEUE: Gauge None "recliner_pressure_run_queue_processes" ["node"]
        "Number of Erlang processes that wait for a scheduler of the node; the median of recent readings.";
    PRESSURE_REPLICATION_BACKLOG: Gauge None "recliner_pressure_replication_backlog_jobs" ["node"]
        "Number of internal replication jobs that the node has yet to finish; the median of recent readings.";
    PRESSURE_INDEXERS: Gauge None "recliner_pressure_indexers" ["node"]
        "Number of index builds that run on the node; the median of recent readings.";
}

/// The family of a signal. Each signal has one, because their units differ.
const fn family(signal: Signal) -> &'static Family<1> {
    match signal {
        Signal::ProbeLatency => &PRESSURE_PROBE_LATENCY,
        Signal::RunQueue => &PRESSURE_RUN_QUEUE,
        Signal::ReplicationBacklog => &PRESSURE_REPLICATION_BACKLOG,
        Signal::Indexers => &PRESSURE_INDEXERS,
    }
}

/// A signal that could not be read has no sample.
pub(super) fn write(writer: &mut Writer, pressures: &Pressures, snapshot: &Snapshot) {
    for signal in Signal::each() {
        let mut samples = writer.family(family(signal));
        for (ix, pressure) in &pressures.nodes {
            let reading = pressure.signals.get(&signal);
            if let (Some(node), Some(reading)) = (snapshot.node(*ix), reading) {
                samples.sample(&[&node.name], *reading);
            }
        }
    }
}
