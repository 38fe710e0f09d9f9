//! The measurements of a target.
//!
//! Owns the list of facts, with the slot in which each is stored, and the rule that merges those of
//! two sources. Never measures. Sources fill it; `score`, `estimate` and reports read it.

mod inside;
mod merge;
mod overhead;

pub use inside::Inside;
pub(crate) use inside::MAX_HEADER_BYTES;
pub use merge::{ReadingComparison, compare_index, merge};
pub use overhead::Overhead;

use crate::{model::target::TargetKind, text::Label};
use std::num::NonZeroU8;
use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;
use xxhash_rust::xxh3::xxh3_64;

/// A number that may be unknown, in eight bytes.
///
/// `Option<u64>` takes sixteen bytes, which matters for a million rows. The largest number
/// represents unknown: no file, count or sequence reaches it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OptionalU64(u64);

impl OptionalU64 {
    /// The unknown number.
    pub const UNKNOWN: Self = Self(u64::MAX);

    /// A known number; the one value reserved for "unknown" becomes the next smaller one.
    pub const fn new(value: u64) -> Self {
        if value == u64::MAX { Self(u64::MAX - 1) } else { Self(value) }
    }

    /// The number, if known.
    pub const fn get(self) -> Option<u64> {
        if self.0 == u64::MAX { None } else { Some(self.0) }
    }
}

impl Default for OptionalU64 {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

impl From<Option<u64>> for OptionalU64 {
    fn from(value: Option<u64>) -> Self {
        value.map_or(Self::UNKNOWN, Self::new)
    }
}

impl std::fmt::Debug for OptionalU64 {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.get() {
            Some(value) => value.fmt(out),
            None => out.write_str("unknown"),
        }
    }
}

/// The origin of a measurement.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FactSource {
    /// CouchDB's node interface.
    #[default]
    Http,
    /// The headers of files in the data directory.
    Files,
}

/// One measurement.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FactKind {
    /// [`Facts::file_bytes`].
    #[strum(serialize = "file_bytes")]
    File,
    /// [`Facts::active_bytes`].
    #[strum(serialize = "active_bytes")]
    Active,
    /// [`Facts::external_bytes`].
    #[strum(serialize = "external_bytes")]
    External,
    /// [`Facts::update_seq`].
    UpdateSeq,
    /// [`Facts::compacted_seq`].
    CompactedSeq,
    /// [`Facts::docs`].
    Docs,
    /// [`Facts::deleted_docs`].
    DeletedDocs,
    /// [`Facts::updates_pending`].
    UpdatesPending,
    /// [`Facts::purge_seq`].
    PurgeSeq,
}

impl FactKind {
    /// Number of slots that the numbers of one target take.
    pub const SLOTS: usize = 7;

    /// The slot that stores this fact for a target of this kind; `None` if the kind cannot have it.
    /// Two facts share a slot where no kind has both. Stored data depends on the slots, so a new
    /// slot goes to the end.
    pub const fn slot(self, kind: TargetKind) -> Option<usize> {
        match (self, kind) {
            (Self::File, _) => Some(0),
            (Self::Active, _) => Some(1),
            (Self::External, _) => Some(2),
            (Self::UpdateSeq, _) => Some(3),
            (Self::CompactedSeq, TargetKind::Db) => Some(4),
            (Self::CompactedSeq, _) => None,
            (Self::UpdatesPending, TargetKind::Db) => None,
            (Self::UpdatesPending, _) => Some(4),
            (Self::PurgeSeq, TargetKind::View) => Some(5),
            (Self::PurgeSeq, _) | (Self::Docs, TargetKind::View) => None,
            (Self::Docs, _) => Some(5),
            (Self::DeletedDocs, _) => Some(6),
        }
    }
}

/// A set of measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FactSet(u16);

impl FactSet {
    /// The set with these bits, as returned by [`FactSet::bits`].
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// One bit for each measurement.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether it contains this measurement.
    pub const fn contains(self, fact: FactKind) -> bool {
        self.0 & (1 << fact as u8) != 0
    }

    /// Adds or removes a measurement.
    pub const fn set(&mut self, fact: FactKind, has: bool) {
        if has {
            self.0 |= 1 << fact as u8;
        } else {
            self.0 &= !(1 << fact as u8);
        }
    }
}

/// The confidence in the predicted size of a target.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// It follows from active bytes, which are known to be misleading for this file.
    Low,
    /// Compactions of the same database or target corrected or confirmed it. Facts themselves are
    /// never learned.
    Learned,
    /// It comes from an X-ray of the file. Facts themselves never do.
    Xray,
    /// It follows from active bytes, and there is no reason for doubt.
    #[default]
    High,
}

/// Boolean facts about a target, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FactFlags {
    /// CouchDB reports a running compaction of it.
    pub compact_running: bool,
    /// CouchDB reports that its indexer is running; views only.
    pub updater_running: bool,
    /// Its file format is older than the newest one this server writes
    /// (`smoosh_server:needs_upgrade/1`), or, for a view, one copy of it names two or more
    /// collator versions.
    pub needs_upgrade: bool,
    /// The values come from a file's header and equal those that CouchDB would report; databases
    /// only.
    pub exact: bool,
    /// Stale index bytes were found, or a signature changed since the last cleanup; cleanups only.
    pub evidence: bool,
    /// Sizes are those of one copy multiplied by the number of copies, not a measured sum.
    pub estimated: bool,
}

/// The number of a file, from the uuid in its header.
pub fn file_id(uuid: &str) -> Option<NonZeroU8> {
    // A target's row has only one byte left. Zero would mean unknown.
    let [byte, ..] = xxh3_64(uuid.as_bytes()).to_be_bytes();
    NonZeroU8::new(byte.max(1))
}

/// The measurements of one target, per file: for a view read over HTTP, those of one copy. An
/// absent number is unknown, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Size of the file on disk, in bytes, without temporary compaction files.
    pub file_bytes: OptionalU64,
    /// Bytes that CouchDB counts as live.
    pub active_bytes: OptionalU64,
    /// Uncompressed bytes of the documents or rows, as CouchDB estimates them.
    pub external_bytes: OptionalU64,
    /// The last sequence written; for a view, the last one indexed.
    pub update_seq: OptionalU64,
    /// The sequence when the last compaction was swapped in; zero if never compacted; databases
    /// only.
    pub compacted_seq: OptionalU64,
    /// Documents that are not deleted; databases only.
    pub docs: OptionalU64,
    /// Deleted documents; databases only.
    pub deleted_docs: OptionalU64,
    /// Sequences that the index has not processed; views only.
    pub updates_pending: OptionalU64,
    /// The last purge that the index has processed; views only. A shard's purge sequences are in
    /// [`Self::overhead`].
    pub purge_seq: OptionalU64,
    /// A number that identifies the file across compactions; another file of the same name rarely has the same
    /// one. Databases only.
    pub file_id: Option<NonZeroU8>,
    /// What the file stores besides its documents; databases only. The tables keep it only where it
    /// is large.
    pub overhead: Overhead,
    /// The last X-ray of the file. The tables keep it separately.
    pub inside: Option<Inside>,
    /// When it was measured.
    pub measured_at: Option<Measurement>,
    /// The measurements that come from a file's header; all others come from CouchDB.
    pub from_files: FactSet,
    /// Boolean facts.
    pub flags: FactFlags,
    /// The confidence in active bytes.
    pub confidence: Confidence,
}

/// The time and the source of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// The time of its latest part.
    pub at: Moment,
    /// The source of that part.
    pub source: FactSource,
}

#[cfg(test)]
impl Facts {
    /// Two sizes; everything else is unknown.
    pub(crate) fn sized(file: u64, active: u64) -> Self {
        Self {
            file_bytes: OptionalU64::new(file),
            active_bytes: OptionalU64::new(active),
            ..Self::default()
        }
    }

    /// Two sizes, read over HTTP at this time.
    pub(crate) fn read(file: u64, active: u64, at: Moment) -> Self {
        let measured_at = Some(Measurement { at, source: FactSource::Http });
        Self { measured_at, ..Self::sized(file, active) }
    }
}

impl Facts {
    /// One measurement.
    pub const fn get(&self, fact: FactKind) -> OptionalU64 {
        match fact {
            FactKind::File => self.file_bytes,
            FactKind::Active => self.active_bytes,
            FactKind::External => self.external_bytes,
            FactKind::UpdateSeq => self.update_seq,
            FactKind::CompactedSeq => self.compacted_seq,
            FactKind::Docs => self.docs,
            FactKind::DeletedDocs => self.deleted_docs,
            FactKind::UpdatesPending => self.updates_pending,
            FactKind::PurgeSeq => self.purge_seq,
        }
    }

    /// Mutable access to one measurement.
    pub const fn get_mut(&mut self, fact: FactKind) -> &mut OptionalU64 {
        match fact {
            FactKind::File => &mut self.file_bytes,
            FactKind::Active => &mut self.active_bytes,
            FactKind::External => &mut self.external_bytes,
            FactKind::UpdateSeq => &mut self.update_seq,
            FactKind::CompactedSeq => &mut self.compacted_seq,
            FactKind::Docs => &mut self.docs,
            FactKind::DeletedDocs => &mut self.deleted_docs,
            FactKind::UpdatesPending => &mut self.updates_pending,
            FactKind::PurgeSeq => &mut self.purge_seq,
        }
    }

    /// The source of a measurement, where it is known.
    pub fn source_of(&self, fact: FactKind) -> Option<FactSource> {
        self.get(fact).get()?;
        self.measured_at?;
        Some(if self.from_files.contains(fact) { FactSource::Files } else { FactSource::Http })
    }

    /// Whether any measurement comes from CouchDB.
    pub fn includes_couchdb(&self) -> bool {
        self.measured_at.is_some_and(|measured| measured.source == FactSource::Http)
            || FactKind::each().any(|fact| self.source_of(fact) == Some(FactSource::Http))
    }

    /// These facts, with all of them marked as read from files' headers.
    #[must_use]
    pub fn marked_from_files(mut self) -> Self {
        for fact in FactKind::each() {
            self.from_files.set(fact, self.get(fact).get().is_some());
        }
        self
    }

    /// Changes since the last compaction, when both sequences are known.
    ///
    /// Negative for a file that was restored from before its last compaction; smoosh takes such a
    /// file in no channel, not even in one whose `min_changes` is zero.
    pub fn changes_since_compaction(&self) -> Option<i64> {
        let signed =
            |known: OptionalU64| known.get().map(|seq| i64::try_from(seq).unwrap_or(i64::MAX));
        Some(signed(self.update_seq)?.saturating_sub(signed(self.compacted_seq)?))
    }

    /// File bytes over active bytes; `None` if either is unknown or active is zero.
    pub fn ratio(&self) -> Option<f64> {
        let active = self.active_bytes.get().filter(|active| *active > 0)?;
        Some(self.file_bytes.get()? as f64 / active as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_never_zero() {
        assert_eq!(OptionalU64::default().get(), None);
        assert_eq!(OptionalU64::new(0).get(), Some(0));
        assert_eq!(OptionalU64::new(u64::MAX).get(), Some(u64::MAX - 1));
        assert_eq!(Facts::default().changes_since_compaction(), None);
        let empty = Facts::sized(9, 0);
        assert_eq!(empty.ratio(), None);
    }
}
