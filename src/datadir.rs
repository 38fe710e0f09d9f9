//! A node's own directories, read without CouchDB.
//!
//! Owns the walk over the data and view directories, the meaning of each path, and the cached
//! reading of each file. Never writes, deletes or follows a link, and never leaves the two
//! directories; reports what exists and does not judge what is stale. The `files` source calls
//! [`walk()`] once for each sweep, on threads that may block.

mod entries;
mod file_meaning;
mod open_file;
mod read;
mod read_problem;
mod space;
mod walk;
mod walk_cache;
mod xray;

pub use file_meaning::{FileMeaning, compaction_files, file_meaning};
pub use open_file::OpenFile;
pub use read::{HeaderValues, directory_owner, some_file_uuids};
pub use read_problem::{ReadProblem, RootError};
pub use space::FileSystemSpace;
pub use walk::{WalkResult, walk};
pub use walk_cache::WalkCache;
pub use xray::{ReadPace, database_files, target_file, xray_file};

use couchdb_files::ReportMatch;
use couchdb_names::Signature;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use wall_clock::Moment;

/// The directories of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDirectories {
    /// `[couchdb] database_dir`.
    pub data: PathBuf,
    /// `[couchdb] view_index_dir`, if it is a different directory.
    pub views: Option<PathBuf>,
}

/// The content of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryContent {
    /// Databases and view indexes.
    Both,
    /// Databases.
    Databases,
    /// View indexes.
    Views,
}

/// A file system that holds a node's directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryVolume {
    /// The directory on it; the database directory if both are on it.
    pub directory: Box<str>,
    /// The content of that directory.
    pub content: DirectoryContent,
    /// Its free space, if the system reports it.
    pub space: Option<FileSystemSpace>,
}

impl NodeDirectories {
    /// The file systems that hold these directories.
    #[must_use]
    pub fn volumes(&self) -> Vec<DirectoryVolume> {
        let volume = |directory: &Path, holds| DirectoryVolume {
            directory: directory.display().to_string().into(),
            content: holds,
            space: FileSystemSpace::of(directory).ok(),
        };
        let data = volume(&self.data, DirectoryContent::Databases);
        let views = self.views.as_deref().map(|views| volume(views, DirectoryContent::Views));
        let device = |volume: &DirectoryVolume| volume.space.map(|space| space.device);
        match views {
            Some(views) if device(&data).is_none() || device(&data) != device(&views) => {
                vec![data, views]
            }
            Some(_) | None => vec![DirectoryVolume { content: DirectoryContent::Both, ..data }],
        }
    }
}

/// One item that the walk found.
#[derive(Clone, Debug, PartialEq)]
pub enum WalkItem {
    /// A database file.
    Db {
        /// CouchDB's name for the database.
        shard: Box<str>,
        /// The values of its header.
        values: HeaderValues,
        /// Whether CouchDB would report the values of this header.
        reported: ReportMatch,
        /// Whether the previous walk found the same file here, even if it has grown since.
        is_same_file: bool,
        /// Why its header could not be read, if reading failed.
        problem: Option<ReadProblem>,
    },
    /// A view index of one shard.
    View {
        /// CouchDB's name for the indexed shard.
        shard: Box<str>,
        /// The signature in the index's file name.
        signature: Signature,
        /// The values of its header.
        values: HeaderValues,
        /// Versions of the ICU collation that its rows were sorted with.
        collators: Arc<[Arc<str>]>,
        /// Why its header could not be read, if reading failed.
        problem: Option<ReadProblem>,
    },
    /// A file written by a running compaction or left over from one.
    Compaction {
        /// The shard that is compacted, or whose index is compacted.
        shard: Box<str>,
        /// The index, if it is an index's compaction.
        signature: Option<Signature>,
        /// Size of the file.
        bytes: u64,
        /// When the file last changed, according to the file system.
        modified_at: Moment,
    },
    /// Something that could not be read.
    Unread {
        /// Its path relative to the directory, as far as it is valid text.
        path: String,
        /// Why it could not be read.
        problem: ReadProblem,
    },
}

/// Everything else in the directories, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherFileSums {
    /// Number of files found.
    pub files: u64,
    /// Files that CouchDB has deleted but that still exist.
    pub trash: u64,
    /// The part of `trash` that has been in `.delete` for less than an hour: CouchDB may be about
    /// to delete it.
    pub recent_trash: u64,
    /// The part of `trash` that `enable_database_recovery` keeps: databases with their indexes.
    pub recoverable: u64,
    /// The part of `trash` in the view directory, if that is separate.
    pub trash_of_views: u64,
    /// Nouveau's indexes, if they are inside these directories.
    pub nouveau: u64,
    /// Clouseau's indexes, if they are inside these directories.
    pub clouseau: u64,
    /// View indexes in a directory where CouchDB does not look for them.
    pub misplaced: u64,
    /// Any file that does not belong to CouchDB.
    pub other: u64,
}

impl OtherFileSums {
    fn add(&mut self, other: &Self) {
        let Self {
            files,
            trash,
            recent_trash,
            recoverable,
            trash_of_views,
            nouveau,
            clouseau,
            misplaced,
            other: foreign,
        } = other;
        self.files += files;
        self.trash = self.trash.saturating_add(*trash);
        self.recent_trash = self.recent_trash.saturating_add(*recent_trash);
        self.recoverable = self.recoverable.saturating_add(*recoverable);
        self.trash_of_views = self.trash_of_views.saturating_add(*trash_of_views);
        self.nouveau = self.nouveau.saturating_add(*nouveau);
        self.clouseau = self.clouseau.saturating_add(*clouseau);
        self.misplaced = self.misplaced.saturating_add(*misplaced);
        self.other = self.other.saturating_add(*foreign);
    }
}

#[cfg(test)]
mod tests;
