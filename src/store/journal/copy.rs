//! Copies of the open database, as backups.
//!
//! Owns how a copy is written and how it is checked. A copy contains what one read transaction
//! sees, so it is consistent, and the journal's task continues to write meanwhile. It is a file
//! without a name: its space is freed when its last handle is closed, however the process ends.
//! [`super::Journal::copy`] writes it on a blocking thread; the command that receives it checks it.

use super::{
    JournalOpenError,
    storage::{create_private, database_builder, remedy},
    tables::{
        BLOCK_TIMES, BLOCKS, DB_EVENTS, EVENTS, FEED, FEED_DELETED, FEED_SEQ_BY_DB, INTENTS, MARKS,
        META, META_COUNTS, META_SHARED_KEEPER, META_SHARED_MEMBER, OUTCOMES, OVERRIDDEN_SETTINGS,
        SUSPENSIONS, StoredFormat, TARGET_RECORDS, TableCounts, read_value,
    },
};
use crate::{datadir::FileSystemSpace, model::records::StoreError, text::size::format_size_short};
use redb::{
    Database, Error, Key, ReadTransaction, ReadableDatabase as _, ReadableTable as _,
    TableDefinition, TableError, TableHandle as _, Value, WriteTransaction, backends::FileBackend,
};
use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _},
    path::{Path, PathBuf},
};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use wall_clock::Moment;

/// Bytes that stay free besides a copy, so that the journal can be written while the copy exists.
const KEPT_FREE_BYTES: u64 = 16 << 20;

/// Number of entries after which the copying checks whether it was cancelled.
const ENTRIES_PER_CHECK: usize = 256;

/// Bytes that are read from a copy at a time.
const PIECE_BYTES: u64 = 64 << 10;

/// Why no copy was made.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// Another one is being written or read.
    #[error("another backup is in progress; try again when it has ended")]
    Busy,
    /// The disk has no room for the copy.
    #[error(
        "a backup temporarily needs {} in {}, but only {} are free: free space on that disk",
        format_size_short(*.needed), .directory.display(), format_size_short(*.available)
    )]
    NoSpace {
        /// The directory in which the copy would be written.
        directory: PathBuf,
        /// Bytes that must be free.
        needed: u64,
        /// Bytes that are free.
        available: u64,
    },
    /// The journal cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system refused to write the copy.
    #[error("cannot write the copy of the journal in {}: {why}; {}", .directory.display(), remedy(.why))]
    Io {
        /// Where it would be written.
        directory: PathBuf,
        /// The error of the system.
        why: io::Error,
    },
    /// The journal cannot be copied.
    #[error("cannot copy the journal: {0}")]
    Failed(String),
    /// The requester no longer waits for the copy.
    #[error("the backup was cancelled")]
    Cancelled,
}

/// A complete copy of the journal, for one reader. No other copy is written while it exists.
#[derive(Debug)]
pub struct JournalCopy {
    file: File,
    bytes: u64,
    _permit: OwnedSemaphorePermit,
}

impl JournalCopy {
    /// Its size in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next piece of the file; empty at its end. It blocks on the disk.
    ///
    /// # Errors
    /// The error of the system.
    pub fn read_piece(&mut self) -> io::Result<Vec<u8>> {
        let mut piece = Vec::new();
        (&self.file).take(PIECE_BYTES).read_to_end(&mut piece)?;
        Ok(piece)
    }
}

/// Writes a copy of what a transaction sees to a file whose name `path` is removed at once.
/// `source_bytes` is the size of the database, if known.
pub(super) fn write(
    source: ReadTransaction,
    path: &Path,
    source_bytes: Option<u64>,
    permit: OwnedSemaphorePermit,
    cancelled: &CancellationToken,
) -> Result<JournalCopy, CopyError> {
    let directory = path.parent().unwrap_or_else(|| Path::new(".")).to_owned();
    check_space(&directory, source_bytes.unwrap_or_default())?;
    let refused = |why| CopyError::Io { directory: directory.clone(), why };
    let failed = |why: Error| {
        if let Error::Io(why) = why { refused(why) } else { CopyError::Failed(why.to_string()) }
    };
    let mut file = nameless_file(path).map_err(refused)?;
    let handle = file.try_clone().map_err(refused)?;
    let complete = write_database(source, handle, cancelled).map_err(failed)?;
    if !complete {
        return Err(CopyError::Cancelled);
    }
    file.rewind().map_err(refused)?;
    let bytes = file.metadata().map_err(refused)?.len();
    Ok(JournalCopy { file, bytes, _permit: permit })
}

/// Refuses a copy that could leave the journal without space.
fn check_space(directory: &Path, source_bytes: u64) -> Result<(), CopyError> {
    // If the free space is unknown, writing shows whether it suffices.
    let Ok(space) = FileSystemSpace::of(directory) else { return Ok(()) };
    let needed = source_bytes.saturating_add(KEPT_FREE_BYTES);
    if space.available < needed {
        let (directory, available) = (directory.to_owned(), space.available);
        return Err(CopyError::NoSpace { directory, needed, available });
    }
    Ok(())
}

/// A new file for its owner only, without a name.
fn nameless_file(path: &Path) -> io::Result<File> {
    remove_leftover(path)?;
    let file = create_private(path)?;
    fs::remove_file(path)?;
    Ok(file)
}

/// Removes the file of a process that was killed before its copy lost its name.
pub(super) fn remove_leftover(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns whether the copy is complete; otherwise it was cancelled.
fn write_database(
    source: ReadTransaction,
    file: File,
    cancelled: &CancellationToken,
) -> Result<bool, Error> {
    let mut database = database_builder().create_with_backend(FileBackend::new(file)?)?;
    let target = database.begin_write()?;
    if !copy_tables(&source, &target, cancelled)? {
        return Ok(false);
    }
    // From here on the journal can reuse the pages that it has freed since.
    drop(source);
    target.commit()?;
    // Pages are written before they are full, and the file grows in large steps.
    database.compact()?;
    database.close()?;
    Ok(!cancelled.is_cancelled())
}

/// Copies all tables; returns whether it was not cancelled.
fn copy_tables(
    source: &ReadTransaction,
    target: &WriteTransaction,
    cancelled: &CancellationToken,
) -> Result<bool, Error> {
    let mut copy = TableCopy { source, target, cancelled, done: Vec::new() };
    copy.table(OUTCOMES)?;
    copy.table(EVENTS)?;
    copy.table(DB_EVENTS)?;
    copy.table(FEED)?;
    copy.table(FEED_SEQ_BY_DB)?;
    copy.table(FEED_DELETED)?;
    copy.table(INTENTS)?;
    copy.table(TARGET_RECORDS)?;
    copy.table(SUSPENSIONS)?;
    copy.table(OVERRIDDEN_SETTINGS)?;
    copy.table(MARKS)?;
    copy.table(META)?;
    remove_leases(target)?;
    // Measurements in another format are useless; the journal itself discards them too.
    for copied in [copy.table(BLOCKS), copy.table(BLOCK_TIMES)] {
        match copied {
            Err(Error::TableTypeMismatch { .. } | Error::TypeDefinitionChanged { .. }) => {}
            copied => copied?,
        }
    }
    let done = copy.done;
    if cancelled.is_cancelled() {
        return Ok(false);
    }
    let mut names = source.list_tables()?.map(|table| table.name().to_owned());
    match names.find(|name| !done.contains(name)) {
        // Without an error, a backup that lacks this table would look complete.
        Some(unknown) => Err(Error::Corrupted(format!(
            "this version does not know its table {unknown:?}; stop recliner and copy the file instead"
        ))),
        None => Ok(true),
    }
}

/// Removes leases of shared limits from the copy: they change after it was made, and the copy must not pass for the
/// same member.
fn remove_leases(target: &WriteTransaction) -> Result<(), Error> {
    let mut meta = target.open_table(META)?;
    for name in [META_SHARED_KEEPER, META_SHARED_MEMBER] {
        meta.remove(name)?;
    }
    Ok(())
}

/// Copies table by table.
struct TableCopy<'a> {
    source: &'a ReadTransaction,
    target: &'a WriteTransaction,
    cancelled: &'a CancellationToken,
    /// Names of the copied tables.
    done: Vec<String>,
}

impl TableCopy<'_> {
    /// Copies a table, if it exists.
    fn table<K: Key + 'static, V: Value + 'static>(
        &mut self,
        definition: TableDefinition<'static, K, V>,
    ) -> Result<(), Error> {
        self.done.push(definition.name().to_owned());
        let from = match self.source.open_table(definition) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(()),
            from => from?,
        };
        let mut to = self.target.open_table(definition)?;
        for (at, entry) in from.iter()?.enumerate() {
            if at.is_multiple_of(ENTRIES_PER_CHECK) && self.cancelled.is_cancelled() {
                return Ok(());
            }
            let (key, value) = entry?;
            to.insert(key.value(), value.value())?;
        }
        Ok(())
    }
}

/// What a copy contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySummary {
    /// Number of events.
    pub events: u64,
    /// Number of outcomes.
    pub outcomes: u64,
    /// Number of the newest entry.
    pub last_seq: u64,
    /// When its newest event was recorded; `None` if it has none.
    pub last_at: Option<Moment>,
}

/// Verifies that a file, called `name` in messages, is a whole journal that this version reads.
/// Nothing else may have it open.
///
/// # Errors
/// Why it cannot be used.
pub fn check_copy(file: &File, name: &str) -> Result<CopySummary, JournalOpenError> {
    let open = || -> Result<Database, redb::DatabaseError> {
        let handle = file.try_clone().map_err(redb::StorageError::Io)?;
        database_builder().create_with_backend(FileBackend::new(handle)?)
    };
    let database =
        open().map_err(|why| JournalOpenError::from_database_error(name.to_owned(), why))?;
    let result = summary(&database, name);
    database.close().map_err(|why| JournalOpenError::from_database_error(name.to_owned(), why))?;
    result
}

fn summary(database: &Database, name: &str) -> Result<CopySummary, JournalOpenError> {
    let damaged = |why| JournalOpenError::Damaged { storage: name.to_owned(), why };
    let read = || -> Result<_, Error> {
        let tx = database.begin_read()?;
        let format = StoredFormat::read(&tx)?;
        if format.schema.is_none() || !format.is_readable() {
            return Ok((format, TableCounts::default(), None));
        }
        let counts = read_value(&tx.open_table(META)?, META_COUNTS)?.unwrap_or_default();
        let mut newest = None;
        for table in [EVENTS, DB_EVENTS] {
            let table = tx.open_table(table)?;
            let last = table.last()?.map(|(seq, entry)| (seq.value(), entry.value().0));
            newest = newest.max(last);
        }
        Ok((format, counts, newest))
    };
    let (format, counts, newest) = read().map_err(|why| damaged(why.to_string()))?;
    if format.schema.is_none() {
        return Err(damaged("it is not a journal".to_owned()));
    }
    if !format.is_readable() {
        return Err(format.refused(name.to_owned()));
    }
    let TableCounts { last_seq, outcomes, events, db_events, .. } = counts;
    Ok(CopySummary {
        events: events.entries + db_events.entries,
        outcomes: outcomes.entries,
        last_seq,
        last_at: newest.map(|(_, at)| Moment::from_unix(u64::from(at))),
    })
}
