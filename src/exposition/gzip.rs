//! Compressing a text as it comes.
//!
//! Owns the encoders and, for a large text, the threads they work on. Never sees what the text
//! says. Used by the writer alone.
//!
//! The text is one member of gzip (RFC 1952), made of parts that were compressed each for
//! itself: none refers back to another, each ends on a whole byte (deflate's sync flush), and
//! an empty block ends the last. So whoever has time compresses the next part.

use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use std::{
    collections::BTreeMap,
    mem, panic,
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread::{Builder, JoinHandle, available_parallelism},
};

/// A text longer than this is compressed on other threads too while it is written; a shorter
/// one is done sooner than they begin.
const LARGE: usize = 1 << 20;

/// Pieces that may wait for a thread; where as many do, whoever writes compresses the next
/// one itself.
const AHEAD: usize = 4;

/// Threads beside the one that writes.
const HELPERS: usize = 3;

/// Nothing optional, no time, compressed at the fastest level, by an unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];

/// A last block with nothing in it.
const LAST: [u8; 2] = [3, 0];

/// Compresses at the fastest level: metrics shrink to an eighth or less, and the default
/// level costs five times the time.
///
/// Piece by piece, because a hundred thousand series are twenty megabytes: to fetch so
/// much memory, fill it and read it again costs a quarter of the whole scrape.
#[derive(Debug)]
pub(super) struct Gzip {
    encoder: Encoder,
    /// Parts that were compressed, by their places, until all before them were.
    parts: BTreeMap<usize, Part>,
    /// How many parts were handed on, and what they add up to.
    given: usize,
    crc: Crc,
    helpers: Option<Vec<Helper>>,
    taken: usize,
    /// How many pieces came.
    pieces: usize,
}

/// A piece that was compressed.
#[derive(Debug)]
struct Part {
    body: Vec<u8>,
    crc: Crc,
}

#[derive(Debug)]
struct Encoder(Compress);

impl Encoder {
    fn new() -> Self {
        Self(Compress::new(Compression::fast(), false))
    }

    /// Compresses a piece for itself.
    fn part(&mut self, text: &str) -> Part {
        self.0.reset();
        let mut crc = Crc::new();
        crc.update(text.as_bytes());
        let mut body = Vec::with_capacity(text.len() / 4 + 64);
        loop {
            let taken = usize::try_from(self.0.total_in()).unwrap_or(usize::MAX);
            let rest = text.as_bytes().get(taken..).unwrap_or_default();
            let status = self.0.compress_vec(rest, &mut body, FlushCompress::Sync);
            // Room that is left says that everything was written out.
            if body.len() < body.capacity() || !matches!(status, Ok(Status::Ok)) {
                return Part { body, crc };
            }
            body.reserve(body.len());
        }
    }
}

/// An encoder on a thread of its own.
#[derive(Debug)]
struct Helper {
    full: SyncSender<(usize, String)>,
    /// Pieces that were compressed, to be filled again.
    empty: Receiver<String>,
    /// What came of them.
    done: Receiver<(usize, Part)>,
    thread: JoinHandle<()>,
}

impl Helper {
    /// A thread that compresses what it is handed; none where none is to be had.
    fn new() -> Option<Self> {
        let (full, pieces) = sync_channel::<(usize, String)>(AHEAD);
        let (spent, empty) = sync_channel::<String>(AHEAD);
        let (parts, done) = sync_channel::<(usize, Part)>(AHEAD);
        let work = move || {
            let mut encoder = Encoder::new();
            for (at, mut piece) in pieces {
                let part = encoder.part(&piece);
                piece.clear();
                // One too many is given back to the system.
                let _full = spent.try_send(piece);
                if parts.send((at, part)).is_err() {
                    // Nobody wants the rest.
                    return;
                }
            }
        };
        let thread = Builder::new().name("gzip".to_owned()).spawn(work).ok()?;
        Some(Self { full, empty, done, thread })
    }
}

impl Gzip {
    pub(super) fn new() -> Self {
        Self {
            encoder: Encoder::new(),
            parts: BTreeMap::new(),
            given: 0,
            crc: Crc::new(),
            helpers: None,
            taken: 0,
            pieces: 0,
        }
    }

    /// Takes over what was written so far.
    pub(super) fn take(&mut self, text: &mut String) {
        self.taken += text.len();
        let at = self.pieces;
        self.pieces += 1;
        if self.taken > LARGE {
            let helpers = self.helpers.get_or_insert_with(helpers);
            let room = text.capacity();
            let mut piece = (at, mem::take(text));
            for helper in helpers {
                match helper.full.try_send(piece) {
                    Ok(()) => {
                        let empty = helper.empty.try_recv();
                        *text = empty.unwrap_or_else(|_| String::with_capacity(room));
                        return;
                    }
                    // One that ended too soon has panicked: that shows at the end.
                    Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => {
                        piece = back;
                    }
                }
            }
            *text = piece.1;
        }
        self.parts.insert(at, self.encoder.part(text));
        text.clear();
        self.collect();
    }

    /// Takes over what other threads have done.
    fn collect(&mut self) {
        for helper in self.helpers.iter().flatten() {
            self.parts.extend(helper.done.try_iter());
        }
    }

    /// As much of the coded text as is done, in order, and was not given yet.
    pub(super) fn ready(&mut self) -> Vec<u8> {
        self.collect();
        let mut ready = Vec::new();
        while let Some(part) = self.parts.remove(&self.given) {
            if self.given == 0 {
                ready.extend(HEADER);
            }
            ready.extend_from_slice(&part.body);
            self.crc.combine(&part.crc);
            self.given += 1;
        }
        ready
    }

    /// Ends the coded text; answers with what was not given yet.
    pub(super) fn finish(mut self, mut rest: String) -> Vec<u8> {
        self.take(&mut rest);
        for Helper { full, done, thread, .. } in mem::take(&mut self.helpers).into_iter().flatten()
        {
            drop(full);
            self.parts.extend(done.iter());
            if let Err(panic) = thread.join() {
                panic::resume_unwind(panic);
            }
        }
        let mut whole = self.ready();
        whole.extend(LAST);
        whole.extend(self.crc.sum().to_le_bytes());
        whole.extend(self.crc.amount().to_le_bytes());
        whole
    }
}

/// As many threads as have a core to work on.
fn helpers() -> Vec<Helper> {
    let cores = available_parallelism().map_or(1, usize::from);
    (1..cores.min(HELPERS + 1)).map_while(|_| Helper::new()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Read as _;

    /// What a strict reader of one member makes of it: nothing may follow.
    fn unpacked(packed: &[u8]) -> String {
        let mut reader = flate2::bufread::GzDecoder::new(packed);
        let mut back = String::new();
        reader.read_to_string(&mut back).unwrap();
        assert_eq!(reader.into_inner(), b"", "one member and no more");
        back
    }

    #[test]
    fn what_was_compressed_unpacks_to_itself() {
        // The last is more than what is compressed on the thread that writes.
        for pieces in [0, 1, 10_000, 100_000] {
            let (mut packed, mut text) = (Gzip::new(), String::new());
            let mut line = String::new();
            for piece in 0..pieces {
                line.push_str(&format!("recliner_node_up{{node=\"{}\"}} 1\n", piece % 3));
                if line.len() > 10_000 {
                    text.push_str(&line);
                    packed.take(&mut line);
                    assert_eq!(line, "");
                }
            }
            line.push_str("# EOF\n");
            text.push_str(&line);
            assert_eq!(packed.helpers.is_some(), text.len() > LARGE);
            let packed = packed.finish(line);
            assert_eq!(unpacked(&packed), text);
            assert!(packed.len() < text.len() / 20 + 64);
        }
    }

    proptest! {
        #[test]
        fn whatever_the_pieces_are_they_unpack_to_the_whole(
            pieces in proptest::collection::vec(("\\PC{0,40}", 0..3_000_usize), 0..12),
        ) {
            let (mut packed, mut text) = (Gzip::new(), String::new());
            for (piece, times) in &pieces {
                let mut piece = piece.repeat(*times);
                text.push_str(&piece);
                packed.take(&mut piece);
            }
            prop_assert_eq!(unpacked(&packed.finish("the end".to_owned())), text + "the end");
        }

        #[test]
        fn what_is_given_on_the_way_comes_to_the_whole(
            pieces in proptest::collection::vec(("\\PC{0,40}", 0..3_000_usize), 0..12),
        ) {
            let (mut packed, mut given, mut text) = (Gzip::new(), Vec::new(), String::new());
            for (piece, times) in &pieces {
                let mut piece = piece.repeat(*times);
                text.push_str(&piece);
                packed.take(&mut piece);
                given.extend(packed.ready());
            }
            given.extend(packed.finish("the end".to_owned()));
            prop_assert_eq!(unpacked(&given), text + "the end");
        }
    }
}
