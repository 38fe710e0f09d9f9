//! Jobs that other programs started: when they began and how large their files were then.
//!
//! Such a job appears with the next poll. Its target was measured some time before, or is
//! measured while it runs. Only a measurement shortly before its start, or during it, gives the
//! size before; otherwise that size stays unknown.

use super::{Rules, Stage, Tracked, place, scaled};
use crate::{
    jobs::{JobKey, Task, Work, judge::Before, progress::Progress},
    model::{facts::Facts, target::Kind},
    sources::inventory::Doing,
    table::{Snapshot, TargetRef},
};
use std::time::Duration;
use wall_clock::Moment;

/// A measurement up to this long before the start of a job still gives the file size before it.
const NEAR: Duration = Duration::from_secs(60);

impl Tracked {
    /// Creates a job that another program started.
    pub(super) fn others(task: &Task, now: Moment) -> Self {
        // The node's clock may be ahead of ours.
        let started = task.seen.started_on.map(Moment::from_unix).filter(|at| *at <= now);
        Self {
            target: task.target,
            id: None,
            kind: match task.seen.doing {
                Doing::Compacts => Kind::Db,
                Doing::CompactsView(_) | Doing::Builds(_) => Kind::View,
                Doing::BuildsSearch { .. } => Kind::Search,
            },
            intent: None,
            channel: None,
            since: started.unwrap_or(now),
            first_seen: now,
            last_seen: now,
            stage: Stage::Shown { suspended: false },
            progress: Progress::unknown(now),
            before: Before::default(),
            measured: false,
            peak: 0,
        }
    }

    /// Finds the target again after it left the tables and came back at another position.
    pub(super) fn find_again(&mut self, tables: &Snapshot) {
        if self.alive(tables).is_none()
            && let Some(ix) = self.id.as_ref().and_then(|id| place::find(id, tables))
        {
            self.target = Some(ix);
        }
    }

    /// Records the facts of the target when it is first known.
    pub(super) fn about(
        &mut self,
        target: TargetRef<'_>,
        key: &JobKey,
        tables: &Snapshot,
        rules: &Rules<'_>,
    ) {
        self.id = Some(target.id());
        self.measured = place::is_measured(target, key, tables);
        if self.intent.is_some() {
            return;
        }
        self.before = Before::of(target);
        self.channel = (rules.channel_of)(target);
        let active = self.before.active.or(self.before.file).unwrap_or_default();
        self.peak = match key.work {
            Work::Db => scaled(active, rules.headroom_factor),
            Work::View(_) => active,
            Work::Build(_) | Work::BuildSearch(..) => 0,
        };
        if !self.tells_before(&target.facts()) {
            self.before = self.before.without_sizes();
        }
    }

    /// Whether the file size before is unknown and one more reading may provide it.
    pub(super) fn wants_sizes(&self, tables: &Snapshot) -> bool {
        let compacts = self.intent.is_none() && self.measured && self.before.file.is_none();
        let read = |target: TargetRef<'_>| {
            target.facts().measured_at.is_some_and(|measured| measured.at > self.first_seen)
        };
        compacts && self.alive(tables).is_some_and(|target| !read(target))
    }

    /// Takes the file size before from a reading made while the job runs, if it was unknown.
    pub(super) fn look_at_sizes(&mut self, tables: &Snapshot) {
        let shown = matches!(self.stage, Stage::Shown { .. });
        if !shown || self.intent.is_some() || self.before.file.is_some() {
            return;
        }
        let Some(target) = self.alive(tables) else { return };
        if self.tells_before(&target.facts()) {
            self.before = Before::of(target);
        }
    }

    /// Whether facts give the file size before the job: they were measured shortly before it, or
    /// while CouchDB showed it as running and therefore before the new file replaced the old one.
    fn tells_before(&self, facts: &Facts) -> bool {
        let Some(measured) = facts.measured_at.map(|measured| measured.at) else { return false };
        if measured <= self.since {
            return measured.age(self.since) <= NEAR;
        }
        facts.flags.compact_running
    }
}
