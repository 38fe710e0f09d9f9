//! What was read of each file in the walk before, so that the next reads only what changed.

use super::read::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// One file: what tells its path and its state from others, and what was read of it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: u64,
    pub(super) file: File,
}

/// Every database and index file of the walk before, in the order of their keys.
///
/// A sorted list, because it is built once a walk and takes no more than its entries do. Two
/// paths with one key are told apart by the files' inodes.
#[derive(Clone, Debug, Default)]
pub struct Known(Vec<Entry>);

impl Known {
    pub(super) fn of(mut entries: Vec<Entry>) -> Self {
        entries.sort_unstable_by_key(|entry| entry.key);
        entries.shrink_to_fit();
        Self(entries)
    }

    pub(super) fn get(&self, key: u64) -> Option<&File> {
        let at = self.0.binary_search_by_key(&key, |entry| entry.key).ok()?;
        self.0.get(at).map(|entry| &entry.file)
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What tells one path from another.
pub(super) fn key(path: &[u8], views: bool) -> u64 {
    let mut hasher = DefaultHasher::new();
    (path, views).hash(&mut hasher);
    hasher.finish()
}
