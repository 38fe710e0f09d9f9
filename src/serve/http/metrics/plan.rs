//! What is decided, read at scrape: candidates, gates, windows, suspensions, limits.

use super::places;
use crate::{
    model::memory::Scope,
    plan::{Gate, Plan},
    serve::http::families as f,
    table::NodeIx,
};
use metrics_text::Writer;

/// Characters of a free text that a label shows at most.
const LABEL_CHARACTERS: usize = 120;

/// Writes what the plan says beside its queues.
pub(super) fn write(writer: &mut Writer, plan: &Plan) {
    limits(writer, plan);
    candidates(writer, plan);
    gates(writer, plan);
    suspensions(writer, plan);
}

fn limits(writer: &mut Writer, plan: &Plan) {
    let limits = &plan.rules.limits;
    writer.family(&f::NODE_CONCURRENCY_LIMIT).sample(&[], limits.per_node);
    writer.family(&f::CLUSTER_CONCURRENCY_LIMIT).sample(&[], limits.cluster);
    let mut samples = writer.family(&f::CHANNEL_WINDOW_OPEN);
    for (channel, opening) in plan.channels.list.iter().zip(plan.openings.iter()) {
        samples.sample(&[&channel.name], opening.open);
    }
}

/// Every queue shows how many start, also where none does; of the reasons those that there
/// are: all of them for every queue would be most of the exposition, and zeros.
fn candidates(writer: &mut Writer, plan: &Plan) {
    let mut samples = writer.family(&f::CANDIDATES);
    for (queue, counts) in plan.queues.iter().zip(plan.candidates.iter()) {
        let (node, channel) =
            (plan.snapshot.node(queue.node), plan.channels.list.get(queue.channel));
        let Some((node, channel)) = node.zip(channel) else { continue };
        samples.sample(&[&node.name, &channel.name, "start"], counts.starts);
        for (reason, count) in counts.reasons() {
            samples.sample(&[&node.name, &channel.name, reason.label()], count);
        }
    }
}

fn gates(writer: &mut Writer, plan: &Plan) {
    // Of a node that was not asked, pressure and maintenance are not known.
    let known = |gate: Gate, at: NodeIx| match gate {
        Gate::Pressure | Gate::Maintenance => plan.conditions.pressures.nodes.contains_key(&at),
        Gate::Mode | Gate::Suspended | Gate::Journal | Gate::Ramp => true,
    };
    let states: Vec<_> = places(plan)
        .flat_map(|(at, node)| Gate::ALL.map(|gate| (at, node, gate)))
        .filter(|(at, _, gate)| known(*gate, *at))
        .map(|(at, node, gate)| (&node.name, gate, plan.gate(gate, at)))
        .collect();
    let mut samples = writer.family(&f::GATE_OPEN);
    for (node, gate, shut) in &states {
        samples.sample(&[node, gate.label()], shut.is_none());
    }
    let mut samples = writer.family(&f::GATE_CLOSED_SINCE_TIMESTAMP);
    for (node, gate, shut) in &states {
        if let Some(since) = shut.and_then(|shut| shut.since) {
            samples.sample(&[node, gate.label()], since);
        }
    }
}

fn suspensions(writer: &mut Writer, plan: &Plan) {
    let in_force = &plan.conditions.history.suspensions.0;
    let mut samples = writer.family(&f::SUSPENDED);
    samples.sample(&["all"], in_force.contains_key(&Scope::All));
    for scope in in_force.keys().filter(|scope| **scope != Scope::All) {
        samples.sample(&[&scope.to_string()], true);
    }
    let mut samples = writer.family(&f::SUSPENDED_SINCE_TIMESTAMP);
    for (scope, suspension) in in_force {
        samples.sample(&[&scope.to_string()], suspension.since);
    }
    let mut samples = writer.family(&f::SUSPENSION_INFO);
    for (scope, suspension) in in_force {
        let by = in_a_label(suspension.by.as_deref().unwrap_or_default());
        let why = in_a_label(suspension.why.as_deref().unwrap_or_default());
        samples.sample(&[&scope.to_string(), &by, &why], true);
    }
}

/// What a person wrote, as a label's value: on one line and no longer than a sentence.
fn in_a_label(text: &str) -> String {
    let mut shown: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LABEL_CHARACTERS).collect();
    if text.chars().nth(LABEL_CHARACTERS).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_stays_short_and_on_one_line() {
        assert_eq!(in_a_label("disks are\nmoved\u{1b}"), "disks are moved ");
        assert_eq!(in_a_label(""), "");
        let long = "ä".repeat(500);
        assert_eq!(in_a_label(&long), format!("{}…", "ä".repeat(LABEL_CHARACTERS)));
        assert_eq!(in_a_label(&"b".repeat(LABEL_CHARACTERS)), "b".repeat(LABEL_CHARACTERS));
    }
}
