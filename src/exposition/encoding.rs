//! Compression of an answer.
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

/// Compresses at the fastest level: metrics shrink to an eighth or less, and the default
/// level costs five times the time.
#[must_use]
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::fast());
    // Writing into a `Vec` returns no error, and the encoder adds none of its own.
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect("a Vec takes every write")
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
        for text in [String::new(), "recliner_node_up{node=\"a\"} 1\n".repeat(10_000)] {
            let packed = gzip(text.as_bytes());
            let mut back = String::new();
            flate2::read::GzDecoder::new(&*packed).read_to_string(&mut back).unwrap();
            assert_eq!(back, text);
            assert!(packed.len() < text.len() / 20 + 64);
        }
    }
}
