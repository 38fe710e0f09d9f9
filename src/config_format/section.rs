//! A mapping whose keys are read one by one.
//!
//! Owns how keys are taken from a mapping, how unknown ones are named and where each
//! problem is put. Never knows a particular key.

use super::{
    problem::{Finding, Place, Problem, alternatives, quoted, suggestion},
    tree::{At, Key, Node, Value},
};
use std::path::PathBuf;

/// What has been found so far, in one file.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The file's name.
    pub(crate) file: String,
    /// Its directory.
    pub(crate) base: PathBuf,
    pub(crate) problems: Vec<Problem>,
    pub(crate) findings: Vec<Finding>,
    /// Patterns with wildcards that were read.
    pub(crate) wildcards: usize,
}

/// The most patterns with wildcards in one configuration: each is compared with each name.
const MAX_WILDCARDS: usize = 1_000;

/// The most problems that are told; aliases may repeat one many times.
const MAX_PROBLEMS: usize = 1_000;

/// A value and where it is written, for rules that look at two of them.
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

    /// Adds a problem, which keeps the program from starting.
    pub(crate) fn refuse(&mut self, at: At, path: &str, text: impl Into<String>) {
        if self.problems.len() < MAX_PROBLEMS {
            let place = self.place(at, path);
            self.problems.push(Problem { place, text: text.into() });
        }
    }

    /// Counts a pattern with wildcards, and refuses the first that is one too many.
    pub(crate) fn count_wildcard(&mut self, at: At, path: &str) {
        self.wildcards += 1;
        if self.wildcards == MAX_WILDCARDS + 1 {
            let says = format!(
                "more than {MAX_WILDCARDS} patterns with * or ? in one configuration; replace several by one that covers them"
            );
            self.refuse(at, path, says);
        }
    }

    /// Adds a finding, which lets the program start.
    pub(crate) fn note(&mut self, at: At, path: &str, text: impl Into<String>) {
        let place = self.place(at, path);
        self.findings.push(Finding { place, text: text.into() });
    }
}

/// A mapping whose keys are being taken.
#[derive(Debug)]
pub(crate) struct Section<'r, 'n> {
    pub(crate) report: &'r mut Report,
    pub(crate) at: At,
    pub(crate) path: String,
    /// What was not taken yet.
    entries: Vec<(&'n Key, &'n Node)>,
    /// Every key that belongs here, once it was looked for.
    known: Vec<&'static str>,
    /// What was there, of those.
    taken: Vec<Taken>,
}

/// A key that was there.
#[derive(Debug)]
struct Taken {
    key: &'static str,
    key_at: At,
    value_at: At,
    /// Whether its value was read without a problem.
    is_sound: bool,
}

impl<'r, 'n> Section<'r, 'n> {
    /// The mapping `node`; one that is empty takes every default. Anything else is a
    /// problem, and read as empty.
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

    /// Whether nothing is written in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.taken.is_empty()
    }

    /// The path of a key of this section.
    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Where a key is written, if it is.
    pub(crate) fn key_at(&self, key: &str) -> Option<At> {
        let taken = self.taken.iter().find(|taken| taken.key == key).map(|taken| taken.key_at);
        let entry = || self.entries.iter().find(|(found, _)| found.text == key);
        taken.or_else(|| entry().map(|(found, _)| found.at))
    }

    /// Where a value is written that was read without a problem.
    pub(crate) fn value_at(&self, key: &str) -> Option<Spanned<()>> {
        let taken = self.taken.iter().find(|taken| taken.key == key && taken.is_sound)?;
        Some(Spanned { value: (), at: taken.value_at, path: self.path_of(key) })
    }

    /// Takes a key and reads its value; whatever it reports makes the value unsound.
    pub(crate) fn read_key(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Report, &'n Node, &str) -> bool,
    ) {
        self.known.push(key);
        let entry = self.entries.iter().position(|(found, _)| found.text == key);
        let Some(entry) = entry else { return };
        let (found, node) = self.entries.swap_remove(entry);
        let path = self.path_of(key);
        let problems = self.report.problems.len();
        let is_read = read(self.report, node, &path);
        let is_sound = is_read && self.report.problems.len() == problems;
        self.taken.push(Taken { key, key_at: found.at, value_at: node.at, is_sound });
    }

    /// Adds a problem where the value of a key is written, or at the section without it.
    pub(crate) fn refuse_value(&mut self, key: &str, text: impl Into<String>) {
        match self.value_at(key) {
            Some(found) => self.report.refuse(found.at, &found.path, text),
            None => self.refuse(text),
        }
    }

    /// Its keys and values, where its keys are names.
    pub(crate) fn into_entries(self) -> (&'r mut Report, Vec<(&'n Key, &'n Node)>) {
        (self.report, self.entries)
    }

    /// Adds a problem where a key is written, if it is, also one that is set elsewhere.
    pub(crate) fn refuse_key(&mut self, key: &str, says: impl Into<String>) {
        if let Some(at) = self.key_at(key) {
            self.entries.retain(|(found, _)| found.text != key);
            self.report.refuse(at, &self.path_of(key), says);
        }
    }

    /// Adds a finding where a key is written, if it is.
    pub(crate) fn note_key(&mut self, key: &str, says: impl Into<String>) {
        if let Some(at) = self.key_at(key) {
            self.report.note(at, &self.path_of(key), says);
        }
    }

    /// Adds a problem at this section's own place.
    pub(crate) fn refuse(&mut self, text: impl Into<String>) {
        self.report.refuse(self.at, &self.path, text);
    }

    /// Reports every key that was not taken as unknown.
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

/// Reads one scalar; a list, a mapping or nothing is a problem.
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
                "found nothing; write a value, or leave the key out for its default",
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
