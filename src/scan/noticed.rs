//! What became of databases, as the scanner itself sees it: for clusters that tell nobody.
//!
//! Owns which databases there were when all were last listed, and what is noticed until it is
//! told. Between two readings of a database only the last state shows: one `updated` stands for
//! every write between them, and what was made and deleted between two listings is not seen.
//! Copies are read one by one and count their sequences each for itself, so that one write may be
//! told again when a copy that was read later shows it.

use super::Handle;
use crate::{
    model::target::{Kind, State},
    table::{Bits, Block, DbIx, Draft, Mark, Marked, TargetRef},
};
use couchdb_client::wire::{DbChange, GLOBAL_CHANGES};
use std::sync::Arc;
use tokio::sync::{broadcast, watch};
use wall_clock::Moment;

/// Batches that whoever hears may be behind.
const NOTICED: usize = 256;

/// Something that became of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Became {
    /// Its name.
    pub db: Box<str>,
    /// What.
    pub change: DbChange,
}

/// What an earlier process left.
#[derive(Clone, Debug, Default)]
pub struct Before {
    /// What it had measured.
    pub blocks: Vec<Block>,
    /// How databases stood when something of them was told last, where that is newer.
    pub marks: Vec<Mark>,
}

/// What the scanner noticed since the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noticed {
    /// How many times something was told so far.
    pub number: u64,
    /// In the order in which it was noticed.
    pub events: Arc<[Became]>,
    /// How those databases stand now: once the events are told, the next process must know.
    pub marks: Arc<[Mark]>,
    /// When the sweep began that ended with this, if one did.
    pub swept: Option<Moment>,
}

/// What is noticed until it is told.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// The databases of the last whole listing; none before the first one.
    there: Option<Bits>,
    /// Those that were made since the last sweep ended.
    fresh: Bits,
    /// Databases that were written to, each once, and the order of that.
    written: Bits,
    order: Vec<DbIx>,
    events: Vec<Became>,
    marks: Vec<Mark>,
    /// How far copies were when an earlier process told of them, until they are read.
    marked: Marked,
    number: u64,
}

/// The line on which it is told, and on which whoever writes it down answers.
#[derive(Clone, Debug)]
pub(super) struct Line {
    noticed: broadcast::Sender<Noticed>,
    settled: Arc<watch::Sender<u64>>,
}

impl Default for Line {
    fn default() -> Self {
        Self { noticed: broadcast::channel(NOTICED).0, settled: Arc::default() }
    }
}

impl Line {
    pub(super) fn tell(&self, noticed: Noticed) {
        // Nobody may hear.
        let _nobody = self.noticed.send(noticed);
    }
}

impl Notices {
    /// What an earlier process measured is what there was.
    pub(super) fn restored(&mut self, draft: &Draft) {
        let mut there = Bits::default();
        let mapped = |it: &TargetRef<'_>| {
            it.kind() == Kind::Db && it.range().is_some() && it.state() != State::Orphan
        };
        draft.now().targets().filter(mapped).for_each(|it| there.set(it.db().as_usize()));
        self.there = Some(there);
    }

    /// An earlier process told of this database when it stood so.
    pub(super) fn marked(&mut self, mark: &Mark, draft: &mut Draft) {
        let db = draft.marked(mark, &mut self.marked).as_usize();
        let set = |bits: &mut Bits, on| if on { bits.set(db) } else { bits.unset(db) };
        set(&mut self.fresh, mark.there && mark.fresh);
        if let Some(there) = &mut self.there {
            set(there, mark.there);
        }
    }

    /// All databases were listed, and these were there.
    pub(super) fn listed(&mut self, dbs: &Bits, draft: &Draft) {
        let Some(before) = self.there.replace(dbs.clone()) else { return };
        let differ: Vec<DbIx> = before.differing(dbs).filter_map(DbIx::from_usize).collect();
        // One that was deleted and made again is another of the same name.
        for db in differ.iter().filter(|db| before.has(db.as_usize())) {
            self.deleted(*db, draft);
        }
        for db in differ.iter().filter(|db| dbs.has(db.as_usize())) {
            self.created(*db, draft);
        }
    }

    /// One database is in the map.
    pub(super) fn has(&mut self, db: DbIx, draft: &Draft) {
        let Some(there) = &mut self.there else { return };
        if !there.has(db.as_usize()) {
            there.set(db.as_usize());
            self.created(db, draft);
        }
    }

    /// One database is in the map no more.
    pub(super) fn lacks(&mut self, db: DbIx, draft: &Draft) {
        let Some(there) = &mut self.there else { return };
        if there.has(db.as_usize()) {
            there.unset(db.as_usize());
            self.deleted(db, draft);
        }
    }

    fn created(&mut self, db: DbIx, draft: &Draft) {
        self.fresh.set(db.as_usize());
        self.became(db, DbChange::Created, draft);
    }

    fn deleted(&mut self, db: DbIx, draft: &Draft) {
        self.fresh.unset(db.as_usize());
        // Its place is another's soon.
        self.written.unset(db.as_usize());
        self.became(db, DbChange::Deleted, draft);
    }

    /// Notes an event and how its database stands with it. Of the database that holds the events
    /// of `_db_updates`, that does not tell either.
    fn became(&mut self, db: DbIx, change: DbChange, draft: &Draft) {
        let Some(name) = draft.now().db_name(db).filter(|name| name.db != GLOBAL_CHANGES) else {
            return;
        };
        self.events.push(Became { db: name.db.into(), change });
        let (there, fresh) = (change != DbChange::Deleted, self.fresh.has(db.as_usize()));
        self.marks.extend(draft.mark_of(db, there, fresh));
    }

    /// A shard was read that had this update sequence before.
    pub(super) fn read(&mut self, shard: TargetRef<'_>, now: Option<u64>) {
        let db = shard.db();
        let of_cluster = shard.kind() == Kind::Db && shard.range().is_some();
        let copy = now.zip(shard.range()).map(|(_, range)| (db, shard.node_ix(), range));
        let marked = copy.and_then(|copy| self.marked.remove(&copy));
        let before = match marked.max(shard.facts().update_seq.get()) {
            None if self.fresh.has(db.as_usize()) => Some(0),
            before => before,
        };
        let further = before.zip(now).is_some_and(|(before, now)| before < now);
        if of_cluster && further && !self.written.has(db.as_usize()) {
            self.written.set(db.as_usize());
            self.order.push(db);
        }
    }

    /// How many times something was told so far.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// How much waits to be told.
    pub(super) fn waiting(&self) -> usize {
        self.order.len() + self.events.len()
    }

    /// Everything that waits; what is written to a new database comes behind its making.
    pub(super) fn take(&mut self, draft: &Draft, swept: Option<Moment>) -> Noticed {
        for db in std::mem::take(&mut self.order) {
            if self.written.has(db.as_usize()) {
                self.written.unset(db.as_usize());
                self.became(db, DbChange::Updated, draft);
            }
        }
        let events = std::mem::take(&mut self.events);
        let marks = std::mem::take(&mut self.marks);
        if swept.is_some() {
            self.fresh.clear();
        }
        self.number += 1;
        Noticed { number: self.number, events: events.into(), marks: marks.into(), swept }
    }
}

impl Handle {
    /// What becomes of databases from now on, as the scanner itself notices it. Whoever falls
    /// behind is told so, and has missed it.
    #[must_use]
    pub fn noticed(&self) -> broadcast::Receiver<Noticed> {
        self.line.noticed.subscribe()
    }

    /// Says that all up to this number was handed to whoever keeps it, or is not to be kept.
    pub fn settle(&self, number: u64) {
        self.line.settled.send_if_modified(|settled| {
            let news = *settled < number;
            *settled = number.max(*settled);
            news
        });
    }

    /// Up to which number that was said.
    #[must_use]
    pub fn settled(&self) -> watch::Receiver<u64> {
        self.line.settled.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::facts::{Facts, Known},
        table::{DbName, Ix},
    };
    use couchdb_names::Range;

    const RANGE: Range = Range { from: 0, to: u32::MAX };

    fn db(draft: &mut Draft, name: &str, suffix: &str) -> (DbIx, Ix) {
        let db = draft.db(DbName { db: name, suffix });
        let node = draft.node("couchdb@a");
        (db, draft.db_target(node, db, Some(RANGE)))
    }

    fn bits(dbs: &[DbIx]) -> Bits {
        let mut bits = Bits::default();
        dbs.iter().for_each(|db| bits.set(db.as_usize()));
        bits
    }

    /// Reads a shard as the tables do.
    fn reads(notices: &mut Notices, draft: &mut Draft, ix: Ix, seq: u64) {
        notices.read(draft.now().target(ix).unwrap(), Some(seq));
        draft.set_facts(ix, Facts { update_seq: Known::new(seq), ..Facts::default() });
    }

    fn told(notices: &mut Notices, draft: &Draft) -> Vec<String> {
        let noticed = notices.take(draft, Some(Moment::default()));
        noticed.events.iter().map(|it| format!("{} {}", it.change.label(), it.db)).collect()
    }

    #[test]
    fn what_is_first_seen_is_no_news_and_what_changes_is() {
        let (mut draft, mut notices) = (Draft::new(5), Notices::default());
        let (a, in_a) = db(&mut draft, "a", ".1");
        let (b, _) = db(&mut draft, "b", ".1");
        notices.listed(&bits(&[a, b]), &draft);
        reads(&mut notices, &mut draft, in_a, 5);
        assert_eq!(told(&mut notices, &draft), Vec::<String>::new());

        reads(&mut notices, &mut draft, in_a, 5);
        reads(&mut notices, &mut draft, in_a, 3);
        assert_eq!(told(&mut notices, &draft), Vec::<String>::new());
        reads(&mut notices, &mut draft, in_a, 4);
        reads(&mut notices, &mut draft, in_a, 9);
        assert_eq!(told(&mut notices, &draft), ["updated a"]);

        // Made again under its name: another place, and what it holds was written to it.
        let (anew, in_anew) = db(&mut draft, "a", ".2");
        let (own, _) = db(&mut draft, "_global_changes", ".1");
        notices.listed(&bits(&[anew, own]), &draft);
        reads(&mut notices, &mut draft, in_anew, 1);
        let expected = ["deleted a", "deleted b", "created a", "updated a"];
        assert_eq!(told(&mut notices, &draft), expected);
        notices.has(anew, &draft);
        notices.lacks(a, &draft);
        assert_eq!(notices.waiting(), 0, "that was told");
        notices.lacks(anew, &draft);
        notices.has(b, &draft);
        assert_eq!(told(&mut notices, &draft), ["deleted a", "created b"]);
    }

    #[test]
    fn what_an_earlier_process_knew_is_what_there_was() {
        let (mut draft, mut notices) = (Draft::new(5), Notices::default());
        let (a, in_a) = db(&mut draft, "a", ".1");
        let (_, stray) = db(&mut draft, "stray", ".1");
        draft.set_state(stray, State::Orphan);
        reads(&mut notices, &mut draft, in_a, 5);
        notices.restored(&draft);
        let (b, _) = db(&mut draft, "b", ".1");
        notices.listed(&bits(&[a, b]), &draft);
        reads(&mut notices, &mut draft, in_a, 6);
        assert_eq!(told(&mut notices, &draft), ["created b", "updated a"]);
    }

    /// Marks in their order, each in the place of the one before.
    fn marks(noticed: &Noticed) -> Vec<Mark> {
        let mut marks: Vec<Mark> = Vec::new();
        for mark in &*noticed.marks {
            marks.retain(|it| (&it.db, &it.suffix) != (&mark.db, &mark.suffix));
            marks.push(mark.clone());
        }
        marks
    }

    #[test]
    fn what_an_earlier_process_told_is_not_told_again_and_what_came_since_is() {
        // What was measured is kept here, and everything below is told, and measured later.
        let (mut draft, mut before) = (Draft::new(5), Notices::default());
        let (a, in_a) = db(&mut draft, "a", ".1");
        let (gone, _) = db(&mut draft, "gone", ".1");
        reads(&mut before, &mut draft, in_a, 5);
        before.listed(&bits(&[a, gone]), &draft);
        reads(&mut before, &mut draft, in_a, 9);
        before.lacks(gone, &draft);
        let (new, in_new) = db(&mut draft, "new", ".2");
        before.has(new, &draft);
        reads(&mut before, &mut draft, in_new, 3);
        let (unread, _) = db(&mut draft, "unread", ".2");
        before.has(unread, &draft);
        let noticed = before.take(&draft, None);
        assert_eq!((noticed.number, noticed.events.len()), (1, 5));

        let next = |writes: u64| {
            let (mut draft, mut notices) = (Draft::new(5), Notices::default());
            let (a, in_a) = db(&mut draft, "a", ".1");
            db(&mut draft, "gone", ".1");
            draft.set_facts(in_a, Facts { update_seq: Known::new(5), ..Facts::default() });
            notices.restored(&draft);
            for mark in marks(&noticed) {
                notices.marked(&mark, &mut draft);
            }
            let (new, in_new) = db(&mut draft, "new", ".2");
            let (unread, in_unread) = db(&mut draft, "unread", ".2");
            notices.listed(&bits(&[a, new, unread]), &draft);
            for (ix, seq) in [(in_a, 9), (in_new, 3), (in_unread, 0)] {
                reads(&mut notices, &mut draft, ix, seq + writes);
            }
            let first = told(&mut notices, &draft);
            reads(&mut notices, &mut draft, in_a, 9 + writes);
            assert_eq!(notices.waiting(), 0);
            first
        };
        assert_eq!(next(0), Vec::<String>::new());
        assert_eq!(next(1), ["updated a", "updated new", "updated unread"]);
    }
}
