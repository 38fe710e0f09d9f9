//! Tables behind the feed: the latest `created`, `updated` and `deleted` event of each database,
//! by number.
//!
//! A new event replaces the previous one of its type. Entries of deleted databases are removed after
//! a long time; those of existing ones only if all together exceed the size limit, which must hold
//! even if a server invents databases. This module also checks the sequences that readers send back.
//! A sequence may belong to another journal, or may be older than what is kept. Such a reader must
//! start again from the beginning, because it would miss events otherwise.

use super::tables::{
    FEED, FEED_DELETED, FEED_SEQ_BY_DB, FeedCounts, JournalReadError, META, META_COUNTS, META_ERAS,
    read_value,
};
use crate::model::settings::work::Keep;
use couchdb_client::wire::DbChange;
use redb::{Error, ReadTransaction, ReadableTable as _, Table, WriteTransaction};
use serde::{Deserialize, Serialize};
use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::Duration,
};
use wall_clock::Moment;

/// Maximum number of eras kept. A sequence of an older era is treated as unknown.
const MAX_ERAS: usize = 100;

/// An `updated` event so soon after `deleted` belongs to a write from before the deletion and does
/// not show that the database exists again.
const LATE_UPDATE_WINDOW: Duration = Duration::from_secs(600);

/// Trimming continues until this fraction (one eighth) of the budget is free. A removal forces
/// readers in the middle of the feed to start again, so it should happen rarely.
const TRIM_HEADROOM_DIVISOR: u32 = 8;

/// Range of numbers assigned while one file was open. A file restored from a backup assigns some
/// numbers a second time, but in another era.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Era {
    id: String,
    /// Newest number when the era began.
    after: u64,
}

/// Generates a unique name for an era.
pub(super) fn new_era() -> String {
    // `RandomState` is seeded with random numbers of the system.
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// Adds an era and drops the oldest if there are too many.
pub(super) fn add_era(eras: &mut Vec<Era>, id: &str, after: u64) {
    eras.push(Era { id: id.to_owned(), after });
    let over = eras.len().saturating_sub(MAX_ERAS);
    eras.drain(..over);
}

/// An entry of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedEntry {
    /// Number of the event.
    pub seq: u64,
    /// What happened.
    pub change: DbChange,
    /// Name of the database.
    pub db: String,
}

/// Where to start reading the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedStart {
    /// At the beginning.
    Beginning,
    /// At the end.
    End,
    /// After a sequence that a feed response contained.
    AfterSequence {
        /// Number of the last event read.
        number: u64,
        /// Era of the number.
        era: String,
        /// Removals up to this number happened before the reader started, so it missed none of them.
        removed_at_start: u64,
    },
    /// After a number read from this journal since it was opened.
    AfterNumber {
        /// Number of the last event read.
        number: u64,
        /// As in `AfterSequence`.
        removed_at_start: u64,
    },
    /// After a sequence that is not in this program's format.
    InvalidSequence,
}

/// Why a reader must start again from the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetReason {
    /// Its sequence does not belong to this journal.
    UnknownSequence,
    /// Events that it has not read were removed.
    Trimmed,
}

/// Which part of the feed to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedQuery {
    /// Where to start.
    pub start: FeedStart,
    /// Highest number to return; with `newest_first`, numbers must be below it.
    pub until: Option<u64>,
    /// Newest first, down to the beginning; `start` is ignored.
    pub newest_first: bool,
    /// Maximum number of events.
    pub limit: usize,
}

/// One page of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedPage {
    /// Events in the requested order.
    pub entries: Vec<FeedEntry>,
    /// Whether there are more events after these.
    pub more: bool,
    /// Number after which the page really starts.
    pub after: u64,
    /// Removals up to this number happened before the reader started.
    pub removed_at_start: u64,
    /// Why the page does not start where requested, if so.
    pub reset: Option<ResetReason>,
    /// Newest number in the feed.
    pub newest_seq: u64,
    /// Highest number that was removed.
    pub highest_removed_seq: u64,
    /// Era in which new sequences are issued.
    pub era: String,
}

/// The feed's tables within one transaction.
pub(super) struct FeedTables<'tx> {
    feed: Table<'tx, u64, (u32, u8, &'static str)>,
    seq_by_db: Table<'tx, (&'static str, u8), u64>,
    deleted_dbs: Table<'tx, u64, ()>,
}

impl<'tx> FeedTables<'tx> {
    pub(super) fn open(tx: &'tx WriteTransaction) -> Result<Self, Error> {
        Ok(Self {
            feed: tx.open_table(FEED)?,
            seq_by_db: tx.open_table(FEED_SEQ_BY_DB)?,
            deleted_dbs: tx.open_table(FEED_DELETED)?,
        })
    }

    /// Stores an event in place of the previous one of the same database and type.
    pub(super) fn insert(
        &mut self,
        counts: &mut FeedCounts,
        (seq, at): (u64, Moment),
        change: DbChange,
        db: &str,
    ) -> Result<(), Error> {
        let before = self.seq_by_db.insert((db, change_code(change)), seq)?.map(|it| it.value());
        match before {
            Some(before) => {
                self.feed.remove(before)?;
            }
            None => counts.size.count_added(2 * db.len()),
        }
        self.feed.insert(seq, (unix_seconds_u32(at), change_code(change), db))?;
        match change {
            DbChange::Deleted => {
                if let Some(before) = before {
                    self.deleted_dbs.remove(before)?;
                }
                self.deleted_dbs.insert(seq, ())?;
            }
            DbChange::Created => {
                let deleted = self.seq_by_db.get((db, change_code(DbChange::Deleted)))?;
                if let Some(deleted) = deleted.map(|it| it.value()) {
                    self.deleted_dbs.remove(deleted)?;
                }
            }
            DbChange::Updated => {}
        }
        Ok(())
    }

    /// Removes entries as far as the budget requires, but at most those of `at_most` databases:
    /// first of deleted databases, longest deleted first; then, for the size alone, of databases
    /// without an event for the longest time. Returns whether more must be removed.
    pub(super) fn trim(
        &mut self,
        counts: &mut FeedCounts,
        keep: Keep,
        now: Moment,
        at_most: usize,
    ) -> Result<bool, Error> {
        // An update later than this window proves that the database exists again, so the entry must
        // be kept at least that long.
        let longest = keep.keep.max(LATE_UPDATE_WINDOW);
        for _ in 0..at_most {
            let deleted = self.deleted_dbs.first()?.map(|(seq, _)| seq.value());
            let entry = deleted.map(|seq| self.entry(seq)).transpose()?.flatten();
            let age = match (deleted, &entry) {
                (None, _) => Duration::ZERO,
                (Some(_), None) => Duration::MAX,
                (Some(_), Some((at, _))) => at.age(now),
            };
            // Trimming starts when a limit is clearly exceeded, and then continues down to the
            // lower limit.
            let (age_over, bytes_over) = if counts.trimming {
                (
                    age > longest,
                    counts.size.bytes
                        > keep.max_size - keep.max_size / u64::from(TRIM_HEADROOM_DIVISOR),
                )
            } else {
                (
                    age > longest.saturating_add(longest / TRIM_HEADROOM_DIVISOR),
                    counts.size.bytes > keep.max_size,
                )
            };
            counts.trimming = age_over || bytes_over;
            if !counts.trimming {
                return Ok(false);
            }
            let Some(deleted) = deleted else {
                let oldest = self.feed.first()?.map(|(_, entry)| entry.value().2.to_owned());
                let Some(db) = oldest else { break };
                self.remove(counts, &db)?;
                continue;
            };
            self.deleted_dbs.remove(deleted)?;
            let Some((at, db)) = entry else { continue };
            if !self.was_recreated_after(&db, at)? {
                self.remove(counts, &db)?;
            }
        }
        counts.trimming &= self.feed.first()?.is_some();
        Ok(counts.trimming)
    }

    fn entry(&self, seq: u64) -> Result<Option<(Moment, String)>, Error> {
        let entry = self.feed.get(seq)?;
        Ok(entry.map(|entry| {
            let (at, _, db) = entry.value();
            (Moment::from_unix(u64::from(at)), db.to_owned())
        }))
    }

    /// Whether a database was written to after it was deleted, i.e. it was created again unnoticed.
    fn was_recreated_after(&self, db: &str, deleted_at: Moment) -> Result<bool, Error> {
        let Some(updated) = self.seq_by_db.get((db, change_code(DbChange::Updated)))? else {
            return Ok(false);
        };
        let entry = self.entry(updated.value())?;
        Ok(entry.is_some_and(|(at, _)| at > deleted_at.plus(LATE_UPDATE_WINDOW)))
    }

    fn remove(&mut self, counts: &mut FeedCounts, db: &str) -> Result<(), Error> {
        for change in DbChange::ALL {
            let removed = self.seq_by_db.remove((db, change_code(change)))?.map(|it| it.value());
            let Some(removed) = removed else { continue };
            self.feed.remove(removed)?;
            counts.size.count_removed(2 * db.len());
            counts.highest_removed_seq = counts.highest_removed_seq.max(removed);
        }
        Ok(())
    }
}

/// Reads a page of the feed.
pub(super) fn read(tx: &ReadTransaction, query: &FeedQuery) -> Result<FeedPage, JournalReadError> {
    let meta = tx.open_table(META)?;
    let counts: super::tables::TableCounts = read_value(&meta, META_COUNTS)?.unwrap_or_default();
    let mut eras: Vec<Era> = read_value(&meta, META_ERAS)?.unwrap_or_default();
    let feed = tx.open_table(FEED)?;
    let removed = counts.feed.highest_removed_seq;
    let last = feed.last()?.map_or(0, |(seq, _)| seq.value());
    let newest = last.max(removed);
    let start = resolve_start(&query.start, &eras, &counts, newest);
    let until = query.until.unwrap_or(u64::MAX);
    let mut page = FeedPage {
        entries: Vec::new(),
        more: false,
        after: start.after,
        removed_at_start: start.removed_at_start,
        reset: start.reset,
        newest_seq: newest,
        highest_removed_seq: removed,
        era: eras.pop().map(|era| era.id).unwrap_or_default(),
    };
    let range = if query.newest_first {
        feed.range(..until)?
    } else {
        // A range whose start is after its end is empty; it need not be queried.
        if start.after >= until {
            return Ok(page);
        }
        feed.range(start.after.saturating_add(1)..=until)?
    };
    let mut take = |entry: Result<_, redb::StorageError>| -> Result<bool, JournalReadError> {
        let (seq, entry): (redb::AccessGuard<'_, u64>, redb::AccessGuard<'_, (u32, u8, &str)>) =
            entry?;
        if page.entries.len() == query.limit {
            page.more = true;
            return Ok(false);
        }
        let (_, change, db) = entry.value();
        let change_type = DbChange::ALL.into_iter().find(|it| change_code(*it) == change);
        let change = change_type.ok_or_else(|| {
            Error::Corrupted(format!("{change} is not an event type of the feed"))
        })?;
        page.entries.push(FeedEntry { seq: seq.value(), change, db: db.to_owned() });
        Ok(true)
    };
    if query.newest_first {
        for entry in range.rev() {
            if !take(entry)? {
                break;
            }
        }
    } else {
        for entry in range {
            if !take(entry)? {
                break;
            }
        }
    }
    Ok(page)
}

/// Where reading really starts.
struct ResolvedStart {
    after: u64,
    removed_at_start: u64,
    reset: Option<ResetReason>,
}

/// Checks a requested start and determines where reading really starts.
fn resolve_start(
    since: &FeedStart,
    eras: &[Era],
    counts: &super::tables::TableCounts,
    newest: u64,
) -> ResolvedStart {
    let removed = counts.feed.highest_removed_seq;
    let from_beginning = |reset| ResolvedStart { after: 0, removed_at_start: removed, reset };
    let (number, era, removed_at_start) = match since {
        // Nothing was read yet, so nothing can be missed.
        FeedStart::Beginning | FeedStart::AfterSequence { number: 0, .. } => {
            return from_beginning(None);
        }
        FeedStart::End => return ResolvedStart { after: newest, removed_at_start: 0, reset: None },
        FeedStart::InvalidSequence => return from_beginning(Some(ResetReason::UnknownSequence)),
        FeedStart::AfterNumber { number, removed_at_start } => (*number, None, *removed_at_start),
        FeedStart::AfterSequence { number, era, removed_at_start } => {
            (*number, Some(era), *removed_at_start)
        }
    };
    if let Some(era) = era {
        let Some(at) = eras.iter().rposition(|it| it.id == *era) else {
            return from_beginning(Some(ResetReason::UnknownSequence));
        };
        // The numbers of an era end where the next era begins.
        let end = eras.get(at + 1).map_or(counts.last_seq, |next| next.after);
        if number > end {
            return from_beginning(Some(ResetReason::UnknownSequence));
        }
    }
    if removed > number.max(removed_at_start) {
        return from_beginning(Some(ResetReason::Trimmed));
    }
    ResolvedStart { after: number, removed_at_start, reset: None }
}

const fn change_code(change: DbChange) -> u8 {
    match change {
        DbChange::Created => 0,
        DbChange::Updated => 1,
        DbChange::Deleted => 2,
    }
}

fn unix_seconds_u32(at: Moment) -> u32 {
    u32::try_from(at.unix()).unwrap_or(u32::MAX)
}
