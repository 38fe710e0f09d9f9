//! One node's gate: its signals, with two marks each and a maximum hold.
//!
//! Owns the last readings of every signal and which of them closed the gate. Pure: the task feeds
//! it and logs the changes that [`Gate::judge`] returns.

use super::{Held, Signal};
use crate::model::settings::limits::{Marks, Pressure};
use std::collections::{BTreeMap, VecDeque};
use wall_clock::Moment;

/// Number of readings whose median counts, so that a single one closes nothing.
pub(super) const READINGS: usize = 3;
/// Number of known readings required to close a gate.
const LEAST: usize = 2;

/// The state of a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    /// It does not hold the gate.
    #[default]
    Open,
    /// It rose above its high mark and has not fallen to its low mark yet.
    Shut(Moment),
    /// It still has not fallen, but the maximum hold has passed.
    HeldEnough,
}

/// One signal of one node.
#[derive(Clone, Debug, Default)]
struct Watched {
    recent: VecDeque<Option<f64>>,
    standing: Standing,
}

impl Watched {
    fn known(&self) -> Vec<f64> {
        let mut known: Vec<f64> = self.recent.iter().copied().flatten().collect();
        known.sort_by(f64::total_cmp);
        known
    }

    /// The median of the known readings; the lower one of two.
    fn reads(&self) -> Option<f64> {
        let known = self.known();
        known.get(known.len().checked_sub(1)? / 2).copied()
    }
}

/// A change of the gate, for the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Told {
    /// A signal closed the gate.
    Shut(Signal, f64),
    /// A signal that held the gate fell to its low mark.
    LetGo(Signal, f64),
    /// The maximum hold passed, so the signal no longer counts despite this value, until it has
    /// fallen and risen again.
    HeldEnough(Signal, Option<f64>),
}

/// One node's gate.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate {
    signals: BTreeMap<Signal, Watched>,
}

/// The marks of a signal, in its own unit.
const fn marks(pressure: &Pressure, signal: Signal) -> Marks<f64> {
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

impl Gate {
    /// Records a reading; `None` if it could not be read.
    pub(super) fn see(&mut self, signal: Signal, reading: Option<f64>) {
        let recent = &mut self.signals.entry(signal).or_default().recent;
        recent.push_back(reading.filter(|value| value.is_finite()));
        while recent.len() > READINGS {
            recent.pop_front();
        }
    }

    /// The current value of each signal, where it is known.
    pub(super) fn signals(&self) -> BTreeMap<Signal, f64> {
        let reads = |(signal, watched): (&Signal, &Watched)| Some((*signal, watched.reads()?));
        self.signals.iter().filter_map(reads).collect()
    }

    /// Closes and opens the gate. An unknown signal neither closes nor opens it: then only the
    /// maximum hold opens it, counted from when the gate was last open.
    pub(super) fn judge(&mut self, pressure: &Pressure, now: Moment) -> Vec<Told> {
        let mut told = Vec::new();
        for (signal, watched) in &mut self.signals {
            let Some(reads) = watched.reads() else { continue };
            let marks = marks(pressure, *signal);
            let sure = watched.known().len() >= LEAST;
            match watched.standing {
                Standing::Open if reads > marks.high && sure => {
                    watched.standing = Standing::Shut(now);
                    told.push(Told::Shut(*signal, reads));
                }
                Standing::Shut(_) if reads <= marks.low => {
                    watched.standing = Standing::Open;
                    told.push(Told::LetGo(*signal, reads));
                }
                Standing::HeldEnough if reads <= marks.low => watched.standing = Standing::Open,
                Standing::Open | Standing::Shut(_) | Standing::HeldEnough => {}
            }
        }
        let held_enough =
            self.first_shut().is_some_and(|(_, since)| since.age(now) >= pressure.hold_at_most);
        if held_enough {
            for (signal, watched) in &mut self.signals {
                if matches!(watched.standing, Standing::Shut(_)) {
                    watched.standing = Standing::HeldEnough;
                    told.push(Told::HeldEnough(*signal, watched.reads()));
                }
            }
        }
        told
    }

    fn first_shut(&self) -> Option<(Signal, Moment)> {
        let shut = self.signals.iter().filter_map(|(signal, watched)| match watched.standing {
            Standing::Shut(since) => Some((*signal, since)),
            Standing::Open | Standing::HeldEnough => None,
        });
        shut.min_by_key(|(_, since)| *since)
    }

    /// The signal that has held the gate for the longest time.
    pub(super) fn held(&self, pressure: &Pressure) -> Option<Held> {
        let (signal, since) = self.first_shut()?;
        let Marks { high, low } = marks(pressure, signal);
        let reads = self.signals.get(&signal).and_then(Watched::reads);
        Some(Held { signal, since, value: reads.unwrap_or(high), low })
    }
}

#[cfg(test)]
mod tests;
