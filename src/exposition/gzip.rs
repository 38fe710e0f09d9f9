//! Compressing a text as it comes.
//!
//! Owns the encoder and, for a large text, the thread it works on. Never sees what the text
//! says. Used by the writer alone.

use flate2::{Compression, write::GzEncoder};
use std::{
    io::Write as _,
    panic,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{Builder, JoinHandle},
};

/// A text longer than this is compressed on a thread of its own while it is written: both
/// take about as long, and nobody waits for the sum. A shorter one is done sooner than that.
const LARGE: usize = 1 << 20;

/// Pieces that may wait to be compressed.
const AHEAD: usize = 8;

type Encoder = GzEncoder<Vec<u8>>;

/// Compresses at the fastest level: metrics shrink to an eighth or less, and the default
/// level costs five times the time.
///
/// Piece by piece, because a hundred thousand series are twenty megabytes: to fetch so
/// much memory, fill it and read it again costs a quarter of the whole scrape.
#[derive(Debug)]
pub(super) struct Gzip {
    /// The encoder, as long as it works here.
    here: Option<Encoder>,
    beside: Option<Beside>,
    taken: usize,
}

/// An encoder on a thread of its own.
#[derive(Debug)]
struct Beside {
    full: SyncSender<String>,
    /// Pieces that were compressed, to be filled again.
    empty: Receiver<String>,
    thread: JoinHandle<Option<Encoder>>,
}

fn write(encoder: &mut Encoder, text: &str) {
    // Writing into a `Vec` returns no error, and the encoder adds none of its own.
    encoder.write_all(text.as_bytes()).expect("a Vec takes every write");
}

impl Gzip {
    pub(super) fn new() -> Self {
        let here = Some(GzEncoder::new(Vec::new(), Compression::fast()));
        Self { here, beside: None, taken: 0 }
    }

    /// Takes over what was written so far.
    pub(super) fn take(&mut self, text: &mut String) {
        self.taken += text.len();
        if self.taken > LARGE && self.beside.is_none() {
            self.beside = self.here.take().and_then(|encoder| self.moved(encoder));
        }
        if let Some(encoder) = &mut self.here {
            write(encoder, text);
            text.clear();
        } else if let Some(beside) = &self.beside {
            let empty = beside.empty.try_recv();
            let empty = empty.unwrap_or_else(|_| String::with_capacity(text.capacity()));
            // A thread that ended too soon has panicked: that shows at the end.
            let _ended = beside.full.send(std::mem::replace(text, empty));
        }
    }

    /// The encoder on a thread of its own; where none is to be had it stays here.
    fn moved(&mut self, encoder: Encoder) -> Option<Beside> {
        let (hand, taken) = sync_channel::<Encoder>(1);
        let (full, pieces) = sync_channel::<String>(AHEAD);
        let (spent, empty) = sync_channel::<String>(AHEAD);
        let work = move || {
            let mut encoder = taken.recv().ok()?;
            for mut piece in pieces {
                write(&mut encoder, &piece);
                piece.clear();
                // One too many is given back to the system.
                let _full = spent.try_send(piece);
            }
            Some(encoder)
        };
        match Builder::new().name("gzip".to_owned()).spawn(work) {
            Ok(thread) => {
                // It waits for nothing else.
                let _ended = hand.send(encoder);
                Some(Beside { full, empty, thread })
            }
            Err(_) => {
                self.here = Some(encoder);
                None
            }
        }
    }

    /// Ends the coded text.
    pub(super) fn finish(mut self, mut rest: String) -> Vec<u8> {
        self.take(&mut rest);
        let encoder = match self.beside {
            Some(Beside { full, thread, .. }) => {
                drop(full);
                match thread.join() {
                    Ok(encoder) => encoder,
                    Err(panic) => panic::resume_unwind(panic),
                }
            }
            None => self.here,
        };
        let whole = encoder.map(|encoder| encoder.finish().expect("a Vec takes every write"));
        whole.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn what_was_compressed_unpacks_to_itself() {
        // The last is more than what is compressed on the thread that writes.
        for pieces in [0, 1, 10_000, 100_000] {
            let (mut packed, mut text) = (Gzip::new(), String::new());
            for piece in 0..pieces {
                let mut line = format!("recliner_node_up{{node=\"{}\"}} 1\n", piece % 3);
                text.push_str(&line);
                packed.take(&mut line);
                assert_eq!(line, "");
            }
            assert_eq!(packed.beside.is_some(), text.len() > LARGE);
            text.push_str("# EOF\n");
            let packed = packed.finish("# EOF\n".to_owned());
            let mut back = String::new();
            flate2::read::GzDecoder::new(&*packed).read_to_string(&mut back).unwrap();
            assert_eq!(back, text);
            assert!(packed.len() < text.len() / 20 + 64);
        }
    }
}
