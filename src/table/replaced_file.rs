//! Files of which a reading shows that another one is in their place.

use super::{Snapshot, TargetIx};
use crate::model::facts::Facts;
use std::sync::Arc;

/// The most of them that are kept for readers of snapshots.
const MAX_KEPT: usize = 1_024;

/// A file that was replaced between two readings, as a compaction does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplacedFile {
    /// Counts from one.
    pub number: u64,
    /// The target.
    pub target: TargetIx,
    /// What the reading before found.
    pub before: Facts,
    /// What the reading found that shows it.
    pub after: Facts,
}

impl Snapshot {
    /// The files replaced after the one with this number, the earliest first.
    pub fn replaced_after(&self, number: u64) -> impl Iterator<Item = &ReplacedFile> {
        self.replaced.iter().filter(move |file| file.number > number)
    }

    pub(super) fn add_replaced(&mut self, target: TargetIx, before: Facts, after: Facts) {
        let kept = Arc::make_mut(&mut self.replaced);
        let number = kept.back().map_or(0, |last| last.number) + 1;
        if kept.len() >= MAX_KEPT {
            kept.pop_front();
        }
        kept.push_back(ReplacedFile { number, target, before, after });
    }
}
