//! Selection: the best candidate of all queues starts next.
//!
//! Within a queue, the queue's order decides. Between competing queues, the bytes freed for each
//! byte rewritten decide, doubled for every six hours the candidate has waited, so that every
//! candidate starts eventually. Operators' orders come before everything else, then the target
//! that slots are reserved for.

use super::{
    DecisionCounts, Placement, PlannedStart, QueueView, RefusalReason, admission::Admission,
    candidate_summary::CandidateSummary, decision_counts::RefusalReasons, start::StartEstimate,
};
use crate::{
    model::{
        channel::Channels,
        records::{Backoff, CompactionOrder},
        target::TargetKind,
    },
    table::{ChunkedTable, NodeIx, Snapshot, TargetIx},
};
use ordered_float::OrderedFloat;
use std::{collections::BTreeMap, time::Duration};
use wall_clock::Moment;

/// Hours of waiting that double a candidate's score.
const SCORE_DOUBLING_HOURS: f64 = 6.0;

/// Minimum gain ratio, so that candidates that free nothing get their turn as well.
const MIN_GAIN_RATIO: f64 = 0.01;

/// One queue during the selection.
#[derive(Debug)]
pub(super) struct SelectionQueue<'a> {
    pub(super) queue: &'a QueueView,
    /// Candidates that come before the queue: orders, queued or not; then the target with a slot
    /// reservation; then views of which only some copies are compacted so far.
    pub(super) leading: Vec<CandidateSummary>,
    /// The target with a slot reservation, if it waits in this queue.
    pub(super) reserved_target: Option<TargetIx>,
}

/// Operators' orders by target.
type OrdersByTarget = BTreeMap<TargetIx, CompactionOrder>;

impl SelectionQueue<'_> {
    fn get(&self, at: usize) -> Option<&CandidateSummary> {
        let waiting = || self.queue.summaries.get(at.checked_sub(self.leading.len())?);
        self.leading.get(at).or_else(waiting)
    }

    /// Each candidate once.
    pub(super) fn candidates<'a>(
        &'a self,
        orders: &'a OrdersByTarget,
    ) -> impl Iterator<Item = &'a CandidateSummary> {
        let again = |brief: &&CandidateSummary| !self.is_leading(brief, orders);
        self.leading.iter().chain(self.queue.summaries.iter().filter(again))
    }

    /// Moves the target with a slot reservation before its queue, after all orders.
    pub(super) fn move_reserved_first(&mut self, claimant: TargetIx, orders: &OrdersByTarget) {
        if self.reserved_target.is_some() || orders.contains_key(&claimant) {
            return;
        }
        let Some(brief) = self.queue.summaries.iter().find(|brief| brief.ix == claimant) else {
            return;
        };
        let ordered =
            self.leading.iter().take_while(|brief| orders.contains_key(&brief.ix)).count();
        self.leading.insert(ordered, *brief);
        self.reserved_target = Some(claimant);
    }

    /// Whether a queued candidate is also in `first`.
    fn is_leading(&self, brief: &CandidateSummary, orders: &OrdersByTarget) -> bool {
        self.reserved_target == Some(brief.ix) || orders.contains_key(&brief.ix)
    }

    /// Whether the candidate at an index was already visited in `first`.
    fn is_repeated(&self, at: usize, brief: &CandidateSummary, orders: &OrdersByTarget) -> bool {
        at >= self.leading.len() && self.is_leading(brief, orders)
    }
}

/// Values that the selection reads in addition to the admission.
#[derive(Clone, Copy, Debug)]
pub(super) struct SelectionContext<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) channels: &'a Channels,
    pub(super) placements: &'a ChunkedTable<Placement>,
    pub(super) orders: &'a OrdersByTarget,
    pub(super) backoffs: &'a BTreeMap<TargetIx, Backoff>,
    pub(super) now: Moment,
    /// Minimum time between two starts on a node.
    pub(super) start_interval: Duration,
    pub(super) bytes_per_second: Option<f64>,
}

/// The next candidate of a queue that may start, and its node.
#[derive(Clone, Copy, Debug)]
struct NextStart {
    index: usize,
    node: NodeIx,
    score: OrderedFloat<f64>,
}

/// Starts candidates, best first, until no more may start.
///
/// A start only uses up slots and space, so each queue is walked once: a refused candidate stays
/// refused.
pub(super) fn select_starts(
    lanes: &[SelectionQueue<'_>],
    ballot: SelectionContext<'_>,
    admission: &mut Admission,
) -> Vec<PlannedStart> {
    let mut starts = Vec::new();
    let mut heads: Vec<Option<NextStart>> =
        lanes.iter().map(|lane| next_start(lane, 0, ballot, admission)).collect();
    loop {
        let best = heads
            .iter()
            .enumerate()
            .filter_map(|(at, head)| Some((at, (*head)?)))
            // Of equal scores, the first queue wins.
            .max_by(|(one, a), (other, b)| a.score.cmp(&b.score).then(other.cmp(one)));
        let Some((at, chosen)) = best else { return starts };
        let Some((lane, brief)) =
            lanes.get(at).and_then(|lane| Some((lane, lane.get(chosen.index)?)))
        else {
            return starts;
        };
        match build_start(lane.queue.channel_index, brief, chosen.node, ballot, admission) {
            Some(start) => {
                admission.record_start(chosen.node, lane.queue.channel_index, brief);
                starts.push(start);
            }
            None => admission.mark_unaddressable(brief.ix),
        }
        for (place, (lane, kept)) in lanes.iter().zip(&mut heads).enumerate() {
            if let Some(before) = *kept {
                *kept =
                    next_start(lane, before.index + usize::from(place == at), ballot, admission);
            }
        }
    }
}

/// Counts the decisions about every candidate of a queue, and returns the reason of each queued
/// one.
pub(super) fn count_decisions(
    lane: &SelectionQueue<'_>,
    starts: &[PlannedStart],
    orders: &OrdersByTarget,
    admission: &Admission,
) -> (DecisionCounts, RefusalReasons) {
    let mut counts = DecisionCounts::default();
    let mut reasons = RefusalReasons::with_capacity(lane.queue.summaries.len());
    let QueueView { node, channel_index: channel, .. } = *lane.queue;
    let started: hashbrown::HashSet<_> =
        starts.iter().filter(|start| start.channel == channel).map(|start| start.ix).collect();
    let terms = admission.bounds(node, channel);
    let decided = |brief: &CandidateSummary| {
        let starts = !started.is_empty() && started.contains(&brief.ix);
        let reason = || admission.refusal_reason(&terms, (node, channel), brief);
        (!starts).then(|| reason().unwrap_or(RefusalReason::ChannelLimit))
    };
    let mut count = |reason: Option<RefusalReason>| match reason {
        Some(reason) => counts.count_refusal(reason),
        None => counts.starts += 1,
    };
    lane.leading.iter().for_each(|brief| count(decided(brief)));
    for brief in lane.queue.summaries.iter() {
        let reason = decided(brief);
        reasons.push(reason);
        // A candidate in `first` is already counted.
        if !lane.is_leading(brief, orders) {
            count(reason);
        }
    }
    (counts, reasons)
}

/// The first candidate of a queue at or after `from` that may start.
fn next_start(
    lane: &SelectionQueue<'_>,
    from: usize,
    ballot: SelectionContext<'_>,
    admission: &Admission,
) -> Option<NextStart> {
    let QueueView { node, channel_index: channel, .. } = *lane.queue;
    let kind = ballot.channels.list.get(channel)?.kind;
    let terms = admission.bounds(node, channel);
    if admission.is_exhausted(channel, kind) || (kind == TargetKind::Db && terms.is_closed()) {
        return None;
    }
    // If the free slots are reserved, only candidates before the queue may start.
    let until =
        if kind == TargetKind::Db && terms.is_reserved() { lane.leading.len() } else { usize::MAX };
    let mut at = from;
    while at < until
        && let Some(brief) = lane.get(at)
    {
        let worth_asking = !lane.is_repeated(at, brief, ballot.orders)
            && (kind != TargetKind::Db
                || admission.refusal_reason(&terms, (node, channel), brief).is_none());
        if worth_asking && let Ok(node) = admission.admit(node, channel, brief) {
            return Some(NextStart {
                index: at,
                node,
                score: start_score(lane, brief, ballot).into(),
            });
        }
        at += 1;
    }
    None
}

/// A candidate's score against those of other queues, as a base-2 logarithm because a candidate
/// may wait for years.
pub(super) fn start_score(
    lane: &SelectionQueue<'_>,
    brief: &CandidateSummary,
    ballot: SelectionContext<'_>,
) -> f64 {
    if ballot.orders.contains_key(&brief.ix) {
        return f64::INFINITY;
    }
    if lane.reserved_target == Some(brief.ix) {
        return f64::MAX;
    }
    let frees = brief.reclaimable_bytes().zip(brief.predicted_bytes.get()).map_or(
        0.0,
        |(gain, rewrite)| {
            if rewrite == 0 { gain as f64 } else { gain as f64 / rewrite as f64 }
        },
    );
    let since =
        ballot.placements.get(brief.ix.as_usize()).filter(|it| it.channel_index().is_some());
    let waited = since.map_or(0.0, |placed| placed.queued_since.age(ballot.now).as_secs_f64());
    frees.max(MIN_GAIN_RATIO).log2() + waited / 3_600.0 / SCORE_DOUBLING_HOURS
}

/// The start of a channel's candidate on a node; none if no request can carry its name.
pub(super) fn build_start(
    at: usize,
    brief: &CandidateSummary,
    node: NodeIx,
    ballot: SelectionContext<'_>,
    admission: &Admission,
) -> Option<PlannedStart> {
    let target = ballot.snapshot.target(brief.ix)?;
    let sites = admission.copies_to_start(node, brief);
    let shard = sites.first().and_then(|site| ballot.snapshot.target(site.any_shard));
    let channel = ballot.channels.list.get(at)?;
    let name = ballot.snapshot.node(node).map_or("", |node| &*node.name);
    let expected = StartEstimate {
        file_count: sites.iter().map(|site| u64::from(site.count)).sum(),
        peak_bytes: admission.space_need(brief).peak_bytes.unwrap_or(0),
        bytes_per_second: ballot.bytes_per_second,
        is_space_known: admission.knows_space(&sites),
        order: ballot.orders.get(&brief.ix),
    };
    let brief = brief.with_learned_prediction(ballot.backoffs);
    PlannedStart::of(target, &brief, (node, name), (at, channel), shard, expected).ok()
}
