//! Reads CouchDB's ini files like the given version of its `config` application.
//!
//! Owns the parser and the list of lines that CouchDB silently drops or reads in an unexpected way.
//! Never fails and never shows a value, because other sections contain secrets.
//!
//! Up to 3.2 a line that begins with a single space continues the value above it; 3.3 trims lines
//! instead. Up to 3.3 an empty value deletes the value from an earlier file; later versions ignore
//! it. A `#` does not start a comment in CouchDB, but nothing reads such keys.

use crate::Rules;
use std::{collections::BTreeMap, fmt};

/// Settings by section and key, as `GET /_node/{node}/_config` returns them.
pub type Sections = BTreeMap<String, BTreeMap<String, String>>;

/// The settings of several ini files, read one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ini {
    /// Settings by section and key.
    pub(crate) sections: Sections,
    /// Lines without effect, or with an unexpected one.
    pub(crate) problems: Vec<IniProblem>,
}

/// A line without effect, or with an unexpected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IniProblem {
    /// The file's name as given.
    pub file: String,
    /// The line number, starting at one.
    pub line: usize,
    /// The section of the line; empty before the first section.
    pub section: String,
    /// The kind of problem.
    pub kind: IniProblemKind,
}

/// The kind of problem with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IniProblemKind {
    /// It starts like the name of a section but is not one.
    NotASection,
    /// It is the first line of a file with a byte order mark, which CouchDB takes as text.
    ByteOrderMark,
    /// It is before the first section.
    NoSection,
    /// It is not a comment, a section or a setting.
    NotASetting,
    /// The key is already set in the same file; which value applies depends on the version.
    SetTwice(String),
    /// An empty value, which this version ignores.
    EmptyValue(String),
    /// An empty value, which deletes the value from an earlier file.
    TakenAway(String),
}

impl fmt::Display for IniProblem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: ", self.file, self.line)?;
        match &self.kind {
            IniProblemKind::NotASection => write!(
                out,
                "starts with [ but is not a section: write [name] with nothing after it; the lines below it still belong to [{}]",
                self.section
            ),
            IniProblemKind::ByteOrderMark => out.write_str(
                "begins with a byte order mark, so CouchDB reads neither a section nor a setting here: save the file without it",
            ),
            IniProblemKind::NoSection => {
                out.write_str("is before the first [section] and is ignored")
            }
            IniProblemKind::NotASetting => out.write_str("is not a setting: write key = value"),
            IniProblemKind::SetTwice(key) => write!(out, "sets {key} a second time in this file"),
            IniProblemKind::EmptyValue(key) => write!(
                out,
                "gives {key} an empty value, which this version ignores: an earlier file's value stays"
            ),
            IniProblemKind::TakenAway(key) => {
                write!(out, "removes the value that an earlier file sets for {key}")
            }
        }
    }
}

/// The meaning of a line.
enum Line<'a> {
    Nothing,
    Section(&'a str),
    Set(&'a str, String),
    Continue(String),
    Delete(&'a str),
    Odd(IniProblemKind),
}

/// One file's settings and deletions, before they are merged with the earlier files.
#[derive(Default)]
struct File {
    set: BTreeMap<(String, String), String>,
    deleted: Vec<(String, String)>,
    section: String,
    last: Option<(String, String)>,
}

impl Ini {
    /// Reads another file and merges it over the earlier ones, following `rules`.
    pub(crate) fn add(&mut self, name: &str, bytes: &[u8], rules: Rules) {
        let text = String::from_utf8_lossy(bytes);
        let mut file = File::default();
        for (line, text) in lines(&text) {
            let read =
                if rules.trims_ini_lines() { parse_trimmed(text) } else { parse_folded(text) };
            if let Some(kind) = file.take(read, rules) {
                let section = file.section.clone();
                self.problems.push(IniProblem { file: name.to_owned(), line, section, kind });
            }
        }
        for (section, key) in file.deleted {
            if let Some(keys) = self.sections.get_mut(&section) {
                keys.remove(&key);
            }
        }
        for ((section, key), value) in file.set {
            self.sections.entry(section).or_default().insert(key, value);
        }
    }
}

impl File {
    fn take(&mut self, line: Line<'_>, rules: Rules) -> Option<IniProblemKind> {
        match line {
            Line::Nothing => None,
            Line::Section(section) => {
                section.clone_into(&mut self.section);
                None
            }
            Line::Odd(kind) => {
                let before = self.section.is_empty() && kind == IniProblemKind::NotASetting;
                Some(if before { IniProblemKind::NoSection } else { kind })
            }
            // Only the older parser keeps settings outside of any section, where nothing reads
            // them.
            Line::Set(..) | Line::Delete(_) if self.section.is_empty() => {
                Some(IniProblemKind::NoSection)
            }
            Line::Continue(part) => {
                let Some((section, key)) = self.last.take() else {
                    return Some(IniProblemKind::NotASetting);
                };
                let value = self.set.remove(&(section, key.clone())).unwrap_or_default();
                let at = (self.section.clone(), key);
                self.set.insert(at.clone(), format!("{value} {part}"));
                self.last = Some(at);
                None
            }
            // A key that starts with `#` is meant as a comment, and nothing reads it.
            Line::Set(key, _) | Line::Delete(key) if key.starts_with('#') => {
                self.last = None;
                None
            }
            Line::Set(key, value) => {
                let at = (self.section.clone(), key.to_owned());
                self.last = Some(at.clone());
                let first = self.set.insert(at.clone(), value)?;
                if !rules.trims_ini_lines() {
                    // The older parser returns its list newest first, so that the first of two
                    // lines is stored last.
                    self.set.insert(at, first);
                }
                Some(IniProblemKind::SetTwice(key.to_owned()))
            }
            Line::Delete(key) => {
                if !rules.empty_value_deletes() {
                    return Some(IniProblemKind::EmptyValue(key.to_owned()));
                }
                self.deleted.push((self.section.clone(), key.to_owned()));
                Some(IniProblemKind::TakenAway(key.to_owned()))
            }
        }
    }
}

/// Lines with their numbers, starting at one. A lone carriage return and Ctrl-Z end a line too.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split('\n')
        .enumerate()
        .flat_map(|(at, line)| line.split(['\r', '\u{1a}']).map(move |part| (at + 1, part)))
}

/// Trims the white space that CouchDB trims (`string:trim/1` of single bytes); a non-breaking space
/// stays.
fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r'])
}

/// Reads a line like 3.3 and later: without comments, trimmed, and split at the first ` = `.
fn parse_trimmed(line: &str) -> Line<'_> {
    let line = trim(line);
    if line.starts_with(';') {
        return Line::Nothing;
    }
    let line = trim(before_comment(line));
    if line.is_empty() {
        return Line::Nothing;
    }
    if let Some(rest) = line.strip_prefix('[') {
        return section(rest);
    }
    match line.split_once(" = ").or_else(|| line.split_once('=')) {
        Some(("", _)) | None => not_a_setting(line),
        Some((key, "")) => Line::Delete(trim(key)),
        Some((key, value)) => Line::Set(trim(key), trim(value).to_owned()),
    }
}

/// Reads a line like 2.x to 3.2: at most one space is removed on each side of `=`, others stay part
/// of key and value.
fn parse_folded(line: &str) -> Line<'_> {
    let stripped = line.trim_matches(' ');
    if stripped.is_empty() || stripped.starts_with(';') {
        return Line::Nothing;
    }
    if let Some(rest) = stripped.strip_prefix('[') {
        return section(rest);
    }
    let Some((key, value)) = stripped.split_once('=') else {
        let mut start = line.chars();
        let continues = start.next() == Some(' ')
            && start.next().is_some_and(|second| !second.is_ascii_whitespace());
        return match before_comment(stripped) {
            part if continues && !part.is_empty() => Line::Continue(part.to_owned()),
            _ => not_a_setting(stripped),
        };
    };
    let key = key.strip_suffix(' ').unwrap_or(key);
    let value = value.strip_prefix(' ').unwrap_or(value);
    // A space on each side of later equals signs is removed too.
    let value = value.replace(" =", "=").replace("= ", "=");
    match (key, before_comment(&value)) {
        ("", _) => Line::Odd(IniProblemKind::NotASetting),
        (key, "") if value.is_empty() => Line::Delete(key),
        (key, value) => Line::Set(key, value.to_owned()),
    }
}

fn section(rest: &str) -> Line<'_> {
    match rest.split_once(']') {
        Some((name, "")) if !name.is_empty() => Line::Section(name),
        _ => Line::Odd(IniProblemKind::NotASection),
    }
}

fn not_a_setting(line: &str) -> Line<'_> {
    match line.chars().next() {
        Some('#') => Line::Nothing,
        Some('\u{feff}') => Line::Odd(IniProblemKind::ByteOrderMark),
        _ => Line::Odd(IniProblemKind::NotASetting),
    }
}

/// The text before a ` ;` or a tab and `;`.
fn before_comment(text: &str) -> &str {
    let at = [" ;", "\t;"].iter().filter_map(|comment| text.find(comment)).min();
    at.and_then(|at| text.get(..at)).unwrap_or(text)
}

#[cfg(test)]
mod tests;
