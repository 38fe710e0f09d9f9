//! A set of row indexes, one bit each.

/// Row indexes that belong to the set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexSet(Vec<u64>);

impl IndexSet {
    /// Adds a row index.
    pub fn insert(&mut self, at: usize) {
        if self.0.len() <= at / 64 {
            self.0.resize(at / 64 + 1, 0);
        }
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    /// Removes a row index.
    pub fn remove(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word &= !(1 << (at % 64));
        }
    }

    /// Whether a row index is included.
    pub fn contains(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word & (1 << (at % 64)) != 0)
    }

    /// The row indexes that are in exactly one of two sets, in order.
    pub fn symmetric_difference<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = usize> + 'a {
        let word = |of: &Self, at: usize| of.0.get(at).copied().unwrap_or_default();
        let words = 0..self.0.len().max(other.0.len());
        words.flat_map(move |at| {
            let differ = word(self, at) ^ word(other, at);
            (0..64).filter(move |bit| differ & (1 << bit) != 0).map(move |bit| at * 64 + bit)
        })
    }

    /// Removes every row index; the memory is kept.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
