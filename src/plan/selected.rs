//! The starts that follow from queues, best first, and the state that explains why other targets do
//! not start.

use super::{
    admission::{Admission, AdmissionInputs},
    candidate_summary::{CandidateSummary, CompactionUnit},
    conditions::Conditions,
    db_copies::CopyMap,
    gates::{self, GateInputs, WindowState},
    leading,
    queue_view::PublishedQueues,
    reservation::SlotReservation,
    rules::Rules,
    selection::{self, SelectionContext, SelectionQueue},
    slot_reservation::ReservationDecision,
    start::PlannedStart,
};
use crate::{
    model::records::CompactionOrder,
    table::{NodeIx, Snapshot, TargetIx},
};
use std::{collections::BTreeMap, sync::Arc};
use wall_clock::Moment;

/// The starts that follow from queues, best first, and the state that explains why the other
/// candidates do not start.
pub(super) struct Selected<'a> {
    pub(super) queues: Vec<SelectionQueue<'a>>,
    pub(super) admission: Admission,
    pub(super) reservation: Option<SlotReservation>,
    pub(super) next_change: Option<Moment>,
    pub(super) window_states: Arc<[WindowState]>,
    pub(super) starts: Vec<PlannedStart>,
}

impl<'a> Selected<'a> {
    /// Selects the starts. `copies` are those of every queued view's database, if already known.
    pub(super) fn of(
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
        let first = leading::leading_candidates(snapshot, channels, conditions, placements);
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
        let find_copies = || {
            let candidates =
                selection_queues.iter().flat_map(|queue| clustered_candidates(queue, orders));
            Arc::new(view_copies(snapshot, candidates.copied()))
        };
        let copies_by_node = copies.map_or_else(find_copies, Arc::clone);
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

/// The candidates of a queue of the whole cluster; empty for a node's queue.
fn clustered_candidates<'a>(
    queue: &'a SelectionQueue<'_>,
    orders: &'a BTreeMap<TargetIx, CompactionOrder>,
) -> impl Iterator<Item = &'a CandidateSummary> {
    let is_clustered = queue.view.node == NodeIx::CLUSTER;
    is_clustered.then(|| queue.candidates(orders)).into_iter().flatten()
}

/// The copies of the databases whose views are among these candidates.
pub(super) fn view_copies(
    snapshot: &Snapshot,
    candidates: impl Iterator<Item = CandidateSummary>,
) -> CopyMap {
    let is_view = |candidate: &CandidateSummary| {
        matches!(candidate.unit, CompactionUnit::SingleCopy | CompactionUnit::AllCopies)
    };
    let wanted = candidates.filter(is_view).map(|candidate| candidate.db).collect();
    CopyMap::find(snapshot, &wanted)
}
