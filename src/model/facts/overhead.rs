//! Contents of a shard's file that are CouchDB's own bookkeeping rather than documents.
//!
//! Owns what is notable: any purge, and large `_local` documents. Few shards have either, so the tables store the
//! overhead of those alone.

use super::OptionalU64;

/// Purge entries and `_local` documents: both are live, so a compaction keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// The number of the last purge; zero if nothing was ever purged.
    pub purge_seq: OptionalU64,
    /// Number of purge entries that a compaction always keeps (`_purged_infos_limit`); only headers
    /// have it.
    pub purges_limit: OptionalU64,
    /// Bytes of the purge entries; only headers have them.
    pub purge_bytes: OptionalU64,
    /// Bytes of the tree of `_local` documents, bodies included; only headers have them.
    pub local_bytes: OptionalU64,
}

/// CouchDB's default for `_purged_infos_limit`.
const DEFAULT_PURGES_LIMIT: u64 = 1_000;

/// Threshold for large `_local` documents, in bytes: checkpoints of a few thousand replications
/// take less.
const MUCH_LOCAL_BYTES: u64 = 1 << 20;

impl Overhead {
    /// These values updated by a later reading; values that the later reading lacks are kept.
    #[must_use]
    pub fn updated(self, later: Self) -> Self {
        let newest = |later: OptionalU64, known| if later.get().is_some() { later } else { known };
        Self {
            purge_seq: newest(later.purge_seq, self.purge_seq),
            purges_limit: newest(later.purges_limit, self.purges_limit),
            purge_bytes: newest(later.purge_bytes, self.purge_bytes),
            local_bytes: newest(later.local_bytes, self.local_bytes),
        }
    }

    /// Whether the tables store it.
    pub fn is_notable(&self) -> bool {
        self.purge_seq.get() > Some(0) || self.has_many_locals()
    }

    /// Whether its `_local` documents are more than checkpoints need.
    pub fn has_many_locals(&self) -> bool {
        self.local_bytes.get().is_some_and(|bytes| bytes >= MUCH_LOCAL_BYTES)
    }

    /// Number of purge entries that a compaction always keeps, with CouchDB's default where
    /// unknown.
    pub fn purges_kept_always(&self) -> u64 {
        self.purges_limit.get().unwrap_or(DEFAULT_PURGES_LIMIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn update_keeps_values_that_the_later_reading_lacks() {
        let header = Overhead {
            purge_seq: OptionalU64::new(2_000),
            purges_limit: OptionalU64::new(50),
            purge_bytes: OptionalU64::new(9),
            local_bytes: OptionalU64::new(0),
        };
        let couchdb = Overhead { purge_seq: OptionalU64::new(2_001), ..Overhead::default() };
        let both = Overhead { purge_seq: OptionalU64::new(2_001), ..header };
        assert_eq!(header.updated(couchdb), both);
        assert_eq!(couchdb.updated(header), header);
        assert_eq!((header.purges_kept_always(), couchdb.purges_kept_always()), (50, 1_000));
    }

    #[test]
    fn overhead_is_notable_only_above_thresholds() {
        let with = |purge_seq: Option<u64>, local_bytes: Option<u64>| Overhead {
            purge_seq: purge_seq.into(),
            local_bytes: local_bytes.into(),
            ..Overhead::default()
        };
        for (overhead, expected) in [
            (with(None, None), false),
            (with(Some(0), Some((1 << 20) - 1)), false),
            (with(Some(1), None), true),
            (with(None, Some(1 << 20)), true),
        ] {
            assert_eq!(overhead.is_notable(), expected, "{overhead:?}");
        }
    }
}
