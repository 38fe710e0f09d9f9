//! `_db_updates`: the next step and the received events.
//!
//! The state machine is pure except for the clock of its pauses: answers and lines in, the next
//! step and events out. [`follow_updates`] executes its steps.

use super::{
    backoff::FeedBackoff,
    change_feeds::{ChangeFeeds, FeedFailure, UpdateLines},
    feed_step::{FeedEvent, FeedState, FeedStep},
    resume::{known_to_differ, resume_seq},
};
use crate::{sources::couchdb::describe, store::journal::FeedPosition};
use couchdb_client::{Error, wire::UpdateLine};
use futures::StreamExt as _;
use lru::LruCache;
use std::{
    hash::{BuildHasher as _, RandomState},
    num::NonZeroUsize,
    pin::pin,
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

/// How many rows are recognised when they come again: more than CouchDB sends at once.
const RECENT_ROWS: NonZeroUsize = NonZeroUsize::new(4_096).expect("a literal that is not zero");

/// How long a resumed feed may take to send the rows it missed.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(10);

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
enum UpdatesStep {
    /// Ask for the current sequence, and start there.
    Begin,
    /// Open the feed after this sequence.
    Open(String),
    /// Wait for lines.
    Listen,
    /// Pause.
    Pause(Duration),
}

/// State of the feed.
#[derive(Debug)]
struct UpdatesFeed {
    step: UpdatesStep,
    backoff: FeedBackoff,
    /// The sequence to continue from, and its leading number.
    position: Option<(String, Option<u64>)>,
    /// When the database behind the feed was created.
    created_at: Option<String>,
    /// Hashes of the latest rows' sequences, which are long: a row that comes again is neither news
    /// nor a rewind.
    recent: LruCache<u64, ()>,
    hasher: RandomState,
    /// The number up to which changes happened before this process; `None` once reached.
    missed_until: Option<u64>,
    /// Since when no change was missed.
    followed_since: Option<Moment>,
    /// When the feed was opened.
    opened_at: Option<Instant>,
    /// Whether no missed rows are still to come.
    caught_up: bool,
    /// Number of failures since the last event.
    failures_at_position: u32,
    starts_from_now: u64,
    rewinds: u64,
    failures: u64,
    absent: bool,
    refused: bool,
    problem: Option<String>,
}

/// The leading number of a clustered sequence, which grows with every row.
pub(super) fn seq_number(seq: &str) -> Option<u64> {
    seq.split('-').next()?.parse().ok()
}

impl UpdatesFeed {
    fn new() -> Self {
        Self {
            step: UpdatesStep::Begin,
            backoff: FeedBackoff::new(),
            position: None,
            created_at: None,
            recent: LruCache::new(RECENT_ROWS),
            hasher: RandomState::new(),
            missed_until: None,
            followed_since: None,
            opened_at: None,
            caught_up: false,
            failures_at_position: 0,
            starts_from_now: 0,
            rewinds: 0,
            failures: 0,
            absent: false,
            refused: false,
            problem: None,
        }
    }

    /// Ends a pause.
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
        (seq, made): (String, Option<String>),
        kept: Option<FeedPosition>,
        now: Moment,
    ) {
        self.absent = false;
        self.refused = false;
        let is_there = kept.as_ref().is_some_and(|kept| kept.seq == seq);
        let (newest, from) = (seq_number(&seq), resume_seq(kept, (&seq, made.as_deref()), now));
        self.created_at = made;
        self.starts_from_now += u64::from(!is_there && from.is_none());
        self.missed_until = newest.filter(|_| from.is_some());
        let seq = from.unwrap_or(seq);
        self.step = UpdatesStep::Open(seq.clone());
        self.recent.put(self.hasher.hash_one(&seq), ());
        self.position = Some((seq.clone(), seq_number(&seq)));
        if self.missed_until.is_none() {
            self.mark_current(now);
        }
    }

    /// From the next second on, every change will be received.
    fn mark_current(&mut self, now: Moment) {
        self.missed_until = None;
        self.followed_since = Some(now.plus(Duration::from_secs(1)));
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
        self.problem = None;
        events
    }

    /// Checks before reopening that the database behind the feed is still the same one.
    fn check_created_at(&mut self, made: Option<&str>) {
        if known_to_differ(self.created_at.as_deref(), made) {
            self.handle_rewind();
        }
    }

    /// Handles a feed that repeats old rows, or became another feed. Changes in the meantime are
    /// unknown, and a replay of all rows must not count as new events.
    fn handle_rewind(&mut self) {
        self.rewinds += 1;
        self.problem = Some("the feed went back in time; restarting from now".to_owned());
        tracing::warn!("_db_updates went back in time: restarting from now and reading all shards");
        self.reset();
        self.pause_after(FeedFailure::Malformed);
    }

    fn reset(&mut self) {
        self.position = None;
        self.recent.clear();
        self.missed_until = None;
        self.followed_since = None;
        self.failures_at_position = 0;
    }

    /// Handles the end of the response body.
    fn handle_end(&mut self) {
        self.problem = Some("the feed ended".to_owned());
        self.pause_after(FeedFailure::Broken);
    }

    fn record_failure(&mut self, failed: FeedFailure, why: String) {
        self.failures_at_position += 1;
        self.absent = failed == FeedFailure::Absent;
        self.refused = failed == FeedFailure::Refused;
        match failed {
            FeedFailure::Absent | FeedFailure::BadSequence => self.reset(),
            FeedFailure::Malformed if self.failures_at_position >= MAX_FAILURES_AT_POSITION => {
                self.reset()
            }
            FeedFailure::Malformed | FeedFailure::Refused | FeedFailure::Broken => {}
        }
        self.problem = Some(why);
        self.pause_after(failed);
    }

    fn pause_after(&mut self, failed: FeedFailure) {
        self.failures += 1;
        self.caught_up = false;
        self.step = UpdatesStep::Pause(self.backoff.next_pause(failed, self.opened_at.take()));
    }

    fn state(&self) -> FeedState {
        let listens = self.step == UpdatesStep::Listen;
        FeedState {
            connected: listens && self.caught_up,
            followed_since: self.followed_since,
            starts_from_now: self.starts_from_now,
            absent: self.absent,
            refused: self.refused,
            seq: self.position.as_ref().map(|(seq, _)| seq.clone()),
            created_at: self.created_at.clone(),
            node: None,
            rewinds: self.rewinds,
            failures: self.failures,
            problem: self.problem.clone(),
        }
    }
}

/// Follows the feed until the receiver of its steps is gone. Starts at the position of an earlier
/// process, which is loaded once CouchDB answers.
pub(super) async fn follow_updates(
    feeds: Arc<dyn ChangeFeeds>,
    clock: Clock,
    recalled: impl Future<Output = Option<FeedPosition>>,
    out: mpsc::Sender<FeedStep>,
) {
    let mut recalled = Some(pin!(recalled));
    let mut state = UpdatesFeed::new();
    let mut open: Option<UpdateLines> = None;
    loop {
        let mut events = Vec::new();
        let missed = state.missed_until.is_some();
        match state.step.clone() {
            UpdatesStep::Pause(pause) => {
                open = None;
                time::sleep(pause).await;
                state.end_pause();
                if matches!(state.step, UpdatesStep::Open(_)) {
                    state.check_created_at(feeds.updates_created_at().await.as_deref());
                }
            }
            UpdatesStep::Begin => match feeds.updates_seq().await {
                Ok(seq) => {
                    let made = feeds.updates_created_at().await;
                    let kept = match recalled.take() {
                        Some(recalled) => recalled.await,
                        None => None,
                    };
                    state.start((seq, made), kept, clock.now());
                }
                Err(error) => handle_error(&mut state, &error),
            },
            UpdatesStep::Open(since) => match feeds.updates(since).await {
                Ok(lines) => {
                    open = Some(lines);
                    state.mark_open();
                }
                Err(error) => handle_error(&mut state, &error),
            },
            UpdatesStep::Listen => match open.as_mut() {
                Some(lines) => match lines.next().await {
                    Some(Ok(lines)) => events = state.apply_lines(lines, clock.now()),
                    Some(Err(error)) => handle_error(&mut state, &error),
                    None => state.handle_end(),
                },
                None => state.handle_end(),
            },
        }
        // A piece that contains the last row from before this process may contain later rows too.
        let heard = if missed { FeedStep::MissedUpdates } else { FeedStep::Updates };
        if out.send(heard(events, state.state())).await.is_err() {
            return;
        }
    }
}

fn handle_error(state: &mut UpdatesFeed, error: &Error) {
    tracing::debug!(%error, "_db_updates failed");
    state.record_failure(FeedFailure::from_error(error), describe(error));
}

#[cfg(test)]
mod tests;
