//! Gates: conditions of a node, a channel or the cluster that hold all starts back.

use super::{Conditions, Refusal, RefusalReason, Rules, room::recently};
use crate::{
    model::{
        channel::{Channel, Channels, Mode},
        memory::Scope,
        target::{CLUSTER, Kind},
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
pub struct Opening {
    /// Whether a window is open, or the channel has none.
    pub open: bool,
    /// The time of the last change, where it is known.
    pub since: Option<Moment>,
    /// The time of the next change.
    pub until: Option<Moment>,
}

impl Opening {
    /// The state of these windows.
    #[must_use]
    pub fn of(windows: &[Window], now: Moment) -> Self {
        Self {
            open: window::open_at(windows, now),
            since: window::last_change(windows, now),
            until: window::next_change(windows, now),
        }
    }
}

/// Everything that the gates are evaluated from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doors<'a> {
    pub(super) rules: &'a Rules,
    pub(super) conditions: &'a Conditions,
    pub(super) now: Moment,
    /// Compactions that run in the cluster.
    pub(super) running: usize,
}

impl Doors<'_> {
    /// The refusal of a node's gate, if it is closed. Reasons that concern a single channel are
    /// not included.
    pub(super) fn shut(&self, gate: Gate, at: NodeIx, node: &Node) -> Option<Refusal> {
        match gate {
            Gate::Mode => {
                (self.rules.mode == Mode::Advise).then(|| Refusal::plain(RefusalReason::Mode))
            }
            Gate::Suspended => self
                .suspended(&Scope::All)
                .or_else(|| self.suspended(&Scope::Node(node.name.to_string()))),
            Gate::Journal => self.journal(),
            Gate::Maintenance => self.maintenance(at),
            Gate::Ramp => self.ramp(at),
            Gate::Pressure => self.pressure(at),
        }
    }

    /// The first refusal, in order, of every start of a channel on a node.
    ///
    /// A plan in advise mode ignores the mode gate: it shows what would be sent in enforce
    /// mode.
    fn channel_shut(
        &self,
        at: NodeIx,
        node: &Node,
        channel: &Channel,
        opening: Opening,
    ) -> Option<Refusal> {
        let since = opening.since;
        let window = Refusal { since, ..Refusal::plain(RefusalReason::Window) };
        (self.rules.mode.and(channel.mode) != self.rules.mode)
            .then(|| Refusal::plain(RefusalReason::Mode))
            .or_else(|| self.shut(Gate::Suspended, at, node))
            .or_else(|| match channel.kind {
                Kind::Db => None,
                // Their queues belong to the pseudo node.
                Kind::View | Kind::Cleanup | Kind::Search => {
                    self.suspended(&Scope::Node(CLUSTER.to_owned()))
                }
            })
            .or_else(|| self.suspended(&Scope::Channel(channel.name.to_string())))
            .or_else(|| self.journal())
            .or_else(|| self.maintenance(at))
            .or_else(|| (!opening.open).then_some(window))
            .or_else(|| self.ramp(at))
            .or_else(|| self.pressure(at))
    }

    fn suspended(&self, scope: &Scope) -> Option<Refusal> {
        let suspension = self.conditions.history.suspensions.0.get(scope)?;
        let since = Some(suspension.since);
        Some(Refusal { since, ..Refusal::plain(RefusalReason::Suspended) })
    }

    /// The journal only matters in enforce mode.
    fn journal(&self) -> Option<Refusal> {
        let (since, _) = self.conditions.history.journal_trouble.as_ref()?;
        let since = Some(*since);
        (self.rules.mode == Mode::Enforce)
            .then(|| Refusal { since, ..Refusal::plain(RefusalReason::Journal) })
    }

    fn maintenance(&self, at: NodeIx) -> Option<Refusal> {
        let since = self.conditions.pressures.nodes.get(&at)?.maintenance_since?;
        Some(Refusal { since: Some(since), ..Refusal::plain(RefusalReason::Maintenance) })
    }

    fn pressure(&self, at: NodeIx) -> Option<Refusal> {
        let held = self.conditions.pressures.nodes.get(&at)?.held?;
        let refusal = Refusal::compared(RefusalReason::Pressure, held.value, held.low);
        Some(Refusal { since: Some(held.since), ..refusal })
    }

    /// Whether the last poll read a node's running tasks.
    fn polled(&self, at: NodeIx) -> bool {
        self.conditions.jobs.polled.iter().any(|(polled, _)| *polled == at)
    }

    fn ramp(&self, at: NodeIx) -> Option<Refusal> {
        let history = &self.conditions.history;
        // Until the first poll, jobs that an earlier process left running are unknown.
        if at != NodeIx::CLUSTER && history.acting_since.is_some() && !self.polled(at) {
            let since = history.acting_since;
            return Some(Refusal { since, ..Refusal::plain(RefusalReason::Ramp) });
        }
        let wait = self.rules.limits.wait;
        let last = history.last_start.get(&at).filter(|last| recently(**last, self.now, wait));
        if let Some(last) = last {
            let (value, limit) = (last.age(self.now).as_secs_f64(), wait.as_secs_f64());
            let refusal = Refusal::compared(RefusalReason::Ramp, value, limit);
            return Some(Refusal { since: Some(*last), ..refusal });
        }
        // A cleanup does not count as a job.
        let allowed = self.rules.allowed_after(history.acting_since?, self.now)?;
        let refusal = Refusal::compared(RefusalReason::Ramp, self.running as f64, allowed as f64);
        (at != NodeIx::CLUSTER && self.running >= allowed)
            .then_some(Refusal { since: history.acting_since, ..refusal })
    }
}

impl Rules {
    /// Maximum number of jobs in the cluster while starts are ramped up after this process
    /// began to act: one at first, doubling with each `wait`; none once the ramp is over.
    pub(super) fn allowed_after(&self, acting_since: Moment, now: Moment) -> Option<usize> {
        let step = acting_since.age(now).as_secs().checked_div(self.limits.wait.as_secs())?;
        let allowed = 1_usize.checked_shl(u32::try_from(step).ok()?)?;
        (allowed < self.limits.cluster).then_some(allowed)
    }
}

/// The gates of all nodes and channels at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Gates {
    /// The refusal of every start, by node and then channel.
    shut: Vec<Option<Refusal>>,
    channels: usize,
}

impl Gates {
    pub(super) fn new(
        snapshot: &Snapshot,
        channels: &Channels,
        openings: &[Opening],
        doors: &Doors<'_>,
    ) -> Self {
        let mut shut = Vec::with_capacity(snapshot.nodes().len() * channels.list.len());
        for (at, node) in snapshot.nodes().iter().enumerate() {
            let at = NodeIx::from_usize(at).unwrap_or_default();
            for (channel, opening) in channels.list.iter().zip(openings) {
                shut.push(doors.channel_shut(at, node, channel, *opening));
            }
        }
        Self { shut, channels: channels.list.len() }
    }

    /// The refusal of every start of a channel on a node.
    pub(super) fn shut(&self, node: NodeIx, channel: usize) -> Option<Refusal> {
        let at = node.as_usize().saturating_mul(self.channels).saturating_add(channel);
        self.shut.get(at).copied().flatten()
    }
}

/// When a gate or a back-off next changes through the clock alone.
pub(super) fn next_change(doors: &Doors<'_>, openings: &[Opening]) -> Option<Moment> {
    let Doors { rules, conditions, now, .. } = doors;
    let history = &conditions.history;
    let wait = rules.limits.wait;
    let windows = openings.iter().filter_map(|opening| opening.until);
    let rests = history.rests.values().filter_map(|rest| match rest {
        crate::model::memory::Rest::CoolDown { until, .. } => Some(*until),
        crate::model::memory::Rest::Quarantined { .. }
        | crate::model::memory::Rest::Futile { .. } => None,
    });
    let waits = history.last_start.values().map(|last| last.plus(wait));
    let ramp = history.acting_since.and_then(|since| {
        rules.allowed_after(since, *now)?;
        let steps = since.age(*now).as_secs().checked_div(wait.as_secs())?.saturating_add(1);
        Some(since.plus(Duration::from_secs(wait.as_secs().saturating_mul(steps))))
    });
    let spent = history.spent.iter().map(|(at, _)| at.plus(super::room::HOUR));
    let all = windows.chain(rests).chain(waits).chain(ramp).chain(spent);
    all.filter(|at| at > now).min()
}
