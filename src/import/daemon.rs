//! CouchDB 2.x's compaction daemon as channels.
//!
//! `[compactions]` has a rule for each named database and `_default` for the others
//! (`couch_compaction_daemon:get_db_config/1`). A database with a rule never falls back
//! to `_default`, so the default channels leave it out by name.

mod rule;

use self::rule::Rule;
use super::{
    NodeConfig,
    clock_time::{Daily, daily},
    effective::{Effective, Reading},
    finding::{Remarks, Severity},
    ignored::Ignored,
    lint,
    number::integer,
};
use crate::model::{channel::Channel, priority::PriorityKind, target::TargetKind};
use couchdb_names::ShardName;
use jiff::tz::TimeZone;
use std::collections::BTreeSet;

const DAEMON: &str = "compaction_daemon";
const RULES: &str = "compactions";
const DEFAULT: &str = "_default";
/// Files smaller than this are left alone, in bytes.
const MIN_FILE_SIZE: i128 = 131_072;

/// Reads one node's rules; `zone` is that of the server's clock.
pub(super) fn read(node: &NodeConfig, zone: &TimeZone) -> Reading {
    let mut remarks = Remarks::default();
    lint::lines(node, &[DAEMON, RULES], &mut remarks);
    let min_file_size = daemon_keys(node, &mut remarks);
    let rules = rules(node, &mut remarks);
    let named: BTreeSet<String> =
        rules.iter().map(|(name, _)| name.clone()).filter(|name| name != DEFAULT).collect();
    let mut used = BTreeSet::new();
    let mut channels = Vec::new();
    for kind in [TargetKind::Db, TargetKind::View] {
        for (name, rule) in &rules {
            let Some(threshold) = threshold(name, rule, kind, &mut remarks) else { continue };
            let unique = channel_name(name, kind, &used);
            used.insert(unique.clone());
            let mut channel = Channel::with_defaults(&unique, kind, PriorityKind::Ratio);
            channel.min_priority = threshold.min_priority;
            channel.min_size = if threshold.any_size {
                0
            } else {
                // "No smaller than" where a channel says "larger than".
                u64::try_from(min_file_size.saturating_sub(1).max(0)).unwrap_or(u64::MAX)
            };
            let stopped = window(name, rule, &mut channel, zone, &mut remarks);
            let (include, exclude) = if name == DEFAULT {
                (BTreeSet::new(), named.clone())
            } else {
                (BTreeSet::from([name.clone()]), BTreeSet::new())
            };
            let section = RULES.to_owned();
            let (floor_only, unscored, default_floor) = (false, false, false);
            channels.push(Effective {
                channel,
                include,
                exclude,
                section,
                stopped,
                floor_only,
                unscored,
                default_floor,
            });
        }
    }
    let parallel = rules.iter().any(|(_, rule)| rule.parallel);
    general(&channels, parallel, &mut remarks);
    Reading {
        node: node.node.clone(),
        version: node.version.clone(),
        runs_smoosh: true,
        channels,
        ignored: Ignored::default(),
        per_node: if parallel { 2 } else { 1 },
        remarks,
    }
}

/// The rules that the daemon can read, those for single databases before the default.
fn rules(node: &NodeConfig, remarks: &mut Remarks) -> Vec<(String, Rule)> {
    let mut rules = Vec::new();
    for (name, text) in node.sections.get(RULES).into_iter().flatten() {
        if name.starts_with('#') {
            continue;
        }
        match rule::parse(text) {
            Err(why) => remarks.add_key(
                Severity::Warning,
                RULES,
                Some(name.clone()),
                format!("cannot be read by the daemon either, which ignores it: {why}"),
            ),
            Ok(_) if ShardName::split(name).is_some() => remarks.add_key(
                Severity::Impossible,
                RULES,
                Some(name.clone()),
                "is a rule for one shard; a channel takes whole databases, so this one is left out",
            ),
            Ok(rule) => rules.push((name.clone(), rule)),
        }
    }
    rules.sort_by_key(|(name, _)| name == DEFAULT);
    if rules.last().is_none_or(|(name, _)| name != DEFAULT) {
        remarks.add_key(
            Severity::Warning,
            RULES,
            Some(DEFAULT.to_owned()),
            "is missing, so databases without a rule of their own are not compacted; CouchDB 2.3's default.ini has one for 70% and 60%: name that file too if it is in use",
        );
    }
    rules
}

/// The daemon's own settings; returns the least size of a file it compacts, in bytes.
fn daemon_keys(node: &NodeConfig, remarks: &mut Remarks) -> i128 {
    let mut least = MIN_FILE_SIZE;
    for (key, value) in node.sections.get(DAEMON).into_iter().flatten() {
        let (severity, message) = match key.as_str() {
            "min_file_size" => match integer(value) {
                Some(bytes) => {
                    least = bytes;
                    (
                        Severity::Note,
                        "files of exactly this size count for the daemon, so min_size, which wants more, is one byte less",
                    )
                }
                None => (
                    Severity::Impossible,
                    "is no integer, on which the daemon crashes at every file: 131072 is written instead",
                ),
            },
            "check_interval" => (
                Severity::Note,
                "has no counterpart in a channel: recliner looks at every scan.interval",
            ),
            "snooze_period" | "snooze_period_ms" => (
                Severity::Note,
                "has no counterpart: recliner paces itself by couchdb.cold_reads_per_second",
            ),
            _ => (Severity::Warning, "does nothing: the daemon reads no such key"),
        };
        remarks.add_key(severity, DAEMON, Some(key.clone()), message);
    }
    least
}

/// What a share of waste in per cent becomes.
struct Threshold {
    min_priority: f64,
    any_size: bool,
}

/// `None` where the rule never compacts this kind, or no channel can say it.
fn threshold(
    name: &str,
    rule: &Rule,
    kind: TargetKind,
    remarks: &mut Remarks,
) -> Option<Threshold> {
    let (key, percent) = match kind {
        TargetKind::View => ("view_fragmentation", rule.view),
        TargetKind::Db | TargetKind::Cleanup | TargetKind::Search => ("db_fragmentation", rule.db),
    };
    let mut remark = |severity, message: String| {
        remarks.add_key(severity, RULES, Some(name.to_owned()), message);
    };
    let Some(percent) = percent.filter(|percent| *percent > 0) else {
        remark(
            Severity::Impossible,
            format!(
                "{key} is left out or 0, so the daemon compacts every {} every time, however small or full; the channel written takes those with any waste: set a {key}",
                kind.label()
            ),
        );
        return Some(Threshold { min_priority: 1.0, any_size: true });
    };
    if percent > 100 {
        remark(
            Severity::Note,
            format!(
                "{key} {percent}% is never reached, so no channel takes these {}s",
                kind.label()
            ),
        );
        return None;
    }
    if percent == 100 {
        remark(
            Severity::Impossible,
            format!(
                "{key} 100% would be an infinite min_priority, so no channel is written; rounded to whole per cents the daemon takes ratios from 200 on: set min_priority: 199.99 for that"
            ),
        );
        return None;
    }
    let share = percent as f64 / 100.0;
    let min_priority = 1.0 / (1.0 - share);
    remark(
        Severity::Note,
        format!(
            "{key} {percent}% becomes min_priority {min_priority:.4}: more than that, where the daemon also took what was equal, and rounded up from {}.5%, a ratio of {:.4}",
            percent - 1,
            1.0 / (1.0 - (share - 0.005))
        ),
    );
    Some(Threshold { min_priority, any_size: false })
}

fn window(
    name: &str,
    rule: &Rule,
    channel: &mut Channel,
    zone: &TimeZone,
    remarks: &mut Remarks,
) -> Option<&'static str> {
    let (from, to) = rule.period?;
    match daily(from, to, zone) {
        Daily::Always => None,
        Daily::Never => {
            channel.concurrency = 0;
            remarks.add_key(
                Severity::Warning,
                RULES,
                Some(name.to_owned()),
                "its period never opens: the channel is written with concurrency 0",
            );
            Some("its window never opens")
        }
        Daily::Within(window) => {
            channel.windows = vec![window];
            channel.strict_window = rule.cancels;
            if rule.cancels {
                remarks.add_key(
                    Severity::Warning,
                    RULES,
                    Some(name.to_owned()),
                    "strict_window made the daemon cancel what still ran when the window closed; that is not possible over HTTP, so recliner does not start what would not end inside the window",
                );
            }
            None
        }
    }
}

fn general(channels: &[Effective], parallel: bool, remarks: &mut Remarks) {
    if channels.is_empty() {
        return;
    }
    remarks.add(
        Severity::Warning,
        RULES,
        None,
        "the daemon never compacts a file without live bytes and always one whose live bytes are unknown; recliner takes the first at the lowest priority and the second never",
    );
    remarks.add(
        Severity::Note,
        RULES,
        None,
        format!(
            "the daemon works on one database of a node at a time{}: set limits.per_node to {} for that",
            if parallel { ", its views beside it where parallel_view_compaction is true" } else { ", its views after it" },
            if parallel { 2 } else { 1 }
        ),
    );
    remarks.add(
        Severity::Note,
        RULES,
        None,
        "the daemon wants twice the live bytes free on the volume; recliner's headroom does the same with its own factor",
    );
}

/// A channel's name made of a database's, which may hold slashes and worse.
fn channel_name(db: &str, kind: TargetKind, used: &BTreeSet<String>) -> String {
    let base: String = if db == DEFAULT {
        "default".to_owned()
    } else {
        db.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
    };
    let ending = if kind == TargetKind::View { "views" } else { "dbs" };
    let first = format!("{base}_{ending}");
    let more = (2_usize..).map(|at| format!("{base}_{at}_{ending}"));
    std::iter::once(first.clone()).chain(more).find(|name| !used.contains(name)).unwrap_or(first)
}
