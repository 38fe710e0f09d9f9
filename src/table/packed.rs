//! The stored form of facts: one cache line for each target.

use crate::model::{
    facts::{Confidence, FactSet, Facts, Flags, Known, Measured, Source},
    target::Kind,
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
pub(super) struct Packed {
    file: Known,
    active: Known,
    external: Known,
    update_seq: Known,
    /// For a view its pending sequences, for a database its sequence at the last compaction.
    third: Known,
    docs: Known,
    deleted_docs: Known,
    at: Moment,
    bits: u8,
    by_files: FactSet,
}

impl Packed {
    /// Nothing is known.
    pub(super) const UNKNOWN: Self = Self {
        file: Known::UNKNOWN,
        active: Known::UNKNOWN,
        external: Known::UNKNOWN,
        update_seq: Known::UNKNOWN,
        third: Known::UNKNOWN,
        docs: Known::UNKNOWN,
        deleted_docs: Known::UNKNOWN,
        at: Moment::from_unix(0),
        bits: 0,
        by_files: FactSet::from_bits(0),
    };

    /// Number of numeric fields.
    pub(super) const NUMBERS: usize = 7;

    /// The bits and the numbers, without the moment.
    pub(super) const fn parts(&self) -> ([u8; 2], [Known; Self::NUMBERS]) {
        let Self { file, active, external, update_seq, third, docs, deleted_docs, .. } = *self;
        let bits = [self.bits, self.by_files.bits()];
        (bits, [file, active, external, update_seq, third, docs, deleted_docs])
    }

    /// The inverse of [`Self::parts`].
    pub(super) const fn from_parts(
        [bits, by_files]: [u8; 2],
        numbers: [Known; Self::NUMBERS],
        at: Moment,
    ) -> Self {
        let [file, active, external, update_seq, third, docs, deleted_docs] = numbers;
        let by_files = FactSet::from_bits(by_files);
        Self { file, active, external, update_seq, third, docs, deleted_docs, at, bits, by_files }
    }

    /// Packs the facts of a target of this kind; facts that the kind cannot have are dropped.
    pub(super) fn of(kind: Kind, facts: &Facts) -> Self {
        let second = match kind {
            Kind::Db => facts.flags.exact,
            Kind::View | Kind::Cleanup | Kind::Search => facts.flags.updater_running,
        };
        let flags = [
            (facts.flags.compact_running, COMPACT_RUNNING),
            (second, UPDATER_RUNNING_OR_EXACT),
            (facts.flags.needs_upgrade, NEEDS_UPGRADE),
            (facts.flags.evidence, EVIDENCE),
            (facts.flags.estimated, ESTIMATED),
            (facts.confidence == Confidence::Low, LOW_CONFIDENCE),
            (facts.measured_at.is_some_and(|it| it.by == Source::Http), BY_HTTP),
            (facts.measured_at.is_some_and(|it| it.by == Source::Files), BY_FILES),
        ];
        Self {
            file: facts.file,
            active: facts.active,
            external: facts.external,
            update_seq: facts.update_seq,
            third: match kind {
                Kind::Db => facts.compacted_seq,
                Kind::View | Kind::Cleanup | Kind::Search => facts.updates_pending,
            },
            docs: facts.docs,
            deleted_docs: facts.deleted_docs,
            at: facts.measured_at.map_or_else(Moment::default, |measured| measured.at),
            bits: flags.iter().filter(|(set, _)| *set).fold(0, |bits, (_, bit)| bits | bit),
            by_files: facts.by_files,
        }
    }

    /// Unpacks the facts.
    pub(super) fn facts(&self, kind: Kind) -> Facts {
        let has = |bit| self.bits & bit != 0;
        let by = match (has(BY_HTTP), has(BY_FILES)) {
            (true, _) => Some(Source::Http),
            (false, true) => Some(Source::Files),
            (false, false) => None,
        };
        let (compacted_seq, updates_pending) = match kind {
            Kind::Db => (self.third, Known::UNKNOWN),
            Kind::View | Kind::Cleanup | Kind::Search => (Known::UNKNOWN, self.third),
        };
        Facts {
            file: self.file,
            active: self.active,
            external: self.external,
            update_seq: self.update_seq,
            compacted_seq,
            docs: self.docs,
            deleted_docs: self.deleted_docs,
            updates_pending,
            measured_at: by.map(|by| Measured { at: self.at, by }),
            by_files: self.by_files,
            flags: Flags {
                compact_running: has(COMPACT_RUNNING),
                updater_running: kind != Kind::Db && has(UPDATER_RUNNING_OR_EXACT),
                exact: kind == Kind::Db && has(UPDATER_RUNNING_OR_EXACT),
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

    fn known() -> impl Strategy<Value = Known> {
        proptest::option::of(any::<u64>()).prop_map(Known::from)
    }

    #[test]
    fn a_target_takes_one_cache_line() {
        assert_eq!(size_of::<Packed>(), 64);
        for kind in Kind::ALL {
            assert_eq!(Packed::UNKNOWN.facts(kind), Facts::default());
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
            for kind in Kind::ALL {
                let db = kind == Kind::Db;
                let facts = Facts {
                    file,
                    active,
                    external,
                    update_seq,
                    compacted_seq: if db { third } else { Known::UNKNOWN },
                    docs,
                    deleted_docs,
                    updates_pending: if db { Known::UNKNOWN } else { third },
                    measured_at: measured.map(|(at, http)| Measured {
                        at: Moment::from_unix(u64::from(at)),
                        by: if http { Source::Http } else { Source::Files },
                    }),
                    by_files: FactSet::from_bits(by_files),
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
                prop_assert_eq!(Packed::of(kind, &facts).facts(kind), facts);
            }
        }
    }
}
