//! Which nodes a sweep reads in which round: first those that answer at once, then those
//! that took longer to.

use crate::table::NodeIx;
use std::collections::{BTreeMap, BTreeSet};

/// How the nodes stand in one sweep.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// Whether it is known which nodes there are.
    pub(super) members: bool,
    /// Whether that was asked and nobody answered.
    pub(super) unanswered: bool,
    /// Whether it was answered what is being split.
    pub(super) splits: bool,
    /// How it stands with the views.
    pub(super) views: ViewsStand,
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
    /// Shards that are still to be asked for on each node.
    pub(super) left: BTreeMap<NodeIx, usize>,
    /// Nodes that were read.
    read: BTreeSet<NodeIx>,
}

/// How it stands with a sweep's views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ViewsStand {
    /// They wait for the nodes.
    #[default]
    ToAsk,
    /// They are being read.
    Asked,
    /// They were read, or are not this process's.
    Over,
}

impl ViewsStand {
    pub(super) const fn are_to_ask(self) -> bool {
        matches!(self, Self::ToAsk)
    }

    pub(super) const fn are_over(self) -> bool {
        matches!(self, Self::Over)
    }

    pub(super) const fn asked(&mut self) {
        *self = Self::Asked;
    }

    pub(super) const fn leave(&mut self) {
        *self = Self::Over;
    }

    /// A reading of views has ended: this sweep's, if it has asked.
    pub(super) const fn ended(&mut self) {
        if matches!(self, Self::Asked) {
            *self = Self::Over;
        }
    }
}

impl Rounds {
    /// Whether there is enough to go on with.
    pub(super) fn may_go_on(&self) -> bool {
        self.members && !self.answered.is_empty()
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

    /// The nodes of the round that runs.
    pub(super) fn in_hand(&self) -> Vec<NodeIx> {
        self.now.iter().copied().collect()
    }

    /// One shard of `node` less is to be asked for; answers whether that was the last one.
    pub(super) fn one_less(&mut self, node: NodeIx) -> bool {
        let Some(left) = self.left.get_mut(&node) else { return false };
        *left = left.saturating_sub(1);
        *left == 0
    }

    /// A node was read; answers whether that is news.
    pub(super) fn was_read(&mut self, node: NodeIx) -> bool {
        self.read.insert(node)
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
