//! The coding of an answer: as it is, or compressed.
//!
//! Owns the reading of `Accept-Encoding` and the one coding offered, gzip.

use super::negotiation::items;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
