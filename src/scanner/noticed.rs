//! What became of databases, as the scanner itself sees it: for clusters that tell nobody.
//!
//! Owns which databases there were when all were last listed, and what is noticed until it is
//! told. Between two readings of a database only the last state shows: one `updated` stands for
//! every write between them, and what was made and deleted between two listings is not seen.

use super::Handle;
use crate::{
    clock::Moment,
    couch::wire::DbChange,
    snapshot::{Bits, DbIx, Draft, TargetRef},
    target::{Kind, State},
};
use std::sync::Arc;
use tokio::sync::broadcast;

/// The database that holds the events of `_db_updates`, of which that does not tell either.
const OWN: &str = "_global_changes";

/// Something that became of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Became {
    /// Its name.
    pub db: Box<str>,
    /// What.
    pub change: DbChange,
}

/// What the scanner noticed since the last time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noticed {
    /// In the order in which it was noticed.
    pub events: Arc<[Became]>,
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
}

fn name(draft: &Draft, db: DbIx) -> Option<Box<str>> {
    let name = draft.now().db_name(db)?.db;
    (name != OWN).then(|| name.into())
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
        let event = name(draft, db).map(|db| Became { db, change: DbChange::Created });
        self.events.extend(event);
    }

    fn deleted(&mut self, db: DbIx, draft: &Draft) {
        self.fresh.unset(db.as_usize());
        // Its place is another's soon.
        self.written.unset(db.as_usize());
        let event = name(draft, db).map(|db| Became { db, change: DbChange::Deleted });
        self.events.extend(event);
    }

    /// A shard was read that had this update sequence before.
    pub(super) fn read(&mut self, shard: TargetRef<'_>, now: Option<u64>) {
        let db = shard.db();
        let of_cluster = shard.kind() == Kind::Db && shard.range().is_some();
        let before = match shard.facts().update_seq.get() {
            None if self.fresh.has(db.as_usize()) => Some(0),
            before => before,
        };
        let further = before.zip(now).is_some_and(|(before, now)| before < now);
        if of_cluster && further && !self.written.has(db.as_usize()) {
            self.written.set(db.as_usize());
            self.order.push(db);
        }
    }

    /// How much waits to be told.
    pub(super) fn waiting(&self) -> usize {
        self.order.len() + self.events.len()
    }

    /// Everything that waits; what is written to a new database comes behind its making.
    pub(super) fn take(&mut self, draft: &Draft, swept: Option<Moment>) -> Noticed {
        let mut events = std::mem::take(&mut self.events);
        for db in std::mem::take(&mut self.order) {
            if self.written.has(db.as_usize()) {
                self.written.unset(db.as_usize());
                let event = name(draft, db).map(|db| Became { db, change: DbChange::Updated });
                events.extend(event);
            }
        }
        if swept.is_some() {
            self.fresh.clear();
        }
        Noticed { events: events.into(), swept }
    }
}

impl Handle {
    /// What becomes of databases from now on, as the scanner itself notices it. Whoever falls
    /// behind is told so, and has missed it.
    #[must_use]
    pub fn noticed(&self) -> broadcast::Receiver<Noticed> {
        self.noticed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        facts::{Facts, Known},
        snapshot::{DbName, Ix},
        target::Range,
    };

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
}
