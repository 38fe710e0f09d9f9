//! CouchDB's own smoosh: what its channels do, and which of them are stopped for a recliner.

use super::members;
use crate::{
    act::takeover::Takeovers,
    model::{
        channel::{Channels, builtin_priority},
        priority::PriorityKind,
    },
    plan::Plan,
    table::{NodeSmoosh, PriorityRange, SmooshChannel},
};
use metrics_text::{Writer, families};

families! {
    SMOOSH_UP: Gauge None "recliner_smoosh_up" ["node"]
        "1 if the node's smoosh status could be read, 0 if not; absent before CouchDB 3.4.";
    SMOOSH_ACTIVE: Gauge None "recliner_smoosh_active" ["node", "channel"]
        "Number of compactions that CouchDB's smoosh channel is running.";
    SMOOSH_STARTING: Gauge None "recliner_smoosh_starting" ["node", "channel"]
        "Number of compactions that CouchDB's smoosh channel is starting.";
    SMOOSH_WAITING: Gauge None "recliner_smoosh_waiting" ["node", "channel"]
        "Number of compactions that wait in CouchDB's smoosh channel.";
    SMOOSH_WAITING_RATIO_MIN: Gauge Ratio "recliner_smoosh_waiting_ratio_min" ["node", "channel"]
        "Lowest ratio of file to active bytes waiting in a smoosh channel; only for channels that rank by ratio.";
    SMOOSH_WAITING_RATIO_MAX: Gauge Ratio "recliner_smoosh_waiting_ratio_max" ["node", "channel"]
        "Highest ratio of file to active bytes waiting in a smoosh channel; only for channels that rank by ratio.";
    SMOOSH_WAITING_SLACK_MIN_BYTES: Gauge Bytes
        "recliner_smoosh_waiting_slack_min_bytes" ["node", "channel"]
        "Lowest slack (file minus active bytes) waiting in a smoosh channel; only for channels that rank by slack.";
    SMOOSH_WAITING_SLACK_MAX_BYTES: Gauge Bytes
        "recliner_smoosh_waiting_slack_max_bytes" ["node", "channel"]
        "Highest slack (file minus active bytes) waiting in a smoosh channel; only for channels that rank by slack.";
    SMOOSH_TAKEN_OVER: Gauge None "recliner_smoosh_taken_over" ["node"]
        "1 while every smoosh channel in smoosh.takeover is stopped on the node, else 0.";
    SMOOSH_CHANNELS_STOPPED: Gauge None "recliner_smoosh_channels_stopped" ["node"]
        "Number of smoosh channels on the node that are stopped for this or another recliner.";
}

pub(super) fn write(writer: &mut Writer, plan: &Plan, takeovers: &Takeovers) {
    let mut samples = writer.family(&SMOOSH_UP);
    for node in members(plan) {
        match node.smoosh {
            NodeSmoosh::Channels(_) => samples.sample(&[&node.name], 1_u64),
            NodeSmoosh::Failed => samples.sample(&[&node.name], 0_u64),
            NodeSmoosh::NotRead | NodeSmoosh::NoDirectAddress | NodeSmoosh::Unsupported => {}
        }
    }
    let channels: Vec<([&str; 2], &SmooshChannel)> = members(plan)
        .flat_map(|node| {
            match &node.smoosh {
                NodeSmoosh::Channels(channels) => channels.as_slice(),
                NodeSmoosh::NotRead
                | NodeSmoosh::NoDirectAddress
                | NodeSmoosh::Unsupported
                | NodeSmoosh::Failed => &[],
            }
            .iter()
            .map(|channel| ([&*node.name, &*channel.name], channel))
        })
        .collect();
    writer.write_each(
        &channels,
        &[
            (&SMOOSH_ACTIVE, |channel| Some(channel.active)),
            (&SMOOSH_STARTING, |channel| Some(channel.starting)),
            (&SMOOSH_WAITING, |channel| Some(channel.waiting)),
        ],
    );
    for (priority, least, most) in [
        (PriorityKind::Ratio, &SMOOSH_WAITING_RATIO_MIN, &SMOOSH_WAITING_RATIO_MAX),
        (PriorityKind::Slack, &SMOOSH_WAITING_SLACK_MIN_BYTES, &SMOOSH_WAITING_SLACK_MAX_BYTES),
    ] {
        let ranked = channels
            .iter()
            .filter(|(_, it)| priority_of(&it.name, &plan.channels) == Some(priority))
            .filter_map(|(labels, channel)| Some((*labels, channel.priority_range?)));
        let ranked: Vec<([&str; 2], PriorityRange)> = ranked.collect();
        writer.write_each(
            &ranked,
            &[(least, |range| Some(range.min)), (most, |range| Some(range.max))],
        );
    }
    taken_over(writer, takeovers);
}

/// The priority by which a smoosh channel ranks, which its status does not report.
///
/// CouchDB fixes it for its own channels by their name. Any other channel is assumed to rank like
/// recliner's channel of the same name; if there is none, the priority is unknown and the channel
/// has no sample.
fn priority_of(name: &str, channels: &Channels) -> Option<PriorityKind> {
    builtin_priority(name).or_else(|| channels.find(name).map(|(_, channel)| channel.priority))
}

/// A node whose takeover could not be checked has no sample.
fn taken_over(writer: &mut Writer, takeovers: &Takeovers) {
    let nodes = takeovers.nodes.iter();
    // A node that does not answer may still have its channels stopped.
    let known = nodes
        .filter(|(_, it)| it.stopped_count().is_some() || !it.not_taken_over.is_empty())
        .map(|(node, state)| ([&**node], state.is_taken_over()));
    writer.write(&SMOOSH_TAKEN_OVER, known);
    let nodes = takeovers.nodes.iter();
    let stopped = nodes.filter_map(|(node, state)| Some(([&**node], state.stopped_count()?)));
    writer.write(&SMOOSH_CHANNELS_STOPPED, stopped);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::takeover::NodeTakeover;
    use metrics_text::{Encoding, TextFormat};
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn channel_priority_comes_from_its_name_or_recliners_settings() {
        let mut channels = Channels::default();
        let mut own = channels.list[0].clone();
        own.name = "big_dbs".into();
        own.priority = PriorityKind::Slack;
        channels.list = vec![own];
        for (name, priority) in [
            ("ratio_dbs", Some(PriorityKind::Ratio)),
            ("slack_views", Some(PriorityKind::Slack)),
            ("upgrade_dbs", Some(PriorityKind::Upgrade)),
            ("big_dbs", Some(PriorityKind::Slack)),
            ("unheard_of", None),
        ] {
            assert_eq!(priority_of(name, &channels), priority, "{name}");
        }
    }

    #[test]
    fn counts_channels_stopped_by_others_and_omits_unchecked_nodes() {
        let channels = |names: &[&str]| -> BTreeSet<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let down = Some("couchdb@b is down".to_owned());
        let not_taken = BTreeMap::from([("slack_dbs".to_owned(), "set to 3".to_owned())]);
        let nodes = [
            (
                "a",
                NodeTakeover {
                    taken_over: channels(&["ratio_dbs", "slack_dbs"]),
                    ..NodeTakeover::default()
                },
            ),
            ("b", NodeTakeover { problem: down.clone(), ..NodeTakeover::default() }),
            ("c", NodeTakeover { stranded: channels(&["ratio_dbs"]), ..NodeTakeover::default() }),
            ("d", NodeTakeover::default()),
            (
                "e",
                NodeTakeover {
                    not_taken_over: not_taken,
                    problem: down,
                    ..NodeTakeover::default()
                },
            ),
        ];
        let nodes = nodes.map(|(node, state)| (format!("couchdb@{node}"), state)).into();
        let mut writer = Writer::new(TextFormat::Text, Encoding::Identity);
        taken_over(&mut writer, &Takeovers { nodes });
        let text = String::from_utf8(writer.finish()).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "recliner_smoosh_taken_over{node=\"couchdb@a\"} 1",
                "recliner_smoosh_taken_over{node=\"couchdb@c\"} 0",
                "recliner_smoosh_taken_over{node=\"couchdb@d\"} 0",
                "recliner_smoosh_taken_over{node=\"couchdb@e\"} 0",
                "recliner_smoosh_channels_stopped{node=\"couchdb@a\"} 2",
                "recliner_smoosh_channels_stopped{node=\"couchdb@c\"} 1",
                "recliner_smoosh_channels_stopped{node=\"couchdb@d\"} 0",
            ]
        );
    }
}
