//! A growing table with cheap copies that share unchanged chunks.

use std::sync::Arc;

/// Rows in a chunk: one change in a shared table copies this many rows.
const ROWS_PER_CHUNK: usize = 64;

/// A table in chunks of 64 rows, copied on write.
///
/// Publishing a copy costs one pointer for each chunk; changing a row afterwards copies that row's
/// chunk once.
#[derive(Clone, Debug)]
pub(crate) struct ChunkedTable<T> {
    chunks: Vec<Arc<Vec<T>>>,
    len: usize,
}

impl<T> Default for ChunkedTable<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<T: Clone> ChunkedTable<T> {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.chunks.get(at / ROWS_PER_CHUNK)?.get(at % ROWS_PER_CHUNK)
    }

    /// The row at `at` for changing it; copies its chunk if that is shared.
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        Arc::make_mut(self.chunks.get_mut(at / ROWS_PER_CHUNK)?).get_mut(at % ROWS_PER_CHUNK)
    }

    /// Appends a row and returns its index.
    pub(crate) fn push(&mut self, row: T) -> usize {
        let at = self.len;
        match self.chunks.last_mut() {
            Some(last) if last.len() < ROWS_PER_CHUNK => Arc::make_mut(last).push(row),
            _ => {
                let mut chunk = Vec::with_capacity(ROWS_PER_CHUNK);
                chunk.push(row);
                self.chunks.push(Arc::new(chunk));
            }
        }
        self.len += 1;
        at
    }

    /// Appends default rows up to this length.
    pub(crate) fn grow_to(&mut self, len: usize)
    where
        T: Default,
    {
        while self.len < len {
            self.push(T::default());
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_is_unaffected_by_later_changes() {
        let mut table = ChunkedTable::default();
        for row in 0..1_000_usize {
            assert_eq!(table.push(row), row);
        }
        let copy = table.clone();
        *table.get_mut(700).unwrap() = 0;
        table.push(1_000);
        assert_eq!((copy.len(), copy.get(700), copy.get(1_000)), (1_000, Some(&700), None));
        assert_eq!(
            (table.len(), table.get(700), table.get(1_000)),
            (1_001, Some(&0), Some(&1_000))
        );
        assert_eq!(copy.iter().copied().sum::<usize>(), 499_500);
        let shared =
            table.chunks.iter().zip(&copy.chunks).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
        assert_eq!(shared, 14, "only the changed chunk and the last were copied");
    }
}
