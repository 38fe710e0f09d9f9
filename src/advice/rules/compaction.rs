//! Waste that compactions would free.

mod waste_no_channel_takes;
mod waste_waits;

use super::Family;
use crate::{advice::Situation, model::channel::Mode, plan::QueueView};

/// The family.
pub(super) const FAMILY: Family =
    Family { title: "Compaction", rules: &[waste_waits::RULE, waste_no_channel_takes::RULE] };

/// Queues in which something waits, each with whether recliner may start it.
fn queues<'a>(situation: &Situation<'a>) -> impl Iterator<Item = (&'a QueueView, Mode)> {
    let plan = &situation.inputs.plan;
    plan.queues.iter().map(|queue| (&**queue, plan.mode_of(queue)))
}
