//! The cached readings of the previous walk, so that the next one reads only changed files.

use super::read::FileReading;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// One file: a hash of its path, and its reading.
#[derive(Clone, Debug)]
pub(super) struct CacheEntry {
    pub(super) key: u64,
    pub(super) file: FileReading,
}

/// Every database and index file of the previous walk, ordered by key.
///
/// A sorted list, because it is built once for each walk and needs no memory beyond its entries.
/// Two paths with the same key are distinguished by the files' inodes.
#[derive(Clone, Debug, Default)]
pub struct WalkCache(Vec<CacheEntry>);

impl WalkCache {
    pub(super) fn from_entries(mut entries: Vec<CacheEntry>) -> Self {
        entries.sort_unstable_by_key(|entry| entry.key);
        entries.shrink_to_fit();
        Self(entries)
    }

    pub(super) fn get(&self, key: u64) -> Option<&FileReading> {
        let at = self.0.binary_search_by_key(&key, |entry| entry.key).ok()?;
        self.0.get(at).map(|entry| &entry.file)
    }

    /// Number of files.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no files.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A hash that identifies a path.
pub(super) fn path_key(path: &[u8], views: bool) -> u64 {
    let mut hasher = DefaultHasher::new();
    (path, views).hash(&mut hasher);
    hasher.finish()
}
