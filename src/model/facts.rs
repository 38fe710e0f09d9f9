//! What was measured of a target.
//!
//! Owns the fixed-size form in which a million targets' measurements are kept, and the rule by
//! which those of two sources become one. Never measures. Sources fill it, `score`, `estimate`
//! and reports read it.

mod merge;

pub use merge::{Verdict, merged, of_index};

use wall_clock::Moment;

/// A number that may be unknown, in eight bytes.
///
/// `Option<u64>` takes sixteen, which a million rows notice. The largest number stands
/// for unknown: no file, count or sequence reaches it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Known(u64);

impl Known {
    /// Not known.
    pub const UNKNOWN: Self = Self(u64::MAX);

    /// A known number; numbers beyond what a file can hold are clamped.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        if value == u64::MAX { Self(u64::MAX - 1) } else { Self(value) }
    }

    /// The number, if known.
    #[must_use]
    pub const fn get(self) -> Option<u64> {
        if self.0 == u64::MAX { None } else { Some(self.0) }
    }
}

impl Default for Known {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

impl From<Option<u64>> for Known {
    fn from(value: Option<u64>) -> Self {
        value.map_or(Self::UNKNOWN, Self::new)
    }
}

impl std::fmt::Debug for Known {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.get() {
            Some(value) => value.fmt(out),
            None => out.write_str("unknown"),
        }
    }
}

/// Who measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// CouchDB's node interface.
    #[default]
    Http,
    /// The data directory's own headers.
    Files,
}

impl Source {
    /// Every source, in the order metrics show them.
    pub const ALL: [Self; 2] = [Self::Http, Self::Files];

    /// The word in JSON and metric labels.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Files => "files",
        }
    }
}

/// One measurement, for what is said of each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact {
    /// [`Facts::file`].
    File,
    /// [`Facts::active`].
    Active,
    /// [`Facts::external`].
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
}

impl Fact {
    /// Every measurement.
    pub const ALL: [Self; 8] = [
        Self::File,
        Self::Active,
        Self::External,
        Self::UpdateSeq,
        Self::CompactedSeq,
        Self::Docs,
        Self::DeletedDocs,
        Self::UpdatesPending,
    ];
}

/// Some of the measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FactSet(u8);

impl FactSet {
    /// The set with these bits, as [`FactSet::bits`] gave them.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// One bit each.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether it has this one.
    #[must_use]
    pub const fn has(self, fact: Fact) -> bool {
        self.0 & (1 << fact as u8) != 0
    }

    /// Puts one in, or takes it out.
    pub const fn set(&mut self, fact: Fact, has: bool) {
        if has {
            self.0 |= 1 << fact as u8;
        } else {
            self.0 &= !(1 << fact as u8);
        }
    }
}

/// How far a target's active size may be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// Active is known to mislead here.
    Low,
    /// Nothing speaks against it.
    #[default]
    High,
}

impl Confidence {
    /// The word in JSON.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::High => "high",
        }
    }
}

/// What is switched on or off about a target, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// CouchDB says a compaction of it runs.
    pub compact_running: bool,
    /// CouchDB says its indexer runs; views only.
    pub updater_running: bool,
    /// Its file format is older than the newest this server writes
    /// (`smoosh_server:needs_upgrade/1`), or, for a view, one copy of it names two or
    /// more collator versions.
    pub needs_upgrade: bool,
    /// A file's header said it, and CouchDB would say the same; dbs only.
    pub exact: bool,
    /// Stale index bytes were seen, or a signature changed since the last cleanup;
    /// cleanups only.
    pub evidence: bool,
    /// Sizes are one copy's, times the number of copies, not a sum of what was read.
    pub estimated: bool,
}

/// The measurements of one target, per file: of a view over HTTP, those of one copy.
///
/// Bytes and counts; an absent one is unknown, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Size of the file on disk, in bytes, without temporary compaction files.
    pub file: Known,
    /// Bytes CouchDB counts as live.
    pub active: Known,
    /// Bytes of the documents or rows uncompressed, as CouchDB estimates them.
    pub external: Known,
    /// The last sequence written; of a view, indexed.
    pub update_seq: Known,
    /// The sequence at the last compaction's swap; zero when never compacted; dbs only.
    pub compacted_seq: Known,
    /// Documents that are not deleted; dbs only.
    pub docs: Known,
    /// Deleted documents; dbs only.
    pub deleted_docs: Known,
    /// Sequences the index has not seen; views only.
    pub updates_pending: Known,
    /// When it was measured.
    pub measured_at: Option<Measured>,
    /// What of it a file's header said; CouchDB said the rest.
    pub by_files: FactSet,
    /// Booleans.
    pub flags: Flags,
    /// Whether active may be trusted.
    pub confidence: Confidence,
}

/// When and by whom something was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// When the last of it came.
    pub at: Moment,
    /// Who said that.
    pub by: Source,
}

impl Facts {
    /// One measurement.
    #[must_use]
    pub const fn get(&self, fact: Fact) -> Known {
        match fact {
            Fact::File => self.file,
            Fact::Active => self.active,
            Fact::External => self.external,
            Fact::UpdateSeq => self.update_seq,
            Fact::CompactedSeq => self.compacted_seq,
            Fact::Docs => self.docs,
            Fact::DeletedDocs => self.deleted_docs,
            Fact::UpdatesPending => self.updates_pending,
        }
    }

    const fn get_mut(&mut self, fact: Fact) -> &mut Known {
        match fact {
            Fact::File => &mut self.file,
            Fact::Active => &mut self.active,
            Fact::External => &mut self.external,
            Fact::UpdateSeq => &mut self.update_seq,
            Fact::CompactedSeq => &mut self.compacted_seq,
            Fact::Docs => &mut self.docs,
            Fact::DeletedDocs => &mut self.deleted_docs,
            Fact::UpdatesPending => &mut self.updates_pending,
        }
    }

    /// Who said this, where it is known.
    #[must_use]
    pub fn source_of(&self, fact: Fact) -> Option<Source> {
        self.get(fact).get()?;
        self.measured_at?;
        Some(if self.by_files.has(fact) { Source::Files } else { Source::Http })
    }

    /// Whether CouchDB said any of it.
    #[must_use]
    pub fn said_by_couchdb(&self) -> bool {
        self.measured_at.is_some_and(|measured| measured.by == Source::Http)
            || Fact::ALL.into_iter().any(|fact| self.source_of(fact) == Some(Source::Http))
    }

    /// These facts, all of them said by files' headers.
    #[must_use]
    pub fn all_by_files(mut self) -> Self {
        for fact in Fact::ALL {
            self.by_files.set(fact, self.get(fact).get().is_some());
        }
        self
    }

    /// Changes since the last compaction, when both sequences are known.
    ///
    /// Negative for a file that was restored from before its last compaction; smoosh takes
    /// such a one in no channel, not even where no changes are asked for.
    #[must_use]
    pub fn changes(&self) -> Option<i64> {
        let signed = |known: Known| known.get().map(|seq| i64::try_from(seq).unwrap_or(i64::MAX));
        Some(signed(self.update_seq)?.saturating_sub(signed(self.compacted_seq)?))
    }

    /// File over active bytes; `None` when either is unknown or active is zero.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let active = self.active.get().filter(|active| *active > 0)?;
        Some(self.file.get()? as f64 / active as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_never_zero() {
        assert_eq!(Known::default().get(), None);
        assert_eq!(Known::new(0).get(), Some(0));
        assert_eq!(Known::new(u64::MAX).get(), Some(u64::MAX - 1));
        assert_eq!(Facts::default().changes(), None);
        let empty = Facts { file: Known::new(9), active: Known::new(0), ..Facts::default() };
        assert_eq!(empty.ratio(), None);
    }

    #[test]
    fn facts_of_a_million_targets_stay_small() {
        assert_eq!(size_of::<Facts>(), 80);
    }
}
