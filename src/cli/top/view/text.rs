//! Text in cells: measuring, drawing, cutting and wrapping it.

use ratatui::{buffer::Buffer, layout::Rect, style::Style, text::Span};

/// The number of columns that a text takes.
pub(super) fn width(text: &str) -> u16 {
    u16::try_from(Span::raw(text).width()).unwrap_or(u16::MAX)
}

/// Draws a text on the first line of an area.
pub(super) fn put(buffer: &mut Buffer, area: Rect, text: &str, style: Style) {
    if area.height > 0 {
        buffer.set_stringn(area.x, area.y, text, area.width.into(), style);
    }
}

/// Shortens a text that does not fit, ending with an ellipsis.
pub(super) fn clipped(text: &str, most: u16) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let mut out = String::new();
    for letter in text.chars() {
        out.push(letter);
        if width(&out) >= most {
            out.pop();
            break;
        }
    }
    out + "…"
}

/// Wraps a text at this width, between words where possible. Leading spaces of a line stay.
pub(super) fn fold(text: &str, most: u16) -> Vec<String> {
    text.lines().flat_map(|line| fold_line(line, most.max(1))).collect()
}

fn fold_line(text: &str, most: u16) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_inclusive(' ') {
        if width(&line) + width(word.trim_end()) > most && !line.trim().is_empty() {
            lines.push(std::mem::take(&mut line).trim_end().to_owned());
        }
        for letter in word.chars() {
            if width(&line) >= most && letter != ' ' {
                lines.push(std::mem::take(&mut line));
            }
            line.push(letter);
        }
    }
    lines.push(line.trim_end().to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_between_words_where_possible() {
        for (text, expected) in [
            ("", &[][..]),
            ("one two three", &["one two", "three"]),
            ("  one two three", &["  one", "two", "three"]),
            ("abcdefghijklmnop q", &["abcdefgh", "ijklmnop", "q"]),
            ("a\n\nb", &["a", "", "b"]),
            ("12345678 9", &["12345678", "9"]),
        ] {
            assert_eq!(fold(text, 8), expected, "{text:?}");
        }
    }

    #[test]
    fn clipped_text_ends_with_an_ellipsis() {
        for (text, most, expected) in
            [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("日本語", 4, "日…"), ("日本語", 6, "日本語")]
        {
            let clipped = clipped(text, most);
            assert_eq!(clipped, expected);
            assert!(width(&clipped) <= most);
        }
    }
}
