//! Where the database is, and how it is opened there.

use redb::{Builder, Database, DatabaseError, StorageError, backends::InMemoryBackend};
use std::{
    fmt::Debug,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// The file's name in the directory.
const FILE: &str = "journal.redb";

/// A database that is being made: it takes its name when it is whole.
const UNFINISHED: &str = "journal.redb.new";

/// Memory for pages of the file. The library's own default is a gigabyte; what is read here
/// is read once.
const CACHE: usize = 8 << 20;

/// The same where the file is memory already: its pages need not be there twice.
const CACHE_IN_MEMORY: usize = 256 << 10;

/// Why the journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be made or looked into.
    #[error("cannot use the directory {}: {why}; create it, or name another with --storage.path", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// Another process holds it.
    #[error(
        "another process has {place} open, and one at a time may: stop that one, or give this one a --storage.path of its own"
    )]
    Held {
        /// The file.
        place: String,
    },
    /// What is in it was not written by this program, or not whole.
    #[error(
        "{place} is damaged: {why}; put a copy of it back, or move it away to begin without history, quarantines and suspensions"
    )]
    Damaged {
        /// The file.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// Another version wrote it.
    #[error(
        "{place} has the form {found} and this version knows {known}: use a version that knows it, or move it away to begin without history, quarantines and suspensions"
    )]
    Schema {
        /// The file.
        place: String,
        /// Its number.
        found: u32,
        /// The number known here.
        known: u32,
    },
    /// The system refused.
    #[error("cannot open {place}: {why}; {}", remedy(.why))]
    Io {
        /// The file.
        place: String,
        /// What it said.
        why: io::Error,
    },
}

/// What an operator can do where the system refused to open, read or write a file.
pub(super) fn remedy(why: &io::Error) -> &'static str {
    use io::ErrorKind as Is;
    let kind = why.kind();
    if kind == Is::PermissionDenied {
        "let the user this process runs as read and write the file and its directory"
    } else if kind == Is::ReadOnlyFilesystem {
        "mount it for writing, or name another directory with --storage.path"
    } else if kind == Is::StorageFull || kind == Is::QuotaExceeded {
        "make room on its disk"
    } else if kind == Is::FileTooLarge {
        "raise the limit on file sizes for this process (LimitFSIZE of its unit, or ulimit -f)"
    } else if kind == Is::NotFound {
        "put it back, or restart to begin a new one"
    } else {
        "look into the system's log for what is wrong with the disk"
    }
}

impl OpenError {
    pub(super) fn of(place: String, why: DatabaseError) -> Self {
        use io::ErrorKind::{InvalidData, UnexpectedEof};
        if let DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch = why {
            return Self::Held { place };
        }
        let said = why.to_string();
        if let DatabaseError::Storage(StorageError::Io(why)) = why
            && !matches!(why.kind(), InvalidData | UnexpectedEof)
        {
            return Self::Io { place, why };
        }
        Self::Damaged { place, why: said }
    }
}

/// Which file of a file system a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    inode: u64,
}

/// Somewhere a database can be opened again and again.
pub trait Place: Debug + Send {
    /// The name in messages.
    fn name(&self) -> String;

    /// Opens it; a new one is made only where `make` says so and none is there.
    ///
    /// # Errors
    /// Says what is in the way.
    fn open(&self, make: bool) -> Result<Database, OpenError>;

    /// Bytes it takes, where that is known.
    fn bytes(&self) -> Option<u64>;

    /// The file that is there under its name now; none for what is no file.
    ///
    /// # Errors
    /// What the system said; [`io::ErrorKind::NotFound`] where no file has the name.
    fn file_id(&self) -> io::Result<Option<FileId>> {
        Ok(None)
    }
}

/// A directory of the file system: `--storage.path`.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// This one.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    fn file(&self) -> PathBuf {
        self.0.join(FILE)
    }

    fn refused(&self, why: impl Into<DatabaseError>) -> OpenError {
        OpenError::of(self.name(), why.into())
    }

    /// Makes an empty database that is whole from the moment it has its name: a process that
    /// ends on the way leaves nothing that looks like a damaged one. Another process that
    /// does the same keeps its own.
    fn make(&self) -> Result<(), OpenError> {
        let of_directory = |why| OpenError::Directory { path: self.0.clone(), why };
        match fs::create_dir(&self.0) {
            Ok(()) => {}
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
            Err(why) => return Err(of_directory(why)),
        }
        let unfinished = self.0.join(UNFINISHED);
        let made = match builder().create(&unfinished) {
            Ok(database) => database,
            Err(DatabaseError::DatabaseAlreadyOpen) => {
                return Err(OpenError::Held { place: self.name() });
            }
            // Left by a process that ended on the way.
            Err(_) if unfinished.metadata().is_ok_and(|it| it.len() > 0) => {
                fs::remove_file(&unfinished).map_err(|why| self.refused(why))?;
                builder().create(&unfinished).map_err(|why| self.refused(why))?
            }
            Err(why) => return Err(self.refused(why)),
        };
        made.close().map_err(|why| self.refused(why))?;
        match fs::hard_link(&unfinished, self.file()) {
            Ok(()) => {}
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
            Err(why) => return Err(self.refused(why)),
        }
        fs::remove_file(&unfinished).map_err(|why| self.refused(why))?;
        synced(&self.0).map_err(of_directory)
    }
}

/// Names in a directory survive a crash only when the directory is written too.
fn synced(directory: &Path) -> io::Result<()> {
    fs::File::open(directory)?.sync_all()
}

impl Place for Directory {
    fn name(&self) -> String {
        self.file().display().to_string()
    }

    fn open(&self, make: bool) -> Result<Database, OpenError> {
        let there = self
            .file()
            .try_exists()
            .map_err(|why| OpenError::Directory { path: self.0.clone(), why })?;
        if make && !there {
            self.make()?;
        }
        builder().open(self.file()).map_err(|why| self.refused(why))
    }

    fn bytes(&self) -> Option<u64> {
        self.file().metadata().ok().map(|it| it.len())
    }

    fn file_id(&self) -> io::Result<Option<FileId>> {
        let found = self.file().metadata()?;
        Ok(Some(FileId { device: found.dev(), inode: found.ino() }))
    }
}

/// The memory of this process, for a demo: gone with it.
#[derive(Clone, Copy, Debug)]
pub struct InMemory;

impl Place for InMemory {
    fn name(&self) -> String {
        "the journal in memory".to_owned()
    }

    fn open(&self, _make: bool) -> Result<Database, OpenError> {
        let mut builder = builder();
        builder.set_cache_size(CACHE_IN_MEMORY);
        let opened = builder.create_with_backend(InMemoryBackend::new());
        opened.map_err(|why| OpenError::of(self.name(), why))
    }

    fn bytes(&self) -> Option<u64> {
        None
    }
}

/// How every database is opened. All of it is verified each time: a file that changed behind
/// redb's back would else be trusted until a page of it makes no sense.
pub(super) fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE).set_check_integrity_on_open(true);
    builder
}
