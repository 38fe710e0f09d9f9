//! A set of places in the tables, one bit each.

/// Places that are in the set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// Puts a place in.
    pub fn set(&mut self, at: usize) {
        if self.0.len() <= at / 64 {
            self.0.resize(at / 64 + 1, 0);
        }
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    /// Takes a place out.
    pub fn unset(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word &= !(1 << (at % 64));
        }
    }

    /// Whether a place is in.
    #[must_use]
    pub fn has(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word & (1 << (at % 64)) != 0)
    }

    /// The places that are in one of two sets and not in the other, in order.
    pub fn differing<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = usize> + 'a {
        let word = |of: &Self, at: usize| of.0.get(at).copied().unwrap_or_default();
        let words = 0..self.0.len().max(other.0.len());
        words.flat_map(move |at| {
            let differ = word(self, at) ^ word(other, at);
            (0..64).filter(move |bit| differ & (1 << bit) != 0).map(move |bit| at * 64 + bit)
        })
    }

    /// Takes all out; the room stays.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
