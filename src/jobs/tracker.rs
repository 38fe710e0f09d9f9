//! Tracks jobs from three sources: task lists of nodes, facts of files, and requests sent. Pure.
//!
//! Holds every job from the decision to start it, or from the first poll that shows it, until
//! its outcome is known. A job is identified by node, shard and kind, because CouchDB changes the
//! process id and restarts its counters in each pass and phase. A node that did not answer ends
//! no jobs.

mod intents;
mod others;
mod place;

pub use intents::{Sent, StartRefused};

use super::{
    Job, JobKey, Jobs, Phase, Polled, Running, Task, Work,
    judge::{self, Before, Gone, Verdict},
    progress::Progress,
};
use crate::{
    model::{
        facts::Facts,
        memory::{IntentKey, Left, Outcome, Owner},
        target::{Kind, TargetId},
    },
    table::{Ix, NodeIx, Snapshot, TargetRef},
};
use intents::Open;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use wall_clock::Moment;

/// CouchDB shows a job at the latest this long after it accepted the request. 20 to 70 ms were
/// measured, and 230 ms on a loaded machine.
const SETTLES: Duration = Duration::from_secs(2);

/// The same limit if it is unknown whether the request arrived.
const SETTLES_UNSURE: Duration = Duration::from_secs(30);

/// How long a file may stay unread after its task disappeared.
const UNREAD: Duration = Duration::from_secs(900);

/// How long a job is kept if its node does not answer.
const SILENT: Duration = Duration::from_secs(3600);

/// Inputs of the tracker beside task lists and facts.
pub struct Rules<'a> {
    /// Peak size of a database compaction as a multiple of its active bytes.
    pub headroom_factor: f64,
    /// Returns the channel that takes a target.
    pub channel_of: &'a dyn Fn(TargetRef<'_>) -> Option<Arc<str>>,
}

impl std::fmt::Debug for Rules<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Rules")
            .field("headroom_factor", &self.headroom_factor)
            .finish_non_exhaustive()
    }
}

/// Changes that follow from an observation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Jobs that ended.
    pub ended: Vec<Ended>,
    /// Intents whose request was never sent.
    pub withdrawn: Vec<IntentKey>,
    /// Targets that must be read again to determine how their jobs ended.
    pub reread: BTreeSet<Ix>,
}

/// A job that ended, or all jobs of one intent.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// How it ended.
    pub outcome: Outcome,
    /// The intent that this closes, if any.
    pub closes: Option<IntentKey>,
    /// Active bytes the job had to copy: those before it, or for a database those after it if
    /// writes in between made them more.
    pub active_bytes: Option<u64>,
    /// Measurements of the file afterwards.
    pub left: Left,
    /// Number of files the target has in the whole cluster.
    pub copies: u32,
    /// Whether it ended [`Ending::Lost`](crate::model::memory::Ending::Lost) because it is unknown
    /// whether its request arrived, and no later reading shows that it did not.
    pub may_have_run: bool,
}

/// All jobs and all open intents.
#[derive(Debug, Default)]
pub struct Tracker {
    jobs: BTreeMap<JobKey, Tracked>,
    intents: BTreeMap<IntentKey, Open>,
    polled: Vec<(NodeIx, Moment)>,
    taken: u64,
}

/// One job with its state.
#[derive(Debug)]
struct Tracked {
    target: Option<Ix>,
    id: Option<TargetId>,
    kind: Kind,
    intent: Option<IntentKey>,
    channel: Option<Arc<str>>,
    /// When the job started, as far as known.
    since: Moment,
    /// When this process first learned of the job.
    first_seen: Moment,
    last_seen: Moment,
    stage: Stage,
    progress: Progress,
    before: Before,
    /// Whether the target's facts describe the file this job works on.
    measured: bool,
    peak: u64,
}

/// How far a job has come.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// The request is still waiting for its answer.
    Starting,
    /// The request was answered, or may have arrived; no poll shows the task yet.
    Sent { at: Moment, sure: bool },
    /// A node shows the task.
    Shown { suspended: bool },
    /// No node shows the task any more.
    Gone(Gone),
}

impl Tracker {
    /// Applies the task lists of the nodes.
    pub fn polled(
        &mut self,
        running: &Running,
        tables: &Snapshot,
        rules: &Rules<'_>,
        now: Moment,
    ) -> Step {
        self.place(tables, now);
        self.polled.clear();
        for (node, polled) in &running.nodes {
            let Polled { asked_at, tasks: Some(tasks) } = polled else { continue };
            self.polled.push((*node, *asked_at));
            let mut shown = BTreeSet::new();
            for task in tasks.iter().filter(|task| !helps(task, tasks)) {
                let helper = tasks.iter().find(|other| helps_with(other, task));
                self.shown(task, helper, tables, rules, now);
                shown.insert(task.key.clone());
            }
            self.missed(*node, *asked_at, &shown);
        }
        let step = self.measured(tables, now);
        Step { reread: self.unread(tables), ..step }
    }

    /// Targets whose files must be read to determine how their jobs ended or how large they were
    /// before. Requested with each poll rather than each reading, because a file read in the second
    /// in which a task disappeared may not be conclusive.
    #[must_use]
    pub fn unread(&self, tables: &Snapshot) -> BTreeSet<Ix> {
        let wanted = |job: &&Tracked| match job.stage {
            Stage::Gone(_) => true,
            Stage::Shown { .. } => job.wants_sizes(tables),
            Stage::Starting | Stage::Sent { .. } => false,
        };
        let gone = self.jobs.values().filter(wanted);
        gone.filter_map(|job| Some(job.alive(tables)?.ix())).collect()
    }

    /// Restarts all waiting periods after the system clock was set.
    pub fn clock_set(&mut self, now: Moment) {
        for job in self.jobs.values_mut() {
            job.last_seen = now;
            job.first_seen = job.first_seen.min(now);
            match &mut job.stage {
                Stage::Sent { at, .. } => *at = now,
                Stage::Gone(gone) => gone.at = now,
                Stage::Starting | Stage::Shown { .. } => {}
            }
        }
        for open in self.intents.values_mut() {
            open.waits_from(now);
        }
    }

    /// Applies facts read since the last call.
    pub fn measured(&mut self, tables: &Snapshot, now: Moment) -> Step {
        self.place(tables, now);
        self.jobs.values_mut().for_each(|job| job.find_again(tables));
        let mut step = Step::default();
        let mut over = Vec::new();
        for (key, job) in &mut self.jobs {
            job.look_at_sizes(tables);
            let verdict = match job.stage {
                Stage::Gone(gone) => job.judged(gone, tables, now),
                // Ended between two polls, or while this program was not running.
                Stage::Sent { .. } if job.swapped(tables, now) => Some(Some(Verdict::Done)),
                Stage::Starting | Stage::Sent { .. } | Stage::Shown { .. } => {
                    let silent = job.last_seen.age(now) > SILENT;
                    silent.then(|| {
                        Some(Verdict::Lost("its node has not answered for an hour".into()))
                    })
                }
            };
            over.extend(verdict.map(|verdict| (key.clone(), verdict)));
        }
        for (key, verdict) in over {
            self.over(&key, verdict, tables, now, &mut step);
        }
        self.forlorn(tables, now, &mut step);
        step
    }

    /// Whether a start of this target has no outcome yet.
    #[must_use]
    pub fn has_open(&self, id: &TargetId) -> bool {
        self.intents.keys().any(|key| key.target == *id)
    }

    /// Number of starts accepted so far.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// A snapshot of all jobs.
    #[must_use]
    pub fn jobs(&self) -> Jobs {
        let list = self.jobs.iter().map(|(key, job)| job.shown(key)).collect();
        Jobs { list, polled: self.polled.clone(), taken: self.taken }
    }

    fn shown(
        &mut self,
        task: &Task,
        helper: Option<&Task>,
        tables: &Snapshot,
        rules: &Rules<'_>,
        now: Moment,
    ) {
        let job = self.jobs.entry(task.key.clone()).or_insert_with(|| Tracked::others(task, now));
        if job.target.is_none() {
            job.target = task.target;
        }
        if job.id.is_none()
            && let Some(target) = job.target.and_then(|ix| tables.target(ix))
        {
            job.about(target, &task.key, tables, rules);
        }
        let suspended = task.seen.process_status.as_deref() == Some("suspended");
        job.stage = Stage::Shown { suspended };
        job.last_seen = now;
        job.progress.seen(&task.seen, helper.map(|helper| &helper.seen), now);
    }

    /// Marks jobs that a polled node no longer shows.
    fn missed(&mut self, node: NodeIx, asked_at: Moment, shown: &BTreeSet<JobKey>) {
        let missing = |key: &JobKey| key.node == node && !shown.contains(key);
        self.jobs.retain(|key, _| {
            !(missing(key) && matches!(key.work, Work::Build(_) | Work::BuildSearch(..)))
        });
        for (_, job) in self.jobs.iter_mut().filter(|(key, _)| missing(key)) {
            let gone =
                Gone { at: asked_at, seen: false, accepted: false, progress: job.progress.share };
            match job.stage {
                Stage::Shown { .. } => job.stage = Stage::Gone(Gone { seen: true, ..gone }),
                Stage::Sent { at, sure } => {
                    let settles = if sure { SETTLES } else { SETTLES_UNSURE };
                    if asked_at >= at.plus(settles) {
                        job.stage = Stage::Gone(Gone { accepted: sure, ..gone });
                    }
                }
                Stage::Starting | Stage::Gone(_) => {}
            }
        }
    }

    /// Ends a job: on its own if another program started it, otherwise together with the other jobs
    /// of its intent.
    fn over(
        &mut self,
        key: &JobKey,
        verdict: Option<Verdict>,
        tables: &Snapshot,
        now: Moment,
        step: &mut Step,
    ) {
        let Some(job) = self.jobs.remove(key) else { return };
        let verdict = verdict.unwrap_or_else(|| Verdict::Lost("its target is unknown".into()));
        let ended_at = match job.stage {
            Stage::Gone(gone) => gone.at,
            Stage::Starting | Stage::Sent { .. } | Stage::Shown { .. } => now,
        };
        let target = job.alive(tables);
        match &job.intent {
            Some(intent) => {
                let Some(open) = self.intents.get_mut(intent) else { return };
                open.over(key, verdict, ended_at, &job, target);
                if open.waits_for_none() {
                    let open = self.intents.remove(intent);
                    step.ended.extend(open.map(|open| open.ended(target)));
                }
            }
            None => step.ended.extend(job.ended(key, verdict, ended_at, tables, target)),
        }
    }
}

/// Whether a task is the indexer of a compaction that rebuilds its index.
fn helps(task: &Task, tasks: &[Task]) -> bool {
    tasks.iter().any(|other| helps_with(task, other))
}

/// Whether a task is the indexer of the given compaction, according to the process id it reports.
fn helps_with(task: &Task, compaction: &Task) -> bool {
    matches!((&task.key.work, &compaction.key.work), (Work::Build(one), Work::View(other)) if one == other)
        && task.key.shard == compaction.key.shard
        && task.seen.indexer_pid.is_some()
        && task.seen.indexer_pid == compaction.seen.pid
}

impl Tracked {
    /// The target, if it is still the same one. A job that appeared before the tables knew its file
    /// has no id yet.
    fn alive<'a>(&self, tables: &'a Snapshot) -> Option<TargetRef<'a>> {
        let target = tables.target(self.target?)?;
        self.id.as_ref().is_none_or(|id| target.id() == *id).then_some(target)
    }

    /// Whether the file was read since and shows that a compaction ended.
    fn swapped(&self, tables: &Snapshot, now: Moment) -> bool {
        let Some(target) = self.alive(tables).filter(|_| self.kind == Kind::Db) else {
            return false;
        };
        let facts = target.facts();
        let measured = facts.measured_at.map(|measured| measured.at);
        let since = measured.is_some_and(|at| at >= self.last_seen && at <= now);
        since && judge::swapped(&self.before, &facts)
    }

    /// How the job ended. `Some(None)` if its target was never known; `None` if its file must be
    /// read again.
    #[expect(
        clippy::option_option,
        reason = "still waiting, ended with a verdict, or ended without one"
    )]
    fn judged(&self, gone: Gone, tables: &Snapshot, now: Moment) -> Option<Option<Verdict>> {
        let unread = gone.at.age(now) > UNREAD;
        let Some(target) = self.alive(tables) else {
            return match self.target {
                Some(_) if self.id.is_some() => {
                    Some(Some(Verdict::Lost("its database or view no longer exists".into())))
                }
                // The tables may still be filling after a start.
                _ => unread.then_some(None),
            };
        };
        let facts = target.facts();
        // A reading with a time in the future predates a backward change of the clock.
        let facts = if facts.measured_at.is_some_and(|measured| measured.at > now) {
            Facts::default()
        } else {
            facts
        };
        let verdict = match self.kind {
            Kind::Db => judge::db(&self.before, gone, &facts),
            Kind::View | Kind::Cleanup | Kind::Search => {
                judge::view(&self.before, gone, self.measured, &facts)
            }
        };
        if verdict.is_none() && unread {
            let why = "its file could not be read for 15 minutes";
            return Some(Some(Verdict::Lost(why.into())));
        }
        verdict.map(Some)
    }

    fn shown(&self, key: &JobKey) -> Job {
        let written = self.progress.share.unwrap_or_default();
        Job {
            key: key.clone(),
            target: self.target,
            kind: self.kind,
            owner: if self.intent.is_some() { Owner::Recliner } else { Owner::Other },
            channel: self.channel.clone(),
            since: self.since,
            phase: match self.stage {
                Stage::Starting | Stage::Sent { .. } => Phase::Starting,
                Stage::Shown { suspended: false } => Phase::Running,
                Stage::Shown { suspended: true } => Phase::Suspended,
                Stage::Gone(_) => Phase::Ending,
            },
            progress: self.progress.share,
            last_progress: self.progress.moved_at,
            reserved: scaled(self.peak, 1.0 - written),
            file_bytes: self.before.file,
            predicted_bytes: self.before.predicted,
        }
    }

    /// The outcome of a job that another program started; `None` if its target was never known.
    fn ended(
        &self,
        key: &JobKey,
        verdict: Verdict,
        at: Moment,
        tables: &Snapshot,
        target: Option<TargetRef<'_>>,
    ) -> Option<Ended> {
        let after = target
            .filter(|_| verdict == Verdict::Done && self.measured)
            .and_then(|it| it.facts().file.get());
        let before = self.before.file.filter(|_| self.measured);
        let (ending, why) = intents::ending(verdict, before, after);
        let outcome = Outcome {
            target: self.id.clone()?,
            kind: self.kind,
            node: tables.node(key.node)?.name.to_string(),
            design: key.work.design().map(Into::into),
            channel: self.channel.as_deref().map(Into::into),
            owner: Owner::Other,
            ordered_by: None,
            started_at: self.since,
            ended_at: at.max(self.since),
            before_bytes: before,
            after_bytes: after,
            predicted_bytes: self.before.predicted.filter(|_| self.measured),
            ending,
            why,
        };
        Some(Ended {
            outcome,
            closes: None,
            active_bytes: intents::copied(self.before.active, target),
            left: intents::left(target, after, self.before.update_seq, self.before.needs_upgrade),
            copies: target.map_or(1, TargetRef::copies),
            may_have_run: false,
        })
    }
}

/// Multiplies a number of bytes by a factor.
fn scaled(bytes: u64, factor: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "never negative, and a conversion from float saturates"
    )]
    let scaled = (bytes as f64 * factor.max(0.0)) as u64;
    scaled
}

#[cfg(test)]
mod tests;
