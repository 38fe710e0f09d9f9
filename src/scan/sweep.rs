//! One sweep: its state, the nodes it has read, and what it could not read.
//!
//! A sweep asks who belongs to the cluster, then reads what each node answers by itself, in rounds:
//! first the nodes that answered at once, then those that took longer. After the nodes it reads the
//! views, which need the whole cluster. What is being split is read beside all that, because CouchDB
//! answers it only when every node has, or was given up.
//!
//! ```text
//!  Idle ─> Nodes ─┬─> Map ─> Files ─> Strays ─┬─> Disk ─> Shards ─┬─> LateNodes ─┐
//!                 │            ^              └────────>──┘ ^     │              │
//!                 │            └─── a later round ──────────┼─────┴─── <─────────┤
//!                 └─> Disk (nothing to list: feeds named    └── a later round    │
//!                      every change)                                             v
//!                                              Idle <─ Splits <─ Views <─────────┘
//! ```
//!
//! Owns no table of targets and reads nothing: the scanner asks it where the sweep is, and
//! reports what was read.

use super::scanner::Now;
use crate::{
    sources::inventory::{ReadError, Stage},
    table::NodeIx,
};
use std::collections::{BTreeMap, BTreeSet};

/// Where a sweep is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// No sweep runs.
    #[default]
    Idle,
    /// Asks who belongs to the cluster, and each node whether it is up.
    Nodes,
    /// Reads the shard map.
    Map,
    /// Lists the files of the nodes of this round.
    Files,
    /// Asks after databases that only files name.
    Strays,
    /// Reads what directories hold.
    Disk,
    /// Reads the shards of the nodes of this round.
    Shards,
    /// Read every node that answered; the others are still being asked.
    LateNodes,
    /// Read the nodes; its views, or those of the sweep before, are being read.
    Views,
    /// Read all but what is being split.
    Splits,
}

/// How far a sweep is with the views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Views {
    /// They wait for the nodes.
    #[default]
    Waiting,
    Reading,
    /// They were read, or another process reads them.
    Done,
}

/// One sweep, from its begin until the next one.
#[derive(Debug)]
pub(super) struct Sweep {
    state: State,
    began: Now,
    /// Whether it lists what there is, or feeds have named every change since the last listing.
    lists: bool,
    /// Whether it is known which nodes there are.
    members_known: bool,
    /// Whether nobody answered which nodes there are.
    members_unanswered: bool,
    /// Whether it is known what is being split, or that nobody says.
    splits_known: bool,
    views: Views,
    /// Whether nothing of the whole cluster was unread since its views began to be read. Outlives
    /// the sweep, as a reading of views may.
    views_whole: bool,
    /// Nodes that answered.
    answered: BTreeSet<NodeIx>,
    /// Whether others have not, and the sweep went on without them.
    awaits_late_nodes: bool,
    /// Nodes of the current round.
    round: BTreeSet<NodeIx>,
    /// Nodes of earlier rounds.
    earlier_rounds: BTreeSet<NodeIx>,
    /// Rounds that began.
    rounds: u32,
    /// Shards still to be read on each node of the round.
    shards_left: BTreeMap<NodeIx, usize>,
    /// Nodes that were read.
    nodes_read: BTreeSet<NodeIx>,
    /// Nodes that could not be read whole.
    incomplete: BTreeSet<NodeIx>,
    /// Rights found missing.
    missing_rights: BTreeSet<String>,
}

impl Sweep {
    /// No sweep yet.
    pub(super) fn new(now: Now) -> Self {
        Self {
            state: State::Idle,
            began: now,
            lists: true,
            members_known: false,
            members_unanswered: false,
            splits_known: false,
            views: Views::Waiting,
            views_whole: false,
            answered: BTreeSet::new(),
            awaits_late_nodes: false,
            round: BTreeSet::new(),
            earlier_rounds: BTreeSet::new(),
            rounds: 0,
            shards_left: BTreeMap::new(),
            nodes_read: BTreeSet::new(),
            incomplete: BTreeSet::new(),
            missing_rights: BTreeSet::new(),
        }
    }

    /// Begins the next sweep.
    pub(super) fn begin(&mut self, now: Now) {
        let (lists, views_whole) = (self.lists, self.views_whole);
        *self = Self { state: State::Nodes, lists, views_whole, ..Self::new(now) };
    }

    /// The sweep ends; what it found out can be asked until the next one begins.
    pub(super) const fn end(&mut self) {
        self.state = State::Idle;
    }

    /// Now reads this stage of the nodes.
    pub(super) const fn enter(&mut self, stage: &Stage) {
        self.state = match stage {
            Stage::Nodes => State::Nodes,
            Stage::Map => State::Map,
            Stage::Files { .. } => State::Files,
            Stage::Strays { .. } => State::Strays,
            Stage::Disk => State::Disk,
            Stage::Shards { .. } => State::Shards,
            // No stages of the nodes.
            Stage::Views { .. } | Stage::Splits | Stage::Poll { .. } | Stage::Away { .. } => return,
        };
    }

    /// Reads nothing of the nodes now, and waits.
    pub(super) const fn wait_for(&mut self, state: State) {
        self.state = state;
    }

    #[cfg(test)]
    pub(super) const fn state(&self) -> State {
        self.state
    }

    /// When the sweep began.
    pub(super) const fn began(&self) -> Now {
        self.began
    }

    pub(super) const fn runs(&self) -> bool {
        !matches!(self.state, State::Idle)
    }

    /// Whether it asks the nodes, and waits for all of them.
    pub(super) const fn asks_nodes(&self) -> bool {
        matches!(self.state, State::Nodes)
    }

    /// Whether it knows by its state which files there are.
    pub(super) const fn has_listed(&self) -> bool {
        matches!(self.state, State::Strays | State::Shards)
    }

    /// Whether it reads anything of the nodes now.
    pub(super) const fn reads_nodes(&self) -> bool {
        !matches!(self.state, State::Idle | State::LateNodes | State::Views | State::Splits)
    }

    /// Notes whether it has to list what there is.
    pub(super) const fn set_lists(&mut self, lists: bool) {
        self.lists = lists;
    }

    pub(super) const fn lists(&self) -> bool {
        self.lists
    }

    /// Somebody answered which nodes there are.
    pub(super) const fn members_answered(&mut self) {
        self.members_known = true;
    }

    /// Nobody could say which nodes there are: nobody answered, or nobody was asked.
    pub(super) const fn members_failed(&mut self, asked: bool) {
        self.members_unanswered = asked;
    }

    pub(super) const fn members_unanswered(&self) -> bool {
        self.members_unanswered
    }

    pub(super) fn node_answered(&mut self, node: NodeIx) {
        self.answered.insert(node);
    }

    pub(super) fn has_answered(&self, node: NodeIx) -> bool {
        self.answered.contains(&node)
    }

    /// Whether nodes are being asked that have not answered, while others have.
    pub(super) fn may_go_on_without_late_nodes(&self) -> bool {
        self.asks_nodes() && self.members_known && !self.answered.is_empty()
    }

    /// Goes on without the nodes that have not answered.
    pub(super) const fn go_on_without_late_nodes(&mut self) {
        self.awaits_late_nodes = true;
    }

    /// Every node has answered by now, or failed to.
    pub(super) const fn late_nodes_answered(&mut self) {
        self.awaits_late_nodes = false;
    }

    pub(super) const fn awaits_late_nodes(&self) -> bool {
        self.awaits_late_nodes
    }

    /// Whether `node` answered and is in no round yet.
    pub(super) fn is_next(&self, node: NodeIx) -> bool {
        self.answered.contains(&node)
            && !self.round.contains(&node)
            && !self.earlier_rounds.contains(&node)
    }

    /// A round over these nodes begins.
    pub(super) fn begin_round(&mut self, nodes: BTreeSet<NodeIx>) {
        self.earlier_rounds.append(&mut self.round);
        self.round = nodes;
        self.rounds += 1;
    }

    /// The nodes of the current round.
    pub(super) const fn round(&self) -> &BTreeSet<NodeIx> {
        &self.round
    }

    /// Whether no round was before this one.
    pub(super) const fn is_first_round(&self) -> bool {
        self.rounds <= 1
    }

    /// So many shards are to be read on each node of the round.
    pub(super) fn expect_shards(&mut self, shards: BTreeMap<NodeIx, usize>) {
        self.shards_left = shards;
    }

    /// Whether any shards were to be read on `node`.
    pub(super) fn expects_shards(&self, node: NodeIx) -> bool {
        self.shards_left.contains_key(&node)
    }

    /// One shard of `node` was asked for; answers whether that was the last one.
    pub(super) fn shard_asked(&mut self, node: NodeIx) -> bool {
        let Some(left) = self.shards_left.get_mut(&node) else { return false };
        *left = left.saturating_sub(1);
        *left == 0
    }

    /// All that `node` answers by itself was asked; answers whether it was read whole, the first
    /// time it is asked.
    pub(super) fn node_read(&mut self, node: NodeIx) -> bool {
        self.nodes_read.insert(node) && !self.incomplete.contains(&node)
    }

    /// It is known what is being split, or that nobody says; answers whether that is news.
    pub(super) const fn splits_answered(&mut self) -> bool {
        !std::mem::replace(&mut self.splits_known, true)
    }

    pub(super) const fn splits_known(&self) -> bool {
        self.splits_known
    }

    pub(super) const fn views(&self) -> Views {
        self.views
    }

    /// Another process reads the views.
    pub(super) const fn leave_views(&mut self) {
        self.views = Views::Done;
    }

    /// Begins to read the views.
    pub(super) fn begin_views(&mut self) {
        self.views = Views::Reading;
        self.views_whole = !self.incomplete.contains(&NodeIx::CLUSTER);
    }

    /// A reading of views ended, this sweep's or an earlier one's; answers whether all of the
    /// cluster was read.
    pub(super) const fn views_read(&mut self) -> bool {
        if matches!(self.views, Views::Reading) {
            self.views = Views::Done;
        }
        self.views_whole && self.splits_known
    }

    /// Something of a node, or of the cluster, could not be read.
    pub(super) fn unread(&mut self, node: NodeIx) {
        self.set_incomplete(node);
        if node == NodeIx::CLUSTER {
            self.views_whole = false;
        }
    }

    pub(super) fn set_incomplete(&mut self, node: NodeIx) {
        self.incomplete.insert(node);
    }

    pub(super) fn is_incomplete(&self, node: NodeIx) -> bool {
        self.incomplete.contains(&node)
    }

    /// Whether nothing was unread.
    pub(super) fn is_complete(&self) -> bool {
        self.incomplete.is_empty()
    }

    pub(super) fn note_missing_right(&mut self, unread: &ReadError) {
        self.missing_rights.extend(unread.right.map(ToOwned::to_owned));
    }

    /// Rights found missing in this sweep.
    pub(super) const fn missing_rights(&self) -> &BTreeSet<String> {
        &self.missing_rights
    }
}

#[cfg(test)]
mod tests;
