//! smoosh's channels on one node, in effect: which there are, in which order, and what
//! each takes, by the rules of the node's version.
//!
//! The order and the defaults are those of `smoosh_utils:channel_list/2` and
//! `smoosh_server:get_priority/4`. Whatever smoosh reads in a way that its own text does
//! not suggest becomes a remark.

mod settings;

use super::{
    NodeConfig, Rules,
    finding::{Remarks, Severity},
    ignored::{self, Ignored},
    lint,
};
use crate::{
    act::takeover,
    model::{channel::Channel, target::TargetKind},
};
use std::collections::BTreeSet;

/// One node's settings, read.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) node: String,
    pub(super) version: String,
    pub(super) runs_smoosh: bool,
    pub(super) channels: Vec<Effective>,
    pub(super) ignored: Ignored,
    pub(super) per_node: usize,
    pub(super) remarks: Remarks,
}

/// A channel, and what a [`Channel`] has no field for.
#[derive(Debug)]
pub(super) struct Effective {
    /// What it is in `recliner.yml`; name patterns are added when all nodes are merged.
    pub(super) channel: Channel,
    /// Clustered databases it takes alone, or leaves out.
    pub(super) include: BTreeSet<String>,
    pub(super) exclude: BTreeSet<String>,
    /// The section of its settings.
    pub(super) section: String,
    /// Why it takes targets and never starts one, if it never does.
    pub(super) stopped: Option<&'static str>,
    /// Whether it takes nothing but files without live bytes.
    pub(super) floor_only: bool,
    /// Whether that is because smoosh has no score for its priority.
    pub(super) unscored: bool,
    /// Whether its least priority is the default.
    pub(super) default_floor: bool,
}

/// The keys of the channel lists and the built-in channels, in the order up to 3.2.
const LISTS: [(&str, TargetKind, &[&str]); 3] = [
    ("db_channels", TargetKind::Db, &["upgrade_dbs", "ratio_dbs", "slack_dbs"]),
    ("view_channels", TargetKind::View, &["upgrade_views", "ratio_views", "slack_views"]),
    ("cleanup_channels", TargetKind::Cleanup, &["index_cleanup"]),
];

/// Reads one node's smoosh settings.
///
/// Where a takeover has stopped channels, the values that it noted count, not its zeros:
/// they are what smoosh does as soon as it is given back.
pub(super) fn read(node: &NodeConfig) -> Reading {
    let (rules, assumed) = node.rules();
    let mut remarks = Remarks::default();
    let node = &before_takeover(node, &mut remarks);
    let runs_smoosh = rules.runs_smoosh();
    if assumed {
        remarks.add(
            Severity::Warning,
            "smoosh",
            None,
            format!(
                "the CouchDB version {:?} cannot be read, so the rules of {rules} are assumed",
                node.version
            ),
        );
    }
    if !runs_smoosh {
        remarks.add(
            Severity::Impossible,
            "smoosh",
            None,
            format!("CouchDB {rules} has no smoosh: import compaction-daemon instead"),
        );
    }
    lint::lines(node, &["smoosh", "view_upgrade"], &mut remarks);
    let mut channels = Vec::new();
    let mut used = BTreeSet::new();
    let mut all = Vec::new();
    for (key, kind, builtin) in LISTS {
        let names = if runs_smoosh {
            listed(node, rules, key, kind, builtin, &mut remarks)
        } else {
            Vec::new()
        };
        let mut of_kind = Vec::new();
        for (at, name) in names.iter().enumerate() {
            all.push((name.clone(), kind));
            let unique = unique_name(name, kind, &used);
            if used.contains(name) {
                remarks.add(
                    Severity::Impossible,
                    "smoosh",
                    key,
                    format!(
                        "{name} is listed for more than one kind: smoosh gives both one queue and one concurrency, here the {} part becomes {unique} with its own: use two names in CouchDB",
                        kind.label()
                    ),
                );
            }
            match settings::read(node, rules, name, &unique, kind, &mut remarks) {
                Ok(effective) => {
                    used.insert(unique);
                    of_kind.push(effective);
                }
                Err(broken) => {
                    let after = names.get(at + 1..).unwrap_or_default();
                    all.extend(after.iter().map(|name| (name.clone(), kind)));
                    broken.remark(after, kind, &mut remarks);
                    break;
                }
            }
        }
        lint::order(&of_kind, &mut remarks);
        channels.extend(of_kind);
    }
    if runs_smoosh {
        lint::unread(node, rules, &all, &mut remarks);
        lint::defaults(&channels, rules, &mut remarks);
    }
    let ignored = ignored::read(node, &mut remarks);
    let per_node =
        channels.iter().fold(0_usize, |sum, one| sum.saturating_add(one.channel.concurrency));
    Reading {
        node: node.node.clone(),
        version: node.version.clone(),
        runs_smoosh,
        channels,
        ignored,
        per_node,
        remarks,
    }
}

/// The node's settings with the concurrencies that smoosh had before it was taken over.
fn before_takeover(node: &NodeConfig, remarks: &mut Remarks) -> NodeConfig {
    let mut node = node.clone();
    for takeover::StoppedChannel { channel, previous: was } in
        takeover::undo_takeovers(&mut node.sections)
    {
        let before = was.map_or_else(
            || "the key was not set then, so its default is used here".to_owned(),
            |was| format!("the {was:?} from before is used here"),
        );
        remarks.add(
            Severity::Note,
            &settings::section_of(&channel),
            "concurrency",
            format!("is 0 because a recliner has taken the channel over; {before}"),
        );
    }
    node
}

/// The channels of a kind, in the order smoosh tries them.
fn listed(
    node: &NodeConfig,
    rules: Rules,
    key: &'static str,
    kind: TargetKind,
    builtin: &[&str],
    remarks: &mut Remarks,
) -> Vec<String> {
    if kind == TargetKind::Cleanup && !cleans_up(node, rules, remarks) {
        return Vec::new();
    }
    let builtin = builtin.iter().map(|name| (*name).to_owned());
    let written = node.value("smoosh", key).map(|text| split(text, rules));
    if kind == TargetKind::Cleanup && !rules.adds_channels() {
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
    if !written.is_empty() && !missing.is_empty() {
        remarks.add(
            Severity::Warning,
            "smoosh",
            key,
            format!(
                "since CouchDB 3.3 this list adds to the built-in channels, which stay ({}), and channels are tried by name: {}",
                missing.join(", "),
                all.join(", ")
            ),
        );
    } else if !written.is_empty() && written != all {
        remarks.add(
            Severity::Note,
            "smoosh",
            key,
            format!(
                "the order written here is ignored; channels are tried by name: {}",
                all.join(", ")
            ),
        );
    }
    all
}

/// Whether the index cleanup is on (`smoosh_channel:should_clean_up_indices/0`).
fn cleans_up(node: &NodeConfig, rules: Rules, remarks: &mut Remarks) -> bool {
    let key = "cleanup_index_files";
    let value = node.value("smoosh", key);
    if !rules.adds_channels() {
        let on = value == Some("true");
        remarks.add(
            Severity::Note,
            "smoosh",
            key,
            if on {
                "up to 3.2 smoosh cleans up as often as it compacts a view; recliner does where there is something to clean up"
            } else {
                "is off unless exactly \"true\" up to 3.2, so no cleanup channel is written"
            },
        );
        return on;
    }
    match value {
        Some("false") => {
            remarks.add(Severity::Note, "smoosh", key, "is off, so no cleanup channel is written");
            return false;
        }
        Some("true") => {}
        Some(other) => remarks.add(
            Severity::Warning,
            "smoosh",
            key,
            format!(
                "{other:?} is neither \"true\" nor \"false\" and counts as the default, which is on"
            ),
        ),
        None => remarks.add(
            Severity::Note,
            "smoosh",
            key,
            "is left out and therefore on since CouchDB 3.3, though its documentation says off",
        ),
    }
    true
}

/// `smoosh_utils:split/1`: at commas with the space around them, without empty names at
/// the end; the space at both ends of the whole stays.
fn split(text: &str, rules: Rules) -> Vec<String> {
    if text.is_empty() {
        // Before 3.3 nothing is one channel with an empty name.
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

/// A channel's name in `recliner.yml`, where none may be empty or used twice.
fn unique_name(name: &str, kind: TargetKind, used: &BTreeSet<String>) -> String {
    let ending = match kind {
        TargetKind::Db => "dbs",
        TargetKind::View => "views",
        TargetKind::Cleanup | TargetKind::Search => "cleanup",
    };
    let first = if name.is_empty() { format!("unnamed_{ending}") } else { name.to_owned() };
    let second = format!("{first}_{ending}");
    let more = (2_usize..).map(|at| format!("{second}_{at}"));
    let candidates = [first, second.clone()].into_iter().chain(more);
    candidates.into_iter().find(|name| !used.contains(name)).unwrap_or(second)
}
