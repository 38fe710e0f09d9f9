//! From stage to stage: what a sweep reads next, once something was read.
//!
//! First what each node answers by itself, in rounds over those that answer; a node was read once
//! its own files and shards were, whatever another one or the cluster still owes. Then what needs
//! the whole cluster: views. What is being split is asked beside all that, because CouchDB answers
//! it only when every node has, or was given up.

use super::Tables;
use crate::{
    scan::Settings,
    sources::inventory::{Reshard, Stage, Unread},
    table::{Ix, NodeIx, TargetRef},
};
use std::sync::Arc;
use wall_clock::Moment;

impl Tables {
    /// What comes after a stage of the nodes.
    pub(super) fn next(
        &mut self,
        stage: &Stage,
        settings: &Settings,
        now: Moment,
    ) -> Option<Stage> {
        match stage {
            Stage::Nodes => Some(self.after_nodes(settings)),
            Stage::Map => Some(Stage::Files { nodes: self.nodes_to_read(settings) }),
            Stage::Files { .. } => Some(Stage::Strays { dbs: self.listing.unknown_strays() }),
            Stage::Strays { .. } => {
                let whole = self.settle(settings);
                if whole {
                    self.notices.listed(self.listing.dbs(), &self.draft);
                }
                if !settings.views {
                    self.views.forget(&mut self.draft);
                } else if self.rounds.is_first() && (whole || self.listing.readable) {
                    self.views.forget_gone(&mut self.draft, self.listing.dbs());
                }
                // One walk a sweep: it waits for no node.
                if self.rounds.is_first() {
                    Some(Stage::Disk)
                } else {
                    Some(self.shards_to_read(settings, now))
                }
            }
            Stage::Disk => Some(self.shards_to_read(settings, now)),
            Stage::Shards { .. } => self.round_ended(settings, now),
            Stage::Views { .. } => {
                self.views_ended(now);
                None
            }
            Stage::Splits => {
                self.splits_ended(settings);
                None
            }
            Stage::Poll { .. } | Stage::Away { .. } => None,
        }
    }

    /// Whether a sweep runs.
    pub(in crate::scan) const fn sweeps(&self) -> bool {
        self.status.progress.is_some()
    }

    /// Whether something keeps a sweep from its end that others have not to wait for: a node that
    /// does not answer, and with it what needs the whole cluster.
    pub(in crate::scan) fn is_held_up(&self) -> bool {
        self.rounds.awaits || !self.incomplete.is_empty() || self.followed.is_any_away()
    }

    /// Whether a sweep has enough to go on with, though some node has not answered.
    pub(in crate::scan) fn may_go_on(&self) -> bool {
        self.rounds.may_go_on()
    }

    /// Goes on without the nodes that have not answered.
    pub(in crate::scan) fn go_on(&mut self, settings: &Settings) -> Stage {
        self.rounds.awaits = true;
        self.after_nodes(settings)
    }

    /// What comes after the nodes: what there is, or where feeds have told that, the files that
    /// are read beside CouchDB.
    fn after_nodes(&mut self, settings: &Settings) -> Stage {
        self.note_unanswered();
        self.lists = self.has_to_list(settings);
        if self.lists {
            self.listing.begin();
            return Stage::Map;
        }
        self.nodes_to_read(settings);
        Stage::Disk
    }

    /// Decides the state of what was listed; answers whether all of the map was.
    fn settle(&mut self, settings: &Settings) -> bool {
        let whole = self.listing.map_whole;
        self.listing.settle(&mut self.draft, settings);
        if whole {
            self.followed.has_listed(self.began, self.listing.splits.as_ref());
        }
        whole
    }

    /// The shards of the nodes of this round. Those that have nothing to read were read.
    fn shards_to_read(&mut self, settings: &Settings, now: Moment) -> Stage {
        let lanes = self.lanes(settings);
        self.expect(lanes.iter().map(|lane| lane.targets.len()).sum());
        let left = lanes
            .iter()
            .filter_map(|lane| Some((self.draft.find_node(&lane.node)?, lane.targets.len())));
        self.rounds.left = left.collect();
        for at in self.rounds.in_hand() {
            if !self.rounds.left.contains_key(&at) {
                self.node_read(at, now);
            }
        }
        Stage::Shards { snapshot: Arc::new(self.draft.now().without_facts()), lanes }
    }

    /// A sweep has asked for one shard: with the last one its node was read.
    pub(in crate::scan) fn lane_read(&mut self, ix: Ix, stage: &Stage, now: Moment) {
        let Stage::Shards { snapshot, .. } = stage else { return };
        let Some(at) = snapshot.target(ix).map(TargetRef::node_ix) else { return };
        if self.rounds.one_less(at) {
            self.node_read(at, now);
        }
    }

    /// All that a node answers by itself was asked.
    fn node_read(&mut self, at: NodeIx, now: Moment) {
        let up = self.draft.now().node(at).is_some_and(|node| node.up == Some(true));
        if self.rounds.was_read(at) && up && !self.incomplete.contains(&at) {
            self.draft.change_node(at, |node| node.last_success = Some(now));
        }
    }

    /// Whether a place still has the target that a stage was to read there.
    pub(super) fn is_still(&self, ix: Ix, stage: &Stage) -> bool {
        let Stage::Shards { snapshot, .. } = stage else { return false };
        let (then, now) = (snapshot.target(ix), self.draft.now().target(ix));
        then.zip(now).is_some_and(|(then, now)| {
            let place = |it: TargetRef<'_>| (it.kind(), it.node_ix(), it.range());
            place(then) == place(now) && then.db_name() == now.db_name()
        })
    }

    /// Every node has answered by now, or failed to.
    pub(in crate::scan) const fn all_heard(&mut self) {
        self.rounds.awaits = false;
    }

    /// What comes after the shards of those that answered: nodes that took longer to; nothing
    /// while a node is still waited for.
    pub(in crate::scan) fn round_ended(
        &mut self,
        settings: &Settings,
        now: Moment,
    ) -> Option<Stage> {
        for at in self.rounds.in_hand() {
            self.node_read(at, now);
        }
        self.note_ages(now);
        if self.rounds.awaits {
            return None;
        }
        let nodes = self.nodes_to_read(settings);
        if nodes.is_empty() {
            return None;
        }
        Some(if self.lists { Stage::Files { nodes } } else { self.shards_to_read(settings, now) })
    }

    /// The views, once in a sweep, when its nodes were read.
    pub(in crate::scan) fn views_to_read(&mut self, settings: &Settings) -> Option<Stage> {
        if !self.rounds.views.are_to_ask() {
            return None;
        }
        if !settings.views {
            self.rounds.views.leave();
            return None;
        }
        self.rounds.views.asked();
        self.views_whole = !self.incomplete.contains(&NodeIx::CLUSTER);
        let dbs = self.dbs_to_read(settings);
        self.expect(dbs.len());
        Some(Stage::Views { snapshot: Arc::new(self.draft.now().without_facts()), dbs })
    }

    /// The views were read, of this sweep or of one before that has ended without them.
    fn views_ended(&mut self, now: Moment) {
        self.rounds.views.ended();
        if self.views_whole && self.rounds.splits {
            self.draft.change_node(NodeIx::CLUSTER, |node| node.last_success = Some(now));
        }
    }

    /// So many more are to be read.
    fn expect(&mut self, more: usize) {
        let done = self.status.progress.map_or(0, |progress| progress.done);
        self.status.progress =
            Some(super::Progress { since: self.began, done, total: Some(done + more) });
    }

    /// The nodes of this process's share that did not answer.
    pub(in crate::scan) fn away(&self, settings: &Settings) -> Option<Stage> {
        let nodes =
            self.draft.now().nodes().iter().skip(1).filter(|node| {
                node.member && node.up == Some(false) && settings.nodes.has(&node.name)
            });
        let nodes: Vec<String> = nodes.map(|node| node.name.to_string()).collect();
        (!nodes.is_empty()).then_some(Stage::Away { nodes })
    }

    /// Takes in what is being split. What was known stays where nobody answers: a copy on the
    /// move would look lost.
    pub(super) fn splits(&mut self, seen: Result<Reshard, Unread>, settings: &Settings) {
        self.rounds.splits = true;
        match seen {
            Ok(splits) => self.learn(splits, settings),
            Err(unread) => {
                self.unread(NodeIx::CLUSTER, &unread);
                if !matches!(unread.reason, "timeout" | "connect") {
                    let known = self.listing.splits.take().filter(|_| unread.right.is_none());
                    self.learn(known.unwrap_or_default(), settings);
                }
            }
        }
    }

    /// A source that names no splits knows of none.
    fn splits_ended(&mut self, settings: &Settings) {
        if !self.rounds.splits {
            self.rounds.splits = true;
            self.learn(Reshard::default(), settings);
        }
    }

    fn learn(&mut self, splits: Reshard, settings: &Settings) {
        if self.listing.splits.as_ref() == Some(&splits) {
            return;
        }
        if self.lists && self.listing.is_settled() {
            self.listing.splits = Some(splits);
            self.settle(settings);
        } else {
            // What is no longer split the next listing finds: it is due, now that they differ.
            self.listing.splitting(&mut self.draft, &splits);
        }
    }
}
