//! Reads logs from named pipes as their lines arrive.
//!
//! Owns the open pipes. Never blocks: neither opening nor reading waits for a writer. A pipe has no history, so an hour
//! counts as covered only once it is over and a single writer was read from before its start until after its end.
//! Therefore an hour that a crash of the writer, a restart or a kill interrupts is never stored as covered. The end of
//! a writer is visible only while no other process has the pipe open for writing.

use access_log::{Day, Line, LineReader, LogReads, Source, read_line};
use std::{
    collections::BTreeMap,
    fs,
    future::pending,
    io::{self, BufReader, ErrorKind, Read},
    mem,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    pin::pin,
};
use tokio::net::unix::pipe;
use wall_clock::{Clock, Moment};

/// Maximum number of uses that wait for the journal before reading pauses.
pub(super) const MAX_WAITING: usize = 200_000;

/// Number of lines of a pipe after which other tasks may run.
const STEP_LINES: usize = 50_000;

/// The pipes among the logs.
#[derive(Debug, Default)]
pub(super) struct Pipes {
    open: BTreeMap<PathBuf, Pipe>,
}

impl Pipes {
    /// Opens the pipes among `logs`, and closes those no longer among them. Returns the other logs, and sentences
    /// about what cannot be read.
    pub(super) fn open(&mut self, logs: &[PathBuf]) -> (Vec<PathBuf>, Vec<String>) {
        let (mut others, mut problems) = (Vec::new(), Vec::new());
        let mut before = mem::take(&mut self.open);
        for log in logs {
            let Some(id) = id_of(log) else {
                others.push(log.clone());
                continue;
            };
            let name = log.display();
            let pipe = match before.remove(log).filter(|pipe| pipe.id == id) {
                Some(pipe) => {
                    if pipe.whole_from.is_none() {
                        problems.push(format!(
                            "No request comes through the pipe {name}: check that its writer runs."
                        ));
                    }
                    Ok(pipe)
                }
                None => Pipe::open(log, id),
            };
            match pipe {
                Ok(pipe) => drop(self.open.insert(log.clone(), pipe)),
                Err(why) => problems.push(format!("{name} cannot be read: {why}.")),
            }
        }
        (others, problems)
    }

    /// Waits until there is something to read.
    pub(super) async fn readable(&self) {
        let pipes = self.open.values().map(|pipe| Box::pin(pipe.receiver().readable()));
        let pipes: Vec<_> = pipes.collect();
        if pipes.is_empty() {
            return pending().await;
        }
        drop(futures::future::select_all(pipes).await);
    }

    /// Reads arriving lines while other work continues, so that the end of a writer is noticed before the next one
    /// comes.
    pub(super) async fn read_during(
        &mut self,
        work: impl Future<Output = ()>,
        clock: &Clock,
    ) -> LogReads {
        let (mut work, mut reads) = (pin!(work), LogReads::default());
        loop {
            tokio::select! {
                biased;
                () = &mut work => return reads,
                () = self.readable(), if reads.len() < MAX_WAITING => {
                    reads.merge(self.read(clock.now()));
                }
            }
        }
    }

    /// Reads what has arrived.
    pub(super) fn read(&mut self, now: Moment) -> LogReads {
        let mut reads = LogReads::default();
        self.open.retain(|log, pipe| {
            let goes_on = pipe.read(&log.display().to_string(), now, &mut reads);
            if goes_on {
                return true;
            }
            // From here on, the writer is another one. A pipe that ended without a request is opened again only when
            // the logs are next checked, so that a pipe that keeps ending does not keep this task busy.
            let next = pipe.whole_from.and_then(|_| Pipe::open(log, pipe.id).ok());
            next.map(|next| *pipe = next).is_some()
        });
        reads
    }
}

/// Identifies the pipe at a path, if there is one.
fn id_of(log: &Path) -> Option<(u64, u64)> {
    let about = fs::metadata(log).ok()?;
    about.file_type().is_fifo().then(|| (about.dev(), about.ino()))
}

/// A pipe that is read without blocking.
#[derive(Debug)]
struct Stream(pipe::Receiver);

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

/// An open pipe, for as long as it has the same writer.
#[derive(Debug)]
struct Pipe {
    lines: LineReader<BufReader<Stream>>,
    /// Its device and inode.
    id: (u64, u64),
    /// The first full hour, counted since 1970, after its first request; `None` before that request.
    whole_from: Option<u64>,
    /// The hours with a request that may still continue, one bit each.
    unfinished: BTreeMap<(Source, Day), u32>,
}

impl Pipe {
    fn open(path: &Path, id: (u64, u64)) -> io::Result<Self> {
        let receiver = pipe::OpenOptions::new().open_receiver(path)?;
        let lines = LineReader::new(BufReader::new(Stream(receiver)));
        Ok(Self { lines, id, whole_from: None, unfinished: BTreeMap::new() })
    }

    fn receiver(&self) -> &pipe::Receiver {
        &self.lines.stream().get_ref().0
    }

    /// Adds what has arrived; returns whether there may be more from the same writer.
    fn read(&mut self, log: &str, now: Moment, reads: &mut LogReads) -> bool {
        let (mut arrived, mut first, mut left) = (LogReads::default(), None, STEP_LINES);
        let ended = self.lines.for_each(|line| {
            if let Line::Request(request) = read_line(line) {
                first.get_or_insert(request.at);
                arrived.add(request, log);
            }
            left -= 1;
            left > 0
        });
        if let Some(first) = first {
            // A pipe may contain old lines, and the writer's clock may be ahead.
            self.whole_from.get_or_insert_with(|| first.max(now.unix()) / 3600 + 1);
            self.keep_whole_hours(&mut arrived);
            reads.merge(arrived);
        }
        match ended {
            Ok(()) => left == 0,
            Err(why) => why.kind() == ErrorKind::WouldBlock,
        }
    }

    /// Keeps in `arrived` only hours of which every line was read: a later line of the same source shows that they are
    /// over.
    fn keep_whole_hours(&mut self, arrived: &mut LogReads) {
        for ((source, day), it) in &mut arrived.days {
            let first = self.whole_from.unwrap_or(u64::MAX).saturating_sub(day.start() / 3600);
            let whole = mem::take(&mut it.hours) & (u32::MAX << first.min(24));
            *self.unfinished.entry((source.clone(), *day)).or_default() |= whole;
        }
        self.unfinished.retain(|_, hours| *hours != 0);
        let last: BTreeMap<Source, Day> = self.unfinished.keys().cloned().collect();
        self.unfinished.retain(|(source, day), hours| {
            let is_last = last.get(source) == Some(day);
            let latest = hours.checked_ilog2().filter(|_| is_last).map_or(0, |hour| 1 << hour);
            let over = *hours & !latest;
            if over != 0 {
                arrived.days.entry((source.clone(), *day)).or_default().hours |= over;
            }
            *hours = latest;
            latest != 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, mknodat};
    use std::{fs::File, io::Write as _};

    fn line(time: &str) -> String {
        format!(
            "[notice] 2026-11-27T{time}:00.8Z a <0.1.0> b5 h 127.0.0.1 admin GET /db/_design/d/_view/v 200 ok 36\n"
        )
    }

    struct Log {
        _directory: tempfile::TempDir,
        path: PathBuf,
        pipes: Pipes,
        reads: LogReads,
    }

    impl Log {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("couchdb.pipe");
            mknodat(CWD, &path, FileType::Fifo, 0o600.into(), 0).unwrap();
            let (pipes, reads) = (Pipes::default(), LogReads::default());
            let mut log = Self { _directory: directory, path, pipes, reads };
            log.look();
            log
        }

        fn look(&mut self) -> Vec<String> {
            let (others, problems) = self.pipes.open(std::slice::from_ref(&self.path));
            assert_eq!(others, [""; 0].map(PathBuf::from));
            problems
        }

        /// A writer; opening it does not block, because the pipe is read.
        fn writer(&self) -> File {
            File::options().write(true).open(&self.path).unwrap()
        }

        /// Reads what was written, with this machine's clock at this time.
        async fn read(&mut self, at: &str) {
            self.pipes.readable().await;
            let now = Moment::parse(&format!("2026-11-27T{at}:00Z")).unwrap();
            self.reads.merge(self.pipes.read(now));
        }

        /// Writes a line at each of these times, and reads it at once.
        async fn lines(&mut self, mut writer: &File, times: &[&str]) {
            for at in times {
                writer.write_all(line(at).as_bytes()).unwrap();
                self.read(at).await;
            }
        }

        /// The hours that count as covered, and the number of reads.
        fn known(&self) -> (Vec<u32>, u64) {
            let hours =
                self.reads.days.values().fold(0, |bits, day| bits | day.hours & !day.broken);
            let reads = self.reads.days.values().flat_map(|day| day.uses.values()).sum();
            ((0..24).filter(|hour| hours & 1 << hour != 0).collect(), reads)
        }
    }

    #[tokio::test]
    async fn only_hours_read_from_beginning_to_end_are_covered() {
        let mut log = Log::new();
        let writer = log.writer();
        log.lines(&writer, &["03:20", "03:59", "04:00", "04:30"]).await;
        assert_eq!(log.known(), (vec![], 4), "the hour is not over");
        log.lines(&writer, &["05:10"]).await;
        assert_eq!(log.known(), (vec![4], 5));
        drop(writer);
        log.read("05:20").await;
        let writer = log.writer();
        log.lines(&writer, &["05:40", "06:10", "08:00"]).await;
        assert_eq!(log.known(), (vec![4, 6], 8), "no line tells of the hours 5 and 7");
        // Another process reads the pipe.
        log.pipes = Pipes::default();
        log.look();
        drop(writer);
        let writer = log.writer();
        log.lines(&writer, &["08:10", "09:00", "10:00"]).await;
        assert_eq!(log.known(), (vec![4, 6, 9], 11));
    }

    #[tokio::test]
    async fn lines_that_waited_in_the_pipe_cover_no_hour() {
        let mut log = Log::new();
        let mut writer = log.writer();
        writer.write_all((line("03:20") + &line("04:00") + &line("05:00")).as_bytes()).unwrap();
        log.read("07:30").await;
        log.lines(&writer, &["07:40", "08:00", "09:00"]).await;
        assert_eq!(log.known(), (vec![8], 6));
    }

    #[tokio::test]
    async fn first_hour_of_a_writer_with_a_fast_clock_is_not_covered() {
        let mut log = Log::new();
        let mut writer = log.writer();
        for (says, at) in [("05:20", "04:50"), ("06:05", "05:35"), ("07:00", "06:30")] {
            writer.write_all(line(says).as_bytes()).unwrap();
            log.read(at).await;
        }
        assert_eq!(log.known(), (vec![6], 3));
    }

    #[tokio::test]
    async fn partial_lines_are_joined_unless_their_writer_ends() {
        let mut log = Log::new();
        let (text, mut writer) = (line("03:20"), log.writer());
        let (begin, rest) = text.split_at(60);
        writer.write_all(begin.as_bytes()).unwrap();
        log.read("03:20").await;
        assert_eq!(log.known().1, 0);
        writer.write_all((rest.to_owned() + begin).as_bytes()).unwrap();
        log.read("03:20").await;
        assert_eq!(log.known().1, 1);
        drop(writer);
        log.read("03:21").await;
        let mut writer = log.writer();
        writer.write_all((rest.to_owned() + &text).as_bytes()).unwrap();
        log.read("03:22").await;
        assert_eq!(log.known().1, 2);
    }

    #[tokio::test]
    async fn pipe_that_never_had_a_request_is_reported() {
        let mut log = Log::new();
        assert_eq!(log.look().len(), 1);
        drop(log.writer());
        log.read("03:00").await;
        assert_eq!(log.look(), [""; 0], "it was opened again");
        // Another pipe takes its place.
        fs::remove_file(&log.path).unwrap();
        mknodat(CWD, &log.path, FileType::Fifo, 0o600.into(), 0).unwrap();
        log.look();
        log.lines(&log.writer(), &["03:00"]).await;
        assert_eq!(log.look(), [""; 0]);
        assert_eq!(log.known().1, 1);
    }
}
