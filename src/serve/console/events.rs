//! The journal's events, filtered by type and target.

use super::{
    Given, Page, Part, Screen,
    cells::{ago, id_link, name, words},
    jobs,
};
use crate::{
    plan::RefusalReason,
    serve::report::{EventLine, Events, event_type_in_words, result_in_words},
    store::journal::EventType,
    text::Label as _,
};
use maud::{Markup, html};
use wall_clock::Moment;

/// The page at `/events`, newest first; `given` is the active filter, with the parameters of
/// `/api/v1/events`.
pub(in crate::serve) fn events(given: &Given, found: &Result<Events, String>, now: Moment) -> Page {
    let shown = match found {
        Err(why) => html! { p.note { (why) } },
        Ok(found) => html! {
            (list(&found.events.iter().rev().cloned().collect::<Vec<_>>(), now, None))
            @if let Some(older) = older(given, found) { p.turn { a rel="next" href=(older) { "Older →" } } }
            @if found.more { p.quiet { "There are more since then: choose a later time, or read " a href=(given.link("api/v1/events", &[])) { "all of them as JSON" } "." } }
        },
    };
    Page::live(
        Screen::Events,
        "Events",
        vec![Part::new("filter", form(given)), Part::new("list", shown)],
    )
}

/// A link to the events before those shown, if there may be any.
fn older(given: &Given, found: &Events) -> Option<String> {
    let first = found.events.first().filter(|_| found.events.len() >= found.limit)?;
    Some(given.link("events", &[("before", &first.seq.to_string()), ("since", "")]))
}

fn form(given: &Given) -> Markup {
    let get = |key| given.get(key);
    html! {
        form.filter action="events" {
            label { "type" select name="types" {
                option value="" { "hide database updates" }
                @for kind in EventType::labels() { option value=(kind) selected[get("types") == kind] { (event_type_in_words(kind)) } }
            } }
            label { "target" input name="target" value=(get("target")) placeholder="database or id"; }
            label { "since" input name="since" value=(get("since")) placeholder="2h" size="8"; }
            button { "Show" }
        }
    }
}

/// The last events about one database or target.
pub(super) fn of_one(events: &[EventLine], now: Moment, of: &str) -> Part {
    Part::new("events", html! { h2 { "What happened" } (list(events, now, Some(of))) })
}

/// A table of events, in the order given. On the page of one database or target, `of` is its name,
/// which replaces the name in events that concern several targets.
fn list(events: &[EventLine], now: Moment, of: Option<&str>) -> Markup {
    html! {
        @if events.is_empty() { p.quiet { "No events recorded." } } @else {
            div.wide { table {
                thead { tr { th { "when" } th { "what" } th { "about" } th { "details" } } }
                tbody { @for event in events { tr {
                    td.one { (ago(&event.at, now)) }
                    td.one { (event.type_in_words()) }
                    td.named { (about(event, of)) }
                    td.text { (details(event)) }
                } } }
            } }
        }
    }
}

fn about(event: &EventLine, of: Option<&str>) -> Markup {
    html! {
        @if let Some(of) = of.filter(|_| event.targets.is_some()) { (name(of)) }
        @else if let Some(target) = &event.target { (id_link(target, event.ddoc.as_deref())) }
        @else if let Some(db) = &event.db { (super::cells::database_link(db)) }
        @else if let Some(scope) = &event.scope { (name(scope)) }
        @else if let Some(subject) = &event.subject { (name(subject)) }
        @if let Some(targets) = event.targets { span.quiet { " and " (targets.saturating_sub(1)) " more" } }
    }
}

/// Who started a job, as part of a sentence.
fn started_by(owner: &str) -> String {
    match owner {
        "other" => "not by recliner".to_owned(),
        owner => format!("started by {}", words(owner)),
    }
}

/// The non-empty fields of an event, ordered as in a sentence.
fn details(event: &EventLine) -> Markup {
    let texts = [
        ("on ", &event.node),
        ("channel ", &event.channel),
        ("advice ", &event.code),
        ("until ", &event.until),
        ("ordered by ", &event.ordered_by),
        ("by ", &event.by),
        ("section ", &event.section),
        ("key ", &event.key),
    ];
    let text_fields =
        texts.iter().filter_map(|(before, text)| Some(format!("{before}{}", text.as_ref()?)));
    let result = event.result.as_deref();
    let is_unknown = event.freed_bytes.flatten().is_none();
    let result = result.filter(|it| is_unknown || !matches!(*it, "freed" | "grew"));
    let labels = [
        ("", event.run_in_words()),
        ("", event.reason.as_deref().map(RefusalReason::words_of)),
        ("of ", event.of.as_deref().map(event_type_in_words)),
        ("", event.owner.as_deref().map(started_by)),
        // The bytes already say that it freed some, or grew.
        ("", result.map(result_in_words)),
        ("", event.class.as_deref().map(words)),
    ];
    let labels =
        labels.iter().filter_map(|(before, text)| Some(format!("{before}{}", text.as_ref()?)));
    let phrases: Vec<String> = text_fields.chain(labels).collect();
    let meaning = event.reason.as_deref().map_or("", super::cells::meaning);
    html! {
        span title=[(!meaning.is_empty()).then_some(meaning)] { (name(&phrases.join(", "))) }
        @if let Some(freed @ Some(_)) = event.freed_bytes { @if !phrases.is_empty() { ", " } (jobs::freed_or_grew(freed)) }
        @if let Some(failures) = event.failures { ", " (failures) " failures in a row" }
        @if let Some(count) = event.count { ", " (count) " times more" }
        @if let Some(why) = &event.why { ": " (name(why)) }
    }
}
