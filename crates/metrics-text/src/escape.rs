//! Characters of label values and help that the text formats escape.

/// Appends a label's value, escaped the same way in both formats.
#[inline]
pub(super) fn push_escaped(out: &mut String, text: &str) {
    // Without an early exit, the compiler vectorises this to sixteen bytes at a time.
    let special = |byte: u8| matches!(byte, b'"' | b'\\' | ..b' ' | 0x7f | 0xc2);
    if text.bytes().fold(false, |any, byte| any | special(byte)) {
        text.chars().for_each(|c| push_char(out, c, true));
    } else {
        out.push_str(text);
    }
}

/// A visible character in place of a control character, which a terminal would obey: its symbol if there is one. Line
/// feeds stay; the formats escape them.
pub(super) fn visible(c: char) -> char {
    match c {
        '\n' => c,
        '\0'..' ' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(char::REPLACEMENT_CHARACTER),
        '\u{7f}' => '\u{2421}',
        '\u{80}'..='\u{9f}' => char::REPLACEMENT_CHARACTER,
        c => c,
    }
}

/// Appends a character. Those that need no escape, apart from control characters, are written as they are, including
/// line separators: Prometheus reads them back in both formats.
#[cold]
pub(super) fn push_char(out: &mut String, c: char, quoted: bool) {
    match c {
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '"' if quoted => out.push_str("\\\""),
        c => out.push(visible(c)),
    }
}
