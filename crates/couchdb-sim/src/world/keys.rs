//! The identities of files, indexes and jobs in the world.

use crate::{catalog::Db, config::Design};

/// One file of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum File {
    /// A shard copy.
    Copy {
        db: Db,
        /// The position of the range.
        range: u32,
        /// The position of the node.
        node: usize,
    },
    /// A node-local database.
    Local {
        /// The position of the node.
        node: usize,
        /// The position in `LOCAL`.
        which: usize,
    },
    /// A file outside the shard map, by its position.
    Extra(usize),
}

impl File {
    /// Whether both are copies of one range of one database.
    pub(super) fn is_copy_of(self, other: Self) -> bool {
        match (self, other) {
            (Self::Copy { db, range, .. }, Self::Copy { db: its_db, range: its_range, .. }) => {
                db == its_db && range == its_range
            }
            _ => false,
        }
    }
}

const QUERY_SERVER_LANGUAGES: [&str; 3] = ["javascript", "query", "erlang"];

/// An index of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Index {
    /// The view index of the design document at this position.
    View(usize),
    /// A search index: the position of its design document, and its own position there.
    Search(usize, usize),
}

impl Index {
    /// The position of its design document.
    pub(super) const fn design(self) -> usize {
        match self {
            Self::View(design) | Self::Search(design, _) => design,
        }
    }

    /// Whether CouchDB can build the index.
    pub(super) fn is_buildable(self, design: &Design) -> bool {
        let is_defined = matches!(self, Self::Search(..)) || !design.views.is_empty();
        is_defined && QUERY_SERVER_LANGUAGES.contains(&design.language.as_str())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum JobKind {
    /// Compacts the shard.
    Shard,
    /// Compacts the view index of the design document at this position.
    View(usize),
    /// Builds an index.
    Build(Index),
}

/// The identity of a job: at most one job of each kind runs on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobKey {
    pub(super) file: File,
    pub(super) kind: JobKind,
}
