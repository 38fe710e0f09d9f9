//! Decides which changes of one node's gate are logged.
//!
//! A node that does not answer closes its gate because its probes take long. This closing is not
//! logged: the silence is logged elsewhere, and whether the node is busy is unknown. Pure.

use super::{
    NodeReading, Signal,
    gate::{GateChange, MEDIAN_READINGS},
};
use std::collections::{BTreeMap, BTreeSet};

/// A node's recent probes, and the changes of its gate that have not been logged.
#[derive(Clone, Debug, Default)]
pub(super) struct GateLog {
    /// Consecutive unanswered probes before the current run of answered ones.
    unanswered: usize,
    /// Consecutive answered probes.
    answered: usize,
    /// Signals that closed the gate without a log line.
    unlogged_signals: BTreeSet<Signal>,
}

impl GateLog {
    pub(super) fn record(&mut self, reading: &NodeReading) {
        if reading.is_unanswered() {
            self.unanswered = if self.answered > 0 { 1 } else { self.unanswered + 1 };
            self.answered = 0;
        } else {
            self.answered = self.answered.saturating_add(1);
        }
    }

    /// Whether the gate's readings still include unanswered probes.
    const fn has_missing_readings(&self) -> bool {
        self.unanswered > 0 && self.answered < MEDIAN_READINGS
    }

    /// The changes to log, given the gate's changes and current signal values. Nothing is logged
    /// while only missing answers hold the gate; once the node answers again, every signal that
    /// still holds it is logged.
    pub(super) fn changes_to_log(
        &mut self,
        changes: Vec<GateChange>,
        values: &BTreeMap<Signal, f64>,
    ) -> Vec<GateChange> {
        let mut lines = Vec::new();
        for change in changes {
            match change {
                GateChange::Closed(signal, _) if self.has_missing_readings() => {
                    self.unlogged_signals.insert(signal);
                }
                GateChange::Opened(signal, _) | GateChange::HoldExpired(signal, _)
                    if self.unlogged_signals.remove(&signal) => {}
                GateChange::Closed(..) | GateChange::Opened(..) | GateChange::HoldExpired(..) => {
                    lines.push(change)
                }
            }
        }
        if !self.has_missing_readings() {
            let unlogged = std::mem::take(&mut self.unlogged_signals);
            let closed = |signal| Some(GateChange::Closed(signal, *values.get(&signal)?));
            lines.extend(unlogged.into_iter().filter_map(closed));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::settings::limits::Pressure, plan::pressure::gate::PressureGate};
    use std::time::Duration;
    use wall_clock::Moment;

    fn after(milliseconds: u64) -> NodeReading {
        let latency = Some(Duration::from_millis(milliseconds));
        NodeReading {
            latency,
            run_queue: Some(1),
            replication_backlog: Some(0),
            maintenance: Some(false),
            upgrade: Some(false),
        }
    }

    fn no_answer() -> NodeReading {
        NodeReading { latency: Some(Duration::from_secs(10)), ..NodeReading::default() }
    }

    /// The changes logged after each probe, at intervals of ten seconds.
    fn logged_changes(readings: &[NodeReading]) -> Vec<Vec<GateChange>> {
        let (mut gate, mut reports, mut now) = (PressureGate::default(), GateLog::default(), 1_000);
        let mut each = Vec::new();
        for reading in readings {
            now += 10;
            gate.record(Signal::ProbeLatency, reading.latency.map(|latency| latency.as_secs_f64()));
            reports.record(reading);
            let changes = gate.update(&Pressure::default(), Moment::from_unix(now));
            each.push(reports.changes_to_log(changes, &gate.signals()));
        }
        each
    }

    #[test]
    fn logs_no_pressure_for_a_node_that_does_not_answer() {
        let mut readings = vec![after(4); 3];
        readings.extend([no_answer(); 5]);
        readings.extend([after(4); 5]);
        // Refused connections are logged elsewhere, by the node reader.
        readings.extend([NodeReading::default(); 5]);
        let each = logged_changes(&readings);
        assert!(each.iter().all(Vec::is_empty), "{each:?}");
    }

    #[test]
    fn logs_pressure_that_persists_once_a_node_answers_again() {
        let mut readings = vec![no_answer(); 4];
        readings.extend([after(2_000); 5]);
        readings.extend([after(4); 5]);
        let lines: Vec<(usize, Vec<GateChange>)> =
            (logged_changes(&readings).into_iter().enumerate())
                .filter(|(_, lines)| !lines.is_empty())
                .collect();
        let signal = Signal::ProbeLatency;
        let expected = [
            (6, vec![GateChange::Closed(signal, 2.0)]),
            (10, vec![GateChange::Opened(signal, 0.004)]),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn slow_node_is_logged_as_under_pressure() {
        let lines = logged_changes(&[after(4), after(900), after(900)]);
        assert_eq!(lines, [vec![], vec![], vec![GateChange::Closed(Signal::ProbeLatency, 0.9)]]);
    }
}
