//! The database events in `_db_updates` and `_dbs/_changes`.
//!
//! The sequence of an event is computed from its time and database, so that the writes of a
//! million databases need no storage. The feed has at most the latest creation, update and
//! deletion of each database, as CouchDB's does.

use super::World;
use crate::{catalog::Db, growth::key_of};
use std::time::Duration;
use strum::IntoStaticStr;

/// How often events become visible (`[global_changes] max_write_delay`).
pub(crate) const WRITE_DELAY: Duration = Duration::from_millis(DELAY_MILLIS);
const DELAY_MILLIS: u64 = 500;

/// The number of sequences per write delay: one for each of this many databases.
const SEQS_PER_DELAY: u64 = 1 << 22;

/// The kind of a database event.
#[derive(IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EventKind {
    Created,
    Updated,
    Deleted,
}

/// A creation or deletion since the start of the world.
#[derive(Clone, Debug)]
pub(crate) struct DbEvent {
    at: Duration,
    pub(crate) db: String,
    pub(crate) kind: EventKind,
}

/// One row of the events feed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Update {
    pub(crate) seq: u64,
    pub(crate) db: String,
    pub(crate) kind: EventKind,
}

fn delay_number(at: Duration) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(u64::MAX) / DELAY_MILLIS
}

/// The sequence of an event that became visible at the end of a write delay.
fn seq(delay: u64, rank: u64) -> u64 {
    delay.saturating_add(1).saturating_mul(SEQS_PER_DELAY).saturating_add(rank % SEQS_PER_DELAY)
}

impl World {
    pub(super) fn record_event(&mut self, kind: EventKind, db: String) {
        self.db_events.push(DbEvent { at: self.now, db, kind });
    }

    /// The current sequence: everything visible is at or below it.
    pub(crate) fn updates_seq(&self) -> u64 {
        self.delay_of(self.now).saturating_mul(SEQS_PER_DELAY).saturating_add(SEQS_PER_DELAY - 1)
    }

    /// The number of the write delay that contains this moment, counted from the creation of
    /// `_global_changes`.
    fn delay_of(&self, at: Duration) -> u64 {
        delay_number(at).saturating_sub(delay_number(self.global_changes_since))
    }

    /// Distinguishes one `_global_changes` from a later one.
    pub(crate) const fn updates_instance(&self) -> u64 {
        self.global_changes_since.as_secs()
    }

    /// The events that became visible after `since`, in order of their sequences.
    pub(crate) fn updates(&self, since: u64) -> Vec<Update> {
        let mut updates = Vec::new();
        let visible = self.updates_seq();
        let fresh = |seq: u64| seq > since && seq <= visible;
        // The databases that exist at the start have the first sequences, one each.
        let first_seqs = self.catalog.len().min(SEQS_PER_DELAY);
        if since < first_seqs && self.global_changes_since.is_zero() {
            for (rank, (db, name)) in (0..).zip(self.catalog.from("")) {
                let first = self.catalog.created_after(db) == Duration::ZERO;
                if first && fresh(rank + 1) {
                    let name = name.into_owned();
                    updates.push(Update { seq: rank + 1, db: name, kind: EventKind::Created });
                }
            }
        }
        for happened in self.db_events.iter().filter(|it| it.at >= self.global_changes_since) {
            let rank = key_of(&happened.db) % (SEQS_PER_DELAY / 2);
            let seq = seq(self.delay_of(happened.at), rank);
            if fresh(seq) {
                let DbEvent { db, kind, .. } = happened.clone();
                updates.retain(|known| !(known.db == db && known.kind == kind));
                updates.push(Update { seq, db, kind });
            }
        }
        for (db, rank) in self.written_databases() {
            if let Some(at) =
                self.last_write(db, since).filter(|at| *at >= self.global_changes_since)
            {
                let seq = seq(self.delay_of(at), rank);
                if fresh(seq) {
                    let db = self.catalog.name(db).into_owned();
                    updates.push(Update { seq, db, kind: EventKind::Updated });
                }
            }
        }
        updates.sort_unstable();
        updates
    }

    /// Databases that may have been written to, each with its rank.
    fn written_databases(&self) -> Vec<(Db, u64)> {
        let half = SEQS_PER_DELAY / 2;
        let rank = |db: Db| half + key_of(&self.catalog.name(db)) % half;
        let is_busy = |db: Db| self.catalog.description(db).writes_per_second > 0.0;
        let described = self.catalog.described();
        let described = described.filter(|db| self.written.contains_key(db) || is_busy(*db));
        let fleets = self.catalog.fleets();
        let busy = fleets.filter(|(_, fleet)| fleet.template.writes_per_second > 0.0);
        let members = busy.flat_map(|(fleet, members)| {
            (0..members.count).map(move |number| Db::Member { fleet, number })
        });
        let written = self.written.keys().copied();
        let written = written.filter(|db| matches!(db, Db::Member { .. }) && !is_busy(*db));
        described.chain(members).chain(written).map(|db| (db, rank(db))).collect()
    }

    /// When a database was last written to before now, if that was after the moment of `since`.
    fn last_write(&self, db: Db, since: u64) -> Option<Duration> {
        let created_after = self.catalog.created_after(db);
        let millis = |delay: u64| delay.saturating_mul(DELAY_MILLIS);
        let end = millis(delay_number(self.now));
        let first = delay_number(self.global_changes_since);
        let begin = millis((since / SEQS_PER_DELAY).saturating_add(first).saturating_sub(1));
        let own = (0..self.catalog.ranges(db)).filter_map(|range| {
            let rhythm = self.rhythm(db, range);
            let writes =
                |at| rhythm.writes(Duration::from_millis(at).saturating_sub(created_after));
            let last = writes(end);
            if last == 0 || writes(begin) == last {
                return None;
            }
            // The first whole millisecond with the last count, so that every call returns the same
            // time.
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

    /// Creations and deletions since the start, each of which is a change of `_dbs`. The databases
    /// that exist at the start are earlier changes.
    pub(crate) fn map_changes(&self) -> &[DbEvent] {
        &self.db_events
    }

    /// The sequence of `_dbs` at the start.
    pub(crate) fn map_seq_at_start(&self) -> u64 {
        let created =
            self.db_events.iter().filter(|happened| happened.kind == EventKind::Created).count();
        let deleted = self.db_events.len() - created;
        self.catalog.len().saturating_add(deleted as u64).saturating_sub(created as u64)
    }
}
