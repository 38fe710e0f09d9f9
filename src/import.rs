//! Translates CouchDB's own compaction settings into channels with the same effect.
//!
//! Owns the translation of what the crate `compaction-settings` reads, the findings about
//! differences between a channel and the original, and the comparison of nodes. Never asks a
//! server, opens a file or writes YAML: it takes each node's settings and returns [`Imported`], or
//! channels by rent instead. Called by the command `import` and by the API for what-if.

mod daemon;
mod finding;
mod ignored;
mod merge;
mod rent;
mod smoosh;

pub(crate) use finding::Finding;
pub(crate) use merge::{Group, Imported};
pub(crate) use rent::{AsRent, as_rent};

use crate::{model::channel::Channel, text::pattern::PatternError};
use compaction_settings::{Findings, Ignored, NodeConfig};
use jiff::tz::TimeZone;
use std::{collections::BTreeSet, iter};

/// Why an import is impossible.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportError {
    /// No node's configuration was given.
    #[error("no node's configuration was given: name a CouchDB to ask, or its ini files")]
    NoNodes,
    /// Every node is too old for smoosh.
    #[error(
        "none of the nodes ({nodes}) runs smoosh, which came with CouchDB 3.0: import compaction-daemon instead"
    )]
    NoSmoosh {
        /// The nodes, separated by commas.
        nodes: String,
    },
    /// Patterns cannot be made from the names of databases or files.
    #[error("cannot make patterns of the databases and files that {node}'s settings name")]
    Pattern {
        /// The node whose settings contain the names.
        node: String,
        /// The name and the reason.
        #[source]
        source: PatternError,
    },
}

/// Channels with the same effect as smoosh's channels on these nodes, with findings.
///
/// # Errors
/// If no node's settings are given, or no node runs smoosh.
pub(crate) fn import_smoosh(nodes: &[NodeConfig]) -> Result<Imported, ImportError> {
    if nodes.is_empty() {
        return Err(ImportError::NoNodes);
    }
    let nodes: Vec<_> = nodes.iter().map(smoosh::read).collect();
    if nodes.iter().all(|node| !node.runs_smoosh) {
        let nodes = nodes.iter().map(|node| node.node.clone()).collect::<Vec<_>>().join(", ");
        return Err(ImportError::NoSmoosh { nodes });
    }
    merge::merge(nodes)
}

/// Channels that follow the rules of CouchDB 2.x's compaction daemon on these nodes.
///
/// `zone` is the time zone of the servers' clocks, which the daemon's `from` and `to` follow.
/// Thresholds follow CouchDB's migration guide: N % of waste is a `min_priority` of 1/(1 - N/100).
///
/// # Errors
/// If no node's settings are given.
pub(crate) fn import_daemon(
    nodes: &[NodeConfig],
    zone: &TimeZone,
) -> Result<Imported, ImportError> {
    if nodes.is_empty() {
        return Err(ImportError::NoNodes);
    }
    merge::merge(nodes.iter().map(|node| daemon::read(node, zone)).collect())
}

/// The channels from one node's settings.
#[derive(Debug)]
struct NodeChannels {
    node: String,
    version: String,
    /// Whether the node runs smoosh; if not, it has no channels.
    runs_smoosh: bool,
    channels: Vec<TranslatedChannel>,
    ignored: Ignored,
    /// How many jobs the settings let the node run at once.
    per_node: usize,
    findings: Findings,
}

/// A channel without its name patterns, which depend on what all nodes together ignore.
#[derive(Debug)]
struct TranslatedChannel {
    channel: Channel,
    /// Clustered databases that only this channel takes.
    include: BTreeSet<String>,
    /// Clustered databases that the channel leaves out.
    exclude: BTreeSet<String>,
    /// The section of the channel's settings in CouchDB.
    section: String,
}

/// A unique name that is valid in `recliner.yml`, derived from one that may not be.
fn unique_name(name: &str, ending: &str, is_used: impl Fn(&str) -> bool) -> String {
    /// Leaves space for an ending and a number.
    const MAX_BASE: usize = 40;
    let allowed = |letter: char| match letter.to_ascii_lowercase() {
        letter @ ('a'..='z' | '0'..='9') => letter,
        _ => '_',
    };
    let base: String = name
        .chars()
        .map(allowed)
        .skip_while(|letter| !letter.is_ascii_lowercase())
        .take(MAX_BASE)
        .collect();
    let base = if base.is_empty() { "unnamed" } else { &base };
    let numbered = (2_usize..).map(|at| format!("{base}_{at}_{ending}"));
    iter::once(format!("{base}_{ending}"))
        .chain(numbered)
        .find(|name| !is_used(name))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
