//! The labels by which Prometheus knows recliner's scrape targets.
//!
//! Owns the grammar of `--selector`: the text between braces in PromQL.

use std::{fmt, str::FromStr};

/// Label matchers of scraped series, such as `job="recliner"`, in PromQL's syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Selector(String);

/// Why a text is not a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; write matchers as PromQL does, such as job=\"recliner\", namespace=~\"couch.*\"")]
pub(in crate::cli) struct SelectorError(String);

impl Selector {
    /// The selector in the shipped rules.
    pub(in crate::cli) const SHIPPED: &str = "job=\"recliner\"";
}

impl fmt::Display for Selector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let text = text.trim();
        let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
        if text.contains(char::is_control) {
            return wrong("it has a line break or another control character");
        }
        if text.contains("{{") || text.contains("}}") {
            return wrong("it has two braces in a row, which begin or end a template in an alert");
        }
        let (mut rest, mut matchers, mut is_positive) = (inner.trim(), Vec::new(), false);
        while !rest.is_empty() {
            let (matcher, after) = matcher(rest)?;
            is_positive |= matcher.is_positive;
            matchers.push(matcher.text);
            rest = match after.strip_prefix(',') {
                Some(next) => next.trim_start(),
                None if after.is_empty() => after,
                None => return wrong(format!("a comma is missing before {after}")),
            };
        }
        if !is_positive {
            return wrong(
                "it does not select recliner's targets: give at least one matcher with = or =~ and a value",
            );
        }
        Ok(Self(matchers.join(", ")))
    }
}

fn wrong<T>(why: impl Into<String>) -> Result<T, SelectorError> {
    Err(SelectorError(why.into()))
}

struct Matcher {
    text: String,
    /// Whether the label must have a value; otherwise series without the label would match too.
    is_positive: bool,
}

/// Splits the first matcher off a text; also returns the rest.
fn matcher(text: &str) -> Result<(Matcher, &str), SelectorError> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    let (label, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    if label.is_empty() || label.starts_with(|c: char| c.is_ascii_digit()) {
        return wrong(format!("{text} does not begin with a label name"));
    }
    if label == "__name__" {
        return wrong("__name__ is the metric's name, not a label of a target");
    }
    let rest = rest.trim_start();
    let operators = ["=~", "!~", "!=", "="];
    let matched = operators.iter().find_map(|it| rest.strip_prefix(it).map(|rest| (*it, rest)));
    let Some((operator, rest)) = matched else {
        return wrong(format!("expected =, !=, =~ or !~ after {label}"));
    };
    let rest = rest.trim_start();
    let Some(quoted) = rest.strip_prefix('"') else {
        return wrong(format!("the value of {label} is not in double quotes"));
    };
    let mut is_escaped = false;
    let end = quoted.find(|c: char| {
        let is_end = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    });
    let Some((value, rest)) = end.and_then(|end| quoted.split_at_checked(end)) else {
        return wrong(format!("the value of {label} has no closing quote"));
    };
    if let Some(letter) = unknown_escape(value) {
        return wrong(format!(
            "the value of {label} has \\{letter}, which is no escape in PromQL; write a backslash twice"
        ));
    }
    let matcher = Matcher {
        text: format!("{label}{operator}\"{value}\""),
        is_positive: !value.is_empty() && operator.starts_with('='),
    };
    Ok((matcher, rest.get(1..).unwrap_or_default().trim_start()))
}

/// The first letter after a backslash that PromQL does not accept as an escape.
fn unknown_escape(value: &str) -> Option<char> {
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        if letter == '\\' {
            let escaped = letters.next()?;
            if !"abfnrtv\\\"xuU01234567".contains(escaped) {
                return Some(escaped);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_parse_like_promql() {
        for (text, read) in [
            (Selector::SHIPPED, "job=\"recliner\""),
            (" {job=\"a/b c\"} ", "job=\"a/b c\""),
            ("job =~ \"re.*\",ns!=\"x\"", "job=~\"re.*\", ns!=\"x\""),
            ("a=\"1\", b!~\"2\", ", "a=\"1\", b!~\"2\""),
            ("job=\"a \\\"b\\\\\"", "job=\"a \\\"b\\\\\""),
            ("job=\"a,b: c # {d}\"", "job=\"a,b: c # {d}\""),
            (r#"job=~"a\\.b""#, r#"job=~"a\\.b""#),
        ] {
            assert_eq!(text.parse::<Selector>().map(|it| it.to_string()), Ok(read.to_owned()));
        }
    }

    #[test]
    fn invalid_selectors_are_refused_with_a_reason() {
        for (text, reason) in [
            ("", "does not select recliner's targets"),
            ("recliner", "or !~ after recliner"),
            ("job=recliner", "not in double quotes"),
            ("job='recliner'", "not in double quotes"),
            ("job=\"recliner", "no closing quote"),
            ("job=\"recliner\\\"", "no closing quote"),
            ("job=\"a\" ns=\"b\"", "a comma is missing"),
            ("job=~\"a\\.b\"", "has \\."),
            ("job!=\"recliner\"", "does not select recliner's targets"),
            ("job=\"\"", "does not select recliner's targets"),
            ("=\"x\"", "begin with a label name"),
            ("7up=\"x\"", "begin with a label name"),
            ("jöb=\"x\"", "expected =, !="),
            ("up{job=\"x\"}", "expected =, !="),
            ("__name__=\"up\"", "metric's name"),
            ("job=\"a\nb\"", "line break"),
            ("job=\"{{ $labels.job }}\"", "template"),
        ] {
            let why = text.parse::<Selector>().expect_err(text).to_string();
            assert!(why.contains(reason) && why.contains("such as"), "{text}: {why}");
        }
    }
}
