//! The published plan: the decision about each target, and why.

use super::{
    admission::Admission,
    candidate_summary::{self, CandidateSummary},
    conditions::Conditions,
    decision_counts::{DecisionCounts, RefusalReasons},
    freshness::Freshness,
    gates::{GateInputs, WindowState},
    horizon::HorizonFactors,
    leading,
    placement::{Placement, miss_of},
    queue_view::{PublishedQueues, QueueView, reclaimable_bytes, with_learned_bytes},
    refusal::{Refusal, RefusalClass, RefusalReason},
    reservation::SlotReservation,
    rules::Rules,
    selected::Selected,
    selection,
    start::PlannedStart,
};
use crate::{
    model::{
        channel::{Channel, Channels, Mode},
        score::{Miss, RentNow},
        target::TargetKind,
        window::Openings,
    },
    table::{ChunkedTable, NodeIx, Snapshot, TargetIx, TargetRef},
};
use std::sync::Arc;
use wall_clock::Moment;

/// The decision about one target.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The target would start now.
    Start,
    /// The target is queued, or would be if its queue had a free place, and this refusal prevents
    /// the start.
    Refused(Refusal),
    /// No channel takes the target; [`Plan::misses`] says why.
    NotTaken,
}

/// The plan published last: a snapshot, the channel of each target, and the starts.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The facts from which the plan was made.
    pub snapshot: Arc<Snapshot>,
    /// The channels the plan was made for.
    pub channels: Arc<Channels>,
    /// The live conditions under which the plan was made.
    pub conditions: Conditions,
    /// The settings with which the plan was made.
    pub rules: Arc<Rules>,
    /// The time of planning.
    pub planned_at: Moment,
    /// Every queue that can exist, ordered by node and then channel: queues of database channels on
    /// every node, all other queues on the pseudo-node.
    pub queues: Arc<[Arc<QueueView>]>,
    /// Targets that would start now, in order.
    pub starts: Arc<[PlannedStart]>,
    /// Number of starts and refusals among each queue's candidates, in the order of `queues`.
    pub decision_counts: Arc<[DecisionCounts]>,
    /// The window state of each channel, in the channels' order.
    pub window_states: Arc<[WindowState]>,
    /// The factors on the horizons of channels by rent, for each node.
    pub horizon_factors: Arc<HorizonFactors>,
    /// The target for which slots are reserved.
    pub slot_reservation: Option<SlotReservation>,
    /// The next time at which the plan changes by the clock alone, apart from facts becoming stale.
    pub next_change: Option<Moment>,
    /// Why each queued target does not start, in the order of `queues`.
    pub(super) refusal_reasons: Arc<[RefusalReasons]>,
    pub(super) openings: Arc<[Openings]>,
    pub(super) placements: ChunkedTable<Placement>,
    /// Targets that are being compacted according to their facts, with their queues.
    pub(super) running_targets: Arc<[((NodeIx, usize), TargetIx)]>,
    pub(super) admission: Arc<Admission>,
}

impl Plan {
    /// The plan for these queues: the starts, best first, and the state that explains why the
    /// other candidates do not start.
    pub(super) fn build(
        waiting: PublishedQueues,
        snapshot: &Arc<Snapshot>,
        conditions: &Conditions,
        rules: &Arc<Rules>,
        now: Moment,
    ) -> Self {
        let taught = &conditions.constraints.remaining_bytes;
        // A start's numbers are those that pages show for its target, so both see what was learned.
        let learned = snapshot.with_left_bytes(taught);
        let selected = Selected::of(&waiting, None, &learned, conditions, rules, now);
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
        let queues = with_learned_bytes(&queues, (snapshot, &learned), taught);
        Self {
            next_change,
            slot_reservation: reservation,
            snapshot: learned,
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
    /// it does not start (`None` if it starts).
    pub fn queued_targets(
        &self,
    ) -> impl Iterator<Item = (NodeIx, TargetIx, usize, Option<RefusalReason>)> {
        self.queues.iter().zip(self.refusal_reasons.iter()).flat_map(|(queue, reasons)| {
            let waiting = queue.queued().zip(reasons);
            waiting.map(|(ix, reason)| (queue.node, ix, queue.channel_index, *reason))
        })
    }

    /// The place of a target, from one, among those of its queue that only wait for their turn, and
    /// the number of these. `None` if something else holds the target back.
    #[must_use]
    pub fn place_in_line(&self, target: TargetRef<'_>) -> Option<(usize, usize)> {
        let channel = self.placements.get(target.ix().as_usize())?.channel_index()?;
        let at = self.queue_index(target.node_ix(), channel)?;
        let (queue, reasons) = (self.queues.get(at)?, self.refusal_reasons.get(at)?);
        let in_line = queue.queued().zip(reasons).filter(|(_, reason)| {
            reason.is_some_and(|reason| reason.class() == RefusalClass::InLine)
        });
        let (mut place, mut length) = (None, 0);
        for (ix, _) in in_line {
            length += 1;
            if ix == target.ix() {
                place = Some(length);
            }
        }
        Some((place?, length))
    }

    /// Each queue with the number of its waiting targets.
    pub fn waiting(&self) -> impl Iterator<Item = (&QueueView, usize)> {
        (0..self.queues.len()).filter_map(|at| self.waiting_in(at))
    }

    /// The queue at an index, with the number of its targets that are not being compacted yet.
    #[must_use]
    pub fn waiting_in(&self, at: usize) -> Option<(&QueueView, usize)> {
        let waits = |reason: &&Option<RefusalReason>| **reason != Some(RefusalReason::Running);
        let (queue, reasons) = (self.queues.get(at)?, self.refusal_reasons.get(at)?);
        Some((&**queue, reasons.iter().filter(waits).count()))
    }

    /// Bytes that compacting the targets of the queue at an index frees, excluding targets that can
    /// never start as they are.
    #[must_use]
    pub fn drainable_bytes(&self, at: usize) -> u64 {
        let (Some(queue), Some(reasons)) = (self.queues.get(at), self.refusal_reasons.get(at))
        else {
            return 0;
        };
        let reasons = queue.summaries.iter().zip(reasons);
        let never = reasons.filter(|(_, reason)| reason.is_some_and(RefusalReason::is_never));
        never
            .map(|(candidate, _)| reclaimable_bytes(&self.snapshot, candidate.ix))
            .fold(queue.reclaimable_bytes, u64::saturating_sub)
    }

    /// The effective mode for the targets of a queue: the more cautious of the global mode and its
    /// channel's.
    #[must_use]
    pub fn mode_of(&self, queue: &QueueView) -> Mode {
        let channel = self.channels.list.get(queue.channel_index);
        channel.map_or(Mode::Advise, |channel| self.rules.mode.more_cautious(channel.mode))
    }

    /// The queue of a channel on a node.
    #[must_use]
    pub fn queue(&self, node: NodeIx, channel: usize) -> Option<&QueueView> {
        self.queues.get(self.queue_index(node, channel)?).map(AsRef::as_ref)
    }

    fn queue_index(&self, node: NodeIx, channel: usize) -> Option<usize> {
        let key = |queue: &Arc<QueueView>| (queue.node, queue.channel_index);
        self.queues.binary_search_by_key(&(node, channel), key).ok()
    }

    /// Each channel that does not take this target, with the reason, in the channels' order.
    pub fn misses(&self, target: TargetRef<'_>) -> impl Iterator<Item = (&Channel, Miss)> {
        let rent = self.rent_now(target);
        self.channels.list.iter().filter_map(move |channel| {
            Some((channel, miss_of(&self.channels, channel, target, rent)?))
        })
    }

    /// A target's rent, with the time and the horizon factor that the plan used to compare it.
    #[must_use]
    pub fn rent_now(&self, target: TargetRef<'_>) -> RentNow {
        self.horizon_factors.rent_now(target, self.planned_at)
    }

    /// Why a target's facts are fresh; `None` if they are stale.
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

    /// The channel for which a target may start: the one that takes it, or the one that it counts
    /// towards because of an open round or a forced order.
    #[must_use]
    pub fn start_channel(&self, target: TargetRef<'_>) -> Option<&Channel> {
        let (channel, _) = self.start_channel_index(target)?;
        self.channels.list.get(channel)
    }

    /// The channel that a target counts towards, or would if its order were forced.
    #[must_use]
    pub fn possible_channel(&self, target: TargetRef<'_>) -> Option<&Channel> {
        let forced = || self.channels.list.get(leading::forced_channel(&self.channels, target)?);
        self.start_channel(target).or_else(forced)
    }

    /// The index of [`Self::start_channel`], and when the target was queued there.
    pub(super) fn start_channel_index(
        &self,
        target: TargetRef<'_>,
    ) -> Option<(usize, Option<Moment>)> {
        let since = self.placement(target.ix()).map(|(_, placement)| placement.queued_since);
        leading::find_start_channel(&self.channels, &self.conditions, &self.placements, target)
            .map(|at| (at, since))
    }

    /// Adds numbers to a refusal that the selection itself does not need.
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
