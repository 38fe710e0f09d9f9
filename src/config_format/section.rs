//! A mapping whose keys are read one by one.
//!
//! Owns how keys are taken from a mapping, how unknown ones are reported, and the place of each
//! problem. Never knows a particular key.

use super::{
    problem::{Finding, Place, Problem, alternatives, quoted, suggestion},
    tree::{At, Key, Node, Value},
};
use std::path::PathBuf;

/// The problems and findings so far, in one file.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Name of the file.
    pub(crate) file: String,
    /// Directory of the file.
    pub(crate) base: PathBuf,
    pub(crate) problems: Vec<Problem>,
    pub(crate) findings: Vec<Finding>,
    /// Number of patterns with wildcards so far.
    pub(crate) wildcards: usize,
}

/// Maximum number of patterns with wildcards in a configuration, because each is compared with
/// every name.
const MAX_WILDCARDS: usize = 1_000;

/// Maximum number of reported problems, because aliases may repeat one many times.
const MAX_PROBLEMS: usize = 1_000;

/// A value and its place, for rules that involve two values.
#[derive(Clone, Debug)]
pub(crate) struct Spanned<T> {
    pub(crate) value: T,
    pub(crate) at: At,
    pub(crate) path: String,
}

impl<T> Spanned<T> {
    /// A value that was not read from the file.
    pub(crate) fn nowhere(value: T) -> Self {
        Self { value, at: At { line: 0, column: 0 }, path: String::new() }
    }
}

impl Report {
    pub(crate) fn place(&self, at: At, path: &str) -> Place {
        let At { line, column } = at;
        Place::At { file: self.file.clone(), line, column, key: path.to_owned() }
    }

    /// Adds a problem, which prevents the program from starting.
    pub(crate) fn refuse(&mut self, at: At, path: &str, text: impl Into<String>) {
        if self.problems.len() < MAX_PROBLEMS {
            let place = self.place(at, path);
            self.problems.push(Problem { place, text: text.into() });
        }
    }

    /// Counts a pattern with wildcards, and refuses the first that exceeds the limit.
    pub(crate) fn count_wildcard(&mut self, at: At, path: &str) {
        self.wildcards += 1;
        if self.wildcards == MAX_WILDCARDS + 1 {
            let says = format!(
                "more than {MAX_WILDCARDS} patterns with * or ? in one configuration; replace several with one that covers them"
            );
            self.refuse(at, path, says);
        }
    }

    /// Adds a finding, which does not prevent the program from starting.
    pub(crate) fn note(&mut self, at: At, path: &str, text: impl Into<String>) {
        let place = self.place(at, path);
        self.findings.push(Finding { place, text: text.into() });
    }
}

/// A mapping whose keys are read one by one.
#[derive(Debug)]
pub(crate) struct Section<'r, 'n> {
    pub(crate) report: &'r mut Report,
    pub(crate) at: At,
    pub(crate) path: String,
    /// Entries that were not read yet.
    entries: Vec<(&'n Key, &'n Node)>,
    /// All keys of this section that were looked up, whether present or not.
    known: Vec<&'static str>,
    /// The keys that were present.
    taken: Vec<Taken>,
}

/// A key that was present.
#[derive(Debug)]
struct Taken {
    key: &'static str,
    key_at: At,
    value_at: At,
    /// Whether the value was read without a problem.
    is_sound: bool,
}

impl<'r, 'n> Section<'r, 'n> {
    /// Opens the mapping `node`; in an empty one every key has its default. Any other node is
    /// reported as a problem and treated as empty.
    pub(crate) fn open(report: &'r mut Report, node: &'n Node, path: &str) -> (Self, bool) {
        let (entries, is_mapping) = match &node.value {
            Value::Map(entries) => (entries.iter().map(|(key, node)| (key, node)).collect(), true),
            Value::Nothing => (Vec::new(), true),
            Value::Text(_) | Value::List(_) => {
                let found = node.found();
                report.refuse(
                    node.at,
                    path,
                    format!("found {found}, expected keys and values (key: value)"),
                );
                (Vec::new(), false)
            }
        };
        let section = Self {
            report,
            at: node.at,
            path: path.to_owned(),
            entries,
            known: Vec::new(),
            taken: Vec::new(),
        };
        (section, is_mapping)
    }

    /// Whether the mapping is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.taken.is_empty()
    }

    /// The full path of a key in this section.
    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The place of a key, if it is present.
    pub(crate) fn key_at(&self, key: &str) -> Option<At> {
        let taken = self.taken.iter().find(|taken| taken.key == key).map(|taken| taken.key_at);
        let entry = || self.entries.iter().find(|(written, _)| written.text == key);
        taken.or_else(|| entry().map(|(written, _)| written.at))
    }

    /// The place of a value, if it was read without a problem.
    pub(crate) fn value_at(&self, key: &str) -> Option<Spanned<()>> {
        let taken = self.taken.iter().find(|taken| taken.key == key && taken.is_sound)?;
        Some(Spanned { value: (), at: taken.value_at, path: self.path_of(key) })
    }

    /// Takes a key and reads its value; any reported problem marks the value as unsound.
    pub(crate) fn read_key(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Report, &'n Node, &str) -> bool,
    ) {
        self.known.push(key);
        let entry = self.entries.iter().position(|(written, _)| written.text == key);
        let Some(entry) = entry else { return };
        let (written, node) = self.entries.swap_remove(entry);
        let path = self.path_of(key);
        let problems = self.report.problems.len();
        let is_read = read(self.report, node, &path);
        let is_sound = is_read && self.report.problems.len() == problems;
        self.taken.push(Taken { key, key_at: written.at, value_at: node.at, is_sound });
    }

    /// Adds a problem at the value of a key, or at the section if there is none.
    pub(crate) fn refuse_value(&mut self, key: &str, text: impl Into<String>) {
        match self.value_at(key) {
            Some(found) => self.report.refuse(found.at, &found.path, text),
            None => self.refuse(text),
        }
    }

    /// The keys and values that were not read, for mappings whose keys are names.
    pub(crate) fn into_entries(self) -> (&'r mut Report, Vec<(&'n Key, &'n Node)>) {
        (self.report, self.entries)
    }

    /// Adds a problem at a key if it is present, and removes the key.
    pub(crate) fn refuse_key(&mut self, key: &str, says: impl Into<String>) {
        if let Some(at) = self.key_at(key) {
            self.entries.retain(|(written, _)| written.text != key);
            self.report.refuse(at, &self.path_of(key), says);
        }
    }

    /// Adds a finding at a key, if it is present.
    pub(crate) fn note_key(&mut self, key: &str, says: impl Into<String>) {
        if let Some(at) = self.key_at(key) {
            self.report.note(at, &self.path_of(key), says);
        }
    }

    /// Adds a problem at the section itself.
    pub(crate) fn refuse(&mut self, text: impl Into<String>) {
        self.report.refuse(self.at, &self.path, text);
    }

    /// Reports every key that was not read as unknown.
    pub(crate) fn close(self, is_mapping: bool) {
        if !is_mapping {
            return;
        }
        for (key, _) in &self.entries {
            let path = self.path_of(&quoted(&key.text).replace('"', ""));
            let near = suggestion(&key.text, &self.known);
            let near = if near.is_empty() {
                format!("; allowed here: {}", alternatives(&self.known))
            } else {
                near
            };
            self.report.refuse(key.at, &path, format!("unknown key{near}"));
        }
    }
}

/// Reads a scalar; a list, a mapping or a missing value is reported as a problem.
pub(crate) fn scalar<T>(
    report: &mut Report,
    node: &Node,
    path: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    match &node.value {
        Value::Text(text) => match read(text) {
            Ok(value) => Some(value),
            Err(why) => {
                report.refuse(node.at, path, why);
                None
            }
        },
        Value::Nothing => {
            report.refuse(
                node.at,
                path,
                "found nothing; write a value, or omit the key for its default",
            );
            None
        }
        Value::List(_) | Value::Map(_) => {
            let found = node.found();
            report.refuse(node.at, path, format!("found {found}, expected one value"));
            None
        }
    }
}
