//! CouchDB's ini files, as the given version of its `config` application reads them.
//!
//! Owns the parser and the list of lines that CouchDB drops or reads oddly without a
//! word. Never fails and never shows a value, because other sections hold secrets.
//!
//! Up to 3.2 a line that begins with one space continues the value above it; 3.3 trims
//! lines instead. Up to 3.3 an empty value takes away what an earlier file set; later
//! versions ignore it. A `#` starts no comment in CouchDB, but nothing reads such keys.

use crate::Rules;
use std::{collections::BTreeMap, fmt};

/// Settings by section and key, as `GET /_node/{node}/_config` answers them.
pub type Sections = BTreeMap<String, BTreeMap<String, String>>;

/// Ini files read one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ini {
    /// Settings by section and key.
    pub(crate) sections: Sections,
    /// Lines that have no effect, or another one than they seem to.
    pub(crate) problems: Vec<IniProblem>,
}

/// A line that has no effect, or another one than it seems to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IniProblem {
    /// The file's name as it was given.
    pub file: String,
    /// The line, from one.
    pub line: usize,
    /// The section of the line; empty before the first.
    pub section: String,
    /// What is odd.
    pub kind: IniProblemKind,
}

/// What is odd about a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IniProblemKind {
    /// It starts like a section's name and is none.
    NotASection,
    /// It is before the first section.
    NoSection,
    /// It is no comment, no section and no setting.
    NotASetting,
    /// The key was set before in the same file; which of the two counts depends on the version.
    SetTwice(String),
    /// An empty value, which this version ignores.
    EmptyValue(String),
    /// An empty value, which takes away what an earlier file set.
    TakenAway(String),
}

impl fmt::Display for IniProblem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: ", self.file, self.line)?;
        match &self.kind {
            IniProblemKind::NotASection => write!(
                out,
                "starts with [ but is no section: write [name] with nothing after it; the lines below still belong to [{}]",
                self.section
            ),
            IniProblemKind::NoSection => {
                out.write_str("is before the first [section] and is ignored")
            }
            IniProblemKind::NotASetting => out.write_str("is no setting: write key = value"),
            IniProblemKind::SetTwice(key) => write!(out, "sets {key} a second time in this file"),
            IniProblemKind::EmptyValue(key) => write!(
                out,
                "gives {key} an empty value, which this version ignores: an earlier file's value stays"
            ),
            IniProblemKind::TakenAway(key) => {
                write!(out, "takes away what an earlier file sets for {key}")
            }
        }
    }
}

/// What one line says.
enum Line<'a> {
    Nothing,
    Section(&'a str),
    Set(&'a str, String),
    Continue(String),
    Delete(&'a str),
    Odd(IniProblemKind),
}

/// One file's settings and deletions, before they are laid over the earlier files.
#[derive(Default)]
struct File {
    set: BTreeMap<(String, String), String>,
    deleted: Vec<(String, String)>,
    section: String,
    last: Option<(String, String)>,
}

impl Ini {
    /// Reads one more file over those read before, by the rules of `rules`.
    pub(crate) fn add(&mut self, name: &str, bytes: &[u8], rules: Rules) {
        let text = String::from_utf8_lossy(bytes);
        let mut file = File::default();
        for (line, text) in lines(&text) {
            let read = if rules.trims_ini_lines() { trimmed(text) } else { folded(text) };
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
            // Only the older parser keeps settings outside of any section, where nothing
            // reads them.
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
            // A key with `#` is a commented line to its author and read by nobody.
            Line::Set(key, _) | Line::Delete(key) if key.starts_with('#') => {
                self.last = None;
                None
            }
            Line::Set(key, value) => {
                let at = (self.section.clone(), key.to_owned());
                self.last = Some(at.clone());
                let first = self.set.insert(at.clone(), value)?;
                if !rules.trims_ini_lines() {
                    // The older parser hands its list over newest first, so that the
                    // first of two lines is stored last.
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

/// Lines by number, from one. A lone carriage return and Ctrl-Z end a line too.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split('\n')
        .enumerate()
        .flat_map(|(at, line)| line.split(['\r', '\u{1a}']).map(move |part| (at + 1, part)))
}

/// The white space that CouchDB trims (`string:trim/1` of single bytes): a space that does not break
/// is none.
fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r'])
}

/// A line as 3.3 and later read it: comments off, trimmed, split at the first ` = `.
fn trimmed(line: &str) -> Line<'_> {
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

/// A line as 2.x to 3.2 read it: at most one space goes on each side of `=`, the rest
/// stays in key and value.
fn folded(line: &str) -> Line<'_> {
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
    // Later equals signs lose a space on each side as well.
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
    if line.starts_with('#') { Line::Nothing } else { Line::Odd(IniProblemKind::NotASetting) }
}

/// What stands before a ` ;` or tab-and-`;`.
fn before_comment(text: &str) -> &str {
    let at = [" ;", "\t;"].iter().filter_map(|comment| text.find(comment)).min();
    at.and_then(|at| text.get(..at)).unwrap_or(text)
}

#[cfg(test)]
mod tests;
