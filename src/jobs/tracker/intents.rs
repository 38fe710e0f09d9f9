//! Starts made by this program, from the decision until all their jobs have ended.

use super::{
    APPEARS_WITHIN, APPEARS_WITHIN_UNCONFIRMED, EndedJob, JobStage, JobTracker, REREAD_TIMEOUT,
    TrackedJob, TrackerChanges, evidence, intent_targets,
};
use crate::{
    jobs::{
        job::{JobKey, JobKind},
        progress::JobProgress,
        verdict::{FileBefore, JobVerdict},
    },
    model::{
        correction::Correction,
        facts::Facts,
        records::{AfterCompaction, Intent, IntentKey, JobOwner, JobResult, Outcome, frees_little},
        target::{TargetId, TargetKind},
    },
    table::{NodeIx, Snapshot, TargetIx, TargetRef, ViewCopies},
};
use std::{collections::BTreeSet, time::Duration};
use wall_clock::Moment;

/// For this long after this process starts, a start may come from a plan made without the jobs of
/// an earlier process: the enforcer reads for up to fifteen seconds between a plan and its start.
const KNOWN_TO_PLANS_AFTER: Duration = Duration::from_secs(16);

/// The reason given if the sizes before and after a compaction are not compared.
pub(super) const OUTGROWN: &str =
    "so much was written while it ran that the sizes before and after cannot be compared";

const NEVER_RAN: &str = "nothing shows that it ever ran";

/// Result of sending a start request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestResult {
    /// CouchDB accepted it (202). This does not prove that anything was started.
    Accepted,
    /// CouchDB refused it, with the reason.
    Refused(String),
    /// It was not sent, with the reason.
    NotSent(String),
    /// It may have arrived, with the reason for the uncertainty.
    MayHaveArrived(String),
}

/// Why a start is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartRejected {
    /// An intent with the same key is open.
    #[error("it is already being started")]
    AlreadyStarting,
    /// A job is working on one of the target's files.
    #[error("a compaction of it is already running")]
    AlreadyRunning,
    /// An earlier process started a compaction of another copy, and the plan may not know it yet.
    #[error("another copy of its range was being compacted for an earlier process")]
    OtherCopyAdopted,
    /// The tables do not contain its node or database.
    #[error("its node or database is no longer known")]
    UnknownTarget,
}

/// An open intent with the results of its jobs so far.
#[derive(Debug)]
pub(super) struct OpenIntent {
    intent: Intent,
    /// Jobs that have not ended; `None` while the tables do not know them.
    pending_jobs: Option<BTreeSet<JobKey>>,
    job_count: usize,
    /// When this process learned of the intent.
    tracked_since: Moment,
    /// Whether an earlier process recorded it.
    is_adopted: bool,
    /// Why it is uncertain whether the request arrived, if it is.
    uncertainty: Option<String>,
    failure: Option<String>,
    lost_reason: Option<String>,
    /// Later readings show that one of its jobs never ran.
    never_ran: bool,
    completed_jobs: usize,
    ended_at: Moment,
    after_bytes: Option<u64>,
    /// Size of the measured copy's old file when it was last read while its job ran.
    last_file_bytes: Option<u64>,
    /// The node of the copy that was measured.
    measured_on: Option<NodeIx>,
    needs_upgrade: bool,
}

impl JobTracker {
    /// Takes over intents that an earlier process left open. Their jobs may still be running, so
    /// nothing is started twice.
    pub(crate) fn adopt(&mut self, intents: impl IntoIterator<Item = Intent>, now: Moment) {
        self.began = now;
        for intent in intents {
            let doubt = "the process that started it ended before the job did".to_owned();
            let open = OpenIntent {
                uncertainty: Some(doubt),
                is_adopted: true,
                ..OpenIntent::new(intent, now)
            };
            self.open_intents.insert(open.intent.key(), open);
        }
    }

    /// Records a start that was decided.
    ///
    /// # Errors
    /// If this start, or a compaction of one of its files, is already in progress.
    pub(crate) fn accept_start(
        &mut self,
        intent: Intent,
        tables: &Snapshot,
        now: Moment,
    ) -> Result<(), StartRejected> {
        let key = intent.key();
        if self.open_intents.contains_key(&key) {
            return Err(StartRejected::AlreadyStarting);
        }
        let keys = intent_targets::job_keys(&intent, tables).ok_or(StartRejected::UnknownTarget)?;
        if keys.iter().any(|key| self.jobs.contains_key(key)) {
            return Err(StartRejected::AlreadyRunning);
        }
        if self.has_adopted_copy_of(&intent.target, now) {
            return Err(StartRejected::OtherCopyAdopted);
        }
        let mut open = OpenIntent::new(intent, now);
        self.expect_jobs(&mut open, keys, JobStage::Starting, tables, now);
        self.open_intents.insert(key, open);
        self.starts_accepted += 1;
        Ok(())
    }

    /// Number of files that a start compacts at once; `None` while the tables do not contain its node or database.
    pub(crate) fn job_count(intent: &Intent, tables: &Snapshot) -> Option<usize> {
        intent_targets::job_keys(intent, tables).map(|keys| keys.len())
    }

    /// Whether the jobs include those of every open intent.
    pub(crate) fn knows_own_jobs(&self) -> bool {
        self.open_intents.values().all(|open| open.pending_jobs.is_some())
    }

    /// Whether an earlier process may still be compacting another copy of the shard, unnoticed by
    /// plans: they show such a job only shortly after the tables contain its file.
    fn has_adopted_copy_of(&self, target: &TargetId, now: Moment) -> bool {
        let TargetId::Db { node, shard } = target else { return false };
        self.open_intents.values().filter(|open| open.is_adopted).any(|open| {
            let is_new =
                open.pending_jobs.is_none() || open.tracked_since.age(now) <= KNOWN_TO_PLANS_AFTER;
            let is_copy = matches!(&open.intent.target, TargetId::Db { node: other, shard: same }
                if same == shard && other != node);
            is_new && is_copy
        })
    }

    /// Applies the result of the request.
    pub(crate) fn apply_request_result(
        &mut self,
        key: &IntentKey,
        sent: RequestResult,
        tables: &Snapshot,
        now: Moment,
    ) -> TrackerChanges {
        let mut step = TrackerChanges::default();
        let Some(open) = self.open_intents.get_mut(key) else { return step };
        let mine = |job: &TrackedJob| job.intent.as_ref() == Some(key);
        let sure = sent == RequestResult::Accepted;
        match sent {
            RequestResult::Accepted | RequestResult::MayHaveArrived(_) => {
                if let RequestResult::MayHaveArrived(why) = sent {
                    open.uncertainty = Some(why);
                }
                for job in self.jobs.values_mut().filter(|job| mine(job)) {
                    if job.stage == JobStage::Starting {
                        job.stage = JobStage::Sent { at: now, confirmed: sure };
                        job.last_seen = now;
                    }
                }
                // CouchDB shows no task for a cleanup: it ends with the answer.
                if open.has_no_pending_jobs()
                    && let Some(open) = self.open_intents.remove(key)
                {
                    let target = intent_targets::find_target(&key.target, tables)
                        .and_then(|ix| tables.target(ix));
                    step.ended.push(
                        OpenIntent { completed_jobs: usize::from(sure), ended_at: now, ..open }
                            .into_ended(target),
                    );
                }
            }
            RequestResult::Refused(why) => {
                self.jobs.retain(|_, job| !mine(job));
                if let Some(open) = self.open_intents.remove(key) {
                    step.ended.push(
                        OpenIntent { failure: Some(why), ended_at: now, ..open }.into_ended(None),
                    );
                }
            }
            RequestResult::NotSent(_) => {
                self.jobs.retain(|_, job| !mine(job));
                self.open_intents.remove(key);
                step.withdrawn.push(key.clone());
            }
        }
        step
    }

    /// Assigns jobs to the intents of an earlier process as soon as the tables know their files.
    pub(super) fn assign_jobs(&mut self, tables: &Snapshot, now: Moment) {
        let unplaced: Vec<IntentKey> = self
            .open_intents
            .iter()
            .filter(|(_, open)| open.pending_jobs.is_none())
            .map(|(key, _)| key.clone())
            .collect();
        for key in unplaced {
            let Some(mut open) = self.open_intents.remove(&key) else { continue };
            let keys = intent_targets::job_keys(&open.intent, tables);
            let is_known = open.intent.target.kind() == TargetKind::Cleanup
                || intent_targets::find_target(&open.intent.target, tables).is_some();
            match keys.filter(|_| is_known) {
                Some(keys) => {
                    // The request was sent right after the decision, or never. A request accepted
                    // just before the restart may not show a task yet.
                    let just_now = now
                        .unix()
                        .saturating_sub((APPEARS_WITHIN_UNCONFIRMED - APPEARS_WITHIN).as_secs());
                    let at = open.intent.at.max(Moment::from_unix(just_now)).min(now);
                    let stage = JobStage::Sent { at, confirmed: false };
                    self.expect_jobs(&mut open, keys, stage, tables, now);
                }
                // The target will not appear any more.
                None if open.tracked_since.age(now) > REREAD_TIMEOUT => {
                    open.pending_jobs = Some(BTreeSet::new())
                }
                None => {}
            }
            self.open_intents.insert(key, open);
        }
    }

    /// Ends intents of an earlier process that cannot have a job.
    pub(super) fn close_orphaned_intents(
        &mut self,
        tables: &Snapshot,
        now: Moment,
        step: &mut TrackerChanges,
    ) {
        let over: Vec<IntentKey> = self
            .open_intents
            .iter()
            .filter(|(_, open)| open.has_no_pending_jobs() && open.uncertainty.is_some())
            .map(|(key, _)| key.clone())
            .collect();
        for key in over {
            let target =
                intent_targets::find_target(&key.target, tables).and_then(|ix| tables.target(ix));
            let open = self.open_intents.remove(&key);
            step.ended
                .extend(open.map(|open| OpenIntent { ended_at: now, ..open }.into_ended(target)));
        }
    }

    fn expect_jobs(
        &mut self,
        open: &mut OpenIntent,
        keys: BTreeSet<JobKey>,
        stage: JobStage,
        tables: &Snapshot,
        now: Moment,
    ) {
        let intent = &open.intent;
        let ix: Option<TargetIx> = intent_targets::find_target(&intent.target, tables);
        let target = ix.and_then(|ix| tables.target(ix));
        open.needs_upgrade = target.is_some_and(|target| target.facts().flags.needs_upgrade);
        let before = FileBefore::of_intent(intent, keys.len(), open.needs_upgrade);
        for key in &keys {
            let job = self.jobs.entry(key.clone()).or_insert_with(|| TrackedJob {
                progress: JobProgress::unknown(intent.at),
                ..TrackedJob::new(intent.target.kind(), intent.at, now, stage)
            });
            // A node may have shown the task before the tables knew its file.
            job.target = ix.or(job.target);
            job.target_id = Some(intent.target.clone());
            job.intent = Some(intent.key());
            job.channel = Some(intent.channel.as_str().into());
            job.started_at = intent.at;
            job.file_before = before;
            job.peak_bytes = intent.peak_bytes / keys.len().max(1) as u64;
            job.is_measured_copy =
                target.is_some_and(|target| intent_targets::is_measured(target, key, tables));
        }
        open.job_count = keys.len();
        open.pending_jobs = Some(keys);
    }
}

impl OpenIntent {
    fn new(intent: Intent, now: Moment) -> Self {
        Self {
            ended_at: intent.at,
            intent,
            pending_jobs: None,
            job_count: 0,
            tracked_since: now,
            is_adopted: false,
            uncertainty: None,
            failure: None,
            lost_reason: None,
            never_ran: false,
            completed_jobs: 0,
            after_bytes: None,
            last_file_bytes: None,
            measured_on: None,
            needs_upgrade: false,
        }
    }

    /// Whether an operator ordered it, and not as a member of a run.
    pub(super) const fn is_ordered(&self) -> bool {
        self.intent.ordered_by.is_some() && self.intent.run.is_none()
    }

    pub(super) fn restart_wait(&mut self, now: Moment) {
        self.tracked_since = now;
    }

    /// Whether all jobs of the intent ended, or it has none.
    pub(super) fn has_no_pending_jobs(&self) -> bool {
        self.pending_jobs.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// Records that one of the jobs ended.
    pub(super) fn record_job_end(
        &mut self,
        key: &JobKey,
        verdict: JobVerdict,
        at: Moment,
        job: &TrackedJob,
        target: Option<TargetRef<'_>>,
    ) {
        if let Some(pending) = &mut self.pending_jobs {
            pending.remove(key);
        }
        self.ended_at = self.ended_at.max(at);
        if job.is_measured_copy {
            self.measured_on = Some(key.node);
            self.last_file_bytes = job.last_file_bytes;
            self.after_bytes = target
                .filter(|_| verdict == JobVerdict::Completed)
                .and_then(|target| target.facts_on(key.node)?.file_bytes.get());
        }
        match verdict {
            JobVerdict::Completed => self.completed_jobs += 1,
            JobVerdict::Failed(why) => self.failure = Some(why),
            JobVerdict::NeverRan => self.never_ran = true,
            JobVerdict::Lost(why) => self.lost_reason = Some(why),
        }
    }

    /// The outcome of the intent. If one of several copies failed, the whole intent counts as
    /// failed, because it is retried as a whole.
    pub(super) fn into_ended(self, target: Option<TargetRef<'_>>) -> EndedJob {
        let Self { intent, .. } = self;
        let unconfirmed = self.uncertainty.is_some();
        let unsure = unconfirmed && !self.never_ran;
        let lost = self.lost_reason.or_else(|| self.never_ran.then(|| NEVER_RAN.into()));
        let verdict = match (self.failure, lost) {
            (Some(why), _) => JobVerdict::Failed(why),
            (None, Some(why)) if self.completed_jobs == 0 => {
                JobVerdict::Lost(match self.uncertainty {
                    Some(doubt) => format!("{doubt}; {why}"),
                    None => why,
                })
            }
            (None, None) if self.completed_jobs == 0 => JobVerdict::Lost(
                self.uncertainty.unwrap_or_else(|| "nothing is known about it".into()),
            ),
            (None, _) => JobVerdict::Completed,
        };
        let all = |per_file: u64| per_file.saturating_mul(self.job_count.max(1) as u64);
        let after = self.after_bytes.filter(|_| verdict == JobVerdict::Completed);
        let kind = intent.target.kind();
        let file_before = FileBefore::of_intent(&intent, self.job_count, self.needs_upgrade);
        let facts_after = target.and_then(|target| match self.measured_on {
            Some(node) => target.facts_on(node),
            None => Some(target.facts()),
        });
        let active_after = facts_after.and_then(|facts| facts.active_bytes.get());
        let measured = measure_after(kind, &facts_after.unwrap_or_default(), after, &file_before);
        let old_file = file_before.with_last_size(self.last_file_bytes);
        let written = measured.changes_bytes.filter(|_| self.last_file_bytes.is_none());
        let is_outgrown = old_file.is_outgrown(after, active_after, written);
        let before = intent.file_bytes.max(self.last_file_bytes.map(all));
        let before = before.filter(|_| self.measured_on.is_some() && !is_outgrown);
        let (ending, why) = ending(verdict, before, after.map(all));
        let why = if is_outgrown { why.map(|_| OUTGROWN.to_owned()) } else { why };
        let may_have_run = unsure && target.is_some() && ending == JobResult::Lost;
        let closes = Some(intent.key());
        let file_before = file_before.as_far_as_still_true(measured.active_bytes);
        let predicts = self.measured_on.is_some() && file_before.predicted_bytes.is_some();
        let ended_at = self.ended_at.max(intent.at);
        EndedJob {
            closed_intent: closes,
            evidence: target
                .zip(facts_after)
                .and_then(|of| evidence::of_compaction(&file_before, of, &measured, ended_at)),
            copied_bytes: copied_bytes(intent.active_bytes, target),
            after: measured,
            copies: self.measured_on.map_or_else(
                || target.map_or(1, TargetRef::file_count),
                |node| copies_in_round(target, node),
            ),
            may_have_run,
            never_arrived: unconfirmed && self.never_ran && ending == JobResult::Lost,
            outcome: Outcome {
                target: intent.target,
                kind,
                node: intent.node,
                design: intent.design,
                channel: Some(intent.channel),
                owner: JobOwner::Recliner,
                ordered_by: intent.ordered_by,
                started_at: intent.at,
                ended_after: None,
                ended_at,
                charged_bytes: intent.file_bytes,
                before_bytes: before,
                after_bytes: after.map(all),
                predicted_bytes: intent.predicted_bytes.filter(|_| predicts),
                ending,
                why,
            },
        }
    }
}

/// Maps a verdict and the sizes before and after to an ending.
pub(super) fn ending(
    verdict: JobVerdict,
    before: Option<u64>,
    after: Option<u64>,
) -> (JobResult, Option<String>) {
    match verdict {
        JobVerdict::Failed(why) => (JobResult::Failed, Some(why)),
        JobVerdict::NeverRan => (JobResult::Lost, Some(NEVER_RAN.into())),
        JobVerdict::Lost(why) => (JobResult::Lost, Some(why)),
        JobVerdict::Completed => match before.zip(after) {
            Some((before, after)) if after > before => (JobResult::Grew, None),
            Some((before, after)) if !frees_little(before, after) => (JobResult::Freed, None),
            Some(_) => (JobResult::NothingFreed, None),
            None => {
                let unknown = match (before, after) {
                    (None, Some(_)) => "its size before the job is unknown",
                    (Some(_), None) => "its size after the job is unknown",
                    _ => "its sizes before and after the job are unknown",
                };
                (JobResult::Unmeasured, Some(unknown.into()))
            }
        },
    }
}

/// Active bytes that a job had to copy. If the file is written to during the job, the new data is
/// copied too.
pub(super) fn copied_bytes(before: Option<u64>, target: Option<TargetRef<'_>>) -> Option<u64> {
    let db = target.filter(|target| target.kind() == TargetKind::Db);
    let after = db.and_then(|target| target.facts().active_bytes.get());
    before.map(|before| before.max(after.unwrap_or_default()))
}

/// The number of copies in a round that compacts this one: only this one, if the others are known to have little waste.
pub(super) fn copies_in_round(target: Option<TargetRef<'_>>, node: NodeIx) -> u32 {
    let Some(target) = target else { return 1 };
    let is_last = match target.copies() {
        ViewCopies::Unknown => false,
        ViewCopies::Alike => target.is_copy_lean(node),
        ViewCopies::Differ(_) => target.is_round_over(&BTreeSet::from([node])),
    };
    if is_last { 1 } else { target.file_count() }
}

/// Measurements of the file after a job.
pub(super) fn measure_after(
    kind: TargetKind,
    facts: &Facts,
    after: Option<u64>,
    before: &FileBefore,
) -> AfterCompaction {
    // A database's header contains the sequence at the swap; later changes were not copied.
    let swapped_at = match kind {
        TargetKind::Db => facts.compacted_seq.get(),
        TargetKind::View | TargetKind::Cleanup | TargetKind::Search => facts.update_seq.get(),
    };
    let changes = before.update_seq.zip(swapped_at).and_then(|(then, now)| now.checked_sub(then));
    AfterCompaction {
        file_bytes: after,
        active_bytes: facts.active_bytes.get(),
        predicted_bytes: Correction::NONE.predicted_bytes(kind, facts),
        update_seq: facts.update_seq.get(),
        changes,
        changes_bytes: changes.and_then(|changes| before.waste_of_changes(changes)),
        not_upgraded: before.needs_upgrade && after.is_some() && facts.flags.needs_upgrade,
    }
}

impl JobKind {
    /// The design document of the index, if the job works on one.
    #[must_use]
    pub fn design(&self) -> Option<&str> {
        match self {
            Self::CompactDb => None,
            Self::CompactView(design) | Self::BuildView(design) | Self::BuildSearch(design, _) => {
                Some(design)
            }
        }
    }
}
