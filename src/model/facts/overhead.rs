//! What a shard's file keeps for CouchDB itself, beside its documents.
//!
//! Owns from when on that is much. Few shards have much of it, so the tables keep it for those alone.

use super::OptionalU64;

/// Entries about purges, and `_local` documents: both are live, so a compaction keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// The number of the last purge; zero if nothing was ever purged.
    pub purge_seq: OptionalU64,
    /// Number of purges that a compaction keeps in any case (`_purged_infos_limit`); only headers have it.
    pub purges_limit: OptionalU64,
    /// Bytes of the entries about purges; only headers have them.
    pub purge_bytes: OptionalU64,
    /// Bytes of the tree of `_local` documents, bodies included; only headers have them.
    pub local_bytes: OptionalU64,
}

/// CouchDB's default of `_purged_infos_limit`.
const DEFAULT_PURGES_LIMIT: u64 = 1_000;

/// Checkpoints of a few thousand replications take less.
const MUCH_LOCAL_BYTES: u64 = 1 << 20;

impl Overhead {
    /// These values with those that were read later; what the later reading lacks stays.
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

    /// Whether it is so much that something may have to be done about it.
    #[must_use]
    pub fn is_notable(&self) -> bool {
        self.purge_seq.get().is_some_and(|last| last > DEFAULT_PURGES_LIMIT)
            || self.local_bytes.get().is_some_and(|bytes| bytes >= MUCH_LOCAL_BYTES)
    }

    /// Number of purges that a compaction keeps in any case, with CouchDB's default.
    #[must_use]
    pub fn purges_kept_always(&self) -> u64 {
        self.purges_limit.get().unwrap_or(DEFAULT_PURGES_LIMIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_later_reading_lacks_stays() {
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
    fn little_is_not_notable() {
        let with = |purge_seq: Option<u64>, local_bytes: Option<u64>| Overhead {
            purge_seq: purge_seq.into(),
            local_bytes: local_bytes.into(),
            ..Overhead::default()
        };
        for (overhead, expected) in [
            (with(None, None), false),
            (with(Some(1_000), Some((1 << 20) - 1)), false),
            (with(Some(1_001), None), true),
            (with(None, Some(1 << 20)), true),
        ] {
            assert_eq!(overhead.is_notable(), expected, "{overhead:?}");
        }
    }
}
