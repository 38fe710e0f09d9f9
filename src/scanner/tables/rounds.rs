//! Which nodes a sweep reads in which round: first those that answer at once, then those
//! that took longer to.

use crate::snapshot::NodeIx;
use std::collections::BTreeSet;

/// How the nodes stand in one sweep.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// Whether it is known which nodes there are.
    pub(super) members: bool,
    /// Whether that was asked and nobody answered.
    pub(super) unanswered: bool,
    /// Whether it is known what is being split; without that a copy on the move looks lost.
    pub(super) reshard: bool,
    /// Nodes that answered.
    pub(super) answered: BTreeSet<NodeIx>,
    /// Whether others have not, and the sweep went on without them.
    pub(super) awaits: bool,
    /// Nodes of the round that runs.
    now: BTreeSet<NodeIx>,
    /// Nodes of earlier rounds.
    before: BTreeSet<NodeIx>,
    /// Rounds that began.
    count: u32,
}

impl Rounds {
    /// Whether there is enough to go on with.
    pub(super) fn may_go_on(&self) -> bool {
        self.members && self.reshard && !self.answered.is_empty()
    }

    /// Whether `node` answered and has not been read.
    pub(super) fn is_next(&self, node: NodeIx) -> bool {
        self.answered.contains(&node) && !self.now.contains(&node) && !self.before.contains(&node)
    }

    /// A round over these nodes begins.
    pub(super) fn begin(&mut self, nodes: BTreeSet<NodeIx>) {
        self.before.append(&mut self.now);
        self.now = nodes;
        self.count += 1;
    }

    /// Whether no round was before this one.
    pub(super) const fn is_first(&self) -> bool {
        self.count <= 1
    }

    /// Whether `node` is read in this round.
    pub(super) fn has(&self, node: NodeIx) -> bool {
        self.now.contains(&node)
    }
}
