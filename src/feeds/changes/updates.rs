//! `_db_updates`: the next step and the received events.
//!
//! The state machine is pure except for the clock of its pauses: answers and lines in, the next
//! step and events out. [`follow`] executes its steps.

use super::{
    feeds::{Failed, Feeds, Lines},
    heard::{Event, Heard, Standing},
    pauses::Pauses,
    resumed::{differ, resumed},
};
use crate::{sources::couchdb::describe, store::journal::Position};
use couchdb_client::{Error, wire::UpdateLine};
use futures::StreamExt as _;
use lru::LruCache;
use std::{num::NonZeroUsize, pin::pin, sync::Arc, time::Duration};
use tokio::{
    sync::mpsc,
    time::{self, Instant},
};
use wall_clock::{Clock, Moment};

/// Number of successive failures at one position, after which the feed is restarted from now.
const STUCK: u32 = 3;

/// How many rows are recognised when they come again: more than CouchDB sends at once.
const RECENT_ROWS: NonZeroUsize = NonZeroUsize::new(4_096).expect("a literal that is not zero");

/// How long a resumed feed may take to send the rows it missed.
const CATCHES_UP: Duration = Duration::from_secs(10);

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Ask for the current sequence, and start there.
    Begin,
    /// Open the feed after this sequence.
    Open(String),
    /// Wait for lines.
    Listen,
    /// Pause.
    Rest(Duration),
}

/// State of the feed.
#[derive(Debug)]
struct Updates {
    step: Step,
    pauses: Pauses,
    /// The sequence to continue from, and its leading number.
    at: Option<(String, Option<u64>)>,
    /// When the database behind the feed was created.
    made: Option<String>,
    /// The sequences of the latest rows: a row that comes again is neither news nor a rewind.
    recent: LruCache<Box<str>, ()>,
    /// The number up to which changes happened before this process; `None` once reached.
    missed_until: Option<u64>,
    /// Since when no change was missed.
    followed_since: Option<Moment>,
    /// When the feed was opened.
    opened: Option<Instant>,
    /// Whether no missed rows are still to come.
    caught_up: bool,
    /// Number of failures since the last event.
    stuck: u32,
    begun: u64,
    rewinds: u64,
    failures: u64,
    absent: bool,
    refused: bool,
    problem: Option<String>,
}

/// The leading number of a clustered sequence, which grows with every row.
pub(super) fn number(seq: &str) -> Option<u64> {
    seq.split('-').next()?.parse().ok()
}

impl Updates {
    fn new() -> Self {
        Self {
            step: Step::Begin,
            pauses: Pauses::new(),
            at: None,
            made: None,
            recent: LruCache::new(RECENT_ROWS),
            missed_until: None,
            followed_since: None,
            opened: None,
            caught_up: false,
            stuck: 0,
            begun: 0,
            rewinds: 0,
            failures: 0,
            absent: false,
            refused: false,
            problem: None,
        }
    }

    /// Ends a pause.
    fn rested(&mut self) {
        self.step = match &self.at {
            Some((seq, _)) => Step::Open(seq.clone()),
            None => Step::Begin,
        };
    }

    /// Starts the feed at its current sequence, or at the position of an earlier process if
    /// possible.
    fn begins(
        &mut self,
        (seq, made): (String, Option<String>),
        kept: Option<Position>,
        now: Moment,
    ) {
        self.absent = false;
        self.refused = false;
        let is_there = kept.as_ref().is_some_and(|kept| kept.seq == seq);
        let (newest, from) = (number(&seq), resumed(kept, (&seq, made.as_deref()), now));
        self.made = made;
        self.begun += u64::from(!is_there && from.is_none());
        self.missed_until = newest.filter(|_| from.is_some());
        let seq = from.unwrap_or(seq);
        self.step = Step::Open(seq.clone());
        self.recent.put(seq.as_str().into(), ());
        self.at = Some((seq.clone(), number(&seq)));
        if self.missed_until.is_none() {
            self.listens_from(now);
        }
    }

    /// From the next second on, every change will be received.
    fn listens_from(&mut self, now: Moment) {
        self.missed_until = None;
        self.followed_since = Some(now.plus(Duration::from_secs(1)));
        self.caught_up = true;
    }

    fn is_open(&mut self) {
        self.step = Step::Listen;
        self.opened = Some(Instant::now());
    }

    /// Applies received lines; returns the events.
    fn lines(&mut self, lines: Vec<UpdateLine>, clock: Moment) -> Vec<Event> {
        let mut events = Vec::with_capacity(lines.len());
        for line in lines {
            match line {
                UpdateLine::Heartbeat => {
                    self.caught_up = true;
                    if self.missed_until.is_some() {
                        self.listens_from(clock);
                    }
                }
                UpdateLine::End { seq } => {
                    let now = number(&seq);
                    let last = self.at.as_ref().and_then(|(_, last)| *last);
                    if now.zip(last).is_some_and(|(now, last)| now < last) {
                        self.rewound();
                        return events;
                    }
                    self.at = Some((seq, now));
                }
                UpdateLine::Update { db, change, seq } => {
                    let now = number(&seq);
                    let last = self.at.as_ref().and_then(|(_, last)| *last);
                    if self.recent.contains(seq.as_str()) {
                        continue;
                    }
                    if now.zip(last).is_some_and(|(now, last)| now <= last) {
                        self.rewound();
                        return events;
                    }
                    if self.missed_until.is_some_and(|until| now.is_none_or(|now| now >= until)) {
                        self.listens_from(clock);
                    }
                    self.recent.put(seq.as_str().into(), ());
                    self.at = Some((seq, now));
                    self.stuck = 0;
                    events.extend(change.map(|change| Event { db: db.into(), change }));
                }
            }
        }
        if self.opened.is_some_and(|opened| opened.elapsed() >= CATCHES_UP) {
            self.caught_up = true;
        }
        self.problem = None;
        events
    }

    /// Checks before reopening that the database behind the feed is still the same one.
    fn is_of(&mut self, made: Option<&str>) {
        if differ(self.made.as_deref(), made) {
            self.rewound();
        }
    }

    /// Handles a feed that repeats old rows, or became another feed. Changes in the meantime are
    /// unknown, and a replay of all rows must not count as new events.
    fn rewound(&mut self) {
        self.rewinds += 1;
        self.problem = Some("the feed went back in time; restarting from now".to_owned());
        tracing::warn!("_db_updates went back in time: restarting from now and reading all shards");
        self.begin_anew();
        self.rest(Failed::Garbage);
    }

    fn begin_anew(&mut self) {
        self.at = None;
        self.recent.clear();
        self.missed_until = None;
        self.followed_since = None;
        self.stuck = 0;
    }

    /// Handles the end of the response body.
    fn ended(&mut self) {
        self.problem = Some("the feed ended".to_owned());
        self.rest(Failed::Broken);
    }

    fn failed(&mut self, failed: Failed, why: String) {
        self.stuck += 1;
        self.absent = failed == Failed::Absent;
        self.refused = failed == Failed::Refused;
        match failed {
            Failed::Absent | Failed::BadSequence => self.begin_anew(),
            Failed::Garbage if self.stuck >= STUCK => self.begin_anew(),
            Failed::Garbage | Failed::Refused | Failed::Broken => {}
        }
        self.problem = Some(why);
        self.rest(failed);
    }

    fn rest(&mut self, failed: Failed) {
        self.failures += 1;
        self.caught_up = false;
        self.step = Step::Rest(self.pauses.after(failed, self.opened.take()));
    }

    fn standing(&self) -> Standing {
        let listens = self.step == Step::Listen;
        Standing {
            connected: listens && self.caught_up,
            followed_since: self.followed_since,
            begun: self.begun,
            absent: self.absent,
            refused: self.refused,
            seq: self.at.as_ref().map(|(seq, _)| seq.clone()),
            made: self.made.clone(),
            node: None,
            rewinds: self.rewinds,
            failures: self.failures,
            problem: self.problem.clone(),
        }
    }
}

/// Follows the feed until the receiver of its steps is gone. Starts at the position of an earlier
/// process, which is loaded once CouchDB answers.
pub(super) async fn follow(
    feeds: Arc<dyn Feeds>,
    clock: Clock,
    recalled: impl Future<Output = Option<Position>>,
    out: mpsc::Sender<Heard>,
) {
    let mut recalled = Some(pin!(recalled));
    let mut state = Updates::new();
    let mut open: Option<Lines> = None;
    loop {
        let mut events = Vec::new();
        let missed = state.missed_until.is_some();
        match state.step.clone() {
            Step::Rest(pause) => {
                open = None;
                time::sleep(pause).await;
                state.rested();
                if matches!(state.step, Step::Open(_)) {
                    state.is_of(feeds.updates_made().await.as_deref());
                }
            }
            Step::Begin => match feeds.updates_now().await {
                Ok(seq) => {
                    let made = feeds.updates_made().await;
                    let kept = match recalled.take() {
                        Some(recalled) => recalled.await,
                        None => None,
                    };
                    state.begins((seq, made), kept, clock.now());
                }
                Err(error) => fail(&mut state, &error),
            },
            Step::Open(since) => match feeds.updates(since).await {
                Ok(lines) => {
                    open = Some(lines);
                    state.is_open();
                }
                Err(error) => fail(&mut state, &error),
            },
            Step::Listen => match open.as_mut() {
                Some(lines) => match lines.next().await {
                    Some(Ok(lines)) => events = state.lines(lines, clock.now()),
                    Some(Err(error)) => fail(&mut state, &error),
                    None => state.ended(),
                },
                None => state.ended(),
            },
        }
        // A piece that contains the last row from before this process may contain later rows too.
        let heard = if missed { Heard::Missed } else { Heard::Updates };
        if out.send(heard(events, state.standing())).await.is_err() {
            return;
        }
    }
}

fn fail(state: &mut Updates, error: &Error) {
    tracing::debug!(%error, "_db_updates failed");
    state.failed(Failed::of(error), describe(error));
}

#[cfg(test)]
mod tests;
