//! Size accounting of a table of numbered entries, and its retention.

use crate::model::settings::work::Keep;
use redb::{ReadableTable as _, StorageError, Table};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use wall_clock::Moment;

/// Bytes per entry beyond its content: key, time, and space in a page.
const ENTRY_OVERHEAD_BYTES: u64 = 32;

/// Number and size of the entries of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RetainedTable {
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

impl RetainedTable {
    pub(super) fn insert(
        &mut self,
        table: &mut Table<'_, u64, (u32, &'static [u8])>,
        seq: u64,
        at: Moment,
        json: &[u8],
    ) -> Result<(), StorageError> {
        // Times are stored with 32 bits.
        let at = u32::try_from(at.unix()).unwrap_or(u32::MAX);
        table.insert(seq, (at, json))?;
        self.count_added(json.len());
        Ok(())
    }

    /// Counts an added entry with content of `length` bytes.
    pub(super) const fn count_added(&mut self, length: usize) {
        self.entries += 1;
        self.bytes += stored_bytes(length);
    }

    /// Counts a removed entry.
    pub(super) const fn count_removed(&mut self, length: usize) {
        self.entries = self.entries.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(stored_bytes(length));
    }

    /// Removes the oldest entries that exceed the budget, at most `at_most` so that a commit stays small.
    /// Entries younger than `needed` stay regardless of size. Returns whether more must be removed.
    pub(super) fn trim(
        &mut self,
        table: &mut Table<'_, u64, (u32, &'static [u8])>,
        keep: Keep,
        needed: Duration,
        now: Moment,
        at_most: usize,
    ) -> Result<bool, StorageError> {
        for _ in 0..at_most {
            let over = match table.first()? {
                None => return Ok(false),
                Some((_, entry)) => {
                    let at = Moment::from_unix(u64::from(entry.value().0));
                    let age = at.age(now);
                    age >= needed && (self.bytes > keep.max_size || age > keep.keep)
                }
            };
            if !over {
                return Ok(false);
            }
            if let Some((_, entry)) = table.pop_first()? {
                self.count_removed(entry.value().1.len());
            }
        }
        Ok(true)
    }
}

const fn stored_bytes(length: usize) -> u64 {
    length as u64 + ENTRY_OVERHEAD_BYTES
}
