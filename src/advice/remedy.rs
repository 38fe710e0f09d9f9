//! What an operator types to follow advice.
//!
//! Owns how commands are written: names are quoted for a POSIX shell, and addresses and logins are variables, so
//! that a line can be pasted and no secret is shown.

use crate::{
    table::IndexQuery,
    text::{escape::write_escaped_json, quote::shell_word},
};
use couchdb_names::encode_part;
use strum::{EnumString, IntoStaticStr, VariantArray};

/// The setting that keeps requests of clients away from a node.
const MAINTENANCE: (&str, &str) = ("couchdb", "maintenance_mode");

/// The kind of a remedy.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemedyKind {
    /// A line for a shell.
    Command,
    /// Lines of a configuration file.
    Configuration,
    /// Something that a person decides or does elsewhere.
    Choice,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// What kind it is.
    pub kind: RemedyKind,
    /// What it does, or what has to be decided, in a few words.
    pub says: String,
    /// What to paste; `None` for a choice.
    pub text: Option<String>,
}

impl Remedy {
    /// Shell lines that read the password once, unless it is in the environment, and a function that
    /// sends requests with it. The password is never on a command line, which every user of the machine
    /// can read.
    pub(super) const ASK: &str = r#"password=${COUCHDB_PASSWORD-}
[ -n "$password" ] || { printf 'password: ' >/dev/tty; stty -echo </dev/tty; IFS= read -r password </dev/tty; stty echo </dev/tty; echo >/dev/tty; }
login=$(printf '%s' "$COUCHDB_USER:$password" | sed 's/[\\"]/\\&/g')
ask() { printf 'user = "%s"\n' "$login" | curl -sS -K - "$@"; }"#;

    /// Something that a person decides or does elsewhere.
    pub fn choice(says: impl Into<String>) -> Self {
        Self { kind: RemedyKind::Choice, says: says.into(), text: None }
    }

    /// Lines of a configuration file.
    pub fn configuration(says: impl Into<String>, lines: impl Into<String>) -> Self {
        let (says, text) = (says.into(), Some(lines.into()));
        Self { kind: RemedyKind::Configuration, says, text }
    }

    /// A command of recliner's with these arguments, which are quoted.
    pub fn recliner(says: impl Into<String>, arguments: &[&str]) -> Self {
        let words = std::iter::once("recliner".to_owned());
        let words: Vec<String> = words
            .chain(arguments.iter().map(|argument| shell_word(argument).into_owned()))
            .collect();
        Self::command(says, words.join(" "))
    }

    /// The order to a running recliner to compact a target that no channel may take.
    pub fn compact(says: impl Into<String>, target: &str) -> Self {
        Self::recliner(says, &["compact", "--force", target])
    }

    /// The command that shows who still reads the deletions of a database.
    pub(super) fn tombstones(says: impl Into<String>, db: &str) -> Self {
        let db = shell_word(db);
        Self::command(says, format!("recliner tombstones {db} --couchdb.url \"$COUCHDB_URL\""))
    }

    /// The request that compacts all shards of a database. Rules that weigh waste against size may refuse waste that
    /// is known to be there.
    pub(super) fn compact_db(why: &str, db: &str) -> Self {
        let says = format!(
            "{why} CouchDB compacts all shards at once, on each node; have space for another copy of their live data:"
        );
        Self::couchdb(says, "POST", &[db, "_compact"], None)
    }

    /// Lines for a shell that stop at the first failure and may use [`Self::ASK`]'s function.
    pub(super) fn script(says: impl Into<String>, lines: &[String]) -> Self {
        Self::command(says, Self::script_text(lines))
    }

    /// The text of [`Self::script`].
    pub(super) fn script_text(lines: &[String]) -> String {
        format!("(set -eu\n{}\n{})", Self::ASK, lines.join("\n"))
    }

    /// A line for a shell; names in it are [`shell_word`]s.
    pub fn command(says: impl Into<String>, line: impl Into<String>) -> Self {
        Self { kind: RemedyKind::Command, says: says.into(), text: Some(line.into()) }
    }

    /// A search in the directories of a node, with `find`'s own tests; in the reader's
    /// `$COUCHDB_DATA` if the directories are unknown.
    pub fn find_files(says: impl Into<String>, directories: &[&str], tests: &str) -> Self {
        let roots = match directories {
            [] => "\"$COUCHDB_DATA\"".to_owned(),
            known => known.iter().map(|root| shell_word(root)).collect::<Vec<_>>().join(" "),
        };
        Self::command(says, format!("find {roots} {tests}"))
    }

    /// The request that makes CouchDB delete a database's index files that no design document uses.
    pub fn view_cleanup(says: impl Into<String>, db: &str) -> Self {
        Self::couchdb(says, "POST", &[db, "_view_cleanup"], None)
    }

    /// The request that sets a configuration value of a node.
    pub fn set_config(
        says: impl Into<String>,
        node: &str,
        place: (&str, &str),
        value: &str,
    ) -> Self {
        let path = ["_node", node, "_config", place.0, place.1];
        Self::couchdb(says, "PUT", &path, Some(&value.into()))
    }

    /// The request that resets a configuration value of a node to its default.
    pub fn unset_config(says: impl Into<String>, node: &str, place: (&str, &str)) -> Self {
        let path = ["_node", node, "_config", place.0, place.1];
        Self::couchdb(says, "DELETE", &path, None)
    }

    /// The request that keeps clients from reading a node, so that they do not see copies that are not filled yet.
    pub fn leave_service(says: &str, node: &str) -> Self {
        let says = format!(
            "{says} Until a copy is filled, whoever reads it lacks documents. So take {node} out of service first; databases of which only it has a copy cannot be read meanwhile:"
        );
        Self::set_config(says, node, MAINTENANCE, "true")
    }

    /// The request that lets clients read the node again.
    pub fn enter_service(node: &str) -> Self {
        Self::unset_config("Then take the node back into service:", node, MAINTENANCE)
    }

    /// A read request to CouchDB; the parts of the path are encoded.
    pub fn get(says: impl Into<String>, path: &[&str]) -> Self {
        Self::couchdb(says, "GET", path, None)
    }

    /// The request that queries a view of an index for no rows, so that CouchDB builds the index first.
    pub fn query_view(says: impl Into<String>, db: &str, query: &IndexQuery) -> Self {
        let path = [db, &query.design, "_view", &query.view].map(encoded);
        Self::couchdb_at(says, "GET", &format!("/{}?limit=0", path.join("/")), None)
    }

    /// A request to CouchDB: the method, the parts of the path, which are encoded, and the JSON to
    /// send.
    pub fn couchdb(
        says: impl Into<String>,
        method: &str,
        path: &[&str],
        body: Option<&serde_json::Value>,
    ) -> Self {
        let path: String = path.iter().map(|part| format!("/{}", encoded(part))).collect();
        Self::couchdb_at(says, method, &path, body)
    }

    /// A request to CouchDB whose path is already encoded.
    pub fn couchdb_at(
        says: impl Into<String>,
        method: &str,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Self {
        let mut line = "curl -u \"$COUCHDB_USER\"".to_owned();
        if method != "GET" {
            line.push_str(&format!(" -X {method} -H 'Content-Type: application/json'"));
        }
        line.push_str(&format!(" \"$COUCHDB_URL\"{}", shell_word(path)));
        if let Some(body) = body {
            line.push_str(&format!(" -d {}", shell_word(&to_json(body))));
        }
        Self::command(says, line)
    }

    /// A request as [`Self::couchdb`] writes it, whose strings at these JSON pointers begin with a variable.
    pub(super) fn couchdb_with_variables(
        says: impl Into<String>,
        path: &[&str],
        body: &serde_json::Value,
        variables: &[(&str, &str)],
    ) -> Self {
        let mut body = body.clone();
        let mut variables_at = Vec::new();
        for (number, (pointer, variable)) in variables.iter().enumerate() {
            // The body contains no run of this letter of this length.
            let row = "x".repeat(body.to_string().len());
            let stand_in = format!("{number}{row}{number}");
            if let Some(serde_json::Value::String(text)) = body.pointer_mut(pointer) {
                text.insert_str(0, &stand_in);
                variables_at.push((stand_in, variable));
            }
        }
        let Self { kind, says, text } = Self::couchdb(says, "POST", path, Some(&body));
        let text = text.map(|text| {
            variables_at.iter().rev().fold(text, |text, (stand_in, variable)| {
                text.replace(stand_in, &format!("'\"${{{variable}}}\"'"))
            })
        });
        Self { kind, says, text }
    }
}

/// A sentence alone is something that a person decides or does elsewhere.
impl From<&str> for Remedy {
    fn from(says: &str) -> Self {
        Self::choice(says)
    }
}

/// JSON with invisible characters escaped.
pub(super) fn to_json(value: &serde_json::Value) -> String {
    let mut out = Vec::new();
    let written = write_escaped_json(&mut out, value);
    debug_assert!(written.is_ok(), "a vector takes any JSON");
    String::from_utf8_lossy(&out).into_owned()
}

/// A part of a path; the slash of `_design/x` stays.
fn encoded(part: &str) -> String {
    let encode = |part: &str| encode_part(part).to_string();
    match part.strip_prefix("_design/") {
        Some(name) => format!("_design/{}", encode(name)),
        None => encode(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn request_can_be_pasted_and_shows_no_secret() {
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

    const NAME: &str = "([ -~]|[^\u{0}]|['\"$`\\\\!\\-\n\r\u{202e}]|\\$\\(id\\)|`id`|\\$\\{COUCHDB_PASSWORD\\}|0x+0){1,12}";

    /// The commands that a shell runs for a line: each name, followed by its arguments.
    fn run(shell: &str, line: &str) -> String {
        const STUBS: &str = "show() { printf '%s\\0' \"$@\"; }; for c in curl find recliner; do eval \"$c() { show $c \\\"\\$@\\\"; }\"; done";
        let login = [
            ("COUCHDB_URL", "http://couch"),
            ("COUCHDB_USER", "me"),
            ("COUCHDB_PASSWORD", "secret"),
        ];
        let script = format!("{STUBS}\n{line}");
        let ran =
            std::process::Command::new(shell).args(["-c", &script]).envs(login).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ran.stderr), "", "{shell}: {line}");
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn every_shell_runs_the_intended_command(name in NAME, other in NAME) {
            let words = |words: &[&str]| words.iter().map(|word| format!("{word}\0")).collect::<String>();
            let post = ["-X", "POST", "-H", "Content-Type: application/json"];
            let url = |path: &[&str]| {
                let parts = path.iter().map(|part| format!("/{}", encode_part(part)));
                format!("http://couch{}", parts.collect::<String>())
            };
            let body = json!({ "db": name, "url": "/x", "user": "", "more": other });
            let filled = json!({ "db": name, "url": "http://couch/x", "user": "me", "more": other });
            let variables = [("/url", "COUCHDB_URL"), ("/user", "COUCHDB_USER")];
            let root = format!("/{name}");
            for (remedy, head, last) in [
                (Remedy::recliner("", &["compact", &name]), vec!["recliner", "compact"], name.clone()),
                (
                    Remedy::find_files("", &[&root, &other], "-ls"),
                    vec!["find", &root, &other],
                    "-ls".to_owned(),
                ),
                (Remedy::couchdb("", "GET", &[&name, &other], None), vec!["curl", "-u", "me"], url(&[&name, &other])),
            ] {
                let line = remedy.text.unwrap_or_default();
                let meant = words(&[&head[..], &[&*last]].concat());
                for shell in ["bash", "dash"] {
                    prop_assert_eq!(run(shell, &line), &*meant, "{}: {}", shell, line);
                }
            }
            for (remedy, sent) in [
                (Remedy::couchdb("", "POST", &[&name], Some(&body)), &body),
                (Remedy::couchdb_with_variables("", &[&name], &body, &variables), &filled),
            ] {
                let line = remedy.text.unwrap_or_default();
                prop_assert_eq!(line.lines().count(), 1, "{}", line);
                for shell in ["bash", "dash"] {
                    let ran = run(shell, &line);
                    let address = url(&[&name]);
                    let head = [&["curl", "-u", "me"], &post[..], &[&*address, "-d"]].concat();
                    let Some(rest) = ran.strip_prefix(&words(&head)) else { panic!("{line}: {ran}") };
                    let read: serde_json::Value = serde_json::from_str(rest.trim_end_matches('\0')).unwrap();
                    prop_assert_eq!(&read, sent, "{}: {}", shell, line);
                }
            }
        }
    }
}
