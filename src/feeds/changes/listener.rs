//! Turns the results of the feeds into news for the scanner and events for the journal. Pure except
//! for `now`.

use super::{
    batch::{Events, Names},
    heard::{Event, Heard, Standing},
    status::{Feed, Status},
    witness::{Told, Witness},
};
use crate::{
    model::settings::work::Follow,
    scan::{News, Noticed, Stale},
    store::journal::{Position, Reached, What},
    table::Mark,
};
use couchdb_client::wire::DbChange;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;
use wall_clock::Moment;

/// Names of the feeds in labels.
pub(super) const UPDATES: &str = "_db_updates";
pub(super) const MAP: &str = "_dbs";

/// How long a feed may be disconnected before facts count as unconfirmed. A resumed feed reports
/// changes late, which confirms the facts again.
const GRACE: Duration = Duration::from_secs(30);

/// Interval of saving the position in `_db_updates` while nothing happens.
const POSITION: Duration = Duration::from_secs(600);

/// Content of one journal write.
pub(super) type Batch = (Vec<What>, Reached);

/// A feed and when it was disconnected.
#[derive(Debug, Default)]
struct Followed {
    standing: Standing,
    lost: Option<Instant>,
}

impl Followed {
    fn stands(&mut self, standing: Standing, now: Instant) {
        self.lost = if standing.connected { None } else { self.lost.or(Some(now)) };
        self.standing = standing;
    }

    /// Since when the feed missed nothing, if it is connected or was until a moment ago.
    fn since(&self, now: Instant) -> Option<Moment> {
        let there = match self.lost {
            None => self.standing.connected,
            Some(lost) => now < lost + GRACE,
        };
        self.standing.followed_since.filter(|_| there)
    }
}

/// Collects everything received and not sent on yet.
#[derive(Debug, Default)]
pub(super) struct Listener {
    updates: Followed,
    map: Followed,
    names: Names,
    witness: Witness,
    events: Events,
    /// State of the databases in events detected by the scanner.
    marks: Vec<Mark>,
    /// Number of the last batch detected by the scanner.
    noticed: u64,
    /// When to send names to the scanner, and events to the journal.
    names_at: Option<Instant>,
    events_at: Option<Instant>,
    /// When the position in `_db_updates` was last saved.
    kept_at: Option<Instant>,
    /// The `followed_since` last sent to the scanner.
    told: Option<Moment>,
    counts: BTreeMap<DbChange, u64>,
    last_event: Option<Moment>,
}

impl Listener {
    /// Applies a feed's step.
    pub(super) fn heard(&mut self, heard: Heard, follow: &Follow, now: (Instant, Moment)) {
        let (instant, _) = now;
        match heard {
            Heard::Updates(events, standing) => {
                events.iter().for_each(|event| self.names_of(event, follow, instant));
                self.told(events, standing, follow, now);
            }
            // Not reported to the scanner: the first sweep of the process reads everything.
            Heard::Missed(events, standing) => self.told(events, standing, follow, now),
            Heard::Map(named, standing) => {
                self.map.stands(standing, instant);
                for db in named {
                    self.name(db, Stale::Entry, follow, instant);
                }
            }
        }
    }

    /// Applies changes detected by the scanner.
    pub(super) fn noticed(&mut self, noticed: &Noticed, follow: &Follow, now: (Instant, Moment)) {
        self.noticed = noticed.number;
        let told = self.witness.noticed(noticed);
        self.tells(told, follow, now);
    }

    fn tells(&mut self, told: Told, follow: &Follow, now: (Instant, Moment)) {
        for event in told.events {
            self.event(event, follow, now);
        }
        if follow.update_db && !told.marks.is_empty() {
            self.marks.extend(told.marks);
            self.events_at.get_or_insert(now.0 + follow.max_write_delay);
        }
    }

    /// Number up to which all detected changes have left this collector. `None` while any wait, for
    /// example held back for a disconnected feed.
    pub(super) fn settled(&self) -> Option<u64> {
        (self.events_at.is_none() && !self.witness.holds()).then_some(self.noticed)
    }

    fn told(
        &mut self,
        events: Vec<Event>,
        standing: Standing,
        follow: &Follow,
        now: (Instant, Moment),
    ) {
        events.iter().for_each(|event| self.witness.told(event));
        let unnamed = self.witness.feed(&standing, now.1);
        self.updates.stands(standing, now.0);
        self.tells(unnamed, follow, now);
        for event in events {
            self.event(event, follow, now);
        }
    }

    fn event(&mut self, event: Event, follow: &Follow, (instant, moment): (Instant, Moment)) {
        *self.counts.entry(event.change).or_default() += 1;
        self.last_event = Some(moment);
        if follow.update_db {
            self.events.add(event);
            self.events_at.get_or_insert(instant + follow.max_write_delay);
        }
    }

    fn names_of(&mut self, event: &Event, follow: &Follow, now: Instant) {
        let what = match event.change {
            DbChange::Updated => Stale::Shards,
            DbChange::Created | DbChange::Deleted => Stale::Entry,
        };
        self.name(event.db.clone(), what, follow, now);
    }

    fn name(&mut self, db: Box<str>, what: Stale, follow: &Follow, now: Instant) {
        self.names.add(db, what);
        self.names_at.get_or_insert(now + follow.max_event_delay);
    }

    /// Since when neither feed missed anything.
    fn followed_since(&self, now: Instant) -> Option<Moment> {
        Some(self.updates.since(now)?.max(self.map.since(now)?))
    }

    /// When something is due next; a time in the past or `now` if overdue.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let lost = [&self.updates, &self.map].into_iter().filter_map(|feed| feed.lost);
        let graces = lost.map(|lost| lost + GRACE).filter(|_| self.told.is_some());
        let writes = self.events_at.into_iter().chain(self.position_at(now));
        self.names_at.into_iter().chain(writes).chain(graces).min()
    }

    /// The news to send to the scanner now, if any.
    pub(super) fn news(&mut self, now: Instant) -> Option<News> {
        let followed_since = self.followed_since(now);
        let due = self.names_at.is_some_and(|at| at <= now);
        if !due && followed_since == self.told {
            return None;
        }
        self.names_at = None;
        self.told = followed_since;
        Some(News { named: self.names.take(), followed_since })
    }

    /// Requeues news that the scanner could not accept.
    pub(super) fn not_told(&mut self, news: News, follow: &Follow, now: Instant) {
        for named in news.named {
            self.names.add(named.db, named.what);
        }
        self.names_at = Some(now + follow.max_event_delay.max(Duration::from_millis(10)));
    }

    /// The events to write to the journal now, if any, with the position of the feed.
    pub(super) fn batch(&mut self, (now, moment): (Instant, Moment)) -> Option<Batch> {
        let events = self.events_at.is_some_and(|at| at <= now);
        let position = self.position_at(now).is_some_and(|at| at <= now);
        if !events && !position {
            return None;
        }
        self.events_at = None;
        let seq = self.updates.standing.seq.clone();
        self.kept_at = seq.is_some().then_some(now);
        let made = self.updates.standing.made.clone();
        let position = seq.map(|seq| Position { seq, made, at: moment });
        let what = |Event { db, change }| {
            let db = String::from(db);
            match change {
                DbChange::Created => What::Created { db },
                DbChange::Updated => What::Updated { db },
                DbChange::Deleted => What::Deleted { db },
            }
        };
        let marks = std::mem::take(&mut self.marks);
        let events = self.events.take().into_iter().map(what).collect();
        Some((events, Reached { position, marks }))
    }

    /// When to save the position without events. It is saved while the feed is connected, so that
    /// its age shows for how long nobody followed the feed.
    fn position_at(&self, now: Instant) -> Option<Instant> {
        let standing = &self.updates.standing;
        let is_there = standing.connected && standing.seq.is_some();
        is_there.then(|| self.kept_at.map_or(now, |at| at + POSITION))
    }

    /// The status to publish.
    pub(super) fn status(&self, now: Instant) -> Status {
        let feeds = [(UPDATES, &self.updates), (MAP, &self.map)];
        Status {
            feeds: feeds.map(|(name, feed)| (name, Feed::from(&feed.standing))).into(),
            followed_since: self.followed_since(now),
            events: DbChange::ALL
                .map(|change| (change, self.counts.get(&change).copied().unwrap_or_default()))
                .into(),
            pending: self.events.len(),
            last_event: self.last_event,
        }
    }

    /// Resets the state for other feeds; the counters stay.
    pub(super) fn begin_anew(&mut self) {
        self.updates = Followed::default();
        self.map = Followed::default();
        self.kept_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Real time passes between two calls of `now`, unlike paused time.
    #[test]
    fn a_due_action_is_done_and_not_due_again_at_once() {
        let moment = Moment::from_unix(1_795_300_000);
        let then = Instant::now().checked_sub(Duration::from_millis(2)).unwrap();
        let standing =
            Standing { connected: true, seq: Some("7-x".to_owned()), ..Standing::default() };
        let mut listener = Listener::default();
        let follow = Follow::default();
        listener.heard(Heard::Updates(Vec::new(), standing), &follow, (then, moment));
        assert_eq!(listener.next(then), Some(then), "it was never saved");
        let (events, reached) = listener.batch((then, moment)).expect("it is saved");
        assert_eq!((events.len(), reached.position.map(|it| it.seq)), (0, Some("7-x".to_owned())));
        assert_eq!(listener.next(Instant::now()), Some(then + POSITION));
        assert!(listener.batch((Instant::now(), moment)).is_none());
    }
}
