//! The stored form of facts: one cache line for each target.

use crate::{
    model::{
        facts::{
            Confidence, FactFlags, FactKind, FactSet, FactSource, Facts, Measurement, OptionalU64,
        },
        target::TargetKind,
    },
    text::Label,
};
use std::num::NonZeroU8;
use wall_clock::Moment;

const COMPACT_RUNNING: u8 = 1;
/// For a view: its indexer is running. For a database: its values are exact.
const UPDATER_RUNNING_OR_EXACT: u8 = 1 << 1;
const NEEDS_UPGRADE: u8 = 1 << 2;
const EVIDENCE: u8 = 1 << 3;
const ESTIMATED: u8 = 1 << 4;
const LOW_CONFIDENCE: u8 = 1 << 5;
const BY_HTTP: u8 = 1 << 6;
const BY_FILES: u8 = 1 << 7;

/// The facts of one target of a known kind, in 64 bytes: each number in its
/// [slot](FactKind::slot).
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedFacts {
    numbers: [OptionalU64; FactKind::SLOTS],
    measured_at: Moment,
    file_id: Option<NonZeroU8>,
    bits: u8,
    from_files: FactSet,
}

impl PackedFacts {
    /// Facts that are all unknown.
    pub(super) const UNKNOWN: Self = Self {
        numbers: [OptionalU64::UNKNOWN; FactKind::SLOTS],
        measured_at: Moment::from_unix(0),
        file_id: None,
        bits: 0,
        from_files: FactSet::from_bits(0),
    };

    /// The bits and the numbers, without the time and the file's number.
    pub(super) const fn parts(&self) -> ((u8, u16), [OptionalU64; FactKind::SLOTS]) {
        ((self.bits, self.from_files.bits()), self.numbers)
    }

    /// The inverse of [`Self::parts`].
    pub(super) const fn from_parts(
        (bits, from_files): (u8, u16),
        numbers: [OptionalU64; FactKind::SLOTS],
        measured_at: Moment,
    ) -> Self {
        let from_files = FactSet::from_bits(from_files);
        Self { numbers, measured_at, file_id: None, bits, from_files }
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
        let mut numbers = [OptionalU64::UNKNOWN; FactKind::SLOTS];
        for fact in FactKind::each() {
            if let Some(number) = fact.slot(kind).and_then(|slot| numbers.get_mut(slot)) {
                *number = facts.get(fact);
            }
        }
        Self {
            numbers,
            measured_at: facts.measured_at.map_or_else(Moment::default, |measured| measured.at),
            file_id: facts.file_id.filter(|_| kind == TargetKind::Db),
            bits: flags.iter().filter(|(set, _)| *set).fold(0, |bits, (_, bit)| bits | bit),
            from_files: facts.from_files,
        }
    }

    pub(super) fn unpack(&self, kind: TargetKind) -> Facts {
        let has = |bit| self.bits & bit != 0;
        let by = match (has(BY_HTTP), has(BY_FILES)) {
            (true, _) => Some(FactSource::Http),
            (false, true) => Some(FactSource::Files),
            (false, false) => None,
        };
        let mut facts = Facts {
            measured_at: by.map(|by| Measurement { at: self.measured_at, source: by }),
            from_files: self.from_files,
            file_id: self.file_id,
            flags: FactFlags {
                compact_running: has(COMPACT_RUNNING),
                updater_running: kind != TargetKind::Db && has(UPDATER_RUNNING_OR_EXACT),
                exact: kind == TargetKind::Db && has(UPDATER_RUNNING_OR_EXACT),
                needs_upgrade: has(NEEDS_UPGRADE),
                evidence: has(EVIDENCE),
                estimated: has(ESTIMATED),
            },
            confidence: if has(LOW_CONFIDENCE) { Confidence::Low } else { Confidence::High },
            ..Facts::default()
        };
        for fact in FactKind::each() {
            if let Some(number) = fact.slot(kind).and_then(|slot| self.numbers.get(slot)) {
                *facts.get_mut(fact) = *number;
            }
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn maybe_known() -> impl Strategy<Value = OptionalU64> {
        proptest::option::of(any::<u64>()).prop_map(OptionalU64::from)
    }

    #[test]
    fn a_target_takes_one_cache_line() {
        assert_eq!(size_of::<PackedFacts>(), 64);
        for kind in TargetKind::each() {
            assert_eq!(PackedFacts::UNKNOWN.unpack(kind), Facts::default());
        }
    }

    proptest! {
        #[test]
        fn unpack_restores_every_fact_that_the_kind_can_have(
            numbers in proptest::array::uniform9(maybe_known()),
            flags in any::<[bool; 5]>(),
            low in any::<bool>(),
            measured in proptest::option::of((any::<u32>(), any::<bool>())),
            from_files in any::<u16>(),
        ) {
            for kind in TargetKind::each() {
                let db = kind == TargetKind::Db;
                let mut facts = Facts {
                    measured_at: measured.map(|(at, http)| Measurement {
                        at: Moment::from_unix(u64::from(at)),
                        source: if http { FactSource::Http } else { FactSource::Files },
                    }),
                    from_files: FactSet::from_bits(from_files),
                    flags: FactFlags {
                        compact_running: flags[0],
                        updater_running: !db && flags[1],
                        exact: db && flags[1],
                        needs_upgrade: flags[2],
                        evidence: flags[3],
                        estimated: flags[4],
                    },
                    confidence: if low { Confidence::Low } else { Confidence::High },
                    ..Facts::default()
                };
                for (fact, number) in FactKind::each().zip(numbers) {
                    if fact.slot(kind).is_some() {
                        *facts.get_mut(fact) = number;
                    }
                }
                prop_assert_eq!(PackedFacts::pack(kind, &facts).unpack(kind), facts);
            }
        }
    }

    #[test]
    fn no_two_facts_of_a_target_kind_share_a_slot() {
        for kind in TargetKind::each() {
            let mut slots: Vec<_> = FactKind::ALL.iter().filter_map(|it| it.slot(kind)).collect();
            slots.sort_unstable();
            let distinct = slots.windows(2).all(|pair| pair[0] != pair[1]);
            assert!(distinct && slots.iter().all(|slot| *slot < FactKind::SLOTS), "{kind:?}");
        }
    }
}
