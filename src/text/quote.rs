//! Text from outside in languages that interpret it: a shell's words, YAML, PromQL, patterns of `find`.
//!
//! Whatever is pasted into a shell or saved as a file is written here, so that a name stays a name: it ends no
//! word, comment or string, and is nowhere expanded.

use super::escape::{escape_line, is_hidden};
use std::{borrow::Cow, fmt::Write as _};

/// A word for a POSIX shell. Characters that a terminal would interpret or hide are written as their bytes in
/// octal; only line breaks at the end stay as they are, because no POSIX expansion keeps them.
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
            // Within double quotes, an interactive bash replaces what follows an exclamation mark.
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

/// A text in a pattern of `find`, which stands for itself alone.
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

/// A line of comment, in YAML or for a shell.
pub(crate) fn comment(text: &str) -> String {
    format!("# {}\n", escape_line(text))
}

/// A scalar of YAML: a word as it is if no YAML, of version 1.1 either, takes it for anything else, and otherwise
/// quoted. What is not printable ASCII is escaped, so that no reader folds or drops it.
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

/// A string of PromQL, such as the value of a label.
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
    fn a_hostile_name_stays_one_word() {
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
        fn every_shell_reads_a_word_as_it_was_meant(words in prop::collection::vec(NAME, 1..8)) {
            let line: String = words.iter().map(|word| format!(" {}", shell_word(word))).collect();
            let meant: String = words.iter().map(|word| format!("{word}\0")).collect();
            for shell in ["bash", "dash"] {
                let script = format!("show() {{ printf '%s\\0' \"$@\"; }}\nshow{line}");
                let ran = Command::new(shell).args(["-c", &script]).output().unwrap();
                prop_assert_eq!(String::from_utf8_lossy(&ran.stdout), &*meant, "{}: {}", shell, line);
            }
            for word in words.iter().filter(|word| !word.ends_with('\n')) {
                prop_assert!(!shell_word(word).contains(is_hidden), "{:?}", word);
            }
        }

        #[test]
        fn a_name_ends_no_comment_and_no_scalar(name in NAME) {
            let text = format!("{}{}: [{}]\n", comment(&name), yaml_scalar(&name), yaml_scalar(&name));
            let read: std::collections::BTreeMap<String, Vec<String>> =
                yaml_serde::from_str(&text).unwrap();
            prop_assert_eq!(read, [(name.clone(), vec![name])].into());
        }

        #[test]
        fn a_name_ends_no_string_of_promql(name in NAME) {
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
