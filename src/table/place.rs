//! Places in the tables, by which targets and databases are named in short.

/// A target's place in the tables, and which of the targets that had this place it is: what is
/// known of one that went is never taken for that of another that has its place by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ix {
    place: u32,
    generation: u32,
}

impl Ix {
    /// As an index; of targets that are there at the same time no two have the same.
    #[must_use]
    pub const fn as_usize(self) -> usize {
        self.place as usize
    }

    /// The first target that ever had a place; `None` beyond four billion.
    #[cfg(test)]
    pub(crate) fn from_usize(at: usize) -> Option<Self> {
        u32::try_from(at).ok().map(|place| Self { place, generation: 0 })
    }

    /// The target that has its place after it.
    #[cfg(test)]
    pub(crate) const fn next(self) -> Self {
        Self { generation: self.generation + 1, ..self }
    }

    /// How many targets had its place before.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }

    pub(super) const fn of(place: u32, generation: u32) -> Self {
        Self { place, generation }
    }

    pub(super) const fn place(self) -> u32 {
        self.place
    }
}

/// A database instance's place in the tables.
///
/// It is given to another once no target has the database any more, so it says something
/// only beside the tables it is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DbIx(pub(super) u32);

impl DbIx {
    /// As an index.
    #[must_use]
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }

    /// From an index; `None` beyond four billion.
    #[must_use]
    pub fn from_usize(at: usize) -> Option<Self> {
        u32::try_from(at).ok().map(Self)
    }

    pub(super) const fn of(place: u32) -> Self {
        Self(place)
    }
}
