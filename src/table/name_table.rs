//! The names of a cluster's databases, each stored once.

use std::sync::Arc;

/// Names in a chunk.
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

impl std::fmt::Display for DbName<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}{}", self.db, self.suffix)
    }
}

/// The concatenated texts of a chunk: five bytes for each name in addition to its letters.
#[derive(Clone, Debug, Default)]
struct NameChunk {
    text: String,
    /// The end of each name.
    ends: Vec<u32>,
    /// The number of trailing bytes that belong to the suffix.
    suffixes: Vec<u8>,
}

impl NameChunk {
    fn with_capacity(letters: usize) -> Self {
        Self {
            text: String::with_capacity(letters),
            ends: Vec::with_capacity(NAMES_PER_CHUNK),
            suffixes: Vec::with_capacity(NAMES_PER_CHUNK),
        }
    }

    fn get(&self, at: usize) -> Option<DbName<'_>> {
        let &end = self.ends.get(at)?;
        let &suffix = self.suffixes.get(at)?;
        let begin = match at.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        let whole = self.text.get(usize::try_from(begin).ok()?..usize::try_from(end).ok()?)?;
        let split = whole.len().checked_sub(usize::from(suffix))?;
        Some(DbName { db: whole.get(..split)?, suffix: whole.get(split..)? })
    }

    fn push(&mut self, name: DbName<'_>) {
        // A suffix this long is no suffix: the name then keeps it.
        self.suffixes.push(u8::try_from(name.suffix.len()).unwrap_or(0));
        self.text.push_str(name.db);
        self.text.push_str(name.suffix);
        // 256 names of at most CouchDB's 238 bytes stay far below four gigabytes.
        self.ends.push(u32::try_from(self.text.len()).unwrap_or(u32::MAX));
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

    pub(crate) fn push(&mut self, name: DbName<'_>) -> usize {
        if self.len.is_multiple_of(NAMES_PER_CHUNK) {
            if let Some(full) = self.chunks.last_mut() {
                let full = Arc::make_mut(full);
                full.text.shrink_to_fit();
            }
            self.chunks.push(Arc::new(NameChunk::with_capacity(0)));
        }
        if let Some(last) = self.chunks.last_mut() {
            Arc::make_mut(last).push(name);
        }
        self.len += 1;
        self.len - 1
    }

    /// Replaces the name at index `at` and rewrites its chunk, so that a cluster which creates and
    /// drops databases all day leaves no unused text.
    pub(crate) fn replace(&mut self, at: usize, name: DbName<'_>) {
        let Some(chunk) = self.chunks.get_mut(at / NAMES_PER_CHUNK) else { return };
        let mut fresh = NameChunk::with_capacity(chunk.text.len());
        for place in 0..chunk.ends.len() {
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
