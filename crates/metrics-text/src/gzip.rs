//! Compresses a text piece by piece.
//!
//! Owns the encoder. Never interprets the text. Only the writer uses it.

use flate2::{Compression, write::GzEncoder};
use std::{io::Write as _, mem};

/// Compresses at the fastest level: metrics shrink to an eighth or less, and the default level
/// takes five times as long.
///
/// It works in pieces because a hundred thousand series are twenty megabytes: allocating, filling
/// and rereading that much memory takes a quarter of the whole scrape.
#[derive(Debug)]
pub(super) struct GzipEncoder(GzEncoder<Vec<u8>>);

impl GzipEncoder {
    pub(super) fn new() -> Self {
        Self(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    /// Compresses the text written so far.
    pub(super) fn compress(&mut self, text: &mut String) {
        let _infallible = self.0.write_all(text.as_bytes());
        text.clear();
    }

    /// The compressed bytes that are ready and were not returned before.
    pub(super) fn take_ready(&mut self) -> Vec<u8> {
        mem::take(self.0.get_mut())
    }

    /// Ends the compressed text; returns the bytes that were not returned before.
    pub(super) fn finish(mut self, mut rest: String) -> Vec<u8> {
        self.compress(&mut rest);
        // Writing to a Vec does not fail.
        self.0.finish().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use proptest::prelude::*;
    use std::io::Read as _;

    /// Decompresses with a strict reader of a single member: nothing may follow.
    fn unpacked(packed: &[u8]) -> String {
        let (mut text, mut reader) = (String::new(), GzDecoder::new(packed));
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(reader.into_inner(), b"", "nothing follows");
        text
    }

    proptest! {
        #[test]
        fn text_in_arbitrary_pieces_round_trips(
            pieces in prop::collection::vec(".{0,300}", 0..20), rest in ".{0,300}",
        ) {
            let mut gzip = GzipEncoder::new();
            let mut packed = Vec::new();
            for piece in &pieces {
                gzip.compress(&mut piece.clone());
                packed.extend(gzip.take_ready());
            }
            packed.extend(gzip.finish(rest.clone()));
            prop_assert_eq!(unpacked(&packed), pieces.concat() + &rest);
        }
    }
}
