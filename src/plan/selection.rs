//! Selection: the best candidate of all queues starts next.
//!
//! Within a queue, the queue's order decides. Between competing queues, the bytes freed per byte
//! rewritten decide, doubled for every six hours the candidate has waited, so that every candidate
//! starts eventually. Candidates of channels by rent compete by how overdue they are, on the same
//! scale. Operators' orders come before everything else, then the target with a slot reservation.

use super::{
    admission::Admission,
    candidate_summary::CandidateSummary,
    decision_counts::{DecisionCounts, RefusalReasons},
    placement::Placement,
    queue_view::QueueView,
    refusal::RefusalReason,
    start::{PlannedStart, StartEstimate},
};
use crate::{
    model::{
        channel::Channels, priority::PriorityKind, records::CompactionOrder, target::TargetKind,
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
    pub(super) view: &'a QueueView,
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
        let waiting = || self.view.summaries.get(at.checked_sub(self.leading.len())?);
        self.leading.get(at).or_else(waiting)
    }

    /// Every candidate, each of them once.
    pub(super) fn candidates<'a>(
        &'a self,
        orders: &'a OrdersByTarget,
    ) -> impl Iterator<Item = &'a CandidateSummary> {
        let again = |candidate: &&CandidateSummary| !self.is_leading(candidate, orders);
        self.leading.iter().chain(self.view.summaries.iter().filter(again))
    }

    /// Moves the target with a slot reservation to the front of its queue, after all orders.
    pub(super) fn move_reserved_first(&mut self, reserved_for: TargetIx, orders: &OrdersByTarget) {
        if self.reserved_target.is_some() || orders.contains_key(&reserved_for) {
            return;
        }
        let Some(candidate) =
            self.view.summaries.iter().find(|candidate| candidate.ix == reserved_for)
        else {
            return;
        };
        let ordered =
            self.leading.iter().take_while(|candidate| orders.contains_key(&candidate.ix)).count();
        self.leading.insert(ordered, *candidate);
        self.reserved_target = Some(reserved_for);
    }

    /// Whether a queued candidate is also in `leading`.
    fn is_leading(&self, candidate: &CandidateSummary, orders: &OrdersByTarget) -> bool {
        self.reserved_target == Some(candidate.ix) || orders.contains_key(&candidate.ix)
    }

    /// Whether the candidate at an index was already visited in `leading`.
    fn is_repeated(
        &self,
        at: usize,
        candidate: &CandidateSummary,
        orders: &OrdersByTarget,
    ) -> bool {
        at >= self.leading.len() && self.is_leading(candidate, orders)
    }
}

/// Values that the selection reads in addition to the admission.
#[derive(Clone, Copy, Debug)]
pub(super) struct SelectionContext<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) channels: &'a Channels,
    pub(super) placements: &'a ChunkedTable<Placement>,
    pub(super) orders: &'a OrdersByTarget,
    pub(super) remaining_bytes: &'a BTreeMap<TargetIx, u64>,
    pub(super) now: Moment,
    /// Minimum time between two starts on a node.
    pub(super) start_interval: Duration,
    pub(super) bytes_per_second: Option<f64>,
}

impl SelectionContext<'_> {
    /// A candidate with the sizes that a compaction starting now is expected to leave: what its
    /// last one taught, or the waste written while it runs.
    fn expected(&self, candidate: &CandidateSummary) -> CandidateSummary {
        let learned = candidate.with_learned_prediction(self.remaining_bytes);
        if self.remaining_bytes.contains_key(&candidate.ix) {
            return learned;
        }
        let target = self.snapshot.target(candidate.ix);
        target.map_or(learned, |target| {
            learned.catching_up(target.growth(), self.bytes_per_second, self.now)
        })
    }

    /// The part of an expected size that is waste written while the compaction runs.
    fn caught_up_bytes(&self, candidate: &CandidateSummary) -> u64 {
        let without = candidate.with_learned_prediction(self.remaining_bytes);
        let [with, without] =
            [self.expected(candidate), without].map(|it| it.predicted_bytes.get());
        with.zip(without).map_or(0, |(with, without)| with.saturating_sub(without))
    }
}

/// The next candidate of a queue that may start, and its node.
#[derive(Clone, Copy, Debug)]
struct NextStart {
    index: usize,
    node: NodeIx,
    score: OrderedFloat<f64>,
}

impl NextStart {
    /// The same start, if it is still admitted after other starts. Most starts do not affect most
    /// queues, and checking one candidate takes less time than searching for the next.
    fn if_still_admitted(self, queue: &SelectionQueue<'_>, admission: &Admission) -> Option<Self> {
        let QueueView { node, channel_index: channel, .. } = *queue.view;
        let node = admission.admit(node, channel, queue.get(self.index)?).ok()?;
        Some(Self { node, ..self })
    }
}

/// Starts candidates, best first, until no more may start.
///
/// A start only uses up slots and space, so each queue is walked once: a refused candidate stays
/// refused.
pub(super) fn select_starts(
    queues: &[SelectionQueue<'_>],
    context: SelectionContext<'_>,
    admission: &mut Admission,
) -> Vec<PlannedStart> {
    let mut starts = Vec::new();
    let mut heads: Vec<Option<NextStart>> =
        queues.iter().map(|queue| next_start(queue, 0, context, admission)).collect();
    loop {
        let best = heads
            .iter()
            .enumerate()
            .filter_map(|(at, head)| Some((at, (*head)?)))
            // Among equal scores, the first queue wins.
            .max_by(|(one, a), (other, b)| a.score.cmp(&b.score).then(other.cmp(one)));
        let Some((at, chosen)) = best else { return starts };
        let Some((queue, candidate)) =
            queues.get(at).and_then(|queue| Some((queue, queue.get(chosen.index)?)))
        else {
            return starts;
        };
        match build_start(queue.view.channel_index, candidate, chosen.node, context, admission) {
            Some(start) => {
                admission.record_start(chosen.node, queue.view.channel_index, candidate);
                starts.push(start);
            }
            None => admission.mark_unaddressable(candidate.ix),
        }
        for (place, (queue, kept)) in queues.iter().zip(&mut heads).enumerate() {
            if let Some(before) = *kept {
                *kept = if place == at {
                    next_start(queue, before.index + 1, context, admission)
                } else {
                    before
                        .if_still_admitted(queue, admission)
                        .or_else(|| next_start(queue, before.index, context, admission))
                };
            }
        }
    }
}

/// Counts the decisions about every candidate of a queue, and returns the reason for each queued
/// one.
pub(super) fn count_decisions(
    queue: &SelectionQueue<'_>,
    starts: &[PlannedStart],
    orders: &OrdersByTarget,
    admission: &Admission,
) -> (DecisionCounts, RefusalReasons) {
    let mut counts = DecisionCounts::default();
    let mut reasons = RefusalReasons::with_capacity(queue.view.summaries.len());
    let QueueView { node, channel_index: channel, .. } = *queue.view;
    let of_queue = |start: &&PlannedStart| {
        start.channel == channel && (start.node == node || node == NodeIx::CLUSTER)
    };
    let started: hashbrown::HashSet<_> =
        starts.iter().filter(of_queue).map(|start| start.ix).collect();
    let bounds = admission.bounds(node, channel);
    let decided = |candidate: &CandidateSummary| {
        let starts = !started.is_empty() && started.contains(&candidate.ix);
        let reason = || admission.refusal_reason(&bounds, (node, channel), candidate);
        (!starts).then(|| reason().unwrap_or(RefusalReason::ChannelLimit))
    };
    let mut count = |reason: Option<RefusalReason>| match reason {
        Some(reason) => counts.count_refusal(reason),
        None => counts.starts += 1,
    };
    queue.leading.iter().for_each(|candidate| count(decided(candidate)));
    for candidate in queue.view.summaries.iter() {
        let reason = decided(candidate);
        reasons.push(reason);
        // A candidate in `leading` is already counted.
        if !queue.is_leading(candidate, orders) {
            count(reason);
        }
    }
    (counts, reasons)
}

/// The first candidate of a queue at or after `from` that may start.
fn next_start(
    queue: &SelectionQueue<'_>,
    from: usize,
    context: SelectionContext<'_>,
    admission: &Admission,
) -> Option<NextStart> {
    let QueueView { node, channel_index: channel, .. } = *queue.view;
    let kind = context.channels.list.get(channel)?.kind;
    let bounds = admission.bounds(node, channel);
    if admission.is_exhausted(channel, kind) || (kind == TargetKind::Db && bounds.is_closed()) {
        return None;
    }
    let until = if kind == TargetKind::Db && bounds.admits_leading_only() {
        queue.leading.len()
    } else {
        usize::MAX
    };
    let mut at = from;
    while at < until
        && let Some(candidate) = queue.get(at)
    {
        let may_start = !queue.is_repeated(at, candidate, context.orders)
            && (kind != TargetKind::Db
                || admission.refusal_reason(&bounds, (node, channel), candidate).is_none());
        if may_start && let Ok(node) = admission.admit(node, channel, candidate) {
            return Some(NextStart {
                index: at,
                node,
                score: start_score(queue, candidate, context).into(),
            });
        }
        at += 1;
    }
    None
}

/// A candidate's score for comparison with other queues, as a base-2 logarithm because a candidate
/// may wait for years.
///
/// All channels share one scale: bytes freed per byte rewritten or, in a channel by rent, how
/// overdue the candidate is; doubled for every six hours in the queue. So every candidate
/// eventually overtakes all newcomers, no matter which channels compete.
pub(super) fn start_score(
    queue: &SelectionQueue<'_>,
    candidate: &CandidateSummary,
    context: SelectionContext<'_>,
) -> f64 {
    if context.orders.contains_key(&candidate.ix) {
        return f64::INFINITY;
    }
    if queue.reserved_target == Some(candidate.ix) {
        return f64::MAX;
    }
    let placed =
        context.placements.get(candidate.ix.as_usize()).filter(|it| it.channel_index().is_some());
    let channel = context.channels.list.get(queue.view.channel_index);
    if channel.is_some_and(|channel| channel.priority == PriorityKind::Rent) {
        let overdue = placed.map_or(1.0, |placed| placed.priority);
        return overdue.max(MIN_GAIN_RATIO).log2() + waited_doublings(placed, context.now);
    }
    let candidate = context.expected(candidate);
    let gain_ratio = candidate.reclaimable_bytes().zip(candidate.predicted_bytes.get()).map_or(
        0.0,
        |(gain, rewrite)| {
            if rewrite == 0 { gain as f64 } else { gain as f64 / rewrite as f64 }
        },
    );
    gain_ratio.max(MIN_GAIN_RATIO).log2() + waited_doublings(placed, context.now)
}

/// How many times a score has doubled while its candidate waited.
fn waited_doublings(placed: Option<&Placement>, now: Moment) -> f64 {
    let waited = placed.map_or(0.0, |placed| placed.queued_since.age(now).as_secs_f64());
    waited / 3_600.0 / SCORE_DOUBLING_HOURS
}

/// The start of a channel's candidate on a node; `None` if no request can carry its name.
pub(super) fn build_start(
    at: usize,
    candidate: &CandidateSummary,
    node: NodeIx,
    context: SelectionContext<'_>,
    admission: &Admission,
) -> Option<PlannedStart> {
    let target = context.snapshot.target(candidate.ix)?;
    let candidate = &candidate.of_copy(target, node);
    let copies_by_node = admission.copies_to_start(node, candidate);
    let shard = copies_by_node
        .first()
        .and_then(|node_copies| context.snapshot.target(node_copies.any_shard));
    let channel = context.channels.list.get(at)?;
    let name = context.snapshot.node(node).map_or("", |node| &*node.name);
    let counts = || copies_by_node.iter().map(|node_copies| u64::from(node_copies.count));
    let peak_of_one = admission.space_need(candidate).peak_bytes.unwrap_or(0);
    let expected = StartEstimate {
        file_count: counts().sum(),
        caught_up_bytes: context.caught_up_bytes(candidate),
        // Its files on one node are compacted at the same time.
        peak_bytes: peak_of_one.saturating_mul(counts().max().unwrap_or(0)),
        bytes_per_second: context.bytes_per_second,
        is_space_known: admission.knows_space(&copies_by_node),
        order: context.orders.get(&candidate.ix),
    };
    let candidate = context.expected(candidate);
    PlannedStart::of(target, &candidate, (node, name), (at, channel), shard, expected).ok()
}
