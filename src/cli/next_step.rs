//! Suggests what to do next: one line on standard error after a command's answer, and a few lines
//! if no command was given.
//!
//! Owns the sentences. Those after an answer are printed only if a person reads it on a terminal,
//! never next to JSON.

use super::{args::Format, output::print_note};
use std::{
    env,
    io::{self, IsTerminal},
};

/// Output of `recliner` without a command: what it is, and how to begin.
pub(super) fn introduction() -> String {
    let program = program_name();
    let demo = match cfg!(feature = "simulator") {
        true => format!("Try it on a simulated cluster:\n  {program} demo\n"),
        false => String::new(),
    };
    format!(
        "\
recliner shows what waits for compaction in a CouchDB cluster, what it would
free, and why. It starts no compaction unless you ask for --mode=enforce.

{demo}Read your cluster once, as the user in COUCHDB_USER and COUCHDB_PASSWORD:
  {program} scan --couchdb.url http://couch-a:5984
Watch it, and serve metrics and a page:
  {program} serve --couchdb.url http://couch-a:5984
All commands:
  {program} --help"
    )
}

/// The program as it was called, so that a command can be pasted into the same shell; only its name
/// if the path would need quotes.
pub(super) fn program_name() -> String {
    let called = env::args_os().next().and_then(|called| called.into_string().ok());
    let is_plain = |name: &String| {
        name.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)) && !name.is_empty()
    };
    called.filter(is_plain).unwrap_or_else(|| "recliner".to_owned())
}

/// Suggestion after `scan`.
pub(super) const AFTER_SCAN: &str =
    "Next: recliner plan, with the same flags, prints what would start now, and why.";

/// Suggestion after `plan`.
pub(super) const AFTER_PLAN: &str =
    "Next: recliner explain DATABASE, with the same flags, explains one database.";

/// Suggestion after `explain`, if it read the cluster itself.
pub(super) const AFTER_EXPLAIN: &str =
    "Next: recliner serve, with the same flags, keeps watching and serves a page.";

/// Suggestion after `explain`, if it asked a running recliner.
pub(super) const AFTER_EXPLAIN_OF_SERVICE: &str =
    "Next: recliner history prints how earlier compactions ended.";

/// Suggestion after `check-config` has printed the configuration.
pub(super) const AFTER_CHECK_CONFIG: &str =
    "Next: recliner serve, with the same flags, starts with this configuration.";

/// Suggestion after `import` has printed channels.
pub(super) const AFTER_IMPORT: &str = "Next: save this as recliner.yml, then recliner check-config --config.file recliner.yml checks it.";

/// Prints the first line of `serve`: the address at which it answers.
pub(super) fn print_where_it_serves(own: &str) {
    if io::stderr().is_terminal() {
        print_note(&format!(
            "Open {own}/ in a browser; the book is at /docs/. Ctrl-c stops recliner."
        ));
    }
}

/// Prints the suggestion after a command's answer.
pub(super) fn print_next_step(format: Format, sentence: &str) {
    // If only one of the two streams is a terminal, the line would appear out of place.
    let is_read_by_a_person = io::stdout().is_terminal() && io::stderr().is_terminal();
    if format == Format::Table && is_read_by_a_person {
        print_note(&format!("\n{sentence}"));
    }
}
