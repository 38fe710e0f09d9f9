//! One log: a file, possibly compressed, or a stream.

use access_log::{Line, LineReader, LogReads, read_line};
use flate2::bufread::MultiGzDecoder;
use rustix::fs::{Mode, OFlags};
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom},
    path::Path,
};
use xxhash_rust::xxh3::xxh3_64;

/// Number of bytes read at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// The first bytes of a compressed file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Maximum number of bytes of a first line that are compared.
const MAX_FINGERPRINT_BYTES: usize = 4 << 10;

/// The amount that was read from a log.
#[derive(Debug, Default)]
pub struct ReadLog {
    /// Number of lines.
    pub lines: u64,
    /// Number of lines that are requests.
    pub requests: u64,
    /// Bytes of whole lines.
    pub bytes: u64,
}

/// Reads a stream to its end and adds its requests; lines that do not name a node are attributed to
/// `log`.
///
/// # Errors
/// The error of the stream; everything before it was added.
pub fn read_stream(
    stream: impl BufRead,
    log: &str,
    reads: &mut LogReads,
) -> Result<ReadLog, (ReadLog, io::Error)> {
    let mut done = ReadLog::default();
    let mut lines = LineReader::new(stream);
    let ended = lines.for_each(|line| {
        done.lines += 1;
        if let Line::Request(request) = read_line(line) {
            done.requests += 1;
            reads.add(request, log);
        }
        true
    });
    done.bytes = lines.position();
    match ended {
        Ok(()) => Ok(done),
        Err(why) => Err((done, why)),
    }
}

impl ReadLog {
    /// Reads a file and adds its requests.
    ///
    /// # Errors
    /// If it cannot be read to its end; everything before was added.
    pub fn of_file(path: &Path, reads: &mut LogReads) -> Result<Self, (Self, io::Error)> {
        let stream = open(path).map_err(|why| (Self::default(), why))?;
        read_stream(stream, &path.display().to_string(), reads)
    }
}

/// Opens a file, and uncompresses it if it is compressed.
fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    Ok(match LogFile::of(File::open(path)?)? {
        LogFile::Plain(file) => Box::new(file),
        LogFile::Compressed(text) => text,
    })
}

/// An open file.
#[derive(Debug)]
pub(super) enum LogFile {
    Plain(BufReader<File>),
    Compressed(Box<BufReader<MultiGzDecoder<BufReader<File>>>>),
}

impl LogFile {
    /// Opens a regular file; a pipe or device that took its place does not block.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        Self::of(file)
    }

    fn of(file: File) -> io::Result<Self> {
        let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
        Ok(if file.fill_buf()?.starts_with(&GZIP) {
            let text = MultiGzDecoder::new(file);
            Self::Compressed(Box::new(BufReader::with_capacity(BUFFER_BYTES, text)))
        } else {
            Self::Plain(file)
        })
    }

    /// Identifies the text, regardless of the file's name and compression, by its first line. `None` until that
    /// line is complete.
    pub(super) fn fingerprint(&mut self) -> io::Result<Option<u64>> {
        let begin = match self {
            Self::Plain(file) => file.fill_buf()?,
            Self::Compressed(text) => text.fill_buf()?,
        };
        let begin = &begin[..begin.len().min(MAX_FINGERPRINT_BYTES)];
        let line = begin.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
        let is_whole = line.ends_with(b"\n") || line.len() == MAX_FINGERPRINT_BYTES;
        Ok(is_whole.then(|| xxh3_64(line)))
    }

    /// Skips the first `bytes` bytes of the text.
    pub(super) fn skip(&mut self, bytes: u64) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.seek(SeekFrom::Start(bytes)).map(drop),
            Self::Compressed(text) => io::copy(&mut text.take(bytes), &mut io::sink()).map(drop),
        }
    }

    /// Adds lines until the end or, for an uncompressed file, until `max_bytes`; returns the bytes of whole lines and
    /// whether there may be more.
    pub(super) fn read(
        &mut self,
        log: &str,
        max_bytes: u64,
        reads: &mut LogReads,
    ) -> io::Result<(u64, bool)> {
        match self {
            Self::Plain(file) => read_lines(file, log, max_bytes, reads),
            // Continuing later would mean uncompressing everything before again.
            Self::Compressed(text) => read_lines(text, log, u64::MAX, reads),
        }
    }
}

fn read_lines(
    stream: impl BufRead,
    log: &str,
    max_bytes: u64,
    reads: &mut LogReads,
) -> io::Result<(u64, bool)> {
    let mut lines = LineReader::new(stream);
    let (mut seen, mut more) = (0, false);
    lines.for_each(|line| {
        if let Line::Request(request) = read_line(line) {
            reads.add(request, log);
        }
        seen += line.len() as u64 + 1;
        more = seen >= max_bytes;
        !more
    })?;
    Ok((lines.position(), more))
}
