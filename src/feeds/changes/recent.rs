//! The most recent rows of a feed. A repeated row is neither news nor a rewind.

use hashbrown::{DefaultHashBuilder, HashSet};
use std::{collections::VecDeque, hash::BuildHasher as _};

/// Number of remembered rows; more than CouchDB sends at once.
const MOST: usize = 4_096;

/// Hashes of the sequences of the most recent rows.
#[derive(Debug, Default)]
pub(super) struct Recent {
    order: VecDeque<u64>,
    all: HashSet<u64>,
    hasher: DefaultHashBuilder,
}

impl Recent {
    /// Whether a row with this sequence was received.
    pub(super) fn has(&self, seq: &str) -> bool {
        self.all.contains(&self.hasher.hash_one(seq))
    }

    /// Adds a received row's sequence.
    pub(super) fn add(&mut self, seq: &str) {
        let hash = self.hasher.hash_one(seq);
        if self.all.insert(hash) {
            self.order.push_back(hash);
        }
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_rows_are_recognised_and_old_ones_forgotten() {
        let mut recent = Recent::default();
        for at in 0..=MOST {
            recent.add(&at.to_string());
            recent.add(&at.to_string());
        }
        assert!(!recent.has("0") && recent.has("1") && recent.has(&MOST.to_string()));
        assert_eq!((recent.order.len(), recent.all.len()), (MOST, MOST));
    }
}
