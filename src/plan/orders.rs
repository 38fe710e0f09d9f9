//! Candidates that come before the queues: operators' orders, and views with an open round.
//!
//! Decides for which channel such a target counts, and how an order is answered.

use super::{
    CandidateSummary, CompactionRequest, Conditions, Decision, Placement, Plan, PlannedStart,
    Refusal, RefusalReason, SelectionContext, admission::Admission, placement, selection,
    view_copies,
};
use crate::{
    model::channel::{Channel, Channels, Mode},
    table::{ChunkedTable, NodeIx, Snapshot, TargetIx, TargetRef},
};
use wall_clock::Moment;

/// A candidate that comes before a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeadingCandidate {
    /// The queue's node and channel.
    pub(super) queue_key: (NodeIx, usize),
    pub(super) summary: CandidateSummary,
}

/// The answer to an order to compact a target, from a plan that includes the order.
#[derive(Clone, Debug, PartialEq)]
pub enum OrderAnswer {
    /// It starts now.
    Starts(CompactionRequest),
    /// It starts before all others as soon as this refusal passes.
    Waits(CompactionRequest, Refusal),
    /// It does not start until this refusal is resolved. In advise mode, with the request that
    /// would be sent.
    Refused(Refusal, Option<CompactionRequest>),
    /// No channel takes it and the order is not forced; ask for its misses.
    NotTaken,
}

impl Plan {
    /// The answer to an order to compact a target, if this plan was made with that order.
    #[must_use]
    pub fn order_answer(&self, target: TargetRef<'_>) -> OrderAnswer {
        let request = self.start_request(target);
        match (self.decision(target), request) {
            (Decision::NotTaken, _) => OrderAnswer::NotTaken,
            (_, request @ Some(_)) if self.rules.mode == Mode::Advise => {
                OrderAnswer::Refused(Refusal::without_numbers(RefusalReason::Mode), request)
            }
            (Decision::Start, Some(request)) => OrderAnswer::Starts(request),
            (Decision::Refused(refusal), Some(request)) if refusal.is_transient() => {
                OrderAnswer::Waits(request, refusal)
            }
            (Decision::Refused(refusal), request) => {
                let request = request.filter(|_| refusal.reason == RefusalReason::Mode);
                OrderAnswer::Refused(refusal, request)
            }
            (Decision::Start, None) => {
                OrderAnswer::Refused(Refusal::without_numbers(RefusalReason::Excluded), None)
            }
        }
    }

    /// The request that would start a candidate despite all refusals; for a view that is compacted
    /// copy by copy, the request for the next copy.
    #[must_use]
    pub fn start_request(&self, target: TargetRef<'_>) -> Option<CompactionRequest> {
        if let Some(start) = self.start(target.ix()) {
            return Some(start.request.clone());
        }
        let (channel, _) = self.start_channel_index(target)?;
        Some(self.start_despite_refusals(channel, target, &self.admission)?.request)
    }

    /// The start of a target if an operator ordered it, despite all refusals; of a target that no channel
    /// takes, if the order was forced. None if no order starts it.
    #[must_use]
    pub fn start_if_ordered(&self, target: TargetRef<'_>) -> Option<PlannedStart> {
        if let Some(start) = self.start(target.ix()) {
            return Some(start.clone());
        }
        let taken = self.start_channel_index(target).map(|(channel, _)| channel);
        let channel = taken.or_else(|| forced_channel(&self.channels, target))?;
        // The plan knows the copies of queued views only.
        let copies = view_copies(&self.snapshot, std::iter::once(CandidateSummary::of(target)));
        self.start_despite_refusals(channel, target, &self.admission.with_copies(copies))
    }

    fn start_despite_refusals(
        &self,
        channel: usize,
        target: TargetRef<'_>,
        admission: &Admission,
    ) -> Option<PlannedStart> {
        let candidate = CandidateSummary::of(target);
        let node = admission.request_node(target.node_ix(), &candidate)?;
        let context = SelectionContext {
            snapshot: &self.snapshot,
            channels: &self.channels,
            placements: &self.placements,
            orders: &self.conditions.constraints.orders,
            remaining_bytes: &self.conditions.constraints.remaining_bytes,
            now: self.planned_at,
            start_interval: self.rules.limits.wait,
            bytes_per_second: self.conditions.constraints.measured_rate(),
        };
        selection::build_start(channel, &candidate, node, context, admission)
    }

    /// The channel for which a target may start: the one that takes it, or the one that it counts
    /// for because of an open round or a forced order.
    #[must_use]
    pub fn start_channel(&self, target: TargetRef<'_>) -> Option<&Channel> {
        let (channel, _) = self.start_channel_index(target)?;
        self.channels.list.get(channel)
    }

    /// The same as the channel's index, and when the target was queued there.
    pub(super) fn start_channel_index(
        &self,
        target: TargetRef<'_>,
    ) -> Option<(usize, Option<Moment>)> {
        let since = self.placement(target.ix()).map(|(_, placement)| placement.queued_since);
        find_start_channel(&self.channels, &self.conditions, &self.placements, target)
            .map(|at| (at, since))
    }
}

/// Orders, oldest first; then views of which only some copies were compacted and that no channel
/// takes any more: their rounds are completed.
pub(super) fn leading_candidates(
    snapshot: &Snapshot,
    channels: &Channels,
    conditions: &Conditions,
    placements: &ChunkedTable<Placement>,
) -> Vec<LeadingCandidate> {
    let history = &conditions.constraints;
    let mut orders: Vec<_> = history.orders.iter().map(|(ix, ordered)| (ordered.at, *ix)).collect();
    orders.sort_unstable();
    let waits = |ix: &TargetIx| {
        placements.get(ix.as_usize()).is_some_and(|it| it.channel_index().is_some())
    };
    let rounds = history.partly_compacted_views.keys().copied();
    let rounds = rounds.filter(|ix| !waits(ix) && !history.orders.contains_key(ix));
    let all = orders.iter().map(|(_, ix)| *ix).chain(rounds);
    let all = all.filter_map(|ix| snapshot.target(ix));
    let placed = |target: TargetRef<'_>| {
        let channel = find_start_channel(channels, conditions, placements, target)?;
        Some(LeadingCandidate {
            queue_key: (target.node_ix(), channel),
            summary: CandidateSummary::of(target),
        })
    };
    all.filter_map(placed).collect()
}

/// The channel a target counts for: the one that takes it; otherwise, for forced orders and open
/// rounds, the first channel of its kind whose name patterns match.
fn find_start_channel(
    channels: &Channels,
    conditions: &Conditions,
    placements: &ChunkedTable<Placement>,
    target: TargetRef<'_>,
) -> Option<usize> {
    let (history, ix) = (&conditions.constraints, target.ix());
    let taken = placements.get(ix.as_usize()).and_then(|placement| placement.channel_index());
    let forced = || history.orders.get(&ix).is_some_and(|ordered| ordered.force);
    taken.or_else(|| {
        if !forced() && !history.partly_compacted_views.contains_key(&ix) {
            return None;
        }
        forced_channel(channels, target)
    })
}

/// The channel that a target counts for by force.
fn forced_channel(channels: &Channels, target: TargetRef<'_>) -> Option<usize> {
    let takes = |channel: &Channel| {
        channel.kind == target.kind()
            && placement::accepts_names_and_state(channels, channel, target)
    };
    channels.list.iter().position(takes)
}
