//! The queues of a published plan as if some targets had other sizes, and what would start from
//! them.
//!
//! Pure, and owns nothing of the planner: it copies a plan's queues, takes out the targets whose
//! facts are replaced, and puts back those that a channel would still take. The scorecard of advice
//! requests the starts at several moments.

use super::{
    candidate_summary::CandidateSummary,
    conditions::Conditions,
    db_copies::CopyMap,
    placement::Placement,
    published::Plan,
    queue_view::{PublishedQueues, QueueView},
    rules::Rules,
    selected::{Selected, view_copies},
    start::PlannedStart,
};
use crate::{
    model::{facts::Facts, rent::Rent, score::RentNow},
    table::{NodeIx, Snapshot, TargetIx},
};
use hashbrown::{HashMap, HashSet};
use ordered_float::OrderedFloat;
use std::{cmp::Reverse, sync::Arc};
use wall_clock::Moment;

/// A target with hypothetical facts, per file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SupposedTarget {
    pub(crate) ix: TargetIx,
    pub(crate) facts: Facts,
    pub(crate) rent: Rent,
    /// When a channel first took it with these facts; set by [`Plan::queues_if`].
    pub(crate) queued_since: Option<Moment>,
}

#[derive(Debug)]
pub(crate) struct QueuesIf {
    waiting: PublishedQueues,
    snapshot: Arc<Snapshot>,
    copies: Arc<CopyMap>,
    /// Whether a queue has lost all its targets while others had not fitted into it.
    is_exhausted: bool,
}

impl Plan {
    /// The queues of this plan if these targets had other facts. `leading` are views that may start
    /// although they are in no queue, because some of their copies are compacted already.
    pub(crate) fn queues_if(
        &self,
        supposed: &mut [SupposedTarget],
        leading: impl Iterator<Item = TargetIx>,
    ) -> QueuesIf {
        let changed: HashSet<TargetIx> = supposed.iter().map(|it| it.ix).collect();
        let mut placements = self.placements.clone();
        let mut returning: HashMap<(NodeIx, usize), Vec<CandidateSummary>> = HashMap::new();
        for it in supposed {
            let placed = self.place_if(it);
            it.queued_since = placed.map(|placed| placed.queued_since);
            let target = self.snapshot.target(it.ix);
            if let Some((placed, target)) = placed.zip(target)
                && let Some(channel) = placed.channel_index()
            {
                let summary = CandidateSummary::with_facts(target, &it.facts);
                returning.entry((placed.node, channel)).or_default().push(summary);
            }
            if let Some(row) = placements.get_mut(it.ix.as_usize()) {
                *row = placed.unwrap_or_default();
            }
        }
        let mut is_exhausted = false;
        let view_if = |view: &Arc<QueueView>| {
            let returning = returning.get(&(view.node, view.channel_index));
            let stays = |candidate: &&CandidateSummary| !changed.contains(&candidate.ix);
            if returning.is_none() && view.summaries.iter().all(|it| stays(&it)) {
                return Arc::clone(view);
            }
            let mut summaries: Vec<_> = view.summaries.iter().filter(stays).copied().collect();
            is_exhausted |= summaries.is_empty() && view.overflow > 0;
            summaries.extend(returning.into_iter().flatten());
            summaries.sort_by_cached_key(|candidate| {
                let placed = placements.get(candidate.ix.as_usize()).copied().unwrap_or_default();
                (Reverse(OrderedFloat(placed.priority)), placed.queued_since, candidate.ix)
            });
            Arc::new(QueueView { summaries: summaries.into(), ..(**view).clone() })
        };
        let queues: Arc<[Arc<QueueView>]> = self.queues.iter().map(view_if).collect();
        let clustered = queues.iter().filter(|view| view.node == NodeIx::CLUSTER);
        let candidates = clustered.flat_map(|view| view.summaries.iter().copied());
        let leading = leading.filter_map(|ix| self.snapshot.target(ix)).map(CandidateSummary::of);
        let copies = view_copies(&self.snapshot, candidates.chain(leading));
        let waiting = PublishedQueues {
            channels: Arc::clone(&self.channels),
            queues,
            placements,
            running_targets: Arc::clone(&self.running_targets),
            horizon_factors: Arc::clone(&self.horizon_factors),
            openings: Arc::clone(&self.openings),
        };
        let snapshot = Arc::clone(&self.snapshot);
        QueuesIf { waiting, snapshot, copies: Arc::new(copies), is_exhausted }
    }

    /// The placement of a target with hypothetical facts, if a channel takes it.
    fn place_if(&self, supposed: &SupposedTarget) -> Option<Placement> {
        let target = self.snapshot.target(supposed.ix)?;
        let rent = RentNow { rent: supposed.rent, ..self.rent_now(target) };
        let since = supposed.queued_since.unwrap_or(self.planned_at);
        let placed = Placement::with_facts(&self.channels, target, &supposed.facts, rent, since);
        placed.channel_index().is_some().then_some(placed)
    }
}

impl QueuesIf {
    /// What would start at `now`, best first, and the next time at which that changes by the clock
    /// alone.
    pub(crate) fn starts(
        &self,
        conditions: &Conditions,
        rules: &Arc<Rules>,
        now: Moment,
    ) -> (Vec<PlannedStart>, Option<Moment>) {
        let Self { waiting, snapshot, copies, .. } = self;
        let selected = Selected::of(waiting, Some(copies), snapshot, conditions, rules, now);
        (selected.starts, selected.next_change)
    }

    /// Whether some targets that a channel takes are missing from these queues, because they did
    /// not fit into the plan's queue and every target in it was taken out.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }
}
