//! What comes from outside, written so that a terminal shows it and does not obey it.
//!
//! Names of databases, design documents and nodes, reasons of operators and sentences of other
//! programs may hold anything: letters that steer a terminal, that turn the order of what
//! follows around, or that nobody sees. Such letters are written out as escapes, here and
//! nowhere else: in texts as `\u{202e}`, in JSON as `\u202e`.

use serde::Serialize;
use serde_json::{Serializer, ser::Formatter};
use std::{borrow::Cow, io};

/// Letters that take no room or change what stands beside them: marks of direction, joiners and
/// spaces without width, fillers, variation selectors, tags. From Unicode's format characters
/// (`Cf`), line and paragraph separators, and `Default_Ignorable_Code_Point`.
const HIDDEN: [(char, char); 25] = [
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

/// Whether a letter is not shown as itself.
#[must_use]
pub fn is_hidden(letter: char) -> bool {
    let beyond_ascii = || {
        let after = HIDDEN.partition_point(|(first, _)| *first <= letter);
        let range = after.checked_sub(1).and_then(|at| HIDDEN.get(at));
        range.is_some_and(|(_, last)| letter <= *last)
    };
    letter.is_control() || (!letter.is_ascii() && beyond_ascii())
}

/// A text as one line can carry it: a line break is written out too.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, is_hidden)
}

/// A text whose line breaks are its own, such as a whole table.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| letter != '\n' && is_hidden(letter))
}

/// A line of JSON whose strings are written by somebody else. Outside of its strings JSON has
/// none of these letters but white space, so that nothing has to be parsed.
#[must_use]
pub fn json_line(text: &str) -> Cow<'_, str> {
    // Most texts are ASCII, of which one letter is hidden: whole words of bytes are looked at.
    let plain = text.is_ascii() && !text.as_bytes().contains(&0x7f);
    if plain || !text.contains(is_hidden_in_json) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if is_hidden_in_json(letter) { push_json(letter, &mut out) } else { out.push(letter) }
    }
    Cow::Owned(out)
}

/// `serde_json`'s compact form, with every hidden letter as `\uXXXX`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json;

impl Formatter for Json {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        writer.write_all(json_line(fragment).as_bytes())
    }

    /// JSON that somebody else wrote.
    fn write_raw_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        writer.write_all(json_line(fragment).as_bytes())
    }
}

/// Writes a value as JSON in which nothing is hidden: the same value for whoever parses it.
///
/// # Errors
/// What `out` says, or that a key of the value is no text.
pub fn write_json(out: impl io::Write, value: &(impl Serialize + ?Sized)) -> io::Result<()> {
    Ok(value.serialize(&mut Serializer::with_formatter(out, Json))?)
}

fn escaped(text: &str, hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if hidden(letter) { out.extend(letter.escape_default()) } else { out.push(letter) }
    }
    Cow::Owned(out)
}

/// What `serde_json` escapes by itself, below the space, is never raw in a string.
fn is_hidden_in_json(letter: char) -> bool {
    letter >= '\u{7f}' && is_hidden(letter)
}

fn push_json(letter: char, out: &mut String) {
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
    fn what_steers_or_hides_is_written_out_and_what_is_read_stays() {
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
            assert_eq!(line(text), expected);
        }
        assert_eq!(lines("a\nb\u{85}"), "a\nb\\u{85}");
        assert_eq!(
            json_line("{\"a\":\"\u{9b}\u{e0041}\"}\n"),
            "{\"a\":\"\\u009b\\udb40\\udc41\"}\n"
        );
    }

    #[test]
    fn the_ranges_are_in_order() {
        let ends: Vec<char> = HIDDEN.iter().flat_map(|(first, last)| [*first, *last]).collect();
        assert!(ends.is_sorted());
    }

    proptest! {
        #[test]
        fn no_hidden_letter_gets_through(text in "(.|[\u{0}-\u{9f}]|[\u{2000}-\u{2070}])*") {
            prop_assert!(!line(&text).contains(is_hidden));
            prop_assert!(!lines(&text).contains(|letter| letter != '\n' && is_hidden(letter)));
        }

        #[test]
        fn json_says_the_same_with_and_without(text in "(.|[\u{0}-\u{9f}]|[\u{2000}-\u{2070}]|[\u{e0000}-\u{e0fff}])*") {
            let mut out = Vec::new();
            let value = Value::from(text.clone());
            write_json(&mut out, &value).unwrap();
            let written = String::from_utf8(out).unwrap();
            prop_assert!(!written.contains(is_hidden), "{:?}", written);
            prop_assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), value.clone());
            let plain = serde_json::to_string(&value).unwrap();
            prop_assert_eq!(json_line(&plain), &*written);
            let mut raw = Vec::new();
            write_json(&mut raw, &RawValue::from_string(plain).unwrap()).unwrap();
            prop_assert_eq!(String::from_utf8(raw).unwrap(), written);
        }
    }
}
