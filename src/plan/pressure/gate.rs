//! One node's gate: its signals, with two marks each and a maximum hold.
//!
//! Owns the last readings of every signal and which of them closed the gate. Pure: the task feeds
//! it and logs the changes that [`PressureGate::update`] returns.

use super::{PressureHold, Signal};
use crate::model::settings::limits::{Marks, Pressure};
use std::collections::{BTreeMap, VecDeque};
use wall_clock::Moment;

/// Number of readings whose median is used, so that a single reading never closes the gate.
pub(super) const MEDIAN_READINGS: usize = 3;
/// Number of known readings required to close a gate.
const MIN_KNOWN_READINGS: usize = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SignalState {
    /// The signal does not hold the gate.
    #[default]
    Open,
    /// The signal rose above its high mark and has not fallen to its low mark yet.
    Closed(Moment),
    /// The signal has not fallen yet, but the maximum hold has passed.
    HoldExpired,
}

/// One signal of one node.
#[derive(Clone, Debug, Default)]
struct SignalHistory {
    recent: VecDeque<Option<f64>>,
    state: SignalState,
}

impl SignalHistory {
    fn known_readings(&self) -> Vec<f64> {
        let mut readings: Vec<f64> = self.recent.iter().copied().flatten().collect();
        readings.sort_by(f64::total_cmp);
        readings
    }

    /// The median of the known readings; the lower one of two.
    fn median(&self) -> Option<f64> {
        let readings = self.known_readings();
        readings.get(readings.len().checked_sub(1)? / 2).copied()
    }
}

/// A change of the gate, for the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum GateChange {
    /// A signal closed the gate.
    Closed(Signal, f64),
    /// A signal that held the gate fell to its low mark.
    Opened(Signal, f64),
    /// The maximum hold passed. The signal no longer counts despite this value, until it has fallen
    /// and risen again.
    HoldExpired(Signal, Option<f64>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct PressureGate {
    signals: BTreeMap<Signal, SignalHistory>,
    /// Since when at least one signal has held the gate closed.
    closed_since: Option<Moment>,
}

/// The marks of a signal, in its own unit.
pub(super) const fn marks_of(pressure: &Pressure, signal: Signal) -> Marks<f64> {
    let Pressure { probe_latency, run_queue, replication_backlog, indexers, hold_at_most: _ } =
        pressure;
    let counts = match signal {
        Signal::ProbeLatency => {
            return Marks {
                high: probe_latency.high.as_secs_f64(),
                low: probe_latency.low.as_secs_f64(),
            };
        }
        Signal::RunQueue => run_queue,
        Signal::ReplicationBacklog => replication_backlog,
        Signal::Indexers => indexers,
    };
    Marks { high: counts.high as f64, low: counts.low as f64 }
}

impl PressureGate {
    /// Records a reading; `None` if it could not be read.
    pub(super) fn record(&mut self, signal: Signal, reading: Option<f64>) {
        let recent = &mut self.signals.entry(signal).or_default().recent;
        recent.push_back(reading.filter(|value| value.is_finite()));
        while recent.len() > MEDIAN_READINGS {
            recent.pop_front();
        }
    }

    /// The current value of each signal, where it is known.
    pub(super) fn signals(&self) -> BTreeMap<Signal, f64> {
        let median =
            |(signal, history): (&Signal, &SignalHistory)| Some((*signal, history.median()?));
        self.signals.iter().filter_map(median).collect()
    }

    /// Closes and opens the gate. An unknown signal does neither: then only the maximum hold opens the
    /// gate. It is counted from the last moment at which the gate was open, whichever signals have held it
    /// since.
    pub(super) fn update(&mut self, pressure: &Pressure, now: Moment) -> Vec<GateChange> {
        let mut changes = Vec::new();
        for (signal, history) in &mut self.signals {
            let Some(value) = history.median() else { continue };
            let marks = marks_of(pressure, *signal);
            let is_sure = history.known_readings().len() >= MIN_KNOWN_READINGS;
            match history.state {
                SignalState::Open if value > marks.high && is_sure => {
                    history.state = SignalState::Closed(now);
                    changes.push(GateChange::Closed(*signal, value));
                }
                SignalState::Closed(_) if value <= marks.low => {
                    history.state = SignalState::Open;
                    changes.push(GateChange::Opened(*signal, value));
                }
                SignalState::HoldExpired if value <= marks.low => history.state = SignalState::Open,
                SignalState::Open | SignalState::Closed(_) | SignalState::HoldExpired => {}
            }
        }
        self.closed_since = self.first_closed().map(|_| self.closed_since.unwrap_or(now));
        let hold_expired =
            self.closed_since.is_some_and(|since| since.age(now) >= pressure.hold_at_most);
        if hold_expired {
            self.closed_since = None;
            for (signal, history) in &mut self.signals {
                if matches!(history.state, SignalState::Closed(_)) {
                    history.state = SignalState::HoldExpired;
                    changes.push(GateChange::HoldExpired(*signal, history.median()));
                }
            }
        }
        changes
    }

    /// How busy the node is, 0 to 1: how far the highest signal has risen from its low mark towards
    /// its high mark.
    pub(super) fn load(&self, pressure: &Pressure) -> f64 {
        let progress = |(signal, history): (&Signal, &SignalHistory)| {
            let Marks { high, low } = marks_of(pressure, *signal);
            let above = history.median()? - low;
            Some(if above <= 0.0 { 0.0 } else { (above / (high - low).max(f64::EPSILON)).min(1.0) })
        };
        self.signals.iter().filter_map(progress).fold(0.0, f64::max)
    }

    fn first_closed(&self) -> Option<(Signal, Moment)> {
        let closed = self.signals.iter().filter_map(|(signal, history)| match history.state {
            SignalState::Closed(since) => Some((*signal, since)),
            SignalState::Open | SignalState::HoldExpired => None,
        });
        closed.min_by_key(|(_, since)| *since)
    }

    /// The signal that has held the gate closed for the longest time.
    pub(super) fn hold(&self, pressure: &Pressure) -> Option<PressureHold> {
        let (signal, since) = self.first_closed()?;
        let Marks { high, low } = marks_of(pressure, signal);
        let value = self.signals.get(&signal).and_then(SignalHistory::median);
        Some(PressureHold { signal, since, value: value.unwrap_or(high), low })
    }
}

#[cfg(test)]
mod tests;
