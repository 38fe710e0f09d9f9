//! The end of a sweep: its results for nodes, for itself, and for unused files.

use super::Scanner;
use crate::{
    scan::sweep::ViewPhase,
    sources::inventory::ReadError,
    table::{Node, NodeIx},
    tasks::Now,
};
use std::sync::Arc;
use wall_clock::Moment;

impl Scanner {
    /// The start of the last sweep, if it read everything it had to.
    pub(super) fn swept_since(&self) -> Option<Moment> {
        let whole = self.sweep.is_complete() && self.status.problem.is_none();
        whole.then(|| self.sweep.began().wall)
    }

    /// Ends a sweep: records which nodes were read completely and the age of the oldest facts. Missing
    /// cluster-wide responses count as unread in this sweep, and are applied when they arrive.
    pub(super) fn finish_sweep(&mut self, now: Now) {
        let views_done = self.sweep.views() == ViewPhase::Done;
        if !self.sweep.splits_known() || !views_done {
            self.sweep.set_incomplete(NodeIx::CLUSTER);
        }
        self.disk.judge(&mut self.targets, &mut self.views, &self.jobs, now.wall);
        self.targets.count_disagreements(|node| self.disk.found_files_of(node));
        self.compare_directories();
        if views_done {
            self.followed.all_was_read();
        }
        self.targets.update_ages(now.wall);
        for at in self.targets.nodes(0) {
            // For a node that this process serves, success was recorded when it was read.
            let not_served = |node: &Node| !node.is_served && self.sweep.has_answered(at);
            let whole = !self.sweep.is_incomplete(at)
                && (at == NodeIx::CLUSTER || self.targets.now().node(at).is_some_and(not_served));
            if whole {
                self.targets.draft.update_node(at, |node| node.last_success = Some(now.wall));
            }
        }
        let answered = self.targets.now().nodes().iter().any(|node| node.answers());
        let answered = answered
            || self.listing.is_readable_alone()
            // A proxy may deny the nodes' own interface, and only that.
            || (self.listing.is_map_whole() && self.sweep.unknown_node().is_some())
            || (self.listing.is_without_map() && self.disk.was_walked());
        if !answered && self.status.problem.is_none() {
            self.status.problem = self.sweep.unknown_node().cloned();
        }
        let shards = || self.targets.shard_count(|node| self.targets.is_up(node));
        self.status.unread_shards = self.sweep.shard_reads().common_cause(shards);
        self.status.absent_shards = None;
        match self.sweep.shard_reads().absent_shards(shards) {
            Some((says, true)) => self.status.unread_shards = Some(says),
            Some((says, false)) => self.status.absent_shards = Some(says),
            None => {}
        }
        let took = now.at.duration_since(self.sweep.began().at);
        self.targets.draft.set_sweep_duration(took);
        let success = self.sweep.is_complete() && answered;
        self.status.sweep_ended((now.wall, took), answered, success);
        self.status.shards = self.targets.headers.shards();
        self.status.missing_rights = self.sweep.missing_rights().clone();
        self.sweep.end();
    }
    /// Records for each node whether the directories that were walked for it can be its own.
    fn compare_directories(&mut self) {
        if self.listing.is_without_map() {
            return;
        }
        for at in self.targets.nodes(0) {
            let problem = self.disk.foreign_directory(self.targets.now(), at);
            let shown: Option<Arc<str>> = problem.as_deref().map(Arc::from);
            self.targets.draft.update_node(at, |node| node.foreign_directory = shown.clone());
            if let Some(message) = problem {
                self.count_error(at, &ReadError { reason: "directory", message, right: None });
            }
        }
    }
}
