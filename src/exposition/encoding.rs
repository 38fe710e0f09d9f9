//! The coding of an answer: as it is, or compressed.
//!
//! Owns the reading of `Accept-Encoding` and the one coding offered, gzip.

use super::negotiation::items;
use flate2::{Compression, write::GzEncoder};
use std::io::Write;

/// Whether a client takes gzip, given the value of its `Accept-Encoding` header, and does
/// not like an uncompressed answer better. Without the header it gets none.
#[must_use]
pub fn accepts_gzip(accept_encoding: Option<&str>) -> bool {
    let (mut gzip, mut identity, mut any) = (None, None, None);
    for item in items(accept_encoding.unwrap_or_default()) {
        let Some(quality) = item.quality else { continue };
        let named = match item.name.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => &mut gzip,
            "identity" => &mut identity,
            "*" => &mut any,
            _ => continue,
        };
        *named = Some(named.map_or(quality, |before: f64| before.max(quality)));
    }
    let gzip = gzip.or(any).unwrap_or(0.0);
    gzip > 0.0 && gzip >= identity.unwrap_or(0.0)
}

/// How a text is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Coding {
    /// As it is.
    #[default]
    Identity,
    /// Compressed.
    Gzip,
}

/// Compresses a text as it comes, at the fastest level: metrics shrink to an eighth or
/// less, and the default level costs five times the time.
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
        // Writing into a `Vec` returns no error, and the encoder adds none of its own.
        self.0.write_all(text.as_bytes()).expect("a Vec takes every write");
        text.clear();
    }

    /// Ends the coded text.
    pub(super) fn finish(mut self, mut rest: String) -> Vec<u8> {
        self.take(&mut rest);
        self.0.finish().expect("a Vec takes every write")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn gzip_goes_to_those_who_take_it() {
        for (header, expected) in [
            ("gzip", true),
            ("GZIP", true),
            ("x-gzip", true),
            ("gzip, deflate, br", true),
            ("deflate, br", false),
            ("gzip;q=0", false),
            ("gzip;q=0.0, *", false),
            ("*", true),
            ("*;q=0", false),
            ("br;q=1.0, gzip;q=0.8, *;q=0.1", true),
            ("identity", false),
            ("identity, gzip;q=0.5", false),
            ("identity;q=0.5, gzip", true),
            ("identity;q=0", false),
            ("gzip;q=nonsense", false),
            ("", false),
        ] {
            assert_eq!(accepts_gzip(Some(header)), expected, "{header}");
        }
        assert!(!accepts_gzip(None));
    }

    #[test]
    fn what_was_compressed_unpacks_to_itself() {
        for pieces in [0, 1, 10_000] {
            let (mut packed, mut text) = (Gzip::new(), String::new());
            for piece in 0..pieces {
                let mut line = format!("recliner_node_up{{node=\"{}\"}} 1\n", piece % 3);
                text.push_str(&line);
                packed.take(&mut line);
                assert_eq!(line, "");
            }
            text.push_str("# EOF\n");
            let packed = packed.finish("# EOF\n".to_owned());
            let mut back = String::new();
            flate2::read::GzDecoder::new(&*packed).read_to_string(&mut back).unwrap();
            assert_eq!(back, text);
            assert!(packed.len() < text.len() / 20 + 64);
        }
    }
}
