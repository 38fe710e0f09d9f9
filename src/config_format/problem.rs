//! Problems in a configuration, and findings about a valid one.

use std::{borrow::Cow, fmt};

/// The place where something is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The name of a flag or an environment variable.
    Flag(&'static str),
    /// A whole file.
    File(String),
    /// A place in a file.
    At {
        /// The name of the file as given by the user.
        file: String,
        /// Line number, starting at one.
        line: usize,
        /// Column in characters, starting at one.
        column: usize,
        /// The path of keys, such as `channels[2].min_size`; empty for the whole document.
        key: String,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => out.write_str(name),
            Self::File(file) => out.write_str(file),
            Self::At { file, line, column, key } if key.is_empty() => {
                write!(out, "{file}:{line}:{column}")
            }
            Self::At { file, line, column, key } => write!(out, "{file}:{line}:{column}: {key}"),
        }
    }
}

/// A problem that prevents the program from starting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The place of the problem.
    pub place: Place,
    /// What was found, what is allowed, and what the user perhaps meant.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.text)
    }
}

/// All problems in the order in which they are written: flags first, then by line and column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Sorts problems and removes duplicates.
    pub fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort();
        problems.dedup();
        Self(problems)
    }

    /// A single problem about a whole file.
    pub(crate) fn of_file(file: &str, text: String) -> Self {
        Self(vec![Problem { place: Place::File(file.to_owned()), text }])
    }

    /// All problems; at least one.
    pub fn all(&self) -> &[Problem] {
        &self.0
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            if at > 0 {
                out.write_str("\n")?;
            }
            problem.fmt(out)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// A remark about a valid setting, and its place.
pub type Finding = Problem;

/// A text for use in a message: quoted, shortened, and without the secret parts of a URL.
pub(crate) fn quoted(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    let text = redact_secrets(text);
    if text.chars().count() > MAX_CHARS {
        let start: String = text.chars().take(MAX_CHARS).collect();
        return format!("{start:?}…");
    }
    format!("{text:?}")
}

/// Replaces the possible user and password of a URL, even of a misspelt one, as well as its query
/// and fragment. Any other text is unchanged.
pub fn redact_secrets(text: &str) -> Cow<'_, str> {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, text),
    };
    let start = scheme.map_or_else(String::new, |scheme| format!("{scheme}://"));
    let login =
        rest.rsplit_once('@').filter(|(before, _)| scheme.is_some() || before.contains(':'));
    let query = rest.split_once(['?', '#']).filter(|_| scheme.is_some());
    match (login, query) {
        (None, None) => Cow::Borrowed(text),
        (Some((_, host)), None) if !host.contains(['?', '#']) => {
            Cow::Owned(format!("{start}<secret>@{host}"))
        }
        (None, Some((before, _))) => Cow::Owned(format!("{start}{before}?<secret>")),
        // With both an `@` and a query, either may be part of the other, so everything is replaced.
        (Some(_), _) => Cow::Owned(format!("{start}<secret>")),
    }
}

/// A list of words, such as `a, b or c`.
pub(crate) fn alternatives<S: AsRef<str>>(words: &[S]) -> String {
    match words {
        [] => String::new(),
        [only] => only.as_ref().to_owned(),
        [first @ .., last] => {
            let first: Vec<&str> = first.iter().map(AsRef::as_ref).collect();
            format!("{} or {}", first.join(", "), last.as_ref())
        }
    }
}

/// A hint such as `; did you mean x?` if one of `known` resembles the written word; otherwise
/// empty.
pub(crate) fn suggestion<S: AsRef<str>>(written: &str, known: &[S]) -> String {
    let written = written.to_lowercase();
    known
        .iter()
        .map(|candidate| {
            (strsim::jaro_winkler(&written, &candidate.as_ref().to_lowercase()), candidate)
        })
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, candidate)| format!("; did you mean {}?", candidate.as_ref()))
        .unwrap_or_default()
}
