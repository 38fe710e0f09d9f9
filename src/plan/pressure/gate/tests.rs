use super::*;
use Signal::{ProbeLatency, RunQueue};
use proptest::prelude::*;
use std::time::Duration;

fn at(seconds: u64) -> Moment {
    Moment::from_unix(1_000_000 + seconds)
}

fn pressure() -> Pressure {
    Pressure { hold_at_most: Duration::from_secs(100), ..Pressure::default() }
}

/// Lines: a reading of the run queue every ten seconds, and the time since when the gate is held,
/// if it is.
#[test]
fn gate_closes_above_high_mark_and_opens_at_low_mark() {
    type Line = (Option<f64>, Option<u64>);
    let tables: &[(&str, &[Line])] = &[
        ("one reading is not enough", &[(Some(99.0), None), (Some(0.0), None), (Some(0.0), None)]),
        (
            "a single spike is ignored",
            &[(Some(0.0), None), (Some(0.0), None), (Some(999.0), None), (Some(1.0), None)],
        ),
        (
            "between the marks nothing changes",
            &[
                (Some(64.0), None),
                (Some(64.0), None),
                (Some(65.0), None),
                (Some(65.0), Some(30)),
                (Some(17.0), Some(30)),
                (Some(17.0), Some(30)),
                (Some(16.0), Some(30)),
                (Some(16.0), None),
                (Some(64.0), None),
                (Some(64.0), None),
            ],
        ),
        (
            "an unknown reading neither closes nor opens",
            &[
                (None, None),
                (Some(90.0), None),
                (None, None),
                (None, None),
                (Some(90.0), None),
                (Some(90.0), Some(50)),
                (None, Some(50)),
                (None, Some(50)),
                (None, Some(50)),
                (Some(1.0), None),
            ],
        ),
        (
            "after the maximum hold it opens, once, until it has fallen",
            &[
                (Some(90.0), None),
                (Some(90.0), Some(10)),
                (Some(90.0), Some(10)),
                (Some(90.0), Some(10)),
                (Some(90.0), Some(10)),
                (Some(90.0), Some(10)),
                (Some(90.0), Some(10)),
                (Some(90.0), Some(10)),
                (Some(90.0), Some(10)),
                (Some(90.0), Some(10)),
                (Some(90.0), Some(10)),
                (Some(90.0), None),
                (Some(90.0), None),
                (Some(20.0), None),
                (Some(90.0), None),
                (Some(1.0), None),
                (Some(1.0), None),
                (Some(90.0), None),
                (Some(90.0), Some(180)),
            ],
        ),
    ];
    for (case, lines) in tables {
        let mut gate = PressureGate::default();
        for ((reading, since), seconds) in lines.iter().zip((0..).step_by(10)) {
            gate.record(RunQueue, *reading);
            gate.update(&pressure(), at(seconds));
            let held = gate.hold(&pressure());
            assert_eq!(held.map(|held| held.since), since.map(at), "{case}, at {seconds}");
            assert!(held.is_none_or(|held| held.signal == RunQueue && held.low == 16.0));
        }
    }
}

#[test]
fn gate_opens_after_the_maximum_and_reports_ignored_signals() {
    let mut gate = PressureGate::default();
    let mut changes = Vec::new();
    for seconds in (0..=120).step_by(10) {
        gate.record(RunQueue, Some(90.0));
        gate.record(ProbeLatency, Some(if seconds < 60 { 0.01 } else { 2.0 }));
        changes.extend(gate.update(&pressure(), at(seconds)).into_iter().map(|it| (seconds, it)));
    }
    assert_eq!(
        changes,
        [
            (10, GateChange::Closed(RunQueue, 90.0)),
            (70, GateChange::Closed(ProbeLatency, 2.0)),
            (110, GateChange::HoldExpired(ProbeLatency, Some(2.0))),
            (110, GateChange::HoldExpired(RunQueue, Some(90.0))),
        ]
    );
    assert_eq!(gate.hold(&pressure()), None);
    assert_eq!(gate.signals(), BTreeMap::from([(ProbeLatency, 2.0), (RunQueue, 90.0)]));
}

#[test]
fn closed_gate_names_the_signal_that_holds_it_longest() {
    let mut gate = PressureGate::default();
    for (seconds, queue) in [(0, 90.0), (10, 90.0), (20, 90.0), (30, 1.0), (40, 1.0)] {
        gate.record(RunQueue, Some(queue));
        gate.record(ProbeLatency, Some(if seconds < 10 { 0.0 } else { 2.0 }));
        gate.update(&pressure(), at(seconds));
        let expected = match seconds {
            0 => None,
            10..=30 => Some((RunQueue, at(10))),
            _ => Some((ProbeLatency, at(20))),
        };
        let held = gate.hold(&pressure()).map(|held| (held.signal, held.since));
        assert_eq!(held, expected, "at {seconds}");
    }
}

proptest! {
    /// The gate never stays closed for longer than the maximum, no matter what is read.
    #[test]
    fn gate_never_stays_closed_longer_than_the_maximum(
        readings in prop::collection::vec(
            (prop::option::of(0.0..200.0_f64), prop::option::of(0.0..4.0_f64)),
            1..200,
        ),
    ) {
        let mut gate = PressureGate::default();
        let mut closed_since = None;
        for ((queue, latency), seconds) in readings.into_iter().zip((0..).step_by(10)) {
            gate.record(RunQueue, queue);
            gate.record(ProbeLatency, latency);
            gate.update(&pressure(), at(seconds));
            closed_since = gate.hold(&pressure()).map(|_| closed_since.unwrap_or_else(|| at(seconds)));
            if let Some(since) = closed_since {
                prop_assert!(since.age(at(seconds)) < pressure().hold_at_most);
            }
        }
    }
}
