//! How an operator's order to compact a target is answered, and what would start for it.

use super::{
    admission::Admission,
    candidate_summary::CandidateSummary,
    leading,
    published::{Decision, Plan},
    refusal::{Refusal, RefusalReason},
    selected::view_copies,
    selection::{self, SelectionContext},
    start::{CompactionRequest, PlannedStart},
};
use crate::{model::channel::Mode, table::TargetRef};

/// The answer to an order to compact a target, from a plan that includes the order.
#[derive(Clone, Debug, PartialEq)]
pub enum OrderAnswer {
    /// The target starts now.
    Starts(CompactionRequest),
    /// The target starts before all others as soon as this refusal passes.
    Waits(CompactionRequest, Refusal),
    /// The target does not start until this refusal is resolved. In advise mode, with the request
    /// that would be sent.
    Refused(Refusal, Option<CompactionRequest>),
    /// No channel takes the target and the order is not forced; the caller looks up its misses.
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
        let mut starts = self.starts_despite_refusals(channel, target, &self.admission).into_iter();
        starts.next().map(|start| start.request)
    }

    /// The start of a target if an operator ordered it, despite all refusals; for a target that no
    /// channel takes, if the order was forced. `None` if no order can start it.
    #[must_use]
    pub fn start_if_ordered(&self, target: TargetRef<'_>) -> Option<PlannedStart> {
        if let Some(start) = self.start(target.ix()) {
            return Some(start.clone());
        }
        self.starts_if_ordered(target).into_iter().next()
    }

    /// All starts of a target if an operator ordered it, despite all refusals. A view that is compacted
    /// copy by copy has several.
    #[must_use]
    pub fn starts_if_ordered(&self, target: TargetRef<'_>) -> Vec<PlannedStart> {
        let taken = self.start_channel_index(target).map(|(channel, _)| channel);
        let forced = || leading::forced_channel(&self.channels, target);
        let Some(channel) = taken.or_else(forced) else { return Vec::new() };
        // The plan only has the copies of queued views.
        let copies = view_copies(&self.snapshot, std::iter::once(CandidateSummary::of(target)));
        self.starts_despite_refusals(channel, target, &self.admission.with_copies(copies))
    }

    fn starts_despite_refusals(
        &self,
        channel: usize,
        target: TargetRef<'_>,
        admission: &Admission,
    ) -> Vec<PlannedStart> {
        let candidate = CandidateSummary::of(target);
        let nodes = admission.request_nodes(target.node_ix(), &candidate);
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
        let start = |node| selection::build_start(channel, &candidate, node, context, admission);
        nodes.into_iter().filter_map(start).collect()
    }
}
