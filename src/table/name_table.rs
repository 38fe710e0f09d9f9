//! The names of a cluster's databases, each stored once.

use couchdb_names::{NameList, Range, ShardName};
use std::sync::Arc;

/// Number of names in a chunk.
const NAMES_PER_CHUNK: usize = 256;

/// One database instance's name: `app/orders` + `.1795222434`; node-local databases and
/// stray files have an empty suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DbName<'a> {
    /// The clustered database's name.
    pub db: &'a str,
    /// The instance suffix with its dot, or nothing.
    pub suffix: &'a str,
}

impl<'a> DbName<'a> {
    /// The database name and the range in a shard's name; a node-local database has no range.
    pub fn and_range_of(shard: &'a str) -> (Self, Option<Range>) {
        match ShardName::split(shard) {
            Some(split) => (Self { db: split.db, suffix: split.suffix }, Some(split.range)),
            None => (Self { db: shard, suffix: "" }, None),
        }
    }
}

impl std::fmt::Display for DbName<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}{}", self.db, self.suffix)
    }
}

/// The names of a chunk, with five bytes for each in addition to its text.
#[derive(Clone, Debug)]
struct NameChunk {
    names: NameList,
    /// The number of trailing bytes of each name that belong to the suffix.
    suffixes: Vec<u8>,
}

impl NameChunk {
    fn with_capacity(letters: usize) -> Self {
        Self {
            names: NameList::with_capacity(NAMES_PER_CHUNK, letters),
            suffixes: Vec::with_capacity(NAMES_PER_CHUNK),
        }
    }

    fn get(&self, at: usize) -> Option<DbName<'_>> {
        let whole = self.names.get(at)?;
        let &suffix = self.suffixes.get(at)?;
        let (db, suffix) = whole.split_at_checked(whole.len().checked_sub(usize::from(suffix))?)?;
        Some(DbName { db, suffix })
    }

    fn push(&mut self, name: DbName<'_>) {
        // 256 names of at most CouchDB's 238 bytes stay far below a list's four gigabytes.
        if self.names.push_parts([name.db, name.suffix]) {
            // A suffix this long is not a real one, so it counts as part of the name.
            self.suffixes.push(u8::try_from(name.suffix.len()).unwrap_or(0));
        }
    }
}

/// Names by index, in shared chunks; the name at an index can be replaced.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameTable {
    chunks: Vec<Arc<NameChunk>>,
    len: usize,
}

impl NameTable {
    pub(crate) fn get(&self, at: usize) -> Option<DbName<'_>> {
        self.chunks.get(at / NAMES_PER_CHUNK)?.get(at % NAMES_PER_CHUNK)
    }

    /// Each name with its index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, DbName<'_>)> {
        (0..self.len).filter_map(|at| Some((at, self.get(at)?)))
    }

    pub(crate) fn push(&mut self, name: DbName<'_>) -> usize {
        if self.len.is_multiple_of(NAMES_PER_CHUNK) {
            if let Some(full) = self.chunks.last_mut() {
                Arc::make_mut(full).names.shrink_to_fit();
            }
            self.chunks.push(Arc::new(NameChunk::with_capacity(0)));
        }
        if let Some(last) = self.chunks.last_mut() {
            Arc::make_mut(last).push(name);
        }
        self.len += 1;
        self.len - 1
    }

    /// Replaces the name at index `at` and rewrites its chunk, so that a cluster that creates and
    /// drops databases all day leaves no unused text.
    pub(crate) fn replace(&mut self, at: usize, name: DbName<'_>) {
        let Some(chunk) = self.chunks.get_mut(at / NAMES_PER_CHUNK) else { return };
        let mut fresh = NameChunk::with_capacity(chunk.names.bytes());
        for place in 0..chunk.names.len() {
            match chunk.get(place) {
                Some(_) if place == at % NAMES_PER_CHUNK => fresh.push(name),
                Some(kept) => fresh.push(kept),
                None => {}
            }
        }
        *chunk = Arc::new(fresh);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_stored_and_can_be_replaced() {
        let mut names = NameTable::default();
        let texts: Vec<String> = (0..700).map(|at| format!("db-{at}")).collect();
        for text in &texts {
            names.push(DbName { db: text, suffix: ".17" });
        }
        let copy = names.clone();
        names.replace(300, DbName { db: "a longer name than before", suffix: "" });
        for (at, text) in texts.iter().enumerate() {
            let kept = DbName { db: text, suffix: ".17" };
            assert_eq!(copy.get(at), Some(kept));
            if at != 300 {
                assert_eq!(names.get(at), Some(kept));
            }
        }
        assert_eq!(
            names.get(300).map(|name| name.to_string()),
            Some("a longer name than before".into())
        );
        assert_eq!(names.get(700), None);
    }
}
