//! Files that were replaced by another file, according to two readings.

use super::{PackedFacts, Snapshot, TargetIx};
use crate::model::{facts::Facts, target::TargetKind};
use std::sync::Arc;

/// Maximum number of replaced files that are kept for readers of snapshots.
const MAX_KEPT: usize = 1_024;

/// A shard's file that was replaced between two readings, as by a compaction.
#[derive(Clone, Copy, Debug)]
pub struct ReplacedFile {
    /// The number of the replacement, counted from one.
    pub number: u64,
    /// The target.
    pub target: TargetIx,
    before: PackedFacts,
    after: PackedFacts,
}

impl ReplacedFile {
    /// The facts in the last reading before the replacement.
    pub fn before(&self) -> Facts {
        self.before.unpack(TargetKind::Db)
    }

    /// The facts in the first reading after the replacement.
    pub fn after(&self) -> Facts {
        self.after.unpack(TargetKind::Db)
    }
}

impl Snapshot {
    /// The files replaced after the one with this number, earliest first.
    pub fn replaced_after(&self, number: u64) -> impl Iterator<Item = &ReplacedFile> {
        self.replaced.iter().filter(move |file| file.number > number)
    }

    pub(super) fn add_replaced(&mut self, target: TargetIx, before: &Facts, after: &Facts) {
        let kept = Arc::make_mut(&mut self.replaced);
        let number = kept.back().map_or(0, |last| last.number) + 1;
        if kept.len() >= MAX_KEPT {
            kept.pop_front();
        }
        let pack = |facts| PackedFacts::pack(TargetKind::Db, facts);
        let (before, after) = (pack(before), pack(after));
        kept.push_back(ReplacedFile { number, target, before, after });
    }
}
