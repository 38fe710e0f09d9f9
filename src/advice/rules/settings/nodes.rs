//! Shared by the rules about settings and versions: what they read from nodes, and how they name
//! them.

use crate::{
    advice::{Findings, Gain, Remedy, Situation, Subject, Wording, grouped_by},
    model::{
        channel::Mode,
        settings::work::{MARK_SECTION, SmooshMode, mark_key},
    },
    table::{Node, NodeIx},
    text::{counted, listed},
};
use compaction_settings::{Fault, NodeConfig, read_smoosh};
use couchdb_names::Version;
use std::collections::BTreeMap;

/// Maximum number of nodes for which a command is written out.
pub(super) const MAX_COMMANDS: usize = 3;

/// CouchDB's default of `max_dbs_open`.
pub(super) const DEFAULT_MAX_DBS_OPEN: u64 = 500;

/// The settings of all nodes that were read, in the order of their names.
pub(super) fn configs<'a>(situation: &Situation<'a>) -> impl Iterator<Item = &'a NodeConfig> {
    situation.inputs.node_settings.nodes.values()
}

/// The value of a key, if it is set.
pub(super) fn value<'a>(config: &'a NodeConfig, section: &str, key: &str) -> Option<&'a str> {
    config.sections.get(section)?.get(key).map(String::as_str)
}

/// The member of the cluster with this name.
pub(super) fn node<'a>(situation: &Situation<'a>, name: &str) -> Option<(NodeIx, &'a Node)> {
    situation.snapshot().members().find(|(_, node)| &*node.name == name)
}

/// Whether any recliner has taken a channel over.
pub(super) fn is_taken_over(config: &NodeConfig, channel: &str) -> bool {
    value(config, MARK_SECTION, &mark_key(channel)).is_some()
}

/// How to make recliner compact in place of a smoosh channel; `None` if it is already configured
/// to.
pub(super) fn takeover(situation: &Situation<'_>, channel: &str) -> Option<Remedy> {
    let smoosh = &situation.inputs.remedy_settings.smoosh;
    let is_enforcing = situation.inputs.plan.rules.mode == Mode::Enforce;
    let wins = "recliner then compacts in place of this channel, most reclaimable first";
    let is_listed = smoosh.takeover.iter().any(|listed| listed == channel);
    let how = match (smoosh.mode, is_enforcing) {
        (SmooshMode::Takeover, _) if !is_listed => format!("Add {channel} to smoosh.takeover"),
        (SmooshMode::Takeover, true) => return None,
        (SmooshMode::Takeover, false) => "Let recliner enforce (mode: enforce)".to_owned(),
        _ => "Let recliner enforce with smoosh.mode: takeover".to_owned(),
    };
    Some(Remedy::choice(format!("{how}; {wins}.")))
}

/// The channels of smoosh with a fault: what is wrong, and the nodes.
pub(super) fn channels_with(
    situation: &Situation<'_>,
    fault: Fault,
) -> BTreeMap<String, (String, Vec<String>)> {
    let mut channels: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    for config in configs(situation) {
        for found in read_smoosh(config).findings {
            let Some(channel) = found.section.strip_prefix("smoosh.") else { continue };
            if found.fault == Some(fault) && !is_taken_over(config, channel) {
                let (_, nodes) =
                    channels.entry(channel.to_owned()).or_insert((found.message, Vec::new()));
                nodes.push(config.node.clone());
            }
        }
    }
    channels
}

/// Offers one finding for each smoosh channel with this fault, for all nodes together.
pub(super) fn offer_faulty_channels(
    situation: &Situation<'_>,
    findings: &mut Findings,
    fault: Fault,
    remedy: impl Fn(&str) -> Remedy,
) {
    for (channel, (why, nodes)) in channels_with(situation, fault) {
        findings.offer(Gain::Unknown, || Wording {
            says: format!("smoosh's channel {channel} {} {why}.", on_nodes(situation, &nodes)),
            evidence: vec![("nodes", nodes_in_words(&nodes).into()), ("reason", why.into())],
            remedy: vec![
                remedy(&channel),
                Remedy::command(
                    "See what each channel takes, in which order, and its problems:",
                    "recliner import smoosh --couchdb.url \"$COUCHDB_URL\"",
                ),
            ],
            subject: Subject::Channel(channel),
        });
    }
}

/// The known versions of nodes.
pub(super) fn versions(situation: &Situation<'_>) -> BTreeMap<Version, Vec<String>> {
    let versions = situation.snapshot().members().filter_map(|(_, node)| {
        let settings = situation.inputs.node_settings.nodes.get(&*node.name);
        let read = || settings.and_then(|config| config.version.parse().ok());
        Some((node.version().or_else(read)?, node.name.to_string()))
    });
    grouped_by(versions)
}

/// The nodes on which a key has this value.
pub(super) fn nodes_with(
    situation: &Situation<'_>,
    (section, key): (&str, &str),
    wanted: &str,
) -> Vec<String> {
    let has =
        |config: &&NodeConfig| value(config, section, key).is_some_and(|it| it.trim() == wanted);
    configs(situation).filter(has).map(|config| config.node.clone()).collect()
}

/// `on a and b`, or `on every node` if these are all of several nodes whose settings were read.
pub(super) fn on_nodes(situation: &Situation<'_>, names: &[String]) -> String {
    if names.len() > 1 && names.len() == situation.inputs.node_settings.nodes.len() {
        return "on every node".to_owned();
    }
    format!("on {}", nodes_in_words(names))
}

/// Versions with the nodes that run them, the newest first.
pub(super) fn versions_in_words<'a>(
    versions: impl DoubleEndedIterator<Item = (&'a Version, &'a Vec<String>)>,
) -> Vec<String> {
    let words = versions.rev();
    words.map(|(version, nodes)| format!("{version} on {}", nodes_in_words(nodes))).collect()
}

/// Names of nodes in a sentence; of many, the first ones and their number.
pub(super) fn nodes_in_words(names: &[String]) -> String {
    const MAX: usize = 5;
    if names.len() <= MAX {
        return listed(names);
    }
    let mut first = names.get(..MAX - 1).unwrap_or_default().to_vec();
    first.push(counted((names.len() - first.len()) as u64, "more node", "more nodes"));
    listed(&first)
}
