//! What can be said of a node's channels together: settings nobody reads, channels that
//! take targets for nothing, and channels that take none.

mod order;

pub(super) use order::order;

use super::{
    NodeConfig, ProblemKind, Rules,
    effective::Effective,
    finding::{Remarks, Severity},
    number::integer,
};
use crate::model::{priority::PriorityKind, target::TargetKind};

/// Keys of every channel.
const EVERY: [&str; 5] = ["capacity", "concurrency", "from", "to", "strict_window"];
/// Keys of channels that score.
const SCORED: [&str; 5] = ["priority", "min_priority", "max_priority", "min_size", "max_size"];

/// Lines of ini files in these sections, or between sections, that are not what they seem.
pub(super) fn lines(node: &NodeConfig, sections: &[&str], remarks: &mut Remarks) {
    for problem in &node.problems {
        let root = problem.section.split('.').next().unwrap_or_default();
        if sections.contains(&root) || problem.kind == ProblemKind::NotASection {
            let section = if problem.section.is_empty() { "no section" } else { &problem.section };
            remarks.add(Severity::Warning, section, None, problem.to_string());
        }
    }
}

/// Sections and keys that smoosh does not read, or that mean nothing to recliner.
pub(super) fn unread(
    node: &NodeConfig,
    rules: Rules,
    channels: &[(String, TargetKind)],
    remarks: &mut Remarks,
) {
    for (section, keys) in &node.sections {
        if section == "smoosh" {
            for (key, value) in keys {
                server_key(key, value, rules, remarks);
            }
            continue;
        }
        let Some(name) = section.strip_prefix("smoosh.") else { continue };
        let kinds: Vec<_> =
            channels.iter().filter(|(listed, _)| listed == name).map(|(_, kind)| *kind).collect();
        if kinds.is_empty() {
            if name != "ignore" {
                remarks.add(
                    Severity::Warning,
                    section,
                    None,
                    "does nothing: no list of channels in [smoosh] names this one",
                );
            }
            continue;
        }
        for key in keys.keys().filter(|key| !reads(key, &kinds)) {
            let why = if reads(key.trim(), &kinds) {
                "does nothing: CouchDB keeps the spaces around the key as part of the key"
            } else if key == "min_changes" {
                "does nothing: smoosh counts the changes of databases alone"
            } else {
                "does nothing: smoosh reads no such key"
            };
            remarks.add_key(Severity::Warning, section, Some(key.clone()), why);
        }
    }
}

fn reads(key: &str, kinds: &[TargetKind]) -> bool {
    EVERY.contains(&key)
        || kinds.iter().any(|kind| match kind {
            TargetKind::Db => SCORED.contains(&key) || key == "min_changes",
            TargetKind::View => SCORED.contains(&key),
            TargetKind::Cleanup | TargetKind::Search => false,
        })
}

fn server_key(key: &str, value: &str, rules: Rules, remarks: &mut Remarks) {
    let section = "smoosh";
    let mut remark = |severity, message: &str| {
        remarks.add_key(severity, section, Some(key.to_owned()), message);
    };
    let new = rules.adds_channels();
    match key {
        "db_channels" | "view_channels" | "cleanup_index_files" => {}
        "cleanup_channels" | "state_dir" if new => {}
        "staleness" => remark(
            Severity::Note,
            "has no counterpart: smoosh scores on writes, recliner at every scan.interval",
        ),
        "wait_secs" if integer(value).is_none_or(|seconds| seconds < 0) => remark(
            Severity::Impossible,
            "is no number of seconds: smoosh's channels crash as they start, and nothing is compacted",
        ),
        "wait_secs" => remark(
            Severity::Note,
            "has no counterpart: it is how long smoosh waits after CouchDB has started",
        ),
        "persist" if new => {
            remark(Severity::Note, "has no counterpart: recliner always keeps its state");
        }
        "compaction_log_level" if new => {
            remark(Severity::Note, "has no counterpart: set --log.level");
        }
        "schema_channels" if !new => remark(Severity::Note, "does nothing in CouchDB"),
        _ => remark(Severity::Warning, "does nothing: smoosh reads no such key"),
    }
}

/// Defaults in force that CouchDB's documentation has wrong.
pub(super) fn defaults(channels: &[Effective], rules: Rules, remarks: &mut Remarks) {
    for (priority, value, documented, shown) in [
        (PriorityKind::Ratio, rules.min_ratio(), 5.0, "5.0"),
        (PriorityKind::Slack, rules.min_slack(), 16_777_216.0, "16 MB"),
    ] {
        let names: Vec<_> = channels
            .iter()
            .filter(|one| one.default_floor && !one.unscored && one.channel.priority == priority)
            .map(|one| &*one.channel.name)
            .collect();
        if names.is_empty() || value == documented {
            continue;
        }
        remarks.add(
            Severity::Note,
            "smoosh",
            None,
            format!(
                "min_priority is left out in {}: CouchDB {rules} has {value} in its code, while its configuration reference says {shown} and \"at least\" (it is \"more than\")",
                names.join(", ")
            ),
        );
    }
}
