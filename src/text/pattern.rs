//! Shell-like name patterns with `*` and `?`: compilation and matching.
//!
//! `*` also matches slashes, because database names may contain them. Used by channels and the
//! ignore list.

use std::collections::HashSet;

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
    pub fn accepts(&self, name: &str) -> bool {
        (self.include.texts.is_empty() || self.include.matches(name)) && !self.exclude.matches(name)
    }

    /// Whether every name passes, so that callers can skip the check.
    pub fn accepts_all(&self) -> bool {
        self.include.texts.is_empty() && self.exclude.texts.is_empty()
    }

    /// The patterns as written in the configuration: included, excluded.
    pub fn texts(&self) -> (&[String], &[String]) {
        (&self.include.texts, &self.exclude.texts)
    }
}

impl PartialEq for NameFilter {
    fn eq(&self, other: &Self) -> bool {
        self.texts() == other.texts()
    }
}

/// A list of compiled patterns. It takes no more memory than its text, and the time of a match is
/// at most the product of the lengths of name and patterns, because patterns may also come over
/// HTTP.
#[derive(Clone, Debug, Default)]
pub struct NamePatterns {
    texts: Vec<String>,
    /// The patterns without a wildcard, unescaped.
    names: HashSet<String>,
    wildcards: Vec<Wildcard>,
}

impl NamePatterns {
    /// Compiles `texts`.
    ///
    /// # Errors
    /// If a pattern is not valid: the first such pattern.
    pub fn new<S: AsRef<str>>(texts: &[S]) -> Result<Self, PatternError> {
        let mut patterns = Self::default();
        for text in texts {
            let text = text.as_ref();
            let wildcard = Wildcard::parse(text).ok_or_else(|| PatternError(text.to_owned()))?;
            match wildcard.name() {
                Some(name) => _ = patterns.names.insert(name),
                None => patterns.wildcards.push(wildcard),
            }
            patterns.texts.push(text.to_owned());
        }
        Ok(patterns)
    }

    /// Whether any pattern matches the whole of `name`.
    pub fn matches(&self, name: &str) -> bool {
        self.names.contains(name) || self.wildcards.iter().any(|pattern| pattern.matches(name))
    }

    /// The patterns as written in the configuration.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }
}

/// The pattern that matches only this name.
pub(crate) fn escaped(name: &str) -> String {
    let special = |letter: char| "*?[{}\\".contains(letter);
    name.chars().flat_map(|it| special(it).then_some('\\').into_iter().chain([it])).collect()
}

/// Whether a pattern may match several names.
pub(crate) fn has_wildcard(text: &str) -> bool {
    Wildcard::parse(text).is_some_and(|pattern| pattern.name().is_none())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Is(char),
    AnyChar,
    AnyText,
}

#[derive(Clone, Debug)]
struct Wildcard(Box<[Token]>);

impl Wildcard {
    fn parse(text: &str) -> Option<Self> {
        let mut letters = text.chars();
        let mut tokens = Vec::new();
        while let Some(letter) = letters.next() {
            tokens.push(match letter {
                '*' => Token::AnyText,
                '?' => Token::AnyChar,
                '\\' => Token::Is(letters.next()?),
                // Patterns of other programs have sets and alternatives here.
                '[' | '{' | '}' => return None,
                _ => Token::Is(letter),
            });
        }
        Some(Self(tokens.into()))
    }

    /// The only name that the pattern matches, if it has no wildcard.
    fn name(&self) -> Option<String> {
        let letter = |token: &Token| match token {
            Token::Is(letter) => Some(*letter),
            Token::AnyChar | Token::AnyText => None,
        };
        self.0.iter().map(letter).collect()
    }

    fn matches(&self, name: &str) -> bool {
        let (mut at, mut rest) = (0, name.chars());
        // The position after the last `*`, and the rest of the name from which it may take more. An
        // earlier `*` never needs to take more.
        let mut last = None;
        loop {
            let token = self.0.get(at);
            if token == Some(&Token::AnyText) {
                at += 1;
                last = Some((at, rest.clone()));
                continue;
            }
            let mut after = rest.clone();
            let fits = match (token, after.next()) {
                (None, None) => return true,
                (Some(Token::Is(wanted)), Some(letter)) => *wanted == letter,
                (Some(_), Some(_)) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
            if fits {
                (at, rest) = (at + 1, after);
                continue;
            }
            let Some((next, from)) = &mut last else { return false };
            if from.next().is_none() {
                return false;
            }
            (at, rest) = (*next, from.clone());
        }
    }
}

impl PartialEq for NamePatterns {
    fn eq(&self, other: &Self) -> bool {
        self.texts == other.texts
    }
}

/// A pattern that is not valid.
#[derive(Debug, thiserror::Error)]
#[error(
    "invalid pattern {0:?}: use * for any characters, ? for one character, and \\ before a literal *, ?, [, {{, }} or \\"
)]
pub struct PatternError(String);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn error_quotes_the_invalid_pattern() {
        for text in ["a[", "{a,b}", "a}", "a\\"] {
            let error = NamePatterns::new(&[text]).unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn matches_many_wildcard_patterns_without_backtracking() {
        let texts: Vec<String> = (0..10_000).map(|at| format!("*a*b*a*b*?{at}z*")).collect();
        let patterns = NamePatterns::new(&texts).unwrap();
        for name in ["shards/00000000-ffffffff/orders.1795221991", &"ab".repeat(119)] {
            assert!(!patterns.matches(name), "{name}");
        }
    }

    /// A reference implementation of the match, letter by letter.
    fn is_match(pattern: &[char], name: &[char]) -> bool {
        match (pattern, name) {
            ([], _) => name.is_empty(),
            (['*', rest @ ..], _) => (0..=name.len()).any(|at| is_match(rest, &name[at..])),
            (['?', rest @ ..], [_, name @ ..]) => is_match(rest, name),
            (['\\', letter, rest @ ..], [first, name @ ..])
            | ([letter, rest @ ..], [first, name @ ..]) => letter == first && is_match(rest, name),
            (_, []) => false,
        }
    }

    proptest! {
        #[test]
        fn matches_like_the_reference_implementation(pattern in "(\\\\[*?a]|[*?ab\u{fc}]){0,8}", name in "[ab*?\u{fc}]{0,8}") {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            let patterns = NamePatterns::new(&[&pattern]).unwrap();
            prop_assert_eq!(patterns.matches(&name), is_match(&letters(&pattern), &letters(&name)));
        }
    }
}
