//! recliner itself: what it may not see, does not know, or is not allowed to do in time.

mod limits_hold_back;
mod missing_rights;
mod unknown_volumes;
mod window_too_short;

use super::Family;
use crate::{
    advice::Gain,
    model::channel::Mode,
    plan::{Plan, QueueView},
    table::{NodeIx, TargetRef},
};

/// The family.
pub(super) const FAMILY: Family = Family {
    title: "recliner itself",
    rules: &[
        missing_rights::RULE,
        unknown_volumes::RULE,
        window_too_short::RULE,
        limits_hold_back::RULE,
    ],
};

/// Every queued target, with its queue.
fn queued(plan: &Plan) -> impl Iterator<Item = (&QueueView, TargetRef<'_>)> {
    plan.queues.iter().flat_map(|queue| {
        queue.queued().filter_map(|ix| Some((&**queue, plan.snapshot.target(ix)?)))
    })
}

/// Whether the channel of a queue may start anything.
fn enforces(plan: &Plan, queue: &QueueView) -> bool {
    plan.mode_of(queue) == Mode::Enforce
}

/// What freeing waste is worth that recliner would compact but for this finding. While it only advises, all that
/// waits is counted by `waste_waits` already.
fn gain_of_waste(plan: &Plan, bytes: u64) -> Gain {
    if plan.rules.mode == Mode::Enforce { Gain::Bytes(bytes) } else { Gain::Unknown }
}

/// The nodes that this process serves, without the pseudo node.
fn served_nodes(plan: &Plan) -> impl Iterator<Item = (NodeIx, &crate::table::Node)> {
    plan.snapshot.members().filter(|(_, node)| node.is_served)
}
