//! Quotes external text for languages that interpret it: shell words, YAML, PromQL, patterns of
//! `find`.
//!
//! Everything that is pasted into a shell or saved as a file is written here, so that a name
//! remains a name: it cannot end a word, comment or string, and is never expanded.

use super::escape::{escape_line, is_hidden};
use std::{borrow::Cow, fmt::Write as _};

/// A word for a POSIX shell. Characters that a terminal would interpret or hide are written as
/// octal bytes, unless the word ends in a line break, which a command substitution would drop.
pub(crate) fn shell_word(word: &str) -> Cow<'_, str> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=@%,+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Cow::Borrowed(word);
    }
    if !word.contains(is_hidden) || word.ends_with('\n') {
        return Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")));
    }
    let mut octal = String::with_capacity(word.len() * 2);
    for letter in word.chars() {
        match letter {
            '\\' => octal.push_str(r"\\"),
            '\'' => octal.push_str(r"'\''"),
            // Within double quotes, an interactive bash expands an exclamation mark.
            letter if is_hidden(letter) || letter == '!' => {
                for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
                    let written = write!(octal, r"\0{byte:03o}");
                    debug_assert!(written.is_ok(), "a String takes whatever is written");
                }
            }
            letter => octal.push(letter),
        }
    }
    Cow::Owned(format!("\"$(printf %b '{octal}')\""))
}

/// A text as a pattern of `find` that matches only this text.
pub(crate) fn find_pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

/// A line with a comment, for YAML or a shell.
pub(crate) fn comment(text: &str) -> String {
    format!("# {}\n", escape_line(text))
}

/// A YAML scalar: a word as it is if every YAML version, including 1.1, reads it as this text, and
/// otherwise quoted. Characters that are not printable ASCII are escaped, so that no parser folds
/// or drops them.
pub(crate) fn yaml_scalar(text: &str) -> Cow<'_, str> {
    if is_plain_yaml(text) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(double_quoted(text, |letter, out| {
        let code = u32::from(letter);
        match code {
            0..=0xff => write!(out, "\\x{code:02x}"),
            0x100..=0xffff => write!(out, "\\u{code:04x}"),
            _ => write!(out, "\\U{code:08x}"),
        }
    }))
}

/// A PromQL string, such as the value of a label.
pub(crate) fn promql_string(text: &str) -> String {
    double_quoted(text, |letter, out| {
        if is_hidden(letter) {
            write!(out, "\\U{:08x}", u32::from(letter))
        } else {
            out.write_char(letter)
        }
    })
}

fn double_quoted(
    text: &str,
    beyond_ascii: impl Fn(char, &mut String) -> std::fmt::Result,
) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            ' '..='~' => out.push(letter),
            letter => {
                let written = beyond_ascii(letter, &mut out);
                debug_assert!(written.is_ok(), "a String takes whatever is written");
            }
        }
    }
    out.push('"');
    out
}

fn is_plain_yaml(text: &str) -> bool {
    const TAKEN: [&str; 10] =
        ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "infinity"];
    let word = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    word && !TAKEN.contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    const NAME: &str =
        "([ -~]|[^\u{0}]|['\"$`\\\\!\\-\n\r\t\u{202e}]|\\$\\(id\\)|`id`|\\$\\{HOME\\}){0,12}";

    #[test]
    fn hostile_name_stays_one_shell_word() {
        for (word, expected) in [
            ("orders", "orders"),
            ("db:couchdb@a/shards%2F0", "db:couchdb@a/shards%2F0"),
            ("", "''"),
            ("a b", "'a b'"),
            ("$(rm -rf ~)", "'$(rm -rf ~)'"),
            ("it's", r"'it'\''s'"),
            ("a\nb", r#""$(printf %b 'a\0012b')""#),
            ("\u{202e}!\\", r#""$(printf %b '\0342\0200\0256\0041\\')""#),
        ] {
            assert_eq!(shell_word(word), expected);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn quoted_words_reach_a_shell_command_unchanged(words in prop::collection::vec(NAME, 1..8)) {
            let line: String = words.iter().map(|word| format!(" {}", shell_word(word))).collect();
            let expected: String = words.iter().map(|word| format!("{word}\0")).collect();
            for shell in ["bash", "dash"] {
                let script = format!("show() {{ printf '%s\\0' \"$@\"; }}\nshow{line}");
                let ran = Command::new(shell).args(["-c", &script]).output().unwrap();
                prop_assert_eq!(String::from_utf8_lossy(&ran.stdout), &*expected, "{}: {}", shell, line);
            }
            for word in words.iter().filter(|word| !word.ends_with('\n')) {
                prop_assert!(!shell_word(word).contains(is_hidden), "{:?}", word);
            }
        }

        #[test]
        fn hostile_name_stays_within_yaml_comment_and_scalar(name in NAME) {
            let text = format!("{}{}: [{}]\n", comment(&name), yaml_scalar(&name), yaml_scalar(&name));
            let read: std::collections::BTreeMap<String, Vec<String>> =
                yaml_serde::from_str(&text).unwrap();
            prop_assert_eq!(read, [(name.clone(), vec![name])].into());
        }

        #[test]
        fn hostile_name_stays_within_promql_string(name in NAME) {
            let query = format!("x{{a={}}}", promql_string(&name));
            let Ok(promql_parser::parser::Expr::VectorSelector(found)) =
                promql_parser::parser::parse(&query)
            else {
                panic!("{query}")
            };
            prop_assert_eq!(&found.matchers.matchers[0].value, &name);
        }
    }
}
