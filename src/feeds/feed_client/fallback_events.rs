//! Changes of databases detected by the scanner, used where `_db_updates` reports none.
//!
//! Pure. While the feed is connected it reports everything, and detected changes are dropped.
//! While it is unknown whether a broken feed can resume, they are held, and dropped if it
//! resumes at its position. If it restarts from now, changes detected before the end of the next
//! whole sweep may have happened earlier; they are reported unless the feed already named them. No
//! change is lost, but some may be reported twice around such a transition.

use super::{batch::PendingEvents, feed_step::FeedEvent, status::FeedState};
use crate::{scan::DbEventBatch, table::PublishedDbState};
use hashbrown::HashSet;
use wall_clock::Moment;

/// Maximum number of held events, and of remembered events of the feed.
const MAX_EVENTS: usize = 1_000_000;

/// Handling of detected changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FallbackMode {
    /// Held: the feed may still report them.
    #[default]
    Hold,
    /// Reported: there is no feed.
    Report,
    /// Reported unless the feed named them, until the end of a sweep that began at this time or
    /// later.
    HandOver(Moment),
    /// Dropped: the feed reports them.
    Discard,
}

/// Changes to report now.
#[derive(Debug, Default)]
pub(super) struct FallbackOutput {
    pub(super) events: Vec<FeedEvent>,
    /// State of the databases in these events, or in events already reported.
    pub(super) marks: Vec<PublishedDbState>,
}

/// Detected changes that are not reported yet.
#[derive(Debug, Default)]
pub(super) struct FallbackEvents {
    mode: FallbackMode,
    /// The feed's `starts_from_now` when it was last connected.
    starts_from_now: u64,
    held: PendingEvents,
    held_marks: Vec<PublishedDbState>,
    /// Events from the feed while changes are held or handed over.
    fed_events: HashSet<FeedEvent>,
}

impl FallbackEvents {
    /// Records an event from the feed.
    pub(super) fn record_feed_event(&mut self, event: &FeedEvent) {
        let remembers = matches!(self.mode, FallbackMode::Hold | FallbackMode::HandOver(_));
        if remembers && self.fed_events.len() < MAX_EVENTS {
            self.fed_events.insert(event.clone());
        }
    }

    /// Whether any changes are held.
    pub(super) fn has_held_events(&self) -> bool {
        self.held.len() > 0
    }

    /// Applies the state of the feed, after all its events were recorded; returns changes to report
    /// now.
    pub(super) fn apply_feed_state(&mut self, state: &FeedState, now: Moment) -> FallbackOutput {
        let is_missing = state.absent || (state.refused && state.seq.is_none());
        match (is_missing, state.connected, self.mode) {
            (true, _, FallbackMode::Report)
            | (false, true, FallbackMode::HandOver(_) | FallbackMode::Discard) => {
                FallbackOutput::default()
            }
            (true, _, _) => {
                self.mode = FallbackMode::Report;
                self.fed_events.clear();
                let marks = std::mem::take(&mut self.held_marks);
                FallbackOutput { events: self.held.take(), marks }
            }
            (false, true, FallbackMode::Hold | FallbackMode::Report)
                if state.starts_from_now == self.starts_from_now =>
            {
                *self = Self {
                    mode: FallbackMode::Discard,
                    starts_from_now: self.starts_from_now,
                    ..Self::default()
                };
                FallbackOutput::default()
            }
            (false, true, FallbackMode::Hold | FallbackMode::Report) => {
                self.starts_from_now = state.starts_from_now;
                self.mode = FallbackMode::HandOver(now);
                let mut events = self.held.take();
                events.retain(|event| !self.fed_events.contains(event));
                FallbackOutput { events, marks: std::mem::take(&mut self.held_marks) }
            }
            (false, false, _) => {
                self.mode = FallbackMode::Hold;
                FallbackOutput::default()
            }
        }
    }

    /// Applies detected changes; returns those to report now.
    pub(super) fn apply_event_batch(&mut self, batch: &DbEventBatch) -> FallbackOutput {
        let events = batch.events.iter();
        let events = events.map(|it| FeedEvent { db: it.db.clone(), change: it.change });
        let marks = || batch.marks.to_vec();
        match self.mode {
            FallbackMode::Discard => FallbackOutput::default(),
            FallbackMode::Report => FallbackOutput { events: events.collect(), marks: marks() },
            FallbackMode::Hold => {
                for event in events {
                    if self.held.len() < MAX_EVENTS {
                        self.held.add(event);
                    }
                }
                if self.held_marks.len() < MAX_EVENTS {
                    self.held_marks.extend(marks());
                }
                FallbackOutput::default()
            }
            FallbackMode::HandOver(since) => {
                let events = events.filter(|event| !self.fed_events.contains(event)).collect();
                if batch.swept.is_some_and(|began| began >= since)
                    || self.fed_events.len() >= MAX_EVENTS
                {
                    self.mode = FallbackMode::Discard;
                    self.fed_events = HashSet::new();
                }
                FallbackOutput { events, marks: marks() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::DbEvent;
    use couchdb_client::wire::DbChange;

    fn event(db: &str) -> FeedEvent {
        FeedEvent { db: db.into(), change: DbChange::Updated }
    }

    fn batch(dbs: &[&str], swept: Option<u64>) -> DbEventBatch {
        let event = |db: &&str| DbEvent { db: (*db).into(), change: DbChange::Updated };
        let events = dbs.iter().map(event).collect();
        DbEventBatch { events, swept: swept.map(Moment::from_unix), ..DbEventBatch::default() }
    }

    fn feed_state(connected: bool, starts_from_now: u64, absent: bool) -> FeedState {
        FeedState { connected, starts_from_now, absent, ..FeedState::default() }
    }

    /// The events of a scenario, in order.
    enum ScenarioStep {
        Detects(&'static [&'static str], Option<u64>),
        Reports(&'static str),
        /// Connected from now on, not resumed.
        Connected(u64),
        /// Connected again at its position.
        Resumed,
        Broken,
        Absent,
    }

    impl ScenarioStep {
        /// The detected events that are reported after this step. `starts` counts how often the feed
        /// started from now.
        fn apply(&self, fallback: &mut FallbackEvents, starts: &mut u64) -> Vec<FeedEvent> {
            let (state, now) = match self {
                Self::Detects(dbs, swept) => {
                    return fallback.apply_event_batch(&batch(dbs, *swept)).events;
                }
                Self::Reports(db) => {
                    fallback.record_feed_event(&event(db));
                    return Vec::new();
                }
                Self::Connected(now) => {
                    *starts += 1;
                    (feed_state(true, *starts, false), Moment::from_unix(*now))
                }
                Self::Resumed => (feed_state(true, *starts, false), Moment::default()),
                Self::Broken => (feed_state(false, *starts, false), Moment::default()),
                Self::Absent => (feed_state(false, *starts, true), Moment::default()),
            };
            fallback.apply_feed_state(&state, now).events
        }
    }

    #[test]
    fn each_change_is_reported_by_either_the_feed_or_the_sweep() {
        use ScenarioStep::{Absent, Broken, Connected, Detects, Reports, Resumed};
        let cases: &[(&str, &[ScenarioStep], &[&str])] = &[
            (
                "no feed",
                &[Absent, Detects(&["a"], None), Detects(&["a", "b"], Some(9))],
                &["a", "a", "b"],
            ),
            ("held until there is no feed", &[Detects(&["a"], None), Broken, Absent], &["a"]),
            (
                "the feed reports everything",
                &[Connected(5), Detects(&[], Some(6)), Reports("a"), Detects(&["a", "b"], None)],
                &[],
            ),
            // A sweep that began before the feed connected may have missed earlier changes.
            (
                "before the feed connected",
                &[
                    Absent,
                    Connected(5),
                    Detects(&["a"], Some(4)),
                    Detects(&["b"], Some(6)),
                    Detects(&["c"], None),
                ],
                &["a", "b"],
            ),
            (
                "both report it",
                &[
                    Detects(&["a", "b"], None),
                    Reports("a"),
                    Connected(5),
                    Reports("c"),
                    Detects(&["c", "d"], Some(6)),
                ],
                &["b", "d"],
            ),
            (
                "the feed breaks, and reports missed changes",
                &[
                    Connected(5),
                    Detects(&[], Some(6)),
                    Broken,
                    Detects(&["a", "b"], None),
                    Reports("a"),
                    Resumed,
                    Detects(&["c"], None),
                ],
                &[],
            ),
            (
                "a process that resumes the position of an earlier one",
                &[Detects(&["a"], Some(1)), Reports("b"), Resumed, Detects(&["c"], Some(2))],
                &[],
            ),
            (
                "the feed breaks, and restarts from now",
                &[
                    Connected(5),
                    Detects(&[], Some(6)),
                    Broken,
                    Detects(&["a"], None),
                    Connected(8),
                    Detects(&["b"], Some(9)),
                    Detects(&["c"], None),
                ],
                &["a", "b"],
            ),
            (
                "the feed breaks permanently",
                &[
                    Connected(5),
                    Detects(&[], Some(6)),
                    Broken,
                    Detects(&["a"], None),
                    Absent,
                    Detects(&["b"], None),
                ],
                &["a", "b"],
            ),
        ];
        for (name, steps, expected) in cases {
            let mut fallback = FallbackEvents::default();
            let (mut reports, mut starts): (Vec<FeedEvent>, u64) = (Vec::new(), 0);
            for step in *steps {
                reports.extend(step.apply(&mut fallback, &mut starts));
            }
            let reports: Vec<&str> = reports.iter().map(|event| &*event.db).collect();
            assert_eq!(reports, *expected, "{name}");
        }
    }

    #[test]
    fn refused_feed_counts_as_absent_unless_followed_before() {
        let refused = |seq: Option<&str>| FeedState {
            refused: true,
            seq: seq.map(ToOwned::to_owned),
            ..FeedState::default()
        };
        for (state, count) in [(refused(None), 1), (refused(Some("5-x")), 0)] {
            let mut fallback = FallbackEvents::default();
            fallback.apply_feed_state(&state, Moment::default());
            assert_eq!(fallback.apply_event_batch(&batch(&["a"], None)).events.len(), count);
        }
    }
}
