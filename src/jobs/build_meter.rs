//! Measures how fast indexes are built, from the counters of running indexers. Pure.
//!
//! A build is measured while it runs, at intervals that double, so that a build of days counts
//! before it ends and is not stored at every poll. It is measured once more when it ends.

use super::{
    job::{JobKey, JobKind},
    running_tasks::{NodePoll, Running, RunningTask},
};
use crate::{
    model::records::BuildSpeed,
    table::{Snapshot, TargetRef},
};
use couchdb_names::ShardName;
use hashbrown::HashSet;
use std::collections::BTreeMap;
use wall_clock::Moment;

/// Minimum runtime of an indexer that is measured: its times have a resolution of one second, and
/// at first it only starts processes.
const MIN_SECONDS: u64 = 10;

/// The measurements of running indexers.
#[derive(Debug, Default)]
pub(crate) struct BuildMeter(BTreeMap<JobKey, Measured>);

/// An indexer as it was last seen.
#[derive(Debug)]
struct Measured {
    latest: BuildSpeed,
    /// Seconds of work at the last measurement.
    reported_seconds: u64,
}

impl BuildMeter {
    /// Applies the task lists of the nodes; returns new measurements.
    pub(crate) fn apply_poll(
        &mut self,
        running: &Running,
        tables: &Snapshot,
        now: Moment,
    ) -> Vec<BuildSpeed> {
        let mut speeds = Vec::new();
        for (node, polled) in &running.nodes {
            let NodePoll { tasks: Some(tasks), .. } = polled else { continue };
            let builds = || tasks.iter().filter(|it| matches!(it.key.kind, JobKind::BuildView(_)));
            let indexers = u32::try_from(builds().count()).unwrap_or(u32::MAX);
            let running: HashSet<&JobKey> = builds().map(|task| &task.key).collect();
            let is_over = |key: &&JobKey| key.node == *node && !running.contains(*key);
            let ended: Vec<JobKey> = self.0.keys().filter(is_over).cloned().collect();
            speeds.extend(ended.iter().filter_map(|key| self.0.remove(key)?.unreported()));
            for task in builds() {
                let Some(speed) = speed(task, indexers, tables, now) else { continue };
                speeds.extend(self.update(&task.key, speed));
            }
        }
        speeds
    }

    /// Updates the state; returns a measurement if one is due.
    fn update(&mut self, key: &JobKey, speed: BuildSpeed) -> Option<BuildSpeed> {
        let previous = self.0.get(key);
        // A lower count shows that another indexer began.
        let previous = previous.filter(|previous| previous.latest.changes <= speed.changes);
        let mut reported_seconds = previous.map_or(0, |previous| previous.reported_seconds);
        let is_due = speed.seconds >= MIN_SECONDS.max(reported_seconds * 2);
        if is_due {
            reported_seconds = speed.seconds;
        }
        let due = is_due.then(|| speed.clone());
        self.0.insert(key.clone(), Measured { latest: speed, reported_seconds });
        due
    }
}

impl Measured {
    fn unreported(self) -> Option<BuildSpeed> {
        let Self { latest, reported_seconds } = self;
        (latest.seconds >= MIN_SECONDS && latest.seconds > reported_seconds).then_some(latest)
    }
}

/// Speed of an indexer since it began; `None` before it has made progress.
fn speed(task: &RunningTask, indexers: u32, tables: &Snapshot, now: Moment) -> Option<BuildSpeed> {
    let JobKind::BuildView(design) = &task.key.kind else { return None };
    let seconds = task.seen.updated_on?.checked_sub(task.seen.started_on?)?;
    let changes = task.seen.changes_done.filter(|changes| *changes > 0)?;
    let view = task.target.and_then(|ix| tables.target(ix)).and_then(TargetRef::view);
    let language = view.map(|view| view.language.to_string()).filter(|it| !it.is_empty());
    let views = view.map(|view| view.functions.len()).filter(|views| *views > 0);
    let db = ShardName::split(&task.key.shard).map_or(&*task.key.shard, |shard| shard.db);
    Some(BuildSpeed {
        db: db.to_owned(),
        design: design.to_string(),
        node: tables.node(task.key.node)?.name.to_string(),
        language,
        views: views.and_then(|views| u32::try_from(views).ok()),
        changes,
        seconds,
        indexers,
        at: now,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sources::inventory::{ActiveTask, TaskKind},
        table::{DbName, Draft, NodeIx, View},
    };

    const NOW: Moment = Moment::from_unix(1_795_222_434);

    /// A poll of the first node, which shows one indexer for each pair of seconds and changes.
    fn poll(indexers: &[(u64, u64)]) -> Running {
        let node = NodeIx::from_usize(1).unwrap();
        let task = |(range, &(seconds, changes)): (u32, &(u64, u64))| {
            let shard = format!("shards/{range}0000000-{range}fffffff/orders.1795237693");
            let report = ActiveTask {
                changes_done: Some(changes),
                started_on: Some(1_000),
                updated_on: Some(1_000 + seconds),
                ..ActiveTask::bare(TaskKind::Builds("_design/x".to_owned()), shard)
            };
            RunningTask::new(node, None, report)
        };
        let tasks = Some((0..).zip(indexers).map(task).collect());
        let nodes = BTreeMap::from([(node, NodePoll { asked_at: NOW, tasks })]);
        Running { poll_count: 1, nodes }
    }

    fn tables() -> std::sync::Arc<Snapshot> {
        let mut draft = Draft::new(1);
        draft.get_or_add_node("couchdb@a");
        let db = draft.get_or_add_db(DbName { db: "orders", suffix: ".1795237693" });
        draft.add_view(db, View::default());
        draft.publish(NOW)
    }

    /// Seconds and changes of the measurements reported at each of these polls.
    fn reported(polls: &[&[(u64, u64)]]) -> Vec<Vec<(u64, u64)>> {
        let (mut meter, tables) = (BuildMeter::default(), tables());
        let mut after = |indexers: &&[(u64, u64)]| {
            let speeds = meter.apply_poll(&poll(indexers), &tables, NOW);
            speeds.iter().map(|it| (it.seconds, it.changes)).collect()
        };
        polls.iter().map(&mut after).collect()
    }

    #[test]
    fn a_build_is_measured_while_it_runs_and_when_it_ends() {
        let polls: [&[(u64, u64)]; 7] =
            [&[(5, 50)], &[(12, 120)], &[(20, 200)], &[(25, 260)], &[(40, 400)], &[], &[]];
        let expected: [&[(u64, u64)]; 7] =
            [&[], &[(12, 120)], &[], &[(25, 260)], &[], &[(40, 400)], &[]];
        assert_eq!(reported(&polls), expected);
    }

    #[test]
    fn measures_next_indexer_of_same_index_from_zero() {
        assert_eq!(
            reported(&[&[(30, 900)], &[(2, 10)], &[(11, 90)]]),
            [vec![(30, 900)], vec![], vec![(11, 90)]]
        );
    }

    #[test]
    fn indexers_without_counters_or_with_little_work_are_not_measured() {
        assert_eq!(reported(&[&[(30, 0)], &[]]), [vec![], vec![]] as [Vec<(u64, u64)>; 2]);
        assert_eq!(reported(&[&[(9, 90)], &[]]), [vec![], vec![]] as [Vec<(u64, u64)>; 2]);
    }

    #[test]
    fn unanswered_poll_does_not_end_a_build() {
        let (mut meter, tables) = (BuildMeter::default(), tables());
        meter.apply_poll(&poll(&[(12, 120)]), &tables, NOW);
        let mut silent = poll(&[]);
        silent.nodes.values_mut().for_each(|node| node.tasks = None);
        assert_eq!(meter.apply_poll(&silent, &tables, NOW), []);
        let speeds = meter.apply_poll(&poll(&[(30, 300), (30, 100)]), &tables, NOW);
        let rates: Vec<_> = speeds.iter().map(|it| (it.rate(), it.indexers)).collect();
        assert_eq!(rates, [(10.0, 2), (100.0 / 30.0, 2)]);
        let only = &speeds[0];
        assert_eq!((&*only.db, &*only.design, &*only.node), ("orders", "_design/x", "couchdb@a"));
        assert_eq!((&only.language, only.views), (&None, None));
    }
}
