//! Taking channels of CouchDB's own smoosh over, and giving them back.
//!
//! Owns what is changed of a node's configuration for that, and the record of it: the
//! channel's `concurrency` is "0" as long as this program enforces in its place. Never
//! compacts anything, and never touches a value that is not its own. The service runs the
//! [`Task`], the command `restore-smoosh` calls [`restore()`].
//!
//! Everything on a node is set until the node restarts and never written to its files
//! (`X-Couch-Persist: false`), the "0" and the [`Mark`] beside it alike: a restart of
//! CouchDB gives smoosh back by itself, and the task takes it again. So the two are always
//! there together or gone together, and no ini file ever says that smoosh is stopped. The
//! mark holds the value before, so that any machine can give it back; the [`Ledger`] holds
//! it too, and says which takeovers are this program's own.
//!
//! The order keeps every crash harmless. Taking: ledger, mark, value. Giving back: value,
//! mark, ledger. What a crash leaves in between is a record too many, never a stopped
//! channel without one.

mod hands;
mod ledger;
mod lines;
mod mark;
mod node;
mod restore;
mod rule;
mod task;

pub use hands::Hands;
pub use ledger::{Fleeting, Ledger, TakenOver};
pub use mark::{Mark, SECTION, Stopped, undo};
pub use restore::{Restored, restore};
pub use task::{Handle, Settings, Task};

use std::collections::{BTreeMap, BTreeSet};

/// The key of a smoosh channel's section that says how many jobs it runs.
const KEY: &str = "concurrency";
/// Its value while the channel is taken over: nothing new starts, what runs goes on
/// (`smoosh_channel:maybe_start_compaction/1`).
const STOPPED: &str = "0";

/// The section of a smoosh channel.
fn section(channel: &str) -> String {
    format!("smoosh.{channel}")
}

/// How one node's smoosh stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// Channels that are stopped for this program to act in their place.
    pub taken: BTreeSet<String>,
    /// Channels that should be and are not, each with the reason.
    pub not_taken: BTreeMap<String, String>,
    /// Channels that are stopped by a takeover that this process does not keep up.
    pub stranded: BTreeSet<String>,
    /// Channels in which both smoosh and this program act.
    pub contested: BTreeSet<String>,
    /// What an operator should know, in sentences.
    pub findings: Vec<String>,
    /// Why the node could not be looked at, or changed.
    pub problem: Option<String>,
}

impl NodeState {
    /// Channels that are stopped by a takeover, whoever keeps it up; unknown where the node
    /// could not be looked at.
    #[must_use]
    pub fn stopped(&self) -> Option<usize> {
        let stopped = self.taken.union(&self.stranded).count();
        (stopped > 0 || self.problem.is_none()).then_some(stopped)
    }

    /// Whether every channel that is to be taken over is.
    #[must_use]
    pub fn is_taken_over(&self) -> bool {
        !self.taken.is_empty() && self.not_taken.is_empty()
    }
}

/// How smoosh stands, over the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Takeovers {
    /// By CouchDB's names for the nodes; one that is absent was not looked at yet.
    pub nodes: BTreeMap<String, NodeState>,
}
