//! What CouchDB's own compaction settings mean, and the channels equal to them in effect.
//!
//! Owns the reading of smoosh's configuration (3.x) and of the compaction daemon's (2.x),
//! the findings about them, and the comparison of nodes. Never asks a server, never opens
//! a file and never writes YAML: it takes maps or bytes and ends at [`Imported`]. The
//! commands `import` and the status pages call it.

mod clock_time;
mod daemon;
mod effective;
mod finding;
mod ignored;
mod ini;
mod lint;
mod merge;
mod number;
mod rules;
mod source;
mod term;

pub use finding::{Finding, Severity};
pub use ini::{Problem, ProblemKind};
pub use merge::{Group, Imported};
pub use source::{NodeConfig, Sections};

use self::rules::Rules;
use crate::text::pattern::PatternError;
use jiff::tz::TimeZone;

/// Why nothing can be imported at all.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
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
pub fn import_smoosh(nodes: &[NodeConfig]) -> Result<Imported, ImportError> {
    if nodes.is_empty() {
        return Err(ImportError::NoNodes);
    }
    let readings: Vec<_> = nodes.iter().map(effective::read).collect();
    if readings.iter().all(|reading| !reading.runs_smoosh) {
        let nodes = nodes.iter().map(|node| node.node.clone()).collect::<Vec<_>>().join(", ");
        return Err(ImportError::NoSmoosh { nodes });
    }
    merge::merge(readings)
}

/// The channels that follow the rules of CouchDB 2.x's compaction daemon on these nodes.
///
/// `zone` is the time zone of the servers' clocks, which the daemon's `from` and `to` follow.
/// Thresholds follow CouchDB's migration guide: N % of waste is a `min_priority` of
/// 1/(1 - N/100).
///
/// # Errors
/// When there is no node to read.
pub fn import_daemon(nodes: &[NodeConfig], zone: &TimeZone) -> Result<Imported, ImportError> {
    if nodes.is_empty() {
        return Err(ImportError::NoNodes);
    }
    merge::merge(nodes.iter().map(|node| daemon::read(node, zone)).collect())
}

/// The findings about one node's smoosh settings, without importing them.
#[must_use]
pub fn findings(node: &NodeConfig) -> Vec<Finding> {
    let reading = effective::read(node);
    let together = merge::together(std::slice::from_ref(&reading)).findings;
    let mut findings = finding::gather([(reading.node, reading.remarks)]);
    findings.extend(together);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

#[cfg(test)]
mod tests;
