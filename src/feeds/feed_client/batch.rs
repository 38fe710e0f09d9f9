//! Collects events and database names until they are sent on.

use super::feed_step::FeedEvent;
use crate::scan::{NamedDb, Stale};
use couchdb_client::wire::DbChange;
use hashbrown::HashMap;

/// Events that wait to be written: for each database at most the latest of each type.
#[derive(Debug, Default)]
pub(super) struct PendingEvents {
    order: Vec<Option<FeedEvent>>,
    positions: HashMap<(Box<str>, DbChange), usize>,
}

impl PendingEvents {
    /// Adds an event in place of the previous one of the same database and type.
    pub(super) fn add(&mut self, event: FeedEvent) {
        let key = (event.db.clone(), event.change);
        if let Some(before) = self.positions.insert(key, self.order.len())
            && let Some(earlier) = self.order.get_mut(before)
        {
            *earlier = None;
        }
        self.order.push(Some(event));
    }

    /// Number of waiting events.
    pub(super) fn len(&self) -> usize {
        self.positions.len()
    }

    /// Takes all events, in the order of their last occurrence.
    pub(super) fn take(&mut self) -> Vec<FeedEvent> {
        self.positions.clear();
        std::mem::take(&mut self.order).into_iter().flatten().collect()
    }
}

/// Databases that wait to be reported to the scanner, each once.
#[derive(Debug, Default)]
pub(super) struct PendingNames {
    all: HashMap<Box<str>, Stale>,
}

impl PendingNames {
    /// Adds a database. A stale map entry includes stale shards.
    pub(super) fn add(&mut self, db: Box<str>, stale: Stale) {
        let pending = self.all.entry(db).or_insert(stale);
        if stale == Stale::Entry {
            *pending = stale;
        }
    }

    pub(super) fn take(&mut self) -> Vec<NamedDb> {
        self.all.drain().map(|(db, stale)| NamedDb { db, stale }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_event_of_each_type_and_database_is_kept() {
        let event = |db: &str, change| FeedEvent { db: db.into(), change };
        let mut events = PendingEvents::default();
        let created = event("a", DbChange::Created);
        let (a, b) = (event("a", DbChange::Updated), event("b", DbChange::Updated));
        for it in [&a, &created, &b, &a] {
            events.add(it.clone());
        }
        assert_eq!(events.len(), 3);
        assert_eq!(events.take(), [created, b, a]);
        assert_eq!((events.len(), events.take()), (0, vec![]));
    }

    #[test]
    fn repeated_names_are_merged_and_a_stale_entry_wins() {
        let mut names = PendingNames::default();
        names.add("a".into(), Stale::Shards);
        names.add("a".into(), Stale::Entry);
        names.add("a".into(), Stale::Shards);
        assert_eq!(names.take(), [NamedDb { db: "a".into(), stale: Stale::Entry }]);
        assert_eq!(names.take(), []);
    }
}
