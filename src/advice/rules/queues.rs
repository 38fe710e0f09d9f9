//! What waits in the plan's queues, and on which nodes.

use crate::{
    advice::{Gain, Situation},
    model::channel::Mode,
    plan::{Plan, QueueView},
    table::{Node, NodeIx, TargetRef},
};

/// The queues of the plan, each with the mode of its channel.
pub(super) fn queues<'a>(situation: &Situation<'a>) -> impl Iterator<Item = (&'a QueueView, Mode)> {
    let plan = &situation.inputs.plan;
    plan.queues.iter().map(|queue| (&**queue, plan.mode_of(queue)))
}

/// Every queued target, with its queue.
pub(super) fn queued(plan: &Plan) -> impl Iterator<Item = (&QueueView, TargetRef<'_>)> {
    plan.queues.iter().flat_map(|queue| {
        queue.queued().filter_map(|ix| Some((&**queue, plan.snapshot.target(ix)?)))
    })
}

/// Whether the channel of a queue may start anything.
pub(super) fn enforces(plan: &Plan, queue: &QueueView) -> bool {
    plan.mode_of(queue) == Mode::Enforce
}

/// The gain of freeing waste that recliner would compact if not for this finding. In advise mode,
/// `waste_waits` already counts all waste that waits.
pub(super) fn gain_of_waste(plan: &Plan, bytes: u64) -> Gain {
    if plan.rules.mode == Mode::Enforce { Gain::Bytes(bytes) } else { Gain::Unknown }
}

/// The nodes that this process serves, without the pseudo node.
pub(super) fn served_nodes(plan: &Plan) -> impl Iterator<Item = (NodeIx, &Node)> {
    plan.snapshot.members().filter(|(_, node)| node.is_served)
}
