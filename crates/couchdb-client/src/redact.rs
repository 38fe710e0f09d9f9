//! Removes a login's password from texts, in every form in which it is sent.
//!
//! A password that could be an ordinary word is hidden only where a text quotes it as a value.
//! Hiding it everywhere would garble messages and give it away: a reader of `[hidden]@couch-a` can
//! guess the hidden word.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret as _, SecretString};

/// The replacement for a secret.
const REPLACEMENT: &str = "[hidden]";

/// A text of at least this many bytes is never an ordinary word.
const MIN_LONG: usize = 16;

/// A shorter text may be part of a word by chance.
const MIN_DISTINCT: usize = 8;

/// The endings of names of fields that hold a password.
const NAMES: [&str; 5] = ["password", "passwd", "passphrase", "pass", "pwd"];

/// The secrets to hide.
#[derive(Clone, Debug, Default)]
pub(super) struct Redactor {
    user: String,
    /// The password in every form in which it may be written.
    passwords: Vec<SecretString>,
    /// User and password in one token, which is never an ordinary word.
    token: Option<SecretString>,
}

impl Redactor {
    /// Hides the password of `user`, both plain and in the forms used in URLs and JSON, and
    /// `token`, which contains user and password.
    pub(super) fn new(user: &str, password: &str, token: String) -> Self {
        let in_url = utf8_percent_encode(password, NON_ALPHANUMERIC).to_string();
        let json = serde_json::Value::from(password).to_string();
        let in_json = json.trim_start_matches('"').trim_end_matches('"').to_owned();
        let mut passwords = vec![password.to_owned(), in_url, in_json];
        passwords.retain(|secret| !secret.is_empty());
        // The longest first, because one may contain another.
        passwords.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        passwords.dedup();
        let passwords = passwords.into_iter().map(SecretString::from).collect();
        Self { user: user.to_owned(), passwords, token: Some(token.into()) }
    }

    /// `text` without the secrets, and without the cookie that the request carried.
    pub(super) fn redact(&self, text: &str, cookie: Option<&str>) -> String {
        let token = self.token.as_ref().map(SecretString::expose_secret);
        let whole = token.into_iter().chain(cookie).filter(|secret| !secret.is_empty());
        let text = whole.fold(text.to_owned(), |text, secret| text.replace(secret, REPLACEMENT));
        let passwords = self.passwords.iter().map(SecretString::expose_secret);
        passwords.fold(text, |text, secret| self.without(&text, secret))
    }

    fn without(&self, text: &str, secret: &str) -> String {
        if !is_wordlike(secret) {
            return text.replace(secret, REPLACEMENT);
        }
        let mut shown = String::with_capacity(text.len());
        let (mut rest, mut from) = (0, 0);
        // A value may begin inside text that only looks like one: `::` in `adm:::`.
        while let Some(found) = text.get(from..).and_then(|left| left.find(secret)) {
            let at = from + found;
            let end = at + secret.len();
            let (before, after) = (text.get(..at), text.get(end..));
            let is_value =
                before.zip(after).is_some_and(|(before, after)| self.quotes(before, after));
            if is_value {
                shown.push_str(text.get(rest..at).unwrap_or_default());
                shown.push_str(REPLACEMENT);
                (rest, from) = (end, end);
            } else {
                from = at + secret.chars().next().map_or(1, char::len_utf8);
            }
        }
        shown.push_str(text.get(rest..).unwrap_or_default());
        shown
    }

    /// Whether the text between these two is quoted as a value.
    fn quotes(&self, before: &str, after: &str) -> bool {
        let marks = |letter: char| matches!(letter, '"' | '\'' | '`');
        let opened = before.chars().next_back().filter(|last| marks(*last));
        if opened.is_some() && opened == after.chars().next() {
            return true;
        }
        if after.starts_with(char::is_alphanumeric) {
            return false;
        }
        let spaced = |letter: char| letter == ' ' || marks(letter) || letter == '\\';
        let Some(key) = before.trim_end_matches(spaced).strip_suffix([':', '=']) else {
            return false;
        };
        let key = key.trim_end_matches(spaced);
        let named = NAMES.iter().any(|name| {
            let start = key.len().checked_sub(name.len());
            start.and_then(|start| key.get(start..)).is_some_and(|it| it.eq_ignore_ascii_case(name))
        });
        named || (!self.user.is_empty() && key.ends_with(&self.user))
    }
}

/// Whether a text could appear in a message by chance.
fn is_wordlike(secret: &str) -> bool {
    let letters = secret.chars().count();
    let one_case = !(secret.contains(char::is_lowercase) && secret.contains(char::is_uppercase));
    let word = one_case && secret.chars().all(char::is_alphabetic);
    letters < MIN_DISTINCT || (word && letters < MIN_LONG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wordlike_password_is_hidden_only_as_a_value() {
        for (password, text, expected) in [
            ("pass", "Name or password is incorrect.", "Name or password is incorrect."),
            ("password", "Name or password is incorrect.", "Name or password is incorrect."),
            ("a", "You are not a server admin.", "You are not a server admin."),
            ("adm", "adm is not a server admin", "adm is not a server admin"),
            ("couchdb", "no such node: couchdb@a", "no such node: couchdb@a"),
            ("couchdb", "couchdb:5984 is down", "couchdb:5984 is down"),
            ("pass", r#"you sent "pass" and "password""#, r#"you sent "[hidden]" and "password""#),
            ("a", "adm:a@couch-a", "adm:[hidden]@couch-a"),
            ("pass", "adm:password", "adm:password"),
            (
                "pass",
                r#"{"name":"adm","password":"pass"}"#,
                r#"{"name":"adm","password":"[hidden]"}"#,
            ),
            ("a", "name=adm&password=a&next=a", "name=adm&password=[hidden]&next=a"),
            ("pass", "Password: pass.", "Password: [hidden]."),
            ("pass", "pass pass 'pass'", "pass pass '[hidden]'"),
            ("p@s", "adm:p%40s@couch", "adm:[hidden]@couch"),
            ("hunter2", "hunter2", "hunter2"),
            ("::", "adm:::, \"::\"", "adm:[hidden], \"[hidden]\""),
        ] {
            let hidden = Redactor::new("adm", password, "YWRtOmhlcmU=".to_owned());
            assert_eq!(hidden.redact(text, None), expected, "{password}");
        }
    }

    #[test]
    fn distinctive_password_is_hidden_everywhere() {
        for password in ["hunter22", "Hunterhunter", "correct horse", "abcdefghijklmnop"] {
            let hidden = Redactor::new("adm", password, "YWRtOmhlcmU=".to_owned());
            let text = format!("x{password}x and YWRtOmhlcmU= and cookie.value.1");
            let shown = hidden.redact(&text, Some("cookie.value.1"));
            assert_eq!(shown, "x[hidden]x and [hidden] and [hidden]");
            assert!(!format!("{hidden:?}").contains(password));
        }
    }

    proptest! {
        #[test]
        fn redaction_changes_only_secrets(password in "[ -~]{1,12}", text in "[ -~]{0,60}") {
            let hidden = Redactor::new("adm", &password, "YWRtOmhlcmU=".to_owned());
            let shown = hidden.redact(&text, None);
            if !text.contains(&password) && !text.contains('%') && !text.contains('\\') {
                prop_assert_eq!(&shown, &text);
            }
            let text_with_secrets = format!("{text} adm:{password}, \"{password}\" {text}");
            let shown = hidden.redact(&text_with_secrets, None);
            prop_assert!(shown.matches("[hidden]").count() >= 2, "{}", shown);
        }
    }
}
