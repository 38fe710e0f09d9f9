//! Why the bytes on a disk changed between two readings.
//!
//! Owns the causes, and the rule that attributes the change of one file to them. The sum of what a
//! rule returns is exactly the difference of the two sizes. Never measures.

use crate::model::{facts::Facts, target::TargetKind};
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// Why bytes on a disk changed.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Cause {
    /// Live bytes of databases.
    Documents,
    /// Superseded bytes of databases, which a compaction would free.
    Waste,
    /// Live bytes of view indexes.
    IndexRows,
    /// Superseded bytes of view indexes.
    IndexWaste,
    /// Files of a database that was created.
    NewDatabase,
    /// Files of a database that was deleted.
    DatabaseDeleted,
    /// Files of a view index that was built.
    NewIndex,
    /// Files of a view index that were cleaned up.
    IndexDeleted,
    /// Shards that were moved to the node.
    ShardMovedIn,
    /// Shards that were moved off the node.
    ShardMovedOut,
    /// Shards that were split: the new ones add what the old ones free.
    Split,
    /// What compactions freed.
    Compaction,
    /// Unfinished files of running compactions.
    CompactionFiles,
    /// Files that compactions left behind.
    Leftovers,
    /// Deleted files that still exist, among them those that can be recovered.
    DeletedFiles,
    /// Search indexes.
    SearchIndexes,
    /// Other files in CouchDB's directories.
    OtherFiles,
    /// Files about which too little is known to separate live bytes from waste.
    Unknown,
    /// Files that were measured for the first time, or are no longer measured: the disk did not change.
    Measured,
    /// Files that changed while recliner did not run, or between its last two saves; it is unknown when.
    NotWatched,
    /// A change of the volume that no file explains.
    Unaccounted,
}

impl Cause {
    /// Whether bytes of this cause can be added to a disk. Other causes only free.
    pub const fn can_add(self) -> bool {
        !matches!(self, Self::DatabaseDeleted | Self::IndexDeleted | Self::ShardMovedOut)
    }

    /// Whether bytes of this cause can be removed from a disk. Other causes only add.
    pub const fn can_free(self) -> bool {
        !matches!(self, Self::NewDatabase | Self::NewIndex | Self::ShardMovedIn)
    }
}

/// Attributes the change of a file between two readings; the sum is exactly the difference of the sizes. Empty if a
/// size is unknown.
pub fn changes_of_file(kind: TargetKind, before: &Facts, after: &Facts) -> Vec<(Cause, i64)> {
    let (Some(old), Some(new)) = (before.file_bytes.get(), after.file_bytes.get()) else {
        return Vec::new();
    };
    let total = difference(old, new);
    let is_index = kind == TargetKind::View;
    let (live_cause, waste_cause) = match is_index {
        true => (Cause::IndexRows, Cause::IndexWaste),
        false => (Cause::Documents, Cause::Waste),
    };
    let sequences = before.update_seq.get().zip(after.update_seq.get());
    if sequences.is_some_and(|(old, new)| new < old) {
        // Another file replaced it.
        return match is_index {
            true => vec![
                (Cause::IndexDeleted, difference(old, 0)),
                (Cause::NewIndex, difference(0, new)),
            ],
            false => vec![(Cause::Unknown, total)],
        };
    }
    let compacted = before.compacted_seq.get().zip(after.compacted_seq.get());
    let active = before.active_bytes.get().zip(after.active_bytes.get());
    let live = active.map(|(old, new)| difference(old, new));
    let is_replaced = total < 0 || compacted.is_some_and(|(old, new)| new > old);
    let mut changes = match (is_replaced, live) {
        // Files grow at their end: only a compaction shrinks waste, even if sizes read at two moments
        // suggest otherwise.
        (false, Some(live)) => {
            let live = live.min(total);
            vec![(live_cause, live), (waste_cause, total.saturating_sub(live))]
        }
        (false, None) => vec![(Cause::Unknown, total)],
        (true, _) => {
            let is_same = sequences.is_some_and(|(old, new)| old == new);
            let live = if is_same { 0 } else { written(before, after).unwrap_or_default() };
            vec![(live_cause, live), (Cause::Compaction, total.saturating_sub(live))]
        }
    };
    changes.retain(|(_, bytes)| *bytes != 0);
    changes
}

/// Live bytes that clients wrote while a compaction ran. The compaction changes the live bytes too,
/// so these are derived from the uncompressed bytes, which it does not change.
fn written(before: &Facts, after: &Facts) -> Option<i64> {
    let (old, new) = before.external_bytes.get().zip(after.external_bytes.get())?;
    let active = after.active_bytes.get()?;
    let share = i128::from(difference(old, new)) * i128::from(active);
    i64::try_from(share.checked_div(i128::from(new))?).ok()
}

/// The signed difference of two sizes.
pub fn difference(before: u64, after: u64) -> i64 {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    signed(after).saturating_sub(signed(before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::OptionalU64;
    use proptest::prelude::*;

    fn facts(file: u64, active: Option<u64>, seq: u64, compacted: Option<u64>) -> Facts {
        Facts {
            file_bytes: OptionalU64::new(file),
            active_bytes: active.into(),
            external_bytes: active.map(|bytes| bytes * 2).into(),
            update_seq: OptionalU64::new(seq),
            compacted_seq: compacted.into(),
            ..Facts::default()
        }
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn each_change_of_a_file_is_split_into_its_causes() {
        let of = |kind, before, after| changes_of_file(kind, &before, &after);
        let mib = |count: i64| count << 20;
        let known = |file, active, seq, compacted| {
            facts(file * MIB, Some(active * MIB), seq, Some(compacted))
        };
        use TargetKind::{Db, View};
        assert_eq!(
            of(Db, known(10, 4, 5, 0), known(16, 6, 9, 0)),
            [(Cause::Documents, mib(2)), (Cause::Waste, mib(4))]
        );
        assert_eq!(of(Db, known(10, 4, 5, 0), known(4, 4, 5, 5)), [(Cause::Compaction, mib(-6))]);
        // With writes during the compaction: uncompressed bytes grew from 8 to 12.
        assert_eq!(
            of(Db, known(10, 4, 5, 0), known(8, 6, 9, 5)),
            [(Cause::Documents, mib(2)), (Cause::Compaction, mib(-4))]
        );
        assert_eq!(
            of(
                View,
                facts(9 * MIB, Some(4 * MIB), 5, None),
                facts(12 * MIB, Some(5 * MIB), 6, None)
            ),
            [(Cause::IndexRows, mib(1)), (Cause::IndexWaste, mib(2))]
        );
        assert_eq!(
            of(
                View,
                facts(9 * MIB, Some(4 * MIB), 5, None),
                facts(5 * MIB, Some(4 * MIB), 5, None)
            ),
            [(Cause::Compaction, mib(-4))]
        );
        assert_eq!(
            of(View, facts(9 * MIB, Some(4 * MIB), 5, None), facts(2 * MIB, Some(MIB), 1, None)),
            [(Cause::IndexDeleted, mib(-9)), (Cause::NewIndex, mib(2))],
            "built anew"
        );
        assert_eq!(
            of(Db, facts(9 * MIB, None, 5, None), facts(12 * MIB, Some(4 * MIB), 6, None)),
            [(Cause::Unknown, mib(3))],
            "unknown is not zero"
        );
        assert!(of(Db, Facts::default(), known(1, 1, 1, 0)).is_empty());
    }

    fn any_facts() -> impl Strategy<Value = Facts> {
        (any::<u32>(), any::<Option<u32>>(), 0_u64..9, proptest::option::of(0_u64..9)).prop_map(
            |(file, active, seq, compacted)| {
                facts(file.into(), active.map(u64::from), seq, compacted)
            },
        )
    }

    proptest! {
        #[test]
        fn causes_add_up_to_the_exact_change_of_the_file(before in any_facts(), after in any_facts(), is_view: bool) {
            let kind = if is_view { TargetKind::View } else { TargetKind::Db };
            let sum: i64 = changes_of_file(kind, &before, &after).iter().map(|(_, it)| it).sum();
            let sizes = before.file_bytes.get().zip(after.file_bytes.get()).unwrap();
            prop_assert_eq!(sum, difference(sizes.0, sizes.1));
        }
    }
}
