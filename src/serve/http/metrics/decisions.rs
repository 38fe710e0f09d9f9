//! The plan's limits, windows, decisions about queued targets, gates and suspensions.

use super::served_nodes;
use crate::{
    model::records::SuspensionScope,
    plan::{Plan, Refusal, RefusalReason},
    table::NodeIx,
    text::Label,
};
use metrics_text::{Writer, families};

families! {
    CHANNEL_CONCURRENCY_LIMIT: Gauge None "recliner_channel_concurrency_limit" ["channel"]
        "Maximum number of the channel's compactions on each node at a time.";
    NODE_CONCURRENCY_LIMIT: Gauge None "recliner_node_concurrency_limit" []
        "Maximum number of compactions on each node at a time, whatever starts them.";
    CLUSTER_CONCURRENCY_LIMIT: Gauge None "recliner_cluster_concurrency_limit" []
        "Maximum number of compactions in the whole cluster at a time, whatever starts them.";
    CHANNEL_WINDOW_OPEN: Gauge None "recliner_channel_window_open" ["channel"]
        "1 if a window of the channel is open or it has none, 0 if all its windows are closed.";
    CANDIDATES: Gauge None "recliner_candidates" ["node", "channel", "decision"]
        "Number of queued targets, by decision: start, or the reason why they do not start.";
    GATE_OPEN: Gauge None "recliner_gate_open" ["node", "gate"]
        "1 if the gate allows compactions to start on the node, 0 if it holds all of them back.";
    GATE_CLOSED_SINCE_TIMESTAMP: Gauge Seconds
        "recliner_gate_closed_since_timestamp_seconds" ["node", "gate"]
        "Unix time at which the gate closed, in seconds; absent while it is open.";
    SUSPENDED: Gauge None "recliner_suspended" ["scope"]
        "1 for each suspension in force, by scope: all, a node or a channel.";
    SUSPENDED_SINCE_TIMESTAMP: Gauge Seconds
        "recliner_suspended_since_timestamp_seconds" ["scope"]
        "Unix time at which the suspension began, in seconds; absent when nothing is suspended.";
    RUNS: Gauge None "recliner_runs" ["state"]
        "Number of open runs: running, or paused.";
    RUN_MEMBERS: Gauge None "recliner_run_members" ["state"]
        "Number of targets of open runs: done, running, waiting, or left out.";
    SUSPENSION_INFO: Gauge None "recliner_suspension_info" ["scope", "by", "why"]
        "Always 1, labelled with who ordered the suspension and the reason.";
}

/// Free text in a label is cut off after this many characters.
const MAX_LABEL_CHARACTERS: usize = 120;

pub(super) fn write(writer: &mut Writer, plan: &Plan) {
    limits(writer, plan);
    candidates(writer, plan);
    gates(writer, plan);
    suspensions(writer, plan);
    runs(writer, plan);
}

fn runs(writer: &mut Writer, plan: &Plan) {
    let open = || plan.conditions.constraints.runs.open();
    let (mut done, mut running, mut waiting, mut left_out) = (0, 0, 0, 0);
    for (number, run) in open() {
        let progress = plan.run_progress(number, run, |_, _| None);
        done += run.done();
        running += progress.running;
        waiting += progress.remaining() - progress.running;
        left_out += progress.left_out_groups().iter().map(|group| group.members).sum::<u64>();
    }
    let active = open().filter(|(_, run)| run.is_active()).count();
    writer.write(&RUNS, [(["running"], active), (["paused"], open().count() - active)]);
    let states =
        [("done", done), ("running", running), ("waiting", waiting), ("left_out", left_out)];
    writer.write(&RUN_MEMBERS, states.map(|(state, members)| ([state], members)));
}

fn limits(writer: &mut Writer, plan: &Plan) {
    let limits = &plan.rules.limits;
    let channels = || plan.channels.list.iter();
    let concurrency = channels().map(|channel| ([&*channel.name], channel.concurrency));
    writer.write(&CHANNEL_CONCURRENCY_LIMIT, concurrency);
    writer.write(&NODE_CONCURRENCY_LIMIT, [([], limits.per_node)]);
    writer.write(&CLUSTER_CONCURRENCY_LIMIT, [([], limits.cluster)]);
    let open = channels().zip(plan.window_states.iter());
    writer.write(&CHANNEL_WINDOW_OPEN, open.map(|(of, state)| ([&*of.name], state.is_open)));
}

/// Every queue has a sample for `start`, even if it is zero. A reason has a sample only where it
/// applies: all reasons for all queues would be most of the scrape, and mostly zeros.
fn candidates(writer: &mut Writer, plan: &Plan) {
    let mut samples = writer.family(&CANDIDATES);
    for (queue, counts) in plan.queues.iter().zip(plan.decision_counts.iter()) {
        let (node, channel) =
            (plan.snapshot.node(queue.node), plan.channels.list.get(queue.channel_index));
        let Some((node, channel)) = node.zip(channel) else { continue };
        samples.sample(&[&node.name, &channel.name, "start"], counts.starts);
        for (reason, count) in counts.refusals_by_reason() {
            samples.sample(&[&node.name, &channel.name, reason.label()], count);
        }
    }
}

fn gates(writer: &mut Writer, plan: &Plan) {
    // Pressure and maintenance are unknown for a node that was not polled yet.
    let is_measured = |gate: RefusalReason, ix: NodeIx| {
        use RefusalReason::{Maintenance, Pressure, Upgrade};
        !matches!(gate, Pressure | Maintenance | Upgrade)
            || plan.conditions.pressures.nodes.contains_key(&ix)
    };
    let states: Vec<([&str; 2], Option<Refusal>)> = served_nodes(plan)
        .flat_map(|(ix, node)| RefusalReason::gates().map(move |gate| (ix, node, gate)))
        .filter(|(ix, _, gate)| is_measured(*gate, *ix))
        .map(|(ix, node, gate)| ([&*node.name, gate.label()], plan.gate_refusal(gate, ix)))
        .collect();
    writer.write_each(&states, &[(&GATE_OPEN, |closed| Some(closed.is_none()))]);
    writer.write_each(&states, &[(&GATE_CLOSED_SINCE_TIMESTAMP, |closed| closed?.since)]);
}

fn suspensions(writer: &mut Writer, plan: &Plan) {
    let in_force = &plan.conditions.constraints.suspensions.0;
    let mut samples = writer.family(&SUSPENDED);
    samples.sample(&["all"], in_force.contains_key(&SuspensionScope::All));
    for scope in in_force.keys().filter(|scope| **scope != SuspensionScope::All) {
        samples.sample(&[&scope.to_string()], true);
    }
    let mut samples = writer.family(&SUSPENDED_SINCE_TIMESTAMP);
    for (scope, suspension) in in_force {
        samples.sample(&[&scope.to_string()], suspension.since);
    }
    let mut samples = writer.family(&SUSPENSION_INFO);
    for (scope, suspension) in in_force {
        let by = label_text(suspension.by.as_deref().unwrap_or_default());
        let why = label_text(suspension.why.as_deref().unwrap_or_default());
        samples.sample(&[&scope.to_string(), &by, &why], true);
    }
}

/// Turns text written by a person into a label value: one line, no longer than a sentence.
fn label_text(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_LABEL_CHARACTERS)
        .collect();
    if text.chars().nth(MAX_LABEL_CHARACTERS).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortens_free_text_to_one_line() {
        assert_eq!(label_text("disks are\nmoved\u{1b}"), "disks are moved ");
        assert_eq!(label_text(""), "");
        let long = "ä".repeat(500);
        assert_eq!(label_text(&long), format!("{}…", "ä".repeat(MAX_LABEL_CHARACTERS)));
        assert_eq!(label_text(&"b".repeat(MAX_LABEL_CHARACTERS)), "b".repeat(MAX_LABEL_CHARACTERS));
    }
}
