//! Tracks jobs from three sources: task lists of nodes, facts of files, and requests sent. Pure.
//!
//! Holds every job from the decision to start it, or from the first poll that shows it, until
//! its outcome is known. A job is identified by node, shard and kind, because CouchDB changes the
//! process id and restarts its counters in each pass and phase. A node that did not answer ends
//! no jobs.

mod evidence;
mod foreign_jobs;
mod intent_targets;
mod intents;

pub(crate) use intents::{RequestResult, StartRejected};

use super::{
    job::{Job, JobKey, JobKind, JobPhase, Jobs},
    progress::JobProgress,
    running_tasks::{NodePoll, Running, RunningTask},
    verdict::{self, DisappearedTask, FileBefore, JobVerdict},
};
use crate::{
    model::{
        correction::CompactionEvidence,
        facts::Facts,
        records::{AfterCompaction, CorrectionKey, IntentKey, JobOwner, Outcome},
        rounding::to_bytes,
        target::{TargetId, TargetKind},
    },
    table::{NodeIx, Snapshot, TargetIx, TargetRef},
};
use hashbrown::{HashMap, HashSet};
use intents::OpenIntent;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use wall_clock::Moment;

/// CouchDB shows a job at the latest this long after it accepted the request. 20 to 70 ms were
/// measured, and 230 ms on a loaded machine.
const APPEARS_WITHIN: Duration = Duration::from_secs(2);

/// Limit for a job to appear if it is unknown whether the request arrived.
const APPEARS_WITHIN_UNCONFIRMED: Duration = Duration::from_secs(30);

/// How long a file may stay unread after its task disappeared.
const REREAD_TIMEOUT: Duration = Duration::from_secs(900);

/// Maximum age of the last reading of a running job's file. Until the swap, writes grow the old file,
/// and the bytes that the job freed are judged by its last size.
const LAST_SIZE_AGE: Duration = Duration::from_secs(30);

/// How long the end of a job is remembered, so that a later reading of its file is not mistaken for another job.
const ENDED_KEPT: Duration = Duration::from_secs(24 * 3_600);

/// How long a job is kept if its node does not answer.
const NODE_SILENCE_TIMEOUT: Duration = Duration::from_secs(3600);

/// Inputs of the tracker besides task lists and facts.
pub(crate) struct TrackerInputs<'a> {
    /// Peak size of a database compaction as a multiple of its active bytes.
    pub headroom_factor: f64,
    /// Returns the channel that takes a target.
    pub channel_of: &'a dyn Fn(TargetRef<'_>) -> Option<Arc<str>>,
}

/// Changes that follow from an observation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TrackerChanges {
    pub ended: Vec<EndedJob>,
    /// Intents whose request was never sent.
    pub withdrawn: Vec<IntentKey>,
    /// Targets that must be read again to determine how their jobs ended.
    pub reread: BTreeSet<TargetIx>,
}

/// A job that ended, or all jobs of one intent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EndedJob {
    /// How it ended.
    pub outcome: Outcome,
    /// The intent that this closes, if any.
    pub closed_intent: Option<IntentKey>,
    /// Active bytes the job had to copy: those before the job, or, for a database, those after it
    /// if writes during the job increased them.
    pub copied_bytes: Option<u64>,
    /// Measurements of the file afterwards.
    pub after: AfterCompaction,
    /// What it shows about the accuracy of predictions for its database, if anything.
    pub evidence: Option<(CorrectionKey, CompactionEvidence)>,
    /// Number of files the target has in the whole cluster.
    pub copies: u32,
    /// Whether it ended [`JobResult::Lost`](crate::model::records::JobResult::Lost) because it is unknown
    /// whether its request arrived, and no later reading shows that it did not.
    pub may_have_run: bool,
    /// Whether it ended [`JobResult::Lost`](crate::model::records::JobResult::Lost) because its request was
    /// perhaps never sent, as after a kill; this says nothing about the server.
    pub never_arrived: bool,
}

/// All jobs and all open intents.
#[derive(Debug, Default)]
pub(crate) struct JobTracker {
    jobs: BTreeMap<JobKey, TrackedJob>,
    open_intents: BTreeMap<IntentKey, OpenIntent>,
    polled_nodes: Vec<(NodeIx, Moment)>,
    starts_accepted: u64,
    /// When the tracker began; earlier readings show nothing about jobs recorded since.
    began: Moment,
    /// When the last job with each key ended, kept for a day.
    ended: BTreeMap<JobKey, Moment>,
    /// Number of the last replaced file that was examined.
    last_replaced: u64,
}

/// One job with its state.
#[derive(Debug)]
struct TrackedJob {
    target: Option<TargetIx>,
    target_id: Option<TargetId>,
    kind: TargetKind,
    intent: Option<IntentKey>,
    channel: Option<Arc<str>>,
    /// When the job started, as far as known.
    started_at: Moment,
    /// When this process first learned of the job.
    first_seen: Moment,
    last_seen: Moment,
    stage: JobStage,
    progress: JobProgress,
    file_before: FileBefore,
    /// Size of the old file when it was last read during the job; until the swap, writes go to the old file.
    last_file_bytes: Option<u64>,
    /// Whether these facts were read before the job began. Otherwise the job may have had to catch up with writes that
    /// the facts do not show.
    began_after_reading: bool,
    /// Whether the target's facts describe the file this job works on.
    is_measured_copy: bool,
    peak_bytes: u64,
}

/// The stage of a tracked job.
#[derive(Clone, Copy, Debug, PartialEq)]
enum JobStage {
    /// The request is still waiting for its answer.
    Starting,
    /// The request was answered, or may have arrived; no poll shows the task yet.
    Sent { at: Moment, confirmed: bool },
    /// A node shows the task.
    Shown { suspended: bool },
    /// No node shows the task any more.
    Disappeared(DisappearedTask),
}

impl JobTracker {
    /// Applies the task lists of the nodes.
    pub(crate) fn apply_poll(
        &mut self,
        running: &Running,
        tables: &Snapshot,
        rules: &TrackerInputs<'_>,
        now: Moment,
    ) -> TrackerChanges {
        self.assign_jobs(tables, now);
        self.polled_nodes.clear();
        for (node, polled) in &running.nodes {
            let NodePoll { asked_at, tasks: Some(tasks) } = polled else { continue };
            self.polled_nodes.push((*node, *asked_at));
            let mut shown_keys = BTreeSet::new();
            let compactions: HashSet<_> = tasks.iter().filter_map(rebuilding_compaction).collect();
            let indexers: HashMap<_, _> = tasks
                .iter()
                .rev()
                .filter_map(|task| Some((served_compaction(task)?, task)))
                .collect();
            let is_helper = |task: &RunningTask| {
                served_compaction(task).is_some_and(|served| compactions.contains(&served))
            };
            for task in tasks.iter().filter(|task| !is_helper(task)) {
                let helper =
                    rebuilding_compaction(task).and_then(|own| indexers.get(&own).copied());
                self.apply_task(task, helper, tables, rules, now);
                shown_keys.insert(task.key.clone());
            }
            self.mark_missing(*node, *asked_at, &shown_keys);
        }
        let step = self.apply_facts(tables, now);
        TrackerChanges { reread: self.targets_to_reread(tables), ..step }
    }

    /// Targets whose files must be read to determine how their jobs ended, or how large they were
    /// before or are just before the swap. Requested with each poll rather than each reading,
    /// because a file read in the second in which a task disappeared may not be conclusive.
    #[must_use]
    pub(crate) fn targets_to_reread(&self, tables: &Snapshot) -> BTreeSet<TargetIx> {
        let wanted = |job: &&TrackedJob| match job.stage {
            JobStage::Disappeared(_) => true,
            JobStage::Shown { .. } => job.wants_sizes(tables) || job.wants_last_size(tables),
            JobStage::Starting | JobStage::Sent { .. } => false,
        };
        let disappeared = self.jobs.values().filter(wanted);
        disappeared.filter_map(|job| Some(job.current_target(tables)?.ix())).collect()
    }

    /// Restarts all waiting periods after the system clock was set.
    pub(crate) fn restart_waits(&mut self, now: Moment) {
        for job in self.jobs.values_mut() {
            job.last_seen = now;
            job.first_seen = job.first_seen.min(now);
            match &mut job.stage {
                JobStage::Sent { at, .. } => *at = now,
                JobStage::Disappeared(disappeared) => disappeared.missed_at = now,
                JobStage::Starting | JobStage::Shown { .. } => {}
            }
        }
        for open in self.open_intents.values_mut() {
            open.restart_wait(now);
        }
    }

    /// Applies facts read since the last call.
    pub(crate) fn apply_facts(&mut self, tables: &Snapshot, now: Moment) -> TrackerChanges {
        self.assign_jobs(tables, now);
        for (key, job) in &mut self.jobs {
            job.find_target(key, tables);
            job.relocate_target(tables);
        }
        let mut step = TrackerChanges::default();
        self.find_unseen(tables, &mut step);
        let mut over = Vec::new();
        for (key, job) in &mut self.jobs {
            job.update_sizes_before(key.node, tables);
            job.update_last_size(key.node, tables);
            let verdict = match job.stage {
                JobStage::Disappeared(disappeared) => job.judge(key.node, disappeared, tables, now),
                // The job ended between two polls, or while this program was not running.
                JobStage::Sent { .. } if job.file_was_replaced(tables, now) => {
                    Some(Some(JobVerdict::Completed))
                }
                JobStage::Starting | JobStage::Sent { .. } | JobStage::Shown { .. } => {
                    let silent = job.last_seen.age(now) > NODE_SILENCE_TIMEOUT;
                    silent.then(|| {
                        Some(JobVerdict::Lost("its node has not answered for an hour".into()))
                    })
                }
            };
            over.extend(verdict.map(|verdict| (key.clone(), verdict)));
        }
        for (key, verdict) in over {
            self.end_job(&key, verdict, tables, now, &mut step);
        }
        self.close_orphaned_intents(tables, now, &mut step);
        step
    }

    /// Finds compactions that no poll showed, by the files they replaced.
    fn find_unseen(&mut self, tables: &Snapshot, step: &mut TrackerChanges) {
        for file in tables.replaced_after(self.last_replaced) {
            self.last_replaced = file.number;
            let target = tables.target(file.target);
            let (before, after) = (file.before(), file.after());
            let readings = before.measured_at.zip(after.measured_at);
            let Some((target, (read, read_again))) = target.zip(readings) else { continue };
            let shard = Arc::from(target.shard_name().unwrap_or_default());
            let key = JobKey { node: target.node_ix(), shard, kind: JobKind::CompactDb };
            let since = self.ended.get(&key).copied().unwrap_or(self.began);
            if read.at > since
                && !self.jobs.contains_key(&key)
                && verdict::was_compacted_between(&before, &after)
            {
                let job = TrackedJob::unseen(target, file, (read.at, read_again.at));
                let done = JobVerdict::Completed;
                step.ended.extend(job.end_foreign(&key, done, read_again.at, tables, Some(target)));
            }
        }
    }

    /// Whether a start of this target has no outcome yet.
    #[must_use]
    pub(crate) fn has_open_intent(&self, id: &TargetId) -> bool {
        self.open_intents.keys().any(|key| key.target == *id)
    }

    /// The compactions that this process decided to start, apart from operators' orders, and that
    /// have not ended.
    pub(crate) fn own_compactions(&self) -> impl Iterator<Item = &JobKey> {
        let is_own =
            |key: &IntentKey| self.open_intents.get(key).is_some_and(|open| !open.is_ordered());
        let runs = move |job: &TrackedJob| {
            !matches!(job.stage, JobStage::Disappeared(_))
                && job.intent.as_ref().is_some_and(is_own)
        };
        self.jobs.iter().filter(move |(_, job)| runs(job)).map(|(key, _)| key)
    }

    /// Number of starts accepted so far.
    #[must_use]
    pub(crate) const fn starts_accepted(&self) -> u64 {
        self.starts_accepted
    }

    /// A snapshot of all jobs.
    #[must_use]
    pub(crate) fn jobs(&self) -> Jobs {
        let list = self.jobs.iter().map(|(key, job)| job.to_job(key)).collect();
        Jobs {
            list,
            polled_nodes: self.polled_nodes.clone(),
            starts_accepted: self.starts_accepted,
        }
    }

    fn apply_task(
        &mut self,
        task: &RunningTask,
        helper: Option<&RunningTask>,
        tables: &Snapshot,
        rules: &TrackerInputs<'_>,
        now: Moment,
    ) {
        let job =
            self.jobs.entry(task.key.clone()).or_insert_with(|| TrackedJob::foreign(task, now));
        if job.target.is_none() {
            job.target = task.target;
        }
        if job.target_id.is_none()
            && let Some(target) = job.target.and_then(|ix| tables.target(ix))
        {
            job.set_target(target, &task.key, tables, rules);
        }
        let suspended = task.seen.process_status.as_deref() == Some("suspended");
        job.stage = JobStage::Shown { suspended };
        job.last_seen = now;
        job.progress.update(&task.seen, helper.map(|helper| &helper.seen), now);
    }

    /// Marks jobs that a polled node no longer shows.
    fn mark_missing(&mut self, node: NodeIx, asked_at: Moment, shown: &BTreeSet<JobKey>) {
        let missing = |key: &JobKey| key.node == node && !shown.contains(key);
        self.jobs.retain(|key, _| {
            !(missing(key) && matches!(key.kind, JobKind::BuildView(_) | JobKind::BuildSearch(..)))
        });
        for (_, job) in self.jobs.iter_mut().filter(|(key, _)| missing(key)) {
            let disappeared = DisappearedTask {
                missed_at: asked_at,
                was_shown: false,
                was_accepted: false,
                last_progress: job.progress.completed,
            };
            match job.stage {
                JobStage::Shown { .. } => {
                    job.stage =
                        JobStage::Disappeared(DisappearedTask { was_shown: true, ..disappeared })
                }
                JobStage::Sent { at, confirmed: sure } => {
                    let settles = if sure { APPEARS_WITHIN } else { APPEARS_WITHIN_UNCONFIRMED };
                    if asked_at >= at.plus(settles) {
                        job.stage = JobStage::Disappeared(DisappearedTask {
                            was_accepted: sure,
                            ..disappeared
                        });
                    }
                }
                JobStage::Starting | JobStage::Disappeared(_) => {}
            }
        }
    }

    /// Ends a job: on its own if another program started it, otherwise together with the other jobs
    /// of its intent.
    fn end_job(
        &mut self,
        key: &JobKey,
        verdict: Option<JobVerdict>,
        tables: &Snapshot,
        now: Moment,
        step: &mut TrackerChanges,
    ) {
        let Some(job) = self.jobs.remove(key) else { return };
        self.ended.retain(|_, at| at.age(now) < ENDED_KEPT);
        self.ended.insert(key.clone(), now);
        let verdict = verdict.unwrap_or_else(|| JobVerdict::Lost("its target is unknown".into()));
        let ended_at = match job.stage {
            JobStage::Disappeared(disappeared) => disappeared.missed_at,
            JobStage::Starting | JobStage::Sent { .. } | JobStage::Shown { .. } => now,
        };
        let target = job.current_target(tables);
        match &job.intent {
            Some(intent) => {
                let Some(open) = self.open_intents.get_mut(intent) else { return };
                open.record_job_end(key, verdict, ended_at, &job, target);
                if open.has_no_pending_jobs() {
                    let open = self.open_intents.remove(intent);
                    step.ended.extend(open.map(|open| open.into_ended(target)));
                }
            }
            None => step.ended.extend(job.end_foreign(key, verdict, ended_at, tables, target)),
        }
    }
}

/// A compaction of a view and the indexer that builds its new file: their shard, design document,
/// and the process id that both report.
type Rebuild<'a> = (&'a str, &'a str, &'a str);

/// The rebuild that a view compaction would carry out.
fn rebuilding_compaction(task: &RunningTask) -> Option<Rebuild<'_>> {
    let JobKind::CompactView(design) = &task.key.kind else { return None };
    Some((&task.key.shard, design, task.seen.pid.as_deref()?))
}

/// The rebuild that an indexer would serve, if there is such a compaction.
fn served_compaction(task: &RunningTask) -> Option<Rebuild<'_>> {
    let JobKind::BuildView(design) = &task.key.kind else { return None };
    Some((&task.key.shard, design, task.seen.indexer_pid.as_deref()?))
}

impl TrackedJob {
    /// A job about which nothing more is known.
    fn new(kind: TargetKind, started_at: Moment, seen_at: Moment, stage: JobStage) -> Self {
        Self {
            target: None,
            target_id: None,
            kind,
            intent: None,
            channel: None,
            started_at,
            first_seen: seen_at,
            last_seen: seen_at,
            stage,
            progress: JobProgress::unknown(seen_at),
            file_before: FileBefore::default(),
            last_file_bytes: None,
            began_after_reading: false,
            is_measured_copy: false,
            peak_bytes: 0,
        }
    }

    /// The target, if it is still the same one. A job that appeared before the tables knew its file
    /// has no id yet.
    fn current_target<'a>(&self, tables: &'a Snapshot) -> Option<TargetRef<'a>> {
        let target = tables.target(self.target?)?;
        self.target_id.as_ref().is_none_or(|id| target.id() == *id).then_some(target)
    }

    /// Whether the file was read since the job was last seen, and shows that a compaction ended.
    fn file_was_replaced(&self, tables: &Snapshot, now: Moment) -> bool {
        let Some(target) = self.current_target(tables).filter(|_| self.kind == TargetKind::Db)
        else {
            return false;
        };
        let facts = target.facts();
        let measured = facts.measured_at.map(|measured| measured.at);
        let since = measured.is_some_and(|at| at >= self.last_seen && at <= now);
        since && verdict::file_was_replaced(&self.file_before, &facts)
    }

    /// How the job ended. `Some(None)` if its target was never known; `None` if its file must be
    /// read again.
    #[expect(
        clippy::option_option,
        reason = "still waiting, ended with a result, or ended without one"
    )]
    fn judge(
        &self,
        node: NodeIx,
        disappeared: DisappearedTask,
        tables: &Snapshot,
        now: Moment,
    ) -> Option<Option<JobVerdict>> {
        let unread = disappeared.missed_at.age(now) > REREAD_TIMEOUT;
        let Some(target) = self.current_target(tables) else {
            return match self.target {
                Some(_) if self.target_id.is_some() => {
                    Some(Some(JobVerdict::Lost("its database or view no longer exists".into())))
                }
                // The tables may still be filling after a start.
                _ => unread.then_some(None),
            };
        };
        let facts = target.facts_on(node).unwrap_or_default();
        // A reading with a time in the future predates a backward change of the clock.
        let facts = if facts.measured_at.is_some_and(|measured| measured.at > now) {
            Facts::default()
        } else {
            facts
        };
        let verdict = match self.kind {
            TargetKind::Db => verdict::judge_db(&self.file_before, disappeared, &facts),
            TargetKind::View | TargetKind::Cleanup | TargetKind::Search => {
                verdict::judge_view(&self.file_before, disappeared, self.is_measured_copy, &facts)
            }
        };
        if verdict.is_none() && unread {
            let why = "its file could not be read for 15 minutes";
            return Some(Some(JobVerdict::Lost(why.into())));
        }
        verdict.map(Some)
    }

    fn to_job(&self, key: &JobKey) -> Job {
        let written = self.progress.completed.unwrap_or_default();
        Job {
            key: key.clone(),
            target: self.target,
            target_kind: self.kind,
            owner: if self.intent.is_some() { JobOwner::Recliner } else { JobOwner::Other },
            channel: self.channel.clone(),
            started_at: self.started_at,
            phase: match self.stage {
                JobStage::Starting | JobStage::Sent { .. } => JobPhase::Starting,
                JobStage::Shown { suspended: false } => JobPhase::Running,
                JobStage::Shown { suspended: true } => JobPhase::Suspended,
                JobStage::Disappeared(_) => JobPhase::Ending,
            },
            progress: self.progress.completed,
            last_progress_at: self.progress.last_change_at,
            reserved_bytes: scale_bytes(self.peak_bytes, 1.0 - written),
            file_bytes: self.file_before.file_bytes,
            predicted_bytes: self.file_before.predicted_bytes,
        }
    }

    /// The outcome of a job that another program started; `None` if its target was never known.
    fn end_foreign(
        &self,
        key: &JobKey,
        verdict: JobVerdict,
        at: Moment,
        tables: &Snapshot,
        target: Option<TargetRef<'_>>,
    ) -> Option<EndedJob> {
        let facts_after = target.and_then(|target| target.facts_on(key.node));
        let after = facts_after
            .filter(|_| verdict == JobVerdict::Completed && self.is_measured_copy)
            .filter(|facts| self.gives_size_after(facts))
            .and_then(|facts| facts.file_bytes.get());
        let active_after = facts_after.and_then(|facts| facts.active_bytes.get());
        let mut measured = intents::measure_after(
            self.kind,
            &facts_after.unwrap_or_default(),
            after,
            &self.file_before,
        );
        if !self.began_after_reading {
            (measured.changes, measured.changes_bytes) = (None, None);
        }
        let is_stale = self.last_file_bytes.is_none()
            && self.began_after_reading
            && self.file_before.has_grown_to(active_after);
        let old_file = self.file_before.with_last_size(self.last_file_bytes);
        let written = measured.changes_bytes.filter(|_| self.last_file_bytes.is_none());
        let is_outgrown = is_stale || old_file.is_outgrown(after, active_after, written);
        let before = old_file.file_bytes.filter(|_| self.is_measured_copy && !is_outgrown);
        let (ending, why) = intents::ending(verdict, before, after);
        let file_before = self.file_before.as_far_as_still_true(measured.active_bytes);
        let outcome = Outcome {
            target: self.target_id.clone()?,
            kind: self.kind,
            node: tables.node(key.node)?.name.to_string(),
            design: key.kind.design().map(Into::into),
            channel: self.channel.as_deref().map(Into::into),
            owner: JobOwner::Other,
            ordered_by: None,
            started_at: self.started_at,
            ended_after: Some(self.last_seen.min(at)),
            ended_at: at.max(self.started_at),
            charged_bytes: None,
            before_bytes: before,
            after_bytes: after,
            predicted_bytes: file_before.predicted_bytes.filter(|_| self.is_measured_copy),
            ending,
            why,
        };
        Some(EndedJob {
            closed_intent: None,
            copied_bytes: intents::copied_bytes(self.file_before.active_bytes, target),
            evidence: target.zip(facts_after).and_then(|of| {
                evidence::of_compaction(&file_before, of, &measured, outcome.ended_at)
            }),
            // If it is unknown what was written during the job, the size that it left must not hold
            // back the next compaction.
            after: AfterCompaction {
                file_bytes: measured.file_bytes.filter(|_| self.began_after_reading),
                ..measured
            },
            outcome,
            copies: intents::copies_in_round(target, key.node),
            may_have_run: false,
            never_arrived: false,
        })
    }
}

/// Multiplies a number of bytes by a factor.
fn scale_bytes(bytes: u64, factor: f64) -> u64 {
    to_bytes(bytes as f64 * factor)
}

#[cfg(test)]
mod tests;
