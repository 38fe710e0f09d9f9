//! Formats values as all pages show them: names, bytes, times, links.

pub(in crate::serve) use crate::serve::report::columns::link;
use crate::serve::report::columns::target_name;
use crate::{
    model::rounding::to_bytes,
    plan::RefusalReason,
    text::{Label as _, duration, escape, grouped, size, three_digits},
};
use maud::{Markup, html};
use std::time::Duration;
use wall_clock::Moment;

/// A name chosen by somebody else, isolated so that neither its text direction nor its control
/// characters affect the page.
pub(super) fn name(text: &str) -> Markup {
    html! { bdi { (escape::escape_line(text)) } }
}

/// Bytes, or the mark for unknown.
pub(super) fn bytes(bytes: Option<u64>) -> Markup {
    match bytes {
        Some(exact) => {
            html! { span title={ (grouped(exact)) " bytes" } { (size::format_size(exact)) } }
        }
        None => unknown(),
    }
}

/// The mark for an unknown value, which is never shown as zero.
pub(super) fn unknown() -> Markup {
    html! { span.quiet title="unknown" { "?" } }
}

/// A count in groups of three digits.
pub(super) fn count(number: impl TryInto<u64>) -> String {
    grouped(number.try_into().unwrap_or(u64::MAX))
}

/// How long ago a time of the API was; the tooltip has the exact value.
pub(super) fn ago(time: &str, now: Moment) -> Markup {
    let words = match Moment::parse(time) {
        Some(then) if then <= now => {
            format!("{} ago", duration::format_rounded(then.age(now)))
        }
        Some(then) => format!("in {}", duration::format_rounded(now.age(then))),
        None => time.to_owned(),
    };
    html! { time.one datetime=(time) title=(time) { (words) } }
}

/// The time since a moment of the API.
pub(super) fn span_since(time: Option<&str>, now: Moment) -> Markup {
    let Some(then) = time.and_then(Moment::parse) else { return unknown() };
    html! { time.one datetime=[time] title=[time] { (duration::format_rounded(then.age(now))) } }
}

/// A span of seconds.
pub(super) fn seconds(seconds: Option<f64>) -> Markup {
    let span = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
    match span {
        Some(span) => html! { span.one { (duration::format_rounded(span)) } },
        None => unknown(),
    }
}

/// A share from 0 to 1 in percent.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0}%", (share * 100.0).clamp(0.0, 100.0))
}

/// Lines to paste elsewhere, with a button that copies them.
pub(super) fn to_copy(lines: &str) -> Markup {
    html! { div.to-copy { pre tabindex="0" { (escape::escape_lines(lines)) } button type="button" data-copy { "Copy" } } }
}

/// Text with the parts between backticks as code. An unmatched backtick stays.
pub(super) fn with_code(text: &str) -> Markup {
    let mut rest = text;
    html! {
        @while let Some((before, code, after)) = first_code(rest) {
            @if !before.is_empty() { (name(before)) }
            code { (name(code)) }
            @let () = rest = after;
        }
        @if !rest.is_empty() || text.is_empty() { (name(rest)) }
    }
}

/// The text before, between and after the first two backticks.
fn first_code(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('`')?;
    let (code, after) = rest.split_once('`')?;
    Some((before, code, after))
}

/// A label of the API with spaces for underscores.
pub(super) fn words(label: &str) -> String {
    label.replace('_', " ")
}

/// A link to a database's page.
pub(super) fn database_link(db: &str) -> Markup {
    html! { a href=(link("database", &[("name", db)])) { (name(db)) } }
}

/// A link to a target's page, with a readable name: its shard file, its view, or its database.
pub(super) fn id_link(id: &str, ddoc: Option<&str>) -> Markup {
    target_link(id, &target_name(id, ddoc))
}

/// A link to a target's page with this text.
pub(super) fn target_link(id: &str, text: &str) -> Markup {
    html! { a href=(link("target", &[("id", id)])) { (name(text)) } }
}

/// A number that may be missing.
pub(super) fn number(number: Option<f64>) -> Markup {
    match number {
        Some(number) => html! { (three_digits(number)) },
        None => unknown(),
    }
}

/// A priority with its unit.
pub(super) fn score(score: Option<f64>, in_bytes: bool) -> Markup {
    match score {
        Some(score) if in_bytes => bytes(Some(to_bytes(score.max(0.0)))),
        score => number(score),
    }
}

/// The meaning of a refusal reason.
pub(super) fn meaning(reason: &str) -> &'static str {
    RefusalReason::from_label(reason).map_or("", RefusalReason::meaning)
}
