//! What is wrong with a configuration, and findings about a valid one.

use std::{borrow::Cow, fmt};

/// Where something is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A flag or an environment variable, by its name.
    Flag(&'static str),
    /// The whole of a file.
    File(String),
    /// A place in a file.
    At {
        /// The file, as it was named.
        file: String,
        /// Counted from one.
        line: usize,
        /// Counted from one, in characters.
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

/// One thing that keeps the program from starting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What was found, what is allowed, and what was perhaps meant.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.text)
    }
}

/// Everything that is wrong, in the order in which it is written: flags first, then by
/// line and column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// These problems, sorted, each once.
    #[must_use]
    pub fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort();
        problems.dedup();
        Self(problems)
    }

    /// One problem of a whole file.
    pub(crate) fn of_file(file: &str, text: String) -> Self {
        Self(vec![Problem { place: Place::File(file.to_owned()), text }])
    }

    /// Each of them; at least one.
    #[must_use]
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

/// A remark about a valid configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Where.
    pub place: Place,
    /// The sentence.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.text)
    }
}

/// A text as a message may repeat it: quoted, short, and without what may be secret in a URL.
pub(crate) fn quoted(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    let text = redact_secrets(text);
    if text.chars().count() > MAX_CHARS {
        let start: String = text.chars().take(MAX_CHARS).collect();
        return format!("{start:?}…");
    }
    format!("{text:?}")
}

/// A text with what may be the user and the password of a URL replaced, also in a misspelt URL,
/// and with a URL's query and fragment replaced. Any other text is unchanged.
#[must_use]
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
        // Either may be part of the other.
        (Some(_), _) => Cow::Owned(format!("{start}<secret>")),
    }
}

/// `a, b or c`.
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

/// `; did you mean x?`, where one of `known` is near enough to what was written.
pub(crate) fn suggestion<S: AsRef<str>>(written: &str, known: &[S]) -> String {
    let written = written.to_lowercase();
    known
        .iter()
        .map(|known| (strsim::jaro_winkler(&written, &known.as_ref().to_lowercase()), known))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, known)| format!("; did you mean {}?", known.as_ref()))
        .unwrap_or_default()
}
