//! The stored form of facts: one cache line for each target.

use crate::model::{
    facts::{Confidence, FactSet, FactSource, Facts, Flags, Measurement, OptionalU64},
    target::TargetKind,
};
use wall_clock::Moment;

const COMPACT_RUNNING: u8 = 1;
/// For a view: its indexer is running. For a database: its header equals CouchDB's answer.
const UPDATER_RUNNING_OR_EXACT: u8 = 1 << 1;
const NEEDS_UPGRADE: u8 = 1 << 2;
const EVIDENCE: u8 = 1 << 3;
const ESTIMATED: u8 = 1 << 4;
const LOW_CONFIDENCE: u8 = 1 << 5;
const BY_HTTP: u8 = 1 << 6;
const BY_FILES: u8 = 1 << 7;

/// The facts of one target of a known kind, in 64 bytes: fields that only databases have and
/// fields that only views have share their space.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedFacts {
    file_bytes: OptionalU64,
    active_bytes: OptionalU64,
    external_bytes: OptionalU64,
    update_seq: OptionalU64,
    /// For a view its pending sequences, for a database its sequence at the last compaction.
    compacted_or_pending_seq: OptionalU64,
    docs: OptionalU64,
    deleted_docs: OptionalU64,
    measured_at: Moment,
    bits: u8,
    by_files: FactSet,
}

impl PackedFacts {
    /// Nothing is known.
    pub(super) const UNKNOWN: Self = Self {
        file_bytes: OptionalU64::UNKNOWN,
        active_bytes: OptionalU64::UNKNOWN,
        external_bytes: OptionalU64::UNKNOWN,
        update_seq: OptionalU64::UNKNOWN,
        compacted_or_pending_seq: OptionalU64::UNKNOWN,
        docs: OptionalU64::UNKNOWN,
        deleted_docs: OptionalU64::UNKNOWN,
        measured_at: Moment::from_unix(0),
        bits: 0,
        by_files: FactSet::from_bits(0),
    };

    /// Number of numeric fields.
    pub(super) const NUMBERS: usize = 7;

    /// The bits and the numbers, without the moment.
    pub(super) const fn parts(&self) -> ([u8; 2], [OptionalU64; Self::NUMBERS]) {
        let Self {
            file_bytes: file,
            active_bytes: active,
            external_bytes: external,
            update_seq,
            compacted_or_pending_seq: third,
            docs,
            deleted_docs,
            ..
        } = *self;
        let bits = [self.bits, self.by_files.bits()];
        (bits, [file, active, external, update_seq, third, docs, deleted_docs])
    }

    /// The inverse of [`Self::parts`].
    pub(super) const fn from_parts(
        [bits, by_files]: [u8; 2],
        numbers: [OptionalU64; Self::NUMBERS],
        measured_at: Moment,
    ) -> Self {
        let [
            file_bytes,
            active_bytes,
            external_bytes,
            update_seq,
            compacted_or_pending_seq,
            docs,
            deleted_docs,
        ] = numbers;
        let by_files = FactSet::from_bits(by_files);
        Self {
            file_bytes,
            active_bytes,
            external_bytes,
            update_seq,
            compacted_or_pending_seq,
            docs,
            deleted_docs,
            measured_at,
            bits,
            by_files,
        }
    }

    /// Packs the facts of a target of this kind; facts that the kind cannot have are dropped.
    pub(super) fn pack(kind: TargetKind, facts: &Facts) -> Self {
        let second = match kind {
            TargetKind::Db => facts.flags.exact,
            TargetKind::View | TargetKind::Cleanup | TargetKind::Search => {
                facts.flags.updater_running
            }
        };
        let flags = [
            (facts.flags.compact_running, COMPACT_RUNNING),
            (second, UPDATER_RUNNING_OR_EXACT),
            (facts.flags.needs_upgrade, NEEDS_UPGRADE),
            (facts.flags.evidence, EVIDENCE),
            (facts.flags.estimated, ESTIMATED),
            (facts.confidence == Confidence::Low, LOW_CONFIDENCE),
            (facts.measured_at.is_some_and(|it| it.source == FactSource::Http), BY_HTTP),
            (facts.measured_at.is_some_and(|it| it.source == FactSource::Files), BY_FILES),
        ];
        Self {
            file_bytes: facts.file_bytes,
            active_bytes: facts.active_bytes,
            external_bytes: facts.external_bytes,
            update_seq: facts.update_seq,
            compacted_or_pending_seq: match kind {
                TargetKind::Db => facts.compacted_seq,
                TargetKind::View | TargetKind::Cleanup | TargetKind::Search => {
                    facts.updates_pending
                }
            },
            docs: facts.docs,
            deleted_docs: facts.deleted_docs,
            measured_at: facts.measured_at.map_or_else(Moment::default, |measured| measured.at),
            bits: flags.iter().filter(|(set, _)| *set).fold(0, |bits, (_, bit)| bits | bit),
            by_files: facts.from_files,
        }
    }

    /// Unpacks the facts.
    pub(super) fn unpack(&self, kind: TargetKind) -> Facts {
        let has = |bit| self.bits & bit != 0;
        let by = match (has(BY_HTTP), has(BY_FILES)) {
            (true, _) => Some(FactSource::Http),
            (false, true) => Some(FactSource::Files),
            (false, false) => None,
        };
        let (compacted_seq, updates_pending) = match kind {
            TargetKind::Db => (self.compacted_or_pending_seq, OptionalU64::UNKNOWN),
            TargetKind::View | TargetKind::Cleanup | TargetKind::Search => {
                (OptionalU64::UNKNOWN, self.compacted_or_pending_seq)
            }
        };
        Facts {
            file_bytes: self.file_bytes,
            active_bytes: self.active_bytes,
            external_bytes: self.external_bytes,
            update_seq: self.update_seq,
            compacted_seq,
            docs: self.docs,
            deleted_docs: self.deleted_docs,
            updates_pending,
            measured_at: by.map(|by| Measurement { at: self.measured_at, source: by }),
            from_files: self.by_files,
            flags: Flags {
                compact_running: has(COMPACT_RUNNING),
                updater_running: kind != TargetKind::Db && has(UPDATER_RUNNING_OR_EXACT),
                exact: kind == TargetKind::Db && has(UPDATER_RUNNING_OR_EXACT),
                needs_upgrade: has(NEEDS_UPGRADE),
                evidence: has(EVIDENCE),
                estimated: has(ESTIMATED),
            },
            confidence: if has(LOW_CONFIDENCE) { Confidence::Low } else { Confidence::High },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn known() -> impl Strategy<Value = OptionalU64> {
        proptest::option::of(any::<u64>()).prop_map(OptionalU64::from)
    }

    #[test]
    fn a_target_takes_one_cache_line() {
        assert_eq!(size_of::<PackedFacts>(), 64);
        for kind in TargetKind::ALL {
            assert_eq!(PackedFacts::UNKNOWN.unpack(kind), Facts::default());
        }
    }

    proptest! {
        #[test]
        fn facts_that_a_kind_can_have_are_restored(
            numbers in [known(), known(), known(), known(), known(), known(), known()],
            flags in any::<[bool; 5]>(),
            low in any::<bool>(),
            measured in proptest::option::of((any::<u32>(), any::<bool>())),
            by_files in any::<u8>(),
        ) {
            let [file, active, external, update_seq, third, docs, deleted_docs] = numbers;
            for kind in TargetKind::ALL {
                let db = kind == TargetKind::Db;
                let facts = Facts {
                    file_bytes: file,
                    active_bytes: active,
                    external_bytes: external,
                    update_seq,
                    compacted_seq: if db { third } else { OptionalU64::UNKNOWN },
                    docs,
                    deleted_docs,
                    updates_pending: if db { OptionalU64::UNKNOWN } else { third },
                    measured_at: measured.map(|(at, http)| Measurement {
                        at: Moment::from_unix(u64::from(at)),
                        source: if http { FactSource::Http } else { FactSource::Files },
                    }),
                    from_files: FactSet::from_bits(by_files),
                    flags: Flags {
                        compact_running: flags[0],
                        updater_running: !db && flags[1],
                        exact: db && flags[1],
                        needs_upgrade: flags[2],
                        evidence: flags[3],
                        estimated: flags[4],
                    },
                    confidence: if low { Confidence::Low } else { Confidence::High },
                };
                prop_assert_eq!(PackedFacts::pack(kind, &facts).unpack(kind), facts);
            }
        }
    }
}
