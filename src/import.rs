//! CouchDB's own compaction settings as channels of the same effect.
//!
//! Owns the translation of what the crate `compaction-settings` reads, the findings about what a
//! channel says differently, and the comparison of nodes. Never asks a server, never opens a file
//! and never writes YAML: it takes each node's settings and returns [`Imported`], or channels by rent
//! in their place. The command `import` calls it, and the API for what-if.

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

/// Why nothing can be imported at all.
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
    /// Names of databases or files cannot be made into patterns.
    #[error("cannot make patterns of the databases and files that {node}'s settings name")]
    Pattern {
        /// The node whose settings name them.
        node: String,
        /// Which, and why.
        #[source]
        source: PatternError,
    },
}

/// The channels equal in effect to smoosh's on these nodes, with findings.
///
/// # Errors
/// When there is no node to read, or none that runs smoosh.
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

/// The channels that follow the rules of CouchDB 2.x's compaction daemon on these nodes.
///
/// `zone` is the time zone of the servers' clocks, which the daemon's `from` and `to` follow.
/// Thresholds follow CouchDB's migration guide: N % of waste is a `min_priority` of
/// 1/(1 - N/100).
///
/// # Errors
/// When there is no node to read.
pub(crate) fn import_daemon(
    nodes: &[NodeConfig],
    zone: &TimeZone,
) -> Result<Imported, ImportError> {
    if nodes.is_empty() {
        return Err(ImportError::NoNodes);
    }
    merge::merge(nodes.iter().map(|node| daemon::read(node, zone)).collect())
}

/// One node's settings as channels.
#[derive(Debug)]
struct NodeChannels {
    node: String,
    version: String,
    /// Whether its settings count; if not, it has no channels.
    runs_smoosh: bool,
    channels: Vec<TranslatedChannel>,
    ignored: Ignored,
    /// How many jobs its settings let it run at once.
    per_node: usize,
    findings: Findings,
}

/// A channel before its name patterns, which depend on what all nodes ignore.
#[derive(Debug)]
struct TranslatedChannel {
    channel: Channel,
    /// Clustered databases that it takes alone.
    include: BTreeSet<String>,
    /// Clustered databases that it leaves out.
    exclude: BTreeSet<String>,
    /// The section of its settings in CouchDB.
    section: String,
}

/// A name that a channel of `recliner.yml` can have, made of one that perhaps none can.
fn unique_name(name: &str, ending: &str, is_used: impl Fn(&str) -> bool) -> String {
    /// Leaves room for an ending and a number.
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
