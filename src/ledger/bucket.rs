//! A bucket: the entries of one span of time, and its stored form.

use crate::model::{cause::Cause, records::JobOwner};
use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};
use serde::{Deserialize, Serialize};
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    io::{Read as _, Write as _},
};
use wall_clock::Moment;

/// The version of the stored form.
const FORMAT_VERSION: u8 = 1;

/// Maximum size of a bucket that is read back.
const MAX_BUCKET_BYTES: u64 = 64 << 20;

/// The subject of a sum.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EntryKey {
    /// The node, by CouchDB's name, or the volume.
    pub account: String,
    /// Whether the account is a volume.
    pub is_volume: bool,
    /// The cause.
    pub cause: Cause,
    /// Who started the compaction, if it is one and if known.
    pub by: Option<JobOwner>,
    /// The database; empty for none, and for the sum of small ones.
    pub db: String,
    /// The design document, by id; empty for files of a database itself.
    pub design: String,
}

/// The sum of the changes with one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// The change.
    pub bytes: i64,
    /// Number of small entries that are summed up here.
    pub others: u32,
}

/// The entries of one span of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Its number: buckets are ordered by it.
    pub number: u32,
    /// When it begins.
    pub from: Moment,
    /// When it ends, or the last time for which it was recorded.
    pub until: Moment,
    /// Whether it is the sum of hourly buckets.
    pub is_daily: bool,
    /// Times without observation; the entries cover them too.
    pub gaps: Vec<(Moment, Moment)>,
    /// The entries.
    pub entries: BTreeMap<EntryKey, Sum>,
}

impl Bucket {
    /// Adds to an entry.
    pub fn add(&mut self, key: EntryKey, sum: Sum) {
        let entry = self.entries.entry(key).or_default();
        entry.bytes = entry.bytes.saturating_add(sum.bytes);
        entry.others = entry.others.saturating_add(sum.others);
    }

    /// Adds the entries of the next bucket.
    pub fn join(&mut self, next: Self) {
        self.until = next.until;
        self.gaps.extend(next.gaps);
        next.entries.into_iter().for_each(|(key, sum)| self.add(key, sum));
    }

    /// Keeps the largest entries, and sums up the rest by account and cause.
    pub fn prune(&mut self, keep: usize) {
        self.entries.retain(|_, sum| sum.bytes != 0 || sum.others > 0);
        if self.entries.len() <= keep {
            return;
        }
        let mut sizes: Vec<u64> =
            self.entries.values().map(|sum| sum.bytes.unsigned_abs()).collect();
        let at = keep.min(sizes.len() - 1);
        sizes.select_nth_unstable_by_key(at, |bytes| Reverse(*bytes));
        let limit = sizes.get(at).copied().unwrap_or_default();
        for (key, sum) in std::mem::take(&mut self.entries) {
            let is_small = sum.bytes.unsigned_abs() <= limit && !key.db.is_empty();
            if is_small {
                let others = sum.others.saturating_add(1);
                let key = EntryKey { db: String::new(), design: String::new(), ..key };
                self.add(key, Sum { others, ..sum });
            } else {
                self.add(key, sum);
            }
        }
    }

    /// Its stored form; `None` if it cannot be serialised.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let entries: Vec<_> = self.entries.iter().collect();
        let head = (self.number, self.from, self.until, self.is_daily, &self.gaps);
        let bytes = postcard::to_stdvec(&(head, entries)).ok()?;
        let mut encoder = DeflateEncoder::new(vec![FORMAT_VERSION], Compression::default());
        encoder.write_all(&bytes).ok()?;
        encoder.finish().ok()
    }

    /// The bucket of a stored form; `None` if it is damaged or of another version.
    pub fn decode(stored: &[u8]) -> Option<Self> {
        let (&FORMAT_VERSION, packed) = stored.split_first()? else { return None };
        let mut bytes = Vec::new();
        DeflateDecoder::new(packed).take(MAX_BUCKET_BYTES).read_to_end(&mut bytes).ok()?;
        let (head, entries): (_, Vec<(EntryKey, Sum)>) = postcard::from_bytes(&bytes).ok()?;
        let (number, from, until, is_daily, gaps) = head;
        let entries = entries.into_iter().collect();
        Some(Self { number, from, until, is_daily, gaps, entries })
    }
}
