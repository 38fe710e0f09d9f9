//! Jobs that other programs started: when they began and how large their files were then; and for
//! all jobs, how large the old files are before they are replaced.
//!
//! Such a job appears with the next poll. Its target was measured some time before, or is measured
//! while it runs. Only a measurement shortly before its start, or during it, gives the file size
//! before the job; otherwise that size stays unknown.

use super::{JobStage, LAST_SIZE_AGE, TrackedJob, TrackerInputs, intent_targets, scale_bytes};
use crate::{
    jobs::{
        job::{JobKey, JobKind},
        running_tasks::RunningTask,
        verdict::FileBefore,
    },
    model::{
        facts::{FactSource, Facts},
        target::TargetKind,
    },
    sources::inventory::TaskKind,
    table::{NodeIx, ReplacedFile, Snapshot, TargetRef},
};
use std::time::Duration;
use wall_clock::Moment;

/// A measurement up to this long before the start of a job still gives the file size before it.
const MAX_AGE_BEFORE_START: Duration = Duration::from_secs(60);

impl TrackedJob {
    /// Creates a job that another program started.
    pub(super) fn foreign(task: &RunningTask, now: Moment) -> Self {
        // The node's clock may be ahead of ours.
        let started = task.seen.started_on.map(Moment::from_unix).filter(|at| *at <= now);
        let kind = match task.seen.doing {
            TaskKind::Compacts => TargetKind::Db,
            TaskKind::CompactsView(_) | TaskKind::Builds(_) => TargetKind::View,
            TaskKind::BuildsSearch { .. } => TargetKind::Search,
        };
        let stage = JobStage::Shown { suspended: false };
        Self { target: task.target, ..Self::new(kind, started.unwrap_or(now), now, stage) }
    }

    /// A compaction known only from the file that it replaced: it ended between the two readings. The old
    /// file's last sizes are known if nothing was written between its last reading and the compaction.
    pub(super) fn unseen(
        target: TargetRef<'_>,
        file: &ReplacedFile,
        (read, at): (Moment, Moment),
    ) -> Self {
        let last_facts = file.before();
        // A file's header does not show whether a compaction runs.
        let over_http = last_facts.measured_at.is_some_and(|it| it.source == FactSource::Http);
        let before = FileBefore::of(target.kind(), &last_facts, target.correction());
        let is_last = file.after().compacted_seq.get() == last_facts.update_seq.get();
        Self {
            target: Some(target.ix()),
            target_id: Some(target.id()),
            file_before: if is_last { before } else { before.without_sizes() },
            is_measured_copy: true,
            began_after_reading: over_http && !last_facts.flags.compact_running,
            ..Self::new(target.kind(), at, read, JobStage::Shown { suspended: false })
        }
    }

    /// Whether facts give the file size that the job left: they were read soon after the job was last
    /// seen, or nothing was written since.
    pub(super) fn gives_size_after(&self, facts: &Facts) -> bool {
        let read = facts.measured_at.map(|measured| measured.at);
        read.is_some_and(|at| self.last_seen.age(at) <= MAX_AGE_BEFORE_START)
            || facts.changes_since_compaction().is_none_or(|changes| changes == 0)
    }

    /// Finds the target of a job that ended before the tables knew its file.
    pub(super) fn find_target(&mut self, key: &JobKey, tables: &Snapshot) {
        if self.target_id.is_none()
            && matches!(self.stage, JobStage::Disappeared(_))
            && let Some(target) = intent_targets::target_of(key, tables)
        {
            (self.target, self.target_id) = (Some(target.ix()), Some(target.id()));
            self.is_measured_copy = intent_targets::is_measured(target, key, tables);
        }
    }

    /// Finds the target again after it left the tables and came back at another position.
    pub(super) fn relocate_target(&mut self, tables: &Snapshot) {
        if self.current_target(tables).is_none()
            && let Some(ix) =
                self.target_id.as_ref().and_then(|id| intent_targets::find_target(id, tables))
        {
            self.target = Some(ix);
        }
    }

    /// Records the facts of the target when it is first known.
    pub(super) fn set_target(
        &mut self,
        target: TargetRef<'_>,
        key: &JobKey,
        tables: &Snapshot,
        rules: &TrackerInputs<'_>,
    ) {
        self.target_id = Some(target.id());
        self.is_measured_copy = intent_targets::is_measured(target, key, tables);
        if self.intent.is_some() {
            return;
        }
        let facts = target.facts_on(key.node).unwrap_or_default();
        self.file_before = FileBefore::of(target.kind(), &facts, target.correction());
        self.channel = (rules.channel_of)(target);
        let active =
            self.file_before.active_bytes.or(self.file_before.file_bytes).unwrap_or_default();
        self.peak_bytes = match key.kind {
            JobKind::CompactDb => scale_bytes(active, rules.headroom_factor),
            JobKind::CompactView(_) => active,
            JobKind::BuildView(_) | JobKind::BuildSearch(..) => 0,
        };
        self.began_after_reading = self.began_after(&facts);
        if !self.gives_size_before(&facts) {
            self.file_before = self.file_before.without_sizes();
        }
    }

    /// Whether facts were read before the job began.
    fn began_after(&self, facts: &Facts) -> bool {
        facts.measured_at.is_some_and(|measured| measured.at < self.started_at)
    }

    /// Whether the file size before the job is unknown and another reading may provide it.
    pub(super) fn wants_sizes(&self, tables: &Snapshot) -> bool {
        let compacts =
            self.intent.is_none() && self.is_measured_copy && self.file_before.file_bytes.is_none();
        let read = |target: TargetRef<'_>| {
            target.facts().measured_at.is_some_and(|measured| measured.at > self.first_seen)
        };
        compacts && self.current_target(tables).is_some_and(|target| !read(target))
    }

    /// Takes the file size before the job from a reading made while it runs, if it was unknown.
    pub(super) fn update_sizes_before(&mut self, node: NodeIx, tables: &Snapshot) {
        let is_shown = matches!(self.stage, JobStage::Shown { .. });
        if !is_shown || self.intent.is_some() || self.file_before.file_bytes.is_some() {
            return;
        }
        let Some(target) = self.current_target(tables) else { return };
        let Some(facts) = target.facts_on(node) else { return };
        if self.gives_size_before(&facts) {
            self.file_before = FileBefore::of(target.kind(), &facts, target.correction());
            self.began_after_reading = self.began_after(&facts);
        }
    }

    /// Whether the old file was not read for a while and the job may be about to replace it. Indexes are
    /// excluded: reading one means reading all indexes of its database, which may be many.
    pub(super) fn wants_last_size(&self, tables: &Snapshot) -> bool {
        let is_old = |target: TargetRef<'_>| {
            let measured = target.facts().measured_at.map(|measured| measured.at);
            self.first_seen.max(measured.unwrap_or_default()).age(self.last_seen) > LAST_SIZE_AGE
        };
        self.kind == TargetKind::Db
            && self.is_measured_copy
            && self.current_target(tables).is_some_and(is_old)
    }

    /// Takes the size of the old file from a reading made while the job ran.
    pub(super) fn update_last_size(&mut self, node: NodeIx, tables: &Snapshot) {
        let target = self.current_target(tables).filter(|_| self.is_measured_copy);
        let facts = target.and_then(|target| target.facts_on(node));
        let read = |facts: &Facts| {
            facts.measured_at.is_some_and(|measured| measured.at >= self.started_at)
        };
        if let Some(facts) = facts.filter(read)
            && self.file_before.is_of_old_file(&facts)
        {
            self.last_file_bytes = self.last_file_bytes.max(facts.file_bytes.get());
        }
    }

    /// Whether facts give the file size before the job: they were measured shortly before it, or
    /// while CouchDB showed it as running and therefore before the new file replaced the old one.
    fn gives_size_before(&self, facts: &Facts) -> bool {
        let Some(measured) = facts.measured_at.map(|measured| measured.at) else { return false };
        if measured <= self.started_at {
            return measured.age(self.started_at) <= MAX_AGE_BEFORE_START;
        }
        facts.flags.compact_running
    }
}
