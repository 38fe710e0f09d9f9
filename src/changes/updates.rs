//! `_db_updates`: what to do next with it, and what it told.
//!
//! The state machine is pure but for the clock of its pauses: answers and lines in, the next
//! step and events out. [`follow`] takes the steps.

use super::{
    feeds::{Failed, Feeds, Lines},
    heard::{Event, Heard, Standing},
    pauses::Pauses,
};
use crate::{
    clock::{Clock, Moment},
    couch::{Error, wire::UpdateLine},
};
use futures::StreamExt as _;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::mpsc,
    time::{self, Instant},
};

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
    /// Since when nothing was missed.
    followed_since: Option<Moment>,
    /// When it was opened.
    opened: Option<Instant>,
    /// Whether nothing that it missed is still to come.
    caught_up: bool,
    /// Failures since the last event.
    stuck: u32,
    rewinds: u64,
    failures: u64,
    absent: bool,
    problem: Option<String>,
}

/// The number at the head of a clustered sequence: it grows with every row.
fn number(seq: &str) -> Option<u64> {
    seq.split('-').next()?.parse().ok()
}

impl Updates {
    fn new() -> Self {
        Self {
            step: Step::Begin,
            pauses: Pauses::new(),
            at: None,
            followed_since: None,
            opened: None,
            caught_up: false,
            stuck: 0,
            rewinds: 0,
            failures: 0,
            absent: false,
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

    /// The feed is this far. What happens from the next second on will be told.
    fn begins(&mut self, seq: String, now: Moment) {
        self.step = Step::Open(seq.clone());
        let number = number(&seq);
        self.at = Some((seq, number));
        self.followed_since = Some(now.plus(Duration::from_secs(1)));
        self.caught_up = true;
        self.absent = false;
    }

    fn is_open(&mut self) {
        self.step = Step::Listen;
        self.opened = Some(Instant::now());
    }

    /// Lines came; answers with what happened.
    fn lines(&mut self, lines: Vec<UpdateLine>) -> Vec<Event> {
        let mut events = Vec::with_capacity(lines.len());
        for line in lines {
            match line {
                UpdateLine::Heartbeat => self.caught_up = true,
                UpdateLine::End { seq } => {
                    let number = number(&seq);
                    self.at = Some((seq, number));
                }
                UpdateLine::Update { db, change, seq } => {
                    let now = number(&seq);
                    let (before, last) = match &self.at {
                        Some((before, last)) => (before.as_str(), *last),
                        None => ("", None),
                    };
                    if before == seq {
                        // The last one once more.
                        continue;
                    }
                    if now.zip(last).is_some_and(|(now, last)| now <= last) {
                        self.rewound();
                        return events;
                    }
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
            absent: self.absent,
            seq: self.at.as_ref().map(|(seq, _)| seq.clone()),
            node: None,
            rewinds: self.rewinds,
            failures: self.failures,
            problem: self.problem.clone(),
        }
    }
}

/// Follows the feed for ever, as long as anyone hears what it tells.
pub(super) async fn follow(feeds: Arc<dyn Feeds>, clock: Clock, out: mpsc::Sender<Heard>) {
    let mut state = Updates::new();
    let mut open: Option<Lines> = None;
    loop {
        let mut events = Vec::new();
        match state.step.clone() {
            Step::Rest(pause) => {
                open = None;
                time::sleep(pause).await;
                state.rested();
            }
            Step::Begin => match feeds.updates_now().await {
                Ok(seq) => state.begins(seq, clock.now()),
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
                    Some(Ok(lines)) => events = state.lines(lines),
                    Some(Err(error)) => fail(&mut state, &error),
                    None => state.ended(),
                },
                None => state.ended(),
            },
        }
        if out.send(Heard::Updates(events, state.standing())).await.is_err() {
            return;
        }
    }
}

fn fail(state: &mut Updates, error: &Error) {
    tracing::debug!(%error, "_db_updates");
    state.failed(Failed::of(error), error.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::couch::wire::DbChange;
    use proptest::prelude::*;

    fn update(db: &str, number: u64) -> UpdateLine {
        UpdateLine::Update {
            db: db.to_owned(),
            change: Some(DbChange::Updated),
            seq: format!("{number}-x"),
        }
    }

    fn names(events: &[Event]) -> Vec<&str> {
        events.iter().map(|event| &*event.db).collect()
    }

    /// One that listens behind this number.
    fn listening(number: u64) -> Updates {
        let mut state = Updates::new();
        state.begins(format!("{number}-x"), Moment::from_unix(100));
        assert_eq!(state.step, Step::Open(format!("{number}-x")));
        state.is_open();
        state
    }

    #[tokio::test(start_paused = true)]
    async fn it_begins_now_and_goes_on_where_it_broke_off() {
        let mut state = listening(5);
        assert_eq!(state.standing().followed_since, Some(Moment::from_unix(101)));
        assert!(state.standing().connected, "nothing can have been missed");
        let events = state.lines(vec![update("a", 6), update("b", 7), update("b", 7)]);
        assert_eq!(names(&events), ["a", "b"], "a line that comes twice is one event");
        state.ended();
        assert!(matches!(state.step, Step::Rest(_)) && !state.standing().connected);
        state.rested();
        assert_eq!(state.step, Step::Open("7-x".to_owned()));
        state.is_open();
        assert_eq!(names(&state.lines(vec![update("a", 9)])), ["a"]);
        assert!(!state.standing().connected, "more of what it missed may come");
        assert_eq!(state.standing().followed_since, Some(Moment::from_unix(101)), "nothing was");
        assert!(state.lines(vec![UpdateLine::Heartbeat]).is_empty());
        assert!(state.standing().connected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_feed_that_goes_back_is_begun_anew_and_its_replay_is_no_news() {
        for behind in [1, 5] {
            let mut state = listening(5);
            let replay: Vec<UpdateLine> = (behind..100).map(|at| update("a", at)).collect();
            let replay = if behind == 5 {
                // The last number with another text is another feed's.
                vec![UpdateLine::Update { db: "a".into(), change: None, seq: "5-y".into() }]
            } else {
                replay
            };
            assert_eq!(names(&state.lines(replay)), Vec::<&str>::new());
            assert_eq!((state.rewinds, state.followed_since), (1, None));
            state.rested();
            assert_eq!(state.step, Step::Begin);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_in_each_way_is_asked_again_as_it_deserves() {
        let rest = |state: &Updates| match state.step {
            Step::Rest(pause) => pause,
            Step::Begin | Step::Open(_) | Step::Listen => Duration::ZERO,
        };
        let mut state = listening(5);
        state.failed(Failed::Absent, "404".into());
        assert!(rest(&state) >= Duration::from_secs(60) && state.standing().absent);
        state.rested();
        assert_eq!(state.step, Step::Begin, "another one may come in its place");

        let mut state = listening(5);
        state.failed(Failed::Refused, "401".into());
        assert!(rest(&state) >= Duration::from_secs(300));

        let mut state = listening(5);
        for _ in 0..STUCK - 1 {
            state.failed(Failed::Garbage, "?".into());
            state.rested();
            assert_eq!(state.step, Step::Open("5-x".to_owned()));
        }
        state.failed(Failed::Garbage, "?".into());
        state.rested();
        assert_eq!(state.step, Step::Begin, "it does not get past a line");

        let mut state = listening(5);
        state.failed(Failed::BadSequence, "400".into());
        state.rested();
        assert_eq!(state.step, Step::Begin);

        let mut state = listening(5);
        let pauses: Vec<Duration> = (0..20)
            .map(|_| {
                state.failed(Failed::Broken, "gone".into());
                rest(&state)
            })
            .collect();
        assert!(pauses.iter().all(|it| *it <= Duration::from_secs(60)), "{pauses:?}");
        assert!(pauses[19] >= Duration::from_secs(30), "{pauses:?}");
    }

    proptest! {
        #[test]
        fn whatever_comes_no_event_comes_twice(
            numbers in proptest::collection::vec(0_u64..40, 0..60),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let told: Vec<u64> = runtime.unwrap().block_on(async {
                let mut state = listening(0);
                let mut told = Vec::new();
                for at in numbers {
                    let events = state.lines(vec![update(&at.to_string(), at)]);
                    told.extend(events.iter().map(|event| event.db.parse::<u64>().unwrap()));
                    if state.rewinds > 0 {
                        break;
                    }
                }
                told
            });
            prop_assert!(told.is_sorted_by(|one, other| one < other), "{:?}", told);
        }
    }
}
