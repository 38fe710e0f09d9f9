//! Takes channels of CouchDB's own smoosh over, and restores them.
//!
//! Owns the changes made to a node's configuration for this, and their records: the channel's
//! `concurrency` is "0" while this program enforces in its place. Never compacts anything, and
//! never changes a value that it did not set. The service runs the [`TakeoverTask`]; the command
//! `restore-smoosh` calls [`restore_node()`].
//!
//! All values on a node are set until the node restarts and never written to its files
//! (`X-Couch-Persist: false`). This applies to the "0" and to the [`TakeoverMark`] that records it, so
//! after a restart of CouchDB both are gone, smoosh works again, and the task takes it over
//! again. No ini file ever contains a stopped smoosh. The mark contains the value before, so that
//! any machine can restore it. The [`TakeoverStore`] contains it too, and records which takeovers belong
//! to this program.
//!
//! The order of writes makes every crash harmless. Taking over: record, mark, value. Restoring:
//! value, mark, record. A crash in between leaves an extra record, but never a stopped channel
//! without one.

mod channel_action;
mod config_api;
mod log_lines;
mod mark;
mod node;
mod restore;
mod takeover_store;
mod task;

pub use crate::model::settings::work::MARK_SECTION;
pub use config_api::{ConfigApi, ConfigKey, ConfigResult, smoosh_channels};
pub use mark::{StoppedChannel, TakeoverMark, undo_takeovers};
pub use node::its_channels;
pub use restore::{RestoredChannel, restore_node};
pub use takeover_store::{TakeoverRecord, TakeoverStore};
pub use task::{TakeoverHandle, TakeoverSettings, TakeoverTask};

use std::collections::{BTreeMap, BTreeSet};

/// Key in a smoosh channel's section that sets how many jobs it runs.
const CONCURRENCY_KEY: &str = "concurrency";
/// Its value while the channel is taken over: nothing new starts, and running jobs continue
/// (`smoosh_channel:maybe_start_compaction/1`).
const STOPPED_CONCURRENCY: &str = "0";

/// Configuration section of a smoosh channel.
fn channel_section(channel: &str) -> String {
    format!("smoosh.{channel}")
}

/// The configuration key for the concurrency of the smoosh channel with this section.
const fn concurrency<'a>(node: &'a str, section: &'a str) -> ConfigKey<'a> {
    ConfigKey { node, section, key: CONCURRENCY_KEY }
}

/// State of smoosh on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTakeover {
    /// Channels stopped because this program compacts in their place.
    pub taken_over: BTreeSet<String>,
    /// Channels that should be taken over and are not, with the reason.
    pub not_taken_over: BTreeMap<String, String>,
    /// Channels stopped by a takeover that this process does not maintain.
    pub stranded: BTreeSet<String>,
    /// Channels in which both smoosh and this program start compactions.
    pub contested: BTreeSet<String>,
    /// Findings for an operator, in sentences.
    pub findings: Vec<String>,
    /// Why the node could not be read or changed.
    pub problem: Option<String>,
}

impl NodeTakeover {
    /// Number of channels stopped by any takeover; `None` if the node could not be read.
    pub fn stopped_count(&self) -> Option<usize> {
        let stopped = self.taken_over.union(&self.stranded).count();
        (stopped > 0 || self.problem.is_none()).then_some(stopped)
    }

    /// Whether every channel that should be taken over is.
    pub fn is_taken_over(&self) -> bool {
        !self.taken_over.is_empty() && self.not_taken_over.is_empty()
    }
}

/// State of smoosh on all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Takeovers {
    /// By node name; nodes that have not been read yet are absent.
    pub nodes: BTreeMap<String, NodeTakeover>,
}
