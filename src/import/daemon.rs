//! The rules of CouchDB 2.x's compaction daemon as channels of recliner.
//!
//! A database with a rule never falls back to `_default`, so the default channels leave it out by
//! name.

use super::{
    NodeChannels, TranslatedChannel,
    finding::{NodeFindings, Severity},
    smoosh, unique_name,
};
use crate::{
    model::{channel::Channel, priority::PriorityKind, target::TargetKind},
    text::Label,
};
use compaction_settings::{DaemonRule, DaemonSettings, Ignored, NodeConfig, Opening, read_daemon};
use couchdb_names::ShardName;
use jiff::tz::TimeZone;
use std::collections::BTreeSet;

const DAEMON: &str = "compaction_daemon";
const RULES: &str = "compactions";

/// Keys of the daemon itself, and what recliner does in their place.
const KEYS: [(&str, &str); 4] = [
    (
        "min_file_size",
        "files of exactly this size count for the daemon, so min_size, which wants more, is one byte less",
    ),
    ("check_interval", "has no counterpart in a channel: recliner looks at every scan.interval"),
    ("snooze_period", PACED),
    ("snooze_period_ms", PACED),
];
const PACED: &str = "has no counterpart: recliner paces itself by couchdb.cold_reads_per_second";

/// Reads one node's rules; `zone` is that of the server's clock.
pub(super) fn read(node: &NodeConfig, zone: &TimeZone) -> NodeChannels {
    let DaemonSettings { min_file_size, rules, findings: found } = read_daemon(node);
    let mut findings = NodeFindings::default();
    findings.extend(found);
    own_keys(node, &mut findings);
    let rules = of_whole_databases(rules, &mut findings);
    let named: BTreeSet<String> =
        rules.iter().filter(|rule| !rule.is_default()).map(|rule| rule.database.clone()).collect();
    let mut used = BTreeSet::new();
    let mut channels = Vec::new();
    for kind in [TargetKind::Db, TargetKind::View] {
        for rule in &rules {
            let Some(threshold) = threshold(rule, kind, &mut findings) else { continue };
            let ending = if kind == TargetKind::View { "views" } else { "dbs" };
            let unique = unique_name(&rule.database, ending, |name| used.contains(name));
            used.insert(unique.clone());
            let mut channel = Channel::with_defaults(&unique, kind, PriorityKind::Ratio);
            channel.min_priority = threshold.min_priority;
            channel.min_size = match threshold.any_size {
                true => 0,
                // "No smaller than" where a channel says "larger than".
                false => min_file_size.saturating_sub(1),
            };
            window(rule, &mut channel, zone, &mut findings);
            let (include, exclude) = if rule.is_default() {
                (BTreeSet::new(), named.clone())
            } else {
                (BTreeSet::from([rule.database.clone()]), BTreeSet::new())
            };
            let section = RULES.to_owned();
            channels.push(TranslatedChannel { channel, include, exclude, section });
        }
    }
    let parallel = rules.iter().any(|rule| rule.parallel_view_compaction);
    general(&channels, parallel, &mut findings);
    NodeChannels {
        node: node.node.clone(),
        version: node.version.clone(),
        runs_smoosh: true,
        channels,
        ignored: Ignored::default(),
        per_node: if parallel { 2 } else { 1 },
        findings,
    }
}

fn own_keys(node: &NodeConfig, findings: &mut NodeFindings) {
    let Some(keys) = node.sections.get(DAEMON) else { return };
    for (key, message) in KEYS {
        if keys.contains_key(key) && !findings.is_about(DAEMON, key) {
            findings.add(Severity::Note, DAEMON, key, message);
        }
    }
}

/// The rules that a channel can say: those for clustered databases.
fn of_whole_databases(rules: Vec<DaemonRule>, findings: &mut NodeFindings) -> Vec<DaemonRule> {
    let (shards, rules): (Vec<_>, Vec<_>) =
        rules.into_iter().partition(|rule| ShardName::split(&rule.database).is_some());
    for rule in shards {
        findings.add(
            Severity::Impossible,
            RULES,
            rule.database.as_str(),
            "is a rule for one shard; a channel takes whole databases, so this one is left out",
        );
    }
    rules
}

/// What a share of waste in per cent becomes.
struct Threshold {
    min_priority: f64,
    any_size: bool,
}

/// `None` where the rule never compacts this kind, or no channel can say it.
fn threshold(
    rule: &DaemonRule,
    kind: TargetKind,
    findings: &mut NodeFindings,
) -> Option<Threshold> {
    let (key, percent) = match kind {
        TargetKind::View => ("view_fragmentation", rule.view_fragmentation),
        TargetKind::Db | TargetKind::Cleanup | TargetKind::Search => {
            ("db_fragmentation", rule.db_fragmentation)
        }
    };
    let mut find = |severity, message: String| {
        findings.add(severity, RULES, rule.database.as_str(), message);
    };
    let Some(percent) = percent.filter(|percent| *percent > 0) else {
        find(
            Severity::Impossible,
            format!(
                "{key} is left out or 0, so the daemon compacts every {} every time, however small or full; the channel written takes those with any waste: set a {key}",
                kind.label()
            ),
        );
        return Some(Threshold { min_priority: 1.0, any_size: true });
    };
    if percent > 100 {
        find(
            Severity::Note,
            format!(
                "{key} {percent}% is never reached, so no channel takes these {}s",
                kind.label()
            ),
        );
        return None;
    }
    if percent == 100 {
        find(
            Severity::Impossible,
            format!(
                "{key} 100% would be an infinite min_priority, so no channel is written; rounded to whole per cents the daemon takes ratios from 200 on: set min_priority: 199.99 for that"
            ),
        );
        return None;
    }
    let share = f64::from(percent) / 100.0;
    let min_priority = 1.0 / (1.0 - share);
    find(
        Severity::Note,
        format!(
            "{key} {percent}% becomes min_priority {min_priority:.4}: more than that, where the daemon also took what was equal, and rounded up from {}.5%, a ratio of {:.4}",
            percent - 1,
            1.0 / (1.0 - (share - 0.005))
        ),
    );
    Some(Threshold { min_priority, any_size: false })
}

fn window(rule: &DaemonRule, channel: &mut Channel, zone: &TimeZone, findings: &mut NodeFindings) {
    channel.windows = smoosh::windows(rule.opens, zone);
    match rule.opens {
        Opening::Always => {}
        Opening::Never => {
            channel.concurrency = 0;
            findings.add(
                Severity::Warning,
                RULES,
                rule.database.as_str(),
                "its period never opens: the channel is written with concurrency 0",
            );
        }
        Opening::Daily(_) => {
            channel.strict_window = rule.strict_window;
            if rule.strict_window {
                findings.add(
                    Severity::Warning,
                    RULES,
                    rule.database.as_str(),
                    "strict_window made the daemon cancel what still ran when the window closed; that is not possible over HTTP, so recliner does not start what would not end inside the window",
                );
            }
        }
    }
}

fn general(channels: &[TranslatedChannel], parallel: bool, findings: &mut NodeFindings) {
    if channels.is_empty() {
        return;
    }
    findings.add(
        Severity::Warning,
        RULES,
        None,
        "the daemon never compacts a file without live bytes and always one whose live bytes are unknown; recliner takes the first at the lowest priority and the second never",
    );
    findings.add(
        Severity::Note,
        RULES,
        None,
        format!(
            "the daemon works on one database of a node at a time{}: set limits.per_node to {} for that",
            if parallel { ", its views beside it where parallel_view_compaction is true" } else { ", its views after it" },
            if parallel { 2 } else { 1 }
        ),
    );
    findings.add(
        Severity::Note,
        RULES,
        None,
        "the daemon wants twice the live bytes free on the volume; recliner's headroom does the same with its own factor",
    );
}
