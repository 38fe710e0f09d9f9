//! `recliner xray`: prints what the bytes of CouchDB's files are, without a CouchDB.
//!
//! Owns the search for a database's files, and the pace of reading. Sends no request and
//! writes nothing.

pub(super) mod answer;

use super::{
    CommandError, Exit,
    args::{Format, XrayArgs},
    inspect::file::open,
    output, printable, table,
};
use crate::datadir::{FileMeaning, OpenFile, file_meaning};
use answer::XrayAnswer;
use couchdb_files::{Bytes, Role, Sample, Xray, xray};
use couchdb_names::ShardName;
use std::{
    cell::Cell,
    fs,
    hash::{BuildHasher as _, RandomState},
    io, iter,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};
use tokio::time::Instant;

pub(super) fn run(args: &XrayArgs) -> Result<Exit, CommandError> {
    let sample =
        args.sample.map(|share| Sample { share, seed: RandomState::new().hash_one("xray") });
    let (mut exit, mut answers, mut shown) = (Exit::Done, Vec::new(), Vec::new());
    for name in &args.files {
        let (paths, is_database) = paths(args, name)?;
        let mut files = Vec::new();
        for path in paths {
            match one(&path, sample, args.max_read) {
                Ok(xray) => files.push(XrayAnswer::of(&path, xray, sample.is_some())),
                Err(why) => {
                    exit = Exit::Failed;
                    let path = printable(&path.display().to_string());
                    output::print_error(&format!("{path} {why}"));
                }
            }
        }
        if is_database {
            shown.extend(XrayAnswer::sum(&name.display().to_string(), &files));
        } else {
            shown.extend(files.iter().cloned());
        }
        answers.append(&mut files);
    }
    if args.format == Format::Json {
        output::print_json_lines(&answers)?;
    } else {
        output::print(&table::xrayed(&shown, table::width()))?;
    }
    Ok(exit)
}

/// The files that an argument names: a path, or with a data directory the name of a database; and whether it is
/// that.
fn paths(args: &XrayArgs, name: &Path) -> Result<(Vec<PathBuf>, bool), CommandError> {
    let (Some(data), Some(db), false) = (&args.data_dir, name.to_str(), name.is_file()) else {
        return Ok((vec![name.to_owned()], false));
    };
    let views = args.view_index_dir.as_deref().unwrap_or(data);
    let found = files_of(data, Some(views), db)?;
    if found.is_empty() {
        let why = format!("{} has no files of a database {}", data.display(), printable(db));
        return Err(CommandError::usage(why));
    }
    Ok((found, true))
}

/// The files of a database: `shards/RANGE/DB.TIME.couch`, and for one of the node alone `DB.couch`; below `views`
/// also those of its indexes.
pub(super) fn files_of(
    data: &Path,
    views: Option<&Path>,
    db: &str,
) -> Result<Vec<PathBuf>, CommandError> {
    let failed = |path: &Path, why: io::Error| {
        CommandError::failed(format!("cannot read the directory {}: {why}", path.display()))
    };
    let own = data.join(format!("{db}.couch"));
    let mut files: Vec<PathBuf> = iter::once(own).filter(|path| path.is_file()).collect();
    let shards = data.join("shards");
    let ranges = fs::read_dir(&shards).map_err(|why| failed(&shards, why))?;
    // A database's name may have slashes.
    let folder = db.rsplit_once('/').map_or("", |(folder, _)| folder);
    for range in ranges {
        let range = range.map_err(|why| failed(&shards, why))?.path().join(folder);
        files.extend(named(&range, data, |meaning| {
            let FileMeaning::Db { shard } = meaning else { return false };
            ShardName::split(shard).is_some_and(|name| name.db == db)
        })?);
    }
    files.sort();
    let mut indexes = Vec::new();
    for file in files.iter().filter(|_| views.is_some()) {
        let below = file.strip_prefix(data).ok().and_then(Path::to_str);
        let shard = below.and_then(|below| below.strip_suffix(".couch"));
        if let Some((shard, views)) = shard.zip(views) {
            let folder = views.join(format!(".{shard}_design/mrview"));
            indexes.extend(named(&folder, views, |it| matches!(it, FileMeaning::View { .. }))?);
        }
    }
    indexes.sort();
    Ok([files, indexes].concat())
}

/// The files in a folder, if there is one, whose meaning below `root` is wanted.
fn named(
    folder: &Path,
    root: &Path,
    is_wanted: impl Fn(FileMeaning<'_>) -> bool,
) -> Result<Vec<PathBuf>, CommandError> {
    let failed = |why: io::Error| {
        CommandError::failed(format!("cannot read the directory {}: {why}", folder.display()))
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) if why.kind() == io::ErrorKind::NotADirectory => return Ok(Vec::new()),
        Err(why) => return Err(failed(why)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let below = path.strip_prefix(root).ok().and_then(Path::to_str).unwrap_or_default();
        if is_wanted(file_meaning(below.as_bytes())) {
            files.push(path);
        }
    }
    Ok(files)
}

pub(super) fn one(path: &Path, sample: Option<Sample>, max_read: u64) -> Result<Xray, String> {
    let name = path.file_name().map(|name| name.to_string_lossy());
    if Role::of(name.as_deref().unwrap_or_default()) == Role::CompactMeta {
        return Err("has no trees of its own: they are in the .compact.data file".to_owned());
    }
    let file = Paced { file: open(path)?, max_read, begun: Instant::now(), read: Cell::new(0) };
    xray(&file, sample).map_err(|why| format!("has no X-ray: {why}"))
}

/// A file that is read at a limited rate.
struct Paced {
    file: OpenFile,
    /// Bytes per second; 0 for no limit.
    max_read: u64,
    begun: Instant,
    read: Cell<u64>,
}

impl Bytes for Paced {
    fn size(&self) -> u64 {
        self.file.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(offset, buf)?;
        self.read.set(self.read.get() + read as u64);
        if self.max_read > 0 {
            let due = Duration::from_secs_f64(self.read.get() as f64 / self.max_read as f64);
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
