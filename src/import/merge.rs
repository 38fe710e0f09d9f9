//! Merges the channels of all nodes: one `recliner.yml` serves all of them, so differences in
//! effect are reported.

mod differences;

use super::{
    Finding, ImportError, NodeChannels, TranslatedChannel, finding,
    ignored::{self, IgnoredByAll},
};
use crate::{
    model::{
        channel::{Channel, Channels},
        target::TargetKind,
    },
    text::pattern::{NameFilter, NamePatterns, PatternError, escaped},
};
use compaction_settings::Severity;
use std::collections::BTreeSet;

/// Channels with the same effect as CouchDB's own settings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Imported {
    /// The channels; if nodes differ, those of the largest group.
    pub channels: Channels,
    /// The maximum number of jobs that these settings let one node run at once, and so the minimum
    /// of `limits.per_node`.
    pub per_node: usize,
    /// The nodes grouped by equal channels, the largest group first; a single group if all agree.
    pub groups: Vec<Group>,
    /// All findings, the most severe first.
    pub findings: Vec<Finding>,
}

/// Nodes whose settings have the same effect.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    /// Their names and CouchDB versions, in the order given.
    pub nodes: Vec<(String, String)>,
    /// The channels of these nodes.
    pub channels: Channels,
    /// The maximum number of jobs at once on one of these nodes.
    pub per_node: usize,
}

impl Imported {
    /// Whether the channels have the same effect as CouchDB's settings on every node.
    pub(crate) fn is_equal(&self) -> bool {
        self.count(Severity::Error) == 0
    }

    /// The number of findings with this severity.
    pub(crate) fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// A summary in a few lines, without the findings themselves.
    pub(crate) fn summary(&self) -> Vec<String> {
        let mut lines: Vec<_> = self
            .groups
            .iter()
            .map(|group| {
                let nodes: Vec<_> = group
                    .nodes
                    .iter()
                    .map(|(node, version)| match version.as_str() {
                        "" => node.clone(),
                        version => format!("{node} (CouchDB {version})"),
                    })
                    .collect();
                let names: Vec<_> =
                    group.channels.list.iter().map(|channel| &*channel.name).collect();
                format!("{}: {} channels: {}", nodes.join(", "), names.len(), names.join(", "))
            })
            .collect();
        lines.push(format!(
            "concurrent jobs on a node: at most {}; a lower limits.per_node is stricter than CouchDB",
            self.per_node
        ));
        lines.push(format!(
            "{} impossible, {} warnings, {} notes",
            self.count(Severity::Error),
            self.count(Severity::Warning),
            self.count(Severity::Note)
        ));
        lines
    }
}

/// Merges the channels of all nodes.
pub(super) fn merge(nodes: Vec<NodeChannels>) -> Result<Imported, ImportError> {
    let ignored = ignored::merge(nodes.iter().map(|node| (node.node.as_str(), &node.ignored)));
    let mut groups: Vec<Group> = Vec::new();
    for node in nodes.iter().filter(|node| node.runs_smoosh) {
        let channels = channels(node, &ignored)
            .map_err(|source| ImportError::Pattern { node: node.node.clone(), source })?;
        let named = (node.node.clone(), node.version.clone());
        match groups.iter_mut().find(|group| group.channels == channels) {
            Some(group) => group.nodes.push(named),
            None => groups.push(Group { nodes: vec![named], channels, per_node: node.per_node }),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.nodes.len()));
    let mut findings = differences::between(&groups, &nodes);
    findings.extend(ignored.findings);
    findings.extend(finding::gather(nodes.into_iter().map(|node| (node.node, node.findings))));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let (channels, per_node) = match groups.first() {
        Some(group) => (group.channels.clone(), group.per_node),
        None => (Channels { list: Vec::new(), ignore: NamePatterns::default() }, 0),
    };
    Ok(Imported { channels, per_node, groups, findings })
}

/// One node's channels, with their name patterns.
fn channels(node: &NodeChannels, ignored: &IgnoredByAll) -> Result<Channels, PatternError> {
    let list: Result<_, _> = node.channels.iter().map(|one| channel(one, ignored)).collect();
    let files: Vec<_> = ignored.ignored.files.iter().map(|name| escaped(name)).collect();
    Ok(Channels { list: list?, ignore: NamePatterns::new(&files)? })
}

fn channel(one: &TranslatedChannel, ignored: &IgnoredByAll) -> Result<Channel, PatternError> {
    let none = BTreeSet::new();
    let left_out = match one.channel.kind {
        TargetKind::Db | TargetKind::Search => &none,
        TargetKind::View => &ignored.views_of,
        TargetKind::Cleanup => &ignored.ignored.cleanups_of,
    };
    let patterns = |names: &mut dyn Iterator<Item = &String>| -> Vec<_> {
        names.map(|name| escaped(name)).collect()
    };
    let include = patterns(&mut one.include.iter());
    let exclude = patterns(&mut one.exclude.union(left_out));
    Ok(Channel { databases: NameFilter::new(&include, &exclude)?, ..one.channel.clone() })
}
