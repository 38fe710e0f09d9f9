//! How many documents were deleted at earlier times, and how many of those are certainly still deleted.
//!
//! Owns the record of one database, with one point a day that thins out with age, and the rule by which a point and
//! the current counts give a lower bound. Before its main branch, CouchDB keeps no deletion times. But every change
//! of a copy takes one of its sequences, so that few changes cannot have brought back many deleted documents.

use couchdb_names::Range;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU8,
    time::Duration,
};
use wall_clock::Moment;

const DAY: Duration = Duration::from_secs(86_400);

/// Points are kept at intervals of this share of their age, but of a day or more.
const INTERVAL_SHARE: u32 = 4;

/// Maximum number of ranges per database for which copies are recorded.
pub const MAX_RANGES: usize = 256;

/// The counts of a shard copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyCounts {
    /// Deleted documents.
    pub deleted: u64,
    /// The last sequence written.
    pub update_seq: u64,
    /// The number of the last purge.
    pub purge_seq: u64,
    /// The number of the file: a file that replaced it may have any counts.
    pub file: NonZeroU8,
}

impl CopyCounts {
    /// A lower bound of the documents that were deleted then and have stayed deleted until `now`; `None` if
    /// another file replaced the copy's.
    ///
    /// Some changes bring a deleted document back, others delete one; there are as many of the latter as of the
    /// former plus the gain in deleted documents. A purge can remove a deleted document, or delete a document by
    /// removing its winning revision. So at most half of the changes and purges beyond the gain brought documents
    /// back or purged them.
    pub fn still_deleted(&self, now: &Self) -> Option<u64> {
        if self.file != now.file {
            return None;
        }
        let changes = now.update_seq.checked_sub(self.update_seq)?;
        let purges = now.purge_seq.checked_sub(self.purge_seq)?;
        let all = changes.saturating_add(purges);
        let lost = self.deleted.saturating_sub(now.deleted);
        let rest = all.checked_sub(now.deleted.saturating_sub(self.deleted))?;
        let gone = rest.midpoint(lost);
        (lost <= all).then(|| self.deleted.saturating_sub(gone))
    }
}

/// The copies of a database by range and node, with their counts if they were read.
pub type SeenCopies<'a> = BTreeMap<(Range, &'a str), Option<CopyCounts>>;

/// The copy that represents a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedCopy {
    from: u32,
    to: u32,
    node: String,
}

impl RecordedCopy {
    fn key(&self) -> (Range, &str) {
        (self.range(), &self.node)
    }

    const fn range(&self) -> Range {
        Range { from: self.from, to: self.to }
    }
}

/// The counts of the recorded copies at one time; for a copy that was not read then, its earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Point {
    at: Moment,
    counts: Vec<Option<CopyCounts>>,
}

/// The record of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletionRecord {
    /// The suffix of its files, which distinguishes it from another database of the same name.
    pub suffix: String,
    copies: Vec<RecordedCopy>,
    points: Vec<Point>,
    /// The counts of the copies when this process last saw them.
    #[serde(skip)]
    latest: Vec<Option<CopyCounts>>,
}

/// Deleted documents at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletedThen {
    /// The time.
    pub at: Moment,
    /// Their number; `None` if a range was not read.
    pub deleted: Option<u64>,
    /// A lower bound of those that are still deleted.
    pub still_deleted: u64,
}

impl DeletionRecord {
    /// An empty record.
    pub fn beginning(suffix: &str) -> Self {
        Self { suffix: suffix.to_owned(), ..Self::default() }
    }

    /// When it last changed.
    pub fn last_at(&self) -> Option<Moment> {
        self.points.last().map(|point| point.at)
    }

    /// The number of recorded copies.
    pub const fn copies(&self) -> usize {
        self.copies.len()
    }

    /// Deleted documents of the recorded copies, as they were last counted.
    pub fn last_deleted(&self) -> u64 {
        let counts = (0..self.copies.len()).filter_map(|at| self.last_counts(at));
        counts.map(|counts| counts.deleted).fold(0, u64::saturating_add)
    }

    fn last_counts(&self, at: usize) -> Option<CopyCounts> {
        let stored =
            || self.points.iter().rev().find_map(|it| it.counts.get(at).copied().flatten());
        self.latest.get(at).copied().flatten().or_else(stored)
    }

    /// Records the counts of a sweep; returns whether there is something to store.
    pub fn see(&mut self, seen: &SeenCopies<'_>, now: Moment) -> bool {
        let before = self.points.len();
        // The clock was set back: it is unknown when these were recorded.
        self.points.retain(|point| point.at <= now);
        let mut is_new = self.points.len() < before;
        for at in (0..self.copies.len()).rev() {
            let Some(counts) = self.copies.get(at).and_then(|copy| seen.get(&copy.key()).copied())
            else {
                self.remove_copy(at);
                is_new = true;
                continue;
            };
            let last = self.last_counts(at).zip(counts);
            if last.is_some_and(|(last, counts)| last.still_deleted(&counts).is_none()) {
                self.forget_counts(at);
                is_new = true;
            }
        }
        self.add_ranges(seen);
        let counts: Vec<Option<CopyCounts>> =
            self.copies.iter().map(|copy| seen.get(&copy.key()).copied().flatten()).collect();
        is_new |= self.add_point(&counts, now);
        self.latest.resize(counts.len(), None);
        for (latest, counts) in self.latest.iter_mut().zip(counts) {
            *latest = counts.or(*latest);
        }
        is_new
    }

    fn remove_copy(&mut self, at: usize) {
        self.copies.remove(at);
        let points = self.points.iter_mut().map(|point| &mut point.counts);
        for counts in points.chain([&mut self.latest]).filter(|counts| at < counts.len()) {
            counts.remove(at);
        }
    }

    fn forget_counts(&mut self, at: usize) {
        let points = self.points.iter_mut().map(|point| &mut point.counts);
        points.chain([&mut self.latest]).filter_map(|it| it.get_mut(at)).for_each(|it| *it = None);
    }

    /// Chooses one of the copies that were read for each range without a copy.
    fn add_ranges(&mut self, seen: &SeenCopies<'_>) {
        let mut known: BTreeSet<Range> = self.copies.iter().map(RecordedCopy::range).collect();
        for (&(range, node), counts) in seen {
            if counts.is_some() && self.copies.len() < MAX_RANGES && known.insert(range) {
                let Range { from, to } = range;
                self.copies.push(RecordedCopy { from, to, node: node.to_owned() });
                self.points.iter_mut().for_each(|point| point.counts.push(None));
            }
        }
    }

    /// Adds a point; if there is one of today, adds to it what was not read before.
    fn add_point(&mut self, counts: &[Option<CopyCounts>], now: Moment) -> bool {
        if counts.iter().all(Option::is_none) {
            return false;
        }
        let day = |at: Moment| at.unix() / DAY.as_secs();
        if let Some(today) = self.points.last_mut().filter(|last| day(last.at) == day(now)) {
            let mut is_new = false;
            for (known, found) in today.counts.iter_mut().zip(counts) {
                is_new |= known.is_none() && found.is_some();
                *known = known.or(*found);
            }
            if is_new {
                // The counts from earlier today also hold for this time.
                today.at = now;
            }
            return is_new;
        }
        self.points.push(Point { at: now, counts: counts.to_vec() });
        self.thin(now);
        true
    }

    /// Keeps fewer points the older they are, but always the first.
    fn thin(&mut self, now: Moment) {
        let newest = self.last_at();
        let mut kept: Option<Moment> = None;
        self.points.retain(|point| {
            let interval = (point.at.age(now) / INTERVAL_SHARE).max(DAY / 2);
            let keeps =
                Some(point.at) == newest || kept.is_none_or(|last| last.age(point.at) >= interval);
            if keeps {
                kept = Some(point.at);
            }
            keeps
        });
    }

    /// Deleted documents now; `None` if a range is not recorded or not read.
    pub fn deleted(&self, now: &SeenCopies<'_>) -> Option<u64> {
        let counts = self.copies.iter().map(|copy| now.get(&copy.key()).copied().flatten());
        self.sum(now, counts)
    }

    /// Deleted documents at the recorded times, the oldest first.
    pub fn times(&self, now: &SeenCopies<'_>) -> Vec<DeletedThen> {
        let mut least = 0;
        let time = |point: &Point| {
            let pairs = self.copies.iter().zip(&point.counts);
            let still = pairs.filter_map(|(copy, then)| {
                (*then)?.still_deleted(&now.get(&copy.key()).copied().flatten()?)
            });
            // Documents that stayed deleted since an earlier time did so since this one too.
            least = least.max(still.fold(0, u64::saturating_add));
            let deleted = self.sum(now, point.counts.iter().copied());
            DeletedThen { at: point.at, deleted, still_deleted: least }
        };
        self.points.iter().map(time).collect()
    }

    /// The sum of deleted documents; `None` unless every range has a number.
    fn sum(
        &self,
        now: &SeenCopies<'_>,
        counts: impl Iterator<Item = Option<CopyCounts>>,
    ) -> Option<u64> {
        let known: BTreeSet<Range> = self.copies.iter().map(RecordedCopy::range).collect();
        let is_whole = now.keys().all(|(range, _)| known.contains(range)) && !known.is_empty();
        let deleted = counts.map(|counts| Some(counts?.deleted));
        deleted.sum::<Option<u64>>().filter(|_| is_whole)
    }
}

#[cfg(test)]
mod tests;
