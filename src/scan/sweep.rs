//! One sweep: its state, the nodes it has read, and what it could not read.
//!
//! A sweep reads the members of the cluster, then what each node answers by itself, in rounds: first the
//! nodes that answered at once, then those that took longer, to answer or to list their files. Then it reads
//! the views, which need the whole cluster. The splits are read concurrently, because CouchDB reports them
//! only after every node has answered or is considered down.
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
//! Owns no table of targets and reads nothing: the scanner asks it for the sweep's phase and reports
//! what was read.

mod shard_reads;

use crate::{
    sources::inventory::{ReadError, Stage},
    table::{IndexSet, NodeIx, TargetIx},
    tasks::Now,
};
use shard_reads::ShardReads;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SweepPhase {
    /// No sweep runs.
    #[default]
    Idle,
    /// Reads the members, and asks each node whether it is up.
    Nodes,
    /// Reads the shard map.
    Map,
    /// Lists the files of the nodes of this round.
    Files,
    /// Requests databases that only files name.
    Strays,
    /// Walks directories.
    Disk,
    /// Reads the shards of the nodes of this round.
    Shards,
    /// All nodes that answered were read; the others are still being asked.
    LateNodes,
    /// The nodes were read; the views, of this sweep or the previous one, are being read.
    Views,
    /// Everything but the splits was read.
    Splits,
}

/// The progress of a sweep's views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ViewPhase {
    /// The views wait for the nodes.
    #[default]
    Waiting,
    Reading,
    /// They were read, or another process reads them.
    Done,
}

/// One sweep, from its start until the start of the next one.
#[derive(Debug)]
pub(super) struct Sweep {
    state: SweepPhase,
    began: Now,
    /// Whether it lists everything; not if feeds reported every change since the last listing.
    lists: bool,
    /// Whether the nodes of the cluster are known.
    members_known: bool,
    /// Whether the members were asked for, but nobody answered.
    members_unanswered: bool,
    /// Whether the splits are known, or nobody reports them.
    splits_known: bool,
    views: ViewPhase,
    /// Whether no cluster-wide read failed since the read of the views began. It outlives the sweep, as a
    /// read of views may.
    views_whole: bool,
    answered: BTreeSet<NodeIx>,
    /// Whether other nodes are silent and the sweep continued without them.
    awaits_late_nodes: bool,
    /// Nodes of the current round.
    round: BTreeSet<NodeIx>,
    /// Nodes of earlier rounds.
    earlier_rounds: BTreeSet<NodeIx>,
    rounds: u32,
    /// The number of shards still to be read on each node of the round.
    shards_left: BTreeMap<NodeIx, usize>,
    nodes_read: BTreeSet<NodeIx>,
    /// Nodes that could not be read completely.
    incomplete: BTreeSet<NodeIx>,
    /// How its shards were read.
    shard_reads: ShardReads,
    /// Shards that held no design document when their facts were last read.
    without_designs: IndexSet,
    /// Why it is unknown whether some node is up, if there is such a node.
    unknown_node: Option<String>,
    missing_rights: BTreeSet<String>,
}

impl Sweep {
    /// The state before the first sweep.
    pub(super) fn new(now: Now) -> Self {
        Self {
            state: SweepPhase::Idle,
            began: now,
            lists: true,
            members_known: false,
            members_unanswered: false,
            splits_known: false,
            views: ViewPhase::Waiting,
            views_whole: false,
            answered: BTreeSet::new(),
            awaits_late_nodes: false,
            round: BTreeSet::new(),
            earlier_rounds: BTreeSet::new(),
            rounds: 0,
            shards_left: BTreeMap::new(),
            nodes_read: BTreeSet::new(),
            incomplete: BTreeSet::new(),
            shard_reads: ShardReads::default(),
            without_designs: IndexSet::default(),
            unknown_node: None,
            missing_rights: BTreeSet::new(),
        }
    }

    pub(super) fn begin(&mut self, now: Now) {
        let (lists, views_whole) = (self.lists, self.views_whole);
        *self = Self { state: SweepPhase::Nodes, lists, views_whole, ..Self::new(now) };
    }

    /// Ends the sweep; its results remain available until the next one begins.
    pub(super) const fn end(&mut self) {
        self.state = SweepPhase::Idle;
    }

    /// Enters the phase of a stage that reads nodes.
    pub(super) const fn enter(&mut self, stage: &Stage) {
        self.state = match stage {
            Stage::Nodes => SweepPhase::Nodes,
            Stage::Map { .. } => SweepPhase::Map,
            Stage::Files { .. } => SweepPhase::Files,
            Stage::Strays { .. } => SweepPhase::Strays,
            Stage::Disk => SweepPhase::Disk,
            Stage::Shards { .. } => SweepPhase::Shards,
            // Not among the stages of a sweep that read nodes.
            Stage::Views { .. } | Stage::Splits | Stage::Poll { .. } | Stage::Away { .. } => return,
        };
    }

    /// Waits in this phase, in which no stage reads nodes.
    pub(super) const fn wait_for(&mut self, state: SweepPhase) {
        self.state = state;
    }

    #[cfg(test)]
    pub(super) const fn state(&self) -> SweepPhase {
        self.state
    }

    pub(super) const fn began(&self) -> Now {
        self.began
    }

    pub(super) const fn runs(&self) -> bool {
        !matches!(self.state, SweepPhase::Idle)
    }

    /// Whether it asks all nodes and waits for them.
    pub(super) const fn asks_nodes(&self) -> bool {
        matches!(self.state, SweepPhase::Nodes)
    }

    /// Whether it lists the files of nodes.
    pub(super) const fn lists_files(&self) -> bool {
        matches!(self.state, SweepPhase::Files)
    }

    /// Whether a phase runs that follows the listing of files and reads what it found.
    pub(super) const fn has_listed(&self) -> bool {
        matches!(self.state, SweepPhase::Strays | SweepPhase::Shards)
    }

    /// Whether a stage that reads nodes is running.
    pub(super) const fn reads_nodes(&self) -> bool {
        !matches!(
            self.state,
            SweepPhase::Idle | SweepPhase::LateNodes | SweepPhase::Views | SweepPhase::Splits
        )
    }

    /// Sets whether it must list everything.
    pub(super) const fn set_lists(&mut self, lists: bool) {
        self.lists = lists;
    }

    pub(super) const fn lists(&self) -> bool {
        self.lists
    }

    /// Records that the members of the cluster are known.
    pub(super) const fn members_answered(&mut self) {
        self.members_known = true;
    }

    /// Records that the members are unknown: nobody answered, or nobody was asked.
    pub(super) const fn members_failed(&mut self, asked: bool) {
        self.members_unanswered = asked;
    }

    pub(super) const fn members_unanswered(&self) -> bool {
        self.members_unanswered
    }

    pub(super) fn node_answered(&mut self, node: NodeIx) {
        self.answered.insert(node);
    }

    /// Records a node that neither answered like CouchDB nor is known to be down.
    pub(super) fn node_unknown(&mut self, why: &str) {
        self.unknown_node.get_or_insert_with(|| why.to_owned());
    }

    pub(super) const fn unknown_node(&self) -> Option<&String> {
        self.unknown_node.as_ref()
    }

    pub(super) const fn shard_reads(&mut self) -> &mut ShardReads {
        &mut self.shard_reads
    }

    /// Records how many design documents a shard holds; `None` if that is unknown, or not known any more.
    pub(super) fn designs_counted(&mut self, shard: TargetIx, designs: Option<u64>) {
        match designs {
            Some(0) => self.without_designs.insert(shard.as_usize()),
            Some(_) | None => self.without_designs.remove(shard.as_usize()),
        }
    }

    /// Shards that hold no design document.
    pub(super) const fn without_designs(&self) -> &IndexSet {
        &self.without_designs
    }

    pub(super) fn has_answered(&self, node: NodeIx) -> bool {
        self.answered.contains(&node)
    }

    /// Whether some nodes are still silent while others have answered.
    pub(super) fn may_continue_without_late_nodes(&self) -> bool {
        self.asks_nodes() && self.members_known && !self.answered.is_empty()
    }

    /// Continues without the silent nodes.
    pub(super) const fn continue_without_late_nodes(&mut self) {
        self.awaits_late_nodes = true;
    }

    /// Records that every late node has answered or failed.
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

    /// Begins a round over these nodes.
    pub(super) fn begin_round(&mut self, nodes: BTreeSet<NodeIx>) {
        self.earlier_rounds.append(&mut self.round);
        self.round = nodes;
        self.rounds += 1;
    }

    /// Leaves nodes of the current round to a later one.
    pub(super) fn postpone(&mut self, nodes: &BTreeSet<NodeIx>) {
        self.round.retain(|node| !nodes.contains(node));
    }

    /// The nodes of the current round.
    pub(super) const fn round(&self) -> &BTreeSet<NodeIx> {
        &self.round
    }

    /// Whether this is the first round.
    pub(super) const fn is_first_round(&self) -> bool {
        self.rounds <= 1
    }

    /// Sets the number of shards to read on each node of the round.
    pub(super) fn expect_shards(&mut self, shards: BTreeMap<NodeIx, usize>) {
        self.shards_left = shards;
    }

    /// Whether `node` had any shards to read.
    pub(super) fn expects_shards(&self, node: NodeIx) -> bool {
        self.shards_left.contains_key(&node)
    }

    /// Counts one requested shard of `node`; returns whether it was the last one.
    pub(super) fn shard_requested(&mut self, node: NodeIx) -> bool {
        let Some(left) = self.shards_left.get_mut(&node) else { return false };
        *left = left.saturating_sub(1);
        *left == 0
    }

    /// Records that everything that `node` answers by itself was requested; the first call returns
    /// whether the node was read completely.
    pub(super) fn node_read(&mut self, node: NodeIx) -> bool {
        self.nodes_read.insert(node) && !self.incomplete.contains(&node)
    }

    /// Records that the splits are known, or that nobody reports them; returns whether that is new.
    pub(super) const fn splits_answered(&mut self) -> bool {
        !std::mem::replace(&mut self.splits_known, true)
    }

    pub(super) const fn splits_known(&self) -> bool {
        self.splits_known
    }

    pub(super) const fn views(&self) -> ViewPhase {
        self.views
    }

    /// Leaves the views to another process.
    pub(super) const fn leave_views(&mut self) {
        self.views = ViewPhase::Done;
    }

    /// Begins to read the views.
    pub(super) fn begin_views(&mut self) {
        self.views = ViewPhase::Reading;
        self.views_whole = !self.incomplete.contains(&NodeIx::CLUSTER);
    }

    /// Records the end of a read of views, of this sweep or an earlier one; returns whether the
    /// whole cluster was read.
    pub(super) const fn views_read(&mut self) -> bool {
        if matches!(self.views, ViewPhase::Reading) {
            self.views = ViewPhase::Done;
        }
        self.views_whole && self.splits_known
    }

    /// Records a failed read of a node, or of the cluster.
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

    /// Whether no read failed.
    pub(super) fn is_complete(&self) -> bool {
        self.incomplete.is_empty()
    }

    pub(super) fn record_missing_right(&mut self, unread: &ReadError) {
        self.missing_rights.extend(unread.right.map(ToOwned::to_owned));
    }

    /// The missing rights found in this sweep.
    pub(super) const fn missing_rights(&self) -> &BTreeSet<String> {
        &self.missing_rights
    }
}

#[cfg(test)]
mod tests;
