//! Sizes in bytes: parsing them from a configuration and formatting them for people.
//!
//! `bytesize` parses `20GB` as decimal and `512MiB` as binary. Output is always binary, because
//! CouchDB's own limits are binary.

use std::fmt;

/// Why a text is not a size.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{text:?} is not a size: write a number of bytes with an optional unit, such as 512MiB or 20GB"
)]
pub(crate) struct ParseSizeError {
    text: String,
}

/// Parses a size such as `1048576`, `20GB` or `512MiB` into bytes.
///
/// # Errors
/// If the text has no number, has an unknown unit, or is negative.
pub(crate) fn parse(text: &str) -> Result<u64, ParseSizeError> {
    text.trim()
        .parse::<bytesize::ByteSize>()
        .map(|size| size.as_u64())
        .map_err(|_| ParseSizeError { text: text.to_owned() })
}

/// The sign in front of a sum, given the numbers of its unknown and its estimated parts.
pub(crate) const fn bound(unknown: u64, estimated: u64) -> &'static str {
    match (unknown, estimated) {
        (0, 0) => "",
        (0, _) => "≈ ",
        (..) => "≥ ",
    }
}

/// The same as words.
pub(crate) const fn bound_in_words(unknown: u64, estimated: u64) -> &'static str {
    match (unknown, estimated) {
        (0, 0) => "",
        (0, _) => "about ",
        (..) => "at least ",
    }
}

/// Formats bytes for tables: `873 B`, `1.5 MiB`, `12.0 GiB`.
pub(crate) fn format_size(bytes: u64) -> impl fmt::Display {
    bytesize::ByteSize(bytes).display().iec()
}

/// Formats bytes for a sentence, with at most three digits and no trailing zero: `1.5 MiB`, `512
/// MiB`.
pub(crate) fn format_size_short(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    // A value that would be rounded to 1024 is shown in the next unit.
    while value >= 1023.5
        && let Some(larger) = units.next()
    {
        value /= 1024.0;
        unit = Some(larger);
    }
    let text = if value < 99.95 { format!("{value:.1}") } else { format!("{value:.0}") };
    let text = text.strip_suffix(".0").unwrap_or(&text);
    format!("{text} {}", unit.unwrap_or(&"B"))
}

/// A change of bytes with its sign.
pub(crate) fn signed(bytes: i64) -> String {
    let sign = match bytes {
        1.. => "+",
        0 => "",
        ..0 => "−",
    };
    format!("{sign}{}", format_size_short(bytes.unsigned_abs()))
}

/// Formats a part of a number of bytes for a sentence, with the unit only once if both have the
/// same one: `2.2 of 2.3 TiB`, `12 MiB of 2.3 TiB`.
pub(crate) fn format_part(part: u64, whole: u64) -> String {
    let (part, whole) = (format_size_short(part), format_size_short(whole));
    let same = part.split_once(' ').zip(whole.split_once(' '));
    match same {
        Some(((number, one), (_, other))) if one == other => format!("{number} of {whole}"),
        _ => format!("{part} of {whole}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_unit_of_part_and_whole_is_shown_once() {
        assert_eq!(format_part(900 << 30, 901 << 30), "900 of 901 GiB");
        assert_eq!(format_part(12 << 20, 2 << 40), "12 MiB of 2 TiB");
    }

    #[test]
    fn short_size_has_at_most_three_digits() {
        for (bytes, expected) in [
            (0, "0 B"),
            (873, "873 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1_618_187, "1.5 MiB"),
            (512 << 20, "512 MiB"),
            ((100 << 20) - 1, "100 MiB"),
            ((1 << 30) - 1, "1 GiB"),
            (20 << 30, "20 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(format_size_short(bytes), expected);
        }
    }

    #[test]
    fn parses_decimal_and_binary_units() {
        for (text, bytes) in [
            ("0", 0),
            ("1048576", 1 << 20),
            ("20GB", 20_000_000_000),
            ("20 GB", 20_000_000_000),
            ("512MiB", 512 << 20),
            ("2TiB", 2 << 40),
            ("1.5KiB", 1536),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn error_quotes_the_invalid_size() {
        for text in ["", "GB", "-1", "12 parsecs"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} is not a size")), "{error}");
        }
    }

    #[test]
    fn formats_binary_units() {
        assert_eq!(format_size(873).to_string(), "873 B");
        assert_eq!(format_size(12 << 30).to_string(), "12.0 GiB");
    }
}
