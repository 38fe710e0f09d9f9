//! X-rays of a node's files: which files a database has, and the pace at which they are read.
//!
//! Owns the search by name, and the limits of reading. What the bytes of a file are is decided by
//! [`couchdb_files`].

use super::{FileMeaning, NodeDirectories, OpenFile, file_meaning};
use couchdb_files::{Bytes, Role, Sample, Xray, xray};
use couchdb_names::{ShardName, Signature};
use std::{
    cell::Cell,
    fs, io, iter,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How fast, and until when, a file is read.
#[derive(Clone, Debug, Default)]
pub struct ReadPace {
    /// Bytes per second; 0 for no limit.
    pub bytes_per_second: u64,
    /// When to stop; later reads fail.
    pub deadline: Option<Instant>,
    /// Stops the reading earlier.
    pub stop: CancellationToken,
}

/// The files of a database: `shards/RANGE/DB.TIME.couch`, and for one of the node alone
/// `DB.couch`; with `indexes` also those of its views.
///
/// # Errors
/// If a directory cannot be read.
pub fn database_files(
    directories: &NodeDirectories,
    db: &str,
    indexes: bool,
) -> Result<Vec<PathBuf>, String> {
    let data = &directories.data;
    let own = data.join(format!("{db}.couch"));
    let mut files: Vec<PathBuf> = iter::once(own).filter(|path| path.is_file()).collect();
    let shards = data.join("shards");
    let ranges = fs::read_dir(&shards).map_err(|why| unread(&shards, &why))?;
    // A database's name may have slashes.
    let folder = db.rsplit_once('/').map_or("", |(folder, _)| folder);
    for range in ranges {
        let range = range.map_err(|why| unread(&shards, &why))?.path().join(folder);
        files.extend(named(&range, data, |meaning| {
            let FileMeaning::Db { shard } = meaning else { return false };
            ShardName::split(shard).is_some_and(|name| name.db == db)
        })?);
    }
    files.sort();
    let views = directories.views.as_deref().unwrap_or(data);
    let mut found = Vec::new();
    for file in files.iter().filter(|_| indexes) {
        let below = file.strip_prefix(data).ok().and_then(Path::to_str);
        if let Some(shard) = below.and_then(|below| below.strip_suffix(".couch")) {
            let folder = views.join(index_folder(shard));
            found.extend(named(&folder, views, |it| matches!(it, FileMeaning::View { .. }))?);
        }
    }
    found.sort();
    Ok([files, found].concat())
}

/// The path of a shard's file, or of one of its view indexes.
#[must_use]
pub fn target_file(
    directories: &NodeDirectories,
    shard: &str,
    index: Option<Signature>,
) -> PathBuf {
    match index {
        None => directories.data.join(format!("{shard}.couch")),
        Some(signature) => {
            let views = directories.views.as_ref().unwrap_or(&directories.data);
            views.join(index_folder(shard)).join(format!("{signature}.view"))
        }
    }
}

fn index_folder(shard: &str) -> String {
    format!(".{shard}_design/mrview")
}

fn unread(path: &Path, why: &io::Error) -> String {
    format!("cannot read the directory {}: {why}", path.display())
}

/// The files in a folder, if it exists, whose meaning below `root` is wanted.
fn named(
    folder: &Path,
    root: &Path,
    is_wanted: impl Fn(FileMeaning<'_>) -> bool,
) -> Result<Vec<PathBuf>, String> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) if why.kind() == io::ErrorKind::NotADirectory => return Ok(Vec::new()),
        Err(why) => return Err(unread(folder, &why)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|why| unread(folder, &why))?.path();
        let below = path.strip_prefix(root).ok().and_then(Path::to_str).unwrap_or_default();
        if is_wanted(file_meaning(below.as_bytes())) {
            files.push(path);
        }
    }
    Ok(files)
}

/// The X-ray of a file.
///
/// # Errors
/// If there is none; the text completes a sentence that begins with the file's name.
pub fn xray_file(path: &Path, sample: Option<Sample>, pace: &ReadPace) -> Result<Xray, String> {
    let name = path.file_name().map(|name| name.to_string_lossy());
    if Role::of(name.as_deref().unwrap_or_default()) == Role::CompactMeta {
        return Err("has no trees: they are in the .compact.data file".to_owned());
    }
    let file = OpenFile::open_regular(path)?;
    let file = Paced { file, pace, begun: Instant::now(), read: Cell::new(0) };
    xray(&file, sample).map_err(|why| format!("has no X-ray: {why}"))
}

/// A file that is read at a pace.
struct Paced<'p> {
    file: OpenFile,
    pace: &'p ReadPace,
    begun: Instant,
    read: Cell<u64>,
}

impl Bytes for Paced<'_> {
    fn size(&self) -> u64 {
        self.file.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let ReadPace { bytes_per_second, deadline, stop } = self.pace;
        if stop.is_cancelled() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "reading it took too long"));
        }
        let read = self.file.read_at(offset, buf)?;
        self.read.set(self.read.get() + read as u64);
        if *bytes_per_second > 0 {
            let due = Duration::from_secs_f64(self.read.get() as f64 / *bytes_per_second as f64);
            while let Some(early) = due.checked_sub(self.begun.elapsed()).filter(|it| !it.is_zero())
            {
                thread::park_timeout(early);
            }
        }
        Ok(read)
    }

    fn end_of_data(&self, end: u64) -> u64 {
        self.file.end_of_data(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_ends_at_the_deadline() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("crates/couchdb-files/tests/data/updates.couch");
        let until = |deadline| {
            xray_file(&path, None, &ReadPace { deadline: Some(deadline), ..ReadPace::default() })
        };
        assert!(until(Instant::now() + Duration::from_secs(600)).is_ok());
        let late = until(Instant::now()).unwrap_err();
        assert!(late.contains("took too long"), "{late}");
    }
}
