//! The plan: which targets wait in which queue, what would start now, and why the rest does not.
//!
//! Owns the queues and their policy, as pure functions of (snapshot, channels, conditions, rules,
//! now): no clock, no I/O, no logging. The planner task holds the [`Queues`] and publishes
//! [`Plan`]s; metrics, API, commands and the enforcer read those. Misses and refusals are computed
//! on request; a queued target stores only its channel, its priority and when it was
//! queued.

mod admission;
mod candidate_summary;
mod compaction_space;
mod conditions;
mod db_copies;
mod decision_counts;
pub mod disk;
mod duty;
mod forecast;
mod freshness;
mod gates;
mod horizon;
mod limit_usage;
mod orders;
mod placement;
pub mod planner;
pub(crate) mod pressure;
mod queue_bounds;
mod queues;
mod queues_if;
mod refusal;
mod rules;
mod selection;
mod slot_reservation;
mod slots;
mod start;
mod target_activity;
mod volume_space;

pub use compaction_space::UsableSpace;
pub use conditions::Conditions;
pub use decision_counts::DecisionCounts;
pub(crate) use duty::{MAX_COUNTED_WORK, rest_after};
pub use freshness::Freshness;
pub use gates::WindowState;
pub use horizon::{HorizonFactor, HorizonFactors, ScarceVolume};
pub use limit_usage::LimitUsage;
pub use orders::OrderAnswer;
pub use placement::{Placement, first_channel, miss_of};
pub use queues::Queues;
pub(crate) use queues_if::SupposedTarget;
pub use refusal::{Refusal, RefusalEnd, RefusalReason};
pub use rules::Rules;
pub use slot_reservation::SlotReservation;
pub use start::{Caveat, CompactionRequest, PlannedStart};

use crate::{
    model::{
        channel::{Channel, Channels, Mode},
        records::CompactionOrder,
        score::{Miss, RentNow},
        target::TargetKind,
        window::Openings,
    },
    table::{ChunkedTable, NodeIx, Snapshot, TargetIx, TargetRef},
};
use admission::{Admission, AdmissionInputs};
use candidate_summary::{CandidateSummary, CompactionUnit};
use db_copies::CopyMap;
use decision_counts::RefusalReasons;
use gates::GateInputs;
use queues::{PublishedQueues, reclaimable_bytes};
use selection::{SelectionContext, SelectionQueue};
use slot_reservation::ReservationDecision;
use std::{collections::BTreeMap, sync::Arc};
use wall_clock::Moment;

/// One published queue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueView {
    /// The node, or the pseudo node for views and cleanups of the whole cluster.
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
    /// Bytes on disk that compacting every queued target would free, as far as sizes are known.
    pub reclaimable_bytes: u64,
    /// Running jobs whose target this channel takes, including jobs that others started.
    pub active_jobs: usize,
    /// A summary of each queued target, best first.
    summaries: Arc<[CandidateSummary]>,
}

impl QueueView {
    /// Queued targets, best first.
    pub fn queued(&self) -> impl ExactSizeIterator<Item = TargetIx> {
        self.summaries.iter().map(|candidate| candidate.ix)
    }
}

/// The decision about one target.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// It would start now.
    Start,
    /// It is queued, or would be if its queue had a free place, and this refusal prevents the
    /// start.
    Refused(Refusal),
    /// No channel takes it; ask for its misses.
    NotTaken,
}

/// The plan published last: a snapshot, the channel of each target, and the starts.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The facts the plan was made from.
    pub snapshot: Arc<Snapshot>,
    /// The channels the plan was made for.
    pub channels: Arc<Channels>,
    /// The live conditions the plan was made under.
    pub conditions: Conditions,
    /// The settings the plan was made with.
    pub rules: Arc<Rules>,
    /// The time of planning.
    pub planned_at: Moment,
    /// Every queue that can exist, ordered by node and then channel: queues of database channels
    /// on every node, all other queues on the pseudo node.
    pub queues: Arc<[Arc<QueueView>]>,
    /// What would start now, in order.
    pub starts: Arc<[PlannedStart]>,
    /// Number of starts and refusals among each queue's candidates, in the order of `queues`.
    pub decision_counts: Arc<[DecisionCounts]>,
    /// The window state of each channel, in the channels' order.
    pub window_states: Arc<[WindowState]>,
    /// What the horizons of channels by rent are multiplied by on each node.
    pub horizon_factors: Arc<HorizonFactors>,
    /// The target for which slots are reserved.
    pub slot_reservation: Option<SlotReservation>,
    /// The next time at which the plan changes through the clock alone, apart from facts becoming
    /// stale.
    pub next_change: Option<Moment>,
    /// Why each queued target does not start, in the order of `queues`.
    refusal_reasons: Arc<[RefusalReasons]>,
    openings: Arc<[Openings]>,
    placements: ChunkedTable<Placement>,
    /// Targets whose facts say that they are being compacted, with their queues.
    running_targets: Arc<[((NodeIx, usize), TargetIx)]>,
    admission: Arc<Admission>,
}

impl Plan {
    /// The plan for these queues: the starts, best first, and the state that explains why the
    /// other candidates do not start.
    fn build(
        waiting: PublishedQueues,
        snapshot: &Arc<Snapshot>,
        conditions: &Conditions,
        rules: &Arc<Rules>,
        now: Moment,
    ) -> Self {
        let selected = Selected::of(&waiting, None, snapshot, conditions, rules, now);
        let orders = &conditions.constraints.orders;
        let count = |queue| {
            selection::count_decisions(queue, &selected.starts, orders, &selected.admission)
        };
        let (counts, reasons): (Vec<DecisionCounts>, Vec<RefusalReasons>) =
            selected.queues.iter().map(count).unzip();
        let Selected { admission, reservation, next_change, window_states, starts, .. } = selected;
        let PublishedQueues {
            channels,
            queues,
            placements,
            running_targets,
            horizon_factors,
            openings,
        } = waiting;
        Self {
            next_change,
            slot_reservation: reservation,
            snapshot: Arc::clone(snapshot),
            conditions: conditions.clone(),
            rules: Arc::clone(rules),
            planned_at: now,
            starts: starts.into(),
            decision_counts: counts.into(),
            refusal_reasons: reasons.into(),
            admission: Arc::new(admission),
            channels,
            queues,
            window_states,
            horizon_factors,
            openings,
            placements,
            running_targets,
        }
    }

    /// The planned start of a target, if it starts.
    #[must_use]
    pub fn start(&self, ix: TargetIx) -> Option<&PlannedStart> {
        self.starts.iter().find(|start| start.ix == ix)
    }

    /// Why a node's gate, one of [`RefusalReason::gates`], holds back every start, if it is closed.
    #[must_use]
    pub fn gate_refusal(&self, gate: RefusalReason, at: NodeIx) -> Option<Refusal> {
        let gate_inputs = GateInputs {
            rules: &self.rules,
            conditions: &self.conditions,
            now: self.planned_at,
            running_compactions: self.conditions.jobs.compactions().count(),
        };
        gate_inputs.gate_refusal(gate, at, self.snapshot.node(at)?)
    }

    /// The channel that takes a target, its priority there, and when it was queued.
    #[must_use]
    pub fn placement(&self, ix: TargetIx) -> Option<(&Channel, Placement)> {
        let target = self.snapshot.target(ix)?;
        let placement = *self.placements.get(target.ix().as_usize())?;
        Some((self.channels.list.get(placement.channel_index()?)?, placement))
    }

    /// Every queued target: the queue's node, the target, its channel's index, and the reason why
    /// it does not start; none if it starts.
    pub fn queued_targets(
        &self,
    ) -> impl Iterator<Item = (NodeIx, TargetIx, usize, Option<RefusalReason>)> {
        self.queues.iter().zip(self.refusal_reasons.iter()).flat_map(|(queue, reasons)| {
            let waiting = queue.queued().zip(reasons);
            waiting.map(|(ix, reason)| (queue.node, ix, queue.channel_index, *reason))
        })
    }

    /// Each queue with the number of its targets that wait.
    pub fn waiting(&self) -> impl Iterator<Item = (&QueueView, usize)> {
        (0..self.queues.len()).filter_map(|at| self.waiting_in(at))
    }

    /// The queue at an index, with the number of its targets that are not being compacted already.
    #[must_use]
    pub fn waiting_in(&self, at: usize) -> Option<(&QueueView, usize)> {
        let waits = |reason: &&Option<RefusalReason>| **reason != Some(RefusalReason::Running);
        let (queue, reasons) = (self.queues.get(at)?, self.refusal_reasons.get(at)?);
        Some((&**queue, reasons.iter().filter(waits).count()))
    }

    /// Bytes that compacting the targets of the queue at an index frees, without those that nothing
    /// starts as they are.
    #[must_use]
    pub fn drainable_bytes(&self, at: usize) -> u64 {
        let (Some(queue), Some(reasons)) = (self.queues.get(at), self.refusal_reasons.get(at))
        else {
            return 0;
        };
        let reasons = queue.summaries.iter().zip(reasons);
        let never = reasons.filter(|(_, reason)| reason.is_some_and(RefusalReason::is_never));
        never
            .map(|(candidate, _)| reclaimable_bytes(&self.snapshot, queue.node, candidate))
            .fold(queue.reclaimable_bytes, u64::saturating_sub)
    }

    /// The mode that holds for the targets of a queue: the more careful of the settings' and its channel's.
    #[must_use]
    pub fn mode_of(&self, queue: &QueueView) -> Mode {
        let channel = self.channels.list.get(queue.channel_index);
        channel.map_or(Mode::Advise, |channel| self.rules.mode.more_cautious(channel.mode))
    }

    /// The queue of a channel on a node.
    #[must_use]
    pub fn queue(&self, node: NodeIx, channel: usize) -> Option<&QueueView> {
        let at = self
            .queues
            .binary_search_by_key(&(node, channel), |queue| (queue.node, queue.channel_index))
            .ok()?;
        self.queues.get(at).map(AsRef::as_ref)
    }

    /// Each channel that does not take this target, with the reason, in the channels' order.
    pub fn misses(&self, target: TargetRef<'_>) -> impl Iterator<Item = (&Channel, Miss)> {
        let rent = self.rent_now(target);
        self.channels.list.iter().filter_map(move |channel| {
            Some((channel, miss_of(&self.channels, channel, target, rent)?))
        })
    }

    /// A target's rent, with the time and the price at which the plan compared it.
    #[must_use]
    pub fn rent_now(&self, target: TargetRef<'_>) -> RentNow {
        self.horizon_factors.rent_now(target, self.planned_at)
    }

    /// The rule by which a target's facts count as fresh; none if they are stale.
    #[must_use]
    pub fn freshness(&self, target: TargetRef<'_>) -> Option<Freshness> {
        Freshness::of(&self.snapshot, target.ix(), &self.rules, self.planned_at)
    }

    /// The decision about a target.
    #[must_use]
    pub fn decision(&self, target: TargetRef<'_>) -> Decision {
        if self.start(target.ix()).is_some() {
            return Decision::Start;
        }
        let Some((channel, waits_since)) = self.start_channel_index(target) else {
            return match target.kind() {
                TargetKind::Cleanup if !target.facts().flags.evidence => {
                    Decision::Refused(Refusal::without_numbers(RefusalReason::NoEvidence))
                }
                TargetKind::Db | TargetKind::View | TargetKind::Cleanup | TargetKind::Search => {
                    Decision::NotTaken
                }
            };
        };
        let candidate = CandidateSummary::of(target);
        let mut refusal = self.admission.refusal(target.node_ix(), channel, &candidate);
        if refusal.value.is_none() {
            self.add_numbers(&mut refusal, target, channel);
        }
        refusal.since = refusal.since.or(waits_since);
        Decision::Refused(refusal)
    }

    /// The target whose slot reservation causes this refusal.
    #[must_use]
    pub fn reservation_behind(
        &self,
        refusal: &Refusal,
    ) -> Option<(TargetRef<'_>, &SlotReservation)> {
        let reservation =
            self.slot_reservation.as_ref().filter(|_| refusal.is_caused_by_reservation())?;
        Some((self.snapshot.target(reservation.ix)?, reservation))
    }

    /// Adds the numbers of a refusal that the selection itself does not need.
    fn add_numbers(&self, refusal: &mut Refusal, target: TargetRef<'_>, channel: usize) {
        let numbers = if refusal.reason == RefusalReason::Building {
            candidate_summary::index_lag(&target.facts())
                .map(|(pending, allowed)| (pending as f64, allowed as f64))
        } else if refusal.reason == RefusalReason::ChannelLimit {
            self.queue(target.node_ix(), channel)
                .map(|queue| (queue.queued().len() as f64, queue.capacity as f64))
        } else {
            None
        };
        if let Some((value, limit)) = numbers {
            (refusal.value, refusal.limit) = (Some(value), Some(limit));
        }
    }
}

/// The starts that follow from queues, best first, and the state that explains why the other
/// candidates do not start.
struct Selected<'a> {
    queues: Vec<SelectionQueue<'a>>,
    admission: Admission,
    reservation: Option<SlotReservation>,
    next_change: Option<Moment>,
    window_states: Arc<[WindowState]>,
    starts: Vec<PlannedStart>,
}

impl<'a> Selected<'a> {
    /// `copies` are those of every queued view's database, if they are known already.
    fn of(
        waiting: &'a PublishedQueues,
        copies: Option<&Arc<CopyMap>>,
        snapshot: &Arc<Snapshot>,
        conditions: &Conditions,
        rules: &Arc<Rules>,
        now: Moment,
    ) -> Self {
        let PublishedQueues { channels, queues, placements, running_targets, .. } = waiting;
        let window_states = waiting.window_states(now);
        let orders = &conditions.constraints.orders;
        let first = orders::leading_candidates(snapshot, channels, conditions, placements);
        let mut selection_queues: Vec<SelectionQueue<'a>> = queues
            .iter()
            .map(|view| {
                let own = first.iter().filter(|it| it.queue_key == (view.node, view.channel_index));
                SelectionQueue {
                    view,
                    leading: own.map(|it| it.summary).collect(),
                    reserved_target: None,
                }
            })
            .collect();
        let found = || {
            let candidates =
                selection_queues.iter().flat_map(|queue| clustered_candidates(queue, orders));
            Arc::new(view_copies(snapshot, candidates.copied()))
        };
        let copies_by_node = copies.map_or_else(found, Arc::clone);
        let present = AdmissionInputs {
            snapshot,
            channels,
            conditions,
            rules,
            now,
            window_states: &window_states,
            placements,
            copies: &copies_by_node,
        };
        let mut admission = Admission::new(&present, running_targets.iter().copied());
        let rate = conditions.constraints.measured_rate();
        let context = SelectionContext {
            snapshot,
            channels,
            placements,
            orders,
            remaining_bytes: &conditions.constraints.remaining_bytes,
            now,
            start_interval: rules.limits.wait,
            bytes_per_second: rate,
        };
        let ReservationDecision { reservation, next_change } =
            ReservationDecision::decide(&selection_queues, context, &admission);
        if let Some(reservation) = &reservation {
            admission.reserve(reservation);
            let place = (reservation.node, reservation.channel_index);
            let queue = selection_queues
                .iter_mut()
                .find(|it| (it.view.node, it.view.channel_index) == place);
            if let Some(queue) = queue {
                queue.move_reserved_first(reservation.ix, orders);
            }
        }
        let starts = selection::select_starts(&selection_queues, context, &mut admission);
        let gate_inputs = GateInputs { rules, conditions, now, running_compactions: 0 };
        let changes = gates::next_change(&gate_inputs, &window_states);
        Self {
            queues: selection_queues,
            admission,
            reservation,
            next_change: changes.into_iter().chain(next_change).min(),
            window_states,
            starts,
        }
    }
}

/// The candidates of a queue of the whole cluster; none of a node's queue.
fn clustered_candidates<'a>(
    queue: &'a SelectionQueue<'_>,
    orders: &'a BTreeMap<TargetIx, CompactionOrder>,
) -> impl Iterator<Item = &'a CandidateSummary> {
    let is_clustered = queue.view.node == NodeIx::CLUSTER;
    is_clustered.then(|| queue.candidates(orders)).into_iter().flatten()
}

/// The copies of the databases whose views are among these candidates.
fn view_copies(snapshot: &Snapshot, candidates: impl Iterator<Item = CandidateSummary>) -> CopyMap {
    let is_view = |candidate: &CandidateSummary| {
        matches!(candidate.unit, CompactionUnit::SingleCopy | CompactionUnit::AllCopies)
    };
    let wanted = candidates.filter(is_view).map(|candidate| candidate.db).collect();
    CopyMap::find(snapshot, &wanted)
}

#[cfg(test)]
mod tests;
