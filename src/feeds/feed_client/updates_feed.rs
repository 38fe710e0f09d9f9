//! `_db_updates`: the next step and the received events.
//!
//! The state machine is pure except for the clock of its pauses: answers and lines in, the next
//! step and events out. [`follow_updates`] executes its steps.

use super::{
    backoff::FeedBackoff,
    change_feeds::{ChangeFeeds, FeedFailure, UpdateLines},
    feed_step::{FeedEvent, FeedStep},
    resume::{known_to_differ, resume_seq, seq_number},
    status::FeedState,
};
use crate::{sources::couchdb::describe, store::journal::FeedPosition};
use couchdb_client::{Error, wire::UpdateLine};
use futures::StreamExt as _;
use lru::LruCache;
use std::{
    hash::{BuildHasher as _, RandomState},
    num::NonZeroUsize,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::mpsc,
    time::{self, Instant},
};
use wall_clock::{Clock, Moment};

/// Number of successive failures at one position, after which the feed is restarted from now.
const MAX_FAILURES_AT_POSITION: u32 = 3;

/// Number of recent rows kept to recognise repetitions: more than CouchDB sends at once.
const RECENT_ROWS: NonZeroUsize = NonZeroUsize::new(4_096).expect("a literal that is not zero");

/// How long a resumed feed may take to send the rows it missed.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(10);

/// How much of the feed is read per second, and in one burst after a pause. The rest waits in
/// CouchDB, which keeps one row for each database and type of event.
const MAX_BYTES_PER_SECOND: f64 = (1 << 20) as f64;
const BURST: Duration = Duration::from_secs(1);

/// Bytes counted for a row in addition to its texts.
const ROW_BYTES: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
enum UpdatesStep {
    /// Ask for the current sequence, and start there.
    Begin,
    /// Open the feed after this sequence.
    Open(String),
    /// Wait for lines.
    Listen,
    Pause(Duration),
}

/// Outcome of an [`UpdatesStep`].
#[derive(Debug)]
enum UpdatesResult {
    /// A pause is over. `created_at` is when the database behind the feed was created, requested
    /// before the feed is reopened.
    Paused {
        created_at: Option<String>,
    },
    /// The current sequence, and the position of an earlier process, if there is one.
    CurrentSeq {
        seq: String,
        created_at: Option<String>,
        stored: Option<FeedPosition>,
    },
    Opened,
    /// Lines arrived, possibly late, because more arrive than are read.
    Lines(Vec<UpdateLine>, FeedLag),
    /// The response body ended.
    Ended,
    Failed(Error),
}

/// Whether rows wait in CouchDB because more arrive than are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FeedLag {
    None,
    Late,
}

#[derive(Debug)]
struct UpdatesFeed {
    step: UpdatesStep,
    backoff: FeedBackoff,
    /// The sequence to continue from, and its leading number.
    position: Option<(String, Option<u64>)>,
    /// Hashes of the latest rows' sequences, which are long: a repeated row is neither a new
    /// event nor a rewind.
    recent: LruCache<u64, ()>,
    hasher: RandomState,
    /// The number up to which changes happened before this process; `None` once reached.
    missed_until: Option<u64>,
    /// When the feed was opened.
    opened_at: Option<Instant>,
    /// Whether all missed rows have arrived.
    caught_up: bool,
    /// Number of failures since the last event.
    failures_at_position: u32,
    /// The state to report, except [`FeedState::connected`] and [`FeedState::seq`].
    report: FeedState,
}

impl UpdatesFeed {
    fn new() -> Self {
        Self {
            step: UpdatesStep::Begin,
            backoff: FeedBackoff::new(),
            position: None,
            recent: LruCache::new(RECENT_ROWS),
            hasher: RandomState::new(),
            missed_until: None,
            opened_at: None,
            caught_up: false,
            failures_at_position: 0,
            report: FeedState::default(),
        }
    }

    /// Applies the result of the current step; afterwards `step` is the next one.
    fn handle(&mut self, result: UpdatesResult, now: Moment) -> FeedStep {
        // Lines that contain the last row from before this process may contain later rows too.
        let may_have_missed = self.missed_until.is_some();
        let mut events = Vec::new();
        match result {
            UpdatesResult::Paused { created_at } => {
                self.end_pause();
                if matches!(self.step, UpdatesStep::Open(_)) {
                    self.check_created_at(created_at.as_deref());
                }
            }
            UpdatesResult::CurrentSeq { seq, created_at, stored } => {
                self.start((seq, created_at), stored, now);
            }
            UpdatesResult::Opened => self.mark_open(),
            UpdatesResult::Lines(lines, lag) => {
                events = self.apply_lines(lines, now);
                self.apply_lag(lag);
            }
            UpdatesResult::Ended => self.handle_end(),
            UpdatesResult::Failed(error) => {
                tracing::debug!(%error, "_db_updates failed");
                self.record_failure(FeedFailure::from_error(&error), describe(&error));
            }
        }
        let step = if may_have_missed { FeedStep::MissedUpdates } else { FeedStep::Updates };
        step(events, self.state())
    }

    fn end_pause(&mut self) {
        self.step = match &self.position {
            Some((seq, _)) => UpdatesStep::Open(seq.clone()),
            None => UpdatesStep::Begin,
        };
    }

    /// Starts the feed at its current sequence, or at the position of an earlier process if
    /// possible.
    fn start(
        &mut self,
        (seq, created_at): (String, Option<String>),
        stored: Option<FeedPosition>,
        now: Moment,
    ) {
        self.report.absent = false;
        self.report.refused = false;
        let is_newest = stored.as_ref().is_some_and(|stored| stored.seq == seq);
        let (newest, from) =
            (seq_number(&seq), resume_seq(stored, (&seq, created_at.as_deref()), now));
        self.report.created_at = created_at;
        self.report.starts_from_now += u64::from(!is_newest && from.is_none());
        self.missed_until = newest.filter(|_| from.is_some());
        let seq = from.unwrap_or(seq);
        self.step = UpdatesStep::Open(seq.clone());
        self.recent.put(self.hasher.hash_one(&seq), ());
        self.position = Some((seq.clone(), seq_number(&seq)));
        if self.missed_until.is_none() {
            self.mark_current(now);
        }
    }

    /// Marks the feed as current: every change from the next second on will be received.
    fn mark_current(&mut self, now: Moment) {
        self.missed_until = None;
        self.report.followed_since = Some(now.plus(Duration::from_secs(1)));
        self.caught_up = true;
    }

    fn mark_open(&mut self) {
        self.step = UpdatesStep::Listen;
        self.opened_at = Some(Instant::now());
    }

    /// Applies received lines; returns the events.
    fn apply_lines(&mut self, lines: Vec<UpdateLine>, clock: Moment) -> Vec<FeedEvent> {
        let mut events = Vec::with_capacity(lines.len());
        for line in lines {
            match line {
                UpdateLine::Heartbeat => {
                    self.caught_up = true;
                    if self.missed_until.is_some() {
                        self.mark_current(clock);
                    }
                }
                UpdateLine::End { seq } => {
                    let now = seq_number(&seq);
                    let last = self.position.as_ref().and_then(|(_, last)| *last);
                    if now.zip(last).is_some_and(|(now, last)| now < last) {
                        self.handle_rewind();
                        return events;
                    }
                    self.position = Some((seq, now));
                }
                UpdateLine::Update { db, change, seq } => {
                    let now = seq_number(&seq);
                    let last = self.position.as_ref().and_then(|(_, last)| *last);
                    if self.recent.contains(&self.hasher.hash_one(&seq)) {
                        continue;
                    }
                    if now.zip(last).is_some_and(|(now, last)| now <= last) {
                        self.handle_rewind();
                        return events;
                    }
                    if self.missed_until.is_some_and(|until| now.is_none_or(|now| now >= until)) {
                        self.mark_current(clock);
                    }
                    self.recent.put(self.hasher.hash_one(&seq), ());
                    self.position = Some((seq, now));
                    self.failures_at_position = 0;
                    events.extend(change.map(|change| FeedEvent { db: db.into(), change }));
                }
            }
        }
        if self.opened_at.is_some_and(|opened| opened.elapsed() >= CATCH_UP_TIMEOUT) {
            self.caught_up = true;
        }
        self.report.problem = None;
        events
    }

    /// Counts the feed as disconnected while rows are late: a database that they do not name may
    /// have changed too.
    fn apply_lag(&mut self, lag: FeedLag) {
        if lag == FeedLag::Late && self.step == UpdatesStep::Listen {
            self.caught_up = false;
            self.report.problem = Some(
                "its events arrive faster than recliner reads them, so they are late".to_owned(),
            );
        }
    }

    /// Checks before reopening that the database behind the feed is still the same one.
    fn check_created_at(&mut self, created_at: Option<&str>) {
        if known_to_differ(self.report.created_at.as_deref(), created_at) {
            self.handle_rewind();
        }
    }

    /// Handles a feed that repeats old rows, or became another feed. Changes in the meantime are
    /// unknown, and a replay of all rows must not count as new events.
    fn handle_rewind(&mut self) {
        self.report.rewinds += 1;
        self.report.problem = Some("the feed went back in time; restarting from now".to_owned());
        tracing::warn!("_db_updates went back in time: restarting from now and reading all shards");
        self.reset();
        self.pause_after(FeedFailure::Malformed);
    }

    fn reset(&mut self) {
        self.position = None;
        self.recent.clear();
        self.missed_until = None;
        self.report.followed_since = None;
        self.failures_at_position = 0;
    }

    /// Handles the end of the response body.
    fn handle_end(&mut self) {
        self.report.problem = Some("the feed ended".to_owned());
        self.pause_after(FeedFailure::Broken);
    }

    fn record_failure(&mut self, failed: FeedFailure, why: String) {
        self.failures_at_position += 1;
        self.report.absent = failed == FeedFailure::Absent;
        self.report.refused = failed == FeedFailure::Refused;
        match failed {
            FeedFailure::Absent | FeedFailure::BadSequence => self.reset(),
            FeedFailure::Malformed if self.failures_at_position >= MAX_FAILURES_AT_POSITION => {
                self.reset()
            }
            FeedFailure::Malformed | FeedFailure::Refused | FeedFailure::Broken => {}
        }
        self.report.problem = Some(why);
        self.pause_after(failed);
    }

    fn pause_after(&mut self, failed: FeedFailure) {
        self.report.failures += 1;
        self.caught_up = false;
        self.step = UpdatesStep::Pause(self.backoff.next_pause(failed, self.opened_at.take()));
    }

    fn state(&self) -> FeedState {
        FeedState {
            connected: self.step == UpdatesStep::Listen && self.caught_up,
            seq: self.position.as_ref().map(|(seq, _)| seq.clone()),
            ..self.report.clone()
        }
    }
}

/// Follows the feed until the receiver of its steps is gone. Starts at the position of an earlier
/// process, which is loaded once CouchDB answers.
pub(super) async fn follow_updates(
    feeds: Arc<dyn ChangeFeeds>,
    clock: Clock,
    stored_position: impl Future<Output = Option<FeedPosition>>,
    out: mpsc::Sender<FeedStep>,
) {
    let stored_position = Some(pin!(stored_position));
    let mut connection =
        UpdatesConnection { feeds, stored_position, lines: None, pace: FeedPace(Instant::now()) };
    let mut feed = UpdatesFeed::new();
    loop {
        let result = connection.perform(feed.step.clone(), feed.position.is_some()).await;
        if out.send(feed.handle(result, clock.now())).await.is_err() {
            return;
        }
    }
}

/// Performs the steps: the requests to CouchDB, and the pauses.
struct UpdatesConnection<'a, P> {
    feeds: Arc<dyn ChangeFeeds>,
    /// The position of an earlier process, until it is taken.
    stored_position: Option<Pin<&'a mut P>>,
    /// The open feed.
    lines: Option<UpdateLines>,
    pace: FeedPace,
}

/// When the bytes read so far would have arrived at the allowed rate.
struct FeedPace(Instant);

impl FeedPace {
    /// Waits until more may be read.
    async fn wait(&self) -> FeedLag {
        if Instant::now() + BURST >= self.0 {
            return FeedLag::None;
        }
        tracing::warn!(
            "_db_updates events arrive faster than recliner reads them, so they are late"
        );
        time::sleep_until(self.0.checked_sub(BURST).unwrap_or(self.0)).await;
        FeedLag::Late
    }

    fn count(&mut self, lines: &[UpdateLine]) {
        let bytes = |line: &UpdateLine| match line {
            UpdateLine::Heartbeat => ROW_BYTES,
            UpdateLine::Update { db, seq, change: _ } => ROW_BYTES + db.len() + seq.len(),
            UpdateLine::End { seq } => ROW_BYTES + seq.len(),
        };
        let bytes: usize = lines.iter().map(bytes).sum();
        let duration = Duration::from_secs_f64(bytes as f64 / MAX_BYTES_PER_SECOND);
        self.0 = self.0.max(Instant::now()) + duration;
    }
}

impl<P: Future<Output = Option<FeedPosition>>> UpdatesConnection<'_, P> {
    async fn perform(&mut self, step: UpdatesStep, has_position: bool) -> UpdatesResult {
        match step {
            UpdatesStep::Pause(pause) => {
                self.lines = None;
                time::sleep(pause).await;
                let created_at =
                    if has_position { self.feeds.updates_created_at().await } else { None };
                UpdatesResult::Paused { created_at }
            }
            UpdatesStep::Begin => match self.feeds.updates_seq().await {
                Ok(seq) => {
                    let created_at = self.feeds.updates_created_at().await;
                    let stored = match self.stored_position.take() {
                        Some(stored) => stored.await,
                        None => None,
                    };
                    UpdatesResult::CurrentSeq { seq, created_at, stored }
                }
                Err(error) => UpdatesResult::Failed(error),
            },
            UpdatesStep::Open(since) => match self.feeds.updates(since).await {
                Ok(lines) => {
                    self.lines = Some(lines);
                    UpdatesResult::Opened
                }
                Err(error) => UpdatesResult::Failed(error),
            },
            UpdatesStep::Listen => {
                let Some(lines) = &mut self.lines else { return UpdatesResult::Ended };
                let lag = self.pace.wait().await;
                match lines.next().await {
                    Some(Ok(lines)) => {
                        self.pace.count(&lines);
                        UpdatesResult::Lines(lines, lag)
                    }
                    Some(Err(error)) => UpdatesResult::Failed(error),
                    None => UpdatesResult::Ended,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
