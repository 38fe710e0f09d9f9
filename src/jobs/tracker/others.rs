//! Jobs and their targets: of those that somebody else started, when they began, and how large
//! their files were then.
//!
//! A job shows with the next poll, and its target was measured some time before or is measured
//! while it runs. Only what was measured near its start, or during it, tells how large the file
//! was before; otherwise that stays unknown.

use super::{Rules, Stage, Tracked, place, scaled};
use crate::{
    jobs::{JobKey, Task, Work, judge::Before, progress::Progress},
    model::{facts::Facts, target::Kind},
    sources::inventory::Doing,
    table::{Snapshot, TargetRef},
};
use std::time::Duration;
use wall_clock::Moment;

/// What was measured so long before a job began still tells how large its file was.
const NEAR: Duration = Duration::from_secs(60);

impl Tracked {
    /// A job that somebody else started.
    pub(super) fn others(task: &Task, now: Moment) -> Self {
        // By the node's clock, which may be ahead.
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

    /// Its target may have left the tables and come back, to another place.
    pub(super) fn find_again(&mut self, tables: &Snapshot) {
        if self.alive(tables).is_none()
            && let Some(ix) = self.id.as_ref().and_then(|id| place::find(id, tables))
        {
            self.target = Some(ix);
        }
    }

    /// Notes what is known of its target, at first sight.
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

    /// Whether the size of its file before is not known, and reading it once may tell.
    pub(super) fn wants_sizes(&self, tables: &Snapshot) -> bool {
        let compacts = self.intent.is_none() && self.measured && self.before.file.is_none();
        let read = |target: TargetRef<'_>| {
            target.facts().measured_at.is_some_and(|measured| measured.at > self.first_seen)
        };
        compacts && self.alive(tables).is_some_and(|target| !read(target))
    }

    /// Takes the sizes of its file from what was read while it runs, where they were not known.
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

    /// Whether facts tell how large its file was when it began: they were measured not long
    /// before, or while CouchDB said that it runs, and so before the new file takes the old one's
    /// place.
    fn tells_before(&self, facts: &Facts) -> bool {
        let Some(measured) = facts.measured_at.map(|measured| measured.at) else { return false };
        if measured <= self.since {
            return measured.age(self.since) <= NEAR;
        }
        facts.flags.compact_running
    }
}
