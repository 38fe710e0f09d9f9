//! Indexes that identify targets and databases in the tables.

/// A target's row in the tables, with the row's generation, so that state of a removed target never
/// applies to a later target in the same row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetIx {
    row: u32,
    generation: u32,
}

impl TargetIx {
    /// The row as an index; unique among the targets of one snapshot.
    pub const fn as_usize(self) -> usize {
        self.row as usize
    }

    /// The first target of a row; `None` for an index beyond four billion.
    #[cfg(test)]
    pub(crate) fn from_usize(at: usize) -> Option<Self> {
        u32::try_from(at).ok().map(|place| Self { row: place, generation: 0 })
    }

    /// The next target in the same row.
    #[cfg(test)]
    pub(crate) const fn next_generation(self) -> Self {
        Self { generation: self.generation + 1, ..self }
    }

    /// Number of earlier targets in the row.
    pub const fn generation(self) -> u32 {
        self.generation
    }

    pub(super) const fn of(row: u32, generation: u32) -> Self {
        Self { row, generation }
    }

    pub(super) const fn row(self) -> u32 {
        self.row
    }
}

/// A database instance's index in the tables.
///
/// It is reused once no target has the database any more, so it is only valid together with its
/// tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DbIx(pub(super) u32);

impl DbIx {
    /// The index as a number.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }

    /// From a number; `None` beyond four billion.
    pub fn from_usize(at: usize) -> Option<Self> {
        u32::try_from(at).ok().map(Self)
    }

    pub(super) const fn of(place: u32) -> Self {
        Self(place)
    }
}
