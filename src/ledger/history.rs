//! The ledger's entries for each volume, in the form that forecasts read.
//!
//! Owns the sums of the last buckets, so that forecasts need not read the journal.

use super::{Books, Bucket};
use crate::model::{
    cause::Cause,
    forecast::{BookedSpan, GrowthHistories, GrowthHistory},
};
use std::{collections::BTreeMap, time::Duration};
use wall_clock::Moment;

/// How long sums are kept: forecasts use the days of four weeks, and the age of the books.
const KEPT: Duration = Duration::from_secs(60 * 86_400);

/// The part of a forecast that a change belongs to.
enum Part {
    Live,
    Waste,
    Event,
    /// Compactions, which are simulated, and their unfinished files, which come and go.
    Compaction,
}

const fn part_of(cause: Cause) -> Part {
    match cause {
        // Bytes that are measured for the first time are also unaccounted for on the volume, with the
        // opposite sign: the two must cancel out.
        Cause::Documents
        | Cause::IndexRows
        | Cause::SearchIndexes
        | Cause::OtherFiles
        | Cause::Unknown
        | Cause::Measured
        | Cause::NotWatched
        | Cause::Unaccounted => Part::Live,
        Cause::Waste | Cause::IndexWaste => Part::Waste,
        Cause::NewDatabase
        | Cause::DatabaseDeleted
        | Cause::NewIndex
        | Cause::IndexDeleted
        | Cause::ShardMovedIn
        | Cause::ShardMovedOut
        | Cause::Split
        | Cause::Leftovers
        | Cause::DeletedFiles => Part::Event,
        Cause::Compaction | Cause::CompactionFiles => Part::Compaction,
    }
}

/// Sums of one bucket, by account and whether it is a volume. Only their bytes are set.
type Sums = BTreeMap<(String, bool), BookedSpan>;

fn sums_of(bucket: &Bucket) -> Sums {
    let mut sums = Sums::new();
    for (key, sum) in &bucket.entries {
        let span = sums.entry((key.account.clone(), key.is_volume)).or_default();
        let bytes = match part_of(key.cause) {
            Part::Live => &mut span.live_bytes,
            Part::Waste => &mut span.waste_bytes,
            Part::Event => &mut span.event_bytes,
            Part::Compaction => continue,
        };
        *bytes = bytes.saturating_add(sum.bytes);
    }
    sums
}

/// The sums of the closed buckets, by number.
#[derive(Debug, Default)]
pub(super) struct BucketSums(BTreeMap<u32, (Moment, Moment, Sums)>);

impl BucketSums {
    /// Adds a closed bucket.
    pub(super) fn add(&mut self, bucket: &Bucket) {
        self.0.entry(bucket.number).or_insert_with(|| (bucket.from, bucket.until, sums_of(bucket)));
    }

    /// The entries for each volume until now.
    pub(super) fn histories(&mut self, books: &Books, now: Moment) -> GrowthHistories {
        books.unsaved.values().for_each(|bucket| self.add(bucket));
        self.0.retain(|_, (from, ..)| from.age(now) <= KEPT);
        let current = (books.current.from, books.current.until, sums_of(&books.current));
        let buckets = || self.0.iter().chain([(&books.current.number, &current)]);
        let of_volume = |(name, account): (&String, &super::Account)| {
            let accounts = account.nodes.iter().map(|node| (node.clone(), false));
            let accounts: Vec<_> = accounts.chain([(name.clone(), true)]).collect();
            let since = buckets().filter(|(number, _)| **number >= account.opened);
            let spans = since.map(|(_, (from, until, sums))| {
                let mut span = BookedSpan { from: *from, until: *until, ..BookedSpan::default() };
                for part in accounts.iter().filter_map(|account| sums.get(account)) {
                    span.live_bytes = span.live_bytes.saturating_add(part.live_bytes);
                    span.waste_bytes = span.waste_bytes.saturating_add(part.waste_bytes);
                    span.event_bytes = span.event_bytes.saturating_add(part.event_bytes);
                }
                span
            });
            (name.clone(), GrowthHistory { spans: spans.collect() })
        };
        books.volumes.iter().map(of_volume).collect()
    }

    /// The numbers of the stored buckets that forecasts need.
    pub(super) fn needed(books: &Books, now: Moment) -> Vec<u32> {
        let closed = books.closed.iter().filter(|span| span.from.age(now) <= KEPT);
        closed.map(|span| span.number).collect()
    }
}
