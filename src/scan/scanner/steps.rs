//! The order of a sweep's stages.
//!
//! Each stage depends on the results of earlier ones. A sweep that is delayed by a silent node, or by
//! requests that need such a node, does not delay the next sweep.

use super::{Effect, Scanner, Slot};
use crate::{
    scan::{
        status::Progress,
        sweep::{SweepPhase, ViewPhase},
    },
    sources::inventory::{ReadError, Reshard, Stage},
    table::NodeIx,
    tasks::Now,
};
use std::{collections::BTreeSet, sync::Arc};

impl Scanner {
    /// Whether a sweep may begin when it is due.
    pub(super) fn may_sweep(&self) -> bool {
        let held_up = self.readings.contains_key(&Slot::Late) || self.is_held_up();
        !self.sweep.reads_nodes() && (held_up || !self.sweep.runs())
    }

    /// Whether only a silent node, or a request that needs one, delays the end of the sweep; other nodes
    /// then need not wait.
    fn is_held_up(&self) -> bool {
        self.sweep.awaits_late_nodes()
            || !self.sweep.is_complete()
            || self.followed.is_any_node_away()
    }

    /// Begins a sweep, and ends a delayed one.
    pub(super) fn begin_sweep(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.sweep.runs() {
            self.finish_sweep(now);
        }
        self.sweep.begin(now);
        self.disk.begin_sweep();
        self.targets.headers.begin_sweep(self.targets.draft.current());
        self.followed.begin_sweep();
        self.status.progress = Some(Progress { since: now.wall, done: 0, total: None });
        self.start_stage(Stage::Nodes, now, effects);
        if !self.readings.contains_key(&Slot::Splits) {
            self.start(Slot::Splits, Stage::Splits, now, effects);
        }
        self.listing.expect_splits();
    }

    /// Starts the next stage that reads nodes.
    pub(super) fn start_stage(&mut self, stage: Stage, now: Now, effects: &mut Vec<Effect>) {
        self.sweep.enter(&stage);
        self.start(Slot::Sweep, stage, now, effects);
    }

    /// Continues with the nodes that have answered. The others are still being asked, by the previous
    /// sweep or in parallel.
    pub(super) fn continue_without_late_nodes(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.readings.contains_key(&Slot::Late) {
            self.stop(Slot::Sweep, effects);
        } else if let Some(asking) = self.readings.remove(&Slot::Sweep) {
            self.readings.insert(Slot::Late, asking);
            effects.push(Effect::Rename { from: Slot::Sweep, to: Slot::Late });
        }
        self.sweep.continue_without_late_nodes();
        let stage = self.after_nodes(now);
        self.start_stage(stage, now, effects);
    }

    /// The nodes of the round that have not listed their files yet, while others have.
    pub(super) fn late_lists(&self) -> BTreeSet<NodeIx> {
        if !self.sweep.lists_files() {
            return BTreeSet::new();
        }
        let round = self.sweep.round().iter().copied();
        let (listed, late): (BTreeSet<_>, BTreeSet<_>) = round
            .filter(|node| !self.sweep.is_incomplete(*node))
            .partition(|node| self.listing.has_listed(*node));
        if listed.is_empty() { listed } else { late }
    }

    /// Continues with the nodes that have listed their files, and leaves the others to a later round.
    pub(super) fn continue_without_late_lists(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let late = self.late_lists();
        self.sweep.postpone(&late);
        let stage = self.strays_to_ask();
        self.start_stage(stage, now, effects);
    }

    /// The stage after one that reads nodes; `None` if all nodes were read or some are awaited.
    pub(super) fn after_stage(&mut self, stage: &Stage, now: Now) -> Option<Stage> {
        Some(match stage {
            Stage::Nodes => self.after_nodes(now),
            Stage::Map { .. } => Stage::Files { nodes: self.begin_round() },
            Stage::Files { .. } => self.strays_to_ask(),
            Stage::Strays { .. } => self.after_listing(now),
            Stage::Disk => self.shards_to_read(now),
            Stage::Shards { .. } => return self.after_round(now),
            // Not among the stages of a sweep that read nodes.
            Stage::Views { .. } | Stage::Splits | Stage::Poll { .. } | Stage::Away { .. } => {
                return None;
            }
        })
    }

    /// After the nodes: the listing, or, if feeds reported all changes since the last one, the files that
    /// are read in addition to CouchDB.
    fn after_nodes(&mut self, now: Now) -> Stage {
        self.mark_silent_nodes_down();
        let lists =
            self.followed.requires_listing(&self.targets, &self.listing, &self.settings, now.at);
        self.sweep.set_lists(lists);
        if lists {
            self.listing.begin();
            self.followed.begin_listing();
            return Stage::Map { map_node: self.map_node() };
        }
        self.begin_round();
        Stage::Disk
    }

    /// The node whose map this sweep reads; never one that hangs.
    fn map_node(&self) -> Option<String> {
        self.followed.map_node(self.targets.now(), |at| self.sweep.has_answered(at))
    }

    /// Marks known nodes that did not answer as down if no node said which members the cluster has,
    /// whatever the last sweep found.
    fn mark_silent_nodes_down(&mut self) {
        if !self.sweep.members_unanswered() {
            return;
        }
        let nodes = self.targets.now().nodes().iter().enumerate().skip(1);
        let silent: Vec<NodeIx> = nodes
            .filter(|(_, node)| node.is_member)
            .filter_map(|(at, _)| NodeIx::from_usize(at))
            .filter(|at| !self.sweep.has_answered(*at))
            .collect();
        for at in silent {
            self.followed.node_answered(&mut self.targets.draft, at, false);
            self.targets.draft.update_node(at, |node| node.is_up = Some(false));
        }
    }

    /// Begins a round over the served nodes that answered and are in no round yet; returns their names.
    fn begin_round(&mut self) -> Vec<String> {
        let mut round = BTreeSet::new();
        let mut names = Vec::new();
        for (at, node) in self.targets.now().nodes().iter().enumerate().skip(1) {
            let Some(at) = NodeIx::from_usize(at).filter(|at| self.sweep.is_next(*at)) else {
                continue;
            };
            if node.is_member && node.answers() && self.settings.nodes.has(&node.name) {
                round.insert(at);
                names.push(node.name.to_string());
            }
        }
        self.sweep.begin_round(round);
        names
    }

    /// Looks up databases whose map entry and files differ: in every member's map if all members are up.
    fn strays_to_ask(&mut self) -> Stage {
        let members = || self.targets.now().members().map(|(_, node)| node);
        let all = members().all(|node| node.answers());
        self.listing.set_asks_every_map(all);
        let nodes = members().filter(|_| all).map(|node| node.name.to_string()).collect();
        let dbs = self.listing.differing_databases(&self.targets.draft);
        Stage::Strays { dbs, map_node: self.map_node(), nodes }
    }

    /// After the listing: one walk of directories per sweep, which waits for no node.
    fn after_listing(&mut self, now: Now) -> Stage {
        let whole = self.settle_listing(now);
        if whole {
            self.targets.changes.listed(self.listing.dbs(), &self.targets.draft);
        }
        let first = self.sweep.is_first_round();
        if !self.settings.views {
            self.views.forget(&mut self.targets.draft);
        } else if first && (whole || self.listing.is_readable_alone()) {
            self.views.remove_deleted(&mut self.targets.draft, self.listing.dbs());
        }
        if first && whole {
            self.listing.forget_deleted(&mut self.targets.draft);
        }
        if first { Stage::Disk } else { self.shards_to_read(now) }
    }

    /// Decides the states of the listed targets; returns whether the whole map was read.
    fn settle_listing(&mut self, now: Now) -> bool {
        self.listing.settle(&mut self.targets.draft, &self.settings);
        let whole = self.listing.is_map_whole();
        if !self.listing.is_settled_for_good() {
            self.followed.forget_listing();
        } else if whole {
            self.followed.listed(self.sweep.began().wall, now.at, self.listing.splits());
        }
        whole
    }

    /// The shards of the nodes of this round. Nodes without shards count as read.
    fn shards_to_read(&mut self, now: Now) -> Stage {
        let node_reads = self.node_reads();
        self.expect(node_reads.iter().map(|reads| reads.targets.len()).sum());
        let shard_counts = node_reads.iter().filter_map(|reads| {
            Some((self.targets.draft.find_node(&reads.node)?, reads.targets.len()))
        });
        let shard_counts = shard_counts.collect();
        self.sweep.expect_shards(shard_counts);
        let round = self.sweep.round().clone();
        for at in round.into_iter().filter(|at| !self.sweep.expects_shards(*at)).collect::<Vec<_>>()
        {
            self.node_read(at, now);
        }
        let count_designs = Arc::new(self.designs_to_count(&node_reads));
        let snapshot = Arc::new(self.targets.now().without_facts());
        Stage::Shards { snapshot, node_reads, count_designs }
    }

    /// Counts one requested shard of a node; after the last one, the node was read.
    pub(super) fn shard_requested(&mut self, node: NodeIx, now: Now) {
        if self.sweep.shard_requested(node) {
            self.node_read(node, now);
        }
    }

    /// Records that everything that a node answers by itself was requested.
    fn node_read(&mut self, at: NodeIx, now: Now) {
        let shards = || self.targets.shard_count(|node| node == at);
        if let Some(unread) = self.sweep.shard_reads().absent_error(at, shards) {
            self.unread(at, &unread);
        }
        if self.sweep.node_read(at) && self.targets.is_up(at) {
            self.targets.draft.update_node(at, |node| node.last_success = Some(now.wall));
        }
    }

    /// The stage after the shards of a round: reads nodes that answered later. `None` if there are
    /// none, or if a node is still being asked.
    pub(super) fn after_round(&mut self, now: Now) -> Option<Stage> {
        for at in self.sweep.round().clone() {
            self.node_read(at, now);
        }
        self.targets.update_ages(now.wall);
        if self.sweep.awaits_late_nodes() {
            return None;
        }
        let nodes = self.begin_round();
        if nodes.is_empty() {
            return None;
        }
        let lists = self.sweep.lists();
        Some(if lists { Stage::Files { nodes } } else { self.shards_to_read(now) })
    }

    /// After a sweep's nodes: reads what needs the whole cluster, and ends the sweep; returns whether it
    /// has ended.
    pub(super) fn end_sweep(&mut self, now: Now, effects: &mut Vec<Effect>) -> bool {
        let reads = |slot| self.readings.contains_key(&slot);
        if reads(Slot::Sweep) || !self.sweep.runs() {
            return false;
        }
        if reads(Slot::Late) {
            self.sweep.wait_for(SweepPhase::LateNodes);
            return false;
        }
        let views_run = reads(Slot::ClusterViews);
        self.sweep.wait_for(SweepPhase::Views);
        if views_run {
            return false;
        }
        if let Some(stage) = self.views_to_read() {
            self.start(Slot::ClusterViews, stage, now, effects);
            return false;
        }
        // CouchDB reports the splits of all nodes together, or none.
        if self.readings.contains_key(&Slot::Splits) && !self.is_held_up() {
            self.sweep.wait_for(SweepPhase::Splits);
            return false;
        }
        self.finish_sweep(now);
        true
    }

    /// The views, once per sweep, after its nodes.
    fn views_to_read(&mut self) -> Option<Stage> {
        if self.sweep.views() != ViewPhase::Waiting {
            return None;
        }
        if !self.settings.views {
            self.sweep.leave_views();
            return None;
        }
        self.sweep.begin_views();
        let dbs = self.dbs_to_read();
        self.expect(dbs.len());
        let without_designs = Arc::new(self.sweep.without_designs().clone());
        let snapshot = Arc::new(self.targets.now().without_facts());
        Some(Stage::Views { snapshot, dbs, without_designs })
    }

    /// Records that the views were read, for this sweep or for an earlier one that ended before
    /// they were.
    pub(super) fn views_read(&mut self, now: Now) {
        if self.sweep.views_read() {
            let success = Some(now.wall);
            self.targets.draft.update_node(NodeIx::CLUSTER, |node| node.last_success = success);
        }
    }

    /// Adds to the number of targets to read.
    fn expect(&mut self, more: usize) {
        let done = self.status.progress.map_or(0, |progress| progress.done);
        let since = self.sweep.began().wall;
        self.status.progress = Some(Progress { since, done, total: Some(done + more) });
    }

    /// Sets the splits. Without a response, the known splits stay, and it is unknown whether there are
    /// others.
    pub(super) fn splits(&mut self, answer: Result<Reshard, ReadError>, now: Now) {
        self.sweep.splits_answered();
        let splits = answer.unwrap_or_else(|unread| {
            self.unread(NodeIx::CLUSTER, &unread);
            self.listing.splits().cloned().unwrap_or_default().into_unread()
        });
        self.set_splits(splits, now);
    }

    /// Sets no splits if the source reported none.
    pub(super) fn splits_read(&mut self, now: Now) {
        if self.sweep.splits_answered() {
            self.set_splits(Reshard::default(), now);
        }
    }

    fn set_splits(&mut self, splits: Reshard, now: Now) {
        if !self.listing.set_splits(splits) {
            return;
        }
        if self.sweep.lists() && self.listing.is_settled() {
            self.settle_listing(now);
        } else {
            // The next listing finds shards that are no longer split; it is due because the splits
            // changed.
            self.listing.apply_splits(&mut self.targets.draft);
        }
    }
}
