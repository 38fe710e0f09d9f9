//! Percent-encoding of one part of a path.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

/// The characters to encode in a part of an id or of a URL path: all but RFC 3986's unreserved
/// characters, and `@`, which every node name contains.
const PART: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'@');

/// Percent-encodes one part, so that `/`, `%`, quotes, newlines and Unicode are preserved both in
/// an id and in a URL path.
pub fn encode_part(part: &str) -> PercentEncode<'_> {
    utf8_percent_encode(part, PART)
}
