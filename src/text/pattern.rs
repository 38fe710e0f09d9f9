//! Shell-like name patterns with `*` and `?`: compilation and matching.
//!
//! `*` also matches slashes, because database names may contain them. Used by channels and the
//! ignore list.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// An include and an exclude list. A name passes if it matches any pattern of `include`, or
/// `include` is empty, and no pattern of `exclude`.
#[derive(Clone, Debug, Default)]
pub struct NameFilter {
    include: NamePatterns,
    exclude: NamePatterns,
}

impl NameFilter {
    /// Compiles both lists.
    ///
    /// # Errors
    /// If a pattern cannot be compiled: the first such pattern and the reason.
    pub fn new<S: AsRef<str>>(include: &[S], exclude: &[S]) -> Result<Self, PatternError> {
        Ok(Self { include: NamePatterns::new(include)?, exclude: NamePatterns::new(exclude)? })
    }

    /// Whether `name` passes the filter.
    #[must_use]
    pub fn accepts(&self, name: &str) -> bool {
        (self.include.texts.is_empty() || self.include.matches(name)) && !self.exclude.matches(name)
    }

    /// Whether every name passes, so that callers can skip the check.
    #[must_use]
    pub fn accepts_all(&self) -> bool {
        self.include.texts.is_empty() && self.exclude.texts.is_empty()
    }

    /// The patterns as written in the configuration: included, excluded.
    #[must_use]
    pub fn texts(&self) -> (&[String], &[String]) {
        (&self.include.texts, &self.exclude.texts)
    }
}

impl PartialEq for NameFilter {
    fn eq(&self, other: &Self) -> bool {
        self.texts() == other.texts()
    }
}

/// A list of patterns, compiled.
#[derive(Clone, Debug, Default)]
pub struct NamePatterns {
    texts: Vec<String>,
    set: GlobSet,
}

impl NamePatterns {
    /// Compiles `texts`.
    ///
    /// # Errors
    /// If a pattern cannot be compiled: the first such pattern and the reason.
    pub fn new<S: AsRef<str>>(texts: &[S]) -> Result<Self, PatternError> {
        let mut set = GlobSetBuilder::new();
        for text in texts {
            let text = text.as_ref();
            let glob = GlobBuilder::new(text)
                .literal_separator(false)
                .backslash_escape(true)
                .build()
                .map_err(|source| PatternError { text: text.to_owned(), source })?;
            set.add(glob);
        }
        let set = set
            .build()
            .map_err(|source| PatternError { text: "all patterns together".to_owned(), source })?;
        Ok(Self { texts: texts.iter().map(|text| text.as_ref().to_owned()).collect(), set })
    }

    /// Whether any pattern matches the whole of `name`.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        !self.texts.is_empty() && self.set.is_match(name)
    }

    /// The patterns as written in the configuration.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        &self.texts
    }
}

impl PartialEq for NamePatterns {
    fn eq(&self, other: &Self) -> bool {
        self.texts == other.texts
    }
}

/// Why a pattern cannot be compiled.
#[derive(Debug, thiserror::Error)]
#[error(
    "invalid pattern {text:?}: use * for any characters, ? for one character, and \\ before a literal * or ?"
)]
pub struct PatternError {
    text: String,
    #[source]
    source: globset::Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names_with_slashes() {
        let names = NameFilter::new(&["orders-*", "app/*"], &["*-test"]).unwrap();
        for (name, taken) in [
            ("orders-1", true),
            ("orders-1-test", false),
            ("app/a/b", true),
            ("xorders-1", false),
            ("app", false),
        ] {
            assert_eq!(names.accepts(name), taken, "{name}");
        }
        assert!(NameFilter::default().accepts("anything"));
        assert!(NameFilter::default().accepts_all());
    }

    #[test]
    fn an_invalid_pattern_is_named_in_the_error() {
        let error = NamePatterns::new(&["a["]).unwrap_err().to_string();
        assert!(error.contains("\"a[\""), "{error}");
    }
}
