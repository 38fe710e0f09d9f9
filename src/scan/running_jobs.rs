//! All running jobs that CouchDB reports, recliner's and others'.
//!
//! Owns the result of the last poll of each node, and the targets of those jobs.

use super::views::IndexTables;
use crate::{
    jobs::{self, NodePoll, RunningTask},
    model::facts::FactFlags,
    sources::inventory::{ActiveTask, TaskKind},
    table::{DbName, Draft, NodeIx, TargetIx, TargetRef},
};
use couchdb_names::ShardName;
use std::collections::{BTreeMap, BTreeSet};
use wall_clock::Moment;

/// The result of the last poll of each node, and the targets of those jobs.
#[derive(Debug, Default)]
pub(super) struct RunningJobs {
    compacting: BTreeMap<NodeIx, BTreeSet<TargetIx>>,
    building: BTreeMap<NodeIx, BTreeSet<TargetIx>>,
    /// The result of the last poll so far.
    shown: jobs::Running,
    polled_at: Moment,
    /// The nodes that were silent in their last poll.
    silent: BTreeSet<NodeIx>,
}

impl RunningJobs {
    /// Begins a poll: the jobs of nodes that are not asked become unknown.
    pub(super) fn begin_poll(&mut self, now: Moment, asked: &[NodeIx]) {
        self.polled_at = now;
        for (node, polled) in &mut self.shown.nodes {
            if !asked.contains(node) {
                *polled = NodePoll { asked_at: now, tasks: None };
            }
        }
    }

    /// Ends a poll; returns its result.
    pub(super) fn end_poll(&mut self) -> jobs::Running {
        self.shown.poll_count += 1;
        self.shown.clone()
    }

    /// Records that a node did not report its jobs.
    pub(super) fn poll_failed(&mut self, node: NodeIx) {
        self.shown.nodes.insert(node, NodePoll { asked_at: self.polled_at, tasks: None });
    }

    /// Records whether a node was silent when it was polled; returns whether it was so twice in a row.
    pub(super) fn record_silence(&mut self, node: NodeIx, is_silent: bool) -> bool {
        match is_silent {
            true => !self.silent.insert(node),
            false => {
                self.silent.remove(&node);
                false
            }
        }
    }

    /// The jobs of a node in the last poll; `None` if it did not report them.
    pub(super) fn tasks(&self, node: NodeIx) -> Option<&[RunningTask]> {
        self.shown.nodes.get(&node)?.tasks.as_deref()
    }

    /// Sets the jobs of a node; returns the targets whose last job ended, which must be measured
    /// again.
    pub(super) fn apply(
        &mut self,
        draft: &mut Draft,
        views: &IndexTables,
        node: NodeIx,
        tasks: Vec<ActiveTask>,
    ) -> Vec<TargetIx> {
        let (mut compacting, mut building) = (BTreeSet::new(), BTreeSet::new());
        let mut polled_tasks = Vec::with_capacity(tasks.len());
        for task in tasks {
            let target = match &task.doing {
                TaskKind::Compacts => db_target(draft, node, &task.shard),
                TaskKind::CompactsView(design) | TaskKind::Builds(design) => {
                    view_target(draft, views, &task.shard, design)
                }
                TaskKind::BuildsSearch { design, index } => {
                    search_target(draft, views, &task.shard, design, index)
                }
            };
            match &task.doing {
                TaskKind::Compacts | TaskKind::CompactsView(_) => compacting.extend(target),
                TaskKind::Builds(_) | TaskKind::BuildsSearch { .. } => building.extend(target),
            }
            polled_tasks.push(RunningTask::new(node, target, task));
        }
        let polled = NodePoll { asked_at: self.polled_at, tasks: Some(polled_tasks) };
        self.shown.nodes.insert(node, polled);
        let mut ended = exchange(&mut self.compacting, node, compacting);
        ended.extend(exchange(&mut self.building, node, building));
        let runs = |nodes: &BTreeMap<NodeIx, BTreeSet<TargetIx>>, ix: TargetIx| {
            nodes.values().any(|running| running.contains(&ix))
        };
        let touched: BTreeSet<TargetIx> = self
            .compacting
            .get(&node)
            .into_iter()
            .chain(self.building.get(&node))
            .flatten()
            .copied()
            .chain(ended.iter().copied())
            .collect();
        for ix in touched {
            // The job changes the target, and no feed reports that.
            draft.mark_unconfirmed(ix);
            let Some(mut facts) = draft.current().target(ix).map(TargetRef::facts) else {
                continue;
            };
            let flags = FactFlags {
                compact_running: runs(&self.compacting, ix),
                updater_running: runs(&self.building, ix),
                ..facts.flags
            };
            if flags != facts.flags {
                facts.flags = flags;
                draft.set_facts(ix, facts);
            }
        }
        ended
            .into_iter()
            .filter(|ix| !runs(&self.compacting, *ix) && !runs(&self.building, *ix))
            .collect()
    }
}

/// Replaces the jobs of a node; returns those that are no longer running.
fn exchange(
    nodes: &mut BTreeMap<NodeIx, BTreeSet<TargetIx>>,
    node: NodeIx,
    now: BTreeSet<TargetIx>,
) -> BTreeSet<TargetIx> {
    let before = nodes.insert(node, now).unwrap_or_default();
    match nodes.get(&node) {
        Some(now) => before.difference(now).copied().collect(),
        None => before,
    }
}

fn db_target(draft: &Draft, node: NodeIx, shard: &str) -> Option<TargetIx> {
    let (name, range) = DbName::and_range_of(shard);
    draft.find_copy(node, name, range)
}

fn view_target(draft: &Draft, views: &IndexTables, shard: &str, design: &str) -> Option<TargetIx> {
    let split = ShardName::split(shard)?;
    views.with_design(draft, split.db, split.suffix, design)
}

fn search_target(
    draft: &Draft,
    views: &IndexTables,
    shard: &str,
    design: &str,
    index: &str,
) -> Option<TargetIx> {
    let split = ShardName::split(shard)?;
    let name = DbName { db: split.db, suffix: split.suffix };
    views.search(draft, name, design, index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use couchdb_names::Range;

    const SHARD: &str = "shards/00000000-ffffffff/a.1";

    #[test]
    fn target_is_flagged_while_its_job_runs_and_returned_when_it_ends() {
        let mut draft = Draft::new(1);
        let node = draft.get_or_add_node("couchdb@a");
        let db = draft.get_or_add_db(DbName { db: "a", suffix: ".1" });
        let ix = draft.get_or_add_shard(node, db, Some(Range { from: 0, to: u32::MAX }));
        let flag =
            |draft: &Draft| draft.current().target(ix).unwrap().facts().flags.compact_running;
        let (mut jobs, views) = (RunningJobs::default(), IndexTables::default());
        let compacts = || vec![ActiveTask::bare(TaskKind::Compacts, SHARD.to_owned())];
        jobs.begin_poll(Moment::from_unix(5), &[node]);
        assert_eq!(jobs.apply(&mut draft, &views, node, compacts()), []);
        assert!(flag(&draft));
        assert_eq!(jobs.tasks(node).map(<[RunningTask]>::len), Some(1));

        // A node that does not report its jobs ends none of them.
        jobs.poll_failed(node);
        assert!(flag(&draft) && jobs.tasks(node).is_none());
        assert_eq!(jobs.apply(&mut draft, &views, node, compacts()), []);
        assert_eq!(jobs.apply(&mut draft, &views, node, vec![]), [ix]);
        assert!(!flag(&draft));
        assert_eq!(jobs.tasks(node).map(<[RunningTask]>::len), Some(0));
    }

    #[test]
    fn each_poll_is_counted_and_drops_tasks_of_nodes_not_asked() {
        let mut draft = Draft::new(1);
        let nodes = ["a", "b"].map(|name| draft.get_or_add_node(name));
        let (mut jobs, views) = (RunningJobs::default(), IndexTables::default());
        jobs.begin_poll(Moment::from_unix(5), &nodes);
        for node in nodes {
            jobs.apply(&mut draft, &views, node, vec![]);
        }
        assert_eq!(jobs.end_poll().poll_count, 1);
        jobs.begin_poll(Moment::from_unix(9), &nodes[..1]);
        assert_eq!(nodes.map(|node| jobs.tasks(node).is_some()), [true, false]);
        let result = jobs.end_poll();
        assert_eq!(
            (result.poll_count, result.nodes[&nodes[1]].asked_at),
            (2, Moment::from_unix(9))
        );
    }
}
