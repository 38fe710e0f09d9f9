//! What the journal does next: a value that handles events, without I/O or a clock.
//!
//! Owns the requests and events that are not written yet, whether the file can be used, and the
//! timers. The task calls [`JournalState::handle`] with each event and performs the effects in
//! their order; it calls again no later than [`JournalState::next_wake`]. Only the last effect can
//! be an operation on the file. Its result is the next event, so that everything after it sees
//! what the operation changed.

use super::{
    EventDetails, JournalEvent,
    file::{Committed, FileFailure},
    request::{JournalRequest, Query, Reply, WriteAnswer},
    store::WriteBatch,
};
use crate::model::records::{JournalFailure, StoreError};
use crate::tasks::Now;
use std::{collections::VecDeque, time::Duration};
use tokio::time::Instant;
use wall_clock::Moment;

/// Maximum number of events waiting to be written together; further ones are dropped.
pub(super) const EVENT_QUEUE_LEN: usize = 4096;

/// Maximum number of requests in one commit.
const MAX_REQUESTS_PER_COMMIT: usize = 256;

/// How long an event may wait for others, because each commit waits for the disk.
const MAX_EVENT_DELAY: Duration = Duration::from_millis(500);

/// Interval between trims while nothing is written.
const TRIM_INTERVAL: Duration = Duration::from_secs(600);

/// Interval between checks that the open file still has its name, while nothing is written.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// First and longest delay before the file is tried again after a failure.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) enum Event {
    /// These requests arrived, in this order.
    Requests(Vec<JournalRequest>),
    /// An event arrived that may wait for others.
    Recorded(EventDetails),
    /// The time that [`JournalState::next_wake`] named has come.
    Wake,
    /// No more requests or events will arrive.
    Stopping,
    /// [`Effect::Write`] is done.
    Written(Result<Committed, FileFailure>),
    /// [`Effect::Serve`] is done; this is its answer.
    Served(Result<(), FileFailure>, Reply),
    /// [`Effect::Serve`] has claimed the journal; this is its answer.
    Claimed(Reply),
    /// [`Effect::Serve`] has found that the journal belongs to another cluster, for this reason;
    /// this is its answer.
    ClaimRefused(StoreError, Reply),
    /// [`Effect::CheckFile`] is done.
    FileChecked(Result<(), FileFailure>),
    /// [`Effect::Retry`] is done.
    Retried(Result<(), FileFailure>),
}

/// What the task has to do.
#[derive(Debug)]
pub(super) enum Effect {
    /// Write a batch in one commit.
    Write(WriteBatch),
    Serve(Query),
    /// Check that the open file still has its name.
    CheckFile,
    /// Try whether the file can be written again.
    Retry,
    /// Publish the health, with the reason why the journal cannot be used, if any.
    PublishHealth(Option<(Moment, JournalFailure)>),
    /// Send stored events to the subscribers.
    SendStored(Vec<(u64, JournalEvent)>),
    /// Count this many dropped events.
    CountDropped(usize),
    Reply(Reply),
}

/// A failure of the file that still lasts.
#[derive(Debug)]
struct CurrentFailure {
    since: Moment,
    cause: FileFailure,
    retry_at: Instant,
    retry_delay: Duration,
}

impl CurrentFailure {
    /// A failure, which may follow an earlier one.
    fn new(cause: FileFailure, earlier: Option<&Self>, now: Now) -> Self {
        let (since, retry_delay) = match earlier {
            Some(earlier) => (earlier.since, (earlier.retry_delay * 2).min(MAX_RETRY_DELAY)),
            None => (now.wall, MIN_RETRY_DELAY),
        };
        Self { since, cause, retry_at: now.at + retry_delay, retry_delay }
    }
}

/// A commit in progress.
#[derive(Debug)]
struct Commit {
    answers: Vec<WriteAnswer>,
    events: usize,
    /// Whether a timer caused it rather than a request.
    is_timed: bool,
}

/// What wakes the journal, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    Retry,
    FileCheck,
    Write,
}

/// When timed work is due, other than the next retry.
#[derive(Debug)]
struct Timers {
    trim: Instant,
    file_check: Instant,
    /// When the waiting events are written; `None` if there are none.
    write_events: Option<Instant>,
}

/// Whether the journal may be used for the cluster.
#[derive(Debug, PartialEq, Eq)]
enum Claim {
    /// No cluster has claimed it yet: its content can be read, but nothing is written.
    Open,
    Claimed,
    /// Since this moment it is known to belong to another cluster, so its content would mislead.
    Refused(Moment, StoreError),
}

impl Claim {
    const fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(..))
    }
}

/// Everything the journal knows besides what the file contains.
#[derive(Debug)]
pub(super) struct JournalState {
    claim: Claim,
    failure: Option<CurrentFailure>,
    waiting_requests: VecDeque<JournalRequest>,
    waiting_events: Vec<EventDetails>,
    commit: Option<Commit>,
    timers: Timers,
}

impl JournalState {
    /// The state for a file that was opened, or could not be opened for this reason.
    pub(super) fn new(failure: Option<FileFailure>, now: Now) -> Self {
        let failure = failure.map(|cause| CurrentFailure::new(cause, None, now));
        let now = now.at;
        Self {
            claim: Claim::Open,
            failure,
            waiting_requests: VecDeque::new(),
            waiting_events: Vec::new(),
            commit: None,
            timers: Timers {
                trim: now + TRIM_INTERVAL,
                file_check: now + FILE_CHECK_INTERVAL,
                write_events: None,
            },
        }
    }

    /// Handles one event. Returns the effects to perform, in this order.
    #[must_use]
    pub(super) fn handle(&mut self, event: Event, now: Now) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Requests(requests) => self.waiting_requests.extend(requests),
            Event::Recorded(event) => {
                self.waiting_events.push(event);
                self.timers.write_events.get_or_insert(now.at + MAX_EVENT_DELAY);
            }
            Event::Wake => self.wake(now, &mut effects),
            Event::Stopping => {
                if !self.waiting_events.is_empty() {
                    self.begin_commit(WriteBatch::default(), Vec::new(), false, &mut effects);
                }
            }
            Event::Written(result) => self.end_commit(result, now, &mut effects),
            Event::Served(result, reply) => {
                self.check_result(result, now, &mut effects);
                effects.push(Effect::Reply(reply));
            }
            Event::Claimed(reply) => {
                if std::mem::replace(&mut self.claim, Claim::Claimed).is_refused() {
                    effects.push(self.publish_health());
                }
                effects.push(Effect::Reply(reply));
            }
            Event::ClaimRefused(why, reply) => {
                let since = match self.claim {
                    Claim::Refused(since, _) => since,
                    Claim::Open | Claim::Claimed => now.wall,
                };
                self.claim = Claim::Refused(since, why);
                effects.push(self.publish_health());
                effects.push(Effect::Reply(reply));
            }
            Event::FileChecked(result) => self.check_result(result, now, &mut effects),
            Event::Retried(Err(failure)) => self.check_result(Err(failure), now, &mut effects),
            Event::Retried(Ok(())) => {
                self.failure = None;
                effects.push(self.publish_health());
            }
        }
        self.begin_requests(&mut effects);
        effects
    }

    /// When to call [`Self::handle`] with [`Event::Wake`], even if other events are handled before.
    pub(super) fn next_wake(&self) -> Instant {
        let rest = self.timers().into_iter().filter_map(|(_, at)| at);
        rest.fold(self.timers.file_check, Instant::min)
    }

    /// Whether another event can wait to be written.
    pub(super) const fn accepts_events(&self) -> bool {
        self.waiting_events.len() < EVENT_QUEUE_LEN
    }

    /// The timers that are set, the most urgent first.
    fn timers(&self) -> [(Timer, Option<Instant>); 3] {
        let Timers { trim, file_check, write_events } = self.timers;
        [
            (Timer::Retry, self.failure.as_ref().map(|failure| failure.retry_at)),
            (Timer::FileCheck, Some(file_check)),
            (Timer::Write, Some(write_events.map_or(trim, |at| at.min(trim)))),
        ]
    }

    /// Begins the most urgent operation that is due; the others wake the journal again at once.
    fn wake(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let due = self.timers().into_iter().find(|(_, at)| at.is_some_and(|at| at <= now.at));
        match due.map(|(timer, _)| timer) {
            None => {}
            Some(Timer::Retry) => effects.push(Effect::Retry),
            Some(Timer::FileCheck) => {
                self.timers.file_check = now.at + FILE_CHECK_INTERVAL;
                if self.failure.is_none() {
                    effects.push(Effect::CheckFile);
                }
            }
            Some(Timer::Write) => {
                self.timers.trim = now.at + TRIM_INTERVAL;
                self.begin_commit(WriteBatch::default(), Vec::new(), true, effects);
            }
        }
    }

    /// Begins what the waiting requests need, up to the first operation on the file.
    fn begin_requests(&mut self, effects: &mut Vec<Effect>) {
        while !ends_with_operation(effects) {
            match self.waiting_requests.pop_front() {
                None => return,
                Some(JournalRequest::Query(query)) => effects.push(match self.refusal(&query) {
                    Some(why) => Effect::Reply(query.refuse(why)),
                    None => Effect::Serve(query),
                }),
                Some(request) => {
                    self.waiting_requests.push_front(request);
                    let (batch, answers) = self.take_batch();
                    let is_empty = answers.is_empty()
                        && batch.events.is_empty()
                        && batch.progress.is_empty()
                        && batch.backup_at.is_none();
                    if !is_empty {
                        self.begin_commit(batch, answers, false, effects);
                    }
                }
            }
        }
    }

    /// Takes the requests that go into the next commit: all before the next query, up to a limit.
    fn take_batch(&mut self) -> (WriteBatch, Vec<WriteAnswer>) {
        let (mut batch, mut answers) = (WriteBatch::default(), Vec::new());
        while answers.len() < MAX_REQUESTS_PER_COMMIT && batch.events.len() < EVENT_QUEUE_LEN {
            match self.waiting_requests.pop_front() {
                None => break,
                Some(query @ JournalRequest::Query(_)) => {
                    self.waiting_requests.push_front(query);
                    break;
                }
                Some(JournalRequest::ApplyChanges(changes, answer)) => {
                    batch.changes.extend(changes);
                    answers.push(answer);
                }
                Some(JournalRequest::RecordBackup(at)) => batch.backup_at = Some(at),
                Some(JournalRequest::SetOverridden(settings, answer)) => {
                    batch.setting_overrides.extend(settings);
                    answers.push(answer);
                }
                Some(JournalRequest::RecordEvents(events, progress, room)) => {
                    batch.events.extend(events);
                    batch.room.extend(room);
                    batch.progress.join(progress);
                }
            }
        }
        (batch, answers)
    }

    /// Begins to write a batch together with the waiting events, or refuses it.
    fn begin_commit(
        &mut self,
        mut batch: WriteBatch,
        answers: Vec<WriteAnswer>,
        is_timed: bool,
        effects: &mut Vec<Effect>,
    ) {
        batch.events.append(&mut self.waiting_events);
        self.timers.write_events = None;
        let commit = Commit { answers, events: batch.events.len(), is_timed };
        match self.write_refusal() {
            None => {
                self.commit = Some(commit);
                effects.push(Effect::Write(batch));
            }
            Some(why) => refuse_commit(commit, &why, effects),
        }
    }

    fn end_commit(
        &mut self,
        result: Result<Committed, FileFailure>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let Some(commit) = self.commit.take() else { return };
        match result {
            Ok(Committed { has_more_to_trim, new_events }) => {
                if has_more_to_trim && commit.is_timed {
                    // More entries must be removed than fit in one commit. Continue soon, after
                    // waiting requests.
                    self.timers.trim = now.at;
                }
                // Subscribers must find the received number in the published health.
                effects.push(self.publish_health());
                if !new_events.is_empty() {
                    effects.push(Effect::SendStored(new_events));
                }
                let stored = commit.answers.into_iter();
                effects.extend(stored.map(|answer| Effect::Reply(Reply::new(answer, Ok(())))));
            }
            Err(failure) => {
                let why = failure.why.clone();
                self.check_result(Err(failure), now, effects);
                refuse_commit(commit, &why, effects);
            }
        }
    }

    /// Records and publishes the failure of an operation, if it failed.
    fn check_result(
        &mut self,
        result: Result<(), FileFailure>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let Err(cause) = result else { return };
        self.failure = Some(CurrentFailure::new(cause, self.failure.as_ref(), now));
        effects.push(self.publish_health());
    }

    fn publish_health(&self) -> Effect {
        Effect::PublishHealth(self.current_failure())
    }

    /// Since when and why the journal cannot be used, if it cannot.
    pub(super) fn current_failure(&self) -> Option<(Moment, JournalFailure)> {
        match (&self.claim, &self.failure) {
            (Claim::Refused(since, why), _) => {
                Some((*since, JournalFailure::OtherCluster(why.0.clone())))
            }
            (Claim::Open | Claim::Claimed, Some(failure)) => {
                Some((failure.since, JournalFailure::NotWritable(failure.cause.why.0.clone())))
            }
            (Claim::Open | Claim::Claimed, None) => None,
        }
    }

    /// Why a query cannot be served now, if so.
    fn refusal(&self, query: &Query) -> Option<StoreError> {
        let unreadable = self.failure.as_ref().filter(|failure| !failure.cause.is_readable);
        let unreadable = unreadable.map(|failure| failure.cause.why.clone());
        match query {
            Query::SaveMeasurements(..) | Query::SaveValues(..) => self.write_refusal(),
            Query::FeedPosition(_) | Query::OverriddenSettings(_) | Query::Value(..) => {
                self.claim_refusal().or(unreadable)
            }
            Query::BeginRead(_) => match &self.claim {
                Claim::Refused(_, why) => Some(why.clone()),
                Claim::Open | Claim::Claimed => unreadable,
            },
            Query::Claim(..) => unreadable,
        }
    }

    /// Why nothing may be written now, if so.
    fn write_refusal(&self) -> Option<StoreError> {
        let failure = self.failure.as_ref().map(|failure| failure.cause.why.clone());
        self.claim_refusal().or(failure)
    }

    /// Why the claim does not permit an operation, if so.
    fn claim_refusal(&self) -> Option<StoreError> {
        let why = "the journal does not belong to a cluster yet: recliner does not know yet which cluster this is";
        match &self.claim {
            Claim::Claimed => None,
            Claim::Open => Some(StoreError(why.to_owned())),
            Claim::Refused(_, why) => Some(why.clone()),
        }
    }
}

/// Whether the last effect is an operation on the file, whose result comes back as an event.
fn ends_with_operation(effects: &[Effect]) -> bool {
    effects.last().is_some_and(|effect| match effect {
        Effect::Write(_) | Effect::Serve(_) | Effect::CheckFile | Effect::Retry => true,
        Effect::PublishHealth(_)
        | Effect::SendStored(_)
        | Effect::CountDropped(_)
        | Effect::Reply(_) => false,
    })
}

fn refuse_commit(commit: Commit, why: &StoreError, effects: &mut Vec<Effect>) {
    if commit.events > 0 {
        effects.push(Effect::CountDropped(commit.events));
    }
    let refused = commit.answers.into_iter();
    effects.extend(refused.map(|answer| Effect::Reply(Reply::new(answer, Err(why.clone())))));
}

#[cfg(test)]
mod tests;
