//! Findings about a node's channels as a whole: settings that nothing reads, channels that take
//! targets but never start a job, and channels that take no targets.

mod order;

pub(crate) use order::order;

use crate::{
    ChannelKind, IniProblemKind, NodeConfig, Priority, Rules, Severity, SmooshChannel,
    finding::Findings, number::integer,
};

const SMOOSH: &str = "smoosh";
/// Keys that every channel has.
const EVERY: [&str; 5] = ["capacity", "concurrency", "from", "to", "strict_window"];
/// Keys that only channels with a score have.
const SCORED: [&str; 5] = ["priority", "min_priority", "max_priority", "min_size", "max_size"];

/// Reports misleading lines of ini files in these sections or outside of any section.
pub(crate) fn lines(node: &NodeConfig, sections: &[&str], findings: &mut Findings) {
    for problem in &node.problems {
        let root = problem.section.split('.').next().unwrap_or_default();
        let hides_a_section = matches!(
            problem.kind,
            IniProblemKind::ByteOrderMark | IniProblemKind::NoSection | IniProblemKind::NotASection
        );
        if sections.contains(&root) || hides_a_section {
            let section = if problem.section.is_empty() { "no section" } else { &problem.section };
            let is_meant = matches!(problem.kind, IniProblemKind::TakenAway(_));
            let severity = if is_meant { Severity::Note } else { Severity::Warning };
            findings.add(severity, section, None, problem.to_string());
        }
    }
}

/// Reports sections and keys that smoosh does not read.
pub(crate) fn unread(
    node: &NodeConfig,
    rules: Rules,
    channels: &[(String, ChannelKind)],
    findings: &mut Findings,
) {
    for (section, keys) in &node.sections {
        if section == "smoosh" {
            for (key, value) in keys {
                server_key(key, value, rules, findings);
            }
            continue;
        }
        let (root, rest) = section.split_at_checked(SMOOSH.len()).unwrap_or((section, ""));
        if root != SMOOSH
            && root.eq_ignore_ascii_case(SMOOSH)
            && (rest.is_empty() || rest.starts_with('.'))
        {
            let message = format!(
                "does nothing: names of sections are case-sensitive: write [{SMOOSH}{rest}]"
            );
            findings.warn(section, None, message);
        }
        let Some(name) = section.strip_prefix("smoosh.") else { continue };
        let kinds: Vec<_> =
            channels.iter().filter(|(listed, _)| listed == name).map(|(_, kind)| *kind).collect();
        if kinds.is_empty() {
            if name != "ignore" {
                let message = "does nothing: no list of channels in [smoosh] contains this one";
                findings.warn(section, None, message);
            }
            continue;
        }
        for key in keys.keys().filter(|key| !reads(key, &kinds)) {
            let why = if reads(key.trim(), &kinds) {
                "does nothing: CouchDB keeps the spaces around the key as part of the key"
            } else if key == "min_changes" {
                "does nothing: smoosh counts changes only of databases"
            } else {
                unread_key(key, true)
            };
            findings.warn(section, key.as_str(), why);
        }
    }
}

fn reads(key: &str, kinds: &[ChannelKind]) -> bool {
    EVERY.contains(&key)
        || kinds.iter().any(|kind| match kind {
            ChannelKind::Db => SCORED.contains(&key) || key == "min_changes",
            ChannelKind::View => SCORED.contains(&key),
            ChannelKind::Cleanup => false,
        })
}

/// Why a key has no effect, if smoosh reads it in another section.
fn unread_key(key: &str, in_channel: bool) -> &'static str {
    match key {
        "min_file_size" => {
            "does nothing: it is a setting of CouchDB 2; smoosh has min_size in each channel's section"
        }
        "db_channels" | "view_channels" | "cleanup_channels" | "cleanup_index_files"
            if in_channel =>
        {
            "does nothing here: smoosh reads it in [smoosh]"
        }
        key if !in_channel && reads(key, &[ChannelKind::Db]) => {
            "does nothing here: smoosh reads it in the section of a channel, such as [smoosh.ratio_dbs]"
        }
        _ => "does nothing: smoosh reads no such key",
    }
}

/// Reports smoosh's settings on a version without smoosh.
pub(crate) fn no_smoosh(node: &NodeConfig, rules: Rules, findings: &mut Findings) {
    for section in node.sections.keys().filter(|it| it.split('.').next() == Some("smoosh")) {
        let message = format!("does nothing: CouchDB {rules} has no smoosh, which came with 3.0");
        findings.warn(section, None, message);
    }
}

/// Reports keys of `[smoosh]` itself that this version does not read or fails on.
fn server_key(key: &str, value: &str, rules: Rules, findings: &mut Findings) {
    let new = rules.adds_channels();
    let (severity, message) = match key {
        "db_channels" | "view_channels" | "cleanup_index_files" | "staleness" => return,
        "cleanup_channels" | "state_dir" | "persist" | "compaction_log_level" if new => return,
        "wait_secs" if integer(value).is_none_or(|seconds| seconds < 0) => (
            Severity::Error,
            "is not a number of seconds: smoosh's channels crash when they start, and nothing is compacted",
        ),
        "wait_secs" => return,
        "schema_channels" if !new => (Severity::Note, "does nothing in CouchDB"),
        _ => (Severity::Warning, unread_key(key, false)),
    };
    findings.add(severity, "smoosh", Some(key), message.to_owned());
}

/// Reports defaults in effect that differ from CouchDB's documentation.
pub(crate) fn defaults(channels: &[SmooshChannel], rules: Rules, findings: &mut Findings) {
    for (priority, value, documented, shown) in [
        (Priority::Ratio, rules.min_ratio(), 5.0, "5.0"),
        (Priority::Slack, rules.min_slack(), 16_777_216.0, "16 MB"),
    ] {
        let names: Vec<_> = channels
            .iter()
            .filter(|one| one.has_default_min_priority && one.priority == Some(priority))
            .map(SmooshChannel::shown)
            .collect();
        if names.is_empty() || value == documented {
            continue;
        }
        let value = order::in_unit(Some(priority), value);
        let message = format!(
            "min_priority is missing in {}: CouchDB {rules} uses more than {value}, although its configuration reference says at least {shown}",
            names.join(", ")
        );
        findings.note("smoosh", None, message);
    }
}
