//! Escapes text from outside so that a terminal displays it instead of interpreting it.
//!
//! Names of databases, design documents and nodes, reasons entered by operators and messages of
//! other programs may contain any character: terminal control sequences, characters that reverse
//! the direction of the following text, or invisible ones. All of them are escaped here and
//! nowhere else: in text as `\u{202e}`, in JSON as `\u202e`.

use serde::Serialize;
use serde_json::{Serializer, ser::Formatter};
use std::{borrow::Cow, io};

/// Characters that have no width, or change how their neighbours are displayed: direction marks,
/// zero-width joiners and spaces, fillers, variation selectors, tags. Taken from Unicode's format
/// characters (`Cf`), line and paragraph separators, and `Default_Ignorable_Code_Point`.
const HIDDEN_RANGES: [(char, char); 25] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// Whether a character is a control character or invisible, and therefore escaped.
pub(crate) fn is_hidden(letter: char) -> bool {
    let beyond_ascii = || {
        let after = HIDDEN_RANGES.partition_point(|(first, _)| *first <= letter);
        let range = after.checked_sub(1).and_then(|at| HIDDEN_RANGES.get(at));
        range.is_some_and(|(_, last)| letter <= *last)
    };
    letter.is_control() || (!letter.is_ascii() && beyond_ascii())
}

/// Escapes a text for use on one line; line breaks are escaped too.
pub(crate) fn escape_line(text: &str) -> Cow<'_, str> {
    escape_where(text, is_hidden)
}

/// Escapes a text that may span several lines, such as a table; line breaks are kept.
pub(crate) fn escape_lines(text: &str) -> Cow<'_, str> {
    escape_where(text, |letter| letter != '\n' && is_hidden(letter))
}

/// Escapes a line of JSON that is already serialised. Outside of strings, JSON contains none of
/// these characters except whitespace, so the line need not be parsed.
pub(crate) fn escape_json_line(text: &str) -> Cow<'_, str> {
    // Most texts are ASCII, where only DEL needs escaping; this check is fast.
    let plain = text.is_ascii() && !text.as_bytes().contains(&0x7f);
    if plain || !text.contains(is_hidden_in_json) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if is_hidden_in_json(letter) {
            push_json_escape(letter, &mut out)
        } else {
            out.push(letter)
        }
    }
    Cow::Owned(out)
}

/// `serde_json`'s compact format, with every hidden character as `\uXXXX`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EscapingJsonFormatter;

impl Formatter for EscapingJsonFormatter {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        writer.write_all(escape_json_line(fragment).as_bytes())
    }

    /// Raw JSON was serialised elsewhere and may contain hidden characters.
    fn write_raw_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        writer.write_all(escape_json_line(fragment).as_bytes())
    }
}

/// Writes a value as JSON with hidden characters escaped. It parses to the same value.
///
/// # Errors
/// When writing to `out` fails, or when a map key of the value is not a string.
pub(crate) fn write_escaped_json(
    out: impl io::Write,
    value: &(impl Serialize + ?Sized),
) -> io::Result<()> {
    Ok(value.serialize(&mut Serializer::with_formatter(out, EscapingJsonFormatter))?)
}

fn escape_where(text: &str, hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if hidden(letter) { out.extend(letter.escape_default()) } else { out.push(letter) }
    }
    Cow::Owned(out)
}

/// Control characters below U+0020 are already escaped by `serde_json`.
fn is_hidden_in_json(letter: char) -> bool {
    letter >= '\u{7f}' && is_hidden(letter)
}

fn push_json_escape(letter: char, out: &mut String) {
    for unit in letter.encode_utf16(&mut [0; 2]) {
        out.push_str(&format!("\\u{unit:04x}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, value::RawValue};

    #[test]
    fn escapes_only_control_and_invisible_characters() {
        for (text, expected) in [
            ("orders/2024+x", "orders/2024+x"),
            ("Bestände, 注文, заказы, e\u{301}", "Bestände, 注文, заказы, e\u{301}"),
            ("a\u{1b}[31m", "a\\u{1b}[31m"),
            ("a\nb\tc\r", "a\\nb\\tc\\r"),
            ("\u{9b}2J\u{7f}", "\\u{9b}2J\\u{7f}"),
            ("abc\u{202e}fdp.exe", "abc\\u{202e}fdp.exe"),
            ("ad\u{200b}min\u{feff}\u{2066}", "ad\\u{200b}min\\u{feff}\\u{2066}"),
            ("x\u{e0041}\u{fe0f}\u{ad}", "x\\u{e0041}\\u{fe0f}\\u{ad}"),
        ] {
            assert_eq!(escape_line(text), expected);
        }
        assert_eq!(escape_lines("a\nb\u{85}"), "a\nb\\u{85}");
        assert_eq!(
            escape_json_line("{\"a\":\"\u{9b}\u{e0041}\"}\n"),
            "{\"a\":\"\\u009b\\udb40\\udc41\"}\n"
        );
    }

    #[test]
    fn ranges_of_hidden_characters_are_sorted() {
        let ends: Vec<char> =
            HIDDEN_RANGES.iter().flat_map(|(first, last)| [*first, *last]).collect();
        assert!(ends.is_sorted());
    }

    proptest! {
        #[test]
        fn no_hidden_character_is_left(text in "(.|[\u{0}-\u{9f}]|[\u{2000}-\u{2070}])*") {
            prop_assert!(!escape_line(&text).contains(is_hidden));
            prop_assert!(!escape_lines(&text).contains(|letter| letter != '\n' && is_hidden(letter)));
        }

        #[test]
        fn escaped_json_parses_to_the_same_value(text in "(.|[\u{0}-\u{9f}]|[\u{2000}-\u{2070}]|[\u{e0000}-\u{e0fff}])*") {
            let mut out = Vec::new();
            let value = Value::from(text.clone());
            write_escaped_json(&mut out, &value).unwrap();
            let written = String::from_utf8(out).unwrap();
            prop_assert!(!written.contains(is_hidden), "{:?}", written);
            prop_assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), value.clone());
            let plain = serde_json::to_string(&value).unwrap();
            prop_assert_eq!(escape_json_line(&plain), &*written);
            let mut raw = Vec::new();
            write_escaped_json(&mut raw, &RawValue::from_string(plain).unwrap()).unwrap();
            prop_assert_eq!(String::from_utf8(raw).unwrap(), written);
        }
    }
}
