//! Decides which changes of one node's gate are logged.
//!
//! A node that does not answer closes its gate, because its answers take long. That it does not
//! answer is logged elsewhere, and whether it is busy is unknown. Pure.

use super::{
    Look, Signal,
    gate::{READINGS, Told},
};
use std::collections::{BTreeMap, BTreeSet};

/// Number of consecutive unanswered probes after which a node counts as silent: one may be chance.
const SILENT_AFTER: usize = 2;

/// A node's recent probes, and the changes of its gate that were not logged.
#[derive(Clone, Debug, Default)]
pub(super) struct Reports {
    /// Consecutive unanswered probes, before the current run of answered ones.
    unanswered: usize,
    /// Consecutive answered probes.
    answered: usize,
    /// Signals that closed the gate without a log line.
    unsaid: BTreeSet<Signal>,
}

impl Reports {
    /// Records one probe.
    pub(super) fn looked(&mut self, look: &Look) {
        if look.is_unanswered() {
            self.unanswered = if self.answered > 0 { 1 } else { self.unanswered + 1 };
            self.answered = 0;
        } else {
            self.answered = self.answered.saturating_add(1);
        }
    }

    /// Whether the last probes got no answer.
    pub(super) const fn is_silent(&self) -> bool {
        self.answered == 0 && self.unanswered >= SILENT_AFTER
    }

    /// Whether the gate's readings still include unanswered probes.
    const fn is_unsure(&self) -> bool {
        self.unanswered > 0 && self.answered < READINGS
    }

    /// The changes to log, given the gate's changes and current signal values: nothing while only
    /// missing answers closed the gate, and what still holds once the node answers again.
    pub(super) fn report(&mut self, told: Vec<Told>, reads: &BTreeMap<Signal, f64>) -> Vec<Told> {
        let mut lines = Vec::new();
        for told in told {
            match told {
                Told::Shut(signal, _) if self.is_unsure() => {
                    self.unsaid.insert(signal);
                }
                Told::LetGo(signal, _) | Told::HeldEnough(signal, _)
                    if self.unsaid.remove(&signal) => {}
                Told::Shut(..) | Told::LetGo(..) | Told::HeldEnough(..) => lines.push(told),
            }
        }
        if !self.is_unsure() {
            let unsaid = std::mem::take(&mut self.unsaid);
            let said = |signal| Some(Told::Shut(signal, *reads.get(&signal)?));
            lines.extend(unsaid.into_iter().filter_map(said));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::settings::limits::Pressure, plan::pressure::gate::Gate};
    use std::time::Duration;
    use wall_clock::Moment;

    fn after(milliseconds: u64) -> Look {
        let latency = Some(Duration::from_millis(milliseconds));
        Look { latency, run_queue: Some(1), backlog: Some(0), maintenance: Some(false) }
    }

    fn no_answer() -> Look {
        Look { latency: Some(Duration::from_secs(10)), ..Look::default() }
    }

    /// The lines logged after each of these probes, ten seconds apart, and whether the node is
    /// silent then.
    fn said(looks: &[Look]) -> Vec<(Vec<Told>, bool)> {
        let (mut gate, mut reports, mut now) = (Gate::default(), Reports::default(), 1_000);
        let mut each = Vec::new();
        for look in looks {
            now += 10;
            gate.see(Signal::ProbeLatency, look.latency.map(|latency| latency.as_secs_f64()));
            reports.looked(look);
            let told = gate.judge(&Pressure::default(), Moment::from_unix(now));
            each.push((reports.report(told, &gate.signals()), reports.is_silent()));
        }
        each
    }

    #[test]
    fn no_pressure_is_logged_for_a_node_that_does_not_answer() {
        let mut looks = vec![after(4); 3];
        looks.extend([no_answer(); 5]);
        looks.extend([after(4); 5]);
        // Refused connections are reported by the node reader.
        looks.extend([Look::default(); 5]);
        let each = said(&looks);
        assert!(each.iter().all(|(lines, _)| lines.is_empty()), "{each:?}");
        let silent: Vec<usize> = (0..each.len()).filter(|at| each[*at].1).collect();
        assert_eq!(silent, [4, 5, 6, 7]);
    }

    #[test]
    fn pressure_that_persists_when_a_node_answers_again_is_logged_with_its_end() {
        let mut looks = vec![no_answer(); 4];
        looks.extend([after(2_000); 5]);
        looks.extend([after(4); 5]);
        let lines: Vec<(usize, Vec<Told>)> = (said(&looks).into_iter().enumerate())
            .filter_map(|(at, (lines, _))| (!lines.is_empty()).then_some((at, lines)))
            .collect();
        let signal = Signal::ProbeLatency;
        let expected = [(6, vec![Told::Shut(signal, 2.0)]), (10, vec![Told::LetGo(signal, 0.004)])];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_node_that_is_slow_is_under_pressure() {
        let lines: Vec<Vec<Told>> =
            said(&[after(4), after(900), after(900)]).into_iter().map(|it| it.0).collect();
        assert_eq!(lines, [vec![], vec![], vec![Told::Shut(Signal::ProbeLatency, 0.9)]]);
    }
}
