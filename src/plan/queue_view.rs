//! Queues in their published form.

use super::{
    candidate_summary::CandidateSummary, gates::WindowState, horizon::HorizonFactors,
    placement::Placement,
};
use crate::{
    model::{
        channel::{Channel, Channels},
        window::Openings,
    },
    table::{ChunkedTable, NodeIx, Snapshot, TargetIx, TargetRef},
};
use std::{collections::BTreeMap, sync::Arc};
use wall_clock::Moment;

/// A queue's node, and its channel's index.
pub(super) type QueueKey = (NodeIx, usize);

/// One published queue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueView {
    /// The node, or the pseudo-node for views and cleanups of the whole cluster.
    pub node: NodeIx,
    /// The channel's index in the configured order.
    pub channel_index: usize,
    /// Maximum number of queued targets.
    pub capacity: usize,
    /// Targets that the channel takes but that do not fit into the queue.
    pub overflow: usize,
    /// Largest and smallest priority in the queue; absent when the queue is empty.
    pub priority_range: Option<(f64, f64)>,
    /// When the oldest queued target was queued.
    pub oldest_queued_at: Option<Moment>,
    /// Bytes on disk that compacting every queued target would free; targets of unknown size are
    /// not included.
    pub reclaimable_bytes: u64,
    /// Running jobs whose target this channel takes, including jobs that others started.
    pub active_jobs: usize,
    /// A summary of each queued target, best first.
    pub(super) summaries: Arc<[CandidateSummary]>,
}

impl QueueView {
    /// Queued targets, best first.
    pub fn queued(&self) -> impl ExactSizeIterator<Item = TargetIx> {
        self.summaries.iter().map(|candidate| candidate.ix)
    }
}

/// The published queues and the other inputs of a plan.
#[derive(Debug)]
pub(super) struct PublishedQueues {
    pub(super) channels: Arc<Channels>,
    pub(super) queues: Arc<[Arc<QueueView>]>,
    pub(super) placements: ChunkedTable<Placement>,
    /// Targets that are being compacted according to their facts, with their queues.
    pub(super) running_targets: Arc<[(QueueKey, TargetIx)]>,
    pub(super) horizon_factors: Arc<HorizonFactors>,
    /// When the windows of each channel open, in the channels' order.
    pub(super) openings: Arc<[Openings]>,
}

impl PublishedQueues {
    pub(super) fn window_states(&self, now: Moment) -> Arc<[WindowState]> {
        let states = self.channels.list.iter().zip(self.openings.iter());
        let state = |(channel, openings): (&Channel, &Openings)| {
            let fresh = (!openings.covers(now)).then(|| Openings::of(&channel.windows, now));
            WindowState::of(fresh.as_ref().unwrap_or(openings), now)
        };
        states.map(state).collect()
    }
}

/// The queues, with sums that include the corrections learned from the last compactions of these targets.
pub(super) fn with_learned_bytes(
    queues: &Arc<[Arc<QueueView>]>,
    (predicted, learned): (&Snapshot, &Snapshot),
    taught: &BTreeMap<TargetIx, u64>,
) -> Arc<[Arc<QueueView>]> {
    if taught.is_empty() {
        return Arc::clone(queues);
    }
    let with_taught = |queue: &Arc<QueueView>| {
        let of = |snapshot: &Snapshot| {
            let known = queue.queued().filter(|ix| taught.contains_key(ix));
            known.map(|ix| reclaimable_bytes(snapshot, ix)).fold(0, u64::saturating_add)
        };
        let (before, after) = (of(predicted), of(learned));
        if before == after {
            return Arc::clone(queue);
        }
        let reclaimable = queue.reclaimable_bytes.saturating_sub(before).saturating_add(after);
        Arc::new(QueueView { reclaimable_bytes: reclaimable, ..QueueView::clone(queue) })
    };
    queues.iter().map(with_taught).collect()
}

/// Predicted bytes on disk that compacting a target frees; 0 if unknown.
pub(super) fn reclaimable_bytes(snapshot: &Snapshot, ix: TargetIx) -> u64 {
    snapshot.target(ix).and_then(TargetRef::reclaimable_bytes).unwrap_or(0)
}
