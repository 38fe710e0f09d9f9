//! Starts made by this program, from the decision until all their jobs have ended.

use super::{Ended, SETTLES, SETTLES_UNSURE, Stage, Step, Tracked, Tracker, UNREAD, place};
use crate::{
    jobs::{
        JobKey, Work,
        judge::{Before, Verdict},
        progress::Progress,
    },
    model::{
        memory::{Ending, Intent, IntentKey, Left, Outcome, Owner},
        target::Kind,
    },
    table::{Ix, Snapshot, TargetRef},
};
use std::collections::BTreeSet;
use wall_clock::Moment;

const NEVER_RAN: &str = "there is no evidence that it ever ran";

/// Result of sending a start request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// CouchDB accepted it (202). This does not prove that anything was started.
    Accepted,
    /// CouchDB refused it, with the reason.
    Refused(String),
    /// It was not sent, with the reason.
    NotSent(String),
    /// It may have arrived, with the reason for the uncertainty.
    Unknown(String),
}

/// Why a start is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartRefused {
    /// An intent with the same key is open.
    #[error("it is already being started")]
    Open,
    /// A job is working on one of the target's files.
    #[error("a compaction of it is already running")]
    Runs,
    /// The tables do not contain its node or database.
    #[error("its node or database is no longer known")]
    Unknown,
}

/// An open intent with the results of its jobs so far.
#[derive(Debug)]
pub(super) struct Open {
    intent: Intent,
    /// Jobs that have not ended; `None` while the tables do not know them.
    waits: Option<BTreeSet<JobKey>>,
    jobs: usize,
    /// When this process learned of the intent.
    since: Moment,
    /// Why it is uncertain whether the request arrived, if it is.
    doubt: Option<String>,
    failed: Option<String>,
    lost: Option<String>,
    /// Later readings show that one of its jobs never ran.
    never_ran: bool,
    done: usize,
    ended_at: Moment,
    after: Option<u64>,
    measured: bool,
    needs_upgrade: bool,
}

impl Tracker {
    /// Takes over intents that an earlier process left open. Their jobs may still be running, so
    /// nothing is started twice.
    pub fn adopt(&mut self, intents: impl IntoIterator<Item = Intent>, now: Moment) {
        for intent in intents {
            let doubt = "the process that started it ended before the job did".to_owned();
            let open = Open { doubt: Some(doubt), ..Open::new(intent, now) };
            self.intents.insert(open.intent.key(), open);
        }
    }

    /// Records a start that was decided.
    ///
    /// # Errors
    /// If this start, or a compaction of one of its files, is already in progress.
    pub fn start(
        &mut self,
        intent: Intent,
        tables: &Snapshot,
        now: Moment,
    ) -> Result<(), StartRefused> {
        let key = intent.key();
        if self.intents.contains_key(&key) {
            return Err(StartRefused::Open);
        }
        let keys = place::keys(&intent, tables).ok_or(StartRefused::Unknown)?;
        if keys.iter().any(|key| self.jobs.contains_key(key)) {
            return Err(StartRefused::Runs);
        }
        let mut open = Open::new(intent, now);
        self.expect(&mut open, keys, Stage::Starting, tables, now);
        self.intents.insert(key, open);
        self.taken += 1;
        Ok(())
    }

    /// Applies the result of the request.
    pub fn sent(&mut self, key: &IntentKey, sent: Sent, tables: &Snapshot, now: Moment) -> Step {
        let mut step = Step::default();
        let Some(open) = self.intents.get_mut(key) else { return step };
        let mine = |job: &Tracked| job.intent.as_ref() == Some(key);
        let sure = sent == Sent::Accepted;
        match sent {
            Sent::Accepted | Sent::Unknown(_) => {
                if let Sent::Unknown(why) = sent {
                    open.doubt = Some(why);
                }
                for job in self.jobs.values_mut().filter(|job| mine(job)) {
                    if job.stage == Stage::Starting {
                        job.stage = Stage::Sent { at: now, sure };
                        job.last_seen = now;
                    }
                }
                // CouchDB shows no task for a cleanup: it ends with the answer.
                if open.waits_for_none()
                    && let Some(open) = self.intents.remove(key)
                {
                    let target = place::find(&key.target, tables).and_then(|ix| tables.target(ix));
                    step.ended.push(
                        Open { done: usize::from(sure), ended_at: now, ..open }.ended(target),
                    );
                }
            }
            Sent::Refused(why) => {
                self.jobs.retain(|_, job| !mine(job));
                if let Some(open) = self.intents.remove(key) {
                    step.ended.push(Open { failed: Some(why), ended_at: now, ..open }.ended(None));
                }
            }
            Sent::NotSent(_) => {
                self.jobs.retain(|_, job| !mine(job));
                self.intents.remove(key);
                step.withdrawn.push(key.clone());
            }
        }
        step
    }

    /// Assigns jobs to the intents of an earlier process as soon as the tables know their files.
    pub(super) fn place(&mut self, tables: &Snapshot, now: Moment) {
        let unplaced: Vec<IntentKey> = self
            .intents
            .iter()
            .filter(|(_, open)| open.waits.is_none())
            .map(|(key, _)| key.clone())
            .collect();
        for key in unplaced {
            let Some(mut open) = self.intents.remove(&key) else { continue };
            let keys = place::keys(&open.intent, tables);
            let known = open.intent.target.kind() == Kind::Cleanup
                || place::find(&open.intent.target, tables).is_some();
            match keys.filter(|_| known) {
                Some(keys) => {
                    // The request was sent when it was decided, or never. A request accepted just
                    // before the restart may not show a task yet.
                    let just_now = now.unix().saturating_sub((SETTLES_UNSURE - SETTLES).as_secs());
                    let at = open.intent.at.max(Moment::from_unix(just_now)).min(now);
                    let stage = Stage::Sent { at, sure: false };
                    self.expect(&mut open, keys, stage, tables, now);
                }
                // The target will not appear any more.
                None if open.since.age(now) > UNREAD => open.waits = Some(BTreeSet::new()),
                None => {}
            }
            self.intents.insert(key, open);
        }
    }

    /// Ends intents of an earlier process that cannot have a job.
    pub(super) fn forlorn(&mut self, tables: &Snapshot, now: Moment, step: &mut Step) {
        let over: Vec<IntentKey> = self
            .intents
            .iter()
            .filter(|(_, open)| open.waits_for_none() && open.doubt.is_some())
            .map(|(key, _)| key.clone())
            .collect();
        for key in over {
            let target = place::find(&key.target, tables).and_then(|ix| tables.target(ix));
            let open = self.intents.remove(&key);
            step.ended.extend(open.map(|open| Open { ended_at: now, ..open }.ended(target)));
        }
    }

    fn expect(
        &mut self,
        open: &mut Open,
        keys: BTreeSet<JobKey>,
        stage: Stage,
        tables: &Snapshot,
        now: Moment,
    ) {
        let intent = &open.intent;
        let ix: Option<Ix> = place::find(&intent.target, tables);
        let target = ix.and_then(|ix| tables.target(ix));
        open.needs_upgrade = target.is_some_and(|target| target.facts().flags.needs_upgrade);
        let each = |bytes: Option<u64>| Some(bytes? / keys.len().max(1) as u64);
        for key in &keys {
            let before = Before {
                file: each(intent.file_bytes),
                active: each(intent.active_bytes),
                predicted: each(intent.predicted_bytes),
                update_seq: intent.update_seq,
                compacted_seq: intent.compacted_seq,
                needs_upgrade: open.needs_upgrade,
            };
            let job = self.jobs.entry(key.clone()).or_insert_with(|| Tracked {
                target: ix,
                id: Some(intent.target.clone()),
                kind: intent.target.kind(),
                intent: None,
                channel: None,
                since: intent.at,
                first_seen: now,
                last_seen: now,
                stage,
                progress: Progress::unknown(intent.at),
                before,
                measured: false,
                peak: 0,
            });
            // A node may have shown the task before the tables knew its file.
            job.target = ix.or(job.target);
            job.id = Some(intent.target.clone());
            job.intent = Some(intent.key());
            job.channel = Some(intent.channel.as_str().into());
            job.since = intent.at;
            job.before = before;
            job.peak = intent.peak_bytes / keys.len().max(1) as u64;
            job.measured = target.is_some_and(|target| place::is_measured(target, key, tables));
        }
        open.jobs = keys.len();
        open.waits = Some(keys);
    }
}

impl Open {
    fn new(intent: Intent, now: Moment) -> Self {
        Self {
            ended_at: intent.at,
            intent,
            waits: None,
            jobs: 0,
            since: now,
            doubt: None,
            failed: None,
            lost: None,
            never_ran: false,
            done: 0,
            after: None,
            measured: false,
            needs_upgrade: false,
        }
    }

    /// Restarts the waiting period.
    pub(super) fn waits_from(&mut self, now: Moment) {
        self.since = now;
    }

    /// Whether all jobs of the intent ended, or it has none.
    pub(super) fn waits_for_none(&self) -> bool {
        self.waits.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// Records that one of the jobs ended.
    pub(super) fn over(
        &mut self,
        key: &JobKey,
        verdict: Verdict,
        at: Moment,
        job: &Tracked,
        target: Option<TargetRef<'_>>,
    ) {
        if let Some(waits) = &mut self.waits {
            waits.remove(key);
        }
        self.ended_at = self.ended_at.max(at);
        if job.measured {
            self.measured = true;
            self.after = target
                .filter(|_| verdict == Verdict::Done)
                .and_then(|target| target.facts().file.get());
        }
        match verdict {
            Verdict::Done => self.done += 1,
            Verdict::Failed(why) => self.failed = Some(why),
            Verdict::NeverRan => self.never_ran = true,
            Verdict::Lost(why) => self.lost = Some(why),
        }
    }

    /// The outcome of the intent. If one of several copies failed, the whole intent counts as
    /// failed, because it is retried as a whole.
    pub(super) fn ended(self, target: Option<TargetRef<'_>>) -> Ended {
        let Self { intent, .. } = self;
        let unsure = self.doubt.is_some() && !self.never_ran;
        let lost = self.lost.or_else(|| self.never_ran.then(|| NEVER_RAN.into()));
        let verdict = match (self.failed, lost) {
            (Some(why), _) => Verdict::Failed(why),
            (None, Some(why)) if self.done == 0 => Verdict::Lost(match self.doubt {
                Some(doubt) => format!("{doubt}; {why}"),
                None => why,
            }),
            (None, None) if self.done == 0 => {
                Verdict::Lost(self.doubt.unwrap_or_else(|| "nothing is known about it".into()))
            }
            (None, _) => Verdict::Done,
        };
        let all = |per_file: u64| per_file.saturating_mul(self.jobs.max(1) as u64);
        let after = self.after.filter(|_| verdict == Verdict::Done);
        let before = intent.file_bytes.filter(|_| self.measured);
        let (ending, why) = ending(verdict, before, after.map(all));
        let may_have_run = unsure && target.is_some() && ending == Ending::Lost;
        let closes = Some(intent.key());
        let kind = intent.target.kind();
        Ended {
            closes,
            active_bytes: copied(intent.active_bytes, target),
            left: left(target, after, intent.update_seq, self.needs_upgrade),
            copies: target.map_or(1, TargetRef::copies),
            may_have_run,
            outcome: Outcome {
                target: intent.target,
                kind,
                node: intent.node,
                design: intent.design,
                channel: Some(intent.channel),
                owner: Owner::Recliner,
                ordered_by: intent.ordered_by,
                started_at: intent.at,
                ended_at: self.ended_at.max(intent.at),
                before_bytes: before,
                after_bytes: after.map(all),
                predicted_bytes: intent.predicted_bytes.filter(|_| self.measured),
                ending,
                why,
            },
        }
    }
}

/// Maps a verdict and the sizes before and after to an ending.
pub(super) fn ending(
    verdict: Verdict,
    before: Option<u64>,
    after: Option<u64>,
) -> (Ending, Option<String>) {
    match verdict {
        Verdict::Failed(why) => (Ending::Failed, Some(why)),
        Verdict::NeverRan => (Ending::Lost, Some(NEVER_RAN.into())),
        Verdict::Lost(why) => (Ending::Lost, Some(why)),
        Verdict::Done => match before.zip(after) {
            Some((before, after)) if after < before => (Ending::Freed, None),
            Some((before, after)) if after > before => (Ending::Grew, None),
            Some(_) => (Ending::NothingFreed, None),
            None => {
                let unknown = match (before, after) {
                    (None, Some(_)) => "its size before is unknown",
                    (Some(_), None) => "its size after is unknown",
                    _ => "its sizes are unknown",
                };
                (Ending::Unmeasured, Some(unknown.into()))
            }
        },
    }
}

/// Active bytes that a job had to copy. If the file is written to during the job, the new data is
/// copied too.
pub(super) fn copied(before: Option<u64>, target: Option<TargetRef<'_>>) -> Option<u64> {
    let db = target.filter(|target| target.kind() == Kind::Db);
    let after = db.and_then(|target| target.facts().active.get());
    before.map(|before| before.max(after.unwrap_or_default()))
}

/// Measurements of the target after a job; `seq` is the last sequence before it.
pub(super) fn left(
    target: Option<TargetRef<'_>>,
    after: Option<u64>,
    seq: Option<u64>,
    needed_upgrade: bool,
) -> Left {
    let facts = target.map(TargetRef::facts).unwrap_or_default();
    let kind = target.map_or(Kind::Db, TargetRef::kind);
    // A database's header holds the sequence at the swap; later changes were not copied.
    let swapped_at = match kind {
        Kind::Db => facts.compacted_seq.get(),
        Kind::View | Kind::Cleanup | Kind::Search => facts.update_seq.get(),
    };
    Left {
        file_bytes: after,
        active_bytes: facts.active.get(),
        predicted_bytes: crate::model::estimate::predicted(kind, &facts),
        update_seq: facts.update_seq.get(),
        changes: seq.zip(swapped_at).and_then(|(then, now)| now.checked_sub(then)),
        not_upgraded: needed_upgrade && after.is_some() && facts.flags.needs_upgrade,
    }
}

impl Work {
    /// The design document of the index, if the job works on one.
    #[must_use]
    pub fn design(&self) -> Option<&str> {
        match self {
            Self::Db => None,
            Self::View(design) | Self::Build(design) | Self::BuildSearch(design, _) => Some(design),
        }
    }
}
