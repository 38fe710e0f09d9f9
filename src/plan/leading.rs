//! Candidates that come before the queues (operators' orders, and views with an open round), and
//! the channel that such a target counts towards.

use super::{
    candidate_summary::CandidateSummary,
    conditions::Conditions,
    placement::{self, Placement},
    queue_view::QueueKey,
};
use crate::{
    model::channel::{Channel, Channels},
    table::{ChunkedTable, Snapshot, TargetIx, TargetRef},
};
use ordered_float::OrderedFloat;
use std::cmp::Reverse;

/// A candidate that comes before a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeadingCandidate {
    /// The queue's node and channel.
    pub(super) queue_key: QueueKey,
    pub(super) summary: CandidateSummary,
}

/// Operators' orders first, oldest first and within a run best first. Then views that no channel takes any more
/// although only some of their copies were compacted, so that their rounds are completed.
pub(super) fn leading_candidates(
    snapshot: &Snapshot,
    channels: &Channels,
    conditions: &Conditions,
    placements: &ChunkedTable<Placement>,
) -> Vec<LeadingCandidate> {
    let history = &conditions.constraints;
    let priority = |ix: &TargetIx| {
        Reverse(OrderedFloat(placements.get(ix.as_usize()).map_or(0.0, |it| it.priority)))
    };
    let orders = history.orders.iter();
    let mut orders: Vec<_> =
        orders.map(|(ix, ordered)| (ordered.at, ordered.run.map(|_| priority(ix)), *ix)).collect();
    orders.sort_unstable();
    let waits = |ix: &TargetIx| {
        placements.get(ix.as_usize()).is_some_and(|it| it.channel_index().is_some())
    };
    let rounds = history.partly_compacted_views.keys().copied();
    let rounds = rounds.filter(|ix| !waits(ix) && !history.orders.contains_key(ix));
    let all = orders.iter().map(|(.., ix)| *ix).chain(rounds);
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

/// The channel that a target counts towards: the one that takes it; otherwise, for forced orders
/// and open rounds, the first channel of its kind whose name patterns match.
pub(super) fn find_start_channel(
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

/// The channel that a target counts towards if its order is forced.
pub(super) fn forced_channel(channels: &Channels, target: TargetRef<'_>) -> Option<usize> {
    let takes = |channel: &Channel| {
        channel.kind == target.kind()
            && placement::accepts_names_and_state(channels, channel, target)
    };
    channels.list.iter().position(takes)
}
