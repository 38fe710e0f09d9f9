#![doc = include_str!("../README.md")]

use rustix::{
    event::{self, PollFd, PollFlags, Timespec},
    fs::{Mode, OFlags},
};
use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
    time::Duration,
};
use tokio::time::Instant;

/// How long a pipe may stay silent.
const MAX_SILENCE: Duration = Duration::from_secs(20);

/// How long a pipe may take in total: enough to type a passphrase into the command that writes it.
const MAX_TIME: Duration = Duration::from_secs(60);

/// Reads the first `limit` bytes of a file; `-` is standard input. The file may be an endless device, or a pipe whose
/// writer is slow or never comes.
///
/// # Errors
///
/// The system's error; for a pipe that is silent for twenty seconds or does not end within a minute, the reason, worded
/// to follow the file's name.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_within(path, limit, [MAX_SILENCE, MAX_TIME])
}

/// Reads a whole file of at most `limit` bytes.
///
/// # Errors
///
/// As [`read`], or if it is longer.
pub fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let bytes = read(path, limit.saturating_add(1))?;
    if bytes.len() as u64 <= limit {
        return Ok(bytes);
    }
    let kib = limit >> 10;
    let limit =
        if kib.is_multiple_of(1_024) { format!("{} MiB", kib >> 10) } else { format!("{kib} KiB") };
    Err(io::Error::other(format!("it is larger than {limit}")))
}

/// Reads a secret of at most `limit` bytes, without the line ending that editors append.
///
/// # Errors
///
/// As [`read_at_most`], or if it is empty or not UTF-8; worded to follow the file's name.
pub fn read_secret(path: &Path, limit: u64) -> Result<String, String> {
    let bytes = read_at_most(path, limit).map_err(|why| why.to_string())?;
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    let secret = text.trim_end_matches(['\r', '\n']);
    if secret.is_empty() { Err("it is empty".to_owned()) } else { Ok(secret.to_owned()) }
}

fn read_within(
    path: &Path,
    limit: u64,
    [max_silence, max_time]: [Duration; 2],
) -> io::Result<Vec<u8>> {
    let path = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
    // Without this flag, opening a named pipe blocks until a writer opens it.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::empty())?).take(limit);
    let mut bytes = Vec::new();
    if file.get_ref().metadata()?.is_file() {
        file.read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    let (begun, mut piece) = (Instant::now(), [0; 4_096]);
    loop {
        let left = max_time.saturating_sub(begun.elapsed());
        let wait = Timespec::try_from(max_silence.min(left)).map_err(io::Error::other)?;
        // Until the first writer comes, a read would look like the end of the file.
        let mut polled = [PollFd::new(file.get_ref(), PollFlags::IN)];
        if left.is_zero() || event::poll(&mut polled, Some(&wait))? == 0 {
            return Err(io::Error::other(if begun.elapsed() >= max_time {
                format!("it is a pipe, and did not end within {} s", max_time.as_secs())
            } else {
                let silence = max_silence.as_secs();
                format!("it is a pipe, and nothing was written to it for {silence} s")
            }));
        }
        match file.read(&mut piece) {
            Ok(0) => return Ok(bytes),
            Ok(read) => bytes.extend(piece.iter().take(read)),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
            Err(why) => return Err(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, mknodat};
    use std::{io::Write as _, thread};

    fn pipe() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        (dir, path)
    }

    /// Writes this many pieces into a pipe, with this pause before each.
    #[expect(clippy::disallowed_methods, reason = "it is a thread of its own, without a runtime")]
    fn write(path: &Path, pieces: usize, pause: Duration) -> thread::JoinHandle<()> {
        let path = path.to_owned();
        thread::spawn(move || {
            let mut pipe = File::options().write(true).open(path).unwrap();
            for _ in 0..pieces {
                thread::sleep(pause);
                if pipe.write_all(b"piece\n").is_err() {
                    return;
                }
            }
        })
    }

    const SHORT: [Duration; 2] = [Duration::from_millis(400), Duration::from_secs(1)];

    #[test]
    fn secret_is_read_without_its_trailing_line_break() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        for (bytes, read) in [
            (&b"word\r\n"[..], Ok("word")),
            (b" two words ", Ok(" two words ")),
            (b"\n", Err("it is empty")),
            (b"\xff", Err("it is not UTF-8 text")),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let expected = read.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(read_secret(&path, 1_024), expected);
        }
    }

    #[test]
    fn quick_pipe_is_read_and_slow_pipe_is_refused_with_a_reason() {
        let (_dir, path) = pipe();
        let writer = write(&path, 3, Duration::ZERO);
        assert_eq!(read_within(&path, 100, SHORT).unwrap(), b"piece\npiece\npiece\n");
        writer.join().unwrap();
        let silent = read_within(&path, 100, SHORT).unwrap_err().to_string();
        assert_eq!(silent, "it is a pipe, and nothing was written to it for 0 s");
        let writer = write(&path, 30, Duration::from_millis(100));
        let drips = read_within(&path, 1_000, SHORT).unwrap_err().to_string();
        assert_eq!(drips, "it is a pipe, and did not end within 1 s");
        writer.join().unwrap();
    }

    #[test]
    fn no_more_than_the_limit_is_read() {
        let (_dir, path) = pipe();
        let writer = write(&path, 30, Duration::ZERO);
        assert_eq!(read_within(&path, 8, SHORT).unwrap(), b"piece\npi");
        writer.join().unwrap();
        for (limit, says) in [(1 << 16, "larger than 64 KiB"), (2 << 20, "larger than 2 MiB")] {
            let endless = read_at_most(Path::new("/dev/zero"), limit).unwrap_err().to_string();
            assert!(endless.contains(says), "{endless}");
        }
    }
}
