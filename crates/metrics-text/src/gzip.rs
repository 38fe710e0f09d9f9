//! Compressing a text as it comes.
//!
//! Owns the encoder. Never sees what the text says. Used by the writer alone.

use flate2::{Compression, write::GzEncoder};
use std::{io::Write as _, mem};

/// Compresses at the fastest level: metrics shrink to an eighth or less, and the default
/// level costs five times the time.
///
/// Piece by piece, because a hundred thousand series are twenty megabytes: to fetch so
/// much memory, fill it and read it again costs a quarter of the whole scrape.
#[derive(Debug)]
pub(super) struct Gzip(GzEncoder<Vec<u8>>);

impl Gzip {
    pub(super) fn new() -> Self {
        Self(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    /// Takes over what was written so far.
    pub(super) fn take(&mut self, text: &mut String) {
        let _infallible = self.0.write_all(text.as_bytes());
        text.clear();
    }

    /// As much of the coded text as is done and was not given yet.
    pub(super) fn ready(&mut self) -> Vec<u8> {
        mem::take(self.0.get_mut())
    }

    /// Ends the coded text; answers with what was not given yet.
    pub(super) fn finish(mut self, mut rest: String) -> Vec<u8> {
        self.take(&mut rest);
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

    /// What a strict reader of one member makes of it: nothing may follow.
    fn unpacked(packed: &[u8]) -> String {
        let (mut text, mut reader) = (String::new(), GzDecoder::new(packed));
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(reader.into_inner(), b"", "nothing follows");
        text
    }

    proptest! {
        #[test]
        fn whatever_the_pieces_the_text_comes_back(
            pieces in prop::collection::vec(".{0,300}", 0..20), rest in ".{0,300}",
        ) {
            let mut gzip = Gzip::new();
            let mut packed = Vec::new();
            for piece in &pieces {
                gzip.take(&mut piece.clone());
                packed.extend(gzip.ready());
            }
            packed.extend(gzip.finish(rest.clone()));
            prop_assert_eq!(unpacked(&packed), pieces.concat() + &rest);
        }
    }
}
