//! The page of advice, the most valuable first.

use super::{
    Page, Part, Screen,
    cells::{
        ago, bytes, count, database_link, id_link, link, name, number, seconds, target_link,
        with_code, words,
    },
    preflight,
};
use crate::{
    serve::report::{Advice, AdviceLine, AdviceSubject},
    text::counted,
};
use maud::{Markup, html};
use wall_clock::Moment;

/// The page at `/advice`.
pub(in crate::serve) fn advice(advice: &Advice, now: Moment) -> Page {
    let (open, muted): (Vec<_>, Vec<_>) =
        advice.advice.iter().partition(|line| line.muted.is_none());
    let list = html! {
        p { (with_code(&advice.says)) }
        @for line in open { (piece(line, now)) }
        @if !advice.more.is_empty() {
            h2 { "More of the same" }
            ul { @for more in &advice.more { li { (words(&more.code)) ": " (counted(more.count, "finding", "findings")) } } }
        }
        @if !muted.is_empty() {
            @for line in muted { (piece(line, now)) }
        }
    };
    Page::live(Screen::Advice, "Advice", vec![Part::new("list", list)])
}

/// The CSS class for a severity's colour.
pub(super) fn class_of(severity: &str) -> &'static str {
    match severity {
        "critical" => "severity bad",
        "warning" => "severity warn",
        _ => "severity quiet",
    }
}

/// The subject of a piece of advice, as a link if it has a page of its own.
fn subject_link(subject: &AdviceSubject) -> Markup {
    match &*subject.kind {
        "target" => id_link(&subject.name, None),
        "design" => target_link(&subject.name, &subject.name),
        "database" => database_link(&subject.name),
        _ => name(&subject.name),
    }
}

/// A value that advice is based on, with the unit that its name ends with.
fn evidence(key: &str, value: &serde_json::Value) -> Markup {
    let is_of = |unit: &str| key.ends_with(unit) || key.contains(&format!("{unit}_"));
    match (value.as_u64(), value.as_f64(), value.as_str()) {
        (Some(exact), ..) if is_of("bytes") => bytes(Some(exact)),
        (_, Some(span), _) if is_of("seconds") => seconds(Some(span)),
        (Some(exact), ..) => html! { (count(exact)) },
        (_, Some(fraction), _) => number(Some(fraction)),
        (.., Some(text)) => name(text),
        _ => html! { (value.to_string()) },
    }
}

fn piece(line: &AdviceLine, now: Moment) -> Markup {
    let subject = [("code", &*line.code), ("subject", &*line.subject.name)];
    let to = |order| link("act", &[[("order", order)].as_slice(), &subject].concat());
    html! {
        h2 { span class=(class_of(&line.severity)) { (line.severity) } " " (subject_link(&line.subject)) @if line.muted.is_some() { span.quiet { " (muted)" } } }
        p { (with_code(&line.says)) }
        p.quiet {
            @match (&*line.gain.kind, line.gain.value) {
                ("bytes", Some(gain)) => { "It would free " (bytes(Some(gain))) ". " }
                ("seconds", Some(gain)) => { "It would save " (seconds(Some(gain as f64))) " of a node's work. " }
                ("risk", Some(gain @ 1..)) => { "At risk: " (bytes(Some(gain))) ". " }
                _ => {}
            }
            @if let Some(since) = &line.since { "Found " (ago(since, now)) ". " }
            @if let Some(muted) = &line.muted {
                "Muted"
                @if let Some(by) = &muted.by { " by " (name(by)) }
                @if let Some(why) = &muted.why { ": " (name(why)) }
                "; the mute expires " (ago(&muted.until, now)) ". "
            }
            a href=(line.learn.trim_start_matches('/')) { "In the book" }
        }
        details {
            summary { "What to do" }
            (preflight::steps(&line.remedy))
            h3 { "Evidence" }
            dl.facts { @for (key, value) in &line.evidence {
                dt { (words(key)) }
                dd { (evidence(key, value)) }
            } }
            p.actions {
                @if line.muted.is_none() { a.button href=(to("mute")) { "Mute …" } } @else { a.button href=(to("unmute")) { "Unmute …" } }
            }
        }
    }
}
