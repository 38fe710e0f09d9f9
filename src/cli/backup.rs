//! `recliner backup`: a copy of a running recliner's journal in a file.
//!
//! Owns the file: it gets its final name only after the copy in it was checked, so that an
//! interrupted command leaves the previous backup unchanged.

use super::{CommandError, Exit, args::BackupArgs, output::print_bytes, print_note, printable};
use crate::{
    store::journal::{self, CopySummary},
    text::{counted, size::format_size_short},
};
use serde::Serialize;
use std::{
    ffi::OsString,
    fs::{self, File, TryLockError},
    io::{self, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
};

const ROUTE: &str = "/api/v1/backup";

/// What `--format json` prints.
#[derive(Debug, Serialize)]
struct BackupOutput<'a> {
    file: &'a Path,
    /// Size of the file.
    bytes: u64,
    /// Number of events in the copy.
    events: u64,
    /// Number of job outcomes in the copy.
    outcomes: u64,
    /// Sequence number of the newest entry.
    last_seq: u64,
    /// RFC 3339 time of the newest event.
    last_at: Option<String>,
}

pub(super) async fn run(args: BackupArgs) -> Result<Exit, CommandError> {
    if args.file == Path::new("-") {
        return to_stdout(&args).await;
    }
    check_destination(&args.file, args.force)?;
    let mut part = PartFile::open(&args.file)?;
    let client = args.order.reach.client().await?;
    client.download(ROUTE, |piece| part.write(piece)).await?;
    let (summary, bytes) = part.finish(&args.file, args.force)?;
    let CopySummary { events, outcomes, last_seq, last_at } = summary;
    let last_at = last_at.map(wall_clock::Moment::rfc3339);
    let output = BackupOutput { file: &args.file, bytes, events, outcomes, last_seq, last_at };
    args.order.format.print(&output, |output, _| {
        let (file, size) =
            (printable(&output.file.display().to_string()), format_size_short(bytes));
        let at = output.last_at.as_ref().map(|at| format!(" at {at}")).unwrap_or_default();
        let (events, outcomes) =
            (counted(events, "event", "events"), counted(outcomes, "outcome", "outcomes"));
        format!(
            "Wrote {file} ({size}): {events} and {outcomes}, through sequence {last_seq}{at}.\n"
        )
    })?;
    Ok(Exit::Done)
}

/// Sends the copy to standard output, for a pipe. Checks its length, but not its content.
async fn to_stdout(args: &BackupArgs) -> Result<Exit, CommandError> {
    if io::stdout().is_terminal() {
        return Err(CommandError::usage(
            "the backup is not text, and standard output is a terminal: redirect it to a file or a pipe",
        ));
    }
    let client = args.order.reach.client().await?;
    let bytes = client.download(ROUTE, print_bytes).await?;
    print_note(&format!("Wrote {} to standard output.", format_size_short(bytes)));
    Ok(Exit::Done)
}

/// Fails if a backup must not replace the destination.
fn check_destination(file: &Path, force: bool) -> Result<(), CommandError> {
    let name = file.display();
    let refused = |why: &str| Err(CommandError::usage(format!("{name} {why}")));
    match fs::metadata(file) {
        Ok(found) if found.is_dir() => refused("is a directory: name a file in it"),
        // Renaming would replace a device or a pipe with a file.
        Ok(found) if !found.is_file() => refused("is not a file: choose another name"),
        Ok(_) if !force => {
            refused("already exists: choose another name, or use --force to replace it")
        }
        // Replacing the journal of a running process would lose everything it writes afterwards.
        Ok(_) if journal::is_open_journal(file) => refused(
            "is the journal of a running recliner, or another process has it open: choose another name",
        ),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The incomplete file under its temporary name. It is deleted unless [`finish`](Self::finish)
/// completes it.
struct PartFile {
    path: PathBuf,
    file: File,
    is_finished: bool,
}

impl PartFile {
    /// Creates `FILE.part`, replacing one that an interrupted command left behind.
    fn open(destination: &Path) -> Result<Self, CommandError> {
        let mut name = OsString::from(destination);
        name.push(".part");
        let path = PathBuf::from(name);
        let failed = |why: io::Error| write_error(&path, &why);
        let file = match journal::create_private(&path) {
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
                remove_leftover(&path)?;
                journal::create_private(&path)
            }
            created => created,
        };
        let file = file.map_err(failed)?;
        file.try_lock().map_err(|why| failed(why.into()))?;
        Ok(Self { path, file, is_finished: false })
    }

    fn write(&mut self, piece: &[u8]) -> Result<(), CommandError> {
        self.file.write_all(piece).map_err(|why| write_error(&self.path, &why))
    }

    /// Checks the copy and renames the file. Returns a summary of its content, and its size, which
    /// the check may change.
    fn finish(
        mut self,
        destination: &Path,
        force: bool,
    ) -> Result<(CopySummary, u64), CommandError> {
        let name = self.path.display().to_string();
        let summary = journal::check_copy(&self.file, &name).map_err(|why| {
            CommandError::failed(format!("the received copy is unusable and was discarded: {why}"))
        })?;
        let failed = |why: io::Error| write_error(destination, &why);
        let synced = self.file.sync_all().and_then(|()| self.file.metadata());
        let bytes = synced.map_err(|why| write_error(&self.path, &why))?.len();
        check_destination(destination, force)?;
        if !self.file.metadata().is_ok_and(|own| journal::has_name(&own, &self.path)) {
            return Err(CommandError::failed(format!("{name} was replaced while it was written")));
        }
        fs::rename(&self.path, destination).map_err(failed)?;
        self.is_finished = true;
        // The rename survives a crash only once the directory is synced.
        let directory = destination.parent().filter(|path| !path.as_os_str().is_empty());
        let directory = File::open(directory.unwrap_or_else(|| Path::new(".")));
        directory.and_then(|directory| directory.sync_all()).map_err(failed)?;
        Ok((summary, bytes))
    }
}

/// Removes the file of an interrupted command, but not a symbolic link: another user may have
/// chosen its destination.
fn remove_leftover(path: &Path) -> Result<(), CommandError> {
    let failed = |why: io::Error| write_error(path, &why);
    let found = path.symlink_metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(failed(io::ErrorKind::AlreadyExists.into()));
    }
    let file = File::open(path).map_err(failed)?;
    let is_writing = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    if is_writing || !journal::has_name(&file.metadata().map_err(failed)?, path) {
        let path = path.display();
        return Err(CommandError::failed(format!(
            "another backup is writing to {path}: wait until it is finished"
        )));
    }
    fs::remove_file(path).map_err(failed)
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // If this fails, the next backup to the same name removes the file.
            let _left = fs::remove_file(&self.path);
        }
    }
}

fn write_error(path: &Path, why: &io::Error) -> CommandError {
    use io::ErrorKind as Is;
    let kind = why.kind();
    let remedy = if kind == Is::NotFound {
        "create its directory"
    } else if kind == Is::PermissionDenied {
        "run the command as a user who may write there, or name another directory"
    } else if kind == Is::StorageFull || kind == Is::QuotaExceeded {
        "free space on its disk, or name another directory"
    } else {
        "name another place"
    };
    CommandError::failed(format!("cannot write {}: {why}; {remedy}", path.display()))
}
