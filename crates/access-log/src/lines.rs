//! The lines of a stream, in bounded memory.

use std::io::{self, BufRead, ErrorKind};

/// Longest line that is read; a longer one cannot be a request and is skipped.
pub const MAX_LINE_BYTES: usize = 64 << 10;

/// Reads whole lines of a stream, with bounded memory. A line without an end is left for later.
#[derive(Debug)]
pub struct LineReader<R> {
    stream: R,
    /// The start of the current line, if it did not arrive in one piece.
    begun: Vec<u8>,
    /// Whether the line that is being read is longer than allowed.
    is_too_long: bool,
    /// Bytes of the lines that were read to their end.
    done: u64,
    /// Bytes of the line that is being read.
    pending: u64,
}

impl<R: BufRead> LineReader<R> {
    /// Reads from a stream.
    pub const fn new(stream: R) -> Self {
        Self { stream, begun: Vec::new(), is_too_long: false, done: 0, pending: 0 }
    }

    /// Bytes of all lines that were read to their end.
    pub const fn position(&self) -> u64 {
        self.done
    }

    /// The underlying stream.
    pub const fn stream(&self) -> &R {
        &self.stream
    }

    /// Calls `see` with each whole line, until the stream ends or `see` returns false. A line that is too long is
    /// passed as an empty one.
    ///
    /// # Errors
    ///
    /// The error of the stream.
    pub fn for_each(&mut self, mut see: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
        loop {
            let buffer = match self.stream.fill_buf() {
                Ok([]) => return Ok(()),
                Ok(buffer) => buffer,
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                Err(why) => return Err(why),
            };
            let (mut used, mut goes_on) = (0, true);
            for piece in buffer.split_inclusive(|byte| *byte == b'\n') {
                used += piece.len();
                let Some(end) = piece.strip_suffix(b"\n") else {
                    self.pending += piece.len() as u64;
                    self.is_too_long |= self.begun.len() + piece.len() > MAX_LINE_BYTES;
                    if self.is_too_long {
                        self.begun = Vec::new();
                    } else {
                        self.begun.extend_from_slice(piece);
                    }
                    break;
                };
                let is_too_long = self.is_too_long || self.begun.len() + end.len() > MAX_LINE_BYTES;
                goes_on = if is_too_long {
                    see(b"")
                } else if self.begun.is_empty() {
                    see(end)
                } else {
                    self.begun.extend_from_slice(end);
                    see(&self.begun)
                };
                self.begun.clear();
                self.is_too_long = false;
                self.done += self.pending + piece.len() as u64;
                self.pending = 0;
                if !goes_on {
                    break;
                }
            }
            self.stream.consume(used);
            if !goes_on {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn lines(text: &[u8], buffer: usize) -> (Vec<Vec<u8>>, u64) {
        let mut reader = LineReader::new(BufReader::with_capacity(buffer, text));
        let mut all = Vec::new();
        reader
            .for_each(|line| {
                all.push(line.to_vec());
                true
            })
            .unwrap();
        (all, reader.position())
    }

    #[test]
    fn only_complete_lines_are_read_with_any_buffer_size() {
        let text = b"one\n\ntwo and more\nhalf";
        for buffer in 1..30 {
            let (all, position) = lines(text, buffer);
            assert_eq!(all, [&b"one"[..], b"", b"two and more"], "{buffer}");
            assert_eq!(position, 18, "the half line is not read yet");
        }
    }

    #[test]
    fn too_long_line_is_skipped() {
        let mut text = vec![b'x'; 3 * MAX_LINE_BYTES];
        text.extend_from_slice(b"\nnext\n");
        for buffer in [7, 8 << 10, 1 << 20] {
            let (all, position) = lines(&text, buffer);
            assert_eq!(all, [&b""[..], b"next"], "{buffer}");
            assert_eq!(position, text.len() as u64);
        }
    }

    #[test]
    fn a_reader_can_stop_and_continue() {
        let mut reader = LineReader::new(&b"a\nb\nc\n"[..]);
        let mut seen = Vec::new();
        reader
            .for_each(|line| {
                seen.push(line.to_vec());
                false
            })
            .unwrap();
        assert_eq!(reader.position(), 2);
        reader
            .for_each(|line| {
                seen.push(line.to_vec());
                true
            })
            .unwrap();
        assert_eq!(seen, [b"a", b"b", b"c"]);
    }
}
