//! `_db_updates`: what to do next with it, and what it told.
//!
//! The state machine is pure but for the clock of its pauses: answers and lines in, the next
//! step and events out. [`follow`] takes the steps.

use super::{
    feeds::{Failed, Feeds, Lines},
    heard::{Event, Heard, Standing},
    pauses::Pauses,
    recent::Recent,
    resumed::{differ, resumed},
};
use crate::{sources::couchdb::describe, store::journal::Position};
use couchdb_client::{Error, wire::UpdateLine};
use futures::StreamExt as _;
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::{
    sync::mpsc,
    time::{self, Instant},
};
use wall_clock::{Clock, Moment};

/// Failures in a row at one place of the feed, after which it is given up and begun anew.
const STUCK: u32 = 3;

/// How long a feed that was resumed may take to tell what it missed.
const CATCHES_UP: Duration = Duration::from_secs(10);

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Ask how far the feed is, and begin there.
    Begin,
    /// Open it behind this sequence.
    Open(String),
    /// Wait for lines.
    Listen,
    /// Wait.
    Rest(Duration),
}

/// Where the feed stands.
#[derive(Debug)]
struct Updates {
    step: Step,
    pauses: Pauses,
    /// The sequence to go on from, and the number it begins with.
    at: Option<(String, Option<u64>)>,
    /// When the database was made that it is of.
    made: Option<String>,
    /// The rows that came last.
    recent: Recent,
    /// The number at which the time begins in which this process listens, until it is reached.
    missed_until: Option<u64>,
    /// Since when nothing was missed.
    followed_since: Option<Moment>,
    /// When it was opened.
    opened: Option<Instant>,
    /// Whether nothing that it missed is still to come.
    caught_up: bool,
    /// Failures since the last event.
    stuck: u32,
    begun: u64,
    rewinds: u64,
    failures: u64,
    absent: bool,
    refused: bool,
    problem: Option<String>,
}

/// The number at the head of a clustered sequence: it grows with every row.
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
            recent: Recent::default(),
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

    /// A pause is over.
    fn rested(&mut self) {
        self.step = match &self.at {
            Some((seq, _)) => Step::Open(seq.clone()),
            None => Step::Begin,
        };
    }

    /// The feed is this far, and its database was made then. It goes on where an earlier
    /// process was, where it can.
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
        self.recent.add(&seq);
        self.at = Some((seq.clone(), number(&seq)));
        if self.missed_until.is_none() {
            self.listens_from(now);
        }
    }

    /// Whatever happens from the next second on will be told.
    fn listens_from(&mut self, now: Moment) {
        self.missed_until = None;
        self.followed_since = Some(now.plus(Duration::from_secs(1)));
        self.caught_up = true;
    }

    fn is_open(&mut self) {
        self.step = Step::Listen;
        self.opened = Some(Instant::now());
    }

    /// Lines came; answers with what happened.
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
                    if self.recent.has(&seq) {
                        continue;
                    }
                    if now.zip(last).is_some_and(|(now, last)| now <= last) {
                        self.rewound();
                        return events;
                    }
                    if self.missed_until.is_some_and(|until| now.is_none_or(|now| now >= until)) {
                        self.listens_from(clock);
                    }
                    self.recent.add(&seq);
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

    /// Before it is opened anew: its database was made then.
    fn is_of(&mut self, made: Option<&str>) {
        if differ(self.made.as_deref(), made) {
            self.rewound();
        }
    }

    /// It tells what it told before, or is another feed by now: what happened meanwhile is
    /// not known, and a replay of everything must not be taken for news.
    fn rewound(&mut self) {
        self.rewinds += 1;
        self.problem = Some("it went back in time; it is begun anew from now".to_owned());
        tracing::warn!("_db_updates went back in time: it is begun anew, and all shards are read");
        self.begin_anew();
        self.rest(Failed::Garbage);
    }

    fn begin_anew(&mut self) {
        self.at = None;
        self.recent = Recent::default();
        self.missed_until = None;
        self.followed_since = None;
        self.stuck = 0;
    }

    /// The body ended.
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

/// Follows the feed for ever, as long as anyone hears what it tells. At first it goes on where
/// an earlier process was, as it is recalled once CouchDB answers.
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
        // What comes in one piece with the last row of that time may be of either.
        let heard = if missed { Heard::Missed } else { Heard::Updates };
        if out.send(heard(events, state.standing())).await.is_err() {
            return;
        }
    }
}

fn fail(state: &mut Updates, error: &Error) {
    tracing::debug!(%error, "_db_updates");
    state.failed(Failed::of(error), describe(error));
}

#[cfg(test)]
mod tests;
