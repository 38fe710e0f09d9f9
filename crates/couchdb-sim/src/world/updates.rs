//! The database events that `_db_updates` and `_dbs/_changes` tell of.
//!
//! An event's sequence follows from its time and its database, so that nothing need be
//! kept of a million databases' writes: the feed holds at most the latest creation,
//! update and deletion of each, as CouchDB's does.

use super::World;
use crate::catalog::{Db, key_of};
use std::time::Duration;

/// Events become visible this often (`[global_changes] max_write_delay`).
pub(crate) const WRITE_DELAY: Duration = Duration::from_millis(DELAY_MILLIS);
const DELAY_MILLIS: u64 = 500;

/// Sequences of one write delay: that many databases have one each.
const PER_DELAY: u64 = 1 << 22;

/// What happened to a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Type {
    Created,
    Updated,
    Deleted,
}

impl Type {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
        }
    }
}

/// A creation or deletion since the world's start.
#[derive(Clone, Debug)]
pub(crate) struct Happened {
    at: Duration,
    pub(crate) db: String,
    pub(crate) kind: Type,
}

/// One row of the feed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Update {
    pub(crate) seq: u64,
    pub(crate) db: String,
    pub(crate) kind: Type,
}

fn delays(at: Duration) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(u64::MAX) / DELAY_MILLIS
}

/// The sequence of what became visible at the end of a write delay.
fn seq(delay: u64, rank: u64) -> u64 {
    delay.saturating_add(1).saturating_mul(PER_DELAY).saturating_add(rank % PER_DELAY)
}

impl World {
    pub(super) fn note(&mut self, kind: Type, db: String) {
        self.happened.push(Happened { at: self.now, db, kind });
    }

    /// The sequence that names this moment: everything visible is at or below it.
    pub(crate) fn updates_seq(&self) -> u64 {
        self.delay_of(self.now).saturating_mul(PER_DELAY).saturating_add(PER_DELAY - 1)
    }

    /// The write delay of a moment, as the `_global_changes` that is there counts them.
    fn delay_of(&self, at: Duration) -> u64 {
        delays(at).saturating_sub(delays(self.tells_since))
    }

    /// What tells one `_global_changes` from another that was made in its place.
    pub(crate) const fn updates_instance(&self) -> u64 {
        self.tells_since.as_secs()
    }

    /// What became visible after `since`, in the order of the sequences.
    pub(crate) fn updates(&self, since: u64) -> Vec<Update> {
        let mut updates = Vec::new();
        let visible = self.updates_seq();
        let fresh = |seq: u64| seq > since && seq <= visible;
        if since < PER_DELAY && self.tells_since.is_zero() {
            for (rank, (db, name)) in (0..).zip(self.catalog.from("")) {
                let first = self.catalog.born(db) == Duration::ZERO;
                if first && fresh(rank + 1) {
                    let name = name.into_owned();
                    updates.push(Update { seq: rank + 1, db: name, kind: Type::Created });
                }
            }
        }
        for happened in self.happened.iter().filter(|it| it.at >= self.tells_since) {
            let rank = key_of(&happened.db) % (PER_DELAY / 2);
            let seq = seq(self.delay_of(happened.at), rank);
            if fresh(seq) {
                let Happened { db, kind, .. } = happened.clone();
                updates.retain(|known| !(known.db == db && known.kind == kind));
                updates.push(Update { seq, db, kind });
            }
        }
        for (db, rank) in self.busy() {
            if let Some(at) = self.last_write(db, since).filter(|at| *at >= self.tells_since) {
                let seq = seq(self.delay_of(at), rank);
                if fresh(seq) {
                    let db = self.catalog.name(db).into_owned();
                    updates.push(Update { seq, db, kind: Type::Updated });
                }
            }
        }
        updates.sort_unstable();
        updates
    }

    /// Databases that may have been written to, with a rank each.
    fn busy(&self) -> Vec<(Db, u64)> {
        let half = PER_DELAY / 2;
        let rank = |db: Db| half + key_of(&self.catalog.name(db)) % half;
        let writes = |db: &Db| {
            self.written.contains_key(db)
                || self.catalog.like(*db).is_some_and(|like| like.writes_per_second > 0.0)
        };
        let mut busy: Vec<(Db, u64)> =
            self.catalog.described().filter(writes).map(|db| (db, rank(db))).collect();
        for (fleet, members) in self.catalog.fleets() {
            if members.like.writes_per_second > 0.0 {
                let members = (0..members.count).map(|number| Db::Member { fleet, number });
                busy.extend(members.map(|db| (db, rank(db))));
            }
        }
        let written = self.written.keys().filter(|db| {
            matches!(db, Db::Member { .. })
                && self.catalog.like(**db).is_some_and(|like| like.writes_per_second <= 0.0)
        });
        busy.extend(written.map(|db| (*db, rank(*db))));
        busy
    }

    /// When a database was last written to before now, if that was after the moment that
    /// `since` names.
    fn last_write(&self, db: Db, since: u64) -> Option<Duration> {
        let like = self.catalog.like(db)?;
        let born = self.catalog.born(db);
        let millis = |delay: u64| delay.saturating_mul(DELAY_MILLIS);
        let end = millis(delays(self.now));
        let first = delays(self.tells_since);
        let begin = millis((since / PER_DELAY).saturating_add(first).saturating_sub(1));
        let own = (0..like.q).filter_map(|range| {
            let rhythm = self.rhythm(db, range, like);
            let writes = |at| rhythm.writes(Duration::from_millis(at).saturating_sub(born));
            let last = writes(end);
            if last == 0 || writes(begin) == last {
                return None;
            }
            // The first whole millisecond with the last count: whoever asks finds the same.
            let (mut low, mut high) = (begin, end);
            while high > low + 1 {
                let middle = low + (high - low) / 2;
                if writes(middle) == last { high = middle } else { low = middle }
            }
            Some(Duration::from_millis(high.saturating_sub(1)))
        });
        let written = self.written.get(&db).and_then(|written| {
            written.iter().rev().map(|(at, _)| *at).find(|at| *at < Duration::from_millis(end))
        });
        own.chain(written).max()
    }

    /// Creations and deletions since the start, of which each is a change of `_dbs`; the
    /// databases of the start are the changes before them.
    pub(crate) fn map_changes(&self) -> &[Happened] {
        &self.happened
    }

    /// The sequence of `_dbs` at the start.
    pub(crate) fn map_seq_at_start(&self) -> u64 {
        let made = self.happened.iter().filter(|happened| happened.kind == Type::Created).count();
        let gone = self.happened.len() - made;
        self.catalog.len().saturating_add(gone as u64).saturating_sub(made as u64)
    }
}
