//! Follows logs through rotation: reads from each file what was not read yet.
//!
//! Owns the position in each file. A file is identified by its first line, so that it may be renamed, copied or
//! compressed. Never waits for a file to grow.

use super::log_file::LogFile;
use access_log::{Day, LogReads};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Number of days after which the position in a missing file is dropped.
const FORGOTTEN_AFTER: u32 = 30;

/// The position in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Progress {
    /// Bytes of text.
    offset: u64,
    /// The last day on which the file existed.
    present: Day,
}

/// The state of a file that was read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Finished {
    inode: u64,
    bytes: u64,
    changed: Option<SystemTime>,
    fingerprint: u64,
}

/// The files and the position in each.
#[derive(Debug, Default)]
pub(super) struct Follower {
    progress: BTreeMap<u64, Progress>,
    finished: BTreeMap<PathBuf, Finished>,
}

/// The result of one step.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) reads: LogReads,
    /// Whether more can be read at once.
    pub(super) more: bool,
    /// What could not be read, in sentences.
    pub(super) problems: Vec<String>,
}

impl Follower {
    /// Continues where an earlier process stopped; an unreadable state counts as none.
    pub(super) fn resume(stored: &[u8]) -> Self {
        let progress = postcard::from_bytes(stored).unwrap_or_default();
        Self { progress, finished: BTreeMap::new() }
    }

    /// The state to store.
    pub(super) fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(&self.progress).unwrap_or_default()
    }

    /// Continues to read all logs, about `max_bytes` in total.
    pub(super) fn read(&mut self, logs: &[PathBuf], today: Day, max_bytes: u64) -> Step {
        let mut step = Step::default();
        let mut left = max_bytes;
        for log in logs {
            let files = match files_of(log) {
                Ok(files) => files,
                Err(why) => {
                    step.problems.push(format!("{} cannot be read: {why}.", log.display()));
                    continue;
                }
            };
            let is_followed = files.iter().any(|file| self.is_known(&file.path));
            for (at, file) in files.iter().enumerate() {
                if left == 0 {
                    step.more = true;
                    break;
                }
                // Lines from before the oldest file, or from a file in between, may be lost.
                let may_miss = at == 0 && !is_followed;
                match self.read_file(log, file, (today, may_miss), left, &mut step) {
                    Ok(read) => left = left.saturating_sub(read),
                    Err(why) => {
                        let path = file.path.display();
                        step.problems.push(format!("{path} cannot be read to its end: {why}."));
                    }
                }
            }
        }
        self.progress.retain(|_, it| today.since(it.present) <= FORGOTTEN_AFTER);
        step
    }

    fn is_known(&self, path: &Path) -> bool {
        self.finished.contains_key(path)
            || LogFile::open(path)
                .and_then(|mut file| file.fingerprint())
                .is_ok_and(|it| it.is_some_and(|it| self.progress.contains_key(&it)))
    }

    /// Continues to read one file; returns the number of bytes read.
    fn read_file(
        &mut self,
        log: &Path,
        file: &Found,
        (today, may_miss): (Day, bool),
        max_bytes: u64,
        step: &mut Step,
    ) -> io::Result<u64> {
        if let Some(known) = self.finished.get(&file.path) {
            let now = Finished { fingerprint: known.fingerprint, ..file.state };
            if *known == now {
                if let Some(progress) = self.progress.get_mut(&known.fingerprint) {
                    progress.present = today;
                }
                return Ok(0);
            }
        }
        let mut text = LogFile::open(&file.path)?;
        let Some(fingerprint) = text.fingerprint()? else { return Ok(0) };
        let offset = self.progress.get(&fingerprint).map_or(0, |it| it.offset);
        text.skip(offset)?;
        let mut reads = LogReads::default();
        let (read, more) = text.read(&log.display().to_string(), max_bytes, &mut reads)?;
        if may_miss && offset == 0 {
            reads.break_first_hour();
        }
        step.reads.merge(reads);
        step.more |= more;
        self.progress.insert(fingerprint, Progress { offset: offset + read, present: today });
        if more {
            self.finished.remove(&file.path);
        } else {
            self.finished.insert(file.path.clone(), Finished { fingerprint, ..file.state });
        }
        Ok(read)
    }
}

/// A file of a log.
#[derive(Debug)]
struct Found {
    path: PathBuf,
    state: Finished,
}

/// The files of a log, the oldest first: itself, and those next to it whose names begin with its name, as rotation
/// leaves them.
fn files_of(log: &Path) -> io::Result<Vec<Found>> {
    let name = log.file_name().unwrap_or_default().as_encoded_bytes();
    let directory = match log.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let rest = entry.file_name();
        let Some(rest) = rest.as_encoded_bytes().strip_prefix(name) else { continue };
        if !matches!(rest.first(), None | Some(b'.' | b'-')) {
            continue;
        }
        let path = entry.path();
        let Ok(about) = fs::metadata(&path) else { continue };
        if !about.is_file() {
            continue;
        }
        let (inode, bytes, changed) = (about.ino(), about.len(), about.modified().ok());
        files.push(Found { path, state: Finished { inode, bytes, changed, fingerprint: 0 } });
    }
    if files.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "there is no such file"));
    }
    files.sort_by_key(|file| (file.state.changed, std::cmp::Reverse(file.path.clone())));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use access_log::{Class, How, UseKey};
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write as _;

    const TODAY: Day = Day(20_784);

    fn line(hour: u32, view: &str) -> String {
        format!(
            "[notice] 2026-11-27T{hour:02}:00:00.830527Z node1@127.0.0.1 <0.5163.0> b5a3d9556d localhost:5984 127.0.0.1 admin GET /db/_design/d/_view/{view} 200 ok 36\n"
        )
    }

    struct Log {
        directory: tempfile::TempDir,
        follower: Follower,
        reads: LogReads,
    }

    impl Log {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            Self { directory, follower: Follower::default(), reads: LogReads::default() }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn append(&self, text: &str) {
            let mut file =
                fs::File::options().create(true).append(true).open(self.path("couch.log")).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }

        /// Continues to read, and returns the number of reads of the view so far.
        fn count(&mut self, view: &str) -> u64 {
            let logs = [self.path("couch.log")];
            loop {
                let step = self.follower.read(&logs, TODAY, 200);
                assert_eq!(step.problems, [""; 0]);
                self.reads.merge(step.reads);
                if !step.more {
                    break;
                }
            }
            let key = UseKey {
                db: "db".to_owned(),
                design: "_design/d".to_owned(),
                view: view.to_owned(),
                how: How::Read,
                class: Class::Unknown,
            };
            self.reads.days.values().filter_map(|day| day.uses.get(&key)).sum()
        }

        fn broken(&self) -> u32 {
            self.reads.days.values().fold(0, |bits, day| bits | day.broken)
        }

        /// Compresses a file, as logrotate does.
        fn compress(&self, name: &str) {
            let file = fs::File::create(self.path(&format!("{name}.gz"))).unwrap();
            let mut text = GzEncoder::new(file, Compression::fast());
            text.write_all(&fs::read(self.path(name)).unwrap()).unwrap();
            text.finish().unwrap();
            fs::remove_file(self.path(name)).unwrap();
        }

        fn restart(&mut self) {
            self.follower = Follower::resume(&self.follower.encode());
        }
    }

    #[test]
    fn each_log_line_counts_once_through_rotation_and_restarts() {
        let mut log = Log::new();
        log.append(&(line(3, "v") + &line(3, "v") + "[notice] 2026-11-27T04:00:00Z half"));
        assert_eq!(log.count("v"), 2);
        assert_eq!(log.broken(), 1 << 3, "what came before is not known");
        log.append(" line\n");
        log.append(&line(4, "v"));
        assert_eq!((log.count("v"), log.count("v")), (3, 3));
        log.restart();
        log.append(&line(4, "v"));
        // The file was renamed with unread lines, and a new one created.
        fs::rename(log.path("couch.log"), log.path("couch.log.1")).unwrap();
        log.append(&line(5, "v"));
        assert_eq!(log.count("v"), 5);
        log.compress("couch.log.1");
        fs::rename(log.path("couch.log.1.gz"), log.path("couch.log.2.gz")).unwrap();
        assert_eq!(log.count("v"), 5);
        log.restart();
        assert_eq!(log.count("v"), 5);
        // The file was copied and emptied.
        fs::copy(log.path("couch.log"), log.path("couch.log-20261127")).unwrap();
        fs::write(log.path("couch.log"), "").unwrap();
        assert_eq!(log.count("v"), 5);
        log.append(&line(6, "v"));
        assert_eq!(log.count("v"), 6);
        assert_eq!(log.broken(), 1 << 3, "no other line was missed");
    }

    /// An earlier release's state can be read; otherwise all lines of the logs would be counted again.
    #[test]
    fn stored_progress_keeps_its_encoding() {
        let progress = [(7, Progress { offset: 300, present: TODAY })].into();
        let bytes = Follower { progress, finished: BTreeMap::new() }.encode();
        assert_eq!(bytes, [1, 7, 0xac, 2, 0xb0, 0xa2, 1]);
        assert_eq!(Follower::resume(&bytes).progress[&7].offset, 300);
    }

    #[test]
    fn log_file_deleted_between_runs_leaves_a_gap() {
        let mut log = Log::new();
        log.append(&line(3, "v"));
        log.count("v");
        fs::remove_file(log.path("couch.log")).unwrap();
        log.restart();
        log.append(&line(7, "v"));
        assert_eq!(log.count("v"), 2);
        assert_eq!(log.broken(), 1 << 3 | 1 << 7);
    }

    #[test]
    fn files_that_are_not_rotated_logs_are_ignored() {
        let mut log = Log::new();
        log.append(&line(3, "v"));
        fs::write(log.path("couch.log2"), line(4, "v")).unwrap();
        fs::create_dir(log.path("couch.log.d")).unwrap();
        assert_eq!(log.count("v"), 1);
    }

    #[test]
    fn a_pipe_in_the_place_of_a_log_does_not_block() {
        let log = Log::new();
        let path = log.path("couch.log.pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        let why = LogFile::open(&path).unwrap_err();
        assert_eq!(why.to_string(), "it is not a regular file");
        // A pipe next to a log is not one of its rotated files.
        log.append(&line(3, "v"));
        let logs = [log.path("couch.log")];
        assert_eq!(Follower::default().read(&logs, TODAY, 9_999).problems, [""; 0]);
    }

    #[test]
    fn unreadable_log_is_reported() {
        let mut follower = Follower::default();
        let step =
            follower.read(&[PathBuf::from("/none/such.log"), PathBuf::from("/none")], TODAY, 9);
        assert_eq!(step.problems.len(), 2, "{:?}", step.problems);
    }
}
