//! The encoding of an answer: plain or compressed.
//!
//! Owns the parsing of `Accept-Encoding` and gzip, the only encoding offered.

use super::negotiation::parse_list;

/// Whether a client accepts gzip and does not prefer an uncompressed answer, given the value of
/// its `Accept-Encoding` header. Without the header, the answer is not compressed.
pub fn accepts_gzip(accept_encoding: Option<&str>) -> bool {
    let (mut gzip, mut identity, mut any) = (None, None, None);
    for item in parse_list(accept_encoding.unwrap_or_default()) {
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

/// The encoding of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Plain.
    #[default]
    Identity,
    /// Compressed.
    Gzip,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_used_only_if_accepted() {
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
}
