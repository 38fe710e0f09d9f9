//! What becomes of what the feeds told. Pure but for `now`.

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

/// `_db_updates` and `_dbs/_changes`, as labels.
pub(super) const UPDATES: &str = "_db_updates";
pub(super) const MAP: &str = "_dbs";

/// How long a feed may be gone before what was measured counts as unconfirmed. What it then
/// resumes with is told late, and confirms again.
const GRACE: Duration = Duration::from_secs(30);

/// How often it is kept how far `_db_updates` is while nothing happens.
const POSITION: Duration = Duration::from_secs(600);

/// What is to be written together.
pub(super) type Batch = (Vec<What>, Reached);

/// One feed and when it was last connected.
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

    /// Since when it missed nothing, if it is there, or was a moment ago.
    fn since(&self, now: Instant) -> Option<Moment> {
        let there = match self.lost {
            None => self.standing.connected,
            Some(lost) => now < lost + GRACE,
        };
        self.standing.followed_since.filter(|_| there)
    }
}

/// Everything that was told and not sent on.
#[derive(Debug, Default)]
pub(super) struct Listener {
    updates: Followed,
    map: Followed,
    names: Names,
    witness: Witness,
    events: Events,
    /// How the databases stood that the scanner told of.
    marks: Vec<Mark>,
    /// The number of what it noticed last.
    noticed: u64,
    /// When names are sent on, and events.
    names_at: Option<Instant>,
    events_at: Option<Instant>,
    /// When it was last kept how far `_db_updates` is.
    kept_at: Option<Instant>,
    /// What the scanner was told last.
    told: Option<Moment>,
    counts: BTreeMap<DbChange, u64>,
    last_event: Option<Moment>,
}

impl Listener {
    /// Takes in what a feed told.
    pub(super) fn heard(&mut self, heard: Heard, follow: &Follow, now: (Instant, Moment)) {
        let (instant, _) = now;
        match heard {
            Heard::Updates(events, standing) => {
                events.iter().for_each(|event| self.names_of(event, follow, instant));
                self.told(events, standing, follow, now);
            }
            // The sweep that begins with the process reads all of it.
            Heard::Missed(events, standing) => self.told(events, standing, follow, now),
            Heard::Map(named, standing) => {
                self.map.stands(standing, instant);
                for db in named {
                    self.name(db, Stale::Entry, follow, instant);
                }
            }
        }
    }

    /// Takes in what the scanner noticed.
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

    /// Up to which number nothing of what was noticed waits here: what is held back for a feed
    /// that is away does.
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

    /// Since when nothing was missed by either feed.
    fn followed_since(&self, now: Instant) -> Option<Moment> {
        Some(self.updates.since(now)?.max(self.map.since(now)?))
    }

    /// When there is something to do next; `now` where that is overdue.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let lost = [&self.updates, &self.map].into_iter().filter_map(|feed| feed.lost);
        let graces = lost.map(|lost| lost + GRACE).filter(|_| self.told.is_some());
        let writes = self.events_at.into_iter().chain(self.position_at(now));
        self.names_at.into_iter().chain(writes).chain(graces).min()
    }

    /// What the scanner is to be told now, if anything.
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

    /// The scanner could not be told: it is tried again.
    pub(super) fn not_told(&mut self, news: News, follow: &Follow, now: Instant) {
        for named in news.named {
            self.names.add(named.db, named.what);
        }
        self.names_at = Some(now + follow.max_event_delay.max(Duration::from_millis(10)));
    }

    /// What is to be written to the journal now, and how far the feed is with that.
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

    /// When it is to be kept how far the feed is, though nothing else is: while it is there, so
    /// that the age of that tells how long nobody followed it.
    fn position_at(&self, now: Instant) -> Option<Instant> {
        let standing = &self.updates.standing;
        let is_there = standing.connected && standing.seq.is_some();
        is_there.then(|| self.kept_at.map_or(now, |at| at + POSITION))
    }

    /// What is shown.
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

    /// Begins anew with other feeds; what was counted stays.
    pub(super) fn begin_anew(&mut self) {
        self.updates = Followed::default();
        self.map = Followed::default();
        self.kept_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock goes on between two looks at it; on paused time it does not.
    #[test]
    fn what_is_due_is_done_and_not_due_again_at_once() {
        let moment = Moment::from_unix(1_795_300_000);
        let then = Instant::now().checked_sub(Duration::from_millis(2)).unwrap();
        let standing =
            Standing { connected: true, seq: Some("7-x".to_owned()), ..Standing::default() };
        let mut listener = Listener::default();
        let follow = Follow::default();
        listener.heard(Heard::Updates(Vec::new(), standing), &follow, (then, moment));
        assert_eq!(listener.next(then), Some(then), "it was never kept");
        let (events, reached) = listener.batch((then, moment)).expect("it is kept");
        assert_eq!((events.len(), reached.position.map(|it| it.seq)), (0, Some("7-x".to_owned())));
        assert_eq!(listener.next(Instant::now()), Some(then + POSITION));
        assert!(listener.batch((Instant::now(), moment)).is_none());
    }
}
