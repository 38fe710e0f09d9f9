//! Database events that the scanner itself detects, for clusters without a working feed.
//!
//! Owns the databases of the last complete listing, and the events until they are emitted. Between two
//! reads of a database only the last state is visible: one `updated` event covers every write in
//! between, and a database that was created and deleted between two listings is missed. Each copy has
//! its own sequence and is read at its own time, so one write may be reported again when another copy
//! is read later.

use super::ScanHandle;
use crate::{
    model::target::{TargetKind, TargetState},
    table::{DbIx, Draft, IndexSet, PublishedDbState, PublishedUpdateSeqs, TableBlock, TargetRef},
};
use couchdb_client::wire::{DbChange, GLOBAL_CHANGES};
use std::sync::Arc;
use tokio::sync::{broadcast, watch};
use wall_clock::Moment;

/// The maximum number of batches that a subscriber may lag.
const MAX_BATCHES_BEHIND: usize = 256;

/// A database event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DbEvent {
    /// Name of the database.
    pub db: Box<str>,
    /// The kind of the event.
    pub change: DbChange,
}

/// The state from an earlier process.
#[derive(Clone, Debug, Default)]
pub struct EarlierProcess {
    /// Its measurements.
    pub blocks: Vec<TableBlock>,
    /// The states of databases at their last emitted events, if newer than the measurements.
    pub marks: Vec<PublishedDbState>,
}

/// A batch of database events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DbEventBatch {
    /// The number of the batch, from one.
    pub number: u64,
    /// The events in the order of detection.
    pub events: Arc<[DbEvent]>,
    /// The current states of those databases, which the next process must know after the events are
    /// stored.
    pub marks: Arc<[PublishedDbState]>,
    /// The start of the sweep that this batch completes, if it completes one.
    pub swept: Option<Moment>,
}

/// Detects events and holds them until they are emitted.
#[derive(Debug, Default)]
pub(super) struct ChangeDetector {
    /// The databases of the last complete listing; `None` before the first one.
    there: Option<IndexSet>,
    /// Databases created since the last sweep ended.
    fresh: IndexSet,
    /// Databases that were written to, each once and in order.
    written: IndexSet,
    order: Vec<DbIx>,
    events: Vec<DbEvent>,
    marks: Vec<PublishedDbState>,
    /// The sequences of copies when an earlier process emitted their events, until those copies are
    /// read.
    marked: PublishedUpdateSeqs,
    batches: u64,
}

/// Sends the events to subscribers, and returns their confirmation.
#[derive(Clone, Debug)]
pub(super) struct EventBus {
    events: broadcast::Sender<DbEventBatch>,
    confirmed: Arc<watch::Sender<u64>>,
}

impl Default for EventBus {
    fn default() -> Self {
        Self { events: broadcast::channel(MAX_BATCHES_BEHIND).0, confirmed: Arc::default() }
    }
}

impl EventBus {
    pub(super) fn send(&self, events: DbEventBatch) {
        // There may be no subscribers.
        let _unsubscribed = self.events.send(events);
    }
}

impl ChangeDetector {
    /// Takes the known databases from the restored targets.
    pub(super) fn restored(&mut self, draft: &Draft) {
        let mut there = IndexSet::default();
        let mapped = |it: &TargetRef<'_>| {
            it.kind() == TargetKind::Db && it.range().is_some() && it.state() != TargetState::Orphan
        };
        draft.current().targets().filter(mapped).for_each(|it| there.insert(it.db().as_usize()));
        self.there = Some(there);
    }

    /// Records the state of a database at its last event from an earlier process.
    pub(super) fn marked(&mut self, mark: &PublishedDbState, draft: &mut Draft) {
        let db = draft.apply_published_state(mark, &mut self.marked).as_usize();
        let set = |bits: &mut IndexSet, on| if on { bits.insert(db) } else { bits.remove(db) };
        set(&mut self.fresh, mark.there && mark.fresh);
        if let Some(there) = &mut self.there {
            set(there, mark.there);
        }
    }

    /// Compares a complete listing of the databases with the previous one.
    pub(super) fn listed(&mut self, dbs: &IndexSet, draft: &Draft) {
        let Some(before) = self.there.replace(dbs.clone()) else { return };
        let differ: Vec<DbIx> =
            before.symmetric_difference(dbs).filter_map(DbIx::from_usize).collect();
        // A database that was deleted and created again is a different one with the same name.
        for db in differ.iter().filter(|db| before.contains(db.as_usize())) {
            self.deleted(*db, draft);
        }
        for db in differ.iter().filter(|db| dbs.contains(db.as_usize())) {
            self.created(*db, draft);
        }
    }

    /// Records that a database is in the shard map.
    pub(super) fn db_exists(&mut self, db: DbIx, draft: &Draft) {
        let Some(there) = &mut self.there else { return };
        if !there.contains(db.as_usize()) {
            there.insert(db.as_usize());
            self.created(db, draft);
        }
    }

    /// Records that a database is no longer in the shard map.
    pub(super) fn db_removed(&mut self, db: DbIx, draft: &Draft) {
        let Some(there) = &mut self.there else { return };
        if there.contains(db.as_usize()) {
            there.remove(db.as_usize());
            self.deleted(db, draft);
        }
    }

    fn created(&mut self, db: DbIx, draft: &Draft) {
        self.fresh.insert(db.as_usize());
        self.add(db, DbChange::Created, draft);
    }

    fn deleted(&mut self, db: DbIx, draft: &Draft) {
        self.fresh.remove(db.as_usize());
        // Another database will use its position soon.
        self.written.remove(db.as_usize());
        self.add(db, DbChange::Deleted, draft);
    }

    /// Adds an event with the current state of its database. Like `_db_updates`, it skips the
    /// database that stores the events.
    fn add(&mut self, db: DbIx, change: DbChange, draft: &Draft) {
        let Some(name) = draft.current().db_name(db).filter(|name| name.db != GLOBAL_CHANGES)
        else {
            return;
        };
        self.events.push(DbEvent { db: name.db.into(), change });
        let (there, fresh) = (change != DbChange::Deleted, self.fresh.contains(db.as_usize()));
        self.marks.extend(draft.published_state_of(db, there, fresh));
    }

    /// Records that a shard was read and now has this update sequence; `shard` is its state before
    /// that.
    pub(super) fn shard_read(&mut self, shard: TargetRef<'_>, now: Option<u64>) {
        let db = shard.db();
        let of_cluster = shard.kind() == TargetKind::Db && shard.range().is_some();
        let copy = now.zip(shard.range()).map(|(_, range)| (db, shard.node_ix(), range));
        let marked = copy.and_then(|copy| self.marked.remove(&copy));
        let before = match marked.max(shard.facts().update_seq.get()) {
            None if self.fresh.contains(db.as_usize()) => Some(0),
            before => before,
        };
        let further = before.zip(now).is_some_and(|(before, now)| before < now);
        if of_cluster && further && !self.written.contains(db.as_usize()) {
            self.written.insert(db.as_usize());
            self.order.push(db);
        }
    }

    /// The number of batches so far.
    pub(super) const fn batches(&self) -> u64 {
        self.batches
    }

    /// The number of events that wait to be emitted.
    pub(super) fn waiting(&self) -> usize {
        self.order.len() + self.events.len()
    }

    /// Takes all waiting events; the `updated` of a new database comes after its `created`.
    pub(super) fn take(&mut self, draft: &Draft, swept: Option<Moment>) -> DbEventBatch {
        for db in std::mem::take(&mut self.order) {
            if self.written.contains(db.as_usize()) {
                self.written.remove(db.as_usize());
                self.add(db, DbChange::Updated, draft);
            }
        }
        let events = std::mem::take(&mut self.events);
        let marks = std::mem::take(&mut self.marks);
        if swept.is_some() {
            self.fresh.clear();
        }
        self.batches += 1;
        DbEventBatch { number: self.batches, events: events.into(), marks: marks.into(), swept }
    }
}

impl ScanHandle {
    /// Subscribes to database events. A subscriber that lags too far gets an error and has missed some.
    pub fn db_events(&self) -> broadcast::Receiver<DbEventBatch> {
        self.events.events.subscribe()
    }

    /// Confirms that all batches up to this number are stored or need not be.
    pub fn confirm_events(&self, number: u64) {
        self.events.confirmed.send_if_modified(|confirmed| {
            let is_newer = *confirmed < number;
            *confirmed = number.max(*confirmed);
            is_newer
        });
    }

    /// The number of the last confirmed batch.
    pub fn confirmed_events(&self) -> watch::Receiver<u64> {
        self.events.confirmed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::facts::{Facts, OptionalU64},
        table::{DbName, TargetIx},
    };
    use couchdb_names::Range;

    const RANGE: Range = Range { from: 0, to: u32::MAX };

    fn db(draft: &mut Draft, name: &str, suffix: &str) -> (DbIx, TargetIx) {
        let db = draft.get_or_add_db(DbName { db: name, suffix });
        let node = draft.get_or_add_node("couchdb@a");
        (db, draft.get_or_add_shard(node, db, Some(RANGE)))
    }

    fn bits(dbs: &[DbIx]) -> IndexSet {
        let mut bits = IndexSet::default();
        dbs.iter().for_each(|db| bits.insert(db.as_usize()));
        bits
    }

    /// Reads a shard as the tables do.
    fn reads(detector: &mut ChangeDetector, draft: &mut Draft, ix: TargetIx, seq: u64) {
        detector.shard_read(draft.current().target(ix).unwrap(), Some(seq));
        draft.set_facts(ix, Facts { update_seq: OptionalU64::new(seq), ..Facts::default() });
    }

    fn events(detector: &mut ChangeDetector, draft: &Draft) -> Vec<String> {
        let batch = detector.take(draft, Some(Moment::default()));
        batch.events.iter().map(|it| format!("{} {}", it.change.label(), it.db)).collect()
    }

    #[test]
    fn first_listing_emits_no_events_but_later_changes_do() {
        let (mut draft, mut detector) = (Draft::new(5), ChangeDetector::default());
        let (a, in_a) = db(&mut draft, "a", ".1");
        let (b, _) = db(&mut draft, "b", ".1");
        detector.listed(&bits(&[a, b]), &draft);
        reads(&mut detector, &mut draft, in_a, 5);
        assert_eq!(events(&mut detector, &draft), Vec::<String>::new());

        reads(&mut detector, &mut draft, in_a, 5);
        reads(&mut detector, &mut draft, in_a, 3);
        assert_eq!(events(&mut detector, &draft), Vec::<String>::new());
        reads(&mut detector, &mut draft, in_a, 4);
        reads(&mut detector, &mut draft, in_a, 9);
        assert_eq!(events(&mut detector, &draft), ["updated a"]);

        // Recreated under the same name: it has another position, and its content counts as newly
        // written.
        let (again, in_again) = db(&mut draft, "a", ".2");
        let (own, _) = db(&mut draft, "_global_changes", ".1");
        detector.listed(&bits(&[again, own]), &draft);
        reads(&mut detector, &mut draft, in_again, 1);
        let expected = ["deleted a", "deleted b", "created a", "updated a"];
        assert_eq!(events(&mut detector, &draft), expected);
        detector.db_exists(again, &draft);
        detector.db_removed(a, &draft);
        assert_eq!(detector.waiting(), 0, "these changes were already emitted");
        detector.db_removed(again, &draft);
        detector.db_exists(b, &draft);
        assert_eq!(events(&mut detector, &draft), ["deleted a", "created b"]);
    }

    #[test]
    fn emits_changes_since_the_state_of_an_earlier_process() {
        let (mut draft, mut detector) = (Draft::new(5), ChangeDetector::default());
        let (a, in_a) = db(&mut draft, "a", ".1");
        let (_, stray) = db(&mut draft, "stray", ".1");
        draft.set_state(stray, TargetState::Orphan);
        reads(&mut detector, &mut draft, in_a, 5);
        detector.restored(&draft);
        let (b, _) = db(&mut draft, "b", ".1");
        detector.listed(&bits(&[a, b]), &draft);
        reads(&mut detector, &mut draft, in_a, 6);
        assert_eq!(events(&mut detector, &draft), ["created b", "updated a"]);
    }

    /// Events in order, each replacing the previous one of its database.
    fn marks(batch: &DbEventBatch) -> Vec<PublishedDbState> {
        let mut marks: Vec<PublishedDbState> = Vec::new();
        for mark in &*batch.marks {
            marks.retain(|it| (&it.db, &it.suffix) != (&mark.db, &mark.suffix));
            marks.push(mark.clone());
        }
        marks
    }

    #[test]
    fn does_not_repeat_events_of_an_earlier_process() {
        // The next process gets the measurements up to `a` at 5, and the marks of all later events.
        let (mut draft, mut before) = (Draft::new(5), ChangeDetector::default());
        let (a, in_a) = db(&mut draft, "a", ".1");
        let (gone, _) = db(&mut draft, "gone", ".1");
        reads(&mut before, &mut draft, in_a, 5);
        before.listed(&bits(&[a, gone]), &draft);
        reads(&mut before, &mut draft, in_a, 9);
        before.db_removed(gone, &draft);
        let (new, in_new) = db(&mut draft, "new", ".2");
        before.db_exists(new, &draft);
        reads(&mut before, &mut draft, in_new, 3);
        let (unread, _) = db(&mut draft, "unread", ".2");
        before.db_exists(unread, &draft);
        let batch = before.take(&draft, None);
        assert_eq!((batch.number, batch.events.len()), (1, 5));

        let next = |writes: u64| {
            let (mut draft, mut detector) = (Draft::new(5), ChangeDetector::default());
            let (a, in_a) = db(&mut draft, "a", ".1");
            db(&mut draft, "gone", ".1");
            draft.set_facts(in_a, Facts { update_seq: OptionalU64::new(5), ..Facts::default() });
            detector.restored(&draft);
            for mark in marks(&batch) {
                detector.marked(&mark, &mut draft);
            }
            let (new, in_new) = db(&mut draft, "new", ".2");
            let (unread, in_unread) = db(&mut draft, "unread", ".2");
            detector.listed(&bits(&[a, new, unread]), &draft);
            for (ix, seq) in [(in_a, 9), (in_new, 3), (in_unread, 0)] {
                reads(&mut detector, &mut draft, ix, seq + writes);
            }
            let first = events(&mut detector, &draft);
            reads(&mut detector, &mut draft, in_a, 9 + writes);
            assert_eq!(detector.waiting(), 0);
            first
        };
        assert_eq!(next(0), Vec::<String>::new());
        assert_eq!(next(1), ["updated a", "updated new", "updated unread"]);
    }
}
