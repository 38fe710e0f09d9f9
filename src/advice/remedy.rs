//! What an operator types to follow advice.
//!
//! Owns how commands are written: names are quoted for a POSIX shell, and addresses and logins are variables, so
//! that a line can be pasted and no secret is shown.

use couchdb_names::encode_part;

/// What kind of remedy it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemedyKind {
    /// A line for a shell.
    Command,
    /// Lines of a configuration file.
    Configuration,
    /// Something that a person decides or does elsewhere.
    Choice,
}

impl RemedyKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Command, Self::Configuration, Self::Choice];

    /// The label in JSON.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Configuration => "configuration",
            Self::Choice => "choice",
        }
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// What kind it is.
    pub kind: RemedyKind,
    /// What it does, or what has to be decided, in a few words.
    pub says: String,
    /// What to paste; none for a choice.
    pub text: Option<String>,
}

impl Remedy {
    /// Something that a person decides or does elsewhere.
    #[must_use]
    pub fn choice(says: impl Into<String>) -> Self {
        Self { kind: RemedyKind::Choice, says: says.into(), text: None }
    }

    /// Lines of a configuration file.
    #[must_use]
    pub fn configuration(says: impl Into<String>, lines: impl Into<String>) -> Self {
        let (says, text) = (says.into(), Some(lines.into()));
        Self { kind: RemedyKind::Configuration, says, text }
    }

    /// A command of recliner's with these arguments, which are quoted.
    #[must_use]
    pub fn recliner(says: impl Into<String>, arguments: &[&str]) -> Self {
        let words = std::iter::once("recliner".to_owned());
        let words: Vec<String> =
            words.chain(arguments.iter().map(|argument| quoted(argument))).collect();
        Self::command(says, words.join(" "))
    }

    /// A line for a shell; names in it are [`quoted`].
    #[must_use]
    pub fn command(says: impl Into<String>, line: impl Into<String>) -> Self {
        Self { kind: RemedyKind::Command, says: says.into(), text: Some(line.into()) }
    }

    /// A search in the directories of a node, with `find`'s own tests; where the directories are unknown, in
    /// the reader's `$COUCHDB_DATA`.
    #[must_use]
    pub fn find_files(says: impl Into<String>, directories: &[&str], tests: &str) -> Self {
        let roots = match directories {
            [] => "\"$COUCHDB_DATA\"".to_owned(),
            known => known.iter().map(|root| quoted(root)).collect::<Vec<_>>().join(" "),
        };
        Self::command(says, format!("find {roots} {tests}"))
    }

    /// The request by which CouchDB deletes the index files of a database that no design document uses.
    #[must_use]
    pub fn view_cleanup(says: impl Into<String>, db: &str) -> Self {
        Self::couchdb(says, "POST", &[db, "_view_cleanup"], None)
    }

    /// The request by which a node gets a value of its configuration.
    #[must_use]
    pub fn set_config(
        says: impl Into<String>,
        node: &str,
        place: (&str, &str),
        value: &str,
    ) -> Self {
        let path = ["_node", node, "_config", place.0, place.1];
        Self::couchdb(says, "PUT", &path, Some(&value.into()))
    }

    /// The request by which a node returns to the default of a value of its configuration.
    #[must_use]
    pub fn unset_config(says: impl Into<String>, node: &str, place: (&str, &str)) -> Self {
        let path = ["_node", node, "_config", place.0, place.1];
        Self::couchdb(says, "DELETE", &path, None)
    }

    /// The requests that copy what is at one path to another.
    #[must_use]
    pub fn copy_document(says: impl Into<String>, from: &[&str], to: &[&str]) -> Self {
        let line = |method, path| Self::couchdb("", method, path, None).text.unwrap_or_default();
        Self::command(says, format!("{} | {} -d @-", line("GET", from), line("PUT", to)))
    }

    /// A request to CouchDB: a method, the parts of the path, which are encoded, and the JSON to send.
    #[must_use]
    pub fn couchdb(
        says: impl Into<String>,
        method: &str,
        path: &[&str],
        body: Option<&serde_json::Value>,
    ) -> Self {
        let mut line = "curl -u \"$COUCHDB_USER\"".to_owned();
        if method != "GET" {
            line.push_str(&format!(" -X {method} -H 'Content-Type: application/json'"));
        }
        let path: String = path.iter().map(|part| format!("/{}", encoded(part))).collect();
        line.push_str(&format!(" \"$COUCHDB_URL\"{}", quoted(&path)));
        if let Some(body) = body {
            line.push_str(&format!(" -d {}", quoted_but_variables(&body.to_string())));
        }
        Self::command(says, line)
    }
}

/// In the JSON of a request: the reader's address of CouchDB, user and password.
pub(super) const URL_VARIABLE: &str = "${COUCHDB_URL}";
pub(super) const USER_VARIABLE: &str = "${COUCHDB_USER}";
pub(super) const PASSWORD_VARIABLE: &str = "${COUCHDB_PASSWORD}";

/// A word for a POSIX shell, in which these variables are replaced.
fn quoted_but_variables(word: &str) -> String {
    [URL_VARIABLE, USER_VARIABLE, PASSWORD_VARIABLE]
        .iter()
        .fold(quoted(word), |word, name| word.replace(name, &format!("'\"{name}\"'")))
}

/// A part of a path; the slash of `_design/x` stays.
fn encoded(part: &str) -> String {
    let encode = |part: &str| encode_part(part).to_string();
    match part.strip_prefix("_design/") {
        Some(name) => format!("_design/{}", encode(name)),
        None => encode(part),
    }
}

/// A word for a POSIX shell.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=@%,+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_hostile_name_stays_one_word() {
        for (word, expected) in [
            ("orders", "orders"),
            ("db:couchdb@a/shards%2F0", "db:couchdb@a/shards%2F0"),
            ("", "''"),
            ("a b", "'a b'"),
            ("$(rm -rf ~)", "'$(rm -rf ~)'"),
            ("it's", r"'it'\''s'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }

    #[test]
    fn a_request_can_be_pasted_and_shows_no_secret() {
        let text = |remedy: Remedy| remedy.text.unwrap_or_default();
        assert_eq!(
            text(Remedy::couchdb("", "POST", &["a/b'c", "_view_cleanup"], None)),
            "curl -u \"$COUCHDB_USER\" -X POST -H 'Content-Type: application/json' \"$COUCHDB_URL\"/a%2Fb%27c/_view_cleanup"
        );
        assert_eq!(
            text(Remedy::couchdb(
                "",
                "POST",
                &["_reshard", "jobs"],
                Some(&json!({"type": "split"}))
            )),
            "curl -u \"$COUCHDB_USER\" -X POST -H 'Content-Type: application/json' \"$COUCHDB_URL\"/_reshard/jobs -d '{\"type\":\"split\"}'"
        );
        assert_eq!(
            text(Remedy::couchdb("", "GET", &["db", "_design/a b"], None)),
            "curl -u \"$COUCHDB_USER\" \"$COUCHDB_URL\"/db/_design/a%20b"
        );
        assert_eq!(text(Remedy::recliner("", &["explain", "a b"])), "recliner explain 'a b'");
    }
}
