//! Changes of databases detected by the scanner, used where `_db_updates` reports none.
//!
//! Pure. While the feed is connected it reports everything, and detected changes are dropped.
//! While it is unknown whether a broken feed can resume, they are held, and dropped if it
//! resumes at its position. If it restarts from now, changes detected before the end of the next
//! whole sweep may have happened earlier; they are reported unless the feed already named them. No
//! change is lost, but some may be reported twice around such a transition.

use super::{
    batch::Events,
    heard::{Event, Standing},
};
use crate::{scan::Noticed, table::Mark};
use hashbrown::HashSet;
use wall_clock::Moment;

/// Maximum number of held events, and of remembered events of the feed.
const MOST: usize = 1_000_000;

/// Handling of detected changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// Held: the feed may still report them.
    #[default]
    Holds,
    /// Reported: there is no feed.
    Tells,
    /// Reported unless the feed named them, until the end of a sweep that began at this time or
    /// later.
    HandsOver(Moment),
    /// Dropped: the feed reports them.
    Drops,
}

/// Changes to report now.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) events: Vec<Event>,
    /// State of the databases in these events, or in events already reported.
    pub(super) marks: Vec<Mark>,
}

/// Detected changes that are not reported yet.
#[derive(Debug, Default)]
pub(super) struct Witness {
    mode: Mode,
    /// The feed's count of starts from now when it was last connected.
    begun: u64,
    held: Events,
    held_marks: Vec<Mark>,
    /// Events from the feed while changes are held or handed over.
    named: HashSet<Event>,
}

impl Witness {
    /// Records an event from the feed.
    pub(super) fn told(&mut self, event: &Event) {
        let remembers = matches!(self.mode, Mode::Holds | Mode::HandsOver(_));
        if remembers && self.named.len() < MOST {
            self.named.insert(event.clone());
        }
    }

    /// Whether any changes are held.
    pub(super) fn holds(&self) -> bool {
        self.held.len() > 0
    }

    /// Applies the state of the feed, after all its events were recorded; returns changes to report
    /// now.
    pub(super) fn feed(&mut self, standing: &Standing, now: Moment) -> Told {
        let has_none = standing.absent || (standing.refused && standing.seq.is_none());
        match (has_none, standing.connected, self.mode) {
            (true, _, Mode::Tells) | (false, true, Mode::HandsOver(_) | Mode::Drops) => {
                Told::default()
            }
            (true, _, _) => {
                self.mode = Mode::Tells;
                self.named.clear();
                let marks = std::mem::take(&mut self.held_marks);
                Told { events: self.held.take(), marks }
            }
            (false, true, Mode::Holds | Mode::Tells) if standing.begun == self.begun => {
                *self = Self { mode: Mode::Drops, begun: self.begun, ..Self::default() };
                Told::default()
            }
            (false, true, Mode::Holds | Mode::Tells) => {
                self.begun = standing.begun;
                self.mode = Mode::HandsOver(now);
                let mut events = self.held.take();
                events.retain(|event| !self.named.contains(event));
                Told { events, marks: std::mem::take(&mut self.held_marks) }
            }
            (false, false, _) => {
                self.mode = Mode::Holds;
                Told::default()
            }
        }
    }

    /// Applies detected changes; returns those to report now.
    pub(super) fn noticed(&mut self, noticed: &Noticed) -> Told {
        let events = noticed.events.iter();
        let events = events.map(|it| Event { db: it.db.clone(), change: it.change });
        let marks = || noticed.marks.to_vec();
        match self.mode {
            Mode::Drops => Told::default(),
            Mode::Tells => Told { events: events.collect(), marks: marks() },
            Mode::Holds => {
                for event in events {
                    if self.held.len() < MOST {
                        self.held.add(event);
                    }
                }
                if self.held_marks.len() < MOST {
                    self.held_marks.extend(marks());
                }
                Told::default()
            }
            Mode::HandsOver(since) => {
                let events = events.filter(|event| !self.named.contains(event)).collect();
                if noticed.swept.is_some_and(|began| began >= since) || self.named.len() >= MOST {
                    self.mode = Mode::Drops;
                    self.named = HashSet::new();
                }
                Told { events, marks: marks() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Became;
    use couchdb_client::wire::DbChange;

    fn event(db: &str) -> Event {
        Event { db: db.into(), change: DbChange::Updated }
    }

    fn noticed(dbs: &[&str], swept: Option<u64>) -> Noticed {
        let became = |db: &&str| Became { db: (*db).into(), change: DbChange::Updated };
        let events = dbs.iter().map(became).collect();
        Noticed { events, swept: swept.map(Moment::from_unix), ..Noticed::default() }
    }

    fn at(connected: bool, begun: u64, absent: bool) -> Standing {
        Standing { connected, begun, absent, ..Standing::default() }
    }

    /// The events of a scenario, in order.
    enum Step {
        Notices(&'static [&'static str], Option<u64>),
        Tells(&'static str),
        /// Connected from now on, not resumed.
        Connected(u64),
        /// Connected again at its position.
        Resumed,
        Broken,
        Absent,
    }

    impl Step {
        /// The events that the scanner's notices yield after this step. `begun` counts how often
        /// the feed was begun.
        fn apply(&self, witness: &mut Witness, begun: &mut u64) -> Vec<Event> {
            let (standing, now) = match self {
                Self::Notices(dbs, swept) => return witness.noticed(&noticed(dbs, *swept)).events,
                Self::Tells(db) => {
                    witness.told(&event(db));
                    return Vec::new();
                }
                Self::Connected(now) => {
                    *begun += 1;
                    (at(true, *begun, false), Moment::from_unix(*now))
                }
                Self::Resumed => (at(true, *begun, false), Moment::default()),
                Self::Broken => (at(false, *begun, false), Moment::default()),
                Self::Absent => (at(false, *begun, true), Moment::default()),
            };
            witness.feed(&standing, now).events
        }
    }

    #[test]
    fn each_event_is_reported_by_one_of_the_two_sources() {
        use Step::{Absent, Broken, Connected, Notices, Resumed, Tells};
        let cases: &[(&str, &[Step], &[&str])] = &[
            (
                "no feed",
                &[Absent, Notices(&["a"], None), Notices(&["a", "b"], Some(9))],
                &["a", "a", "b"],
            ),
            ("held until there is no feed", &[Notices(&["a"], None), Broken, Absent], &["a"]),
            (
                "the feed reports everything",
                &[Connected(5), Notices(&[], Some(6)), Tells("a"), Notices(&["a", "b"], None)],
                &[],
            ),
            // A sweep that began before the feed may not have covered the earlier time.
            (
                "before the feed connected",
                &[
                    Absent,
                    Connected(5),
                    Notices(&["a"], Some(4)),
                    Notices(&["b"], Some(6)),
                    Notices(&["c"], None),
                ],
                &["a", "b"],
            ),
            (
                "both report it",
                &[
                    Notices(&["a", "b"], None),
                    Tells("a"),
                    Connected(5),
                    Tells("c"),
                    Notices(&["c", "d"], Some(6)),
                ],
                &["b", "d"],
            ),
            (
                "the feed breaks, and reports missed changes",
                &[
                    Connected(5),
                    Notices(&[], Some(6)),
                    Broken,
                    Notices(&["a", "b"], None),
                    Tells("a"),
                    Resumed,
                    Notices(&["c"], None),
                ],
                &[],
            ),
            (
                "a process that resumes the position of an earlier one",
                &[Notices(&["a"], Some(1)), Tells("b"), Resumed, Notices(&["c"], Some(2))],
                &[],
            ),
            (
                "the feed breaks, and restarts from now",
                &[
                    Connected(5),
                    Notices(&[], Some(6)),
                    Broken,
                    Notices(&["a"], None),
                    Connected(8),
                    Notices(&["b"], Some(9)),
                    Notices(&["c"], None),
                ],
                &["a", "b"],
            ),
            (
                "the feed breaks permanently",
                &[
                    Connected(5),
                    Notices(&[], Some(6)),
                    Broken,
                    Notices(&["a"], None),
                    Absent,
                    Notices(&["b"], None),
                ],
                &["a", "b"],
            ),
        ];
        for (name, steps, expected) in cases {
            let mut witness = Witness::default();
            let (mut found, mut begun): (Vec<Event>, u64) = (Vec::new(), 0);
            for step in *steps {
                found.extend(step.apply(&mut witness, &mut begun));
            }
            let found: Vec<&str> = found.iter().map(|event| &*event.db).collect();
            assert_eq!(found, *expected, "{name}");
        }
    }

    #[test]
    fn a_refused_feed_counts_as_absent_unless_it_was_followed() {
        let refused = |seq: Option<&str>| Standing {
            refused: true,
            seq: seq.map(ToOwned::to_owned),
            ..Standing::default()
        };
        for (standing, tells) in [(refused(None), 1), (refused(Some("5-x")), 0)] {
            let mut witness = Witness::default();
            witness.feed(&standing, Moment::default());
            assert_eq!(witness.noticed(&noticed(&["a"], None)).events.len(), tells);
        }
    }
}
