//! Gates: conditions of a node, a channel or the cluster that hold all starts back.

use super::{
    conditions::Conditions,
    duty,
    refusal::{Refusal, RefusalReason},
    rules::Rules,
    slots::is_recent,
};
use crate::{
    model::{
        channel::{Channel, Channels, Mode},
        records::{Backoff, SuspensionScope},
        settings::limits::BUDGET_PERIOD,
        target::{CLUSTER_NODE, TargetKind},
        window::Openings,
    },
    table::{Node, NodeIx, Snapshot},
};
use std::time::Duration;
use wall_clock::Moment;

/// The refusal of a gate on a node, if it is closed.
type GateCheck = fn(&GateInputs<'_>, NodeIx, &Node) -> Option<Refusal>;

/// Each gate, a condition of a node or of the cluster that holds all starts back, with its check.
/// Conditions of a single channel are not included.
const GATES: [(RefusalReason, GateCheck); 9] = [
    (RefusalReason::Mode, |inputs, _, _| {
        let advises = inputs.rules.mode == Mode::Advise;
        advises.then(|| Refusal::without_numbers(RefusalReason::Mode))
    }),
    (RefusalReason::Suspended, |inputs, _, node| inputs.suspended(node)),
    (RefusalReason::Journal, |inputs, _, _| inputs.journal_refusal()),
    (RefusalReason::NodeDown, |_, _, node| node_down_refusal(node)),
    (RefusalReason::Maintenance, |inputs, at, _| inputs.maintenance_refusal(at)),
    (RefusalReason::Upgrade, |inputs, at, _| inputs.upgrade_refusal(at)),
    (RefusalReason::Ramp, |inputs, at, node| inputs.ramp_refusal(at, node)),
    (RefusalReason::Duty, |inputs, at, _| inputs.duty_refusal(at)),
    (RefusalReason::Pressure, |inputs, at, _| inputs.pressure_refusal(at)),
];

impl RefusalReason {
    /// The reasons that hold back all starts of a node.
    pub fn gates() -> impl Iterator<Item = Self> + Clone {
        GATES.iter().map(|(gate, _)| *gate)
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
    pub fn of(openings: &Openings, now: Moment) -> Self {
        Self {
            is_open: openings.is_open_at(now),
            since: openings.last_change(now),
            until: openings.next_change(now),
        }
    }
}

/// The inputs for evaluating the gates.
#[derive(Clone, Copy, Debug)]
pub(super) struct GateInputs<'a> {
    pub(super) rules: &'a Rules,
    pub(super) conditions: &'a Conditions,
    pub(super) now: Moment,
    /// Compactions that run in the cluster.
    pub(super) running_compactions: usize,
}

impl GateInputs<'_> {
    /// The refusal of a node's gate, if it is closed.
    pub(super) fn gate_refusal(
        &self,
        gate: RefusalReason,
        at: NodeIx,
        node: &Node,
    ) -> Option<Refusal> {
        let (_, check) = GATES.iter().find(|(reason, _)| *reason == gate)?;
        check(self, at, node)
    }

    fn suspended(&self, node: &Node) -> Option<Refusal> {
        self.suspension_refusal(&SuspensionScope::All)
            .or_else(|| self.suspension_refusal(&SuspensionScope::Node(node.name.to_string())))
    }

    /// The first refusal, in order, of starts of a channel on a node that lasts longer than a turn.
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
        let window = Refusal::without_numbers(RefusalReason::Window).since(window_state.since);
        (self.rules.mode.more_cautious(channel.mode) != self.rules.mode)
            .then(|| Refusal::without_numbers(RefusalReason::Mode))
            .or_else(|| self.suspended(node))
            .or_else(|| match channel.kind {
                TargetKind::Db => None,
                // Their queues belong to the pseudo-node.
                TargetKind::View | TargetKind::Cleanup | TargetKind::Search => {
                    self.suspension_refusal(&SuspensionScope::Node(CLUSTER_NODE.to_owned()))
                }
            })
            .or_else(|| {
                self.suspension_refusal(&SuspensionScope::Channel(channel.name.to_string()))
            })
            // In advise mode nothing starts, and advice does not need the journal.
            .or_else(|| self.journal_refusal().filter(|_| self.rules.mode == Mode::Enforce))
            .or_else(|| node_down_refusal(node))
            .or_else(|| self.maintenance_refusal(at))
            .or_else(|| self.upgrade_refusal(at))
            .or_else(|| (!window_state.is_open).then_some(window))
            .or_else(|| self.pressure_refusal(at))
    }

    fn suspension_refusal(&self, scope: &SuspensionScope) -> Option<Refusal> {
        let suspension = self.conditions.constraints.suspensions.0.get(scope)?;
        Some(Refusal::without_numbers(RefusalReason::Suspended).since(suspension.since))
    }

    fn journal_refusal(&self) -> Option<Refusal> {
        let (since, _) = self.conditions.constraints.journal_failure.as_ref()?;
        Some(Refusal::without_numbers(RefusalReason::Journal).since(*since))
    }

    fn maintenance_refusal(&self, at: NodeIx) -> Option<Refusal> {
        let since = self.conditions.pressures.nodes.get(&at)?.maintenance_since?;
        Some(Refusal::without_numbers(RefusalReason::Maintenance).since(since))
    }

    fn upgrade_refusal(&self, at: NodeIx) -> Option<Refusal> {
        let since = self.conditions.pressures.nodes.get(&at)?.upgrade_since?;
        Some(Refusal::without_numbers(RefusalReason::Upgrade).since(since))
    }

    fn pressure_refusal(&self, at: NodeIx) -> Option<Refusal> {
        let held = self.conditions.pressures.nodes.get(&at)?.hold?;
        let refusal = Refusal::with_numbers(RefusalReason::Pressure, held.value, held.low);
        Some(refusal.since(held.since))
    }

    /// Whether the last poll read a node's running tasks.
    fn was_polled(&self, at: NodeIx) -> bool {
        self.conditions.jobs.polled_nodes.iter().any(|(polled, _)| *polled == at)
    }

    fn ramp_refusal(&self, at: NodeIx, node: &Node) -> Option<Refusal> {
        let history = &self.conditions.constraints;
        // Until the first poll, jobs that an earlier process left running are unknown; later ones after a poll failed.
        if at != NodeIx::CLUSTER && history.enforcing_since.is_some() && !self.was_polled(at) {
            let refusal = Refusal::without_numbers(RefusalReason::Ramp);
            let first = history.enforcing_since.filter(|_| node.unread_tasks.is_none());
            return Some(Refusal { since: node.down_since.or(first), ..refusal });
        }
        let wait = self.rules.limits.wait;
        let last =
            history.last_start_by_node.get(&at).filter(|last| is_recent(**last, self.now, wait));
        if let Some(last) = last {
            let (value, limit) = (last.age(self.now).as_secs_f64(), wait.as_secs_f64());
            return Some(Refusal::with_numbers(RefusalReason::Ramp, value, limit).since(*last));
        }
        // A cleanup does not count as a job, so the cluster's pseudo-node has no limit.
        let allowed = self.rules.ramp_limit(history.enforcing_since?, self.now)?;
        let (running, limit) = (self.running_compactions as f64, allowed as f64);
        let refusal = Refusal::with_numbers(RefusalReason::Ramp, running, limit);
        (at != NodeIx::CLUSTER && self.running_compactions >= allowed)
            .then_some(refusal.since(history.enforcing_since))
    }

    fn duty_refusal(&self, at: NodeIx) -> Option<Refusal> {
        let period = self.conditions.constraints.busy_periods.get(&at)?;
        duty::refusal(period, self.rules.limits.duty_percent, self.now)
    }
}

fn node_down_refusal(node: &Node) -> Option<Refusal> {
    let refusal =
        Refusal { since: node.down_since, ..Refusal::without_numbers(RefusalReason::NodeDown) };
    node.is_down().then_some(refusal)
}

/// The shortest time in which the number of jobs allowed during the ramp doubles. A job must have
/// run for a while before its effect on a cluster shows.
const MIN_RAMP_STEP: Duration = Duration::from_secs(30);

impl Rules {
    /// Time in which the number of jobs allowed during the ramp doubles. `None` without a `wait`:
    /// then everything may start at once.
    fn ramp_step(&self) -> Option<Duration> {
        let wait = self.limits.wait;
        (!wait.is_zero()).then(|| wait.max(MIN_RAMP_STEP))
    }

    /// Maximum number of jobs in the cluster while starts are ramped up after this process began to
    /// act: one at first, doubling with each step; `None` once the ramp is over.
    pub(super) fn ramp_limit(&self, acting_since: Moment, now: Moment) -> Option<usize> {
        let steps = acting_since.age(now).as_secs().checked_div(self.ramp_step()?.as_secs())?;
        let allowed = 1_usize.checked_shl(u32::try_from(steps).ok()?)?;
        (allowed < self.limits.cluster).then_some(allowed)
    }
}

/// The gates of all nodes and channels at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ClosedGates {
    /// By node, then by channel.
    refusals: Vec<Option<Refusal>>,
    channel_count: usize,
    /// By node. A rest and a ramp pass, so they are checked last: they must not hide lasting
    /// reasons.
    rests: Vec<Option<Refusal>>,
    ramps: Vec<Option<Refusal>>,
}

impl ClosedGates {
    pub(super) fn new(
        snapshot: &Snapshot,
        channels: &Channels,
        window_states: &[WindowState],
        gate_inputs: &GateInputs<'_>,
    ) -> Self {
        let mut refusals = Vec::with_capacity(snapshot.nodes().len() * channels.list.len());
        let mut rests = Vec::with_capacity(snapshot.nodes().len());
        let mut ramps = Vec::with_capacity(snapshot.nodes().len());
        for (at, node) in snapshot.nodes().iter().enumerate() {
            let at = NodeIx::from_usize(at).unwrap_or_default();
            rests.push(gate_inputs.duty_refusal(at));
            ramps.push(gate_inputs.ramp_refusal(at, node));
            for (channel, window_state) in channels.list.iter().zip(window_states) {
                refusals.push(gate_inputs.channel_refusal(at, node, channel, *window_state));
            }
        }
        Self { refusals, channel_count: channels.list.len(), rests, ramps }
    }

    /// The refusal of starts on a node while they are spread out in time.
    pub(super) fn ramp(&self, node: NodeIx) -> Option<Refusal> {
        self.ramps.get(node.as_usize()).copied().flatten()
    }

    /// The refusal of starts on a node that rests; an operator's order does not wait for this.
    pub(super) fn rest(&self, node: NodeIx) -> Option<Refusal> {
        self.rests.get(node.as_usize()).copied().flatten()
    }

    /// The refusal of every start of a channel on a node.
    pub(super) fn refusal(&self, node: NodeIx, channel: usize) -> Option<Refusal> {
        let at = node.as_usize().saturating_mul(self.channel_count).saturating_add(channel);
        self.refusals.get(at).copied().flatten()
    }
}

/// The next time at which a gate or a back-off changes by the clock alone.
pub(super) fn next_change(
    gate_inputs: &GateInputs<'_>,
    window_states: &[WindowState],
) -> Option<Moment> {
    let GateInputs { rules, conditions, now, .. } = gate_inputs;
    let history = &conditions.constraints;
    let wait = rules.limits.wait;
    let windows = window_states.iter().filter_map(|window_state| window_state.until);
    let backoffs = history.backoffs.values().filter_map(|rest| match rest {
        Backoff::CoolDown { until, .. } | Backoff::Unsettled { until, .. } => Some(*until),
        Backoff::Quarantined { .. } | Backoff::Futile { .. } => None,
    });
    let waits = history.last_start_by_node.values().map(|last| last.plus(wait));
    let duty = rules.limits.duty_percent;
    let rests = history.busy_periods.values().filter_map(|period| duty::rested_at(period, duty));
    let ramp = history.enforcing_since.and_then(|since| {
        rules.ramp_limit(since, *now)?;
        let step = rules.ramp_step()?.as_secs();
        let steps = since.age(*now).as_secs().checked_div(step)?.saturating_add(1);
        Some(since.plus(Duration::from_secs(step.saturating_mul(steps))))
    });
    let spent = history.recent_starts.iter().map(|(at, _)| at.plus(BUDGET_PERIOD));
    let lease = rules.shared.and_then(|shared| shared.until);
    let all = windows.chain(backoffs).chain(waits).chain(rests).chain(ramp).chain(spent);
    let all = all.chain(lease);
    all.filter(|at| at > now).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::settings::limits::Limits;
    use std::sync::Arc;

    #[test]
    fn gates_of_a_silent_node_are_closed_since_it_is_silent() {
        let (down, began) = (Moment::from_unix(700), Moment::from_unix(100));
        let mut conditions = Conditions::default();
        Arc::make_mut(&mut conditions.constraints).enforcing_since = Some(began);
        let inputs = GateInputs {
            rules: &Rules::default(),
            conditions: &conditions,
            now: Moment::from_unix(900),
            running_compactions: 0,
        };
        let since = |gate, node: &Node| {
            let at = NodeIx::from_usize(1).unwrap();
            inputs.gate_refusal(gate, at, node).map(|refusal| refusal.since)
        };
        let new = Node::default();
        let gates = [RefusalReason::NodeDown, RefusalReason::Ramp];
        assert_eq!(gates.map(|gate| since(gate, &new)), [None, Some(Some(began))]);
        let silent = Node { is_up: Some(false), down_since: Some(down), ..Node::default() };
        assert_eq!(gates.map(|gate| since(gate, &silent)), [Some(Some(down)); 2]);
        let unread = Node { is_up: Some(true), unread_tasks: Some("".into()), ..Node::default() };
        assert_eq!(gates.map(|gate| since(gate, &unread)), [None, Some(None)]);
    }

    #[test]
    fn ramp_doubles_allowed_jobs_every_30_s_or_longer_wait() {
        // The wait, and the jobs allowed in a cluster of eight after a number of seconds.
        let half_minutes = [(0, Some(1)), (29, Some(1)), (30, Some(2)), (89, Some(4)), (90, None)];
        let minutes = [(59, Some(1)), (60, Some(2)), (119, Some(2)), (179, Some(4)), (180, None)];
        let none = [(0, None); 5];
        let cases = [(1, half_minutes), (30, half_minutes), (60, minutes), (0, none)];
        for (wait, expected) in cases {
            let limits = Limits { wait: Duration::from_secs(wait), ..Limits::default() };
            let rules = Rules { limits, ..Rules::default() };
            for (after, allowed) in expected {
                let since = Moment::from_unix(1_000);
                let found = rules.ramp_limit(since, since.plus(Duration::from_secs(after)));
                assert_eq!(found, allowed, "wait {wait}, after {after}");
            }
        }
    }
}
