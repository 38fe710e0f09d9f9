//! Characters of label values and help that the text formats escape.

/// Appends a label's value, escaped the same way in both formats.
#[inline]
pub(super) fn push_escaped(out: &mut String, text: &str) {
    // Without an early exit, the compiler vectorises this to sixteen bytes at a time.
    let special = |byte: u8| matches!(byte, b'"' | b'\\' | b'\n');
    if text.bytes().fold(false, |any, byte| any | special(byte)) {
        text.chars().for_each(|c| push_char(out, c, true));
    } else {
        out.push_str(text);
    }
}

/// Appends a character. All other characters are written as they are, including NUL and line
/// separators: Prometheus reads them back in both formats.
#[cold]
pub(super) fn push_char(out: &mut String, c: char, quoted: bool) {
    match c {
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '"' if quoted => out.push_str("\\\""),
        c => out.push(c),
    }
}
