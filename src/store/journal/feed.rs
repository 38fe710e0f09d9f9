//! The feed's tables: the latest created, updated and deleted of each database, by number.
//!
//! An event takes the place of the one like it. Of a database that lives, all entries stay;
//! of one that is gone they are removed when that is long ago. Sequences that were given out
//! are judged here: what they name may be another journal's, or older than what is kept, and
//! whoever goes on from such a one begins anew, for else it would miss something unawares.

use super::{
    query::Unread,
    store::value,
    tables::{FEED, FEED_GONE, FEED_NUMBERS, FeedCounts, META, META_COUNTS, META_ERAS},
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

/// Eras that are known; a sequence of an older one is as another journal's.
const ERAS: usize = 100;

/// An `updated` that comes so soon after `deleted` was under way before it, and is no sign of
/// life.
const STRAGGLER: Duration = Duration::from_secs(600);

/// Removing goes on until this part of the budget is free again: whoever reads page by page
/// from the beginning has to begin anew when something was removed meanwhile, which had
/// better be seldom.
const SLACK: u32 = 8;

/// The numbers that one opened file gave. A file that was put back from a copy gives numbers
/// a second time, in another era.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Era {
    id: String,
    /// The newest number when it began.
    after: u64,
}

/// A name for an era that no other has.
pub(super) fn new_era() -> String {
    // Keyed by the system's random numbers.
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// Adds an era.
pub(super) fn begin(eras: &mut Vec<Era>, id: &str, after: u64) {
    eras.push(Era { id: id.to_owned(), after });
    let over = eras.len().saturating_sub(ERAS);
    eras.drain(..over);
}

/// An event in the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Its number.
    pub seq: u64,
    /// What happened.
    pub change: DbChange,
    /// To which database.
    pub db: String,
}

/// From where the feed is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Since {
    /// From its beginning.
    Start,
    /// From its end.
    Now,
    /// Behind a number that was given out.
    Behind {
        /// The number.
        number: u64,
        /// The era it was given in.
        era: String,
        /// Up to where its reader began without what had been removed before.
        floor: u64,
    },
    /// Behind a number that was read from this journal, as it is open.
    Number {
        /// The number.
        number: u64,
        /// Up to where its reader began without what had been removed before.
        floor: u64,
    },
    /// Behind something that no journal of this program's gave.
    Foreign,
}

/// Why a reader begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anew {
    /// Its sequence is not this journal's.
    Foreign,
    /// Something that it has not seen was removed.
    Trimmed,
}

/// Which part of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedQuery {
    /// From where.
    pub since: Since,
    /// Up to this number; in the other direction, only below it.
    pub until: Option<u64>,
    /// The newest first, all of them: `since` then means nothing.
    pub newest_first: bool,
    /// How many at most.
    pub limit: usize,
}

/// A part of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedPage {
    /// Events, in order.
    pub updates: Vec<Update>,
    /// Whether there are more behind them.
    pub more: bool,
    /// Where it really begins.
    pub after: u64,
    /// Up to where its reader began without what had been removed before.
    pub floor: u64,
    /// Why it does not begin where it was asked to.
    pub anew: Option<Anew>,
    /// The newest number in the feed.
    pub newest: u64,
    /// The highest number that was removed.
    pub removed: u64,
    /// The era that sequences are given in.
    pub era: String,
}

/// The feed's tables in one transaction.
pub(super) struct Tables<'tx> {
    feed: Table<'tx, u64, (u32, u8, &'static str)>,
    numbers: Table<'tx, (&'static str, u8), u64>,
    gone: Table<'tx, u64, ()>,
}

impl<'tx> Tables<'tx> {
    pub(super) fn open(tx: &'tx WriteTransaction) -> Result<Self, Error> {
        Ok(Self {
            feed: tx.open_table(FEED)?,
            numbers: tx.open_table(FEED_NUMBERS)?,
            gone: tx.open_table(FEED_GONE)?,
        })
    }

    /// Puts an event in the place of the one like it.
    pub(super) fn put(
        &mut self,
        counts: &mut FeedCounts,
        (seq, at): (u64, Moment),
        change: DbChange,
        db: &str,
    ) -> Result<(), Error> {
        let before = self.numbers.insert((db, number(change)), seq)?.map(|it| it.value());
        match before {
            Some(before) => {
                self.feed.remove(before)?;
            }
            None => counts.shelf.add(2 * db.len()),
        }
        self.feed.insert(seq, (seconds(at), number(change), db))?;
        match change {
            DbChange::Deleted => {
                if let Some(before) = before {
                    self.gone.remove(before)?;
                }
                self.gone.insert(seq, ())?;
            }
            DbChange::Created => {
                let deleted = self.numbers.get((db, number(DbChange::Deleted)))?;
                if let Some(deleted) = deleted.map(|it| it.value()) {
                    self.gone.remove(deleted)?;
                }
            }
            DbChange::Updated => {}
        }
        Ok(())
    }

    /// Removes what is known of databases that are gone, those first that are so longest, as
    /// long as the budget wants it; `at_most` of them. Answers whether more are to go.
    pub(super) fn trim(
        &mut self,
        counts: &mut FeedCounts,
        keep: Keep,
        now: Moment,
        at_most: usize,
    ) -> Result<bool, Error> {
        // Whatever comes so late that it could go at once is a sign of life.
        let longest = keep.keep.max(STRAGGLER);
        for _ in 0..at_most {
            let Some(oldest) = self.gone.first()?.map(|(seq, _)| seq.value()) else { break };
            let entry = self.entry(oldest)?;
            let age = entry.as_ref().map_or(Duration::MAX, |(at, _)| at.age(now));
            // Old enough, or too much, by a good deal: then as far as that goes.
            let (age_over, bytes_over) = if counts.trimming {
                (
                    age > longest,
                    counts.shelf.bytes > keep.max_size - keep.max_size / u64::from(SLACK),
                )
            } else {
                (age > longest.saturating_add(longest / SLACK), counts.shelf.bytes > keep.max_size)
            };
            counts.trimming = age_over || bytes_over;
            if !counts.trimming {
                return Ok(false);
            }
            self.gone.remove(oldest)?;
            let Some((at, db)) = entry else { continue };
            if !self.lives_after(&db, at)? {
                self.remove(counts, &db)?;
            }
        }
        counts.trimming &= self.gone.first()?.is_some();
        Ok(counts.trimming)
    }

    fn entry(&self, seq: u64) -> Result<Option<(Moment, String)>, Error> {
        let entry = self.feed.get(seq)?;
        Ok(entry.map(|entry| {
            let (at, _, db) = entry.value();
            (Moment::from_unix(u64::from(at)), db.to_owned())
        }))
    }

    /// Whether a database was written to after it was gone: nobody saw how it came back.
    fn lives_after(&self, db: &str, gone: Moment) -> Result<bool, Error> {
        let Some(updated) = self.numbers.get((db, number(DbChange::Updated)))? else {
            return Ok(false);
        };
        let entry = self.entry(updated.value())?;
        Ok(entry.is_some_and(|(at, _)| at > gone.plus(STRAGGLER)))
    }

    fn remove(&mut self, counts: &mut FeedCounts, db: &str) -> Result<(), Error> {
        for change in DbChange::ALL {
            let removed = self.numbers.remove((db, number(change)))?.map(|it| it.value());
            let Some(removed) = removed else { continue };
            self.feed.remove(removed)?;
            counts.shelf.remove(2 * db.len());
            counts.floor = counts.floor.max(removed);
        }
        Ok(())
    }
}

/// Reads a part of the feed.
pub(super) fn read(tx: &ReadTransaction, query: &FeedQuery) -> Result<FeedPage, Unread> {
    let meta = tx.open_table(META)?;
    let counts: super::tables::Counts = value(&meta, META_COUNTS)?.unwrap_or_default();
    let mut eras: Vec<Era> = value(&meta, META_ERAS)?.unwrap_or_default();
    let feed = tx.open_table(FEED)?;
    let removed = counts.feed.floor;
    let last = feed.last()?.map_or(0, |(seq, _)| seq.value());
    let newest = last.max(removed);
    let begun = judged(&query.since, &eras, &counts, newest);
    let until = query.until.unwrap_or(u64::MAX);
    let mut page = FeedPage {
        updates: Vec::new(),
        more: false,
        after: begun.after,
        floor: begun.floor,
        anew: begun.anew,
        newest,
        removed,
        era: eras.pop().map(|era| era.id).unwrap_or_default(),
    };
    let range = if query.newest_first {
        feed.range(..until)?
    } else {
        // A range that begins behind its end is empty, and not asked for.
        if begun.after >= until {
            return Ok(page);
        }
        feed.range(begun.after.saturating_add(1)..=until)?
    };
    let mut take = |entry: Result<_, redb::StorageError>| -> Result<bool, Unread> {
        let (seq, entry): (redb::AccessGuard<'_, u64>, redb::AccessGuard<'_, (u32, u8, &str)>) =
            entry?;
        if page.updates.len() == query.limit {
            page.more = true;
            return Ok(false);
        }
        let (_, change, db) = entry.value();
        let known = DbChange::ALL.into_iter().find(|it| number(*it) == change);
        let change = known
            .ok_or_else(|| Error::Corrupted(format!("{change} is no type of event in the feed")))?;
        page.updates.push(Update { seq: seq.value(), change, db: db.to_owned() });
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

/// Where a reader really begins.
struct Begun {
    after: u64,
    floor: u64,
    anew: Option<Anew>,
}

/// Where a reader begins that wants to go on from there.
fn judged(since: &Since, eras: &[Era], counts: &super::tables::Counts, newest: u64) -> Begun {
    let removed = counts.feed.floor;
    let begins = |anew| Begun { after: 0, floor: removed, anew };
    let (number, era, floor) = match since {
        // Nothing was seen yet, so that nothing can have been missed.
        Since::Start | Since::Behind { number: 0, .. } => return begins(None),
        Since::Now => return Begun { after: newest, floor: 0, anew: None },
        Since::Foreign => return begins(Some(Anew::Foreign)),
        Since::Number { number, floor } => (*number, None, *floor),
        Since::Behind { number, era, floor } => (*number, Some(era), *floor),
    };
    if let Some(era) = era {
        let Some(at) = eras.iter().rposition(|it| it.id == *era) else {
            return begins(Some(Anew::Foreign));
        };
        // The numbers of an era end where the next one begins.
        let end = eras.get(at + 1).map_or(counts.last_seq, |next| next.after);
        if number > end {
            return begins(Some(Anew::Foreign));
        }
    }
    if removed > number.max(floor) {
        return begins(Some(Anew::Trimmed));
    }
    Begun { after: number, floor, anew: None }
}

const fn number(change: DbChange) -> u8 {
    match change {
        DbChange::Created => 0,
        DbChange::Updated => 1,
        DbChange::Deleted => 2,
    }
}

fn seconds(at: Moment) -> u32 {
    u32::try_from(at.unix()).unwrap_or(u32::MAX)
}
