//! Channels of smoosh that take files and never start a compaction.

use super::nodes::{MAX_COMMANDS, configs, is_taken_over, node, nodes_in_words, on_nodes};
use crate::{
    advice::{
        Findings, Gain, Remedy, Rule, Severity, Situation, Subject, Wording, grouped_by, total,
    },
    model::channel::Mode,
    table::NodeIx,
    text::size::format_size_short,
};
use compaction_settings::{NeverStarts, read_smoosh};

pub(crate) const RULE: Rule = Rule {
    code: "smoosh_channel_stopped",
    finds: "Channels of CouchDB's smoosh that take files but never start a compaction, and that no recliner has taken over.",
    because: "The channels after such a channel never see what it takes, and nothing is logged. `concurrency = 0` is CouchDB's own way to pause a channel, often forgotten after maintenance; a `capacity` below 1 makes a channel crash, and a window may never open. A recliner that takes over a channel leaves a mark in the section `[recliner]`; without it, nothing is known to compact in its place. It is a warning unless this recliner enforces.",
    severities: &[Severity::Info, Severity::Warning],
    ..Rule::info(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let stopped = configs(situation).flat_map(|config| {
        let channels = read_smoosh(config).channels.into_iter();
        let stopped = channels.filter_map(|channel| Some((channel.name, channel.never_starts?)));
        let left = stopped.filter(|(name, _)| !is_taken_over(config, name));
        left.map(|stopped| (stopped, config.node.clone()))
    });
    let is_enforcing = situation.inputs.plan.rules.mode == Mode::Enforce;
    let severity = if is_enforcing { Severity::Info } else { Severity::Warning };
    for ((channel, why), nodes) in grouped_by(stopped) {
        let bytes = waiting_bytes(situation, &channel, &nodes);
        findings.offer_as(severity, Gain::Unknown, || {
            let waits = match bytes {
                0 => String::new(),
                bytes => format!(
                    "; recliner's channel of that name would free {}",
                    format_size_short(bytes)
                ),
            };
            let section = format!("smoosh.{channel}");
            let start = |node: &String| match why {
                NeverStarts::Concurrency => vec![Remedy::set_config(
                    "Start it again, with its earlier concurrency:",
                    node,
                    (&section, "concurrency"),
                    "1",
                )],
                NeverStarts::InvalidConcurrency
                | NeverStarts::Capacity
                | NeverStarts::Window
                | NeverStarts::InfiniteMinimum => {
                    let reset = |key: &&str| {
                        let says = format!("Reset its {key} to the default:");
                        Remedy::unset_config(says, node, (&section, key))
                    };
                    why.keys().iter().map(reset).collect()
                }
            };
            let mut remedy = vec![
                "Ask who stopped it. If that is intended, because something else compacts, mute this advice."
                    .into(),
            ];
            remedy.extend(nodes.iter().take(MAX_COMMANDS).flat_map(start));
            Wording {
                says: format!(
                    "smoosh's channel {channel} {} starts nothing because {}, and no recliner has taken it over{waits}.",
                    on_nodes(situation, &nodes),
                    why.why()
                ),
                evidence: vec![
                    ("nodes", nodes_in_words(&nodes).into()),
                    ("reclaimable_bytes", bytes.into()),
                ],
                // The gain is unknown: waiting targets may be in several channels, and are counted
                // as waste that waits.
                remedy,
                subject: Subject::Channel(channel.clone()),
            }
        });
    }
}

/// Bytes that recliner's channel of the same name could free on these nodes; views of the cluster
/// count for all nodes.
fn waiting_bytes(situation: &Situation<'_>, channel: &str, nodes: &[String]) -> u64 {
    let plan = &situation.inputs.plan;
    let Some((at, _)) = plan.channels.find(channel) else { return 0 };
    let named = nodes.iter().filter_map(|name| Some(node(situation, name)?.0));
    let queues = named.chain([NodeIx::CLUSTER]).filter_map(|node| plan.queue(node, at));
    total(queues.map(|queue| queue.reclaimable_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::test_cluster::{Shard, TestCluster};

    const GIB: u64 = 1 << 30;

    fn cluster(concurrency: &str) -> TestCluster {
        with_setting("concurrency", concurrency)
    }

    fn with_setting(key: &str, value: &str) -> TestCluster {
        let shard = Shard::new("orders", "a", 0, 10 * GIB).with_active(GIB);
        let mut cluster = TestCluster::with_shards(&[shard]);
        cluster.set("a", &[("smoosh.ratio_dbs", key, value)]);
        cluster
    }

    #[test]
    fn reports_stopped_channel_with_what_waits() {
        let found = cluster("0").findings_of(&RULE);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(only.severity, Severity::Warning);
        assert_eq!(
            only.says,
            "smoosh's channel ratio_dbs on a starts nothing because its concurrency is below 1, and no recliner has taken it over; recliner's channel of that name would free 9.1 GiB."
        );
        let command = only.remedy[1].text.as_deref().unwrap_or_default();
        assert!(
            command.ends_with("/_node/a/_config/smoosh.ratio_dbs/concurrency -d '\"1\"'"),
            "{command}"
        );
    }

    #[test]
    fn names_the_setting_that_stops_a_channel_and_resets_it() {
        let found = with_setting("capacity", "0").findings_of(&RULE);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert!(only.says.contains("because its capacity makes it crash"), "{}", only.says);
        let command = only.remedy[1].text.as_deref().unwrap_or_default();
        assert!(command.contains("-X DELETE"), "{command}");
        assert!(command.ends_with("/_node/a/_config/smoosh.ratio_dbs/capacity"), "{command}");
    }

    #[test]
    fn stopped_channel_has_severity_info_if_recliner_enforces() {
        let mut cluster = cluster("0");
        cluster.rules.mode = Mode::Enforce;
        assert_eq!(cluster.findings_of(&RULE)[0].severity, Severity::Info);
    }

    #[test]
    fn is_silent_if_the_channel_runs_or_was_taken_over() {
        assert_eq!(cluster("1").findings_of(&RULE), []);
        let mut cluster = cluster("0");
        cluster.set("a", &[("recliner", "smoosh.ratio_dbs.concurrency", "{}")]);
        assert_eq!(cluster.findings_of(&RULE), []);
    }

    #[test]
    fn is_silent_if_settings_are_unknown() {
        assert_eq!(TestCluster::new().findings_of(&RULE), []);
    }
}
