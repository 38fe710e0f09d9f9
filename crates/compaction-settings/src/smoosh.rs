//! smoosh's channels in effect on one node: which exist, in which order, and which targets each
//! takes, following the rules of the node's version.
//!
//! The order and the defaults are those of `smoosh_utils:channel_list/2` and
//! `smoosh_server:get_priority/4`. Anything that smoosh reads differently from what its settings
//! suggest becomes a finding.

mod channel_settings;

use crate::{
    ChannelKind, Finding, Ignored, NodeConfig, Rules, SmooshChannel, channel::section_of, daemon,
    finding::Findings, ignored, lint,
};
use std::collections::BTreeSet;

/// smoosh's settings on one node, as in effect.
#[derive(Clone, Debug, PartialEq)]
pub struct SmooshSettings {
    /// Whether the node's CouchDB has smoosh (since 3.0); if not, there are no channels.
    pub runs_smoosh: bool,
    /// The channels in effect, those for databases first; channels of the same kind in the order in
    /// which they are tried.
    pub channels: Vec<SmooshChannel>,
    /// Channels on which smoosh fails, at most one of each kind; not included in `channels`.
    pub broken: Vec<BrokenChannel>,
    /// Targets that no channel takes.
    pub ignored: Ignored,
    /// All findings, the most severe first.
    pub findings: Vec<Finding>,
}

/// A channel with a setting on which smoosh fails for every file that reaches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenChannel {
    /// The channel's name in CouchDB.
    pub name: String,
    /// The kind of targets that it would compact.
    pub kind: ChannelKind,
    /// The key of the invalid setting.
    pub key: &'static str,
    /// Databases with fewer changes than this never reach the setting, and continue to the next
    /// channel.
    pub min_changes: u64,
    /// The later channels, which other files never reach.
    pub not_reached: Vec<String>,
}

/// The keys of the channel lists and the built-in channels, in the order up to 3.2.
const LISTS: [(&str, ChannelKind, &[&str]); 3] = [
    ("db_channels", ChannelKind::Db, &["upgrade_dbs", "ratio_dbs", "slack_dbs"]),
    ("view_channels", ChannelKind::View, &["upgrade_views", "ratio_views", "slack_views"]),
    ("cleanup_channels", ChannelKind::Cleanup, &["index_cleanup"]),
];

/// Reads one node's smoosh settings.
pub fn read_smoosh(node: &NodeConfig) -> SmooshSettings {
    let (rules, assumed) = node.rules();
    let mut findings = Findings::default();
    if assumed {
        let message = format!(
            "{:?} is not a CouchDB version, so the rules of {rules} are assumed",
            node.version
        );
        findings.warn("smoosh", None, message);
    }
    lint::lines(node, &["smoosh", "view_upgrade"], &mut findings);
    let runs_smoosh = rules.runs_smoosh();
    let (mut channels, mut broken) = (Vec::new(), Vec::new());
    if runs_smoosh {
        let mut listed_names = Vec::new();
        for (key, kind, builtin) in LISTS {
            let names = listed(node, rules, key, kind, builtin, &mut findings);
            let (read, failed) = channels_of_kind(node, rules, &names, kind, &mut findings);
            lint::order(&read, &mut findings);
            channels.extend(read);
            broken.extend(failed);
            listed_names.extend(names.into_iter().map(|name| (name, kind)));
        }
        lint::unread(node, rules, &listed_names, &mut findings);
        daemon::old_rules(node, rules, &mut findings);
        lint::defaults(&channels, rules, &mut findings);
    } else {
        let message = format!("CouchDB {rules} has no smoosh, which came with 3.0");
        findings.error("smoosh", None, message);
    }
    let ignored = ignored::read(node, &mut findings);
    SmooshSettings { runs_smoosh, channels, broken, ignored, findings: findings.sorted() }
}

/// The sections that determine what a node's smoosh does, derived from `[smoosh]` itself: those to
/// request from a node if no other settings matter.
pub fn smoosh_sections(node: &NodeConfig) -> BTreeSet<String> {
    let (rules, _) = node.rules();
    let channels = LISTS.into_iter().flat_map(|(key, _, builtin)| {
        let written = node.value("smoosh", key).map(|text| split(text, rules));
        let builtin = builtin.iter().map(|name| (*name).to_owned());
        written.unwrap_or_default().into_iter().chain(builtin)
    });
    let others = ["smoosh", "smoosh.ignore", "view_upgrade", "compactions"].map(str::to_owned);
    channels.map(|name| section_of(&name)).chain(others).collect()
}

/// The names of a node's smoosh channels, derived from `[smoosh]` itself; `None` if its version is
/// unknown.
pub fn smoosh_channels(node: &NodeConfig) -> Option<BTreeSet<String>> {
    let (rules, is_assumed) = node.rules();
    let lists = LISTS.into_iter().filter(|_| rules.runs_smoosh());
    let names = lists.flat_map(|(key, kind, builtin)| {
        listed(node, rules, key, kind, builtin, &mut Findings::default())
    });
    (!is_assumed).then(|| names.collect())
}

/// Reads the channels of one kind, up to the first on which smoosh fails.
fn channels_of_kind(
    node: &NodeConfig,
    rules: Rules,
    names: &[String],
    kind: ChannelKind,
    findings: &mut Findings,
) -> (Vec<SmooshChannel>, Option<BrokenChannel>) {
    let mut channels = Vec::new();
    for (at, name) in names.iter().enumerate() {
        match channel_settings::read(node, rules, name, kind, findings) {
            Ok(channel) => channels.push(channel),
            Err(broken) => {
                let not_reached = names.get(at + 1..).unwrap_or_default().to_vec();
                return (channels, Some(broken.found(name, kind, not_reached, findings)));
            }
        }
    }
    (channels, None)
}

/// The names of a kind's channels, in the order in which smoosh tries them.
fn listed(
    node: &NodeConfig,
    rules: Rules,
    key: &'static str,
    kind: ChannelKind,
    builtin: &[&str],
    findings: &mut Findings,
) -> Vec<String> {
    if kind == ChannelKind::Cleanup && !cleans_up(node, rules, findings) {
        return Vec::new();
    }
    let builtin = builtin.iter().map(|name| (*name).to_owned());
    let written = node.value("smoosh", key).map(|text| split(text, rules));
    let is_written = written.is_some();
    if kind == ChannelKind::Cleanup && !rules.adds_channels() {
        return builtin.collect();
    }
    if !rules.adds_channels() {
        let names = written.unwrap_or_else(|| builtin.collect());
        let mut seen = BTreeSet::new();
        return names.into_iter().filter(|name| seen.insert(name.clone())).collect();
    }
    let written = written.unwrap_or_default();
    let missing: Vec<_> = builtin.clone().filter(|name| !written.contains(name)).collect();
    let all: Vec<String> =
        written.iter().cloned().chain(builtin).collect::<BTreeSet<_>>().into_iter().collect();
    if is_written && !missing.is_empty() {
        let message = format!(
            "since CouchDB 3.3 this list adds to the built-in channels, which stay ({}), and channels are tried by name: {}",
            missing.join(", "),
            all.join(", ")
        );
        findings.warn("smoosh", key, message);
    } else if is_written && written != all {
        let all = all.join(", ");
        let message =
            format!("the order written here is ignored; channels are tried by name: {all}");
        findings.note("smoosh", key, message);
    }
    all
}

/// Whether the index cleanup is enabled (`smoosh_channel:should_clean_up_indices/0`).
fn cleans_up(node: &NodeConfig, rules: Rules, findings: &mut Findings) -> bool {
    let key = "cleanup_index_files";
    let value = node.value("smoosh", key);
    if !rules.adds_channels() {
        let on = value == Some("true");
        let message = match on {
            true => "up to 3.2 smoosh cleans up each time it compacts a view",
            false => "is off unless exactly \"true\" up to 3.2, so there is no cleanup channel",
        };
        findings.note("smoosh", key, message);
        return on;
    }
    match value {
        Some("false") => {
            findings.note("smoosh", key, "is off, so there is no cleanup channel");
            return false;
        }
        Some("true") => {}
        Some(other) => {
            let message = format!(
                "{other:?} is neither \"true\" nor \"false\" and counts as the default, which is on"
            );
            findings.warn("smoosh", key, message);
        }
        None => {
            let message = "is missing and therefore on since CouchDB 3.3, although its documentation says off";
            findings.note("smoosh", key, message);
        }
    }
    true
}

/// `smoosh_utils:split/1`: splits at commas and removes the space around them and empty names at
/// the end, but not the space at both ends of the text.
fn split(text: &str, rules: Rules) -> Vec<String> {
    if text.is_empty() {
        // Before 3.3 an empty list means a single channel with an empty name.
        return if rules.adds_channels() { Vec::new() } else { vec![String::new()] };
    }
    let space = [' ', '\t', '\n', '\x0b', '\x0c', '\r'];
    let last = text.matches(',').count();
    let mut names: Vec<_> = text
        .split(',')
        .enumerate()
        .map(|(at, name)| if at == 0 { name } else { name.trim_start_matches(space) })
        .enumerate()
        .map(|(at, name)| if at == last { name } else { name.trim_end_matches(space) })
        .map(str::to_owned)
        .collect();
    while names.last().is_some_and(String::is_empty) {
        names.pop();
    }
    names
}
