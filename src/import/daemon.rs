//! Translates the rules of CouchDB 2.x's compaction daemon into recliner's channels.
//!
//! A database with a rule of its own never falls back to `_default`, so the default channels
//! exclude it by name.

use super::{NodeChannels, TranslatedChannel, smoosh, unique_name};
use crate::{
    model::{channel::Channel, priority::PriorityKind, target::TargetKind},
    text::Label,
};
use compaction_settings::{
    DaemonRule, DaemonSettings, Findings, Ignored, NodeConfig, Opening, read_daemon,
};
use couchdb_names::ShardName;
use jiff::tz::TimeZone;
use std::collections::BTreeSet;

const DAEMON: &str = "compaction_daemon";
const RULES: &str = "compactions";

/// Keys of the daemon itself, and what recliner does instead.
const KEYS: [(&str, &str); 4] = [
    (
        "min_file_size",
        "the daemon includes files of exactly this size, but min_size does not, so it is one byte less",
    ),
    ("check_interval", "has no counterpart in a channel: recliner looks at every scan.interval"),
    ("snooze_period", PACED),
    ("snooze_period_ms", PACED),
];
const PACED: &str = "has no counterpart: recliner paces itself by couchdb.cold_reads_per_second";

/// Reads one node's rules; `zone` is the time zone of the server's clock.
pub(super) fn read(node: &NodeConfig, zone: &TimeZone) -> NodeChannels {
    let DaemonSettings { min_file_size, rules, findings } = read_daemon(node);
    let mut findings = Findings::from(findings);
    findings.note_set_keys(node, DAEMON, &KEYS);
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
                // The daemon takes files "no smaller than" the minimum, a channel takes files
                // "larger than" it.
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

/// The rules that channels can express: those for clustered databases.
fn of_whole_databases(rules: Vec<DaemonRule>, findings: &mut Findings) -> Vec<DaemonRule> {
    let (shards, rules): (Vec<_>, Vec<_>) =
        rules.into_iter().partition(|rule| ShardName::split(&rule.database).is_some());
    for rule in shards {
        let message =
            "is a rule for one shard; channels take whole databases, so this rule is left out";
        findings.error(RULES, rule.database.as_str(), message);
    }
    rules
}

/// The channel bounds that correspond to a percentage of waste.
struct Threshold {
    min_priority: f64,
    any_size: bool,
}

/// The bounds for targets of this kind; `None` if the rule never compacts them, or if no channel
/// can express it.
fn threshold(rule: &DaemonRule, kind: TargetKind, findings: &mut Findings) -> Option<Threshold> {
    let (key, percent) = match kind {
        TargetKind::View => ("view_fragmentation", rule.view_fragmentation),
        TargetKind::Db | TargetKind::Cleanup | TargetKind::Search => {
            ("db_fragmentation", rule.db_fragmentation)
        }
    };
    let (database, kind) = (rule.database.as_str(), kind.label());
    match percent.unwrap_or(0) {
        0 => {
            let message = format!(
                "{key} is missing or 0, so the daemon compacts every {kind} each time, even without waste; the channel takes those with any waste: set {key}"
            );
            findings.error(RULES, database, message);
            Some(Threshold { min_priority: 1.0, any_size: true })
        }
        percent @ 1..100 => {
            let share = f64::from(percent) / 100.0;
            let min_priority = 1.0 / (1.0 - share);
            let message = format!(
                "{key} {percent}% becomes min_priority {min_priority:.4}, above which the channel compacts; the daemon rounds, so it compacts from {}.5% on, a ratio of {:.4}",
                percent - 1,
                1.0 / (1.0 - (share - 0.005))
            );
            findings.note(RULES, database, message);
            Some(Threshold { min_priority, any_size: false })
        }
        100 => {
            let message = format!(
                "{key} 100% would be an infinite min_priority, so no channel is written; the daemon rounds to whole per cents and compacts from a ratio of 200 on: to match that, write a channel with min_priority: 199.99"
            );
            findings.error(RULES, database, message);
            None
        }
        percent => {
            let message =
                format!("{key} {percent}% is never reached, so no channel takes these {kind}s");
            findings.note(RULES, database, message);
            None
        }
    }
}

fn window(rule: &DaemonRule, channel: &mut Channel, zone: &TimeZone, findings: &mut Findings) {
    channel.windows = smoosh::windows(rule.opens, zone);
    match rule.opens {
        Opening::Always => {}
        Opening::Never => {
            channel.concurrency = 0;
            let message = "its period never opens: the channel is written with concurrency 0";
            findings.warn(RULES, rule.database.as_str(), message);
        }
        Opening::Daily(_) => {
            channel.strict_window = rule.strict_window;
            if rule.strict_window {
                let message = "strict_window made the daemon cancel running compactions when the window closed; that is not possible over HTTP, so recliner does not start what would not end inside the window";
                findings.warn(RULES, rule.database.as_str(), message);
            }
        }
    }
}

fn general(channels: &[TranslatedChannel], parallel: bool, findings: &mut Findings) {
    if channels.is_empty() {
        return;
    }
    let message = "the daemon never compacts a file without live bytes, and always compacts one whose live bytes are unknown; recliner gives the first kind the lowest priority, and never compacts the second";
    findings.warn(RULES, None, message);
    let message = format!(
        "the daemon compacts one database of a node at a time{}: set limits.per_node to {} to match that",
        if parallel {
            ", its views beside it where parallel_view_compaction is true"
        } else {
            ", its views after it"
        },
        if parallel { 2 } else { 1 }
    );
    findings.note(RULES, None, message);
    let message = "the daemon requires free space of twice the live bytes on the volume; recliner's headroom does the same with its own factor";
    findings.note(RULES, None, message);
}
