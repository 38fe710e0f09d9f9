//! A node's own directories, read without asking CouchDB.
//!
//! Owns the walk over data and view directory, what each path means and what was read of each
//! file before. Never writes, deletes, follows a link or goes where another file system's path
//! leads out of the two directories; never decides what is stale: it says what lies there. The
//! `files` source calls [`walk()`] once a sweep, on threads that may block.

mod known;
mod meaning;
mod opened;
mod problem;
mod read;
mod space;
mod walk;

pub use known::Known;
pub use meaning::{Meaning, meaning};
pub use opened::Opened;
pub use problem::Problem;
pub use read::{Numbers, owner};
pub use space::Space;
pub use walk::{Walked, walk};

use couchdb_files::Reported;
use couchdb_names::Signature;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use wall_clock::Moment;

/// The directories of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// `[couchdb] database_dir`.
    pub data: PathBuf,
    /// `[couchdb] view_index_dir`, where it is another.
    pub views: Option<PathBuf>,
}

/// What CouchDB keeps in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tree {
    /// Databases and view indexes.
    Both,
    /// Databases.
    Databases,
    /// View indexes.
    Views,
}

/// A file system that a node's directories lie on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The directory there; of two, that of databases.
    pub directory: Box<str>,
    /// What CouchDB keeps on it.
    pub holds: Tree,
    /// Its room, where the system says.
    pub space: Option<Space>,
}

impl Roots {
    /// The file systems that they lie on.
    #[must_use]
    pub fn volumes(&self) -> Vec<Volume> {
        let volume = |directory: &Path, holds| Volume {
            directory: directory.display().to_string().into(),
            holds,
            space: Space::of(directory).ok(),
        };
        let data = volume(&self.data, Tree::Databases);
        let views = self.views.as_deref().map(|views| volume(views, Tree::Views));
        let device = |volume: &Volume| volume.space.map(|space| space.device);
        match views {
            Some(views) if device(&data).is_none() || device(&data) != device(&views) => {
                vec![data, views]
            }
            Some(_) | None => vec![Volume { holds: Tree::Both, ..data }],
        }
    }
}

/// One thing that lies there.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// A database file.
    Db {
        /// CouchDB's name for it.
        shard: Box<str>,
        /// What its header says.
        numbers: Numbers,
        /// Whether CouchDB says the same.
        reported: Reported,
        /// Whether it is the file that the walk before found there, however it grew.
        same: bool,
        /// Why its header says nothing, where it does not.
        problem: Option<Problem>,
    },
    /// A view index of one shard.
    View {
        /// The shard.
        shard: Box<str>,
        /// What names it.
        signature: Signature,
        /// What its header says.
        numbers: Numbers,
        /// Versions of ICU's collation that its rows were sorted by.
        collators: Arc<[Arc<str>]>,
        /// Why its header says nothing, where it does not.
        problem: Option<Problem>,
    },
    /// What a compaction writes, or left.
    Compaction {
        /// The shard that is compacted, or whose index is.
        shard: Box<str>,
        /// The index, where it is one's.
        signature: Option<Signature>,
        /// Its size.
        bytes: u64,
        /// When it last changed, by the file system.
        changed: Moment,
    },
    /// Something that could not be read.
    Unread {
        /// Where, relative to the directory, as far as it is text.
        path: String,
        /// Why.
        problem: Problem,
    },
}

/// What else lies there, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Files that were looked at.
    pub files: u64,
    /// Deleted by CouchDB and still there.
    pub trash: u64,
    /// The part of that which lies among view indexes, where those have a directory of their
    /// own.
    pub trash_of_views: u64,
    /// Nouveau's indexes, where they lie inside.
    pub nouveau: u64,
    /// Clouseau's indexes, where they lie inside.
    pub clouseau: u64,
    /// View indexes in a directory where CouchDB does not look for them.
    pub misplaced: u64,
    /// Whatever is no file of CouchDB's.
    pub other: u64,
}

impl Sums {
    fn add(&mut self, other: &Self) {
        let Self { files, trash, trash_of_views, nouveau, clouseau, misplaced, other: foreign } =
            other;
        self.files += files;
        self.trash = self.trash.saturating_add(*trash);
        self.trash_of_views = self.trash_of_views.saturating_add(*trash_of_views);
        self.nouveau = self.nouveau.saturating_add(*nouveau);
        self.clouseau = self.clouseau.saturating_add(*clouseau);
        self.misplaced = self.misplaced.saturating_add(*misplaced);
        self.other = self.other.saturating_add(*foreign);
    }
}

#[cfg(test)]
mod tests;
