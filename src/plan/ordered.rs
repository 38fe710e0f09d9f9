//! Candidates that come before the queues: operators' orders, and views with an open round.
//!
//! Decides for which channel such a target counts, and how an order is answered.

use super::{
    Ballot, Brief, Conditions, Decision, Placement, Plan, Refusal, RefusalReason, Request, choose,
    placement,
};
use crate::{
    model::channel::{Channel, Channels, Mode},
    table::{Chunked, Ix, NodeIx, Snapshot, TargetRef},
};
use wall_clock::Moment;

/// A candidate that comes before a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    /// The queue's node and channel.
    pub(super) place: (NodeIx, usize),
    pub(super) brief: Brief,
}

/// The answer to an order to compact a target, from a plan that includes the order.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It starts now.
    Starts(Request),
    /// It starts before all others as soon as this refusal passes.
    Waits(Request, Refusal),
    /// It does not start until this refusal is resolved. In advise mode, with the request that
    /// would be sent.
    Refused(Refusal, Option<Request>),
    /// No channel takes it and the order is not forced; ask for its misses.
    NotTaken,
}

impl Plan {
    /// The answer to an order to compact a target, if this plan was made with that order.
    #[must_use]
    pub fn answer(&self, target: TargetRef<'_>) -> Answer {
        let request = self.would_send(target);
        match (self.decision(target), request) {
            (Decision::NotTaken, _) => Answer::NotTaken,
            (_, request @ Some(_)) if self.rules.mode == Mode::Advise => {
                Answer::Refused(Refusal::plain(RefusalReason::Mode), request)
            }
            (Decision::Start, Some(request)) => Answer::Starts(request),
            (Decision::Refused(refusal), Some(request)) if refusal.passes() => {
                Answer::Waits(request, refusal)
            }
            (Decision::Refused(refusal), request) => {
                let request = request.filter(|_| refusal.reason == RefusalReason::Mode);
                Answer::Refused(refusal, request)
            }
            (Decision::Start, None) => {
                Answer::Refused(Refusal::plain(RefusalReason::Excluded), None)
            }
        }
    }

    /// The request that would start a candidate despite all refusals; for a view that is compacted
    /// copy by copy, the request for the next copy.
    #[must_use]
    pub fn would_send(&self, target: TargetRef<'_>) -> Option<Request> {
        if let Some(start) = self.start(target.ix()) {
            return Some(start.request.clone());
        }
        let (channel, _) = self.candidacy(target)?;
        let brief = Brief::of(target);
        let node = self.admission.addressee(target.node_ix(), &brief)?;
        let ballot = Ballot {
            snapshot: &self.snapshot,
            channels: &self.channels,
            placements: &self.placements,
            orders: &self.conditions.history.orders,
            rests: &self.conditions.history.rests,
            now: self.made_at,
            wait: self.rules.limits.wait,
            rate: None,
        };
        Some(choose::started(channel, &brief, node, ballot, &self.admission)?.request)
    }

    /// The channel for which a target may start: the one that takes it, or the one that it counts
    /// for because of an open round or a forced order.
    #[must_use]
    pub fn candidate_of(&self, target: TargetRef<'_>) -> Option<&Channel> {
        let (channel, _) = self.candidacy(target)?;
        self.channels.list.get(channel)
    }

    /// The same as the channel's index, and when the target was queued there.
    pub(super) fn candidacy(&self, target: TargetRef<'_>) -> Option<(usize, Option<Moment>)> {
        let since = self.placement(target.ix()).map(|(_, placement)| placement.since);
        channel_of(&self.channels, &self.conditions, &self.placements, target).map(|at| (at, since))
    }
}

impl Refusal {
    /// Whether it passes by itself as other jobs end and facts are read again, so that an order
    /// can wait. All other refusals need an operator or a different time of day.
    fn passes(&self) -> bool {
        match self.reason {
            RefusalReason::ChannelLimit
            | RefusalReason::NodeLimit
            | RefusalReason::ClusterLimit => self.limit != Some(0.0),
            RefusalReason::Budget
            | RefusalReason::Ramp
            | RefusalReason::OtherCopyRunning
            | RefusalReason::Stale => true,
            RefusalReason::Mode
            | RefusalReason::Suspended
            | RefusalReason::Journal
            | RefusalReason::Window
            | RefusalReason::WouldNotFitWindow
            | RefusalReason::Headroom
            | RefusalReason::UnknownDisk
            | RefusalReason::Pressure
            | RefusalReason::Maintenance
            | RefusalReason::Resharding
            | RefusalReason::Running
            | RefusalReason::Building
            | RefusalReason::CoolDown
            | RefusalReason::Quarantined
            | RefusalReason::Futile
            | RefusalReason::Excluded
            | RefusalReason::NoEvidence => false,
        }
    }
}

/// Orders, oldest first; then views of which only some copies were compacted and that no channel
/// takes any more: their rounds are completed.
pub(super) fn first(
    snapshot: &Snapshot,
    channels: &Channels,
    conditions: &Conditions,
    placements: &Chunked<Placement>,
) -> Vec<First> {
    let history = &conditions.history;
    let mut orders: Vec<_> = history.orders.iter().map(|(ix, ordered)| (ordered.at, *ix)).collect();
    orders.sort_unstable();
    let waits = |ix: &Ix| placements.get(ix.as_usize()).is_some_and(|it| it.channel().is_some());
    let rounds = history.rounds.keys().copied();
    let rounds = rounds.filter(|ix| !waits(ix) && !history.orders.contains_key(ix));
    let all = orders.iter().map(|(_, ix)| *ix).chain(rounds);
    let all = all.filter_map(|ix| snapshot.target(ix));
    let placed = |target: TargetRef<'_>| {
        let channel = channel_of(channels, conditions, placements, target)?;
        Some(First { place: (target.node_ix(), channel), brief: Brief::of(target) })
    };
    all.filter_map(placed).collect()
}

/// The channel a target counts for: the one that takes it; otherwise, for forced orders and open
/// rounds, the first channel of its kind whose name patterns match.
fn channel_of(
    channels: &Channels,
    conditions: &Conditions,
    placements: &Chunked<Placement>,
    target: TargetRef<'_>,
) -> Option<usize> {
    let (history, ix) = (&conditions.history, target.ix());
    let taken = placements.get(ix.as_usize()).and_then(|placement| placement.channel());
    let forced = || history.orders.get(&ix).is_some_and(|ordered| ordered.force);
    taken.or_else(|| {
        if !forced() && !history.rounds.contains_key(&ix) {
            return None;
        }
        let takes = |channel: &Channel| {
            channel.kind == target.kind() && placement::may_take(channels, channel, target)
        };
        channels.list.iter().position(takes)
    })
}
