//! Gates: conditions of a node, a channel or the cluster that hold all starts back.

use super::{Conditions, Refusal, RefusalReason, Rules, slots::is_recent};
use crate::{
    model::{
        channel::{Channel, Channels, Mode},
        records::SuspensionScope,
        target::{CLUSTER_NODE, TargetKind},
        window::{self, Window},
    },
    table::{Node, NodeIx, Snapshot},
};
use std::time::Duration;
use wall_clock::Moment;

/// A condition of a node or the cluster that holds all starts back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// The process only advises.
    Mode,
    /// An operator suspended starts.
    Suspended,
    /// The journal cannot be written.
    Journal,
    /// The node is in maintenance.
    Maintenance,
    /// Starts are spread out.
    Ramp,
    /// The node is under pressure.
    Pressure,
}

impl Gate {
    /// Every gate, in the order of evaluation.
    pub const ALL: [Self; 6] =
        [Self::Mode, Self::Suspended, Self::Journal, Self::Maintenance, Self::Ramp, Self::Pressure];

    /// The label in JSON and metric labels.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Mode => RefusalReason::Mode.label(),
            Self::Suspended => RefusalReason::Suspended.label(),
            Self::Journal => RefusalReason::Journal.label(),
            Self::Maintenance => RefusalReason::Maintenance.label(),
            Self::Ramp => RefusalReason::Ramp.label(),
            Self::Pressure => RefusalReason::Pressure.label(),
        }
    }
}

/// A channel's windows at the moment of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowState {
    /// Whether a window is open, or the channel has none.
    pub is_open: bool,
    /// The time of the last change, where it is known.
    pub since: Option<Moment>,
    /// The time of the next change.
    pub until: Option<Moment>,
}

impl WindowState {
    /// The state of these windows.
    #[must_use]
    pub fn of(windows: &[Window], now: Moment) -> Self {
        Self {
            is_open: window::any_open_at(windows, now),
            since: window::last_change(windows, now),
            until: window::next_change(windows, now),
        }
    }
}

/// Everything that the gates are evaluated from.
#[derive(Clone, Copy, Debug)]
pub(super) struct GateInputs<'a> {
    pub(super) rules: &'a Rules,
    pub(super) conditions: &'a Conditions,
    pub(super) now: Moment,
    /// Compactions that run in the cluster.
    pub(super) running_compactions: usize,
}

impl GateInputs<'_> {
    /// The refusal of a node's gate, if it is closed. Reasons that concern a single channel are
    /// not included.
    pub(super) fn gate_refusal(&self, gate: Gate, at: NodeIx, node: &Node) -> Option<Refusal> {
        match gate {
            Gate::Mode => (self.rules.mode == Mode::Advise)
                .then(|| Refusal::without_numbers(RefusalReason::Mode)),
            Gate::Suspended => self
                .suspension_refusal(&SuspensionScope::All)
                .or_else(|| self.suspension_refusal(&SuspensionScope::Node(node.name.to_string()))),
            Gate::Journal => self.journal_refusal(),
            Gate::Maintenance => self.maintenance_refusal(at),
            Gate::Ramp => self.ramp_refusal(at),
            Gate::Pressure => self.pressure_refusal(at),
        }
    }

    /// The first refusal, in order, of every start of a channel on a node.
    ///
    /// A plan in advise mode ignores the mode gate: it shows what would be sent in enforce
    /// mode.
    fn channel_refusal(
        &self,
        at: NodeIx,
        node: &Node,
        channel: &Channel,
        window_state: WindowState,
    ) -> Option<Refusal> {
        let since = window_state.since;
        let window = Refusal { since, ..Refusal::without_numbers(RefusalReason::Window) };
        (self.rules.mode.more_cautious(channel.mode) != self.rules.mode)
            .then(|| Refusal::without_numbers(RefusalReason::Mode))
            .or_else(|| self.gate_refusal(Gate::Suspended, at, node))
            .or_else(|| match channel.kind {
                TargetKind::Db => None,
                // Their queues belong to the pseudo node.
                TargetKind::View | TargetKind::Cleanup | TargetKind::Search => {
                    self.suspension_refusal(&SuspensionScope::Node(CLUSTER_NODE.to_owned()))
                }
            })
            .or_else(|| {
                self.suspension_refusal(&SuspensionScope::Channel(channel.name.to_string()))
            })
            .or_else(|| self.journal_refusal())
            .or_else(|| self.maintenance_refusal(at))
            .or_else(|| (!window_state.is_open).then_some(window))
            .or_else(|| self.ramp_refusal(at))
            .or_else(|| self.pressure_refusal(at))
    }

    fn suspension_refusal(&self, scope: &SuspensionScope) -> Option<Refusal> {
        let suspension = self.conditions.constraints.suspensions.0.get(scope)?;
        let since = Some(suspension.since);
        Some(Refusal { since, ..Refusal::without_numbers(RefusalReason::Suspended) })
    }

    /// The journal only matters in enforce mode.
    fn journal_refusal(&self) -> Option<Refusal> {
        let (since, _) = self.conditions.constraints.journal_failure.as_ref()?;
        let since = Some(*since);
        (self.rules.mode == Mode::Enforce)
            .then(|| Refusal { since, ..Refusal::without_numbers(RefusalReason::Journal) })
    }

    fn maintenance_refusal(&self, at: NodeIx) -> Option<Refusal> {
        let since = self.conditions.pressures.nodes.get(&at)?.maintenance_since?;
        Some(Refusal { since: Some(since), ..Refusal::without_numbers(RefusalReason::Maintenance) })
    }

    fn pressure_refusal(&self, at: NodeIx) -> Option<Refusal> {
        let held = self.conditions.pressures.nodes.get(&at)?.hold?;
        let refusal = Refusal::with_numbers(RefusalReason::Pressure, held.value, held.low);
        Some(Refusal { since: Some(held.since), ..refusal })
    }

    /// Whether the last poll read a node's running tasks.
    fn was_polled(&self, at: NodeIx) -> bool {
        self.conditions.jobs.polled_nodes.iter().any(|(polled, _)| *polled == at)
    }

    fn ramp_refusal(&self, at: NodeIx) -> Option<Refusal> {
        let history = &self.conditions.constraints;
        // Until the first poll, jobs that an earlier process left running are unknown.
        if at != NodeIx::CLUSTER && history.enforcing_since.is_some() && !self.was_polled(at) {
            let since = history.enforcing_since;
            return Some(Refusal { since, ..Refusal::without_numbers(RefusalReason::Ramp) });
        }
        let wait = self.rules.limits.wait;
        let last =
            history.last_start_by_node.get(&at).filter(|last| is_recent(**last, self.now, wait));
        if let Some(last) = last {
            let (value, limit) = (last.age(self.now).as_secs_f64(), wait.as_secs_f64());
            let refusal = Refusal::with_numbers(RefusalReason::Ramp, value, limit);
            return Some(Refusal { since: Some(*last), ..refusal });
        }
        // A cleanup does not count as a job.
        let allowed = self.rules.ramp_limit(history.enforcing_since?, self.now)?;
        let refusal = Refusal::with_numbers(
            RefusalReason::Ramp,
            self.running_compactions as f64,
            allowed as f64,
        );
        (at != NodeIx::CLUSTER && self.running_compactions >= allowed)
            .then_some(Refusal { since: history.enforcing_since, ..refusal })
    }
}

impl Rules {
    /// Maximum number of jobs in the cluster while starts are ramped up after this process
    /// began to act: one at first, doubling with each `wait`; none once the ramp is over.
    pub(super) fn ramp_limit(&self, acting_since: Moment, now: Moment) -> Option<usize> {
        let step = acting_since.age(now).as_secs().checked_div(self.limits.wait.as_secs())?;
        let allowed = 1_usize.checked_shl(u32::try_from(step).ok()?)?;
        (allowed < self.limits.cluster).then_some(allowed)
    }
}

/// The gates of all nodes and channels at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ClosedGates {
    /// The refusal of every start, by node and then channel.
    refusals: Vec<Option<Refusal>>,
    channel_count: usize,
}

impl ClosedGates {
    pub(super) fn new(
        snapshot: &Snapshot,
        channels: &Channels,
        window_states: &[WindowState],
        gate_inputs: &GateInputs<'_>,
    ) -> Self {
        let mut refusals = Vec::with_capacity(snapshot.nodes().len() * channels.list.len());
        for (at, node) in snapshot.nodes().iter().enumerate() {
            let at = NodeIx::from_usize(at).unwrap_or_default();
            for (channel, window_state) in channels.list.iter().zip(window_states) {
                refusals.push(gate_inputs.channel_refusal(at, node, channel, *window_state));
            }
        }
        Self { refusals, channel_count: channels.list.len() }
    }

    /// The refusal of every start of a channel on a node.
    pub(super) fn refusal(&self, node: NodeIx, channel: usize) -> Option<Refusal> {
        let at = node.as_usize().saturating_mul(self.channel_count).saturating_add(channel);
        self.refusals.get(at).copied().flatten()
    }
}

/// When a gate or a back-off next changes through the clock alone.
pub(super) fn next_change(
    gate_inputs: &GateInputs<'_>,
    window_states: &[WindowState],
) -> Option<Moment> {
    let GateInputs { rules, conditions, now, .. } = gate_inputs;
    let history = &conditions.constraints;
    let wait = rules.limits.wait;
    let windows = window_states.iter().filter_map(|window_state| window_state.until);
    let backoffs = history.backoffs.values().filter_map(|rest| match rest {
        crate::model::records::Backoff::CoolDown { until, .. } => Some(*until),
        crate::model::records::Backoff::Quarantined { .. }
        | crate::model::records::Backoff::Futile { .. } => None,
    });
    let waits = history.last_start_by_node.values().map(|last| last.plus(wait));
    let ramp = history.enforcing_since.and_then(|since| {
        rules.ramp_limit(since, *now)?;
        let steps = since.age(*now).as_secs().checked_div(wait.as_secs())?.saturating_add(1);
        Some(since.plus(Duration::from_secs(wait.as_secs().saturating_mul(steps))))
    });
    let spent = history.recent_starts.iter().map(|(at, _)| at.plus(super::slots::BUDGET_PERIOD));
    let all = windows.chain(backoffs).chain(waits).chain(ramp).chain(spent);
    all.filter(|at| at > now).min()
}
