//! One log: a file, perhaps compressed, or a stream.

use access_log::{Line, LineReader, LogReads, read_line};
use flate2::bufread::MultiGzDecoder;
use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
};

/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// The first bytes of a compressed file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// What was read of a log.
#[derive(Debug, Default)]
pub struct ReadLog {
    /// Number of lines.
    pub lines: u64,
    /// Number of lines that are requests.
    pub requests: u64,
    /// Bytes of whole lines.
    pub bytes: u64,
}

/// Adds what a stream says until it ends; lines that do not name a node are those of `log`.
///
/// # Errors
/// The error of the stream; what came before it was added.
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
    /// Adds what a file says.
    ///
    /// # Errors
    /// Why it cannot be read to its end; what came before was added.
    pub fn of_file(path: &Path, reads: &mut LogReads) -> Result<Self, (Self, io::Error)> {
        let stream = open(path).map_err(|why| (Self::default(), why))?;
        read_stream(stream, &path.display().to_string(), reads)
    }
}

/// Opens a file, and uncompresses it if it is compressed.
pub(super) fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    let mut file = BufReader::with_capacity(BUFFER_BYTES, File::open(path)?);
    if file.fill_buf()?.starts_with(&GZIP) {
        let text = MultiGzDecoder::new(file);
        return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, text)));
    }
    Ok(Box::new(file))
}
