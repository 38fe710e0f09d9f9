//! Storage locations of the database and how it is opened.

use redb::{
    Builder, Database, DatabaseError, StorageBackend, StorageError,
    backends::{FileBackend, InMemoryBackend},
};
use std::{
    env,
    fmt::Debug,
    fs, io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Name of the database file.
const FILE_NAME: &str = "journal.redb";

/// Name of a database while it is created; renamed when complete.
const TEMP_FILE_NAME: &str = "journal.redb.new";

/// Name that a copy of the database has for an instant.
const COPY_FILE_NAME: &str = "journal.redb.copy";

/// Page cache in bytes. The library's default is 1 GiB, but entries are rarely read twice here.
const CACHE_BYTES: usize = 8 << 20;

/// Page cache of an in-memory database, whose pages need not be cached again.
const IN_MEMORY_CACHE_BYTES: usize = 256 << 10;

/// Why the journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum JournalOpenError {
    /// The directory cannot be created or accessed.
    #[error("cannot use the directory {}: {why}; create it, or choose another one with --storage.path", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        why: io::Error,
    },
    /// Another process has the file open.
    #[error(
        "another process has {storage} open: stop that process, or give this one a separate --storage.path"
    )]
    InUse {
        /// The file.
        storage: String,
    },
    /// The content was not written by this program, or is incomplete.
    #[error(
        "{storage} is damaged: {why}; restore a backup, or move the file away to start without history, quarantines and suspensions"
    )]
    Damaged {
        /// The file.
        storage: String,
        /// What is wrong.
        why: String,
    },
    /// An incompatible version wrote the file.
    #[error(
        "{storage} has format {found}, written by {writer}, but this version, {}, reads formats up to {known}; its content is unchanged: run the version that wrote it, or restore a backup from before the upgrade",
        env!("CARGO_PKG_VERSION")
    )]
    Schema {
        /// The file.
        storage: String,
        /// Format number of the file.
        found: u32,
        /// The version that wrote it, as part of a sentence.
        writer: String,
        /// Format number of this version.
        known: u32,
    },
    /// The system refused access.
    #[error("cannot open {storage}: {why}; {}", remedy(.why))]
    Io {
        /// The file.
        storage: String,
        /// The error of the system.
        why: io::Error,
    },
}

/// Advice for an operator when the system refused to open, read or write a file.
pub(super) fn remedy(why: &io::Error) -> &'static str {
    use io::ErrorKind as Is;
    let kind = why.kind();
    if kind == Is::PermissionDenied {
        "give the user of this process read and write access to the file and its directory"
    } else if kind == Is::ReadOnlyFilesystem {
        "remount the file system as writable, or choose another directory with --storage.path"
    } else if kind == Is::StorageFull || kind == Is::QuotaExceeded {
        "free space on its disk"
    } else if kind == Is::FileTooLarge {
        "raise the file size limit of this process (LimitFSIZE of its unit, or ulimit -f)"
    } else if kind == Is::NotFound {
        "put the file back, or restart to create a new one"
    } else {
        "check the system log for disk errors"
    }
}

impl JournalOpenError {
    /// Whether the journal may open once its disk has space.
    pub(super) fn is_full(&self) -> bool {
        let (Self::Io { why, .. } | Self::Directory { why, .. }) = self else { return false };
        matches!(why.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    pub(super) fn from_database_error(storage: String, why: DatabaseError) -> Self {
        use io::ErrorKind::{InvalidData, UnexpectedEof};
        if let DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch = why {
            return Self::InUse { storage };
        }
        let text = why.to_string();
        if let DatabaseError::Storage(StorageError::Io(why)) = why
            && !matches!(why.kind(), InvalidData | UnexpectedEof)
        {
            return Self::Io { storage, why };
        }
        Self::Damaged { storage, why: text }
    }
}

/// Identifies a file independently of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    inode: u64,
}

/// A location where the database can be opened repeatedly.
pub trait Storage: Debug + Send {
    /// Name used in messages.
    fn name(&self) -> String;

    /// Opens the database. Creates a new one only if `create` is set and none exists.
    ///
    /// # Errors
    /// Why the database cannot be opened.
    fn open(&self, create: bool) -> Result<Database, JournalOpenError>;

    /// Size in bytes, if known.
    fn bytes(&self) -> Option<u64>;

    /// Where a copy of the database is written; nothing else uses this name. Called once per
    /// journal.
    fn copy_path(&self) -> PathBuf {
        // One process may have several journals, as tests do.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        env::temp_dir().join(format!("recliner-{}-{number}.redb.copy", process::id()))
    }

    /// The file that has the database's name now; `None` for storage that is not a file.
    ///
    /// # Errors
    /// The error of the system; [`io::ErrorKind::NotFound`] if no file has the name.
    fn file_id(&self) -> io::Result<Option<FileId>> {
        Ok(None)
    }
}

/// A directory of the file system, as in `--storage.path`.
#[derive(Clone, Debug)]
pub struct DirectoryStorage(PathBuf);

impl DirectoryStorage {
    /// Uses the directory at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    fn file_path(&self) -> PathBuf {
        self.0.join(FILE_NAME)
    }

    fn open_error(&self, why: impl Into<DatabaseError>) -> JournalOpenError {
        JournalOpenError::from_database_error(self.name(), why.into())
    }

    /// Creates an empty database that is complete from the moment it has its final name, so an
    /// interrupted process leaves nothing that looks damaged. If another process creates one at the
    /// same time, the other one's file is kept.
    fn create(&self) -> Result<(), JournalOpenError> {
        let of_directory = |why| JournalOpenError::Directory { path: self.0.clone(), why };
        match fs::create_dir(&self.0) {
            Ok(()) => {}
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
            Err(why) => return Err(of_directory(why)),
        }
        let unfinished = self.0.join(TEMP_FILE_NAME);
        let in_use = || JournalOpenError::InUse { storage: self.name() };
        let file = match create_private(&unfinished) {
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
                if is_open_journal(&unfinished) {
                    return Err(in_use());
                }
                // It was left by a process that was interrupted, or was put there by somebody else.
                fs::remove_file(&unfinished).and_then(|()| create_private(&unfinished))
            }
            created => created,
        };
        let file = file.map_err(|why| self.open_error(why))?;
        let own = file.metadata().map_err(|why| self.open_error(why))?;
        let backend = FileBackend::new(file).map_err(|why| self.open_error(why))?;
        let created = database_builder().create_with_backend(backend);
        let database = created.map_err(|why| self.open_error(why))?;
        database.close().map_err(|why| self.open_error(why))?;
        if !has_name(&own, &unfinished) {
            return Err(in_use());
        }
        match fs::hard_link(&unfinished, self.file_path()) {
            Ok(()) => {}
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
            Err(why) => return Err(self.open_error(why)),
        }
        fs::remove_file(&unfinished).map_err(|why| self.open_error(why))?;
        sync_directory(&self.0).map_err(of_directory)
    }
}

/// Creates a file for its owner only. Anything that already has the name, such as a link, is left
/// as it is.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], or another error of the system.
pub(crate) fn create_private(path: &Path) -> io::Result<fs::File> {
    fs::File::options().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Whether a file has this name.
pub(crate) fn has_name(file: &fs::Metadata, path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|it| (it.dev(), it.ino()) == (file.dev(), file.ino()))
}

/// New names survive a crash only after the directory itself was synced.
fn sync_directory(directory: &Path) -> io::Result<()> {
    fs::File::open(directory)?.sync_all()
}

impl Storage for DirectoryStorage {
    fn name(&self) -> String {
        self.file_path().display().to_string()
    }

    fn open(&self, create: bool) -> Result<Database, JournalOpenError> {
        let exists = self
            .file_path()
            .try_exists()
            .map_err(|why| JournalOpenError::Directory { path: self.0.clone(), why })?;
        if create && !exists {
            self.create()?;
        }
        database_builder().open(self.file_path()).map_err(|why| self.open_error(why))
    }

    fn bytes(&self) -> Option<u64> {
        self.file_path().metadata().ok().map(|it| it.len())
    }

    fn copy_path(&self) -> PathBuf {
        self.0.join(COPY_FILE_NAME)
    }

    fn file_id(&self) -> io::Result<Option<FileId>> {
        let metadata = self.file_path().metadata()?;
        Ok(Some(FileId { device: metadata.dev(), inode: metadata.ino() }))
    }
}

/// In-memory storage for a demo; lost when the process ends. Clones are the same storage, which a journal can open
/// after another has closed it.
#[derive(Clone, Debug, Default)]
pub struct InMemory(Arc<InMemoryBackend>);

impl StorageBackend for InMemory {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}

impl Storage for InMemory {
    fn name(&self) -> String {
        "the in-memory journal".to_owned()
    }

    fn open(&self, _create: bool) -> Result<Database, JournalOpenError> {
        let mut builder = database_builder();
        builder.set_cache_size(IN_MEMORY_CACHE_BYTES);
        let opened = builder.create_with_backend(self.clone());
        opened.map_err(|why| JournalOpenError::from_database_error(self.name(), why))
    }

    fn bytes(&self) -> Option<u64> {
        None
    }
}

/// Options for every database. The whole file is verified on open: redb would otherwise trust a
/// file that was changed from outside until one of its pages is unreadable.
pub(super) fn database_builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
    builder
}

/// Whether a process has a journal open under this name. `false` for everything else.
pub fn is_open_journal(path: &Path) -> bool {
    matches!(
        database_builder().open_read_only(path),
        Err(DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch)
    )
}
