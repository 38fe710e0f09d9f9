//! Turns the results of the feeds into updates for the scanner and events for the journal. Pure
//! except for `now`.

use super::{
    batch::{PendingEvents, PendingNames},
    fallback_events::{FallbackEvents, FallbackOutput},
    feed_step::{FeedEvent, FeedStep},
    status::{FeedClientStatus, FeedState},
};
use crate::{
    model::settings::work::Follow,
    scan::{DbEventBatch, FeedUpdate, Stale},
    store::journal::{EventDetails, EventProgress, FeedPosition},
    table::PublishedDbState,
};
use couchdb_client::wire::DbChange;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;
use wall_clock::Moment;

/// Names of the feeds in labels.
pub(super) const UPDATES: &str = "_db_updates";
pub(super) const DBS: &str = "_dbs";

/// How long a feed may be disconnected before facts count as unconfirmed. A resumed feed reports
/// changes late, which confirms the facts again.
const DISCONNECT_GRACE: Duration = Duration::from_secs(30);

/// Interval of saving the position in `_db_updates` while nothing happens.
const POSITION_INTERVAL: Duration = Duration::from_secs(600);

/// Content of one journal write.
pub(super) type JournalBatch = (Vec<EventDetails>, EventProgress);

/// A feed and when it was disconnected.
#[derive(Debug, Default)]
struct TrackedFeed {
    state: FeedState,
    disconnected_at: Option<Instant>,
}

impl TrackedFeed {
    fn set_state(&mut self, state: FeedState, now: Instant) {
        self.disconnected_at =
            if state.connected { None } else { self.disconnected_at.or(Some(now)) };
        self.state = state;
    }

    /// Since when the feed missed nothing, if it is connected or was until a moment ago.
    fn followed_since(&self, now: Instant) -> Option<Moment> {
        let is_followed = match self.disconnected_at {
            None => self.state.connected,
            Some(at) => now < at + DISCONNECT_GRACE,
        };
        self.state.followed_since.filter(|_| is_followed)
    }
}

/// Collects everything received and not sent on yet.
#[derive(Debug, Default)]
pub(super) struct ChangeCollector {
    updates: TrackedFeed,
    map: TrackedFeed,
    names: PendingNames,
    fallback: FallbackEvents,
    events: PendingEvents,
    /// State of the databases in events detected by the scanner.
    marks: Vec<PublishedDbState>,
    /// Number of the last batch detected by the scanner.
    last_batch: u64,
    /// When to send names to the scanner, and events to the journal.
    names_due: Option<Instant>,
    events_due: Option<Instant>,
    /// When the position in `_db_updates` was last saved.
    position_saved_at: Option<Instant>,
    /// The `followed_since` last sent to the scanner.
    last_sent: Option<Moment>,
    counts: BTreeMap<DbChange, u64>,
    last_event: Option<Moment>,
}

impl ChangeCollector {
    pub(super) fn apply_step(&mut self, step: FeedStep, follow: &Follow, now: (Instant, Moment)) {
        let (instant, _) = now;
        match step {
            FeedStep::Updates(events, state) => {
                events.iter().for_each(|event| self.record_names(event, follow, instant));
                self.apply_updates(events, state, follow, now);
            }
            // Not reported to the scanner: the first sweep of the process reads everything.
            FeedStep::MissedUpdates(events, state) => {
                self.apply_updates(events, state, follow, now)
            }
            FeedStep::MapChanges(named, state) => {
                self.map.set_state(state, instant);
                for db in named {
                    self.add_name(db, Stale::Entry, follow, instant);
                }
            }
        }
    }

    /// Applies changes detected by the scanner.
    pub(super) fn apply_event_batch(
        &mut self,
        batch: &DbEventBatch,
        follow: &Follow,
        now: (Instant, Moment),
    ) {
        self.last_batch = batch.number;
        let output = self.fallback.apply_event_batch(batch);
        self.record_fallback(output, follow, now);
    }

    fn record_fallback(&mut self, output: FallbackOutput, follow: &Follow, now: (Instant, Moment)) {
        for event in output.events {
            self.record_event(event, follow, now);
        }
        if follow.update_db && !output.marks.is_empty() {
            self.marks.extend(output.marks);
            self.events_due.get_or_insert(now.0 + follow.max_write_delay);
        }
    }

    /// Number up to which all detected changes have left this collector. `None` while any wait, for
    /// example held back for a disconnected feed.
    pub(super) fn confirmed_up_to(&self) -> Option<u64> {
        (self.events_due.is_none() && !self.fallback.has_held_events()).then_some(self.last_batch)
    }

    fn apply_updates(
        &mut self,
        events: Vec<FeedEvent>,
        state: FeedState,
        follow: &Follow,
        now: (Instant, Moment),
    ) {
        events.iter().for_each(|event| self.fallback.record_feed_event(event));
        let output = self.fallback.apply_feed_state(&state, now.1);
        self.updates.set_state(state, now.0);
        self.record_fallback(output, follow, now);
        for event in events {
            self.record_event(event, follow, now);
        }
    }

    fn record_event(
        &mut self,
        event: FeedEvent,
        follow: &Follow,
        (instant, moment): (Instant, Moment),
    ) {
        *self.counts.entry(event.change).or_default() += 1;
        self.last_event = Some(moment);
        if follow.update_db {
            self.events.add(event);
            self.events_due.get_or_insert(instant + follow.max_write_delay);
        }
    }

    fn record_names(&mut self, event: &FeedEvent, follow: &Follow, now: Instant) {
        let stale = match event.change {
            DbChange::Updated => Stale::Shards,
            DbChange::Created | DbChange::Deleted => Stale::Entry,
        };
        self.add_name(event.db.clone(), stale, follow, now);
    }

    fn add_name(&mut self, db: Box<str>, stale: Stale, follow: &Follow, now: Instant) {
        self.names.add(db, stale);
        self.names_due.get_or_insert(now + follow.max_event_delay);
    }

    /// Since when neither feed missed anything.
    fn followed_since(&self, now: Instant) -> Option<Moment> {
        Some(self.updates.followed_since(now)?.max(self.map.followed_since(now)?))
    }

    /// When something is due next; a time in the past or `now` if overdue.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let disconnected =
            [&self.updates, &self.map].into_iter().filter_map(|feed| feed.disconnected_at);
        let graces =
            disconnected.map(|at| at + DISCONNECT_GRACE).filter(|_| self.last_sent.is_some());
        let writes = self.events_due.into_iter().chain(self.position_due(now));
        self.names_due.into_iter().chain(writes).chain(graces).min()
    }

    /// The update to send to the scanner now, if any.
    pub(super) fn take_update(&mut self, now: Instant) -> Option<FeedUpdate> {
        let followed_since = self.followed_since(now);
        let due = self.names_due.is_some_and(|at| at <= now);
        if !due && followed_since == self.last_sent {
            return None;
        }
        self.names_due = None;
        self.last_sent = followed_since;
        let map_node = self.map.state.node.clone();
        Some(FeedUpdate { named: self.names.take(), followed_since, map_node })
    }

    /// Requeues an update that the scanner could not accept.
    pub(super) fn requeue(&mut self, update: FeedUpdate, follow: &Follow, now: Instant) {
        for named in update.named {
            self.names.add(named.db, named.stale);
        }
        self.names_due = Some(now + follow.max_event_delay.max(Duration::from_millis(10)));
    }

    /// The events to write to the journal now, if any, with the position of the feed.
    pub(super) fn take_batch(&mut self, (now, moment): (Instant, Moment)) -> Option<JournalBatch> {
        let events = self.events_due.is_some_and(|at| at <= now);
        let position = self.position_due(now).is_some_and(|at| at <= now);
        if !events && !position {
            return None;
        }
        self.events_due = None;
        let seq = self.updates.state.seq.clone();
        self.position_saved_at = seq.is_some().then_some(now);
        let created_at = self.updates.state.created_at.clone();
        let position = seq.map(|seq| FeedPosition { seq, created_at, at: moment });
        let details = |FeedEvent { db, change }| {
            let db = String::from(db);
            match change {
                DbChange::Created => EventDetails::Created { db },
                DbChange::Updated => EventDetails::Updated { db },
                DbChange::Deleted => EventDetails::Deleted { db },
            }
        };
        let marks = std::mem::take(&mut self.marks);
        let events = self.events.take().into_iter().map(details).collect();
        Some((events, EventProgress { position, marks }))
    }

    /// When to save the position without events. It is saved while the feed is connected, so that
    /// its age shows for how long nobody followed the feed.
    fn position_due(&self, now: Instant) -> Option<Instant> {
        let state = &self.updates.state;
        let is_known = state.connected && state.seq.is_some();
        is_known.then(|| self.position_saved_at.map_or(now, |at| at + POSITION_INTERVAL))
    }

    pub(super) fn status(&self, now: Instant) -> FeedClientStatus {
        let feeds = [(UPDATES, &self.updates), (DBS, &self.map)];
        FeedClientStatus {
            feeds: feeds.map(|(name, feed)| (name, feed.state.clone())).into(),
            followed_since: self.followed_since(now),
            events: DbChange::ALL
                .map(|change| (change, self.counts.get(&change).copied().unwrap_or_default()))
                .into(),
            pending_events: self.events.len(),
            last_event_at: self.last_event,
        }
    }

    /// Resets the state for other feeds; the counters stay.
    pub(super) fn reset(&mut self) {
        self.updates = TrackedFeed::default();
        self.map = TrackedFeed::default();
        self.position_saved_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses real time: unlike paused time, it passes between two calls of `now`.
    #[test]
    fn saved_position_is_due_again_only_after_the_interval() {
        let moment = Moment::from_unix(1_795_300_000);
        let then = Instant::now().checked_sub(Duration::from_millis(2)).unwrap();
        let state =
            FeedState { connected: true, seq: Some("7-x".to_owned()), ..FeedState::default() };
        let mut collector = ChangeCollector::default();
        let follow = Follow::default();
        collector.apply_step(FeedStep::Updates(Vec::new(), state), &follow, (then, moment));
        assert_eq!(collector.next_due(then), Some(then), "the position was never saved");
        let (events, reached) = collector.take_batch((then, moment)).expect("the position is due");
        assert_eq!((events.len(), reached.position.map(|it| it.seq)), (0, Some("7-x".to_owned())));
        assert_eq!(collector.next_due(Instant::now()), Some(then + POSITION_INTERVAL));
        assert!(collector.take_batch((Instant::now(), moment)).is_none());
    }
}
